"""Rows without a column, from sources that may leave out NULLs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ingest.change import Options
from ingest.config.model import TableRule
from tests.shops import Shops

if TYPE_CHECKING:
    from pathlib import Path

    from ingest.config import Pipeline

RULE = TableRule(match="*", keys=("id",), columns={"id": "int64", "price": "decimal(10,2)", "note": "string"})
STAGES = ("bronze", "silver", "gold", "quality")


class Priced(Shops):
    """One table, in a dialect that may leave out NULLs."""

    left_out: str | None = None

    @property
    def pipeline(self) -> Pipeline:
        found = super().pipeline
        return replace(found, sources=(replace(found.sources[0], options=Options(left_out=self.left_out)),))

    def load(self, op: str, **row: Any) -> list[str]:
        """The complaints after one more message."""
        self.number += 1
        self.lines.append(json.dumps(self.message(op, row)))
        self.run()
        assert self.result is not None
        return [*self.result.failures, *self.result.warnings]

    def message(self, op: str, row: dict[str, Any]) -> dict[str, Any]:
        """A row change."""
        if self.dialect == "ogg":
            place = {"table": "s.t", "op_ts": "2024-06-10 06:14:02.000000", "pos": f"{self.number:020}"}
            return {**place, "op_type": op[0].upper(), "after": row}
        meta = {"record-type": "data", "operation": op, "schema-name": "s", "table-name": "t"}
        return {"data": row, "metadata": {**meta, "timestamp": f"2024-06-10T06:14:{self.number:02}Z"}}

    def price(self, key: int) -> object:
        """A cell of the mirror."""
        [found] = self.lake.ask_mirror("mirrors/s/t", f"SELECT price FROM {{mirror}} WHERE id = {key}")
        return found["price"]


def test_an_update_without_a_column_is_a_doubt(tmp_path: Path) -> None:
    """With DMS's defaults no update to NULL arrives: the mirror kept the old value, with every check green."""
    mine = Priced(tmp_path, RULE, dialect="dms", stages=STAGES)
    assert [] == mine.load("insert", id=1, price=5, note="a")
    [complaint] = mine.load("update", id=1, note="b")
    assert "price" in complaint
    assert "`left_out: null`" in complaint


@pytest.mark.parametrize(("left_out", "price"), [("null", None), ("unchanged", 5)])
@pytest.mark.parametrize("dialect", ["dms", "ogg"])
def test_the_option_decides(tmp_path: Path, dialect: str, left_out: str, price: int | None) -> None:
    """A source that leaves out NULLs could not be mirrored at all."""
    mine = Priced(tmp_path, RULE, dialect=dialect, stages=STAGES)
    mine.left_out = left_out
    assert [] == mine.load("insert", id=1, price=5, note="a")
    assert [] == [one for one in mine.load("update", id=1, note="b") if "left_out" in one]
    assert price == mine.price(1)


def test_a_source_that_sends_nulls_is_not_suspected(tmp_path: Path) -> None:
    """Partial rows of a source that sends NULLs are right: a complaint about each would hide the others."""
    mine = Priced(tmp_path, RULE, dialect="dms", stages=STAGES)
    assert [] == mine.load("insert", id=1, price=5, note=None)
    assert [] == mine.load("update", id=1, note="b")


def test_compressed_updates_are_not_suspected_but_short_inserts_are(tmp_path: Path) -> None:
    """GoldenGate compresses updates by itself, and inserts never."""
    mine = Priced(tmp_path, RULE, dialect="ogg", stages=STAGES)
    assert [] == mine.load("insert", id=1, price=5, note='a":null,')
    assert [] == mine.load("update", id=1, note="b")
    assert ["price" in one for one in mine.load("insert", id=2, note="b")] == [True]


class Photos(Priced):
    """A table of PostgreSQL with an array of doubles, of which Debezium sends NULL if it is large and did not change."""

    is_told: bool = False  # by REPLICA IDENTITY FULL

    def message(self, op: str, row: dict[str, Any]) -> dict[str, Any]:
        """A row change with its schema."""
        doubles = {"type": "array", "items": {"type": "double", "optional": True}, "optional": True}
        fields = [
            {"type": "int64", "field": "id"},
            {**doubles, "field": "price"},
            {"type": "string", "field": "note"},
        ]
        place = {"connector": "postgresql", "db": "d", "schema": "s", "table": "t", "lsn": 100 + self.number}
        before = {"id": row["id"], "price": PRICES, "note": "a"} if self.is_told and op == "update" else None
        payload = {"op": {"insert": "c", "update": "u"}[op], "before": before, "after": row, "source": place}
        image = {"type": "struct", "fields": fields, "field": "after"}
        return {"schema": {"type": "struct", "fields": [image]}, "payload": payload}

    def price(self, key: int) -> object:
        """A cell of the mirror."""
        [found] = self.lake.ask_mirror("mirrors/d/s.t", f"SELECT price FROM {{mirror}} WHERE id = {key}")
        return None if found["price"] is None else json.loads(found["price"])


PRICES = [number + 0.5 for number in range(300)]
ARRAYS = TableRule(match="*", keys=("id",))


def test_a_null_for_a_large_value_is_a_doubt(tmp_path: Path) -> None:
    """An UPDATE of another column took an embedding out of the mirror, with every check green."""
    mine = Photos(tmp_path, ARRAYS, dialect="debezium", stages=STAGES)
    assert [] == mine.load("insert", id=1, price=PRICES, note="a")
    [complaint] = mine.load("update", id=1, price=None, note="b")
    assert "came with NULL in price" in complaint
    assert "`left_out: unchanged`" in complaint


@pytest.mark.parametrize(("left_out", "price"), [("null", None), ("unchanged", PRICES)])
def test_the_option_decides_on_large_values(tmp_path: Path, left_out: str, price: object) -> None:
    """Only who knows the application knows whether it sets large values to NULL."""
    mine = Photos(tmp_path, ARRAYS, dialect="debezium", stages=STAGES)
    mine.left_out = left_out
    assert [] == mine.load("insert", id=1, price=PRICES, note="a")
    assert [] == mine.load("update", id=1, price=None, note="b")
    assert price == mine.price(1)


@pytest.mark.parametrize(("first", "is_told"), [([1.5], False), (None, False), (PRICES, True)])
def test_a_null_that_is_none_in_doubt(tmp_path: Path, first: object, is_told: bool) -> None:
    """A row of less than 2 KB is stored whole, and an image before shows all values: a NULL is one."""
    mine = Photos(tmp_path, ARRAYS, dialect="debezium", stages=STAGES)
    mine.is_told = is_told
    assert [] == mine.load("insert", id=1, price=first, note="a")
    assert [] == mine.load("update", id=1, price=None, note="b")
    assert mine.price(1) is None


@pytest.mark.parametrize("mask", ["hmac", "last4"])
@pytest.mark.parametrize("masked", ["price", "note"])
def test_a_mask_hides_no_large_value_from_the_doubt(tmp_path: Path, masked: str, mask: str) -> None:
    """Masked values are short, whatever they stand for, and make their rows short."""
    rule = replace(ARRAYS, mask={masked: mask})
    mine = Photos(tmp_path, rule, dialect="debezium", stages=STAGES)
    assert [] == mine.load("insert", id=1, price=PRICES[:60], note="a" * 3000)
    [complaint] = mine.load("update", id=1, price=None, note="b")
    assert "came with NULL in price" in complaint


class Renamed(Photos):
    """The same; the array has another name from the second message on."""

    def message(self, op: str, row: dict[str, Any]) -> dict[str, Any]:
        """A row change with its schema."""
        message = super().message(op, row)
        for field in message["schema"]["fields"][0]["fields"]:
            field.setdefault("optional", field["field"] != "id")
        if self.number > 1:
            message["payload"]["after"]["amount"] = message["payload"]["after"].pop("price")
            message["schema"]["fields"][0]["fields"][1]["field"] = "amount"
        return message


def test_a_large_value_under_a_former_name(tmp_path: Path) -> None:
    """The value before was looked for under the new name alone, so that the NULL was taken for one."""
    mine = Renamed(tmp_path, ARRAYS, dialect="debezium", stages=STAGES)
    assert [] == mine.load("insert", id=1, price=PRICES, note="a")
    [complaint] = mine.load("update", id=1, price=None, note="b")
    assert "came with NULL in amount" in complaint


class TakenOver(Photos):
    """A table with a second array, which from the second message on has the first one's name, while that is called `old`."""

    def message(self, op: str, row: dict[str, Any]) -> dict[str, Any]:
        """A row change with its schema."""
        message = super().message(op, row)
        [image] = message["schema"]["fields"]
        key, prices, note = image["fields"]
        names = ("old", "price") if self.number > 1 else ("price", "cost")
        arrays = [{**prices, "field": name} for name in names]
        image["fields"] = [key | {"optional": False}, *arrays, note | {"optional": True}]
        return message


@pytest.mark.parametrize(("price", "cost", "is_large"), [(PRICES, [1.5], False), ([1.5], PRICES, True)])
def test_a_large_value_of_a_column_that_takes_over_the_name_of_another(
    tmp_path: Path, price: object, cost: object, is_large: bool
) -> None:
    """The value before was that of the other column, under whose name it was sent: it hid the doubt, or made one."""
    mine = TakenOver(tmp_path, ARRAYS, dialect="debezium", stages=STAGES)
    assert [] == mine.load("insert", id=1, price=price, cost=cost, note="a" * 3000)
    said = mine.load("update", id=1, old=price, price=None, note="b")
    assert ["came with NULL in price" in each for each in said] == [True] * is_large


class Emptied(Photos):
    """The same by REPLICA IDENTITY FULL: an array that is empty, not large."""

    def message(self, op: str, row: dict[str, Any]) -> dict[str, Any]:
        """A row change whose image before has values that may stand for none in columns that must not be NULL."""
        message = super().message(op, row)
        if op == "update":
            message["payload"]["before"] = {"id": row["id"], "price": [], "note": ""}
        return message


@pytest.mark.parametrize("left_out", ["null", "unchanged", None])
def test_an_image_before_with_zeros_tells_nulls(tmp_path: Path, left_out: str | None) -> None:
    """It was taken for one that the connector has filled, and its row's NULL for an unchanged value."""
    mine = Emptied(tmp_path, ARRAYS, dialect="debezium", stages=STAGES)
    mine.left_out = left_out
    assert [] == mine.load("insert", id=1, price=[], note="")
    assert [] == mine.load("update", id=1, price=None, note="")
    assert mine.price(1) is None


def test_a_note_may_have_another_remark_behind_it(tmp_path: Path) -> None:
    """A row with a large text and a NULL, whose key changed in a file: the check ended with an error."""
    mine = Moved(tmp_path, ARRAYS, dialect="debezium", stages=STAGES)
    assert [] == mine.load("insert", id=1, price=PRICES, note="a")
    mine.number += 1
    mine.lines += [json.dumps(mine.message("delete", {"id": 1}))]
    [complaint] = mine.load("update", id=7, price=None, note="__debezium_unavailable_value")
    assert "came with NULL in price" in complaint


class Moved(Photos):
    """The same in flattened rows; a changed key comes as a delete and a new row at one position."""

    def message(self, op: str, row: dict[str, Any]) -> dict[str, Any]:
        """A flattened row with its schema."""
        doubles = {"type": "array", "items": {"type": "double", "optional": True}, "optional": True}
        fields = [
            {"type": "int64", "field": "id"},
            {**doubles, "field": "price"},
            {"type": "string", "optional": True, "field": "note"},
            {"type": "string", "optional": True, "field": "__deleted"},
            {"type": "int64", "optional": True, "field": "__lsn"},
            {"type": "string", "optional": True, "field": "__db"},
            {"type": "string", "optional": True, "field": "__schema"},
            {"type": "string", "optional": True, "field": "__table"},
            {"type": "string", "optional": True, "field": "__connector"},
        ]
        place = {"__deleted": str(op == "delete").lower(), "__lsn": 100 + min(self.number, 2)}
        names = {"__db": "d", "__schema": "s", "__table": "t", "__connector": "postgresql"}
        payload = {"price": None, "note": None, **row, **place, **names}
        return {"schema": {"type": "struct", "fields": fields}, "payload": payload}
