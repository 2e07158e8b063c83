"""Files that are in another place than when they were read: what is read of them, and what is said."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ingest.bronze.moved import known_moves, recognised
from ingest.bronze.receipts import FileState
from ingest.config import Source, load
from ingest.inspect.idle import idle
from ingest.operate.dry_run import foresee
from ingest.run import Warm, run
from ingest.tables.tables import LakeReader
from tests.bronze.feed import Feed
from tests.lakes import FORMAT, change, touch
from tests.timing import is_within
from tests.unstarted import unstarted


def moved_to(feed: Feed, folder: Path, pattern: str = "*.jsonl") -> Feed:
    """The same source after its folder was moved."""
    found = Feed(folder, pattern, format=feed.source.format, **feed.given)
    found.states, found.moves = feed.states, feed.moves
    return found


@pytest.mark.one_of(2, "dialect")
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


def moved_beside_sound_ones(feed: Feed, tmp_path: Path) -> Feed:
    """A folder of two files and ``cur.jsonl`` that was moved, as a run has recognised."""
    for name in ("a.jsonl", "b.jsonl", "cur.jsonl"):
        feed.write(name, f"{name}\n".encode(), 9000)
    assert 3 == len(feed.run())
    shutil.move(feed.folder, tmp_path / "there")
    other = moved_to(feed, tmp_path / "there")
    assert ([], []) == (other.run(), other.alarms)
    assert [(str(feed.folder), str(other.folder))] == other.moves
    return other


@pytest.mark.one_of(2, "dialect")
@pytest.mark.parametrize("way", [("there",), ("there", "again")], ids=["once", "twice"])
@pytest.mark.parametrize("dialect", ["canal", "dts-canal"])
def test_a_move_is_known_when_the_sound_files_are_gone(
    tmp_path: Path, way: tuple[str, ...], dialect: str
) -> None:
    """They are deleted some day: then a file that was rewritten was read as a new one, without a word."""
    other = moved_beside_sound_ones(Feed(tmp_path / "land", format=dialect), tmp_path)
    other.write("d.jsonl", b"d\n", 9000)
    assert [b"d"] == other.run()
    for name in ("a.jsonl", "b.jsonl"):
        (other.folder / name).unlink()
    for folder in way[1:]:
        shutil.move(other.folder, tmp_path / folder)
        other = moved_to(other, tmp_path / folder)
    file = other.write("cur.jsonl", b"CUR.jsonl\n", 8000)
    for _ in range(2):
        assert [] == other.run()
        [alarm] = other.alarms
        assert alarm.startswith(f"{file} was rewritten")
        (other.folder / "d.jsonl").unlink(missing_ok=True)
    assert len(way) == len(other.moves), "each move is recorded once"
    other.write("new.jsonl", b"n\n", 8000)
    assert [b"n"] == other.run(), "a file of a name that was never read is a new one"


def test_more_files_of_other_content_than_moved_ones(tmp_path: Path) -> None:
    """Another day's files under the same names, or a folder written anew: nobody knows which, so it is said, once."""
    feed = Feed(tmp_path / "land")
    for name in ("a.jsonl", "b.jsonl", "cur.jsonl"):
        feed.write(name, f"{name}\n".encode(), 9000)
    feed.run()
    shutil.move(tmp_path / "land", tmp_path / "there")
    other = moved_to(feed, tmp_path / "there")
    other.write("b.jsonl", b"8\n", 8000)
    other.write("cur.jsonl", b"9\n", 8000)
    [warning] = other.plan().warnings
    assert warning.startswith(
        f"2 files in {tmp_path}/there have the name of one that was read in {tmp_path}/land"
    )
    assert [b"8", b"9"] == other.run()
    assert ([], ()) == (other.alarms, other.plan().warnings)
    assert [] == other.moves
    other.write("c.jsonl", b"c\n", 8000)
    assert ([b"c"], [], []) == (other.run(), other.alarms, other.moves), "what was read stays a doubt"


@pytest.mark.parametrize("stages", [("bronze",), ("bronze", "silver", "gold")], ids=["bronze", "mirrors"])
def test_a_lake_remembers_a_move(tmp_path: Path, stages: tuple[str, ...]) -> None:
    """A run with nothing new to read recorded nothing, and what is rewritten later was read without a word."""
    text = (
        "pipeline: yard\nlake: ./lake\nengine: auto\nsources:\n"
        f"  - {{name: feed, kind: files, path: './FOLDER/*.jsonl', format: {FORMAT}, settle: 0s}}\n"
    )
    (file := tmp_path / "yard.yaml").write_text(text.replace("FOLDER", "land"), "utf-8")
    feed = Feed(tmp_path / "land")
    for number, name in enumerate(("a.jsonl", "cur.jsonl")):
        feed.write(name, change("INSERT", "bins", number, {"id": str(number), "word": "w"}).encode(), 9000)
    assert 2 == run(unstarted(), load(file), stages, Warm()).read
    assert idle(load(file), stages) is not None
    (tmp_path / "land").rename(tmp_path / "there")
    file.write_text(text.replace("FOLDER", "there"), "utf-8")
    assert idle(load(file), stages) is None, "a run has to record it"
    for _ in range(2):
        again = run(unstarted(), load(file), stages, Warm())
        assert (0, [], []) == (again.read, again.failures, again.warnings)
    lake = LakeReader(load(file))
    assert [(str(tmp_path / "land"), str(tmp_path / "there"))] == known_moves(lake, "feed")
    assert idle(load(file), stages) is not None
    (tmp_path / "there" / "a.jsonl").unlink()
    cur = tmp_path / "there" / "cur.jsonl"
    cur.write_text(change("INSERT", "bins", 3, {"id": "3", "word": "w"}), "utf-8")
    touch(cur, 8000)
    assert idle(load(file), stages) is None
    [described] = foresee(load(file), None, 0)["sources"]
    [problem] = described["problems"]
    assert problem.startswith(f"{cur} was rewritten")
    result = run(unstarted(), load(file), stages, Warm())
    assert 0 == result.read
    [failure] = result.failures
    assert f"{cur} was rewritten" in failure
