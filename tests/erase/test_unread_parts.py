"""Parts of split messages that nothing has read, and that hold something of an erased row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ingest.cli.app import app
from ingest.config import load
from ingest.decoding.split import MessagePart
from ingest.erase import late, remove, replacements, unread_parts
from ingest.erase import plan as planning
from ingest.erase.search import search
from ingest.errors import Undecodable
from ingest.formats import tencent_protobuf
from ingest.ledgers import rejects
from ingest.ledgers.barriers import left_of
from ingest.run import run
from ingest.silver.rebuild import rebuild
from ingest.silver.split_messages import LENGTH, Spot
from ingest.tables.lake import Lake
from tests.erase.test_special_lakes import decided
from tests.formats.protobuf_cases import cut_at, encode
from tests.timing import is_within
from tests.unstarted import unstarted

WORD, LONG, STAYS = "planted 漢字 value", "planted long " * 400, "this one stays where it is"
NUMBER = "774100001"


def event(serial: int, op: str, key: str, word: str) -> bytes:
    """An envelope of one row."""
    cells = [
        {"dataType": "INT64", "sv": key},
        {"dataType": "STRING", "charset": "utf8mb4", "bv": {"$hex": word.encode().hex()}},
        {"dataType": "INT64", "sv": "12"},
    ]
    columns = [
        {"name": "id", "originalType": "bigint", "isKey": 1},
        {"name": "word", "originalType": "text"},
        {"name": "size", "originalType": "int"},
    ]
    row = {"newColumns": cells} | ({"oldColumns": cells} if op == "UPDATE" else {})
    header = {
        "version": 1, "sourceType": "MYSQL", "messageType": "DML", "timestamp": 1718000000 + serial, "schemaName": "depot",
        "tableName": "people", "seqId": serial, "isLast": 1,
    }  # fmt: skip
    dml = {"dmlEventType": op, "columns": columns, "rows": [row]}
    entry = {"header": header, "event": {"dmlEvent": dml}}
    return encode("tencent-protobuf", {"version": 1, "total": 1, "index": 0, "data": {"items": [entry]}})


def cut(envelope: bytes, value: str, *into: int) -> list[bytes]:
    """Parts of an envelope, cut so many bytes into a value."""
    data = tencent_protobuf.SUBSCRIBE.read("Envelope", envelope).data
    return cut_at(data, *(data.index(value.encode()) + each for each in into))


TWICE = cut(event(20, "INSERT", NUMBER, WORD), WORD, 4, 11)
AGAIN = event(30, "UPDATE", NUMBER, LONG)
LOST = cut(event(40, "UPDATE", NUMBER, WORD), WORD, 5, 12)
OTHERS = cut(event(50, "UPDATE", "1", STAYS), STAYS, 9)
SENT: list[tuple[bytes, bool]] = [  # each message, and whether nothing reads it although it holds something of the row
    (event(10, "INSERT", "1", STAYS), False),
    (TWICE[0], False), (TWICE[1], False), (TWICE[1], True), (TWICE[2], False),
    *((part, True) for part in cut(AGAIN, LONG, 7, 2600)[:2]),  # and sent again, cut elsewhere
    *((part, False) for part in cut(AGAIN, LONG, 1900)),
    (LOST[0], True),
    (OTHERS[0], False),
    (LOST[1], True),
    *((part, False) for part in OTHERS),
    (cut(AGAIN, LONG, 9, 2600)[1], True),  # a middle alone
]  # fmt: skip


class Parts:
    """A lake of one file of envelopes."""

    def __init__(self, folder: Path, session: Any) -> None:
        self.file, self.session = folder / "depot.yaml", session
        self.file.write_text(
            "pipeline: depot\nlake: ./lake\nengine: auto\n"
            "sources: [{name: s, path: ./in.bin, format: tencent-protobuf, settle: 0s}]\n",
            "utf-8",
        )
        self.offsets = self.more(*(value for value, _ in SENT))

    def more(self, *values: bytes) -> list[int]:
        """Land and decode further envelopes; their offsets."""
        offsets = []
        with (self.file.parent / "in.bin").open("ab") as file:
            for value in values:
                offsets.append(file.tell())
                file.write(len(value).to_bytes(LENGTH, "big") + value)
        assert [] == run(self.session, load(self.file), ("bronze", "silver", "gold")).failures
        return offsets

    @property
    def lake(self) -> Lake:
        """The lake as it is now."""
        return Lake(self.session, load(self.file))


def test_what_came_twice_or_was_broken_off_goes(tmp_path: Path) -> None:
    """Its bytes would stay for ever: no decoding says what they hold, and a value lies in two of them."""
    parts = Parts(tmp_path, unstarted())
    assert len(rejects.waiting(parts.lake)) == sum(is_touched for _, is_touched in SENT) + 1
    erasure = planning.plan(parts.lake, "depot.people", [(NUMBER,)], "asked", now=True)
    going = {row[3]: bytes(row[6]) for row in replacements.replaced(parts.lake, erasure)}
    touched = [offset for offset, (_, is_touched) in zip(parts.offsets, SENT, strict=True) if is_touched]
    assert touched == sorted(place[3] for place in erasure.parts)
    for offset in touched:
        with pytest.raises(Undecodable, match="split-message"):
            left_of(going[offset])
    kept = set(parts.offsets) - going.keys()
    assert {parts.offsets[at] for at, (value, _) in enumerate(SENT) if value in (SENT[0][0], *OTHERS)} == kept


def test_what_came_late_in_parts_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message from before the erasure that is sent again, in parts of which one comes twice."""
    parts = Parts(tmp_path, unstarted())
    decided(parts.lake, planning.plan(parts.lake, "depot.people", [(NUMBER,)], "asked", now=True))
    first, second = cut(event(25, "UPDATE", NUMBER, WORD), WORD, 8)
    offsets = parts.more(first, first, second)
    going = {row[3]: bytes(row[6]) for row in late._replaced(parts.lake, 2)}
    assert offsets == sorted(offset for offset in going if offset >= offsets[0])
    [twice] = [offset for offset in offsets if b"refused" in going[offset]]
    assert twice == offsets[0]  # a first part begins the message again

    steps: list[tuple[str, set[int]]] = []

    class Recorded:
        """What is asked of a removal."""

        def details(self, places: Iterable[tuple[Any, ...]]) -> None:
            steps.append(("details", {place[3] for place in places}))

        def messages(self, rows: Sequence[tuple[Any, ...]]) -> None:
            steps.append(("messages", {row[3] for row in rows}))
            raise KeyboardInterrupt

    monkeypatch.setattr(remove.Removal, "of", lambda _lake: Recorded())
    with pytest.raises(KeyboardInterrupt):
        late.erase(parts.lake)
    assert [("details", {*going}), ("messages", {*going})] == steps


def test_a_late_replay_quotes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It repeats the detail of the message's reject, which may quote a value."""
    parts = Parts(tmp_path, unstarted())
    decided(parts.lake, planning.plan(parts.lake, "depot.people", [(NUMBER,)], "asked", now=True))
    [offset, _] = parts.more(event(26, "UPDATE", NUMBER, WORD), event(27, "UPDATE", "1", STAYS))
    parts.more(SENT[0][0])
    quoting = {"batch": 2, "reject": {"reason": "bad-json", "detail": WORD}}
    asked = Lake.ask

    def ask(lake: Lake, text: str) -> list[dict[str, Any]]:
        """Rows of a lake in which the third batch has replayed the second's messages."""
        rows = asked(
            lake, text.replace("{bronze.replay} WHERE batch = 3", "{bronze.message} WHERE batch = 2")
        )
        return (
            [row | {"batch": 3, "value": json.dumps(quoting).encode()} for row in rows]
            if "bronze.replay" in text
            else rows
        )

    monkeypatch.setattr(Lake, "ask", ask)
    [message, replay] = [row for row in late._replaced(parts.lake, 3) if row[3] >= offset]
    assert [(offset, 2, "message"), (offset, 3, "replay")] == [
        (row[3], row[4], row[5]) for row in (message, replay)
    ]
    assert json.loads(replay[6]) == quoting | {"reject": {"reason": "bad-json", "detail": "(erased)"}}


def placed(values: Iterable[bytes], *, kafka: bool) -> dict[Spot, MessagePart]:
    """Parts that lie one behind the other, as a broker or a file numbers them."""
    parts, offset = {}, 5
    for value in values:
        part = tencent_protobuf.part(value)
        assert part is not None
        parts[Spot("s", "t", 0, 1, offset)] = part
        offset += 1 if kafka else LENGTH + len(value)
    return parts


@pytest.mark.parametrize("kafka", [True, False], ids=["kafka", "file"])
@pytest.mark.parametrize("into", range(1, len(WORD.encode())))
def test_a_value_is_found_wherever_it_is_cut(into: int, kafka: bool) -> None:
    """Half of it in each of two parts is as readable as the whole."""
    parts = placed(cut(event(1, "INSERT", "5", WORD), WORD, into), kafka=kafka)
    assert [*parts] == [*unread_parts.holding(parts, [WORD.encode()], [])]
    first, second = parts.items()
    for alone, size in ((first, into), (second, len(WORD.encode()) - into)):
        is_readable = size >= unread_parts._CUT
        assert [alone[0]] * is_readable == [*unread_parts.holding(dict([alone]), [WORD.encode()], [])]


@pytest.mark.parametrize("kafka", [True, False], ids=["kafka", "file"])
@pytest.mark.parametrize(
    ("sent", "touched"),
    [
        (
            [TWICE[0], OTHERS[0], TWICE[2]],
            [0, 2],
        ),  # another message's part between them: no piece is joined with it
        ([OTHERS[0], TWICE[1], OTHERS[1]], [1]),
        ([TWICE[0], TWICE[0], TWICE[1]], [0, 1, 2]),
    ],
)
def test_parts_of_other_messages_are_not_joined(
    sent: Sequence[bytes], touched: list[int], kafka: bool
) -> None:
    """Another row's message would lose a part that a replay could still read."""
    parts = placed(sent, kafka=kafka)
    whole = tencent_protobuf.joined([part.data for part in placed(TWICE, kafka=kafka).values()])
    assert [[*parts][at] for at in touched] == [*unread_parts.holding(parts, [WORD.encode()], [whole])]


@pytest.mark.parametrize(
    "data", [b"", b"e", b"\x10\x01", tencent_protobuf.SUBSCRIBE.read("Envelope", AGAIN).data[:20]]
)
def test_bytes_that_any_message_has_are_no_trace(data: bytes) -> None:
    """Another row's part would go for them."""
    parts = {Spot("s", "t", 0, 1, 5): MessagePart(1, 3, data, len(data))}
    assert [] == [*unread_parts.holding(parts, [WORD.encode()], [AGAIN])]


@pytest.mark.parametrize("text", ["", "12", "PAID", "aGV5", "2024", "Berlin", "漢字"])
def test_a_short_value_is_not_looked_for(text: str) -> None:
    """Other rows have the word, and a large message the bytes by chance, such as three that are four of base64."""
    assert set() == unread_parts.sought([text])


def test_a_message_that_may_become_whole_stays(tmp_path: Path) -> None:
    """It holds a value of the row, but is another row's: a replay puts it together when its last part has come."""
    parts = Parts(tmp_path, unstarted())
    first, second, third = cut(event(70, "UPDATE", "1", WORD), WORD, 4, 11)
    waiting, last = cut(event(80, "UPDATE", "2", WORD), WORD, 40)
    sent = [first, second, second, third, waiting]
    begins = parts.more(*sent)

    def going() -> set[int]:
        erasure = planning.plan(parts.lake, "depot.people", [(NUMBER,)], "asked", now=True)
        return {row[3] for row in replacements.replaced(parts.lake, erasure)}

    assert set() == going() & {*begins}
    [end] = parts.more(last)
    assert set() == going() & {*begins, end}
    [waits] = parts.more(waiting)
    assert waits not in going()
    parts.more(SENT[0][0])
    assert {waits} == going() & {*begins, end, waits}, "nothing can be its last part any more"


OVERLAPS = [
    (b"the planted", b"planted value", True),
    (b"the plante", b"planted value", True),
    (b"the plant", b"planted value", False),  # too few bytes
    (b"planted, planted", b"planted value", True),
    (b"ababababab", b"abababac", True),
    (b"ababababac", b"ababababab", False),
    (b"planted value", b"planted value", False),  # whole, which is found as such
    (b"", b"planted value", False),
]


@pytest.mark.parametrize(("first", "second", "overlaps"), OVERLAPS)
def test_an_overlap_is_found(first: bytes, second: bytes, overlaps: bool) -> None:
    """Of texts that repeat themselves, too."""
    assert overlaps == unread_parts._overlap(first, second)


@pytest.mark.parametrize("data", [b"x" * 400_000, bytes(range(256)) * 1600], ids=["periodic", "any"])
def test_a_large_value_is_compared_in_linear_time(data: bytes) -> None:
    """Messages are split because values are large, and the lake is locked meanwhile."""
    texts = data + b"end", data + b"other end"
    assert not unread_parts._overlap(*texts)
    assert is_within(2, lambda: unread_parts._overlap(*texts))


@pytest.mark.spark
@pytest.mark.e2e
def test_no_byte_of_them_is_left(spark: Any, tmp_path: Path) -> None:
    """The certificate says so, a search of every file says so, and a rebuild refuses the same messages as before."""
    parts = Parts(tmp_path, spark)
    words = [
        "erase",
        str(parts.file),
        "depot.people",
        NUMBER,
        "--reason",
        "asked",
        "--now",
        "--output",
        "json",
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    [left] = json.loads(done.stdout)["left"]
    assert left.startswith("1 message that could not be decoded")  # the other row's
    pieces = [WORD, WORD[:8], WORD[-8:], LONG[:30], NUMBER]
    assert [] == search(Path(parts.lake.path("")), pieces).hits
    first, second = cut(event(25, "UPDATE", NUMBER, WORD), WORD, 8)
    parts.more(first, first, second)
    assert late.erase(parts.lake) == 3
    differences = rebuild(parts.lake, 1, dry_run=True).differences  # the books count what was erased
    assert differences["changes"].none, differences
    assert differences["rejects"].none, differences
