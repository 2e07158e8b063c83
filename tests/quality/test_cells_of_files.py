"""The check of cells over tables as they lie in files, without Spark: planted faults of a batch, and right mirrors."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ingest.config import Pipeline
from ingest.config.model import MadeColumn, TableRule
from ingest.fold import SchemaStep
from ingest.ledgers import decisions
from ingest.ledgers.decisions import ACCEPT_GAP, SCHEMA, Decision, Decisions
from ingest.ledgers.mirrors import Column, Era
from ingest.quality import cells
from ingest.quality.arrow_rows import by_delta
from ingest.quality.cells import REACH, metrics
from ingest.quality.subjects import CheckedLane, CheckedMirror
from ingest.run import Warm
from ingest.tables.lake import Lake
from tests.gold.depot import Depot
from tests.quality.shop import COLUMNS, MIRROR, ROW, TABLE, Shop, place
from tests.unstarted import unstarted

pytestmark = pytest.mark.usefixtures("without_spark")
REJECTS = pa.schema(
    [
        (name, pa.string())
        for name in ("kind", "source", "topic", "database", "schema", "table", "key", "column", "raw")
    ]
    + [("reason", pa.string()), ("batch", pa.int64()), ("partition", pa.int32()), ("offset", pa.int64())]
)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """Two batches: rows that come, change, move and go."""
    made = Shop(tmp_path)
    for key in range(1, 6):
        made.say(1, key, "insert", key, a=f"a{key}", n="1.10")
    made.say(2, 11, "update", 1, a="b1", n="2.20").say(2, 12, "delete", 2)
    return made.say(2, 13, "update", 30, was=3, a="b3", n=None)


RIGHT = [(1, "b1", "2.20"), (4, "a4", "1.10"), (5, "a5", "1.10"), (30, "b3", None)]


def planted(key: int, *row: Any) -> list[tuple[int, str | None, str | None]]:
    """The right rows but one: another, or none."""
    others = [one for one in RIGHT if one[0] != key]
    return [*others, (key, *row)] if row else others


def test_right_rows_pass(shop: Shop) -> None:
    """A false alarm ends every run with 1."""
    assert [] == shop.texts(RIGHT, 1) + shop.texts(RIGHT, 0) + shop.texts(RIGHT, deep=True)
    found = shop.check(RIGHT, 1)
    assert (4, 0) == (found.keys, found.partly)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (planted(1, "b1", "2.21"), "(1,) n holds '2.21', the changes give '2.20'"),  # a wrong cast
        (planted(1, "b1", None), "(1,) n holds NULL, the changes give '2.20'"),  # a lost column
        (planted(1, "a1", "1.10"), "(1,) a holds 'a1', the changes give 'b1'"),  # a row as it was
        (planted(30), "(30,)  is missing, the changes give this row"),
        # a delete that was not done
        ([*RIGHT, (2, "a2", "1.10")], "(2,)  is a row that the changes do not give"),
        ([*RIGHT, (3, "a3", "1.10")], "(3,)  is a row that the changes do not give"),  # the key that was left
        ([*RIGHT, RIGHT[0]], "(1,)  is there more than once"),
    ],
)
def test_each_planted_fault_is_found(shop: Shop, rows: list[Any], message: str) -> None:
    """Whatever way a mirror goes wrong in a batch, the batch's own check has to say it."""
    for since, deep in ((1, False), (0, False), (0, True)):
        assert message in shop.texts(rows, since, deep=deep)


def test_a_cell_that_did_not_fit_is_no_difference(shop: Shop) -> None:
    """It is NULL in the mirror, even where a later type of the column would hold it: `rejects` has its text."""
    cell = {
        "kind": "cell",
        "source": "s",
        "database": "shop",
        "table": "t",
        "key": '{"id":1}',
        "column": "n",
        "batch": 1,
    }
    write_deltalake(str(shop.folder / "lake/rejects"), pa.Table.from_pylist([cell], REJECTS))
    assert [] == shop.texts(planted(1, "b1", None), 1)
    assert ["(4,) n holds NULL, the changes give '1.10'"] == shop.texts(planted(4, "a4", None), deep=True)


def test_rows_that_no_batch_touches_are_for_the_deep_check(shop: Shop) -> None:
    """A check after each batch that reads everything costs more than the batch."""
    rows = planted(5, "x", "1.10")
    assert [] == shop.texts(rows, 1)
    message = "(5,) a holds 'x', the changes give 'a5'"
    assert [message] == shop.texts(rows, 0) == shop.texts(rows, deep=True)
    assert ["(77,)  is a row that the changes do not give"] == shop.texts(
        [*RIGHT, (77, "x", None)], deep=True
    )


def test_a_partial_image_says_what_it_sends(shop: Shop) -> None:
    """Dialects with partial images would never be compared, or called wrong in what they do not send."""
    shop.say(3, 21, "update", 4, partial=True, a="c4")
    right = planted(4, "c4", "1.10")
    found = shop.check(right, 2, ever=REACH + 1)
    assert ([], 1, 1) == (found.wrong, found.keys, found.partly)
    assert ["(4,) a holds 'a4', the changes give 'c4'"] == shop.texts(RIGHT, 2, ever=REACH + 1)


def test_late_changes_are_compared_with_what_came_before(shop: Shop) -> None:
    """A late change that wins over a newer one is the classic wrong row."""
    shop.say(3, 6, "update", 1, a="late", n="0").say(3, 7, "update", 4, a="c4", n="0")
    right = planted(4, "c4", "0")
    for ever in (0, REACH + 1):
        assert [] == shop.texts(right, 2, ever=ever)
        assert [
            "(1,) a holds 'late', the changes give 'b1'",
            "(1,) n holds '0.00', the changes give '2.20'",
        ] == shop.texts([(1, "late", "0"), *right[1:]] if right[0][0] == 1 else [], 2, ever=ever)


def test_late_changes_with_too_long_a_history_are_named(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not compared must be said, or the check says more than it knows."""
    monkeypatch.setattr("ingest.quality.cells.REACH", -5)
    shop.say(3, 6, "update", 1, a="late", n="0").say(3, 31, "update", 4, a="c4", n="0")
    found = shop.check(planted(4, "c4", "0"), 2)
    assert ([], 1) == (found.wrong, found.keys)
    assert "came late" in found.left_out[0]


def test_statements_reach_every_row(shop: Shop) -> None:
    """No message follows a fill: nothing else would notice a row without it."""
    shop.steps = [(SchemaStep(cast("Any", place(20)), "add_column", "n", default="7"), 3)]
    shop.changes = [one for one in shop.changes if one["batch"] == 1]
    for one in shop.changes:
        one["after"] = json.dumps({"id": json.loads(one["after"])["id"], "a": "x"})
    shop.say(3, 21, "insert", 9, a="x", n="1")
    right = [*((key, "x", "7") for key in range(1, 6)), (9, "x", "1")]
    assert [] == shop.texts(right, 2)
    assert ["(5,) n holds NULL, the changes give '7'"] == shop.texts(
        [*right[:4], (5, "x", None), right[5]], 2
    )


def test_rows_since_the_key_has_changed(shop: Shop) -> None:
    """Changes before the key change have a key that the mirror no longer uses; the others are compared."""
    eras = (("s", TABLE, (Era("", ("a",)), Era(place(10), ("id",)))),)
    found = shop.check(planted(1, "b1", "9"), 0, mirror=replace(MIRROR, eras=eras))
    assert ["(1,) n holds '9.00', the changes give '2.20'"] == [
        f"{one.key} {one.column} {one.text}" for one in found.wrong
    ]
    assert "primary key has changed" in found.left_out[0]


def test_many_keys_are_sampled(tmp_path: Path) -> None:
    """A batch of millions is compared by so many keys as the file says, and by more only where it must."""
    made = Shop(tmp_path)
    for key in range(3000):
        made.say(1, key + 1, "insert", key, a="x", n="1")
    rows: list[Any] = [(key, "x", "1") for key in range(3000)]
    found = made.check(rows, 0, limit=50)
    assert ([], 50, 3000) == (found.wrong, found.keys, found.touched)
    assert 50 == len(made.check([(key, "y", "1") for key in range(3000)], 0, limit=50).wrong)


def test_a_mirror_without_a_key(tmp_path: Path) -> None:
    """A row twice, where it came once, has no key by which anything else finds it."""
    made = Shop(tmp_path, TableRule("shop.*", no_key="full_row"))
    made.say(1, 1, "insert", 1, a="x", n="1").say(1, 2, "insert", 1, a="x", n="1").say(
        2, 3, "insert", 2, a="y", n="2"
    )
    mirror = replace(MIRROR, keys=())
    right: list[Any] = [(1, "x", "1"), (1, "x", "1"), (2, "y", "2")]
    for deep in (False, True):
        assert [] == made.texts(right, 0, deep=deep, mirror=mirror)
        assert "3 times" in made.texts([*right, (1, "x", "1")], 0, deep=deep, mirror=mirror)[0]
    for since, ever in ((1, 0), (0, REACH + 1)):
        found = made.check(right, since, mirror=mirror, ever=ever)
        assert (0, True) == (found.keys, "without a key" in found.left_out[0])


@pytest.mark.parametrize(("lost_of", "keys"), [("other", 1), ("s", 0)])
def test_an_accepted_loss_is_no_second_insert(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, lost_of: str, keys: int
) -> None:
    """The delete was among what is lost, and every run after that would end with 1."""
    shop.say(2, 14, "insert", 4, a="another", n="1.10")
    rows = [one for one in RIGHT if one[0] != 4] + [(4, "another", "1.10")]
    found = shop.check(rows, since=0)
    monkeypatch.setattr(decisions, "read", lambda _lake: Decisions((Decision(ACCEPT_GAP, lost_of),)))
    subject = CheckedMirror(
        TABLE,
        MIRROR.path,
        MIRROR,
        lanes=[CheckedLane("s", TABLE, *[0] * 8, *[""] * 3, None, 1)],  # type: ignore[call-arg]
    )
    lake = Lake(cast("Any", None), Pipeline("p", Path("/p.yaml"), "/lake", ()))
    (one,) = [each for each in metrics(lake, subject, found) if each.check == "insert_of_a_live_key"]
    assert keys == one.observed
    assert one.detail


def test_rows_that_a_condition_leaves_out_are_not_missing(tmp_path: Path) -> None:
    """A filtered mirror would fail each check, or hold rows outside its filter that no check finds."""
    rule = TableRule("shop.*", where="n > 4 OR a = 'always'")
    mirror = replace(MIRROR, shape=rule.shape)
    shop = Shop(tmp_path, rule).say(1, 1, "insert", 1, a="x", n="5").say(1, 2, "insert", 2, a="x", n="4")
    shop.say(1, 3, "insert", 3, a="always", n=None).say(1, 4, "insert", 4, a="x", n=None)
    shop.say(2, 5, "update", 2, partial=True, n="9").say(2, 6, "update", 1, partial=True, a="y")
    rows = [(1, "y", "5"), (2, "x", "9"), (3, "always", None)]
    found = shop.check(rows, mirror=mirror)
    assert ([], 4, 1) == (found.wrong, found.keys, found.filtered)
    assert [] == shop.check(rows, mirror=mirror, deep=True).wrong
    planted = shop.check([*rows, (4, "x", None)], mirror=mirror)
    assert [((4,), "is a row that the changes do not give")] == [(one.key, one.text) for one in planted.wrong]
    missing = shop.check(rows[1:], mirror=mirror)
    assert [((1,), "is missing, the changes give this row")] == [(one.key, one.text) for one in missing.wrong]
    one_batch = shop.check(rows, since=1, mirror=mirror, ever=4)
    assert [] == one_batch.wrong


def test_columns_that_rules_make_are_compared(tmp_path: Path) -> None:
    """A computed column that kept an old value, or a batch that is not the row's last, is found by no other check."""
    made = {
        "twice": MadeColumn("compute", "n * 2"),
        "origin": MadeColumn("constant", "eu"),
        "did": MadeColumn("meta", "operation"),
        "batch": MadeColumn("meta", "batch"),
    }
    kinds = dict(zip(made, ("decimal(12,2)", "string", "string", "int64"), strict=True))
    own = tuple(Column(name, name, kinds[name], made=one) for name, one in made.items())
    mirror = replace(MIRROR, columns=(*COLUMNS, *own), shape=TableRule(made=made).shape)
    types = (pa.decimal128(12, 2), pa.string(), pa.string(), pa.int64())
    schema = pa.schema([*ROW, *zip(made, types, strict=True)])
    shop = Shop(tmp_path).say(1, 1, "insert", 1, a="x", n="5").say(1, 2, "insert", 2, a="x", n=None)
    shop.say(2, 3, "update", 1, partial=True, n="6").say(2, 4, "update", 2, partial=True, a="y")
    # the same row again under a new place is no second insert of a live key
    shop.say(1, 5, "insert", 3, a="z", n="1").say(2, 6, "insert", 3, a="z", n="1")
    rows: list[tuple[Any, ...]] = [
        (1, "x", "6", Decimal(12), "eu", "update", 2),
        (2, "y", None, None, "eu", "update", 2),
        (3, "z", "1", Decimal(2), "eu", "insert", 2),
    ]
    found = shop.check(rows, mirror=mirror, schema=schema)
    assert ([], 3, set()) == (found.wrong, found.keys, found.twice)
    for since in (0, 1):
        whole = shop.check(rows, since, mirror=mirror, schema=schema, ever=6)
        assert ([], 3) == (whole.wrong, whole.keys)
        for at, wrong in ((3, Decimal(10)), (4, "us"), (5, "read"), (6, 1)):
            planted = [(*rows[0][:at], wrong, *rows[0][at + 1 :]), *rows[1:]]
            faults = shop.check(planted, since, mirror=mirror, schema=schema, ever=6).wrong
            assert [((1,), schema.names[at])] == [(one.key, one.column) for one in faults]


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("no_key", ["full_row", "append"])
def test_a_mirror_that_lost_its_key_is_no_complaint(tmp_path: Path, no_key: str, deep: bool) -> None:
    """Its rows from before DROP PRIMARY KEY counted as rows that no change gives."""
    made = Shop(tmp_path, TableRule("shop.*", no_key=no_key))
    made.say(1, 1, "insert", 1, a="x", n="1").say(2, 3, "insert", 2, a="y", n="2")
    eras = (("s", TABLE, (Era("", ("id",)), Era(place(2), ()))),)
    found = made.check(
        [(1, "x", "1"), (2, "y", "2")], 0, deep=deep, mirror=replace(MIRROR, keys=(), eras=eras)
    )
    said = f"its rows are not compared, since it has lost its key: only `ingest reconcile {tmp_path}/p.yaml shop.t` compares them"
    assert ([], [said]) == (found.wrong, found.left_out)


def test_each_mirror_is_asked_about_without_reading_what_was_decided_on_all() -> None:
    """The checks of a batch of many mirrors would take a time that grows with their square."""
    gap = Decision(ACCEPT_GAP, "s")
    ledger = Decisions(
        (Decision(SCHEMA, "shop.t"), gap, *(Decision(SCHEMA, f"shop.t{n}") for n in range(20_000)))
    )
    began = time.thread_time()
    assert [[gap]] * 2_000 == [list(ledger.of(ACCEPT_GAP)) for _ in range(2_000)]
    assert time.thread_time() - began < 0.5
    assert ledger.all == tuple(ledger.of(ACCEPT_GAP, SCHEMA))


def test_the_changes_of_new_tables_are_read_once_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that creates thousands of tables would read the changes of all of them for each: hours for 100,000."""
    depot, reads = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.*")), list[str]()

    def counted(lake: Any, name: str, *asked: Any) -> Any:
        reads.append(name)
        return by_delta(lake, name, *asked)

    monkeypatch.setattr(cells, "by_delta", counted)
    for key in range(30):
        depot.row(id=str(key // 3), n=str(key))
        depot.messages[-1] = depot.messages[-1].replace('"depot"', f'"t{key % 3}"')
    result = depot.result(checked=True)
    assert ([], 3, ["changes"]) == (result.failures, len(result.mirrors), reads)
    compared = """SELECT CAST(sum(observed) AS INT) AS n FROM {checks} WHERE "check" = 'cells_checked'"""
    assert [{"n": 30}] == depot.lake().ask(compared)
