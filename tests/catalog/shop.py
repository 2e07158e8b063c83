"""A pipeline with a catalog, and a server that answers as Unity Catalog does, as far as its API is used here."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from ingest.config import load
from ingest.result import Result
from ingest.run import Warm, run
from ingest.tables.tables import LakeReader
from tests.unstarted import unstarted

FILE = """pipeline: shop
lake: ./lake
engine: auto
sources:
  - {name: s, kind: files, format: dts-canal, path: './in-*.jsonl', settle: 0s}
"""
ROWS = {"id": "bigint", "name": "varchar(9)"}


class Shop:
    """A pipeline over files of Canal messages, with a catalog."""

    def __init__(self, folder: Path, catalog: str, more: str = "") -> None:
        self.file = folder / "shop.yaml"
        self.catalog, self.slices = catalog, 0
        self.write(more)

    def write(self, more: str = "") -> None:
        """Write the pipeline file again, with further keys."""
        self.file.write_text(f"{FILE}catalog: {{{self.catalog}}}\n{more}", "utf-8")

    def send(self, table: str, sql: str = "", types: dict[str, str] = ROWS, database: str = "d") -> None:
        """A row of a table, before which comes a statement if one is given."""
        self.slices += 1
        clock = 1714521600000 + 1000 * self.slices
        place = {"database": database, "table": table, "es": clock, "ts": clock, "id": self.slices}
        lines = []
        if sql:
            lines.append(
                {
                    **place,
                    "isDdl": True,
                    "type": "ALTER",
                    "sql": sql,
                    "data": None,
                    "old": None,
                    "pkNames": None,
                    "mysqlType": None,
                }
            )
        row = {name: str(self.slices) for name in types}
        lines.append(
            {
                **place,
                "isDdl": False,
                "type": "INSERT",
                "sql": "",
                "data": [row],
                "old": None,
                "pkNames": ["id"],
                "mysqlType": types,
            }
        )
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (self.file.parent / f"in-{self.slices}.jsonl").write_text(text, "utf-8")

    def run(self, warm: Warm | None = None) -> Result:
        """A run, which needs no Spark."""
        return run(unstarted(), load(self.file), warm=warm if warm is not None else Warm())

    @property
    def lake(self) -> LakeReader:
        """The lake for questions."""
        return LakeReader(load(self.file))


class UnitySays(BaseHTTPRequestHandler):
    """The calls of `api/all.yaml` that the client makes, with the server's codes and its rules for external tables."""

    server: UnityServer

    def do_GET(self) -> None:
        """Catalogs, schemas, tables, or the list of a schema's tables."""
        path, asked = self._path()
        state = self.server
        if path == "tables":
            inside = f"{asked['catalog_name']}.{asked['schema_name']}."
            tables = [table for name, table in sorted(state.tables.items()) if name.startswith(inside)]
            if inside[:-1] not in state.schemas:
                return self._answer(404, {"error_code": "SCHEMA_NOT_FOUND", "message": "Schema not found"})
            first = int(asked.get("page_token", "0"))
            page = {"tables": tables[first : first + 2]}
            if first + 2 < len(tables):
                page["next_page_token"] = str(first + 2)
            return self._answer(200, page)
        kind, name = path.split("/", 1)
        there = {"catalogs": state.catalogs, "schemas": state.schemas, "tables": state.tables}[kind]
        if name not in there:
            return self._answer(404, {"error_code": "NOT_FOUND", "message": f"{name} not found"})
        return self._answer(200, there[name] if kind == "tables" else {"name": name})

    def do_POST(self) -> None:
        """A schema in a catalog, or an external table whose location no other table has."""
        path, _ = self._path()
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        state = self.server
        if given["catalog_name"] not in state.catalogs:
            return self._answer(404, {"message": "Catalog not found"})
        name = f"{given['catalog_name']}.{given['name']}"
        if path == "schemas":
            state.schemas.add(name)
            return self._answer(200, given)
        schema = f"{given['catalog_name']}.{given['schema_name']}"
        if schema not in state.schemas:
            return self._answer(404, {"message": "Schema not found"})
        name = f"{schema}.{given['name']}"
        taken = any(table["storage_location"] == given["storage_location"] for table in state.tables.values())
        if name in state.tables or taken:
            return self._answer(
                400, {"error_code": "TABLE_ALREADY_EXISTS", "message": "Table already exists"}
            )
        state.tables[name] = given
        return self._answer(200, given)

    def do_DELETE(self) -> None:
        """An external table: its files stay."""
        path, _ = self._path()
        gone = self.server.tables.pop(path.removeprefix("tables/"), None)
        # the real server's answer is no JSON
        self._answer(*((200, "200 OK") if gone else (404, {"message": "Table not found"})))

    def _path(self) -> tuple[str, dict[str, str]]:
        url = urlsplit(self.path)
        self.server.asked += 1
        return unquote(url.path.removeprefix("/api/2.1/unity-catalog/")), dict(parse_qsl(url.query))

    def _answer(self, code: int, body: Any) -> None:
        if self.server.token and self.headers["Authorization"] != f"Bearer {self.server.token}":
            code, body = 401, {"message": "No authorization found"}
        text = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class UnityServer(ThreadingHTTPServer):
    """The state of the server: names with dots."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), UnitySays)
        self.catalogs, self.schemas, self.tables = {"lake"}, set[str](), dict[str, dict[str, Any]]()
        self.asked, self.token = 0, ""

    @property
    def given(self) -> str:
        """The keys of `catalog:` for it."""
        return f"kind: unity, uri: 'http://127.0.0.1:{self.server_port}', catalog: lake"


@contextmanager
def unity_server() -> Iterator[UnityServer]:
    """A server on a free port of this machine."""
    with UnityServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
