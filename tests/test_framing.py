"""A file is cut into the messages that it holds, byte for byte, whatever it is packed in."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import json
import lzma
import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable

import fastavro
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ingest import framing
from ingest.decoding import documents
from ingest.errors import Undecodable
from ingest.framing import DAMAGE, Record, decompressed, lines, records, sniffed


def values(data: bytes, framing: str, start: int = 0, *, finished: bool = True) -> list[bytes]:
    """The messages of a file."""
    return [record.value for record in records(data, framing, start=start, finished=finished)]


def detected(data: bytes, *, binary: bool = False) -> tuple[str, list[bytes]]:
    """The framing that is detected in a file, and the records that it gives."""
    framing, found = sniffed(io.BytesIO(data), binary)
    return framing, [record.value for record in found]


# --- lines --------------------------------------------------------------------------------------


def test_lines_keep_their_bytes_and_places() -> None:
    """A reject could not be found again in its file."""
    data = b'{"a": 1}\r\n\n  \n{"b"\x00}\n{"c"}'
    expected = [Record(0, 10, b'{"a": 1}'), Record(14, 21, b'{"b"\x00}'), Record(21, 26, b'{"c"}')]
    assert expected == list(records(data, "lines"))


def test_an_unended_line_waits_while_the_file_grows() -> None:
    """Half a message would be landed, and its other half as a second one."""
    assert [b"a"] == values(b"a\nb", "lines", finished=False)
    assert [b"b"] == values(b"a\nb\n", "lines", 2, finished=False)


@given(st.lists(st.binary(max_size=20)))
def test_lines_are_what_split_gives(parts: list[bytes]) -> None:
    """No byte of any line may be lost or moved."""
    data = b"\n".join(part.replace(b"\n", b"") for part in parts)
    stripped = [line.rstrip(b"\r") for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n")]
    assert [line for line in stripped if line and not line.isspace()] == values(data, "lines")


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    """Every first message of a Windows file would be a reject."""
    assert [b"{}", b"{}"] == values(b"\xef\xbb\xbf{}\n{}\n", "lines")


def test_lines_of_a_stream_come_before_its_end() -> None:
    """A pipe would be decoded only once it is closed."""

    class Endless(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, into: bytearray) -> int:  # type: ignore[override]
            into[:3] = b"{}\n"
            return 3

    assert b"{}" == next(lines(io.BufferedReader(Endless()))).value  # type: ignore[type-var]


# --- documents ----------------------------------------------------------------------------------


def test_an_array_is_its_elements() -> None:
    """A file of many messages would be one reject."""
    data = b' [ {"a": 1.10},\n{"a": 1.10} , null, "x,]" ]\n'
    expected = [(3, b'{"a": 1.10}'), (16, b'{"a": 1.10}'), (30, b"null"), (36, b'"x,]"')]
    assert expected == [(record.offset, record.value) for record in records(data, "document")]


def test_a_document_keeps_its_bytes() -> None:
    """Numbers would lose their digits on a round trip."""
    data = b'\xef\xbb\xbf{\n "a": 1.10\n}\n'
    assert [data[3:]] == values(data, "document")


@pytest.mark.parametrize("data", [b"", b" \n", b"[]", b"[ ]"])
def test_empty_documents_hold_no_message(data: bytes) -> None:
    """An empty file would be a reject in every run."""
    assert [] == values(data, "document")


def test_a_broken_array_is_one_message() -> None:
    """Bytes that cannot be read must still be accounted for."""
    assert [b'[{"a": }]'] == values(b'[{"a": }]', "document")


@pytest.mark.parametrize(
    "form", ["[{}]", "[{},]", '{{"a": [{}]', "{}, {{"], ids=["array", "repaired", "cut", "documents"]
)
def test_a_document_of_a_million_values_is_cut_in_the_memory_of_its_bytes(form: str) -> None:
    """A megabyte in an archive unpacks to a hundred million of them, and would take the memory of the whole machine."""
    data = form.format(",".join(["{}"] * 300_000)).encode()
    tracemalloc.start()
    try:
        first, *_ = (record.value[:2] for record in itertools.islice(records(data, "document"), 5))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert first in (b"{}", b'{"')
    assert peak < 8 * len(data)


def test_documents_of_many_lines_are_cut_however_many_they_are() -> None:
    """A file of more documents than one message may hold would be one reject, and all of its changes be missing."""
    data = b"\xef\xbb\xbf" + b'{\n"a":1}\n' * (documents.MOST + 1)
    cut = list(records(data, "document"))
    assert {b'{\n"a":1}'} == {record.value for record in cut}
    assert (documents.MOST + 1, 3, 3 + 9) == (len(cut), cut[0].offset, cut[1].offset)
    name, found = detected(data[3:])
    assert ("document", documents.MOST + 1) == (name, len(found))


def test_arrays_of_documents_with_comments_are_repaired() -> None:
    """Samples as documents print them could not be tried."""
    assert [b'{"a":1}', b'{"b":2}'] == values(b'[{"a":1}, // first\n {"b":2},\n]', "document")


def test_half_a_document_waits() -> None:
    """A document that is still written would be a reject."""
    assert [] == values(b'{"a": ', "document", finished=False)
    assert [b'{"a": '] == values(b'{"a": ', "document")


# --- lengths ------------------------------------------------------------------------------------


def lengthened(parts: list[bytes]) -> bytes:
    """Records with their lengths before them."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


@given(st.lists(st.binary(min_size=1, max_size=20), min_size=1))
def test_lengths_are_detected(parts: list[bytes]) -> None:
    """The default framing of bare Avro was taken for one framed datum with an odd schema id."""
    assert ("length", parts) == detected(lengthened(parts), binary=True)


def test_a_cut_file_of_lengths_is_one_still() -> None:
    """A copy that broke off would be called a file of another format."""
    stream = io.BytesIO(lengthened([b"a", b"bc", b"d", b"efgh"])[:-2])
    name, found = sniffed(stream, True)
    assert ("length", [b"a", b"bc", b"d"]) == (name, [next(found).value for _ in range(3)])
    with pytest.raises(Undecodable, match="longer than the file"):
        next(found)


@pytest.mark.parametrize("number", [1, 7, 1000, 65_536])
def test_a_framed_datum_is_no_file_of_lengths(number: int) -> None:
    """Confluent's frame begins with zeros, too, and its schema id is not a length."""
    datum = b"\0" + number.to_bytes(4, "big") + b"\x02\x04ab" * 9
    assert ("raw", [datum]) == detected(datum, binary=True)


@given(st.lists(st.binary(max_size=300)))
def test_length_prefixed_records_round_trip(parts: list[bytes]) -> None:
    """No record may be lost, joined or split."""
    data = b"".join(struct.pack(">I", len(part)) + part for part in parts)
    assert parts == values(data, "length")


@pytest.mark.parametrize("tail", [b"\0", b"\0\0\0", b"\0\0\0\5abcd", b"\xff\xff\xff\xffx"])
def test_a_cut_record_is_reported(tail: bytes) -> None:
    """The rest of a file would be lost silently."""
    found = records(b"\0\0\0\1a" + tail, "length")
    assert Record(0, 5, b"a") == next(found)
    with pytest.raises(Undecodable, match="cut-record: the record at byte 5"):
        next(found)
    assert [] == values(b"\0\0\0\1a" + tail, "length", 5, finished=False)


# --- Avro containers ----------------------------------------------------------------------------

SCHEMA = {
    "type": "record",
    "name": "Bin",
    "fields": [{"name": "id", "type": "long"}, {"name": "label", "type": "string"}],
}
ROWS = [{"id": i * 1000 - 5, "label": "x" * i} for i in range(200)]


def container(codec: str = "null", rows: list[dict[str, object]] = ROWS) -> bytes:
    """A container file as the common library writes it, in many blocks."""
    out = io.BytesIO()
    fastavro.writer(out, SCHEMA, rows, codec=codec, sync_interval=500, sync_marker=b"0123456789abcdef")
    return out.getvalue()


def datum(row: dict[str, object]) -> bytes:
    """One row as bare Avro."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, SCHEMA, row)
    return out.getvalue()


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_containers_hold_bare_datums(codec: str) -> None:
    """A datum cut one byte off is a different row."""
    assert [datum(row) for row in ROWS] == values(container(codec), "avro-container")


def test_containers_may_be_packed_with_zstd() -> None:
    """The codec of newer writers, which the common library writes only with another package."""
    text = json.dumps(SCHEMA).encode()
    block = zstandard.ZstdCompressor().compress(b"".join(map(datum, ROWS)))
    header = (
        b"Obj\x01"
        + varint(2)
        + sized(b"avro.schema")
        + sized(text)
        + sized(b"avro.codec")
        + sized(b"zstandard")
    )
    marker = b"0123456789abcdef"
    data = header + varint(0) + marker + varint(len(ROWS)) + sized(block) + marker
    assert [datum(row) for row in ROWS] == values(data, "avro-container")


def sized(data: bytes) -> bytes:
    """Avro bytes: their length, then themselves."""
    return varint(len(data)) + data


def varint(number: int) -> bytes:
    """A non-negative Avro long."""
    number, out = number << 1, b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def test_a_container_of_a_list_of_types_holds_bare_datums_too() -> None:
    """A schema file with several types is a union, whose branch number is no part of the message."""
    out = io.BytesIO()
    fastavro.writer(out, [{"type": "enum", "name": "E", "symbols": ["a"]}, SCHEMA], ROWS)
    assert [datum(row) for row in ROWS] == values(out.getvalue(), "avro-container")


def test_reading_goes_on_after_a_block_with_the_same_offsets() -> None:
    """A container that has grown would be landed twice."""
    data = container()
    found = list(records(data, "avro-container"))
    ends = sorted({record.end for record in found})
    assert len(ends) > 3
    assert list(range(200)) == [record.offset for record in found]
    rest = list(records(data, "avro-container", start=ends[1]))
    assert [record for record in found if record.end > ends[1]] == rest


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda data: data[:-1], "cut-record"),
        (lambda data: data[:-1] + b"?", "bad-container"),
        (lambda data: data.replace(b'"long"', b'"bong"'), "bad-container"),
        (lambda data: data.replace(b"null", b"lzma"), "bad-container"),
        (lambda data: data[4:], "bad-container"),
        (lambda data: data[:9], "bad-container"),
    ],
)
def test_damaged_containers_are_reported(damage: Callable[[bytes], bytes], code: str) -> None:
    """A damaged file would crash the run or silently lose its rest."""
    with pytest.raises(Undecodable) as caught:
        values(damage(container()), "avro-container")
    assert code == caught.value.code


def test_a_block_that_promises_too_much_is_refused() -> None:
    """A count of billions would keep a worker busy for ever."""
    head = container(rows=[])
    marker = head[-16:]
    block = b"\xfe\xff\xff\xff\x0f\x04" + b"\0\0" + marker  # some 2,000,000,000 datums in two bytes
    with pytest.raises(Undecodable):
        values(head + block, "avro-container")


# --- unknown files ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"a": 1}\n{"a": 2}\n', ("lines", [b'{"a": 1}', b'{"a": 2}'])),
        (b'\n\n{"a": 1}\n\n', ("lines", [b'{"a": 1}'])),
        (b'{\n"a":\n\n1}\n', ("document", [b'{\n"a":\n\n1}\n'])),
        (b'{\n// why\n"a": 1,\n}', ("document", [b'{\n// why\n"a": 1,\n}'])),
        (b'[{"a": 1}, {"a": 2}]', ("document", [b'{"a": 1}', b'{"a": 2}'])),
        (b'[\n{"a": 1},\n{"a": 2}\n]\n', ("document", [b'{"a": 1}', b'{"a": 2}'])),
        (b'{"a": 1\n{"a": 2}\n', ("lines", [b'{"a": 1', b'{"a": 2}'])),
        (b'{"a": 1}\n{"a": \n', ("lines", [b'{"a": 1}', b'{"a": '])),
        (b"", ("lines", [])),
        (b"\xef\xbb\xbf[1,2]", ("document", [b"1", b"2"])),
    ],
)
def test_text_is_a_document_if_it_parses_whole_else_lines(
    data: bytes, expected: tuple[str, list[bytes]]
) -> None:
    """A pretty-printed message would be a reject per line."""
    assert expected == detected(data)


def test_binary_files_are_containers_or_one_datum() -> None:
    """A bare datum may hold any byte, line ends included."""
    assert ("avro-container", [datum(row) for row in ROWS]) == detected(container(), binary=True)
    assert ("avro-container", 200) == (detected(container())[0], len(detected(container())[1]))
    assert ("raw", [b"\x00\n{}"]) == detected(b"\x00\n{}", binary=True)


def test_a_very_deep_document_is_one_message() -> None:
    """The reader's own stack would decide where a message ends."""
    deep = b"[" * 100_000 + b"]" * 100_000
    assert 1 == len(detected(deep)[1])


# --- compression --------------------------------------------------------------------------------

PACKED = [gzip.compress, bz2.compress, lambda data: zstandard.ZstdCompressor().compress(data)]


@pytest.mark.parametrize("pack", [*PACKED, bytes])
def test_compressed_files_are_read_as_they_are(pack: Callable[[bytes], bytes]) -> None:
    """People would have to unpack their archives first."""
    plain = json.dumps(list(range(50_000))).encode()
    assert plain == decompressed(io.BytesIO(pack(plain))).read()
    assert plain * 2 == decompressed(io.BytesIO(pack(plain) + pack(plain))).read()


@pytest.mark.parametrize("pack", PACKED)
def test_a_cut_archive_is_reported(pack: Callable[[bytes], bytes]) -> None:
    """The rest of the messages would be lost silently."""
    data = pack(bytes(range(256)) * 100)
    with pytest.raises(DAMAGE):
        decompressed(io.BytesIO(data[: len(data) // 2])).read()


def deflated(plain: bytes) -> bytes:
    """What Avro calls deflate: without a header."""
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(plain) + packer.flush()


PACKED = {"deflate": deflated, "bzip2": bz2.compress, "xz": lzma.compress, "zstandard": zstandard.compress}


@pytest.mark.parametrize("codec", PACKED)
def test_a_block_that_unpacks_without_end_is_refused(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kilobyte would become gigabytes, and the worker be killed at each run."""
    monkeypatch.setattr(framing, "MAX_BLOCK", 1 << 20)
    packed = PACKED[codec](bytes(256 << 20) if codec == "zstandard" else bytes(64 << 20))
    tracemalloc.start()
    with pytest.raises(Undecodable, match="unpacks to more than 1048576 bytes"):
        framing._inflated(framing._codec(codec), packed, 7)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20 or codec == "zstandard"


@pytest.mark.parametrize("codec", PACKED)
def test_a_block_that_is_cut_is_refused(codec: str) -> None:
    """Half of a block would pass for the whole."""
    plain = random.Random(1).randbytes(100_000)
    packed = PACKED[codec](plain)
    assert plain == framing._inflated(framing._codec(codec), packed, 7)
    with pytest.raises(Undecodable, match="cannot be decompressed"):
        framing._inflated(framing._codec(codec), packed[: len(packed) // 2], 7)
