"""Mirrors that are folded again and published: with the files of the staging area as they are, or by Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

from ingest.config.model import TableRule
from ingest.ledgers import mirrors, targets
from ingest.run import Warm
from ingest.tables import commits, delta
from ingest.tables.commits import Staged, TakenError
from ingest.tables.tables import LakeReader
from tests.gold.depot import Depot
from tests.scenarios.crashing import AFTER, BEFORE, WRITTEN, Point, killed_at
from tests.unstarted import unstarted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIRROR = "mirrors/yard/depot"


def depot_of(folder: Path, spark: Any = None, **given: Any) -> Depot:
    """A table of some rows, of which a rule keeps the later ones."""
    folder.mkdir(exist_ok=True)
    depot = Depot(spark or unstarted(2), folder, Warm(), TableRule("yard.*"), **given)
    for i in range(5):
        depot.row(id=str(i), n=str(i))
    assert ("done", "") == depot.run()
    depot.rule = TableRule("yard.*", where="n > 2")
    return depot


def rows(depot: Depot) -> list[tuple[Any, ...]]:
    """The mirror's rows in order."""
    return sorted(
        tuple(row.values()) for row in depot.lake().ask_mirror(MIRROR, "SELECT * FROM {mirror} AS m")
    )


def test_small_mirrors_are_published_without_spark(tmp_path: Path) -> None:
    """A changed line of the pipeline file would cost seconds for each mirror, and a start of Java."""
    depot = depot_of(tmp_path)
    first = depot.lake().snapshot(MIRROR)
    assert ("done", "") == depot.row(id="9", n="1", m="7").row(id="10", n="10", m="7").run()
    assert "" == depot.why_merge
    assert [(3, 3, None), (4, 4, None), (10, 10, 7)] == rows(depot)
    lake, after = depot.lake(), depot.lake().snapshot(MIRROR)
    assert (first.table_id, first.meta["configuration"]) == (after.table_id, after.meta["configuration"])
    assert 1 == mirrors.known(lake)[MIRROR].generation
    assert 2 == after.transactions[lake.writer("gold", MIRROR, 1)]
    assert not Path(lake.path("_rebuild")).exists()


@pytest.mark.parametrize(
    "point",
    [
        *(Point("gold", "publish", MIRROR, when) for when in (BEFORE, WRITTEN, AFTER)),
        *(Point("gold", "note", "decisions", when) for when in (BEFORE, AFTER)),
    ],
    ids=str,
)
def test_a_killed_publication_is_repeated(point: Point, tmp_path: Path) -> None:
    """Files that no commit names would be read, or a generation that no decision names would be folded as a new one."""
    depot = depot_of(tmp_path)
    depot.row(id="9", n="9")
    with killed_at(point, depot.pipeline.lake):
        depot.run()
    assert depot.row(id="10", n="10").run() == ("done", "")
    assert [(n, n) for n in (3, 4, 9, 10)] == rows(depot)


@pytest.mark.parametrize("no_key", ["append", "full_row"])
@pytest.mark.parametrize("when", [BEFORE, AFTER])
def test_a_killed_table_without_a_key_is_finished(no_key: Any, when: str, tmp_path: Path) -> None:
    """Nothing in its rows says which of them a killed run has added."""
    rule = TableRule("yard.*", no_key=no_key)
    depot = Depot(unstarted(2), tmp_path, Warm(), rule)

    def say(kind: str, n: int, old: int | None = None) -> Depot:
        before = [{"n": str(old)}] if old is not None else None
        return depot.say(
            isDdl=False, type=kind, data=[{"n": str(n)}], mysqlType={"n": "int"}, old=before, sql=""
        )

    say("INSERT", 1), say("INSERT", 1)
    assert ("done", "") == depot.run()
    assert "" == depot.why_merge
    say("INSERT", 2), say("DELETE", 1), say("UPDATE", 3, 2)
    with killed_at(Point("gold", "commit", "mirror", when), depot.pipeline.lake):
        depot.run()
    say("INSERT", 4)
    assert ("done", "") == depot.run()
    expected = [1, 1, 2, 4] if no_key == "append" else [1, 3, 4]
    assert [(n,) for n in expected] == rows(depot)
    [counts] = depot.lake().ask(
        "SELECT counts FROM {runs} WHERE stage = 'gold' AND subject IS NOT NULL ORDER BY started_at DESC LIMIT 1"
    )
    assert ("deletes_not_applied" in counts["counts"]) == (no_key == "append" and when == BEFORE)


def test_a_generation_is_published_once(tmp_path: Path) -> None:
    """Two runs that fold one mirror again at the same time would each name files of its own."""
    depot = depot_of(tmp_path)
    staged = Staged(depot.lake().path(MIRROR), depot.lake().snapshot(MIRROR))
    other = str(tmp_path / "other")
    for i in range(11):  # through a checkpoint, which describes a table in another form
        commits.publish(other, staged, "{}", f"w/{i}", 2)
    with pytest.raises(TakenError):
        commits.publish(other, staged, "{}", "w/10", 2)
    deltalake.DeltaTable(other).create_checkpoint()
    delta._read.cache_clear()
    delta._last.clear()
    commits.publish(other, staged, "{}", "w/11", 2)
    table, state = deltalake.DeltaTable(other), delta.snapshot(other)
    found = deltalake.QueryBuilder().register("m", table).execute("SELECT * FROM m ORDER BY id").read_all()
    assert rows(depot) == [tuple(row.values()) for row in pa.table(found).to_pylist()]
    assert (11, {f"w/{i}": 2 for i in range(12)}) == (table.version(), state.transactions)
    assert staged.state.meta["configuration"] == state.meta["configuration"] == table.metadata().configuration
    assert [one.place for one in staged.state.files] == [one.place for one in state.files]


def test_a_damaged_mirror_that_is_to_be_plain_is_only_said_to_be_damaged(tmp_path: Path) -> None:
    """`status` ended with the sentence on one damaged log, and said nothing of all other mirrors."""
    depot = depot_of(tmp_path)
    depot.rule = TableRule("yard.*")
    assert ("done", "") == depot.row("DELETE", id="1", n="1").run()
    depot.rule = TableRule("yard.*", plain_tables=True)
    assert targets.not_plain(depot.lake())
    max(Path(depot.lake().path(MIRROR), "_delta_log").glob("*.json")).write_text("{", "utf-8")
    assert [] == targets.not_plain(LakeReader(depot.pipeline)) == targets.not_plain(depot.lake())


@pytest.mark.parametrize("zone", ["", "datetime(6)"])
def test_a_mirror_that_is_to_be_plain_is_published_so(zone: str, tmp_path: Path) -> None:
    """Nothing obeyed `plain_tables:` of a mirror that was there: readers without deletion vectors could never open it."""
    depot = depot_of(tmp_path)
    depot.rule = TableRule("yard.*")
    if zone:
        depot.ddl("ALTER TABLE depot ADD COLUMN at DATETIME(6)")
    assert ("done", "") == depot.row("DELETE", id="1", n="1").run()
    before = depot.lake().snapshot(MIRROR)
    assert before.takes_vectors
    assert [] == targets.not_plain(depot.lake())
    depot.rule = TableRule("yard.*", plain_tables=True)
    [said] = targets.of_other_settings(depot.lake())[0]
    assert ("not_plain", ["rebuild", "yard.depot"]) == (said.kind, said.command.split()[1::2])
    depot.rule = TableRule("yard.*", plain_tables=True, where="n > 2")
    assert ("done", "") == depot.row(id="9", n="9").run()
    after = depot.lake().snapshot(MIRROR)
    assert "" == depot.why_merge
    assert (before.table_id, [], False) == (
        after.table_id, targets.not_plain(depot.lake()), delta.is_on(after.configuration, delta.VECTORS)
    )  # fmt: skip
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    assert (after.protocol == protocol) != bool(zone)
    assert "deletionVectors" not in json.dumps(after.protocol)
    table = deltalake.DeltaTable(depot.lake().path(MIRROR))
    assert [3, 4, 9] == sorted(table.to_pyarrow_table()["id"].to_pylist())
    assert ("done", "") == depot.row("DELETE", id="9", n="9").run()
    assert ([3, 4], False) == ([row[0] for row in rows(depot)], depot.lake().snapshot(MIRROR).takes_vectors)


def test_both_ways_publish_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """A table that lost its comments, properties or progress on one of the ways is wrong for its readers."""
    made = []
    for name, apply in (("arrow", "auto"), ("spark", "merge")):
        depot = depot_of(tmp_path / name, spark, apply=apply)
        depot.rule = TableRule("yard.*", where="n > 2 OR n IS NULL")
        depot.ddl("ALTER TABLE depot ADD COLUMN at DATETIME COMMENT 'when', ADD COLUMN word VARCHAR(9)")
        types = {"id": "int", "n": "int", "at": "datetime(6)", "word": "varchar(9)"}
        row = {"id": "9", "n": "many", "at": "2024-05-01 10:00:00.123456", "word": "x"}
        depot.say(isDdl=False, type="INSERT", data=[row], mysqlType=types, old=None, pkNames=["id"], sql="")
        assert ("done", "") == depot.run()
        lake = depot.lake()
        frame, state = lake.read(MIRROR), lake.snapshot(MIRROR)
        features = {key: sorted(one) if isinstance(one, list) else one for key, one in state.protocol.items()}
        info = json.loads(
            next(one["commitInfo"] for one in lake.actions(MIRROR, state.version) if "commitInfo" in one)[
                "userMetadata"
            ]
        )
        rejected = lake.ask(
            'SELECT kind, key, "column", reason, detail, raw, batch, stage FROM {rejects} ORDER BY ALL'
        )
        known = mirrors.known(lake)[MIRROR]
        made.append(
            [
                json.loads(frame.schema.json()),
                [row.asDict() for row in frame.sort("id").collect()],
                state.meta["configuration"],
                features,
                sorted(info),
                state.transactions[lake.writer("gold", MIRROR, known.generation)],
                known,
                rejected,
            ]
        )
    assert made[0] == made[1]


def test_other_ways_are_left_to_spark(tmp_path: Path) -> None:
    """A table that another program has partitioned or made append-only must not be replaced unseen."""
    depot = depot_of(tmp_path)
    lake = depot.lake()
    staged = Staged(lake.path(MIRROR), lake.snapshot(MIRROR))
    assert staged.fits(str(tmp_path / "new"))
    for name, given in {
        "parted": {"partition_by": ["id"]},
        "append": {"configuration": {"delta.appendOnly": "true"}},
        "plain": {},
    }.items():
        schema = deltalake.Schema([deltalake.Field("id", "integer")])  # type: ignore[arg-type]
        deltalake.DeltaTable.create(str(tmp_path / name), schema, **given)  # type: ignore[arg-type]
        assert staged.fits(str(tmp_path / name)) == (name == "plain")
