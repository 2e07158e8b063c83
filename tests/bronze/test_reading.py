"""Reading of byte ranges: any cut gives the same records, and a receipt says exactly what was read."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import itertools
import time
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest.bronze import reading
from ingest.bronze.reading import OPEN_END, Range, Record, read
from ingest.bronze.receipts import FileState, Receipt

PIECES = st.sampled_from(
    [b"x", b'{"id":1}', b"\r", b"\n", b"\r\n", b"\n\n", b" ", b"yy" * 9, b"\xef\xbb\xbf", b"\x00"]
)
PACKERS = {".gz": gzip.compress, ".bz2": bz2.compress, ".zst": zstandard.ZstdCompressor().compress}
quick = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def work(path: Path, start: int, end: int, **given: Any) -> Range:
    """A range of a file as the plan would make it."""
    plan: dict[str, Any] = {
        "source": 0, "file": str(path), "rank": 0, "start": start, "end": end, "size": path.stat().st_size,
        "mtime": 1.0, "framing": "lines", "compressed": False, "finished": True, "max_record_bytes": 1 << 20,
        "exact": start == 0,
    }  # fmt: skip
    return Range(**plan | given)


def taken(one: Range) -> tuple[list[Record], Receipt]:
    """The records and the receipt of a range."""
    found: list[Record] = []
    reader = read(one)
    while True:
        try:
            found.extend(next(reader))
        except StopIteration as done:
            return found, done.value


def expected_lines(data: bytes, limit: int) -> list[Record]:
    """The plainest reading of lines that there is."""
    found: list[Record] = []
    offset = 0
    for line in io.BytesIO(data):
        body = line.removesuffix(b"\n")
        length = len(body)
        if length > limit:
            found.append((offset, None, length))
        elif body.strip():
            plain = body.rstrip(b"\r")
            found.append((offset, plain if offset else plain.removeprefix(b"\xef\xbb\xbf"), length))
        offset += len(line)
    return found


@quick
@given(
    parts=st.lists(PIECES, max_size=60),
    cuts=st.lists(st.integers(0, 400), max_size=6),
    block=st.integers(1, 40),
    lines=st.integers(1, 40),
    limit=st.integers(1, 30),
)
def test_any_cut_gives_the_same_records(
    tmp_path: Path, parts: list[bytes], cuts: list[int], block: int, lines: int, limit: int
) -> None:
    """A line that is read twice doubles a change; one that is not read loses it."""
    file = tmp_path / "any.jsonl"
    data = b"".join(parts)
    file.write_bytes(data)
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    found: list[Record] = []
    state = FileState()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "BLOCK", block)
        patch.setattr(reading, "TOGETHER", lines)
        for start, end in itertools.pairwise(edges):
            records, receipt = taken(work(file, start, end, max_record_bytes=limit))
            found.extend(records)
            state.add(receipt)
            assert hashlib.sha256(data[receipt.start : receipt.end]).hexdigest() == receipt.sha256
            assert "" == receipt.fault
    assert expected_lines(data, limit) == found
    assert (len(data), []) == (state.position, state.holes())


def test_a_small_archive_of_empty_lines_takes_seconds(tmp_path: Path) -> None:
    """A megabyte that unpacks to a thousand million newlines would keep a run busy for ten minutes, with nothing to land."""
    file = tmp_path / "empty.jsonl.gz"
    file.write_bytes(gzip.compress(b"\n" * (64 << 20) + b'{"id":1}\n', compresslevel=1))
    began = time.thread_time()
    records, receipt = taken(work(file, 0, OPEN_END, compressed=True, max_record_bytes=32 << 20))
    assert time.thread_time() - began < 5
    assert [(64 << 20, b'{"id":1}', 8)] == records
    assert (64 << 20) + 9 == receipt.end


def test_a_block_of_the_shortest_lines_is_read_in_parts(tmp_path: Path) -> None:
    """Four million lines of one character took eighty times their bytes, in each task of a run."""
    file = tmp_path / "ones.jsonl"
    file.write_bytes(b"1\n" * 200_000)
    groups = [*read(work(file, 0, 400_000))]
    assert 200_000 == sum(map(len, groups))
    assert max(map(len, groups)) <= 50_000


@pytest.mark.parametrize("framing", ["lines", "document"])
@pytest.mark.parametrize("ending", PACKERS)
def test_a_packed_file_has_no_more_messages_than_bytes(
    ending: str, framing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred kilobytes that unpack to a hundred million lines would keep each stage busy for hours, and fill the disk."""
    monkeypatch.setattr(reading, "FEW", 1000)
    file, plain = tmp_path / f"ones.json{ending}", b"1\n" * 200_000
    file.write_bytes(PACKERS[ending](plain if framing == "lines" else b"[1" + b",1" * 200_000 + b"]"))
    records, receipt = taken(work(file, 0, OPEN_END, compressed=True, framing=framing))
    assert receipt.count == len(records) < 200_000
    assert receipt.damage
    size = file.stat().st_size
    assert f"{file}: its {size:,} bytes unpack to {receipt.count:,} messages or more" in receipt.fault
    assert receipt.fault.endswith("if they are messages, put the file there unpacked.")
    if framing == "lines":
        assert hashlib.sha256(plain[: receipt.end]).hexdigest() == receipt.sha256
        unpacked = tmp_path / "ones.json"
        unpacked.write_bytes(plain)
        assert "" == taken(work(unpacked, 0, len(plain)))[1].fault


@quick
@given(parts=st.lists(PIECES, max_size=60), first=st.integers(0, 400), block=st.integers(1, 40))
def test_what_waits_is_read_when_the_file_is_finished(
    tmp_path: Path, parts: list[bytes], first: int, block: int
) -> None:
    """A file caught in the middle of a write would lose the line in flight, or give it in two halves."""
    file = tmp_path / "growing.jsonl"
    data = b"".join(parts)
    file.write_bytes(data[:first])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "BLOCK", block)
        early, receipt = taken(work(file, 0, len(data[:first]), finished=False, max_record_bytes=10))
        assert hashlib.sha256(data[: receipt.end]).hexdigest() == receipt.sha256
        file.write_bytes(data)
        late, rest = taken(work(file, receipt.end, len(data), exact=True, max_record_bytes=10))
    assert expected_lines(data, 10) == early + late
    assert (receipt.end, len(data)) == (rest.start, max(rest.end, receipt.end))


@pytest.mark.parametrize("ending", PACKERS)
def test_a_packed_file_is_read_to_its_plain_end(tmp_path: Path, ending: str) -> None:
    """The packed size says nothing of the plain one: most of a well packed file would be left out."""
    file = tmp_path / f"rows.jsonl{ending}"
    data = b"".join(b'{"id": %d, "pad": "%s"}\n' % (i, b"a" * 50) for i in range(5000))
    file.write_bytes(PACKERS[ending](data))
    records, receipt = taken(work(file, 0, OPEN_END, compressed=True))
    assert expected_lines(data, 1 << 20) == records
    assert (len(data), 5000, False) == (receipt.end, receipt.count, receipt.rest)


@pytest.mark.parametrize("ending", PACKERS)
def test_a_packed_file_goes_on_after_what_was_read(tmp_path: Path, ending: str) -> None:
    """Appended members would be read from the start again."""
    file = tmp_path / f"rows{ending}"
    file.write_bytes(PACKERS[ending](b"a\nb\n") + PACKERS[ending](b"c\n"))
    records, receipt = taken(work(file, 4, OPEN_END, compressed=True, exact=True))
    assert [(4, b"c", 1)] == records
    assert (4, 6) == (receipt.start, receipt.end)


@pytest.mark.parametrize("ending", PACKERS)
def test_a_cut_packed_file_gives_what_is_whole_and_says_so(tmp_path: Path, ending: str) -> None:
    """A damaged archive would end the run, or pass for a complete one."""
    file = tmp_path / f"rows{ending}"
    packed = PACKERS[ending](
        b"".join(hashlib.sha256(b"%d" % i).hexdigest().encode() + b"\n" for i in range(9000))
    )
    file.write_bytes(packed[: len(packed) // 2])
    _, receipt = taken(work(file, 0, OPEN_END, compressed=True))
    assert (True, True) == (receipt.damage, receipt.rest)
    assert str(file) in receipt.fault
    _, receipt = taken(work(file, 0, OPEN_END, compressed=True, finished=False))
    assert ("", True) == (receipt.fault, receipt.rest)


@quick
@given(
    values=st.lists(st.binary(max_size=30), max_size=20),
    cut=st.integers(0, 30),
    block=st.integers(1, 20),
    finished=st.booleans(),
)
def test_length_prefixed_records_are_streamed(
    tmp_path: Path, values: list[bytes], cut: int, block: int, finished: bool
) -> None:
    """A cut record must neither be landed nor counted as read; one too large must not be held."""
    file = tmp_path / "records.bin"
    whole = b"".join(len(value).to_bytes(4, "big") + value for value in values)
    data = whole[: len(whole) - cut] if cut else whole
    file.write_bytes(data)
    expected: list[Record] = []
    offset = 0
    for value in values:
        if offset + 4 + len(value) > len(data):
            break
        expected.append((offset, value if len(value) <= 20 else None, len(value)))
        offset += 4 + len(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "BLOCK", block)
        found, receipt = taken(
            work(file, 0, len(data), framing="length", max_record_bytes=20, finished=finished)
        )
    assert expected == found
    assert (offset, hashlib.sha256(data[:offset]).hexdigest()) == (receipt.end, receipt.sha256)
    assert (finished and offset < len(data)) == receipt.damage


def test_a_document_is_read_to_its_end_with_the_spaces_after_it(tmp_path: Path) -> None:
    """Otherwise every run would read the spaces after the document again, each time as a new batch."""
    file = tmp_path / "array.json"
    data = b'[{"a":1}, {"a":2}]\n \n'
    file.write_bytes(data)
    records, receipt = taken(work(file, 0, len(data), framing="document"))
    assert [(1, b'{"a":1}', 7), (10, b'{"a":2}', 7)] == records
    assert (len(data), hashlib.sha256(data).hexdigest()) == (receipt.end, receipt.sha256)
    file.write_bytes(b" \n")
    assert ([], 2) == ((found := taken(work(file, 0, 2, framing="document")))[0], found[1].end)


def test_a_document_beyond_the_limit_is_an_alarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A huge document would take the worker's memory and the run with it."""
    monkeypatch.setattr(reading, "WHOLE", 10)
    file = tmp_path / "array.json"
    file.write_bytes(b'[{"a":1}, {"a":2}]')
    records, receipt = taken(work(file, 0, 18, framing="document"))
    assert ([], True) == (records, receipt.damage)
    assert "more than 10 bytes" in receipt.fault


def test_a_file_that_cannot_be_read_is_reported_and_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk's fault would pass for the end of the file, or for a fault of its content."""
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"a\nb\nc\nd\n")

    class Failing(io.BytesIO):
        def read(self, count: int | None = -1) -> bytes:
            if self.tell() >= 4:
                raise OSError(5, "Input/output error")
            return super().read(count)

    monkeypatch.setattr(reading, "BLOCK", 4)
    monkeypatch.setattr(reading, "_opened", lambda one: Failing(Path(one.file).read_bytes()))
    records, receipt = taken(work(file, 0, 8))
    assert [(0, b"a", 1), (2, b"b", 1)] == records
    assert (0, 4, False) == (receipt.start, receipt.end, receipt.damage)
    assert "Input/output error" in receipt.fault


def test_a_file_that_is_gone_is_reported(tmp_path: Path) -> None:
    """A file taken away between plan and read would end the run."""
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"a\n")
    one = work(file, 0, 2)
    file.unlink()
    records, receipt = taken(one)
    assert ([], 0, False) == (records, receipt.end, receipt.damage)
    assert f"{file} vanished before it was read: put it back." == receipt.fault


def test_damage_in_a_container_keeps_what_comes_before_it(tmp_path: Path) -> None:
    """The good blocks before a damaged one would be lost."""
    import fastavro

    file = tmp_path / "rows.avro"
    out = io.BytesIO()
    schema = {"type": "record", "name": "r", "fields": [{"name": "v", "type": "string"}]}
    fastavro.writer(out, schema, [{"v": "x" * 90} for _ in range(30)], sync_interval=300)
    data = bytearray(out.getvalue())
    data[-3] ^= 0xFF  # the last block's marker
    file.write_bytes(data)
    records, receipt = taken(work(file, 0, len(data), framing="avro-container"))
    assert 0 < len(records) < 30
    assert hashlib.sha256(data[: receipt.end]).hexdigest() == receipt.sha256
    assert True is receipt.damage


def test_receipts_survive_their_table() -> None:
    """A receipt read back otherwise would read a file twice, or not at all."""
    one = Receipt("/in/a b#%\n.jsonl", 3, 9, 2, "ab", 9, 17.123456789, "h", "t", "bad", True, True)
    assert one == Receipt.from_json(one.to_json())
    assert one == Receipt.from_json(one.to_json()[:-1] + b',"later":1}')
    assert Receipt("f", 1) == Receipt.from_json(b'{"file":"f","start":1}')


def test_holes_are_what_neighbours_left() -> None:
    """A range that failed between two that were read would never be read."""
    state = FileState()
    for start, end in ((20, 30), (0, 10), (30, 35)):
        state.add(Receipt("f", start, end, size=40))
    assert ([(10, 20)], 35) == (state.holes(), state.position)
    state.add(Receipt("f", 10, 20, size=40))
    assert [] == state.holes()
