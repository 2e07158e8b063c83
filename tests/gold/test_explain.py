"""The story of a row: from changes made by hand, and from a real lake, compared with its mirror."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.change import Change, Op, TableId
from ingest.errors import IngestError
from ingest.fold import Placed, SchemaStep
from ingest.gold.evidence import cell_text, equals
from ingest.gold.explain import Happening, StoryEvent, tell
from ingest.ledgers.mirrors import Column, Mirror
from ingest.ledgers.raw import RAW_CHARACTERS, shown
from ingest.order import Order, order_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BOAT = Mirror(
    TableId("harbour", None, "boat"),
    "mirrors/harbour/boat",
    ("no",),
    (Column("no", "no", "int64"), Column("name", "name", "string")),
)


def happening(at: int, batch: int, op: Op, *, offset: int = 0, **given: Any) -> Happening:
    """One change of boat 7 at a place, as silver holds it."""
    order = Order(0, 1, (at,), 0, (batch, 0, 0, offset), 0)
    change = Change(op=op, **given)
    record = {
        "order_key": order_key(order), "source": "quay", "op": op.value, "before": change.before,
        "after": change.after, "partial": change.partial,
    }  # fmt: skip
    return Happening(Placed(order, change), batch, op.value, record)


def story_of(
    *happened: Happening, key: int = 7
) -> tuple[tuple[StoryEvent, ...], dict[str, str | None] | None]:
    """The events, and the row at their end."""
    events, row = tell(BOAT, (key,), happened, {})
    return events, row.values if row else None


def test_events_are_in_the_order_of_history() -> None:
    """A story in the order of arrival would end with another row than the mirror."""
    late = happening(1, 2, Op.INSERT, after={"no": "7", "name": "Ada"})
    early = happening(2, 1, Op.UPDATE, after={"no": "7", "name": "Bea"})
    events, row = story_of(early, late)
    assert ["insert", "update"] == [event.op for event in events]
    assert {"no": "7", "name": "Bea"} == row


def test_late_changes_say_so() -> None:
    """The answer to why a message had no effect must be that it came late, and what undid it."""
    late = happening(1, 5, Op.UPDATE, after={"no": "7", "name": "Ada"})
    early = happening(2, 3, Op.UPDATE, after={"no": "7", "name": "Bea"})
    first, second = story_of(early, late)[0]
    assert "it arrived in batch 5, but comes before what batch 3 brought" in first.remarks[0]
    assert 2 == first.effects[0].superseded_by
    assert () == second.remarks
    assert (True, False) == (first.late, second.late)


@pytest.mark.parametrize(("name", "word"), [("Ada", "duplicate"), ("Bea", "ambiguous")])
def test_changes_that_claim_one_place(name: str, word: str) -> None:
    """A repetition is harmless, a contradiction is a doubt in the source's own words: not one thing."""
    first = happening(1, 1, Op.UPDATE, after={"no": "7", "name": "Ada"})
    again = happening(1, 2, Op.UPDATE, after={"no": "7", "name": name})
    assert word == story_of(first, again)[0][1].remarks[0].partition(":")[0]


def test_a_changed_key_has_two_effects() -> None:
    """The row left under its old key would look like a row that the source still has."""
    move = happening(2, 1, Op.UPDATE, before={"no": "7"}, after={"no": "8", "name": "Ada"})
    events, row = story_of(happening(1, 1, Op.INSERT, after={"no": "7", "name": "Ada"}), move)
    assert [("delete", ("7",)), ("set", ("8",))] == [(one.effect, one.key) for one in events[1].effects]
    assert row is None


def test_a_column_that_a_row_announces_is_filled_before_the_row() -> None:
    """The story filled it after the row had given it a value."""
    born = happening(1, 1, Op.INSERT, after={"no": "7", "name": "Ada"})
    row = happening(2, 2, Op.UPDATE, after={"no": "7", "name": "Ada", "flag": "y"})
    filled = Happening(SchemaStep(row.order, "add_column", "flag", default="x"), 2, "add_column")
    events, _ = story_of(born, row, filled)
    assert ["insert", "add_column", "update"] == [event.op for event in events]


def test_table_events_count_from_the_rows_first_change() -> None:
    """A truncate years before the row was born is noise; one that cleared it is the whole story."""
    before = happening(1, 1, Op.TRUNCATE)
    born = happening(2, 1, Op.INSERT, after={"no": "7", "name": "Ada"})
    filled = Happening(
        SchemaStep(Order(0, 1, (3,), 0, (1,), 0), "add_column", "flag", default="x"), 1, "add_column"
    )
    cleared = happening(4, 1, Op.TRUNCATE)
    events, row = story_of(before, born, filled, cleared)
    assert ["insert", "add_column", "truncate"] == [event.op for event in events]
    assert {"no": "7", "name": "Ada", "flag": "x"} == events[1].effects[0].row
    assert row is None


@pytest.mark.parametrize(
    ("value", "text", "binary"),
    [(b'{"a":"\xc3\xa4"}', '{"a":"ä"}', False), (b"\x00\x01", "AAE=", True), (b"\xff\xfe", "//4=", True)],
)
def test_bytes_are_shown_as_what_they_are(value: bytes, text: str, binary: bool) -> None:
    """Avro shown as text would hide the very bytes that are looked for."""
    found = shown(value, len(value))
    assert (text, binary) == (found.text, found.binary)


def test_long_messages_are_cut() -> None:
    """One 64 MB message must not fill the terminal."""
    found = shown(b"x" * 9000, 10**7)
    assert (RAW_CHARACTERS, 10**7) == (len(found.text), found.length)


# --- with a lake --------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.slow
def test_a_row_of_a_real_lake(spark: SparkSession, tmp_path: Path) -> None:
    """The mirror's own row is shown with the fold's: an UPDATE by hand must be seen, and which cell it was."""
    from ingest.gold.explain import explain
    from ingest.run import run
    from ingest.tables.lake import Lake
    from tests.lakes import Depot

    depot = Depot(tmp_path)
    for _ in range(2):
        depot.grow()
    run(spark, depot.pipeline, ("bronze", "silver", "gold"))
    lake = Lake(spark, depot.pipeline)
    story = explain(lake, "depot.bins", ["0"])
    assert (True, ["insert", "update"]) == (story.equal, [event.op for event in story.events])
    assert '"word": "new 0"' in (story.events[0].raw or shown(b"", 0)).text
    assert {"bad-json"} == {one["reason"] for one in story.suspects}
    spark.sql(f"UPDATE delta.`{lake.path('mirrors/depot/bins')}` SET word = 'by hand' WHERE id = 0")
    touched = explain(lake, "depot.bins", ["0"])
    assert (False, ("word",)) == (touched.equal, touched.differing)
    with pytest.raises(IngestError, match=r"The key of depot\.bins is id: give 1 value in that order, not 2"):
        explain(lake, "depot.bins", ["0", "1"])


@pytest.mark.parametrize(
    ("logical", "sent", "spelt"), [("hex", "0xFE12", "fe12"), ("binary", "/hI=", "/hI=")]
)
def test_a_key_of_bytes_is_looked_up_by_its_bytes(logical: str, sent: str, spelt: str) -> None:
    """Digits that were read as base64 named another row, or none: the story ended with a row that the mirror seemed to lack."""
    import duckdb

    column = Column("no", "no", logical)
    asked = f"SELECT {cell_text(column)} AS cell, {equals(column, sent)} AS same FROM (SELECT unhex('FE12') AS no)"
    assert [(spelt, True)] == duckdb.sql(asked).fetchall()
