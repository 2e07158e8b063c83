"""Mirrors in a real Unity Catalog: the tests of its stand-in once more, and every type that a mirror's column can have.

The server is in no registry of packages, so a test run cannot start it. `UNITY_CATALOG` names one that is there, without
authorization, such as `http://127.0.0.1:8080`; without it these tests are skipped. They create its catalog `lake`, and
remove it afterwards.
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.catalog.shop import Shop
from tests.catalog.test_sync import (  # noqa: F401 - each test is run here, too
    ask,
    test_a_catalog_that_is_away_costs_no_data,
    test_a_dropped_mirror_leaves_the_catalog,
    test_a_rebuild_registers_what_it_has_changed,
    test_a_rule_of_names_moves_the_entries,
    test_entries_follow_their_mirrors,
    test_histories_are_registered_too,
    test_the_plan_names_what_will_be_registered,
)

ADDRESS = os.environ.get("UNITY_CATALOG", "")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not ADDRESS, reason="UNITY_CATALOG names no server of Unity Catalog"),
]


class UnityAtWork:
    """A catalog `lake` of the server that is there."""

    given = f"kind: unity, uri: '{ADDRESS}', catalog: lake"

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """What the server answers to a request."""
        request = urllib.request.Request(
            f"{ADDRESS}/api/2.1/unity-catalog/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            answer = response.read()
        return {} if method == "DELETE" else json.loads(answer)

    @property
    def tables(self) -> dict[str, dict[str, Any]]:
        """All tables of the catalog, by their full names."""
        schemas = self.ask("GET", "schemas?catalog_name=lake").get("schemas") or ()
        return {
            f"lake.{schema['name']}.{table['name']}": table
            for schema in schemas
            for table in self.ask("GET", f"tables?catalog_name=lake&schema_name={schema['name']}")["tables"]
            or ()
        }


@pytest.fixture
def server() -> Iterator[UnityAtWork]:
    """An empty catalog."""
    there = UnityAtWork()
    there.ask("POST", "catalogs", {"name": "lake"})
    yield there
    there.ask("DELETE", "catalogs/lake?force=true")


TYPES = {
    "id": ("bigint", "LONG"), "tiny": ("tinyint", "BYTE"), "small": ("smallint", "SHORT"), "whole": ("int", "INT"),
    "exact": ("decimal(38,10)", "DECIMAL"), "single": ("float", "FLOAT"), "twice": ("double", "DOUBLE"),
    "label": ("varchar(9)", "STRING"), "raw": ("varbinary(9)", "BINARY"), "day": ("date", "DATE"),
    "moment": ("timestamp", "TIMESTAMP"), "clock": ("datetime", "TIMESTAMP_NTZ"),
}  # fmt: skip
"""Columns, each with its type in MySQL and in the catalog."""


def test_each_type_is_taken(tmp_path: Path, server: UnityAtWork) -> None:
    """One type that the server does not know would keep its table out of the catalog."""
    shop = Shop(tmp_path, server.given, "tables: [{match: '*', history: true}]\n")
    shop.send("kinds", types={name: source for name, (source, _) in TYPES.items()})
    assert [] == [text for text in shop.run().warnings if "catalog" in text]
    columns = server.tables["lake.d.kinds"]["columns"]
    assert {name: kind for name, (_, kind) in TYPES.items()} == {
        column["name"]: column["type_name"] for column in columns
    }
    [exact] = [column for column in columns if column["name"] == "exact"]
    assert (38, 10) == (exact["type_precision"], exact["type_scale"])
    assert "lake.d.kinds__history" in server.tables


def test_sync_finds_all_that_is_there(tmp_path: Path, server: UnityAtWork) -> None:
    """Tables behind the first page of the server's answer would be registered again for ever; another one's would be lost."""
    shop = Shop(tmp_path, server.given)
    for number in range(60):
        shop.send(f"t{number:02}")
    shop.run()
    assert {"registered": [], "removed": [], "fault": None} == ask(shop, "catalog", "sync")
    mine = server.tables["lake.d.t07"]
    for name in ("t07", "t08"):
        server.ask("DELETE", f"tables/lake.d.{name}")
    server.ask(
        "POST", "tables", {**mine, "name": "t08", "storage_location": "file:///theirs", "properties": {}}
    )
    synced = ask(shop, "catalog", "sync", code=1)
    assert (["d.t07"], []) == (synced["registered"], synced["removed"])
    assert "d.t08 is there already" in synced["fault"]
    assert "file:///theirs" == server.tables["lake.d.t08"]["storage_location"].rstrip("/")
