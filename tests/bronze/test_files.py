"""What a run plans to read of a file source: growth, rewrites, losses, each of them reported."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import fsspec
import pytest

from ingest.bronze import files
from ingest.bronze.files import plan
from ingest.bronze.land import _read_all, _tasks
from ingest.bronze.reading import OVERSIZE, read
from ingest.bronze.receipts import FileState
from ingest.config import Source
from tests.bronze.feed import Feed


def test_a_file_is_read_once_and_its_growth_after_it(feed: Feed) -> None:
    """A grown file would be lost, or read again from its start."""
    file = feed.write("a.jsonl", b"1\n2\n", 100)
    assert [b"1", b"2"] == feed.run()
    assert [] == feed.run()
    assert () == feed.plan().ranges
    file.write_bytes(b"1\n2\n3\n")
    assert [b"3"] == feed.run()
    assert ([], []) == (feed.run(), feed.alarms)


def test_an_unended_line_waits_until_it_is_ended_or_settled(feed: Feed) -> None:
    """Half a line would be landed as a message."""
    file = feed.write("a.jsonl", b"1\n2")
    assert [b"1"] == feed.run()
    file.write_bytes(b"1\n22")
    assert () == feed.plan().ranges  # no batch for half a line
    file.write_bytes(b"1\n222\n3")
    assert [b"222"] == feed.run()
    feed.age(file, 7200)
    assert [b"3"] == feed.run()
    assert ([], []) == (feed.run(), feed.alarms)


def test_growth_inside_a_settled_line_is_an_alarm(feed: Feed) -> None:
    """Otherwise the rest of a line that was taken for whole would be lost silently."""
    file = feed.write("a.jsonl", b'1\n{"id"', 7200)
    assert [b"1", b'{"id"'] == feed.run()
    file.write_bytes(b'1\n{"id":5}\n')
    assert [] == feed.run()
    assert f"{file} grew inside its last line, which had already been read" in feed.alarms[0]


def test_growth_after_a_settled_line_is_read(feed: Feed) -> None:
    """A file without a last newline could never grow again."""
    file = feed.write("a.jsonl", b"1\n2", 7200)
    assert [b"1", b"2"] == feed.run()
    file.write_bytes(b"1\n2\n3\n")
    assert [b"3"] == feed.run()
    assert [] == feed.states[str(file)].holes()
    assert ([], []) == (feed.run(), feed.alarms)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"1\nX\n", "was rewritten"),
        (b"X\n2\n3\n", "was rewritten"),
        (b"1\nX\n3\n", "was rewritten"),
        (b"1\n", "shrank from 4 bytes to 2 bytes"),
        (b"", "shrank from 4 bytes to 0 bytes"),
    ],
)
def test_other_content_under_the_same_name_is_an_alarm(feed: Feed, data: bytes, what: str) -> None:
    """Spark's own file source ignores a rewritten file: its rows would be missing for ever."""
    file = feed.write("a.jsonl", b"1\n2\n", 100)
    feed.write("b.jsonl", b"9\n")
    feed.run()
    file.write_bytes(data)
    assert [] == feed.run()
    assert 1 == len(feed.alarms)
    assert f"{file} {what}" in feed.alarms[0]
    assert [] == feed.run()
    assert 1 == len(feed.alarms)  # reported until the file is repaired
    assert "until what was read is put back, or the file is taken away" in feed.alarms[0]
    if data:
        file.write_bytes(b"1\n2\n")
    else:
        file.unlink()
    assert ([], []) == (feed.run(), feed.alarms), "neither way out ends it"


def test_a_touched_file_is_the_same_file(feed: Feed) -> None:
    """A copied or restored folder would raise alarms, or be landed twice."""
    file = feed.write("a.jsonl", b"1\n2\n", 100)
    feed.run()
    feed.age(file, 10)
    assert ([], []) == (feed.run(), feed.alarms)


def test_a_file_taken_away_before_it_was_read_to_its_end_is_an_alarm(feed: Feed) -> None:
    """Its last lines would be lost silently."""
    file = feed.write("a.jsonl", b"1\n2")
    done = feed.write("b.jsonl", b"3\n")
    feed.run()
    file.unlink()
    done.unlink()
    assert [] == feed.run()
    assert [f"{file} vanished when 2 bytes had been read, and more were there: put it back."] == feed.alarms


@pytest.mark.parametrize("ending", [".jsonl.gz"])
def test_packed_files_are_compared_too(tmp_path: Path, ending: str) -> None:
    """A rewritten archive would be skipped by its length, and a grown one lost."""
    feed = Feed(tmp_path, f"*{ending}")
    file = feed.write(f"a{ending}", gzip.compress(b"1\n2\n", mtime=0), 100)
    assert [b"1", b"2"] == feed.run()
    assert () == feed.plan().ranges
    file.write_bytes(gzip.compress(b"1\n2\n", mtime=0) + gzip.compress(b"3\n", mtime=0))
    assert [b"3"] == feed.run()
    file.write_bytes(gzip.compress(b"1\n9\n", mtime=0) + gzip.compress(b"3\n4\n5\n", mtime=0))
    assert [] == feed.run()
    assert "was rewritten" in feed.alarms[0]
    file.write_bytes(b"\x1f\x8b" + bytes(200))
    assert [] == feed.run()
    assert "was rewritten" in feed.alarms[0]


def test_a_packed_file_in_the_middle_of_its_writing_waits(tmp_path: Path) -> None:
    """An archive caught half-written would count as damaged, or as read."""
    feed = Feed(tmp_path, "*.gz")
    packed = gzip.compress(b"1\n2\n", mtime=0)
    file = feed.write("a.gz", packed[:-9])
    early = feed.run()
    assert [] == feed.alarms
    file.write_bytes(packed)
    assert [b"1", b"2"] == early + feed.run()
    assert [] == feed.alarms


def test_a_damaged_file_is_an_alarm_until_it_is_repaired_or_gone(tmp_path: Path) -> None:
    """A damaged file would make a new batch with every run, or be reported once and forgotten."""
    feed = Feed(tmp_path, "*.bin", framing="length", settle=0.0)
    good = (1).to_bytes(4, "big") + b"x"
    file = feed.write("a.bin", good + b"\0\0\0\x09yy", 100)
    assert [b"x"] == feed.run()
    assert "longer than the file" in feed.alarms[0]
    assert ((), 1) == (feed.plan().ranges, len(feed.plan().alarms))
    assert "still damaged" in feed.plan().alarms[0]
    feed.write("a.bin", good + (7).to_bytes(4, "big") + b"yyyyyyy", 50)
    assert [b"yyyyyyy"] == feed.run()
    assert () == feed.plan().alarms
    feed.write("b.bin", b"\0\0\0\x09yy", 100)
    feed.run()
    (tmp_path / "b.bin").unlink()
    assert () == feed.plan().alarms
    assert file.exists()


def test_a_document_that_grows_is_an_alarm(tmp_path: Path) -> None:
    """Otherwise what was written after a finished document would be skipped."""
    feed = Feed(tmp_path, "*.json", framing="document", settle=0.0)
    file = feed.write("a.json", b'[{"a":1}]\n', 100)
    assert [b'{"a":1}'] == feed.run()
    assert () == feed.plan().ranges
    file.write_bytes(b'[{"a":1}]\n[{"a":2}]')
    assert [] == feed.run()
    assert "one document cannot" in feed.alarms[0]


def test_a_file_that_cannot_be_opened_is_an_alarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One closed file would end the run for all the others; only where arrival orders do later files wait."""
    feed = Feed(tmp_path, format="dts-canal")
    file = feed.write("a.jsonl", b"1\n", 100)
    feed.run()
    file.write_bytes(b"1\n2\n")
    feed.write("b.jsonl", b"3\n", 9)

    def closed(source: Source, path: str) -> Any:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(files, "_open", closed)
    monkeypatch.setattr(files, "_SMALL", 0)
    assert [b"3"] == feed.run()
    assert f"{file} cannot be read (Permission denied): none of it was read; repair that." == feed.alarms[0]


@pytest.mark.parametrize("limit", [1, 3, 7, 1000])
def test_a_limit_only_spreads_a_file_over_runs(tmp_path: Path, limit: int) -> None:
    """A limit that cuts inside a line would lose it, or stop the source for ever."""
    feed = Feed(tmp_path, max_bytes=limit, settle=0.0)
    feed.write("a.jsonl", b"1\n22\n\n333\n", 100)
    feed.write("b.jsonl", b"4\n55", 100)
    found: list[bytes | None] = []
    for _ in range(20):
        found.extend(feed.run())
        assert [] == feed.alarms
    assert [b"1", b"22", b"333", b"4", b"55"] == found
    assert () == feed.plan().ranges


def test_large_files_are_cut_for_all_cores_and_read_once(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A last line without its newline that began in an earlier range would wait for another run."""
    monkeypatch.setattr(files, "MIN_SPLIT", 5)
    feed.write("a.jsonl", b"111\n2222\n33333333333333333333333", 7200)
    assert 1 < len(feed.plan().ranges)
    assert [b"111", b"2222", b"3" * 23] == feed.run()
    assert [] == feed.run()


def test_a_failed_middle_is_read_later(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a broken disk hid from one run would never be read."""
    monkeypatch.setattr(files, "MIN_SPLIT", 4)
    file = feed.write("a.jsonl", b"1\n2\n3\n4\n5\n6\n", 100)
    whole = feed.plan().ranges
    for one in (whole[0], whole[-1]):
        reader = read(one)
        while True:
            try:
                next(reader)
            except StopIteration as done:
                feed.states.setdefault(str(file), FileState()).add(done.value)
                break
    missing = [b"%d" % i for i in range(1, 7)][2 : 6 - 2]
    assert missing == feed.run()
    assert ([], []) == (feed.run(), feed.alarms)


def test_a_store_that_cannot_be_listed_is_an_alarm(tmp_path: Path) -> None:
    """One store that is down, or lacks its package, would end the run for every other source."""
    found = plan(Source("s", "files", "canal", path="nosuchstore://bucket/*.jsonl"), 0, {}, 1)
    assert ((), ()) == (found.ranges, found.warnings)
    [alarm] = found.alarms
    message = "nosuchstore://bucket/*.jsonl cannot be listed (ValueError: Protocol not known: nosuchstore"
    assert message in alarm


def test_what_is_not_a_file_is_reported(feed: Feed) -> None:
    """A link whose file has moved away would pass for messages that were never sent; a pipe would be waited for."""
    (feed.folder / "gone.jsonl").symlink_to(feed.folder / "moved away")
    os.mkfifo(feed.folder / "pipe.jsonl")
    (feed.folder / "folder.jsonl").mkdir()
    named = [text.removeprefix(f"{feed.folder}/").split()[0] for text in feed.plan().warnings[1:]]
    assert ["gone.jsonl", "pipe.jsonl"] == sorted(named)


def test_an_empty_glob_is_a_warning(feed: Feed) -> None:
    """A mistyped path would pass for a quiet source."""
    assert (f"{feed.source.path} matches no file yet.",) == feed.plan().warnings


def test_many_small_files_share_arrow_batches(feed: Feed) -> None:
    """A batch per file takes a hundred times as long."""
    for number in range(300):
        feed.write(f"{number}.jsonl", b"1\n", 9)
    planned = feed.plan().ranges
    tasks = _tasks(list(planned), 2)
    assert [150, 150] == [len(task) for task in tasks]
    batches = [batch for task in tasks for batch in _read_all(task, ["feed"])]
    assert 2 == len(batches)
    kinds = [kind for batch in batches for kind in batch.column(0).to_pylist()]
    assert (300, 300) == (kinds.count("message"), kinds.count("receipt"))


def test_records_too_large_keep_their_place(tmp_path: Path) -> None:
    """A huge line would take the worker's memory, or vanish without a reject."""
    feed = Feed(tmp_path, max_record_bytes=10)
    feed.write("a.jsonl", b"1\n" + b"x" * 50 + b"\n2\n", 9)
    (batch,) = _read_all(list(feed.plan().ranges), ["feed"])
    assert [b"1", None, b"2"] == batch.column("value").to_pylist()[:3]
    assert [{"key": OVERSIZE, "value": b"50"}] == batch.column("headers").to_pylist()[1]


def test_remote_files_are_read_like_local_ones(tmp_path: Path) -> None:
    """Object stores have other listings and clocks: growth and rewrites would go unseen there."""
    store = fsspec.filesystem("memory")
    feed = Feed(tmp_path)
    feed.source = Source("feed", "files", "canal", path="memory://feed-of-files/*.jsonl", framing="lines")
    store.pipe("/feed-of-files/a.jsonl", b"1\n2\n")
    assert [b"1", b"2"] == feed.run()
    assert () == feed.plan().ranges
    store.pipe("/feed-of-files/a.jsonl", b"1\n2\n3\n")
    assert [b"3"] == feed.run()
    store.pipe("/feed-of-files/a.jsonl", b"1\n9\n3\n")
    assert [] == feed.run()
    assert "was rewritten" in feed.alarms[0]
