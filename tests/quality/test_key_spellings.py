"""Keys that are numbers of unknown precision, and come in several spellings."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from ingest.config.model import TableRule
from ingest.order import RANK
from ingest.quality import key_spellings
from ingest.quality.catalogue import Metric
from ingest.tables import duck
from ingest.tables.snapshots import folder
from tests.shops import Shops, metrics_by_spark, order_metrics

if TYPE_CHECKING:
    from pathlib import Path

ANY = TableRule(match="*", keys=("ID",))
STRING = {"type": "string", "optional": True, "field": "TEXT"}
NUMBER = {
    "type": "struct", "optional": False, "field": "ID", "name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"type": "int32", "optional": False, "field": "scale"}, {"type": "bytes", "optional": False, "field": "value"}],
}  # fmt: skip


def sent(spelt: str) -> dict[str, Any]:
    """A number as Debezium sends Oracle's NUMBER and PostgreSQL's NUMERIC: digits, and how many of them are behind the point."""
    whole, _, fraction = spelt.partition(".")
    digits = int(whole + fraction)
    value = digits.to_bytes((digits.bit_length() + 8) // 8, "big", signed=True)
    return {"scale": len(fraction), "value": base64.b64encode(value).decode()}


class Spellings(Shops):
    """Tables whose key is sent in several spellings."""

    def batch(self, *events: tuple[str, ...]) -> list[Metric]:
        """What is said of keys after a batch of inserts, updates and deletes: each an operation, a key, and a table, if
        not `T`.
        """
        for op, spelt, *table in events:
            self.number += 1
            self.lines.append(self.message(op, spelt, *table))
        self.run()
        assert self.result is not None
        assert {("done", "")} == {(mirror.state, mirror.message) for mirror in self.result.mirrors}
        metrics = order_metrics(self.lake, self.lake.decoded() - 1)
        return [metric for metric in metrics if metric.check == "key_spellings" and metric.observed]

    def message(self, op: str, spelt: str, table: str = "T") -> str:
        """A change of a row."""
        raise NotImplementedError


def named(metrics: list[Metric], column: str) -> dict[str, list[str]]:
    """The keys that are complained about, by table."""
    return {
        str(metric.mirror).rpartition(".")[2].upper(): [json.loads(key)[column] for key in metric.failing]
        for metric in metrics
    }


def in_tables(pairs: list[tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """A table for each two spellings, all in one lake: a lake each would take ten times as long."""
    return {f"T{i}": pair for i, pair in enumerate(pairs)}


class Numbers(Spellings):
    """Tables whose key is a number."""

    def message(self, op: str, spelt: str, table: str = "T") -> str:
        """An insert (c), update (u) or delete (d)."""
        row, fields = {"ID": sent(spelt), "TEXT": str(self.number)}, [NUMBER, STRING]
        place = {
            "connector": "oracle",
            "db": "D",
            "schema": "S",
            "table": table,
            "scn": str(100 + self.number),
        }
        before, after = (row, None) if op == "d" else (None, row)
        schema = {
            "type": "struct", "name": "s.Envelope", "optional": False,
            "fields": [{"type": "struct", "fields": fields, "optional": True, "field": side} for side in ("before", "after")],
        }  # fmt: skip
        payload = {
            "op": op,
            "before": before,
            "after": after,
            "source": {**place, "commit_scn": place["scn"]},
        }
        return json.dumps({"schema": schema, "payload": payload})


NUMBERS = in_tables([("1", "1.0"), ("10.00", "10"), ("1.5", "1.50"), ("-2", "-2.0"), ("0", "0.0")])


@pytest.mark.one_of(2)
@pytest.mark.parametrize("op", ["c", "u", "d"])
@pytest.mark.parametrize("cut", [True, False])
def test_a_number_in_two_spellings_is_named(tmp_path: Path, op: str, cut: bool) -> None:
    """One row of the source would be two in the mirror, or its delete would not find it, with every check green."""
    mine = Numbers(tmp_path, ANY, dialect="debezium")
    before = [("c", spelt, table) for table, (first, _) in NUMBERS.items() for spelt in (first, "77")]
    changes = [(op, second, table) for table, (_, second) in NUMBERS.items()]
    if cut:
        assert [] == mine.batch(*before)
        complaints = mine.batch(*changes)
    else:
        complaints = mine.batch(*before, *changes)
    assert {table: [second] for table, (_, second) in NUMBERS.items()} == named(complaints, "ID")


@pytest.mark.e2e
@pytest.mark.spark
def test_where_only_spark_reads_the_changes_the_same_is_said(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Spark lacks functions of DuckDB's: there the checks of such a lake would end with an error at each run."""
    numbers = Numbers(tmp_path, ANY, dialect="debezium")
    numbers.batch(("c", "1"), ("c", "2"), ("u", "1.0"), ("c", "3.50"), ("d", "3.5"))
    said = order_metrics(numbers.lake, 0)
    [spelt] = [metric for metric in said if metric.check == "key_spellings"]
    assert len(spelt.failing) == 2
    assert said == metrics_by_spark(numbers.lake, 0, request)


@pytest.mark.parametrize("declared", ["decimal", "decimal(38,10)"])
def test_a_declared_type_makes_one_key_of_both(tmp_path: Path, declared: str) -> None:
    """What the complaint says to write must be the way out."""
    rule = TableRule(match="*", keys=("ID",), columns={"ID": declared})
    mine = Numbers(tmp_path, rule, dialect="debezium")
    complained = mine.batch(("c", "1"), ("c", "2"), ("d", "1.0"))
    assert (declared == "decimal") == bool(complained)


def test_keys_that_end_before_another_spelling_begins(tmp_path: Path) -> None:
    """Such a mirror is right: a complaint would send somebody to decode everything again for nothing."""
    mine = Numbers(tmp_path, ANY, dialect="debezium")
    assert [] == mine.batch(("c", "1.0"), ("c", "2"), ("c", "10"), ("c", "1.5"))
    assert [] == mine.batch(("d", "1.0"), ("c", "1"), ("u", "1"), ("c", "100"), ("c", "3.25"))
    assert [] == mine.batch(("d", "10"), ("c", "10.0"))


SPELT = [
    ("1.0", "1"), ("1E+2", "100"), ("1e2", "100"), ("+7", "7"), ("007", "7"), ("-0", "0"), ("-0.00", "0"), (".5", "0.5"),
    ("-.50", "-0.5"), ("1.", "1"), ("120", "120"), ("0", "0"), ("1.05", "1.05"), ("12345678901234567890123456789012345678901.0", "12345678901234567890123456789012345678901"),
]  # fmt: skip


@pytest.mark.parametrize(("spelt", "shortest"), SPELT)
def test_the_shortest_spelling(spelt: str, shortest: str) -> None:
    """Two numbers taken for one would be a false alarm, one taken for two none."""
    [row] = duck.rows(
        f"SELECT {key_spellings.shortest_number(duck.text(spelt))} AS s, {key_spellings.is_odd(duck.text(spelt))} AS odd"
    )
    assert (shortest, spelt != shortest) == (row["s"], row["odd"])


# --- columns without a type, and texts ----------------------------------------------------------------------


class Untyped(Spellings):
    """Tables in a dialect that names no types, whose key is what is sent."""

    def message(self, op: str, spelt: str, table: str = "T") -> str:
        """An insert, an update, a delete, or of GoldenGate the move of a row to another key."""
        number, row = self.number, {"id": spelt, "v": str(self.number)}
        if self.dialect == "ogg":
            images = {
                "before": row if op in ("delete", "move") else None,
                "after": {"delete": None, "move": row | {"id": "moved"}}.get(op, row),
            }
            place = {"op_ts": f"2024-06-10 06:14:02.{number:06}", "pos": f"{number:020}"}
            return json.dumps(
                {
                    "table": f"S.{table}",
                    "op_type": "U" if op == "move" else op[0].upper(),
                    **place,
                    "primary_keys": ["id"],
                    **images,
                }
            )
        if self.dialect == "dms":
            about = {"record-type": "data", "operation": op, "schema-name": "S", "table-name": table}
            return json.dumps({"data": row, "metadata": {"timestamp": "2024-06-10T06:14:02Z", **about}})
        if self.dialect == "dts-shareplex":
            meta = {
                "op": op[:3] if op != "update" else "upd",
                "table": f"S.{table}",
                "scn": str(number),
                "time": "2024-06-10T06:14:02",
            }
            return json.dumps({"meta": meta, "data": row, "key": {"id": row["id"]}})
        return json.dumps(
            {"database": "S", "table": table, "type": op, "ts": 1718000000 + number, "data": row}
        )


WITHOUT_TYPES = ["maxwell", "ogg", "dms", "dts-shareplex"]
SPELLINGS = in_tables([
    ("1", "1.0"), ("a", "a  "), ("t", "true"), ("1", "true"), ("2024-06-10 06:14:02", "2024-06-10 06:14:02.000"),
    ("06:14:02.5", "06:14:02.500"),
    ("6f9619ff-8b86-d011-b42d-00c04fc964ff", "6F9619FF-8B86-D011-B42D-00C04FC964FF"),
    ("10.0.0.1", "10.0.0.1/32"), ("2001:db8::1", "2001:db8::1/128"),
])  # fmt: skip


@pytest.mark.one_of(2)
@pytest.mark.parametrize("dialect", WITHOUT_TYPES)
@pytest.mark.parametrize("op", ["update", "delete"])
def test_a_value_in_two_spellings_is_named(tmp_path: Path, dialect: str, op: str) -> None:
    """One row of the source would be two in the mirror, or its delete would not find it, with every check green."""
    mine = Untyped(tmp_path, TableRule(match="*", keys=("id",)), dialect=dialect)
    before = [("insert", spelt, table) for table, (first, _) in SPELLINGS.items() for spelt in (first, "77")]
    assert [] == mine.batch(*before)
    complaints = mine.batch(*((op, second, table) for table, (_, second) in SPELLINGS.items()))
    assert {table: [second] for table, (_, second) in SPELLINGS.items()} == named(complaints, "id")


def test_two_rows_that_look_like_one_are_no_complaint(tmp_path: Path) -> None:
    """Of texts both may be there: versions `1` and `1.0`, names with a space behind them."""
    mine = Untyped(tmp_path, TableRule(match="*", keys=("id",)), dialect="maxwell")

    def complaints(*changes: tuple[str, int]) -> dict[str, list[str]]:
        """Of a batch that makes the same changes in each table: of its first spelling or its second."""
        events = [(op, pair[which], table) for table, pair in SPELLINGS.items() for op, which in changes]
        return named(mine.batch(*events), "id")

    mine.batch(*(("insert", "77", table) for table in SPELLINGS))
    assert {} == complaints(("insert", 0), ("insert", 1))
    assert {} == complaints(("update", 0), ("update", 1))
    assert {} == complaints(("delete", 1), ("insert", 1), ("delete", 0))


@pytest.mark.one_of(2, "cut")
@pytest.mark.parametrize("dialect", ["maxwell", "ogg", "dms"])
@pytest.mark.parametrize("cut", [True, False])
def test_two_inserts_of_one_bare_number_are_named(tmp_path: Path, dialect: str, cut: bool) -> None:
    """A number that is written `1.0` by a load and `1` by the stream is two rows in the mirror; a text would be in quotes."""
    mine = Bare(tmp_path, TableRule(match="*", keys=("id",)), dialect=dialect)
    events = [("insert", "1.0"), ("insert", "77"), ("insert", "1")]
    if cut:
        assert [] == mine.batch(*events[:2])
        events = events[2:]
    [metric] = mine.batch(*events)
    assert (1, ('{"id":"1"}',)) == (metric.observed, metric.failing)
    assert "`columns: {id:" in metric.detail


class Bare(Untyped):
    """The same, with keys that are numbers of JSON."""

    def message(self, op: str, spelt: str, table: str = "T") -> str:
        """An insert whose key has no quotes."""
        return super().message(op, spelt, table).replace(f'"id": "{spelt}"', f'"id": {spelt}')


@pytest.mark.parametrize(
    ("spelt", "entry"),
    [(("1", "1.0"), '`columns: {id: "decimal(38,10)"}`'), (("t", "true"), '`columns: {id: "boolean"}`'),
     (("2024-06-10 06:14:02", "2024-06-10 06:14:02.000"), '`columns: {id: "datetime"}`'),
     (("a", "a  "), "the source must send one spelling")],
)  # fmt: skip
def test_the_way_out_is_a_type_that_makes_them_one(
    tmp_path: Path, spelt: tuple[str, str], entry: str
) -> None:
    """A type that does not fit would reject each row."""
    mine = Untyped(tmp_path, TableRule(match="*", keys=("id",)), dialect="maxwell")
    [metric] = mine.batch(("insert", spelt[0]), ("delete", spelt[1]))
    assert entry in metric.detail
    assert f"{spelt[0]} and " in metric.detail


@pytest.mark.parametrize("logical", ["decimal(38,10)", "boolean"])
def test_a_declared_type_compares_values(tmp_path: Path, logical: str) -> None:
    """What the complaint says to write must be the way out."""
    rule = TableRule(match="*", keys=("id",), columns={"id": logical})
    mine = Untyped(tmp_path, rule, dialect="maxwell")
    first, second = ("1", "1.0") if logical != "boolean" else ("1", "true")
    assert [] == mine.batch(("insert", first), ("update", second))


@pytest.mark.parametrize("pad", ["  ", ""])
def test_keys_that_are_all_written_alike_are_no_complaint(tmp_path: Path, pad: str) -> None:
    """A source that pads each CHAR, or writes each UUID in capital letters, has one spelling."""
    name = f"a{pad}" if pad else "6F9619FF-8B86-D011-B42D-00C04FC964FF"
    mine = Untyped(tmp_path, TableRule(match="*", keys=("id",)), dialect="ogg")
    assert [] == mine.batch(("insert", name), ("update", name))
    assert [] == mine.batch(("delete", name), ("insert", name))


def test_a_key_that_moves_to_a_text_like_another_one(tmp_path: Path) -> None:
    """Its first change there is an update, which proves nothing: the row came by it."""
    mine = Untyped(tmp_path, TableRule(match="*", keys=("id",)), dialect="maxwell")
    assert [] == mine.batch(("insert", "1"), ("insert", "5"))
    moved = {
        "database": "S",
        "table": "T",
        "type": "update",
        "ts": 1718000900,
        "data": {"id": "1.0", "v": "x"},
    }
    mine.lines.append(json.dumps(moved | {"old": {"id": "5"}}))
    assert [] == mine.batch(("update", "1"))


@pytest.mark.parametrize(("minute", "count"), [(15, 0), (13, 1)], ids=["before it was read", "after"])
@pytest.mark.parametrize("op", ["delete", "move"])
def test_a_row_that_was_read_after_its_place_proves_nothing(
    tmp_path: Path, op: str, minute: int, count: int
) -> None:
    """Its key may have been another row's at that place, where the database takes `a` and `a  ` for one key."""
    mine = Untyped(tmp_path, TableRule(match="*", keys=("id",)), dialect="ogg")
    assert [] == mine.batch(("insert", "77"))
    read = {
        "ingest-snapshot": 1, "op": "read", "table": ["S", None, "T"], "keys": ["id"], "types": {"id": "string", "v": "string"},
        "place": {"phase": "1", "sequence": ["1", "2"], "half": "3", "arrival": ["1", str(RANK), "2", "1", "0"]},
        "name": "snapshot 2, chunk 1", "time": f"2024-06-10T06:{minute}:00Z", "rows": [["a", "1"]],
    }  # fmt: skip
    [source] = mine.lake.pipeline.sources
    file = folder(mine.lake.pipeline, source.name) / "t-2" / "chunk-000001.ingest-snapshot.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text(f"{json.dumps(read)}\n", "utf-8")
    assert count == len(mine.batch((op, "a  ")))
