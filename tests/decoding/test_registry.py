"""The schema registry's client against a stub on the loopback."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from ingest.decoding import avro, registry
from ingest.errors import SetupError

ITEM = {"type": "record", "name": "Item", "namespace": "shop", "fields": [{"name": "id", "type": "long"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "one", "type": "Item"}, {"name": "two", "type": ["null", "shop.Item"]}],
}
ANSWERS = {
    "/schemas/ids/1": (200, {"schema": json.dumps(ITEM)}),
    "/schemas/ids/2": (
        200,
        {
            "schema": json.dumps(ORDER),
            "references": [{"name": "shop.Item", "subject": "item/value", "version": 3}],
        },
    ),
    "/subjects/item%2Fvalue/versions/3": (200, {"schema": json.dumps(ITEM)}),
    "/schemas/ids/4": (200, {"schema": "syntax = ...", "schemaType": "PROTOBUF"}),
    "/schemas/ids/5": (500, {"message": "broken"}),
    "/schemas/ids/6": (200, ["unexpected"]),
    "/schemas/ids/7": (
        200,
        {"schema": json.dumps(ORDER), "references": [{"name": "x", "subject": "gone", "version": 1}]},
    ),
}


class Stub(BaseHTTPRequestHandler):
    """Answers from the table above, and notes what was asked."""

    asked: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self):
        """One request."""
        Stub.asked.append((self.path, self.headers.get("Authorization")))
        status, answer = ANSWERS.get(self.path, (404, {"error_code": 40403}))
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args):
        """Keep the test's output quiet."""


@pytest.fixture
def port():
    """A running stub's port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Stub)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    Stub.asked.clear()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


def test_fetches_once(port):
    """A registry asked for every message is the slowest part of the run."""
    schema = registry.client(f"http://127.0.0.1:{port}/")
    assert ITEM == json.loads(schema(1)) == json.loads(schema(1))
    assert [("/schemas/ids/1", None)] == Stub.asked


def test_sends_name_and_password_and_never_shows_them(port):
    """A password in an error message ends up in every log."""
    registry.fetch(f"http://me:pa%40ss@127.0.0.1:{port}", 1)
    assert [("/schemas/ids/1", "Basic bWU6cGFAc3M=")] == Stub.asked
    with pytest.raises(SetupError) as error:
        registry.fetch(f"http://me:pa%40ss@127.0.0.1:{port}", 5)
    assert "ss@" not in str(error.value)


def test_writes_references_into_the_schema(port):
    """A schema that refers to another cannot be read alone."""
    text = registry.fetch(f"http://127.0.0.1:{port}", 2)
    assert {"one": {"id": 1}, "two": {"id": 2}} == avro.read(avro.load(text), b"\x02\x02\x04")


def test_unknown_id(port):
    """An id that the registry lacks is the message's fault, not the set-up's."""
    with pytest.raises(KeyError):
        registry.fetch(f"http://127.0.0.1:{port}", 3)


@pytest.mark.parametrize(
    ("number", "why"), [(4, "PROTOBUF"), (5, "answered 500"), (6, "without a schema"), (7, "lacks gone")]
)
def test_odd_answers_are_explained(port, number, why):
    """A registry that answers something else needs a person, who needs to know what."""
    with pytest.raises(SetupError, match=why):
        registry.fetch(f"http://127.0.0.1:{port}", number)


@pytest.mark.parametrize("url", ["file:///etc/hostname", "127.0.0.1:9"])
def test_only_http(url):
    """An address of another scheme would read files of the machine."""
    with pytest.raises(SetupError, match="http"):
        registry.fetch(url, 1)


def test_nobody_answers():
    """A closed port must not hang the run or show a traceback."""
    with pytest.raises(SetupError, match="gave no answer"):
        registry.fetch("http://127.0.0.1:9", 1, timeout=2)
