"""Hostile messages made by hand, against every format: nothing kills, hangs or passes wrongly."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import re
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress

import pytest

from ingest import formats
from ingest.change import Hints, Message
from ingest.errors import NoValueError, Undecodable
from ingest.formats.canal_protobuf import CANAL
from ingest.formats.tencent_protobuf import SUBSCRIBE
from tests.formats import golden
from tests.formats.fuzzing import Known
from tests.formats.one_history.history import history
from tests.formats.one_history.test_one_history import DIALECTS
from tests.timing import is_within

JSON = [name for name in formats.names() if not formats.load(name).ABOUT.binary]
AVRO = [name for name in formats.names() if formats.load(name).ABOUT.binary]
CLOCK = re.compile(rb"(?<![0-9])1[4-9][0-9]{8}(?:[0-9]{3}){0,2}(?![0-9])")  # of this century, in any unit
MARK = "hostile-mark"  # the text of a column, which cases replace in the written message


def row(name: str) -> Known:
    """An insert as the format's plain dialect writes it, with a text that cases can find."""
    dialect = DIALECTS[name]
    history = next(found for seed in range(99) if (found := _first_insert(seed)))
    sent = dialect.write(history)
    return Known(
        next(each for each in reversed(sent) if each.value and MARK.encode() in each.value), dialect.hints
    )


def _first_insert(seed: int):
    found = history(seed, truncates=False)
    event = next((event for event in found.events if event.kind == "insert"), None)
    if event is None or event.number % 3 == 0:  # those are written with escapes
        return None
    marked = event._replace(after={**(event.after or {}), "remark": MARK, "lane": "A"})
    found.events = [marked]
    return found


def outcome(name: str, value: bytes, hints: Hints, like: Message) -> str:
    """The reason code of a refusal, or how many changes came out."""
    started = time.process_time()
    try:
        found = list(formats.load(name).parse(like._replace(value=value), hints))
        assert all(each.after is None or type(each.after) is dict for each in found)
        return "decoded"
    except Undecodable as error:
        return error.code if error.detail else "decoded without a reason"
    finally:
        assert time.process_time() - started < 3


WHOLE = {
    "nothing": b"",
    "blanks": b"  \n",
    "a number": b"42",
    "an empty object": b"{}",
    "nested lists": b"[" * 100_000,
    "nested objects": b'{"a":' * 100_000,
    "not closed": b'{"type": "INSERT"',
    "other bytes": bytes(range(256)),
    "NUL": b"\x00" * 16,
}


@pytest.mark.parametrize("name", JSON)
@pytest.mark.parametrize("case", WHOLE)
def test_what_is_no_message_is_refused(name, case):
    """Control would hide it, an exception would stop the run."""
    known = row(name)
    assert outcome(name, WHOLE[case], known.hints, known.message) != "decoded"


def _marked(replacement: bytes):
    return lambda value: value.replace(b'"' + MARK.encode() + b'"', replacement, 1)


REFUSED = {
    "NaN": _marked(b"NaN"),
    "Infinity": _marked(b"-Infinity"),
    "a lone surrogate": _marked(b'"\\ud800"'),
    "two surrogates in the wrong order": _marked(b'"\\udc00\\ud800"'),
    "bytes that are not UTF-8": _marked(b'"\xff\xfe"'),
    "a surrogate's own bytes": _marked(b'"\xed\xa0\x80"'),
    "an overlong character": _marked(b'"\xc0\x80"'),
    "a bare control character": _marked(b'"a\x01b"'),
    "deep nesting": _marked(b"[" * 5000 + b"]" * 5000),
    "two documents": lambda value: value + value,
    "trailing text": lambda value: value + b" x",
    "a column given twice": lambda value: value.replace(b'"remark":', b'"remark":"x","remark":', 1),
    "a member given twice": lambda value: b'{"' + _first_name(value) + b'":1,' + value[1:],
    "a name given twice in other words": lambda value: value.replace(
        b'"remark":', b'"rem\\u0061rk":"x","remark":', 1
    ),
    "cut off": lambda value: value[:-1],
}


NAMED = ("a column given twice", "a name given twice in other words")  # of rows that are objects


def _first_name(value: bytes) -> bytes:
    return next(iter(json.loads(value))).encode()


@pytest.mark.parametrize("name", JSON)
@pytest.mark.parametrize("case", REFUSED)
def test_a_row_that_says_two_things_or_none_is_refused(name, case):
    """One of two values would win silently, or text would come out that nothing can store."""
    known = row(name)
    if case in NAMED and b'"remark":' not in known.message.value:
        pytest.skip("its rows are lists of columns; the format's own tests give a column twice")
    value = REFUSED[case](known.message.value)
    assert value != known.message.value
    assert outcome(name, value, known.hints, known.message) != "decoded"


NUMBERS = [
    "1e999999999",
    "-1e-999999999",
    "9" * 5000,
    "1E400",
    "-0",
    "18446744073709551616",
    "0." + "0" * 1073 + "1",
]


@pytest.mark.parametrize("name", JSON)
@pytest.mark.parametrize("number", NUMBERS, ids=lambda text: text[:12])
def test_a_number_of_any_size_keeps_its_text_or_is_refused(name, number):
    """A number that became a float, or a zero, would be another value in the mirror."""
    known = row(name)
    value = _marked(number.encode())(known.message.value)
    try:
        changes = list(formats.load(name).parse(known.message._replace(value=value), known.hints))
    except Undecodable:
        return
    assert [number] == [change.after["remark"] for change in changes if change.after]


@pytest.mark.parametrize("name", JSON)
def test_a_byte_order_mark_changes_nothing(name):
    """Windows programs put one before the first message of a file."""
    known = row(name)
    plain = list(formats.load(name).parse(known.message, known.hints))
    marked = known.message._replace(value=b"\xef\xbb\xbf" + (known.message.value or b""))
    assert outcome(name, marked.value, known.hints, marked) in ("decoded", "bad-json")
    if outcome(name, marked.value, known.hints, marked) == "decoded":
        assert plain == list(formats.load(name).parse(marked, known.hints))


@pytest.mark.parametrize("name", JSON)
def test_the_message_that_all_this_is_done_to_decodes(name):
    """Refusals of a message that is wrong anyway would prove nothing."""
    known = row(name)
    changes = list(formats.load(name).parse(known.message, known.hints))
    assert [MARK] == [change.after["remark"] for change in changes if change.after]


# --- Avro ---------------------------------------------------------------------------------------

BYTES = {
    "nothing": lambda value: b"",
    "a byte too few": lambda value: value[:-1],
    "bytes after the datum": lambda value: value + b"\x02\x02\x02\x02",
    "an endless varint": lambda value: b"\xff" * 12 + value,
    "a union that has no such branch": lambda value: value[: len(value) // 2] + b"\xfe\x7f" * 40,
    "seven bytes of a long list": lambda value: value[:5] + b"\xfe\xff\xff\xff\x0f\x00\x00",
    "JSON": lambda value: b'{"type": "INSERT"}',
    "zeros": lambda value: b"\x00" * 300,
    "ones": lambda value: b"\xff" * 300,
}


@pytest.mark.parametrize("name", AVRO)
@pytest.mark.parametrize("case", BYTES)
def test_a_datum_that_does_not_fit_its_schema_is_refused(name, case):
    """Bytes read wrongly are other values, and a length from an attacker can fill the memory."""
    dialect = DIALECTS[name]
    message = next(each for each in dialect.write(history(1)) if each.value)
    assert outcome(name, BYTES[case](message.value), dialect.hints, message) != "decoded"


def zipped(data: bytes) -> bytes:
    """An archive of one file."""
    with zipfile.ZipFile(archive := io.BytesIO(), "w") as file:
        file.writestr("message.json", data)
    return archive.getvalue()


PACKED = {
    gzip.compress: r"gzip data: .* end the file's name in `\.gz`",
    bz2.compress: r"bzip2 data: .* end the file's name in `\.bz2`",
    lzma.compress: "xz data: send it unpacked",
    zipped: "zip data: send it unpacked",
}


@pytest.mark.parametrize("pack", PACKED)
@pytest.mark.parametrize("name", JSON)
def test_packed_data_is_named(name: str, pack: Callable[[bytes], bytes]) -> None:
    """`byte 1 is not UTF-8`, of a file without its ending or of a producer that packs, does not say what to do."""
    known = row(name)
    packed = pack(known.message.value or b"")
    with pytest.raises(Undecodable, match=PACKED[pack]):
        list(formats.load(name).parse(known.message._replace(value=packed), known.hints))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("name", JSON)
def test_a_message_in_utf_16_is_called_so(name: str, encoding: str) -> None:
    """Some tools on Windows write such files: "not UTF-8" and "bad JSON" do not say what to do."""
    known = row(name)
    value = (known.message.value or b"").decode().encode(encoding)
    with pytest.raises(Undecodable, match="UTF-16"):
        list(formats.load(name).parse(known.message._replace(value=value), known.hints))


@pytest.mark.parametrize("factor", [1000, 10**6])
@pytest.mark.parametrize("name", formats.names())
def test_clocks_of_another_unit_are_no_times(name, factor, tmp_path):
    """A time of the year 50000 is one that no reader of the books can show."""
    for case in (one for one in golden.cases() if one.parent.name == name):
        sent = tmp_path / name / case.name
        sent.parent.mkdir(exist_ok=True)
        sent.write_bytes(CLOCK.sub(lambda found: b"%d" % (int(found[0]) * factor), case.read_bytes()))
        if (hints := case.with_suffix(".hints.json")).exists():
            (sent.parent / hints.name).write_bytes(hints.read_bytes())
        with suppress(Undecodable, NoValueError):
            times = {one.event_time for one in formats.load(name).parse(*golden.message(sent))} - {None}
            assert all(0 <= one < 253_402_300_800_000_000 for one in times), (case, times)


def _packet_of_empty_rows(kind: int) -> bytes:
    change = CANAL.read("RowChange", b"")
    change.eventType = kind
    entry = CANAL.read("Entry", b"")
    entry.header.logfileName, entry.header.tableName, entry.entryType = "binlog.000001", "t", 2
    entry.storeValue = change.SerializeToString() + b"\x62\x00" * 400_000  # rowDatas
    body = CANAL.read("Messages", b"")
    body.messages.append(entry.SerializeToString())
    packet = CANAL.read("Packet", b"")
    packet.type, packet.body = 7, body.SerializeToString()
    return bytes(packet.SerializeToString())


def _envelope_of_empty_columns() -> bytes:
    entries = SUBSCRIBE.read("Entries", b"")
    entry = entries.items.add()
    entry.header.messageType, entry.header.tableName = 2, "t"
    entry.event.dmlEvent.columns.extend([b""] * 400_000)
    envelope = SUBSCRIBE.read("Envelope", b"")
    envelope.version, envelope.total, envelope.data = 1, 1, entries.SerializeToString()
    return bytes(envelope.SerializeToString())


OF_NOTHING = {
    "rows of an insert": ("canal-protobuf", lambda: _packet_of_empty_rows(1)),
    "rows of a statement": ("canal-protobuf", lambda: _packet_of_empty_rows(6)),
    "columns": ("tencent-protobuf", _envelope_of_empty_columns),
}


@pytest.mark.parametrize("case", OF_NOTHING)
def test_hundreds_of_thousands_of_nothing_are_refused_at_the_first(case: str) -> None:
    """Two bytes each: a message of a megabyte kept a task busy for seconds before it was refused."""
    name, made = OF_NOTHING[case]
    message = Message(made())

    def refused() -> None:
        with pytest.raises(Undecodable, match=r"no columns|holds rows|no name"):
            formats.load(name).parse(message, Hints())

    assert is_within(0.4, refused)
