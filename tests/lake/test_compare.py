"""Two states of a table compared: what is equal, what differs, and what is shown of it."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from ingest.tables.compare import Difference, TableState, _without_zones, as_sets, by_key, groups


def state(columns: str, *rows: str) -> TableState:
    """Rows of literals."""
    return TableState(f"(SELECT * FROM (VALUES {', '.join(rows)}) AS t({columns}))")


def test_every_kind_of_difference_is_counted_and_shown() -> None:
    """The operator decides by these numbers, and after a rebuild they cannot be looked up any more."""
    present = state('id, "n m", gone', "(1, 'a', 1)", "(2, 'b', 1)", "(4, NULL, NULL)", "(NULL, 'n', NULL)")
    rebuilt = state('id, "n m", new', "(1, 'a', NULL)", "(3, 'c', 7)", "(4, 'd', NULL)", "(NULL, 'n', NULL)")
    found = by_key(present, rebuilt, ["id"])
    assert (4, 1, 1, 2, {"n m": 1, "gone": 1}) == (
        found.rows, found.missing, found.surplus, found.differing, found.cells,
    )  # fmt: skip
    assert sorted(map(str, found.sample)) == sorted(
        str({"key": {"id": key}, "before": before, "after": after})
        for key, before, after in (
            ("1", {"gone": "1"}, {"gone": None}),
            ("2", {"n m": "b", "gone": "1"}, None),
            ("3", None, {"n m": "c", "new": "7"}),
            ("4", {"n m": None}, {"n m": "d"}),
        )
    )
    assert by_key(present, present, ["id"]) == Difference(4)


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        ("0.0::DOUBLE", "-0.0::DOUBLE", True),
        ("'NaN'::DOUBLE", "'NaN'::DOUBLE", False),
        ("0.1::FLOAT", "0.1::DOUBLE", False),
        ("0.30000000000000004::DOUBLE", "0.3::DOUBLE", True),
        ("5::INT", "5::BIGINT", False),
        ("5::INT", "'5'", False),
        ("5::INT", "'5.0'", True),
        ("1.50::DECIMAL(10,2)", "1.5::DECIMAL(38,1)", False),
        ("DATE '2024-05-01'", "20240501", True),
        ("NULL::INT", "0", True),
        ("'\\xFF'::BLOB", "'\\xFF'::BLOB", False),
        ("'a'", "'A'", True),
    ],
)
def test_cells_are_equal_only_if_their_values_are(one: str, other: str, differ: bool) -> None:
    """A value that is taken for another hides damage; one that is taken for itself only sometimes is a false alarm."""
    present, rebuilt = (state("id, n", f"(1, {cell})") for cell in (one, other))
    assert int(differ) == by_key(present, rebuilt, ["id"]).differing
    assert int(differ) == as_sets(present, rebuilt, ["id", "n"]).missing


def test_rows_without_a_key_are_counted() -> None:
    """Of two equal rows one may be missing."""
    present = state("a, b", "(1, 'x')", "(1, 'x')", "(2, NULL)", "(3, 'z')")
    rebuilt = state("b, a", "('x', 1)", "(NULL, 2)", "(NULL, 2)", "('y', 3)")
    found = as_sets(present, rebuilt, ["a", "b"])
    assert (4, 2, 2) == (found.rows, found.missing, found.surplus)
    expected = [
        {"before": {"a": "1", "b": "x"}},
        {"after": {"a": "2"}},
        {"before": {"a": "3", "b": "z"}},
        {"after": {"a": "3", "b": "y"}},
    ]
    assert sorted(map(str, expected)) == sorted(map(str, found.sample))
    assert [(1,), (2,), (3,)] == sorted(groups(present, rebuilt, ["a", "b"], ["a"]))
    assert as_sets(present, present, ["a"]) == Difference(4)


def test_rows_that_only_spark_reads() -> None:
    """They come as Arrow, each side under a name of its own."""
    present, rebuilt = (TableState(loaded=pa.table({"id": [1, 2], "n": [n, 5]})) for n in (3, 4))
    assert ({"n": 1}, 1) == ((found := by_key(present, rebuilt, ["id"])).cells, found.differing)


def test_instants_that_spark_reads_are_those_of_files() -> None:
    """With a zone on one side only every instant would differ."""
    at = dt.datetime(2024, 5, 1, 8, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    zoned = pa.table({"id": [1], "moment": pa.array([at], pa.timestamp("us", tz="Asia/Shanghai"))})
    far, here = (
        TableState(loaded=_without_zones(zoned)),
        state("id, moment", "(1, TIMESTAMP '2024-05-01 06:00:00')"),
    )
    assert by_key(here, far, ["id"]).none
