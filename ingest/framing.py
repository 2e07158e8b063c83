"""Split files into messages: lines, one document, length-prefixed records, Avro containers, or the whole file.

``lines`` is one message per line, empty lines skipped; ``document`` one JSON document or several one after another, however
their lines are broken, or an array whose elements are the messages; ``length`` a 4-byte big-endian length before each record; ``avro-container``
the datums of an Avro object container file (Avro 1.11, "Object Container Files"); ``raw`` the whole
file.  Offsets count bytes of the plain file, also where the file itself is compressed.
"""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import lzma
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, BinaryIO, NamedTuple, cast

import msgspec

from ingest.decoding import avro, avro_reader, documents
from ingest.errors import Undecodable, counted
from ingest.values import lenient

DAMAGE = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, OSError)
"""What reading a damaged compressed file raises (zstd's error is made an `OSError` here)."""

BOM = b"\xef\xbb\xbf"
CONTAINER = b"Obj\x01"
MAX_BLOCK = 128 * 1024 * 1024
"""Bytes that a block of an Avro container may unpack to; writers make blocks of kilobytes."""

_ZSTD_BLOCK = 1 << 12  # small, because one byte may expand to 32 thousand
_GZIP, _BZIP2, _ZSTD = b"\x1f\x8b", b"BZh", b"\x28\xb5\x2f\xfd"
_json = msgspec.json.Decoder(msgspec.Raw)


class Record(NamedTuple):
    """One message: its place in the file, where reading continues after it, and its bytes."""

    offset: int
    end: int
    value: bytes


# --- compression --------------------------------------------------------------------------------


def decompressed(raw: BinaryIO) -> BinaryIO:
    """The plain bytes of a stream that may be gzip, bzip2 or zstd, recognised by its first bytes."""
    stream = _peekable(raw)
    head = stream.peek(4)[:4]
    if head.startswith(_GZIP):
        return cast("BinaryIO", gzip.GzipFile(fileobj=stream))
    if head.startswith(_BZIP2):
        return cast("BinaryIO", bz2.BZ2File(stream))
    if head.startswith(_ZSTD):
        return cast("BinaryIO", io.BufferedReader(_Zstd(stream), 1 << 20))
    return cast("BinaryIO", stream)


def _peekable(stream: Any) -> Any:
    """A stream with look-ahead."""
    return stream if hasattr(stream, "peek") else io.BufferedReader(stream)


class _Zstd(io.RawIOBase):
    """A zstd stream; the library's own error becomes `OSError`, and a cut frame an `EOFError`."""

    def __init__(self, stream: BinaryIO) -> None:
        import zstandard

        self._error = zstandard.ZstdError
        self._library = zstandard.ZstdDecompressor()
        self._stream = stream
        self._frame = self._library.decompressobj()
        self._inside = False
        self._packed = b""
        self._plain = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        while not self._plain:
            block = self._packed or self._stream.read(_ZSTD_BLOCK)
            if not block:
                if self._inside:
                    raise EOFError("the zstd data ends inside a frame")
                return 0
            self._plain = memoryview(self._unpacked(block))
        count = min(len(into), len(self._plain))
        into[:count] = self._plain[:count]
        self._plain = self._plain[count:]
        return count

    def _unpacked(self, block: bytes) -> bytes:
        try:
            plain = self._frame.decompress(block)
        except self._error as error:
            raise OSError(str(error)) from None
        self._inside, self._packed = not self._frame.eof, self._frame.unused_data
        if self._frame.eof:  # another frame may follow
            self._frame = self._library.decompressobj()
        return plain


# --- framings -----------------------------------------------------------------------------------


def records(data: bytes, framing: str, *, start: int = 0, finished: bool = True) -> Iterator[Record]:
    """The messages of a whole file's plain bytes, from ``start`` on, the ``end`` of a record read before.

    A file that is not ``finished`` may still grow: an incomplete last record is left out. Else it is `Undecodable`
    (``cut-record``, ``bad-container``), after the records before the damage.
    """
    yield from _CUTS[framing](data, start, finished)


def lines(stream: BinaryIO, offset: int = 0) -> Iterator[Record]:
    """The lines of a stream that begins at ``offset``, without line breaks; empty ones are skipped."""
    while line := stream.readline():
        end = offset + len(line)
        value = line.rstrip(b"\r\n")
        if not offset and value.startswith(BOM):
            value = value[len(BOM) :]
        if value and not value.isspace():
            yield Record(offset, end, value)
        offset = end


def _lines(data: bytes, start: int, finished: bool) -> Iterator[Record]:
    stream = io.BytesIO(data)
    stream.seek(start)
    for record in lines(stream, start):
        if finished or data[record.end - 1] == 0x0A:
            yield record


def _document(data: bytes, start: int, finished: bool) -> Iterator[Record]:
    begin = len(BOM) if data.startswith(BOM) else 0
    body = data[begin:]
    if start or not body.strip() or not (finished or is_document(body)):
        return
    if body.lstrip()[:1] != b"[":
        if is_document(body) or not documents.are_several(body):
            yield Record(begin, len(data), body)
            return
        for place, document in documents.documents_in(body):
            yield Record(begin + place, len(data), document)
        return
    for without_comments in (bytes, lenient):
        array = without_comments(body)
        if _parses(array, nested=False):
            for place, element in documents.elements(array):
                yield Record(begin + place, len(data), element)
            return
    yield Record(begin, len(data), body)


def _length(data: bytes, start: int, finished: bool) -> Iterator[Record]:
    for begin, end in documents.by_length(data, start):
        offset = begin - 4
        if end <= len(data):
            yield Record(offset, end, data[begin:end])
        elif finished:
            words = f"the record at byte {offset} is longer than the file"
            if not offset and data.lstrip()[:1] in (b"{", b"["):
                words += ", which begins like JSON: write `framing: lines` for the source"
            raise Undecodable("cut-record", words)


def _raw(data: bytes, start: int, finished: bool) -> Iterator[Record]:
    if data and finished and not start:
        yield Record(0, len(data), data)


def is_document(data: bytes) -> bool:
    """True if the bytes are one JSON document, parsed as leniently as messages."""
    return _parses(data) or _parses(lenient(data))


def _parses(data: bytes, *, nested: bool = True) -> bool:
    try:
        _json.decode(data)
    except RecursionError:
        return nested  # so deep that it is refused later, as one message
    except msgspec.DecodeError:
        return False
    return True


# --- Avro containers ----------------------------------------------------------------------------


def _container(data: bytes, start: int, finished: bool) -> Iterator[Record]:
    """The datums of a container, split by its schema; each block ends at its marker.

    A compressed datum has no byte position of its own: its offset is its number in the file.
    """
    if not data.startswith(CONTAINER):
        raise Undecodable("bad-container", "the file does not start as an Avro container")
    try:
        meta, offset = avro.read_at(_meta(), data, len(CONTAINER))
        schema = avro.load(meta.get("avro.schema", b""))
        inflate = _codec(meta.get("avro.codec", b"null").decode("ascii", "replace"))
    except Undecodable as error:
        raise Undecodable("bad-container", error.detail) from None
    marker, offset, index = data[offset : offset + 16], offset + 16, 0
    while offset < len(data):
        block, end, count = _block(data, offset, marker)
        if end > len(data):
            if finished:
                raise Undecodable("cut-record", f"the block at byte {offset} is longer than the file")
            return
        if offset >= start:
            values = _datums(schema, _inflated(inflate, block, offset), count, offset)
            yield from (Record(index + i, end, value) for i, value in enumerate(values))
        offset, index = end, index + count


@cache
def _meta() -> avro.AvroSchema:
    return avro.load('{"type": "map", "values": "bytes"}')


def _block(data: bytes, offset: int, marker: bytes) -> tuple[bytes, int, int]:
    """The bytes of a block, where the next one begins, and the count of its datums."""
    try:
        count, begin = avro_reader.long(data, offset)
        size, begin = avro_reader.long(data, begin)
    except IndexError:
        return b"", len(data) + 1, 0
    end = begin + size + len(marker)
    if count < 0 or size < 0 or (end <= len(data) and data[begin + size : end] != marker):
        raise Undecodable("bad-container", f"the block at byte {offset} does not end with the file's marker")
    return data[begin : begin + size], end, count


def _inflated(inflate: Callable[[bytes], bytes], block: bytes, offset: int) -> bytes:
    try:
        plain = inflate(block)
    except DAMAGE:
        raise Undecodable("bad-container", f"the block at byte {offset} cannot be decompressed") from None
    if len(plain) > MAX_BLOCK:
        raise Undecodable(
            "bad-container", f"the block at byte {offset} unpacks to more than {MAX_BLOCK} bytes"
        )
    return plain


def _datums(schema: avro.AvroSchema, block: bytes, count: int, offset: int) -> Iterator[bytes]:
    begin = 0
    for _ in range(min(count, len(block) + 1)):  # the count may be wrong; a datum takes at least one byte
        _, end = avro.read_at(schema, block, begin)
        if isinstance(schema.root, list):  # of all named types: the branch's number is not part of the datum
            _, begin = avro_reader.long(block, begin)
        yield block[begin:end]
        begin = end
    if begin != len(block) or count > len(block):
        raise Undecodable(
            "bad-container", f"the block at byte {offset} does not hold its {counted(count, 'datum')}"
        )


def _codec(name: str) -> Callable[[bytes], bytes]:
    if name not in _CODECS:
        raise Undecodable(
            "bad-container", f"the codec {name!r} is not supported; use null, deflate or zstandard"
        )
    return _CODECS[name]


def _deflate(block: bytes) -> bytes:
    stream = zlib.decompressobj(-15)
    plain = stream.decompress(block, MAX_BLOCK + 1)
    if not stream.eof and len(plain) <= MAX_BLOCK:
        raise zlib.error("the block is cut")
    return plain


# Each stops one byte above the limit: a kilobyte may decompress to a gigabyte.
_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda block: block,
    "deflate": _deflate,
    "bzip2": lambda block: bz2.open(io.BytesIO(block)).read(MAX_BLOCK + 1),  # noqa: SIM115 - of memory
    "xz": lambda block: lzma.open(io.BytesIO(block)).read(MAX_BLOCK + 1),  # noqa: SIM115 - of memory
    "zstandard": lambda block: io.BufferedReader(_Zstd(io.BytesIO(block))).read(MAX_BLOCK + 1),
}
_CUTS: dict[str, Callable[[bytes, int, bool], Iterator[Record]]] = {
    "lines": _lines,
    "document": _document,
    "length": _length,
    "avro-container": _container,
    "raw": _raw,
}


# --- unknown files ------------------------------------------------------------------------------


def sniffed(stream: BinaryIO, binary: bool) -> tuple[str, Iterator[Record]]:
    """The framing of a plain stream, detected from its content, and the messages.

    An Avro container is recognised by its first bytes; another ``binary`` file has lengths if they lead from record to
    record through it, else it is one datum. A text file that parses as a whole is one document; otherwise each line is a
    message (and is yielded at once).
    """
    source = _peekable(stream)
    if source.peek(4)[:4] == CONTAINER:
        return "avro-container", records(source.read(), "avro-container")
    if binary:
        data = source.read()
        name = "length" if has_lengths(data) else "raw"
        return name, records(data, name)
    return _text(source)


_CHAIN = 3  # whole records before a cut one that make a file one of lengths


def has_lengths(data: bytes) -> bool:
    """True for records with their lengths before them, up to the last byte or to a record that the file's end cuts off.

    No record is empty: a datum that begins with zeros, as one in Confluent's frame does, would pass for a row of such.
    """
    count = 0
    for begin, end in documents.by_length(data):
        if end == begin:
            return False
        if end > len(data):
            return count >= _CHAIN
        count += 1
    return count > 0


def _text(stream: BinaryIO) -> tuple[str, Iterator[Record]]:
    following = lines(stream)
    first = next(following, None)
    if first is None:
        return "lines", iter(())
    if not is_document(first.value):
        data = first.value + b"\n" + stream.read()
        framing = "document" if is_document(data) or documents.are_several(data) else "lines"
        return framing, _moved(records(data, framing), first.offset)
    second = next(following, None)
    if second is None:
        return ("lines" if first.value[:1] == b"{" else "document"), _moved(
            records(first.value, "document"), first.offset
        )
    return "lines", itertools.chain((first, second), following)


def _moved(of_part: Iterator[Record], by: int) -> Iterator[Record]:
    """Records of a part of a file that begins at byte ``by``."""
    return (Record(record.offset + by, record.end + by, record.value) for record in of_part)
