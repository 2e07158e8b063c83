"""Which files a file source reads: patterns, folders, links, and the order of names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ingest.bronze.files import plan
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
