"""The catalog follows the mirrors: after each run what has changed, and never at the cost of the data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ingest.catalog import registrations
from ingest.cli.app import app
from ingest.cli.repair_verbs import fold_again
from ingest.errors import command
from ingest.inspect import status
from ingest.inspect.idle import idle
from ingest.ledgers import decisions
from ingest.operate.doctor import examine
from ingest.result import Result
from ingest.run import Warm
from ingest.tables.lake import Lake
from tests.catalog.shop import Shop, UnityServer, unity_server
from tests.unstarted import unstarted

STAGES = ("bronze", "silver", "gold", "quality")


@pytest.fixture
def server():
    """A catalog that is empty."""
    with unity_server() as found:
        yield found


def columns(server: UnityServer, name: str) -> dict[str, str]:
    """The columns of a registered table, with their types."""
    return {column["name"]: column["type_text"] for column in server.tables[name]["columns"]}


def said_of_catalog(result: Result) -> list[str]:
    """The warnings of a run that are about the catalog."""
    return [text for text in result.warnings if text.startswith("the catalog")]


def ask(shop: Shop, *words: str, code: int = 0):
    """The JSON of a verb about the pipeline file."""
    done = CliRunner().invoke(app, [*words, str(shop.file), "-o", "json"])
    assert code == done.exit_code, done.output
    return json.loads(done.stdout)


EVOLVE = "tables: [{match: '*', on_schema_change: evolve}]\n"


def test_entries_follow_their_mirrors(tmp_path: Path, server: UnityServer) -> None:
    """A query by name would miss new columns, read dropped ones, or find a table that is gone."""
    shop = Shop(tmp_path, server.given, EVOLVE)
    shop.send("people")
    assert [] == shop.run().warnings
    assert {"id": "bigint", "name": "string"} == columns(server, "lake.d.people")
    assert f"file://{tmp_path}/lake/mirrors/d/people" == server.tables["lake.d.people"]["storage_location"]
    shop.send(
        "people",
        "ALTER TABLE people ADD COLUMN size INT COMMENT 'in cm'",
        {"id": "bigint", "name": "varchar(9)", "size": "int"},
    )
    shop.run()
    assert {"id": "bigint", "name": "string", "size": "int"} == columns(server, "lake.d.people")
    assert "in cm; source type int32" == server.tables["lake.d.people"]["columns"][-1]["comment"]
    shop.send(
        "people",
        "ALTER TABLE people MODIFY COLUMN size BIGINT, RENAME COLUMN name TO label",
        {"id": "bigint", "label": "varchar(9)", "size": "bigint"},
    )
    shop.run()
    assert {"id": "bigint", "label": "string", "size": "bigint"} == columns(server, "lake.d.people")
    shop.send("people", "ALTER TABLE people DROP COLUMN size", {"id": "bigint", "label": "varchar(9)"})
    shop.send("goods")
    shop.run()
    assert {"id": "bigint", "label": "string"} == columns(server, "lake.d.people")
    assert {"lake.d.people", "lake.d.goods"} == server.tables.keys()
    shop.write("tables: [{match: d.people, exclude: true}, {match: '*', on_schema_change: evolve}]\n")
    assert idle(shop.lake.pipeline, STAGES) is None, (
        "an excluded table would stay registered until the next message"
    )
    shop.run()
    assert {"lake.d.goods"} == server.tables.keys()


def test_a_tick_without_a_new_schema_asks_nothing(tmp_path: Path, server: UnityServer) -> None:
    """A catalog that answers slowly would slow down every batch."""
    shop = Shop(tmp_path, server.given)
    shop.send("people")
    shop.run()
    asked, rows = server.asked, len(decisions.read(shop.lake).all)
    warm = Warm()
    for _ in range(2):
        shop.send("people")
        shop.run(warm)
    assert (asked, rows) == (server.asked, len(decisions.read(shop.lake).all))
    assert idle(shop.lake.pipeline, STAGES) is not None


def test_a_catalog_that_is_away_costs_no_data(tmp_path: Path, server: UnityServer) -> None:
    """The mirrors would wait for somebody else's service, or nobody would know that names are missing."""
    shop = Shop(tmp_path, "kind: unity, uri: 'http://127.0.0.1:9', catalog: lake")
    shop.send("people")
    result = shop.run()
    typed = command("catalog", "sync", shop.file)
    assert (1, 0) == (result.touched, result.exit_code)
    [said] = said_of_catalog(result)
    assert said.startswith(
        "the catalog (unity http://127.0.0.1:9 lake) is not in step: Unity Catalog at 127.0.0.1:9 gave no answer"
    )
    assert said.endswith(f": `{typed}` tries again.")
    [problem] = [one for one in status.problems_of(shop.lake) if one.kind == "catalog"]
    assert (typed, "warn", said) == (problem.command, problem.severity, problem.sentence)
    rows = len(decisions.read(shop.lake).all)
    shop.run()
    assert rows == len(decisions.read(shop.lake).all), "each attempt would leave a row"
    shop.catalog = server.given
    shop.write()
    shop.run()
    assert {"lake.d.people"} == server.tables.keys()
    assert [] == [one for one in status.problems_of(shop.lake) if one.kind == "catalog"]


def test_a_failed_catalog_is_asked_once_a_minute(tmp_path: Path, server: UnityServer) -> None:
    """Ticks of a second would each wait for a server that is away."""
    server.token = "right"
    shop = Shop(tmp_path, f"{server.given}, token: wrong")
    warm = Warm()
    shop.send("people")
    first = shop.run(warm)
    asked = server.asked
    shop.send("people")
    again = shop.run(warm)
    assert asked == server.asked
    assert any("answered 401" in text for text in first.warnings)
    assert set(first.warnings) == set(again.warnings)
    warm.next_sync = 0.0
    server.token = "wrong"
    assert [] == shop.run(warm).warnings
    assert {"lake.d.people"} == server.tables.keys()


def test_another_ones_table_is_left_alone(tmp_path: Path, server: UnityServer) -> None:
    """A table of the same name, which somebody else needs, would point to a mirror."""
    server.schemas.add("lake.d")
    theirs = {"name": "people", "storage_location": "s3://theirs", "columns": [], "properties": {}}
    server.tables["lake.d.people"] = theirs
    shop = Shop(tmp_path, server.given)
    shop.send("people")
    shop.send("goods")
    [said] = said_of_catalog(shop.run())
    assert (
        "d.people is there already, registered by somebody else, so d.people is not: drop or rename that table"
        in said
    )
    assert theirs == server.tables["lake.d.people"]
    assert "lake.d.goods" in server.tables
    shop.write("tables: [{match: d.people, exclude: true}]\n")
    assert [] == said_of_catalog(shop.run())
    assert theirs == server.tables["lake.d.people"]


def test_sync_repairs_what_somebody_did_to_the_catalog(tmp_path: Path, server: UnityServer) -> None:
    """A run goes by what it remembers: an entry that was deleted or changed there would stay so."""
    shop = Shop(tmp_path, server.given)
    for table in ("people", "goods", "bins"):
        shop.send(table)
    shop.run()
    before = dict(server.tables)
    del server.tables["lake.d.goods"]
    server.tables["lake.d.bins"]["properties"]["ingest.definition"] = "other"
    left_over = {**before["lake.d.people"], "name": "old", "storage_location": "file:///old"}
    server.tables["lake.d.old"] = left_over
    synced = ask(shop, "catalog", "sync")
    assert {"registered": ["d.bins", "d.goods"], "removed": ["d.old"], "fault": None} == synced
    assert before.keys() == server.tables.keys()
    assert {"registered": [], "removed": [], "fault": None} == ask(shop, "catalog", "sync")
    listed = ask(shop, "catalog")
    assert [("d.bins", "registered"), ("d.goods", "registered"), ("d.people", "registered")] == [
        (row["name"], row["state"]) for row in listed
    ]


def test_sync_of_a_catalog_that_is_away(tmp_path: Path) -> None:
    """The command that a problem names would end with a traceback, or as if all were well."""
    shop = Shop(tmp_path, "kind: unity, uri: 'http://127.0.0.1:9', catalog: lake")
    shop.send("people")
    shop.run()
    assert "gave no answer" in ask(shop, "catalog", "sync", code=1)["fault"]
    assert "to be registered" == ask(shop, "catalog")[0]["state"]
    done = CliRunner().invoke(app, ["catalog", "sync", str(shop.file)])
    assert (1, "") == (done.exit_code, done.stdout), "nothing was changed, and all of it has to be"


def test_a_rule_of_names_moves_the_entries(tmp_path: Path, server: UnityServer) -> None:
    """Entries under the former names would stay, and readers of both would think of two tables."""
    shop = Shop(tmp_path, server.given)
    shop.send("people")
    shop.send("People")
    shop.run()
    names = {
        registration.path: str(registration.name) for registration in registrations.remembered(shop.lake)
    }
    assert {"mirrors/d/~people": "d.people", "mirrors/d/people": f"d.people_{_suffix(names)}"} == names
    shop.catalog = f"{server.given}, database: 'raw_{{database}}', table: 't_{{table}}'"
    shop.write()
    shop.run()
    assert {"lake.raw_d.t_people", f"lake.raw_d.t_people_{_suffix(names)}"} == server.tables.keys()


def _suffix(names: dict[str, str]) -> str:
    return names["mirrors/d/people"].rpartition("_")[2]


def test_a_dropped_mirror_leaves_the_catalog(tmp_path: Path, server: UnityServer) -> None:
    """A name would stay whose files are gone."""
    shop = Shop(tmp_path, server.given)
    shop.send("people")
    shop.send("goods")
    shop.run()
    shop.write("tables: [{match: d.goods, exclude: true}]\n")
    done = CliRunner().invoke(app, ["drop", str(shop.file), "d.goods", "--reason", "private"])
    assert 0 == done.exit_code, done.output
    assert {"lake.d.people"} == server.tables.keys()


def test_a_rebuild_registers_what_it_has_changed(tmp_path: Path, server: UnityServer) -> None:
    """Queries by name read the old type, and failed, until the next message came."""
    shop = Shop(tmp_path, server.given)
    shop.send("people", types={"id": "bigint", "size": "int"})
    shop.run()
    shop.write("tables: [{match: d.people, columns: {size: int64}}]\n")
    lake = Lake(unstarted(), shop.lake.pipeline)
    [done] = fold_again(lake, ["d.people"], True)
    assert {"id": "bigint", "size": "int"} == columns(server, "lake.d.people"), "it only looks"
    [done] = fold_again(lake, ["d.people"], False)
    assert "rebuilt" == done["state"]
    assert {"id": "bigint", "size": "bigint"} == columns(server, "lake.d.people")


def test_histories_are_registered_too(tmp_path: Path, server: UnityServer) -> None:
    """Old states would be found by their path only."""
    shop = Shop(tmp_path, server.given, "tables: [{match: d.people, history: true}]\n")
    shop.send("people")
    assert [] == shop.run().warnings
    assert {"lake.d.people", "lake.d.people__history"} == server.tables.keys()
    assert "valid_from" in columns(server, "lake.d.people__history")


def test_the_plan_names_what_will_be_registered(tmp_path: Path, server: UnityServer) -> None:
    """A rule of names would be tried out on the catalog itself."""
    shop = Shop(tmp_path, f"{server.given}, database: 'raw_{{database}}'")
    shop.send("people")
    [planned] = ask(shop, "plan")
    assert {"d.people": "raw_d.people"} == planned["catalog"]["names"]
    shop.run()
    shop.send("goods")
    [planned] = ask(shop, "plan")
    assert {"d.goods": "raw_d.goods", "d.people": "raw_d.people"} == planned["catalog"]["names"]
    assert {"lake.raw_d.people"} == server.tables.keys()


def test_doctor_asks_the_catalog(tmp_path: Path, server: UnityServer) -> None:
    """A wrong address or a missing catalog would show after the first batch."""
    shop = Shop(tmp_path, server.given)
    assert [("ok", f"unity http://127.0.0.1:{server.server_port} lake")] == _examined(shop)
    server.catalogs.clear()
    [(state, said)] = _examined(shop)
    assert ("wrong", True) == (state, said.startswith("there is no catalog lake in Unity Catalog"))
    shop.catalog = "kind: hive, uri: 'thrift://127.0.0.1:9'"
    shop.write()
    assert [("missing", "127.0.0.1:9 does not answer (Connection refused)")] == _examined(shop)


def _examined(shop: Shop) -> list[tuple[str, str]]:
    return [(one.state, one.found) for one in examine(shop.lake.pipeline) if one.check == "catalog"]
