"""Which files a file source reads: patterns, folders, links, and the order of names."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from ingest.bronze import opening
from ingest.bronze.files import plan
from ingest.bronze.reading import Range, read
from ingest.bronze.receipts import Receipt
from ingest.config import Source
from ingest.order import natural
from tests.bronze.feed import Feed


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


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    """With a link in the landing folder, any file that this user may read would get into the lake."""
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
    away = [str(folder / "a.jsonl"), str(folder / "below/b.jsonl")]
    assert away == [text.partition(" leads to ")[0] for text in found.alarms]
    assert f"leads to {outside}/secret.jsonl, out of the source's folder" in found.alarms[0]


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


_EXCHANGE = """
import ctypes, os, sys
first, second = (name.encode() for name in sys.argv[1:])
libc = ctypes.CDLL(None)
print("begun", flush=True)
while os.getppid() != 1:
    libc.renameat2(-100, first, -100, second, 2)  # RENAME_EXCHANGE
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="exchanges names as Linux does")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_is_exchanged_for_a_link_meanwhile_is_not_read(tmp_path: Path, what: str) -> None:
    """Who may write to a landing folder could bring any file that this user can read into the lake."""
    outside, landing = tmp_path / "outside", tmp_path / "landing"
    (landing / "in").mkdir(parents=True)
    outside.mkdir()
    (outside / "x.jsonl").write_text('{"secret":1}\n' * 40)
    mine = landing / "in" / "x.jsonl"
    mine.write_text('{"mine":1}\n' * 40)
    if what == "file":
        pair = (mine, landing / "in" / "other")
        pair[1].symlink_to(outside / "x.jsonl")
    else:
        pair = (landing / "in", landing / "other")
        pair[1].symlink_to(outside)
    source = Source("s", "files", "canal", path=f"{landing}/**/*.jsonl", settle=0.0, framing="lines")
    [work] = plan(source, 0, {}, 1).ranges
    swapping = subprocess.Popen([sys.executable, "-c", _EXCHANGE, *map(str, pair)], stdout=subprocess.PIPE)
    values: set[bytes | None] = set()
    refused = 0
    try:
        assert swapping.stdout is not None
        swapping.stdout.readline()
        for _ in range(10_000):
            with suppress(OSError), opening.opened(work.file, work.root, work.listed) as file:
                values.add(file.read(10))
                continue
            refused += 1
        for _ in range(50):
            for planned in plan(source, 0, {}, 1).ranges:
                reader = read(planned)
                with suppress(StopIteration):
                    while True:
                        values.update(value[:10] for _, value, _ in next(reader) if value)
    finally:
        swapping.kill()
        swapping.communicate()
    assert {b'{"mine":1}'} == values
    assert refused


def receipt_of(work: Range) -> Receipt:
    """What is known of a range after it was read."""
    reader = read(work)
    while True:
        try:
            next(reader)
        except StopIteration as done:
            return done.value


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    """A run would wait for a writer for ever, and hold the lake meanwhile."""
    feed = Feed(tmp_path, settle=0.0)
    file = feed.write("a.jsonl", b"1\n", 5)
    [work] = feed.plan().ranges
    file.unlink()
    os.mkfifo(file)
    receipt = receipt_of(work)
    assert "not a regular file" in receipt.fault
    assert not receipt.damage


def test_another_file_under_the_name_waits_for_the_next_run(tmp_path: Path) -> None:
    """Its receipt would have the time and the size of the file that was listed."""
    feed = Feed(tmp_path, settle=0.0)
    file = feed.write("a.jsonl", b"1\n", 5)
    [work] = feed.plan().ranges
    other = feed.write("b.part", b"2\n3\n", 2)
    other.rename(file)
    assert "another file took its place" in receipt_of(work).fault
    with file.open("ab") as grown:
        grown.write(b"4\n")
    feed.age(file, 1)
    assert [b"2", b"3", b"4"] == feed.run()
