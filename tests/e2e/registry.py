"""A stand-in for a schema registry, from memory: Confluent's answers to those who look up and who register.

And a Debezium event as its schemas describe it.
"""

from __future__ import annotations

import json
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any, Self

import fastavro

PLANT: dict[str, Any] = {
    "type": "record", "name": "Value", "namespace": "garden.plants",
    "fields": [{"name": "id", "type": "long"}, {"name": "height", "type": ["null", "int"]}],
}  # fmt: skip
SOURCE: dict[str, Any] = {
    "type": "record", "name": "Source", "namespace": "garden",
    "fields": [
        {"name": name, "type": type_}
        for name, type_ in {
            "connector": "string", "db": "string", "table": "string", "file": "string", "pos": "long",
            "row": "int", "ts_ms": "long", "snapshot": "string", "server_id": "long",
        }.items()
    ],
}  # fmt: skip
ENVELOPE: dict[str, Any] = {
    "type": "record", "name": "Envelope", "namespace": "garden.plants",
    "fields": [
        {"name": "before", "type": ["null", PLANT]},
        {"name": "after", "type": ["null", "garden.plants.Value"]},
        {"name": "source", "type": SOURCE},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"]},
    ],
}  # fmt: skip
KEY: dict[str, Any] = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}


def plant_event(key: int, height: int, op: str, place: int) -> dict[str, Any]:
    """One Debezium event as a value of `ENVELOPE`."""
    source = {
        "connector": "mysql", "db": "garden", "table": "plants", "file": "binlog.000001", "pos": place,
        "row": 0, "ts_ms": 1_700_000_000_000, "snapshot": "false", "server_id": 7,
    }  # fmt: skip
    row = {"id": key, "height": height}
    return {
        "before": row if op == "d" else None, "after": None if op == "d" else row,
        "source": source, "op": op, "ts_ms": 1_700_000_000_001,
    }  # fmt: skip


class Registry:
    """``with Registry() as registry: registry.url``; ids count from 1 in the order of `add`."""

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}
        self.kinds: dict[int, str] = {}  # of schemas that are not Avro
        self.asked: list[int] = []
        self._adding = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """What ``registry:`` names."""
        return f"http://127.0.0.1:{self.port}"

    def add(self, schema: dict[str, Any]) -> int:
        """Register a schema."""
        return self.add_text(json.dumps(schema))

    def add_text(self, text: str) -> int:
        """Register a schema as it was written; one that is known keeps its id."""
        with self._adding:
            known = next((number for number, one in self.texts.items() if one == text), len(self.texts) + 1)
            self.texts[known] = text
            return known

    def framed(self, number: int, value: Any) -> bytes:
        """One datum after its frame."""
        out = BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(self.texts[number])), value)
        return struct.pack(">bI", 0, number) + out.getvalue()

    def start(self) -> None:
        """Answer, on the same port as before if there was one."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), self._handler())
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Answer no longer."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
                pass

            def do_GET(self) -> None:
                number = int(self.path.rpartition("/")[2])
                registry.asked.append(number)
                known = registry.texts.get(number)
                body = {"schema": known} if known else {"error_code": 40403, "message": "Schema not found"}
                if number in registry.kinds:
                    body["schemaType"] = registry.kinds[number]
                self.answer(200 if known else 404, body)

            def do_POST(self) -> None:  # /subjects/<name>/versions
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.answer(200, {"id": registry.add_text(body["schema"])})

            def answer(self, status: int, body: dict[str, Any]) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        return Handler
