"""What a run plans to read of a file source: growth, rewrites, losses, order, and nothing in silence."""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path
from typing import Any

import fsspec
import pytest

from ingest.bronze import files
from ingest.bronze.files import FilePlan, natural, plan
from ingest.bronze.land import _read_all, _tasks
from ingest.bronze.reading import OVERSIZE, read
from ingest.bronze.receipts import FileState, Receipt
from ingest.config import Source


class Feed:
    """A folder read run by run, without Spark: plan, read, take in the receipts."""

    def __init__(self, folder: Path, pattern: str = "*.jsonl", **given: Any) -> None:
        self.folder = folder
        defaults: dict[str, Any] = {"format": "canal", "framing": "lines", "settle": 3600.0}
        self.source = Source("feed", "files", path=str(folder / pattern), **defaults | given)
        self.states: dict[str, FileState] = {}
        self.alarms: list[str] = []

    def plan(self) -> FilePlan:
        """What the next run would read."""
        return plan(self.source, 0, self.states, 2)

    def run(self) -> list[bytes | None]:
        """The values of one run."""
        planned = self.plan()
        self.alarms = [alarm.text for alarm in planned.alarms]
        values: list[bytes | None] = []
        for one in planned.ranges:
            reader = read(one)
            while True:
                try:
                    values.extend(value for _, value, _ in next(reader))
                except StopIteration as done:
                    receipt = Receipt.from_json(done.value.to_json())
                    self.states.setdefault(receipt.file, FileState()).add(receipt)
                    self.alarms.extend([receipt.fault] if receipt.fault else [])
                    break
        return values

    def write(self, name: str, data: bytes, age: float = 0) -> Path:
        """Write a file, as if so many seconds ago."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        self.age(file, age)
        return file

    def age(self, file: Path, seconds: float) -> None:
        """Make a file look as if last written so many seconds ago."""
        moment = time.time() - seconds
        os.utime(file, (moment, moment))


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    """A folder of line files that settle after an hour."""
    return Feed(tmp_path)


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
    """The rest of a line that was taken for whole would vanish without a word."""
    file = feed.write("a.jsonl", b'1\n{"id"', 7200)
    assert [b"1", b'{"id"'] == feed.run()
    file.write_bytes(b'1\n{"id":5}\n')
    assert [] == feed.run()
    assert f"{file} grew inside its last line, which had been read as it stood" in feed.alarms[0]


def test_growth_behind_a_settled_line_is_read(feed: Feed) -> None:
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
        (b"1\n", "shrank from 4 to 2 bytes"),
        (b"", "shrank from 4 to 0 bytes"),
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
    assert 1 == len(feed.alarms)  # told until somebody acts


def test_a_touched_file_is_the_same_file(feed: Feed) -> None:
    """A copied or restored folder would raise alarms, or be landed twice."""
    file = feed.write("a.jsonl", b"1\n2\n", 100)
    feed.run()
    feed.age(file, 10)
    assert ([], []) == (feed.run(), feed.alarms)


def test_a_file_taken_away_before_it_was_read_to_its_end_is_an_alarm(feed: Feed) -> None:
    """Its last lines would be lost in silence."""
    file = feed.write("a.jsonl", b"1\n2")
    done = feed.write("b.jsonl", b"3\n")
    feed.run()
    file.unlink()
    done.unlink()
    assert [] == feed.run()
    assert [
        f"{file} vanished when 2 of its bytes were read, and more were there: put it back."
    ] == feed.alarms


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


def test_a_damaged_file_is_an_alarm_until_it_is_mended_or_gone(tmp_path: Path) -> None:
    """A damaged file would make a new batch with every run, or be told once and forgotten."""
    feed = Feed(tmp_path, "*.bin", framing="length", settle=0.0)
    good = (1).to_bytes(4, "big") + b"x"
    file = feed.write("a.bin", good + b"\0\0\0\x09yy", 100)
    assert [b"x"] == feed.run()
    assert "longer than the file" in feed.alarms[0]
    assert ((), 1) == (feed.plan().ranges, len(feed.plan().alarms))
    assert "still damaged" in feed.plan().alarms[0].text
    feed.write("a.bin", good + (7).to_bytes(4, "big") + b"yyyyyyy", 50)
    assert [b"yyyyyyy"] == feed.run()
    assert () == feed.plan().alarms
    feed.write("b.bin", b"\0\0\0\x09yy", 100)
    feed.run()
    (tmp_path / "b.bin").unlink()
    assert () == feed.plan().alarms
    assert file.exists()


def test_a_document_that_grows_is_an_alarm(tmp_path: Path) -> None:
    """What was written behind a finished document would be skipped."""
    feed = Feed(tmp_path, "*.json", framing="document", settle=0.0)
    file = feed.write("a.json", b'[{"a":1}]\n', 100)
    assert [b'{"a":1}'] == feed.run()
    assert () == feed.plan().ranges
    file.write_bytes(b'[{"a":1}]\n[{"a":2}]')
    assert [] == feed.run()
    assert "one document cannot" in feed.alarms[0]


def test_only_regular_files_are_read(feed: Feed) -> None:
    """A pipe would be waited for without end."""
    os.mkfifo(feed.folder / "pipe.jsonl")
    (feed.folder / "folder.jsonl").mkdir()
    (feed.folder / "nowhere.jsonl").symlink_to(feed.folder / "missing")
    feed.write("a.jsonl", b"1\n", 9)
    assert [b"1"] == feed.run()


@pytest.mark.parametrize(
    "name", ["a b.jsonl", "ä中.jsonl", "#1?x=2&y.jsonl", "50%20.jsonl", "a\nb.jsonl", "'q`\".jsonl"]
)
def test_names_are_only_names(feed: Feed, name: str) -> None:
    """A name that some layer reads as an address or a pattern would hide its file."""
    file = feed.write(name, b"1\n", 9)
    assert [b"1"] == feed.run()
    assert [str(file)] == list(feed.states)


def test_a_name_that_is_no_text_is_an_alarm(feed: Feed) -> None:
    """A name that no table can hold would end the run."""
    Path(os.fsdecode(os.fsencode(feed.folder) + b"/\xff.jsonl")).write_bytes(b"1\n")
    feed.write("a.jsonl", b"2\n")
    assert [b"2"] == feed.run()
    assert "\\udcff.jsonl has a name that is not UTF-8: rename it." in feed.alarms[0]


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
    assert (
        f"{file} cannot be read (Permission denied): nothing of it was read now; repair that."
        == feed.alarms[0]
    )


def test_folders_below_are_searched_and_late_names_come_later(tmp_path: Path) -> None:
    """A file whose name sorts before those already read would never be read."""
    feed = Feed(tmp_path, "**/*.jsonl")
    feed.write("2026/11/b.jsonl", b"1\n", 9)
    feed.write("c.jsonl", b"2\n", 9)
    assert [b"1", b"2"] == feed.run()
    feed.write("2026/10/a.jsonl", b"0\n", 9)
    assert [b"0"] == feed.run()


def test_numbers_in_names_are_numbers(feed: Feed) -> None:
    """``part-10`` before ``part-2`` would end weakly ordered mirrors wrong."""
    for number in (10, 9, 2, 100):
        feed.write(f"part-{number}.jsonl", b"%d\n" % number, 9)
    assert [b"2", b"9", b"10", b"100"] == feed.run()
    names = ["part-2", "part-10", "part-a", "part", "2-part", "10-part", "²", "part-٣"]
    backwards = names[::-1]
    assert sorted(names, key=natural) == sorted(backwards, key=natural)


def test_files_may_be_ordered_by_time(tmp_path: Path) -> None:
    """A source that numbers its files by nothing but time would be read in another order."""
    feed = Feed(tmp_path, order_files_by="mtime")
    feed.write("a.jsonl", b"2\n", 5)
    feed.write("b.jsonl", b"1\n", 50)
    assert [b"1", b"2"] == feed.run()


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
    assert ["s"] == [alarm.source for alarm in found.alarms]
    told = "nosuchstore://bucket/*.jsonl cannot be listed (ValueError: Protocol not known: nosuchstore"
    assert told in found.alarms[0].text


def test_what_is_no_file_is_told(feed: Feed) -> None:
    """A link whose file has moved away would pass for messages that were never sent; a pipe would be waited for."""
    (feed.folder / "gone.jsonl").symlink_to(feed.folder / "moved away")
    os.mkfifo(feed.folder / "pipe.jsonl")
    (feed.folder / "folder.jsonl").mkdir()
    told = [text.removeprefix(f"{feed.folder}/").split()[0] for text in feed.plan().warnings[1:]]
    assert ["gone.jsonl", "pipe.jsonl"] == sorted(told)


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


# --- holes in sources that arrival orders ---------------------------------------------------------


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
                found = reading.before_broken(work, f"Py4JJavaError: {error}\n at java")
                assert found is not None
                work = found[0]
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
    from ingest.bronze import files, reading

    monkeypatch.setattr(files, "MIN_SPLIT", 4)
    feed = Feed(tmp_path, format="canal")
    feed.write("a.jsonl", b"aa\nbb\ncc\ndd\nee\n", 100)
    ranges = feed.plan().ranges
    assert [True] * (len(ranges) - 1) + [False] == [one.followed for one in ranges]
    found = reading.before_broken(ranges, str(reading.BrokenRange(ranges[1], "a.jsonl cannot be read.")))
    assert found is not None
    kept, broken, fault = found
    assert ([0, ranges[1].start], ranges[1], "a.jsonl cannot be read.") == (
        [one.start for one in kept],
        broken,
        fault,
    )
    assert not kept[-1].followed
    assert reading.before_broken(ranges, "some other error") is None


def test_later_files_wait_for_a_damaged_one_where_arrival_orders(tmp_path: Path) -> None:
    """Put right later, its changes would come after those of the files behind it."""
    feed = Feed(tmp_path, "*.gz", format="canal", settle=1.0)
    torn = gzip.compress(b"1\n" * 1000)[:-30]
    feed.write("part-1.gz", torn, 100)
    feed.run()
    feed.write("part-2.gz", gzip.compress(b"2\n"), 100)
    assert [] == feed.run()
    assert any("later files wait" in text for text in feed.alarms)
    feed.write("part-1.gz", gzip.compress(b"1\n" * 1000), 50)
    assert b"2" == feed.run()[-1]


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    """Whoever may put a link into the landing folder would get any file of this user into the lake."""
    outside, folder = tmp_path / "outside", tmp_path / "landing"
    (outside / "deep").mkdir(parents=True)
    (folder / "real").mkdir(parents=True)
    (outside / "secret.jsonl").write_text('{"a":1}\n')
    (outside / "deep" / "b.jsonl").write_text('{"a":1}\n')
    (folder / "real" / "c.jsonl").write_text('{"a":1}\n')
    (folder / "a.jsonl").symlink_to(outside / "secret.jsonl")
    (folder / "below").symlink_to(outside / "deep")
    (folder / "within.jsonl").symlink_to(folder / "real" / "c.jsonl")
    source = Source("s", "files", "canal", path=f"{folder}/**/*.jsonl", settle=0.0)
    found = plan(source, 0, {}, 1)
    assert {str(folder / "real/c.jsonl"), str(folder / "within.jsonl")} == {
        each.file for each in found.ranges
    }
    assert [str(folder / "a.jsonl"), str(folder / "below/b.jsonl")] == [alarm.file for alarm in found.alarms]
    assert f"leads to {outside}/secret.jsonl, out of the source's folder" in found.alarms[0].text


@pytest.mark.parametrize("path", ["linked/*.jsonl", "linked/secret.jsonl", "one.jsonl"])
def test_links_that_the_pattern_names_are_followed(tmp_path: Path, path: str) -> None:
    """An operator who mounts the landing folder by a link would read nothing."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.jsonl").write_text('{"a":1}\n')
    (tmp_path / "linked").symlink_to(tmp_path / "outside")
    (tmp_path / "one.jsonl").symlink_to(tmp_path / "outside" / "secret.jsonl")
    found = plan(Source("s", "files", "canal", path=f"{tmp_path}/{path}", settle=0.0), 0, {}, 1)
    assert () == found.alarms
    assert 1 == len(found.ranges)
