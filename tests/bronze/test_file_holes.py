"""Holes in file sources whose arrival orders their messages: nothing is landed beyond one."""

from __future__ import annotations

import gzip
import traceback
from pathlib import Path
from typing import Any

import pytest

from ingest.bronze import files
from ingest.bronze.land import _read_all
from ingest.bronze.receipts import FileState, Receipt
from tests.bronze.feed import Feed


def landed(feed: Feed, broken: str, monkeypatch: pytest.MonkeyPatch) -> list[bytes | None]:
    """The values of one run in which one file cannot be read, as bronze lands them."""
    from ingest.bronze import reading

    whole = reading._opened

    def opened(work: reading.Range) -> Any:
        if Path(work.file).name == broken:
            raise OSError(5, "Input/output error")
        return whole(work)

    work = list(feed.plan().ranges)
    with monkeypatch.context() as patch:
        patch.setattr(reading, "_opened", opened)
        while True:
            try:
                rows = [row for batch in _read_all(work, ["feed"]) for row in batch.to_pylist()]
                break
            except reading.BrokenRange as error:
                trace = "".join(traceback.format_exception(error))
                unread = reading.hole(work, f"Py4JJavaError: {trace}\n at java")
                assert unread is not None
                work = unread.before
    for row in rows:
        if row["kind"] == "receipt":
            receipt = Receipt.from_json(row["value"])
            feed.states.setdefault(receipt.file, FileState()).add(receipt)
    return [row["value"] for row in rows if row["kind"] == "message"]


@pytest.mark.parametrize(
    ("name", "first", "then"),
    [("canal", [b"1"], [b"2", b"3"]), ("dms", [b"1"], [b"2", b"3"]), ("dts-canal", [b"1", b"3"], [b"2"])],
)
def test_nothing_is_landed_beyond_a_hole_where_arrival_orders(
    name: str, first: list[bytes], then: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One read error would put older changes after newer ones; a dialect with positions may go on."""
    feed = Feed(tmp_path, format=name, settle=1.0)
    for number in "123":
        feed.write(f"part-{number}.jsonl", f"{number}\n".encode(), 100)
    assert first == landed(feed, "part-2.jsonl", monkeypatch)
    assert then == feed.run()


def test_a_hole_inside_a_file_ends_what_is_landed_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is read in several ranges at once: one that fails would leave its neighbours' newer changes."""
    from ingest.bronze import reading

    monkeypatch.setattr(files, "MIN_SPLIT", 4)
    feed = Feed(tmp_path, format="canal")
    feed.write("a.jsonl", b"aa\nbb\ncc\ndd\nee\n", 100)
    ranges = feed.plan().ranges
    assert [True] * (len(ranges) - 1) + [False] == [one.followed for one in ranges]
    unread = reading.hole(ranges, reading.BrokenRange(ranges[1], "a.jsonl cannot be read."))
    assert unread is not None
    assert [0, ranges[1].start] == [piece.start for piece in unread.before]
    assert (ranges[1], "a.jsonl cannot be read.") == (unread.broken, unread.fault)
    assert not unread.before[-1].followed
    assert reading.hole(ranges, "some other error") is None


def test_later_files_wait_for_a_damaged_one_where_arrival_orders(tmp_path: Path) -> None:
    """Otherwise its changes, read once it is repaired, would come after those of the files that follow it."""
    feed = Feed(tmp_path, "*.gz", format="canal", settle=1.0)
    torn = gzip.compress(b"1\n" * 1000)[:-30]
    feed.write("part-1.gz", torn, 100)
    feed.run()
    feed.write("part-2.gz", gzip.compress(b"2\n"), 100)
    assert [] == feed.run()
    assert any("later files wait" in text for text in feed.alarms)
    feed.write("part-1.gz", gzip.compress(b"1\n" * 1000), 50)
    assert b"2" == feed.run()[-1]
