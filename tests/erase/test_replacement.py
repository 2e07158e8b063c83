"""What replaces a message in bronze when some of its rows are erased, in every dialect, and how it is decoded again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ingest.change import ROW_OPS, Message, Op
from ingest.config.model import TableRule
from ingest.erase.plan import ErasedChange, Erasure
from ingest.erase.replacements import replaced, replacement
from ingest.errors import IngestError
from ingest.fold import key_of_change
from ingest.ledgers import sealing
from ingest.ledgers.barriers import GONE, HEADER, Barrier, Barriers, left_of
from ingest.ledgers.books import merged
from ingest.ledgers.stamps import change_of
from ingest.silver.lift import SourceDecoder
from ingest.store.envelope import NOT_SEALED
from tests.formats.one_history.history import history
from tests.formats.one_history.test_one_history import DIALECTS
from tests.silver.test_lift import PARCELS, bronze, lifting

SECRET = Barriers("a secret")


def decoded(decoder: SourceDecoder, messages: list[Message]) -> list[dict[str, Any]]:
    """The rows of some messages, by place."""
    found = [row for page in decoder.lift(bronze(messages)) for row in page.to_pylist()]
    return sorted(found, key=lambda row: (row["offset"], row["row"]))


@pytest.mark.parametrize("name", DIALECTS)
def test_a_message_loses_one_row_and_keeps_the_others(name: str) -> None:
    """A dialect whose rows are not found in it would keep them in bronze; one that loses others loses data."""
    messages = DIALECTS[name].write(history(3))
    how = replace(lifting(name), barriers=SECRET)
    reader = SourceDecoder(how, "s")
    parsed = [reader.parsed(replace_topic(one)) for one in messages]
    assert any(change.op in ROW_OPS and change.op is not Op.TRUNCATE for found in parsed for change in found)
    before = decoded(SourceDecoder(how, "s"), messages)
    for at, found in enumerate(parsed):
        rows = [change for change in found if change.op in ROW_OPS and change.op is not Op.TRUNCATE]
        if not rows:
            continue
        headers = [{"key": key, "value": value} for key, value in messages[at].headers]
        stored = {"source": "s", "topic": messages[at].topic or "t", "partition": at % 2, "offset": at,
                  "key": messages[at].key, "value": messages[at].value, "headers": headers}  # fmt: skip
        new = replacement(reader, SECRET, stored, {rows[-1].row})
        assert new is not None
        value, signature, _ = new
        short = [*messages]
        short[at] = Message(value, None, messages[at].topic, ((HEADER, signature),))
        decoder = SourceDecoder(how, "s")
        left = [row for row in before if (row["offset"], row["row"]) != (at, rows[-1].row)]
        if not any(row["kind"] != "change" or row["op"] in ROW_OPS for row in left if row["offset"] == at):
            left = [
                row for row in left if row["offset"] != at
            ]  # a message of marks alone is counted, not written
        assert left == decoded(decoder, short)
        lines = merged(decoder.lines.values())
        assert (len(messages), 1, True) == (
            sum(line.messages for line in lines), sum(line.erased for line in lines), all(line.balanced for line in lines)
        )  # fmt: skip
        stored |= {"value": value, "headers": [{"key": HEADER, "value": signature}]}
        assert replacement(reader, SECRET, stored, {rows[-1].row}) is None


def replace_topic(one: Message) -> Message:
    """A message under the topic that it lands with."""
    return one._replace(topic=one.topic or "t")


def test_the_values_of_an_erased_row_are_not_in_its_replacement() -> None:
    """Bytes that hold them anywhere are not erased."""
    name = "canal"
    how = replace(lifting(name), barriers=SECRET)
    decoder = SourceDecoder(how, "s")
    text = (
        b'{"data":[{"id":"1","name":"stays"},{"id":"2","name":"planted"}],"database":"depot","table":"parcels",'
        b'"type":"INSERT","id":1,"es":1,"ts":1,"isDdl":false,"old":null,"pkNames":["id"],"sql":"",'
        b'"mysqlType":{"id":"int","name":"text"},"sqlType":{"id":4,"name":12}}'
    )
    stored = {
        "source": "s",
        "topic": "t",
        "partition": 0,
        "offset": 0,
        "key": b"planted",
        "value": text,
        "headers": None,
    }
    new = replacement(decoder, SECRET, stored, {1})
    assert new is not None
    assert b"stays" in new[0]
    assert b"planted" not in new[0]
    again = replacement(
        decoder, SECRET, stored | {"value": new[0], "headers": [{"key": HEADER, "value": new[1]}]}, {0}
    )
    assert again is not None
    assert b"stays" not in again[0]
    assert b'"erased":2' in again[0]


def test_a_message_that_is_decoded_otherwise_today_is_refused() -> None:
    """Rows are named by their number: of another decoding, it names another row."""
    decoder = SourceDecoder(replace(lifting("canal"), barriers=SECRET), "s")
    message = next(
        one
        for one in DIALECTS["canal"].write(history(3))
        if any(c.op is Op.INSERT for c in decoder.parsed(one))
    )
    stored = {
        "source": "s",
        "topic": "t",
        "partition": 0,
        "offset": 0,
        "key": None,
        "value": message.value,
        "headers": None,
    }
    with pytest.raises(IngestError, match="rebuild"):
        replacement(decoder, SECRET, stored, {99})


def test_a_stopped_change_is_counted_and_not_written() -> None:
    """Books that do not say what was left out cannot be balanced against bronze."""
    name = "dts-canal"
    messages = DIALECTS[name].write(history(3))
    plain = lifting(name)
    before = SourceDecoder(plain, "s")
    rows = decoded(before, messages)
    mine = next(row for row in rows if row["op"] == "insert")
    keys = DIALECTS[name].hints.tables(PARCELS).keys
    types = tuple("string" for _ in keys)
    key = key_of_change(change_of(mine), keys, dict(zip(keys, types, strict=True))).key
    stretch = {SECRET.digest(PARCELS, key): (("", mine["order_key"]),)}
    stopped = replace(SECRET, lanes={("s", PARCELS): (Barrier("s", PARCELS, keys, types, stretch),)})
    decoder = SourceDecoder(replace(plain, barriers=stopped), "s")
    left = decoded(decoder, messages)
    gone = [row for row in rows if row not in left]
    assert mine in gone
    assert all(row["order_key"] <= mine["order_key"] for row in gone)
    was, now = merged(before.lines.values()), merged(decoder.lines.values())
    total = {
        name: [sum(getattr(line, name) for line in lines) for lines in (was, now)]
        for name in ("messages", "changes", "erased")
    }
    assert total == {
        "messages": [len(messages)] * 2,
        "changes": [total["changes"][0], total["changes"][0] - len(gone)],
        "erased": [0, len(gone)],
    }


def test_a_replayed_message_is_replaced_where_it_landed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The changes of a replay are of its own batch, their message of an older one: it would be looked for in vain."""
    how = lifting("dts-canal")
    monkeypatch.setattr(sealing, "opener", lambda _lake: NOT_SEALED)
    messages = DIALECTS["dts-canal"].write(history(3))
    reader = SourceDecoder(how, "s")
    at, change = next(
        (at, each[0]) for at, one in enumerate(messages) if (each := reader.parsed(one))[0].op is Op.INSERT
    )
    place = {"source": "s", "topic": "t", "partition": 0, "offset": at}
    stored = {**place, "batch": 1, "key": None, "value": messages[at].value, "headers": None}
    replay = {"batch": 1, "reject": {"reason": "bad-json", "detail": "quotes the row"}}
    stored_replay = {**place, "batch": 3, "key": None, "value": json.dumps(replay).encode(), "headers": None}

    class Bronze:
        pipeline = how.pipeline

        def ask(self, text: str) -> list[dict[str, Any]]:
            return [stored_replay] if "bronze.replay" in text else [stored, {**stored, "batch": 2}]

    erased = ErasedChange(3, "s", "t", 0, at, change.row, "k", *change.table)
    erasure = Erasure(
        "1", "a secret", "depot.parcels", "p", "", "", "", now=False, asked=1, keys=[], rows=[], alone=[],
        barriers=[], changes=[erased], cells=[],
    )  # fmt: skip
    rows = {row[5]: row for row in replaced(Bronze(), erasure)}  # type: ignore[arg-type] # all that it asks
    assert {"replay", "message"} == rows.keys()
    assert (3, 1) == (rows["replay"][4], rows["message"][4])
    assert {"batch": 1, "reject": {"reason": "bad-json", "detail": GONE}} == json.loads(rows["replay"][6])
    left = left_of(bytes(rows["message"][6]))
    assert change.row not in {one.row for one in left.kept if one.op in ROW_OPS}
    assert Barriers("a secret").is_replacement(
        [(HEADER, bytes(rows["message"][7]))], bytes(rows["message"][6])
    )


def test_a_masked_key_is_stopped_by_its_mask() -> None:
    """The lake knows the key's mask alone: a barrier of the key itself would stop nothing."""
    rule = TableRule(mask={"*": "hmac"}, keys=DIALECTS["dts-canal"].hints.tables(PARCELS).keys)
    how = lifting("dts-canal", rule)
    how = replace(how, pipeline=replace(how.pipeline, mask_secret="a secret of sixteen characters"))
    messages = DIALECTS["dts-canal"].write(history(3))
    rows = decoded(SourceDecoder(how, "s"), messages)
    mine = next(row for row in rows if row["op"] == "insert")
    keys, types = rule.keys, tuple("string" for _ in rule.keys)
    key = key_of_change(change_of(mine), keys, dict(zip(keys, types, strict=True))).key
    assert all(isinstance(cell, str) and len(cell) == 64 for cell in key)
    stretch = {SECRET.digest(PARCELS, key): (("", mine["order_key"]),)}
    stopped = replace(SECRET, lanes={("s", PARCELS): (Barrier("s", PARCELS, keys, types, stretch),)})
    left = decoded(SourceDecoder(replace(how, barriers=stopped), "s"), messages)
    gone = [row for row in rows if row not in left]
    assert mine in gone
    found = SourceDecoder(replace(how, barriers=stopped), "s").stopped_rows(bronze(messages))
    assert mine["row"] in found[mine["offset"]]  # what `ingest maintain` removes from late messages
