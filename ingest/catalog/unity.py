"""Unity Catalog by its REST API, which has no call that changes a table: one that changed is dropped and created.

Document: `api/all.yaml` of unitycatalog, version 2.1 of its API: catalogs, schemas, and external tables of format DELTA.
"""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from ingest.catalog.client import SECONDS, CatalogError, Mark, comment
from ingest.catalog.entries import RegisteredColumn
from ingest.catalog.names import CatalogName
from ingest.catalog.registrations import CatalogTable, Registration
from ingest.config.entries import CatalogSettings

_API = "/api/2.1/unity-catalog"
_TYPES = {
    "TINYINT": ("BYTE", "byte"), "SMALLINT": ("SHORT", "short"), "INT": ("INT", "integer"), "BIGINT": ("LONG", "long"),
}  # fmt: skip
"""The types of columns whose names differ: as the API has them, and in the JSON of Spark's schemas."""
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_MOST = 1 << 24  # bytes of an answer


class UnityCatalog:
    """One catalog of a Unity Catalog server."""

    def __init__(self, settings: CatalogSettings, mark: Mark) -> None:
        self._settings, self._mark = settings, mark

    def registered(self, databases: Collection[str]) -> list[Registration]:
        """As `Catalog.registered`."""
        marked = []
        for database in sorted(databases):
            for table in self._tables(database):
                properties = table.get("properties") or {}
                if self._mark.owns(properties):
                    name = CatalogName(database, str(table["name"]))
                    marked.append(self._mark.registration(name, properties))
        return marked

    def _tables(self, database: str) -> Iterator[dict[str, Any]]:
        asked = {"catalog_name": self._settings.catalog, "schema_name": database, "max_results": "50"}
        while True:
            page = self.ask("GET", f"/tables?{urlencode(asked)}")
            yield from (page or {}).get("tables") or ()
            token = (page or {}).get("next_page_token")
            if not token:
                return
            asked["page_token"] = token

    def put(self, table: CatalogTable) -> None:
        """As `Catalog.put`."""
        properties = self._properties(table.name)
        if properties is not None:
            self._mark.refuse_foreign(table, properties)
            self.ask("DELETE", f"/tables/{self._full(table.name)}")
        elif self.ask("GET", f"/schemas/{self._named(table.name.database)}") is None:
            schema = {
                "name": table.name.database,
                "catalog_name": self._settings.catalog,
                "comment": f"mirrors of pipeline {self._mark.pipeline}",
            }
            self.ask("POST", "/schemas", schema)
        self.ask("POST", "/tables", self._table(table))

    def drop(self, name: CatalogName) -> None:
        """As `Catalog.drop`."""
        properties = self._properties(name)
        if self._mark.owns(properties):
            self.ask("DELETE", f"/tables/{self._full(name)}")

    def _properties(self, name: CatalogName) -> Mapping[str, str] | None:
        table = self.ask("GET", f"/tables/{self._full(name)}")
        return None if table is None else table.get("properties") or {}

    def _table(self, table: CatalogTable) -> dict[str, Any]:
        return {
            "name": table.name.table,
            "catalog_name": self._settings.catalog,
            "schema_name": table.name.database,
            "table_type": "EXTERNAL",
            "data_source_format": "DELTA",
            "columns": [_column(i, column) for i, column in enumerate(table.entry.fields)],
            "storage_location": table.location,
            "comment": comment(table.entry.title),
            "properties": self._mark.properties(table),
        }

    def _full(self, name: CatalogName) -> str:
        return self._named(f"{name.database}.{name.table}")

    def _named(self, name: str) -> str:
        return quote(f"{self._settings.catalog}.{name}", safe="")

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        """The answer to one request; None if what it names is not there.

        Raises:
            CatalogError: the server does not answer, or refuses.
        """
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self._settings.token:
            headers["Authorization"] = f"Bearer {self._settings.token}"
        request = urllib.request.Request(  # noqa: S310 - the pipeline file's address is http or https
            f"{self._settings.uri.rstrip('/')}{_API}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers=headers,
            method=method,
        )
        try:
            with _OPENER.open(request, timeout=SECONDS) as response:
                answer = response.read(_MOST)
        except urllib.error.HTTPError as error:
            if error.code == 404 and method == "GET":
                return None
            raise self._refusal(error, f"{method} {path.partition('?')[0]}") from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise CatalogError(f"Unity Catalog at {self.place} gave no answer ({reason})") from None
        if method == "DELETE":  # the server answers the text "200 OK"
            return {}
        try:
            return json.loads(answer) if answer.strip() else {}
        except ValueError:
            raise CatalogError(
                f"Unity Catalog at {self.place} answered something else than JSON: is uri: right?"
            ) from None

    @property
    def place(self) -> str:
        """Host and port of the server."""
        return urlsplit(self._settings.uri).netloc.rpartition("@")[2]

    def _refusal(self, error: urllib.error.HTTPError, asked: str) -> CatalogError:
        """The server's own words."""
        answer = error.read(_MOST)
        try:
            said = str(json.loads(answer).get("message") or "")
        except (ValueError, AttributeError):
            said = ""
        if error.code == 404 and asked == "POST /schemas":
            said = f"there is no catalog {self._settings.catalog}: create it there first"
        words = comment(said or str(error.reason))
        return CatalogError(f"Unity Catalog at {self.place} answered {error.code} to {asked}: {words}")


def reach(settings: CatalogSettings) -> None:
    """Raise a `CatalogError` if the server does not answer, refuses, or does not have the catalog."""
    server = UnityCatalog(settings, Mark("", ""))
    if server.ask("GET", f"/catalogs/{quote(settings.catalog, safe='')}") is None:
        raise CatalogError(
            f"there is no catalog {settings.catalog} in Unity Catalog at {server.place}: create it there"
        )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Another address would get the token."""

    def redirect_request(self, *_: Any) -> None:
        """None, which makes a redirect an error."""


_OPENER = urllib.request.build_opener(_NoRedirect())


def _column(place: int, column: RegisteredColumn) -> dict[str, Any]:
    name, in_json = _TYPES.get(column.delta, (column.delta, column.delta.lower()))
    given: dict[str, Any] = {}
    if decimal := _DECIMAL.fullmatch(column.delta):
        name = "DECIMAL"
        given = {"type_precision": int(decimal[1]), "type_scale": int(decimal[2])}
    field = {"name": column.name, "type": in_json, "nullable": True, "metadata": {}}
    return {
        "name": column.name,
        "type_text": {"BYTE": "tinyint", "SHORT": "smallint", "LONG": "bigint"}.get(
            name, column.delta.lower()
        ),
        "type_json": json.dumps(field, ensure_ascii=False),
        "type_name": name,
        **given,
        "position": place,
        "comment": comment(column.comment),
        "nullable": True,
    }
