"""One value has one text on both sides of a comparison, whatever form a database prints it in."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from pathlib import Path
from random import Random

import duckdb
import pyarrow as pa
import pytest

from ingest.change import Hints, Message, TableId
from ingest.config import load
from ingest.errors import IngestError
from ingest.formats import ingest_snapshot
from ingest.ledgers.mirrors import Column
from ingest.source import digest, mysql, postgres, sides
from ingest.source import reconcile as comparing
from ingest.source.database import SourceColumn
from ingest.source.reconciled import Reconciled, ReconcileOptions, RowDifference
from ingest.source.snapshot import agreed, source_of
from ingest.tables.tables import LakeReader
from tests.source import duck_source, made
from tests.source.bins import Bins

POINTS = TableId("shop", None, "points")
NUMBERS = (0.1, 1e20, 1e-5, -1.5, 1e300, 3.0, 9007199254740992.0, 1 / 3, -0.0)
SCHEMA = pa.schema([("k", pa.float64()), ("v", pa.int32())])


def compared(bins: Bins, keys: tuple[str, ...]) -> Reconciled:
    """Compare the table with its mirror, the stream being settled."""
    pipeline = load(bins.file)
    return comparing.reconcile(
        LakeReader(pipeline), source_of(pipeline), POINTS, ReconcileOptions(parallel=1, settled=True), passed=lambda _mirror: None
    )  # fmt: skip


def filled(bins: Bins, numbers: tuple[float, ...], keys: tuple[str, ...]) -> None:
    """The table with all numbers, and a mirror with some."""
    values = ", ".join(f"('{number!r}', {place})" for place, number in enumerate(NUMBERS))
    bins.write("CREATE OR REPLACE TABLE points (k DOUBLE, v INTEGER)")
    bins.write(f"INSERT INTO points VALUES {values}")
    rows = pa.table({"k": list(numbers), "v": [NUMBERS.index(one) for one in numbers]}, SCHEMA)
    made.mirror(Path(load(bins.file).lake), POINTS, {"k": "float64", "v": "int32"}, keys, rows)


@pytest.mark.parametrize("keys", [("k",), ("k", "v"), ()])
def test_floating_numbers_of_a_key_are_matched_by_their_value(bins: Bins, keys: tuple[str, ...]) -> None:
    """A row under two texts of its key would be missing and surplus at once, and the repair would delete it."""
    filled(bins, NUMBERS, keys)
    done = compared(bins, keys)
    assert ([], {}, 9) == (done.differences, done.unkeyed, done.rows)
    if keys:  # as in a fold: the two zeros are one key
        filled(bins, tuple(number + 0.0 for number in NUMBERS), keys)
        assert [] == compared(bins, keys).differences
    filled(bins, NUMBERS[:4] + NUMBERS[5:], keys)
    done = compared(bins, keys)
    assert {"missing": 1, "surplus": 0, "different": 0} == {
        kind: done.count(kind) for kind in ("missing", "surplus", "different")
    }


def test_a_repair_deletes_no_key_that_the_source_has_in_another_form(bins: Bins) -> None:
    """The delete of ``1e+20`` and the row ``1e20`` have one key and one place: the right row is lost."""
    filled(bins, NUMBERS, ("k",))
    pipeline = load(bins.file)
    source, lake = source_of(pipeline), LakeReader(pipeline)
    mirror = comparing.mirror_of(lake, source, POINTS)
    asked = [("1e20",), ("1e+20",), ("100000000000000000000",), ("1e-05",), ("0",), ("7e99",)]
    here, read, gone = comparing.repair(
        pipeline, source, POINTS, mirror, [RowDifference("surplus", key) for key in asked]
    )
    assert (3, 1) == (read, gone)
    changes = [
        change
        for file in here.glob("*.jsonl")
        for line in file.read_bytes().splitlines()
        for change in ingest_snapshot.parse(Message(line), Hints())
    ]
    assert [{"k": "7e+99"}] == [dict(one.before) for one in changes if one.before is not None]


def priced(bins: Bins, monkeypatch: pytest.MonkeyPatch, mirrored: dict[str, int]) -> None:
    """A table whose key is a number without a scale, and a mirror that keeps the key as text."""
    monkeypatch.setitem(duck_source._TYPES, "DECIMAL(10,2)", "decimal")
    bins.write("CREATE OR REPLACE TABLE points (k DECIMAL(10,2), v INTEGER)")
    bins.write("INSERT INTO points VALUES (2, 1), (3, 1), (4, 1)")
    rows = pa.table({"k": list(mirrored), "v": pa.array(mirrored.values(), pa.int32())})
    made.mirror(Path(load(bins.file).lake), POINTS, {"k": "decimal", "v": "int32"}, ("k",), rows)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(
    ("mirrored", "kinds"),
    [
        ({"2": 1, "2.00": 1}, ["surplus"]),
        ({"2": 9, "2.00": 1}, ["surplus"]),
        ({"2": 1, "2.00": 9}, ["surplus"]),
        ({"2": 8, "2.0": 9, "2.00": 9}, ["different", "surplus", "surplus"]),
        ({"2.00": 1}, []),
    ],
)
def test_rows_that_have_one_key_in_several_texts_are_surplus(
    bins: Bins, monkeypatch: pytest.MonkeyPatch, mirrored: dict[str, int], kinds: list[str], ordered: bool
) -> None:
    """One of them hid the others: a mirror with a row too many was called equal, and no repair deleted it."""
    if ordered:  # so that ranges are cut along the key
        monkeypatch.setattr(sides, "_order_alike", lambda *_: True)
    priced(bins, monkeypatch, {**mirrored, "3.00": 1, "4.00": 1})
    done = compared(bins, ("k",))
    assert kinds == [difference.kind for difference in done.differences]
    assert bool(kinds) == done.differs
    assert {("2",)} >= {difference.key for difference in done.differences}
    if kinds:
        pipeline, lake = load(bins.file), LakeReader(load(bins.file))
        mirror = comparing.mirror_of(lake, source_of(pipeline), POINTS)
        here, read, gone = comparing.repair(pipeline, source_of(pipeline), POINTS, mirror, done.differences)
        assert (1, len(mirrored) - 1) == (read, gone)
        changes = [
            change
            for file in sorted(here.glob("*.jsonl"))
            for line in file.read_bytes().splitlines()
            for change in ingest_snapshot.parse(Message(line), Hints())
        ]
        deleted = [change.before["k"] for change in changes if change.before is not None]
        assert sorted({*mirrored} - {"2.00"}) == deleted
        assert [("2.00", "1")] == [
            (str(change.after["k"]), str(change.after["v"])) for change in changes if change.after is not None
        ]


@pytest.mark.parametrize("keys", [("k",), ("w",)])
def test_rows_of_the_source_that_have_one_key_are_never_called_equal(
    bins: Bins, keys: tuple[str, ...]
) -> None:
    """A mirror has one row of a key, so by a wrong `keys:` it lacks rows, which no comparison of keys can name."""
    bins.write("CREATE OR REPLACE TABLE points (k BIGINT, w DOUBLE)")
    bins.write("INSERT INTO points VALUES (1, 1), (1, 1), (2, 2)")
    rows = pa.table({"k": [1, 2], "w": [1.0, 2.0]})
    made.mirror(Path(load(bins.file).lake), POINTS, {"k": "int64", "w": "float64"}, keys, rows)
    with pytest.raises(IngestError, match=rf"several rows of shop.points may have one key \({keys[0]}\)"):
        compared(bins, keys)


def digits_of(texts: Sequence[str]) -> list[str]:
    """What is compared of printed numbers, all of them in one query: to plan one takes longer than to answer it."""
    rows = f"unnest({list(texts)}) WITH ORDINALITY AS printed(text, place)"
    found = duckdb.sql(f"SELECT {digest.digits('text')} FROM {rows} ORDER BY place").fetchall()
    return [str(digits) for (digits,) in found]


def test_printed_numbers_have_one_form_of_their_digits() -> None:
    """A form that is left out makes rows without a key differ for ever."""
    forms = (
        "1e20 1e+20 100000000000000000000 1.0e20",
        "-9.007199254740992e15 -9007199254740992.0 -9007199254740992",
        "0.00001 1e-05 1e-5 1.0E-5".replace("E", "e"),
        "1.2345678901234568e-7 0.00000012345678901234568",
    )
    for line in forms:
        assert 1 == len(set(digits_of(line.split()))), line
    random = Random(3)
    numbers = [struct.unpack("<d", random.randbytes(8))[0] for _ in range(2000)]
    numbers = [number for number in numbers if math.isfinite(number)]
    found = digits_of([repr(number) for number in numbers])
    for number, text in zip(numbers, found, strict=True):
        digits, _, point = text.partition("e")
        sign, digits = ("-", digits[1:]) if digits.startswith("-") else ("", digits)
        assert number == float(f"{sign}0.{digits}e{point}")
    assert len(set(found)) > 1900


def test_spaces_between_the_members_of_json_do_not_count_and_those_in_texts_do() -> None:
    """MySQL prints spaces that its connectors omit; a text that changed by a space is another value."""
    there = r'{"a": [1, 2.50, {"b: c": "x, y: z", "q\"": "\\"}], "": null, "e": {}, "f": []}'
    sent = r'{"a":[1,2.50,{"b: c":"x, y: z","q\"":"\\"}],"":null,"e":{},"f":[]}'
    column = SourceColumn("j", "json", "json", "j")
    both = digest.compared(mysql, column, Column("j", "j", "json"))  # type: ignore[arg-type]
    duckdb.sql("CREATE OR REPLACE TABLE documents (j VARCHAR)")
    for text in (there, sent, sent.replace(",", " ,\n ").replace("x ,\n  y", "x, y")):
        assert [(there,)] == duckdb.sql(
            f"SELECT {both.mirror} FROM (SELECT $1 AS j)", params=[text]
        ).fetchall()
    other = sent.replace("x, y", "x,y")
    assert [(there,)] != duckdb.sql(f"SELECT {both.mirror} FROM (SELECT $1 AS j)", params=[other]).fetchall()
    postgresql = digest.compared(postgres, column, Column("j", "j", "json"))  # type: ignore[arg-type]
    assert '"j"' == postgresql.mirror  # the server prints it as its connectors do


def test_what_has_no_text_of_its_own_is_not_compared() -> None:
    """Numbers that a mirror keeps in a vendor's text, and texts that silver converts, would differ in right rows."""
    table = TableId("shop", None, "t")
    assert not agreed(table, SourceColumn("f", "double", "float64", "f"), "string").comparable
    assert agreed(table, SourceColumn("n", "int", "int32", "n"), "string").comparable
    born = agreed(table, SourceColumn("born", "varchar(40)", "string", "born"), "date", is_declared=True)
    assert ("date", False) == (born.type, born.comparable)
