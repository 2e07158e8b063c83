"""The names of a history's own columns, without Spark."""

from __future__ import annotations

import json

from ingest.change import TableId
from ingest.config.model import TableRule
from ingest.gold.apply.mirror_table import comment_of
from ingest.ledgers import histories
from ingest.ledgers.mirrors import Column, Mirror, grown

TABLE = TableId("yard", None, "depot")
RULE = TableRule("yard.*", history=True)


def decided(before: Mirror | None, *columns: str) -> Mirror:
    """The mirror as the next batch decides it, written down and read back."""
    now = histories.named(grown(before, TABLE, RULE, ("id",), dict.fromkeys(columns, "date")), before)
    return Mirror.from_value(now.path, json.loads(json.dumps(now.to_value())))


def test_they_stay_whatever_comes_later() -> None:
    """If names were allocated again, a moment's column would become the source's, and its values with it."""
    first = decided(None, "id", "n")
    later = decided(first, "id", "n", "valid_to", "IS_CURRENT", "Valid_To")
    assert ("valid_from", "valid_to", "is_current") == first.history == later.history
    names = [one.column for one in histories.table_of(later).columns]
    assert names[-3:] == list(first.history)
    assert len(names) == len({name.lower() for name in names})
    assert [one.column for one in later.columns][2] == "valid_to"  # in the mirror nothing is in its way
    again = decided(later, "id", "n", "extra")
    assert names[:-3] == [one.column for one in histories.table_of(again).columns][: len(names) - 3]


def test_a_source_that_had_the_name_first_keeps_it() -> None:
    """A lake made before would otherwise exchange the two."""
    first = decided(None, "id", "valid_from")
    assert "valid_from" in [one.column for one in histories.table_of(first).columns[:-3]]
    assert first.history[0].startswith("valid_from_")


def test_a_lake_made_before_keeps_the_names_that_it_has() -> None:
    """Its decision names none; they are those of the columns before the new one came."""
    old = grown(None, TABLE, RULE, ("id",), {"id": "int64"})
    assert not old.history
    assert "valid_from" == decided(old, "id", "valid_from").history[0]


def test_the_own_columns_say_what_they_hold() -> None:
    """The names that the program gives them inside mean nothing to a reader of the table."""
    table = histories.table_of(decided(None, "id"))
    said = {one.column: comment_of(one) for one in table.columns}
    assert ["is_current", "valid_from", "valid_to"] == sorted(said)[1:]
    assert "from when the row was so" == said["valid_from"]
    assert not any("%" in text for text in said.values())
    assert (True, False) == (histories.is_history(table), histories.is_history(decided(None, "id")))


def columns_of_states(mirror: Mirror) -> list[Column]:
    """The columns of a history table but for its own."""
    table = histories.table_of(mirror)
    return [column for column in table.columns if column.column not in mirror.history]


def test_older_states_keep_their_columns() -> None:
    """A column that the source drops, or makes again with another type, has values in states from before."""
    first = grown(None, TABLE, RULE, ("id",), {"id": "int64", "Price": "string", "n": "int32", "day": "date"})
    now = grown(None, TABLE, RULE, ("id",), {"id": "int64", "price": "int32", "n": "int64", "day": "int32"})
    first, now = histories.named(first, None), histories.named(now, first)
    later = histories.kept(now, first, {"gone": "boolean", "n": "int64", "day": "unknown"})
    later = Mirror.from_value(later.path, json.loads(json.dumps(later.to_value())))
    states = columns_of_states(later)
    assert ["id", "price", "n", "day", "Price", "gone"] == [column.name for column in states]
    assert ["BIGINT", "INT", "BIGINT", "STRING", "STRING", "BOOLEAN"] == [column.delta for column in states]
    assert "Price" == states[4].column  # as its table of old states has it
    assert states[1].column.startswith("price_")
    assert ["id", "price", "n", "day"] == [one.column for one in later.columns]
    again = grown(later, TABLE, RULE, ("id",), {"gone": "date"})
    again = histories.kept(again, later, {"gone": "date"})
    columns = {column.name: column for column in columns_of_states(again)}
    assert {one.name: one.column for one in states} == {name: one.column for name, one in columns.items()}
    assert "STRING" == columns["gone"].delta
