"""Random histories, batch by batch: what the check of cells reads of them says nothing wrong, and finds what is."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pytest

from ingest.change import TableId
from ingest.config.model import MadeColumn, TableRule
from ingest.fold import Key, Placed, Row, Table, fold, steps, typed
from ingest.ledgers.mirrors import Column, Mirror
from ingest.order import order_key
from ingest.quality import cells
from ingest.quality.cell_diff import Expected, KeyHistory, Wrong, differences, expected
from ingest.quality.cells import Hashes, KeyHashes, KeySample, among
from ingest.tables.cell_values import of_text
from tests.properties.conditions import CONDITIONS, Cells
from tests.properties.delivery import deliver, placed
from tests.properties.histories import COLUMNS, history
from tests.properties.kinds import KINDS, Kind
from tests.shops import Shops

ROWS = pa.schema(
    [(name, pa.string()) for name in ("op", "order_key", "before", "after", "types")]
    + [("partial", pa.bool_())]
)


class Step(NamedTuple):
    """A batch of a history: what came with it, what came before, and the rows after it."""

    mirror: Mirror
    new: list[Placed]
    old: list[Placed]
    rows: dict[Key, Row]

    @property
    def high(self) -> str:
        """The place of the newest change before."""
        return max((order_key(event.order) for event in self.old), default="")

    def check(self, events: Sequence[Placed], limit: int, *, whole: bool) -> tuple[Expected, Hashes | None]:
        """What the changes that were read say."""
        sample = KeySample(KeyHashes(self.mirror, 7), self.high, limit, bounded=True)
        sample.add(pa.RecordBatch.from_pylist([as_row(event) for event in events], ROWS))
        rows, hashes, _ = sample.chosen()
        wanted = expected(
            KeyHistory(rows, whole=whole, linked=hashes is None), self.mirror, among(sample.hashes, hashes)
        )
        return wanted, hashes

    def cells(self, key: Key) -> list[object]:
        """A row of the mirror, whose key may not be among the values of a partial update."""
        values = dict(zip(self.mirror.keys, map(str, key), strict=True)) | self.rows[key].values
        return [of_text(values.get(one.name), one.type) for one in self.mirror.columns]

    def wrong(
        self, wanted: Expected, rows: Sequence[Sequence[object]], *, closed: bool = False
    ) -> list[Wrong]:
        """What differs."""
        return list(
            differences(wanted, rows, self.mirror, [one.delta for one in self.mirror.columns], closed)
        )


def as_row(event: Placed) -> dict[str, Any]:
    """A change as ``changes`` has it."""
    change = event.change
    images = {
        name: None if image is None else json.dumps(image)
        for name, image in (("before", change.before), ("after", change.after))
    }
    return {
        "op": str(change.op),
        "order_key": order_key(event.order),
        "partial": change.partial,
        "types": "{}",
    } | images


def batches(kind: Kind, number: int) -> Iterator[Step]:
    made = history(kind, number)
    names = [*made.keys, *(name for name in COLUMNS if name not in made.keys)]
    columns = tuple(Column(name, name, made.types.get(name, "string")) for name in names)
    mirror = Mirror(TableId("p", None, "t"), "mirrors/p/t", made.keys, columns)
    events = [
        one._replace(change=msgspec.structs.replace(one.change, event_time=None))
        for one in placed(deliver(made))
    ]  # `as_row` has no times
    for batch in sorted({event.order.arrival[0] for event in events}):
        new = [event for event in events if event.order.arrival[0] == batch]
        old = [event for event in events if event.order.arrival[0] < batch]
        yield Step(mirror, new, old, fold([*old, *new], made.keys, made.types))


def read(step: Step) -> Iterator[tuple[str, list[Placed], bool]]:
    """The ways in which a lane's changes are read."""
    yield "whole", [*step.old, *step.new], True
    low = min(order_key(event.order) for event in step.new)
    yield "from", [event for event in (*step.old, *step.new) if order_key(event.order) >= low], False
    yield "above", [event for event in step.new if order_key(event.order) > step.high], False


@pytest.mark.one_of(6)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_right_mirrors_pass_and_planted_cells_are_found(kind: Kind) -> None:
    """A false alarm ends every run with 1; a cell that passes is what the check is for."""
    seen: Counter[str] = Counter()
    for number in range(2):
        random = Random(f"{kind.name}/{number}")
        for step in batches(kind, number):
            rows = {key: step.cells(key) for key in step.rows}
            for way, events, whole in read(step):
                for limit in (1 << 32, 2):
                    wanted, hashes = step.check(events, limit, whole=whole)
                    closed = whole and hashes is None
                    where = (way, kind.name, number, limit)
                    assert [] == step.wrong(wanted, list(rows.values()), closed=closed), where
                    seen["keys"] += len(wanted.known)
                    seen["partly"] += len(wanted.partly)
                    seen["gone"] += len(wanted.known - wanted.rows.keys())
                    for key in sorted(wanted.rows, key=str)[:1]:
                        name = random.choice(sorted(wanted.rows[key]) or [""])
                        at = next((i for i, one in enumerate(step.mirror.columns) if one.name == name), None)
                        if at is not None:
                            planted = [*rows[key]]
                            planted[at] = "planted"
                            others = [row for other, row in rows.items() if other != key]
                            found = step.wrong(wanted, [*others, planted], closed=closed)
                            assert [(key, name)] == [(one.key, one.column) for one in found], where
                            seen["planted"] += 1
                            assert [(key, "")] == [
                                one[:2] for one in step.wrong(wanted, others, closed=closed)
                            ]
    assert min(seen["keys"], seen["planted"]) > 10, seen
    assert not seen["partly"] or kind.partials, seen


@pytest.mark.one_of(4)
@pytest.mark.parametrize("kind", KINDS[::3], ids=lambda kind: kind.name)
def test_of_large_changes_fewer_keys_are_compared(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes of many megabytes each would fill the memory; a key of which some are left out would be a false alarm."""
    monkeypatch.setattr(cells, "HELD_BYTES", 1_000)
    seen: Counter[str] = Counter()
    for number in range(3):
        for step in batches(kind, number):
            rows = [step.cells(key) for key in step.rows]
            for way, events, whole in read(step):
                wanted, hashes = step.check(events, 1 << 32, whole=whole)
                assert [] == step.wrong(wanted, rows, closed=whole and hashes is None), (
                    way,
                    kind.name,
                    number,
                )
                seen["compared"] += len(wanted.known)
                seen["left out"] += hashes is not None
    assert min(seen["compared"], seen["left out"]) > 3, seen


@pytest.mark.one_of(4)
@pytest.mark.parametrize("kind", KINDS[::3], ids=lambda kind: kind.name)
def test_deleted_rows_that_are_kept_pass_and_lost_ones_are_found(kind: Kind) -> None:
    """A deleted row is right as it was last; without older changes nothing is known of it, and nothing is wrong."""
    seen: Counter[str] = Counter()
    made = [("_deleted", "boolean"), ("_deleted_at", "timestamp")]
    for number in range(3):
        for step in batches(kind, number):
            columns = [Column(name, name, one, made=MadeColumn("deletes", "soft", one)) for name, one in made]
            soft = step._replace(mirror=replace(step.mirror, columns=(*step.mirror.columns, *columns)))
            table = Table(
                step.mirror.keys, {one.name: one.type for one in step.mirror.key_columns}, soft=True
            )
            for _step in steps(table, [_living(event) for event in (*step.old, *step.new)]):
                pass
            assert table.rows.keys() == step.rows.keys()
            soft = soft._replace(rows=table.rows | table.dead)
            rows = {key: soft.cells(key) for key in soft.rows}
            for way, events, whole in read(soft):
                wanted, _ = soft.check([_living(event) for event in events], 1 << 32, whole=whole)
                where = (way, kind.name, number)
                assert [] == soft.wrong(wanted, list(rows.values()), closed=whole), where
                for key in sorted(wanted.rows.keys() & table.dead.keys(), key=str)[:1]:
                    others = [row for other, row in rows.items() if other != key]
                    assert [(key, "")] == [one[:2] for one in soft.wrong(wanted, others, closed=whole)], where
                    back = [*others, [*rows[key][:-2], False, None]]
                    assert [(key, "_deleted")] == [one[:2] for one in soft.wrong(wanted, back, closed=whole)]
                    seen[way] += 1
    assert seen["whole"] > 1, seen
    assert not seen.keys() - {"whole"}


def _living(event: Placed) -> Placed:
    """A change with the cell that it gets when it is read."""
    after = event.change.after
    stamped = None if after is None else {"_deleted": "false", **after}
    return event._replace(change=msgspec.structs.replace(event.change, after=stamped))


@pytest.mark.one_of(2)
@pytest.mark.parametrize("where", CONDITIONS)
def test_filtered_mirrors_pass_and_rows_that_do_not_belong_are_found(where: str) -> None:
    """A mirror with a condition is right if the rows that meet it are there, and no others."""
    seen: Counter[str] = Counter()
    for number, kind in enumerate(KINDS[::7]):
        for step in batches(kind, number):
            mirror = replace(step.mirror, shape=TableRule(where=where).shape)
            met = {key: CONDITIONS[where](cells_of(row)) for key, row in step.rows.items()}
            filtered = step._replace(mirror=mirror)
            rows = {key: step.cells(key) for key, holds in met.items() if holds}
            for way, events, whole in read(filtered):
                wanted, hashes = filtered.check(events, 1 << 32, whole=whole)
                closed = whole and hashes is None
                assert [] == filtered.wrong(wanted, list(rows.values()), closed=closed), (way, number)
                seen["rows"] += len(wanted.rows)
                for key in wanted.filtered & met.keys():
                    planted = filtered.wrong(wanted, [*rows.values(), step.cells(key)], closed=closed)
                    assert [(key, "")] == [one[:2] for one in planted]
                    seen["planted"] += 1
                for key in wanted.rows:
                    left = filtered.wrong(
                        wanted, [row for other, row in rows.items() if other != key], closed=closed
                    )
                    assert [(key, "")] == [one[:2] for one in left]
    assert min(seen["rows"], seen["planted"]) > 5, seen


@pytest.mark.parametrize("where", ["", "n % 3 <> 1"])
def test_computed_columns_pass_and_planted_values_are_found(where: str) -> None:
    """A row of which only some cells are known is compared in the computed columns that these cells settle."""
    seen: Counter[str] = Counter()
    made = {
        "more": MadeColumn("compute", "n + 1", "int64"),
        "text": MadeColumn("compute", "coalesce(s, '-') || '/' || n"),
    }
    own = tuple(Column(name, name, one.type or "string", made=one) for name, one in made.items())
    for number, kind in enumerate(KINDS[::7]):
        for step in batches(kind, number):
            shape = TableRule(made=made, where=where).shape
            mirror = replace(step.mirror, columns=(*step.mirror.columns, *own), shape=shape)
            rows = {}
            for key, row in step.rows.items():
                n, s, _ = cells_of(row)
                if not where or CONDITIONS[where](cells_of(row)):
                    more = [None, None] if n is None else [n + 1, f"{'-' if s is None else s}/{n}"]
                    rows[key] = [*step.cells(key), *more]
            mine = step._replace(mirror=mirror)
            for way, events, whole in read(mine):
                wanted, hashes = mine.check(events, 1 << 32, whole=whole)
                closed = whole and hashes is None
                assert [] == mine.wrong(wanted, list(rows.values()), closed=closed), (way, number)
                for key in wanted.rows:
                    for at, name in enumerate(("more", "text"), len(step.mirror.columns)):
                        planted = [*rows[key]]
                        planted[at] = "planted"
                        others = [row for other, row in rows.items() if other != key]
                        found = mine.wrong(wanted, [*others, planted], closed=closed)
                        known = name in wanted.rows[key]
                        assert ([(key, name)] if known else []) == [one[:2] for one in found]
                        seen["found" if known else "unknown"] += 1
    assert seen["found"] > 10, seen


def cells_of(row: Row) -> Cells:
    """A row's cells as a condition sees them."""
    n, s, d = (row.values.get(name) for name in COLUMNS)
    return (None if n is None else int(n), s, None if d is None else Decimal(d))


def test_hashes_are_of_values() -> None:
    """Two spellings of one key in two groups: the fold of either would be called wrong."""
    columns = (Column("a", "a", "decimal(10,2)"), Column("b", "b", "int32"))
    mirror = Mirror(TableId("p", None, "t"), "mirrors/p/t", ("a", "b"), columns)
    rows = [("1.0", "7"), ("1.00", "007"), ("0", "-0"), ("0.00", "0"), ("1.01", "7"), ("", "\ud800")]
    texts = [json.dumps(dict(zip("ab", row, strict=True))) for row in rows]
    images = {"after": pa.array(texts), "before": pa.nulls(len(rows), pa.string())}
    first, second = KeyHashes(mirror, 1).of(pa.RecordBatch.from_pydict(images))
    assert first.tolist() == second.tolist()
    assert [first[0], first[2]] == [first[1], first[3]]
    assert 4 == len(set(first.tolist()))


@pytest.mark.parametrize("kinds", [("int64", "string"), ("decimal(10,2)", "string"), ("string", "string")])
def test_hashes_are_of_keys(kinds: tuple[str, str]) -> None:
    """A key's changes are chosen by its hash, whatever else is in their batch, and compared if the key has the same."""
    columns = tuple(Column(name, name, kind) for name, kind in zip("ab", kinds, strict=True))
    mirror = Mirror(TableId("p", None, "t"), "mirrors/p/t", ("a", "b"), columns)
    images: list[tuple[dict[str, str | None] | None, dict[str, str | None] | None]] = [
        ({"a": "7", "b": "x\x00\n", "c": "1"}, None),
        ({"a": "7", "b": "y"}, {"a": "8"}),
        (None, {"a": "7", "b": "ü"}),
        ({"a": "7", "b": "z"}, {"c": "2"}),
        ({"a": "7"}, {"b": "z"}),
        ({"b": "z"}, None),
        ({"a": None, "b": "z"}, {"c": None}),
        ({"a": "7", "b": "z" * 62}, None),
        ({"a": "7", "b": "z" * 63}, None),
        ({"a": "7", "b": ""}, None),
    ]
    keys = [
        ("7", "x\x00\n"),
        ("7", "y"),
        ("7", "ü"),
        ("7", "z"),
        ("7", "z"),
        None,
        None,
        ("7", "z" * 62),
        ("7", "z" * 63),
        ("7", ""),
    ]
    hashes = KeyHashes(mirror, 5)

    def typed_key(key: tuple[str, str]) -> Key:
        return tuple(typed(kind, text) for kind, text in zip(kinds, key, strict=True))

    wanted = [0 if key is None else hashes.of_key(typed_key(key)) for key in keys]
    for more in ([], [({"a": "1", "b": "\ud800"}, {"c": "\udfff"})]):
        rows = {
            name: pa.array([None if one[at] is None else json.dumps(one[at]) for one in images + more])
            for at, name in enumerate(("after", "before"))
        }
        first, second = (
            found.tolist()[: len(images)] for found in hashes.of(pa.RecordBatch.from_pydict(rows))
        )
        assert wanted == first
        assert [wanted[0], hashes.of_key(typed_key(("8", "y"))), *wanted[2:]] == second


@pytest.mark.parametrize("rule", [{}, {"without": ("note",)}, {"on_schema_change": "ignore"}], ids=str)
def test_a_value_under_no_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: dict[str, Any]
) -> None:
    """The columns that a mirror has were compared: a column that it should have could be missing with all its values."""
    shops = Shops(tmp_path, TableRule("shop_1.item", **rule))
    assert ("done", "") == shops.say(1, "INSERT", 1, "a").run()
    # the column is neither among those that were sent nor one that rows stand for
    monkeypatch.setattr("ingest.gold.plan.work.Job.columns_of", lambda *_: {"id": "int64", "text": "string"})
    monkeypatch.setattr("ingest.ledgers.understood.announced", lambda _lake, statements, *_: list(statements))
    shops.say(1, "INSERT", 2, "b", note="x").say(1, "INSERT", 3, "c", note=None).run()
    wrong = [] if rule else [((2,), "note", "is no column of the mirror, the changes give 'x'")]
    assert wrong == [one[:3] for one in shops.compared(1)["shop_1.item"].wrong]


@pytest.mark.parametrize(
    ("history", "is_chosen"),
    [
        ("insert delete insert delete insert", False),
        ("read update delete insert", False),
        ("insert away insert", True),  # keys that change are always compared
        ("insert insert", True),
        ("insert delete insert update insert", True),
        ("insert delete update insert", True),
        ("read delete read", True),  # what a load reads again says whether it is one
        ("read read", True),
    ],
)
def test_keys_are_chosen_at_which_rows_may_have_met(history: str, is_chosen: bool) -> None:
    """A row inserted over another shows a wrong key; histories of rows that come and go are among the longest of a batch."""
    key, others = "500", [str(number) for number in range(1, 200)]
    changes = [("insert", other, other) for other in others]
    for name in history.split():
        left, left_for = (key, key) if name != "away" else (key, "1000")
        changes.append((name.replace("away", "update"), left, left_for))
    rows = [
        {
            "op": op,
            "order_key": f"{place:06}",
            "before": json.dumps({"id": old}) if op in ("update", "delete") else None,
            "after": None if op == "delete" else json.dumps({"id": new}),
            "types": "{}",
            "partial": False,
        }
        for place, (op, old, new) in enumerate(changes)
    ]
    mirror = Mirror(TableId("p", None, "t"), "mirrors/p/t", ("id",), (Column("id", "id", "int64"),))
    [seed] = [
        seed
        for seed in range(100)
        if KeyHashes(mirror, seed).of_key((500,)) > KeyHashes(mirror, seed).of_key((1,))
    ][:1]
    sample = KeySample(KeyHashes(mirror, seed), None, 1, bounded=True)
    for start in (100, 0, 200):  # what is read is in no order
        sample.add(pa.RecordBatch.from_pylist(rows[start : start + 100], ROWS))
    kept, hashes, touched = sample.chosen()
    assert hashes is not None
    assert is_chosen is bool(hashes[hashes == sample.hashes.of_key((500,))].size)
    assert touched >= 200
    assert len(kept) < 20
