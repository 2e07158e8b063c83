"""A mirror compared with its source: what differs is found and named, and nothing else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ingest.config import load
from ingest.errors import IngestError
from ingest.source.range_search import RangeSearch
from tests.source import duck_source, made
from tests.source.bins import BINS, Bins


def test_equal_tables_move_no_rows(bins: Bins) -> None:
    """A comparison that reads every row is a full load with another name."""
    bins.mirror()
    duck_source.asked.clear()
    done = bins.compare()
    assert (False, 0, 2000, 7, 7) == (done.differs, done.fetched, done.rows, done.ranges, done.equal)
    assert len(duck_source.asked) < 30


def test_all_kinds_of_differences_are_found_and_few_rows_are_moved(bins: Bins) -> None:
    """A lost update, delete or insert that stays unseen is wrong for ever."""
    bins.rows[7] = ("w7 ", 7 / 8)
    bins.rows[8] = (None, 1.0)
    bins.rows[9] = ("w9", float("inf"))
    del bins.rows[1100], bins.rows[0]
    bins.rows |= {-5: ("below", 1.0), 2500: ("above", 1.0)}
    bins.mirror()
    done = bins.compare()
    assert {("0",), ("1100",)} == {one.key for one in done.differences if one.kind == "missing"}
    assert {("-5",), ("2500",)} == {one.key for one in done.differences if one.kind == "surplus"}
    assert {
        ("7",): {"word": ("w7", "w7 ")}, ("8",): {"word": ("w8", None)}, ("9",): {"size": ("1.125", "Infinity")}
    } == {one.key: one.cells for one in done.differences if one.kind == "different"}  # fmt: skip
    assert done.fetched < 400


@pytest.mark.parametrize("value", [1e300, -1e-300, 1e15, 5e-324, 0.0, -0.0, 123456789.125, 1e-4])
def test_a_floating_number_is_equal_whatever_its_form(bins: Bins, value: float) -> None:
    """Databases print large and small numbers each in a form of its own."""
    bins.write(f"UPDATE bins SET size = {value!r}::DOUBLE WHERE id = 3")
    bins.rows[3] = ("w3", value)
    bins.mirror()
    assert not bins.compare().differs
    bins.rows[3] = ("w3", value * 2 if value else 5e-324)
    bins.mirror()
    assert [("3",)] == [one.key for one in bins.compare().differences]


def test_columns_that_run_into_each_other_are_not_taken_for_equal(bins: Bins) -> None:
    """Texts written one after the other may read alike although the cells differ."""
    bins.write("ALTER TABLE bins ADD COLUMN more VARCHAR")
    for ours, theirs in ((("a,1:b", None), ("a", "b")), (("", "~"), ("", None)), (("~", ""), (None, ""))):
        bins.write(
            "UPDATE bins SET word = " + _sql(theirs[0]) + ", more = " + _sql(theirs[1]) + " WHERE id = 1"
        )
        cells = {"id": [1], "word": [ours[0]], "more": [ours[1]]}
        schema = pa.schema([("id", pa.int64()), ("word", pa.string()), ("more", pa.string())])
        columns = {"id": "int64", "word": "string", "more": "string"}
        made.mirror(Path(load(bins.file).lake), BINS, columns, ["id"], pa.table(cells, schema))
        found = {one.key: one.kind for one in bins.compare().differences}
        assert "different" == found["1",]


def _sql(text: str | None) -> str:
    return "NULL" if text is None else f"'{text}'"


def test_rows_wait_for_the_stream_before_they_are_judged(bins: Bins) -> None:
    """A change in flight reported as lost sends people after faults that are none."""
    bins.rows[5] = ("old", 5 / 8)
    bins.mirror()
    done = bins.compare(settled=False)
    assert ([], [("5",)]) == (done.differences, [one.key for one in done.not_judged])
    assert not done.differs


def test_a_sample_looks_at_some_ranges(bins: Bins) -> None:
    """A sample that is the whole costs what the whole costs."""
    bins.mirror()
    done = bins.compare(sample=True)
    assert (1, 1) == (done.ranges, done.equal)
    assert 0 < done.rows <= 300


def test_a_pace_is_kept(bins: Bins) -> None:
    """A comparison at full speed may be what slows the source down."""
    bins.mirror()
    assert bins.compare(rows_per_second=3000, parallel=2).seconds > 6 * 300 / 3000 - 0.1


def test_progress_is_reported_after_each_range(bins: Bins) -> None:
    """An hour without output would look as if nothing happened."""
    bins.mirror()
    seen: list[tuple[int, int]] = []
    bins.compare(tell=lambda done: seen.append((done.ranges, done.mirror_rows)))
    assert [(n, 2000) for n in range(1, 8)] == sorted(seen)


def test_what_cannot_be_compared_is_one_sentence(bins: Bins) -> None:
    """A comparison of the wrong tables says that all rows differ, or none."""
    with pytest.raises(IngestError, match=r"no mirror of shop\.bins yet"):
        bins.compare()
    bins.mirror()
    bins.write("ALTER TABLE bins DROP COLUMN id")
    with pytest.raises(IngestError, match="no column 'id'"):
        bins.compare()
    bins.write("DROP TABLE bins")
    with pytest.raises(IngestError, match=r"has no table shop\.bins: .* if it was dropped"):
        bins.compare()


def test_columns_that_change_meanwhile_end_the_comparison(
    bins: Bins, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows read before and after a statement are not one state of the table."""
    bins.mirror()
    real = RangeSearch._range

    def once(self: Any, chunk: Any) -> None:
        real(self, chunk)
        if chunk.high is None:
            bins.write("ALTER TABLE bins ADD COLUMN late INTEGER")

    monkeypatch.setattr(RangeSearch, "_range", once)
    with pytest.raises(IngestError, match="got other columns while it was compared"):
        bins.compare()


def test_a_column_that_the_mirror_lacks_is_a_difference(bins: Bins) -> None:
    """Equal rows without a column would pass as equal tables."""
    bins.mirror({"id": "int64", "word": "string"})
    done = bins.compare()
    assert (True, ("size",), []) == (done.differs, done.lacking, done.differences)
    rule = "tables:\n  - {match: shop.bins, columns: {size: exclude}}\n"
    bins.file.write_text(bins.file.read_text("utf-8") + rule, "utf-8")
    assert (False, ()) == (bins.compare().differs, bins.compare().lacking), "it is left out on purpose"


def test_masked_columns_are_not_compared(bins: Bins) -> None:
    """Each row would differ, and the list would show the values that the mask hides."""
    masked = bins.file.read_text("utf-8") + "tables:\n  - {match: shop.bins, mask: {word: last4}}\n"
    bins.file.write_text(masked, "utf-8")
    bins.rows = {number: ("***", size) for number, (_, size) in bins.rows.items()}
    bins.rows[9] = ("***", 7.0)
    bins.mirror()
    assert {("9",): {"size": ("1.125", "7.0")}} == {one.key: one.cells for one in bins.compare().differences}
    secret = "mask_secret: 0123456789abcdef\n"
    bins.file.write_text(secret + masked.replace("word: last4", "id: hmac"), "utf-8")
    with pytest.raises(IngestError, match=r"id is in the key of .* and masked"):
        bins.compare()
