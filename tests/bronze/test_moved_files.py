"""Files that are in another place than when they were read: what is read of them, and what is said."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ingest.bronze.moved import recognised
from ingest.bronze.receipts import FileState
from ingest.config import Source
from tests.bronze.feed import Feed
from tests.timing import is_within


def moved_to(feed: Feed, folder: Path, pattern: str = "*.jsonl") -> Feed:
    """The same source after its folder was moved."""
    found = Feed(folder, pattern, format=feed.source.format, **feed.given)
    found.states = feed.states
    return found


@pytest.mark.parametrize("keeps_times", [True, False], ids=["moved", "restored"])
@pytest.mark.parametrize("dialect", ["canal", "dts-canal"])
def test_a_moved_folder_is_not_read_again(tmp_path: Path, keeps_times: bool, dialect: str) -> None:
    """Every file of it would be new: deleted rows return, and rows go back in time."""
    feed = Feed(tmp_path / "land", "**/*.jsonl", format=dialect)
    for name in ("a.jsonl", "2026/b.jsonl", "2026/c.jsonl"):
        feed.write(name, f"{name}\n".encode(), 9000)
    assert 3 == len(feed.run())
    away = tmp_path / "other" / "mount"
    away.parent.mkdir()
    shutil.move(tmp_path / "land", away)
    (away / "2026" / "c.jsonl").unlink()  # which was archived
    other = moved_to(feed, away, "**/*.jsonl")
    if not keeps_times:
        for file in away.rglob("*.jsonl"):
            other.age(file, 7000)
    planned = other.plan()
    assert ((), ()) == (planned.ranges, planned.alarms)
    assert [
        f"2 files that were read in {tmp_path}/land are now in {away}: nothing of them is read again"
    ] == list(planned.notes)
    other.write("2026/d.jsonl", b"d\n", 9000)
    assert [b"d"] == other.run()
    assert ((), ()) == (other.plan().ranges, other.plan().notes), "what was read there is known to be there"


def test_a_moved_file_is_read_on_from_where_it_was(tmp_path: Path) -> None:
    """Its end would be read with its beginning, or never."""
    feed = Feed(tmp_path / "land")
    file = feed.write("a.jsonl", b"1\n2\n", 9000)
    assert [b"1", b"2"] == feed.run()
    shutil.move(tmp_path / "land", tmp_path / "there")
    other = moved_to(feed, tmp_path / "there")
    other.write(file.name, b"1\n2\n3\n", 8000)
    assert [b"3"] == other.run()
    assert () == other.plan().ranges
    other.write(file.name, b"1\n2\n3\n4\n", 7000)
    assert [b"4"] == other.run()
    shutil.move(tmp_path / "there", tmp_path / "again")
    last = moved_to(other, tmp_path / "again")
    last.write(file.name, b"1\n2\n3\n4\n5\n", 6000)
    assert [b"5"] == last.run()
    assert [] == last.alarms


@pytest.mark.parametrize(
    ("content", "alarm"), [(b"9\n9\n", "was rewritten"), (b"2\n", "shrank from 4 bytes")]
)
def test_a_file_that_was_rewritten_where_its_folder_is_now(
    tmp_path: Path, content: bytes, alarm: str
) -> None:
    """In the old folder it is an alarm; in the new one its rows were read again, or others in their place, without a word."""
    feed = Feed(tmp_path / "land")
    for name in ("a.jsonl", "b.jsonl"):
        feed.write(name, b"1\n2\n", 9000)
    assert 4 == len(feed.run())
    shutil.move(tmp_path / "land", tmp_path / "there")
    other = moved_to(feed, tmp_path / "there")
    file = other.write("b.jsonl", content, 8000)
    for _ in range(2):
        planned = other.plan()
        [said] = planned.alarms
        assert said.startswith(f"{file} {alarm}")
        assert () == planned.ranges
        assert [] == other.run()


def test_another_file_of_the_same_name_is_another_file(tmp_path: Path) -> None:
    """A folder for each day holds files of the same names: the second day would never be read."""
    feed = Feed(tmp_path / "monday")
    feed.write("part-1.jsonl", b"1\n", 9000)
    assert [b"1"] == feed.run()
    shutil.rmtree(tmp_path / "monday")
    other = moved_to(feed, tmp_path / "tuesday")
    other.write("part-1.jsonl", b"2\n", 9000)
    assert [b"2"] == other.run()
    assert ([], ()) == (other.alarms, other.plan().notes)


@pytest.mark.parametrize(
    ("policy", "dialect", "read"),
    [
        ("", "canal", None),  # arrival orders it
        ("", "dts-canal", [b"1"]),  # positions do
        ("same", "canal", []),
        ("new", "canal", [b"1"]),
        ("refuse", "dts-canal", None),
        ("same", "dts-canal", []),
    ],
)
def test_a_renamed_file(tmp_path: Path, policy: str, dialect: str, read: list[bytes] | None) -> None:
    """Nobody but the operator knows whether it is the same file; where arrival orders, a wrong guess is a wrong mirror."""
    feed = Feed(tmp_path, format=dialect)
    feed.source = replace(feed.source, renamed_files=policy)
    file = feed.write("a.jsonl", b"1\n", 9000)
    assert [b"1"] == feed.run()
    file.rename(tmp_path / "b.jsonl")
    planned = feed.plan()
    if read is None:
        [alarm] = planned.alarms
        assert f"{tmp_path}/b.jsonl holds what was read as {file}" in alarm
        assert "`renamed_files: same` for source feed" in alarm
        assert () == planned.ranges
        return
    [note] = planned.notes
    assert f"{tmp_path}/b.jsonl holds what was read as {file}" in note
    assert read == feed.run()
    assert ([], ()) == (feed.alarms, feed.plan().ranges)


@pytest.mark.parametrize(("dialect", "warned"), [("canal", 1), ("dts-canal", 0)])
def test_a_copy_is_read_and_said(tmp_path: Path, dialect: str, warned: int) -> None:
    """Two loads of a table that has not changed are equal, too, so a copy cannot be refused."""
    feed = Feed(tmp_path, format=dialect)
    file = feed.write("a.jsonl", b"1\n", 9000)
    assert [b"1"] == feed.run()
    shutil.copy(file, tmp_path / "b.jsonl")
    assert warned == len(feed.plan().warnings)
    assert [b"1"] == feed.run()
    assert [] == feed.alarms
    assert ((), ()) == (feed.plan().warnings, feed.plan().ranges)


@pytest.mark.parametrize("name", ["{}.jsonl", "{}/part-0.jsonl"], ids=["other-names", "same-name"])
def test_new_files_are_not_compared_with_each_one_that_is_gone(name: str) -> None:
    """Files are deleted after some days: each new one was compared with all that were ever read."""
    read, new = 20_000, 1_000
    source = Source("feed", "files", path="/land/**/*.jsonl", format="canal")
    states = {
        f"/land/{name.format(n)}": FileState(n + 9, n + 9, ranges={0: (n + 9, "")}) for n in range(read)
    }
    listed = {f"/land/{name.format(read + n)}": (5, 2.0) for n in range(new)}

    def take() -> None:
        assert {} == recognised(source, listed, states, lambda _path, _state: False).moved

    assert is_within(1, take)


def test_two_files_that_may_be_one(tmp_path: Path) -> None:
    """Folders that were read under two roots and are one now: the run died of the second file."""
    feed = Feed(tmp_path / "land" / "2026")
    feed.write("a.jsonl", b"1\n", 9000)
    feed.write("cur.jsonl", b"2\n", 9000)
    feed.run()
    outer = moved_to(feed, tmp_path / "land", "**/*.jsonl")
    outer.write("b.jsonl", b"3\n", 9000)
    assert [b"3"] == outer.run()
    shutil.move(tmp_path / "land", tmp_path / "there")
    other = moved_to(outer, tmp_path / "there", "**/*.jsonl")
    (tmp_path / "there" / "2026" / "a.jsonl").rename(tmp_path / "there" / "a.jsonl")
    other.write("2026/cur.jsonl", b"8\n", 8000)
    other.write("cur.jsonl", b"9\n", 8000)
    assert [b"9"] == other.run()
    [alarm] = other.alarms
    assert alarm.startswith(f"{tmp_path}/there/2026/cur.jsonl was rewritten")
