"""From bronze to rows of changes: what is written at once for many rows, against one row at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest import formats
from ingest.change import NO_TABLE, Change, ChangeColumns, Hints, Message, Op, TableId
from ingest.config import Pipeline
from ingest.config.model import Source, TableRule
from ingest.formats.ingest_snapshot import SUFFIX
from ingest.ledgers.books import Line, merged
from ingest.order import Order, number_key, number_keys, order_key, order_keys
from ingest.silver import lift as lifts
from ingest.silver.lift import OVERSIZE, Lifting, SourceDecoder, lift
from tests.formats.fuzzing import corpus, damaged
from tests.formats.one_history.debezium import registry
from tests.formats.one_history.history import history
from tests.formats.one_history.test_one_history import DIALECTS

PARCELS, LOCKERS = TableId("depot", None, "parcels"), TableId("depot", None, "lockers")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def lifting(name: str, *rules: TableRule) -> Lifting:
    """A pipeline with one source of a dialect, with the keys and types that the dialect needs."""
    dialect = DIALECTS[name]
    hints = dialect.hints.tables(PARCELS)
    rules = rules or (TableRule(keys=hints.keys, columns=hints.columns),)
    source = Source("s", "files", dialect.format, options=dialect.hints.options, path="/none")
    return Lifting(Pipeline("p", Path("/p.yaml"), "/none", (source,), rules), schemas={"s": registry()})


def bronze(messages: Sequence[Message], first: int = 0) -> pa.RecordBatch:
    """Messages as they have landed, from an offset on."""
    count = len(messages)
    headers = [[{"key": key, "value": value} for key, value in each.headers] or None for each in messages]
    columns = {
        "batch": pa.array([3] * count, pa.int64()),
        "source": pa.array(["s"] * count),
        "topic": pa.array([each.topic or "t" for each in messages]),
        "partition": pa.array([(first + at) % 2 for at in range(count)], pa.int32()),
        "offset": pa.array(range(first, first + count), pa.int64()),
        "key": pa.array([each.key for each in messages], pa.binary()),
        "value": pa.array([each.value for each in messages], pa.binary()),
        "headers": pa.array(headers, HEADERS),
    }
    return pa.record_batch(columns)


def rows(how: Lifting, messages: Sequence[Message], size: int) -> tuple[list[dict[str, object]], list[Line]]:
    """The rows and the book lines that come of messages in batches of a size."""
    batches = [bronze(messages[at : at + size], at) for at in range(0, len(messages), size)]
    found = [row for page in lift(how)(iter(batches)) for row in page.to_pylist()]
    lines = merged(Line.from_json(str(row["payload"])) for row in found if row["kind"] == "book")
    kept = [row for row in found if row["kind"] != "book"]
    return sorted(kept, key=lambda row: (row["offset"], row["row"])), lines


@pytest.mark.parametrize("name", DIALECTS)
def test_a_batch_says_what_its_messages_say(name: str):
    """What is shared between the rows of a batch may not seep from one row into another."""
    messages = DIALECTS[name].write(history(1)) + DIALECTS[name].write(history(2)) + [Message(b"}")]
    how = lifting(name)
    one_by_one, lines = rows(how, messages, 1)
    assert {"change", "reject"} <= {row["kind"] for row in one_by_one}
    for size in (7, len(messages)):
        assert (one_by_one, lines) == rows(how, messages, size)


numbers = st.one_of(st.integers(0, 300), st.integers(-(10**40), 10**40))


@given(st.lists(numbers))
def test_keys_of_many_numbers(found: list[int]):
    """Two ways to write a number are two orders."""
    assert list(map(number_key, found)) == number_keys(found)


@pytest.mark.parametrize("order_by", ["sequence", "arrival", "event_time"])
@given(st.lists(st.tuples(st.lists(numbers, max_size=4), st.integers(0, 9), st.integers(-5, 5)), max_size=5))
def test_order_keys_are_those_of_the_order(order_by: str, drawn: list[tuple[list[int], int, int]]):
    """Silver's own order, were it another one, would fold a row's changes in the wrong order."""
    found = [
        Change(op=Op.INSERT, sequence=tuple(sequence), row=row, half=row % 2, event_time=time)
        for sequence, row, time in drawn
    ]
    arrivals = ["".join(map(number_key, (3, 0, 1, at))) for at in range(len(found))]
    written = order_keys(found, range(len(found)), arrivals, 7, order_by)
    places = {
        "sequence": [change.sequence for change in found],
        "arrival": [()] * len(found),
        "event_time": [(change.event_time or 0,) for change in found],
    }[order_by]
    assert [
        order_key(Order(7, 1, place, change.half, (3, 0, 1, at), change.row))
        for at, (change, place) in enumerate(zip(found, places, strict=True))
    ] == written


# --- many messages at once -------------------------------------------------------------------------

AS_COLUMNS = [name for name, one in DIALECTS.items() if hasattr(formats.load(one.format), "parse_many")]


def messages_of(name: str, random: Random) -> list[Message]:
    """Histories of a dialect, its goldens and what needs a note, one of twenty damaged; rows of the same table follow each other."""
    sent = [one for seed in range(8) for one in DIALECTS[name].write(history(seed))]
    found = sent + [one.message for one in corpus(DIALECTS[name].format)]
    values = [one.value or b"" for one in sent[:50]]
    found += [Message(one.strip()[:-1] + b",}") for one in values]
    found += [Message(re.sub(rb'("old": ?\[{)', rb'\1"gone":"1",', one)) for one in values]
    random.shuffle(found)
    found += sent
    return [
        each if random.randrange(20) else Message(damaged(each.value or b"", sent[0].value or b"", random))
        for each in found
    ]


def lifted(
    how: Lifting, pages: Sequence[pa.RecordBatch], *, at_once: bool
) -> tuple[pa.Table, list[Line], int]:
    """Rows in their order, book lines, and the number of messages that were read as columns."""
    mine, many = SourceDecoder(how, "s"), 0

    def counted(parse: lifts._ParseMany | None, few: int) -> lifts._ParseMany | None:
        def parse_many(values: Sequence[bytes | None], hints: Hints) -> ChangeColumns:
            nonlocal many
            assert parse is not None
            found = parse(values, hints)
            many += found.messages if found.messages >= few else 0
            return found

        return parse_many if parse is not None and at_once else None

    mine.parse_many = counted(mine.parse_many, lifts.FEW)
    mine.parse_snapshots = counted(mine.parse_snapshots, 1)
    found = pa.Table.from_batches([page for bronze in pages for page in mine.lift(bronze)])
    return (
        found.sort_by([("order_key", "ascending"), ("offset", "ascending")]),
        merged(mine.lines.values()),
        many,
    )


@pytest.mark.one_of(3, "order_by")
@pytest.mark.parametrize("order_by", ["sequence", "event_time", "excluded"])
@pytest.mark.parametrize("name", AS_COLUMNS)
def test_changes_as_columns_are_those_of_each_message(
    name: str, order_by: str, monkeypatch: pytest.MonkeyPatch
):
    """What is read in another way for speed must write and count the same, whatever lies between the usual messages."""
    monkeypatch.setattr(lifts, "FEW", 3)
    monkeypatch.setattr(lifts, "_PAUSE", 3)
    messages = messages_of(name, Random(name))
    how = lifting(name)
    if order_by == "excluded":
        how = lifting(name, TableRule(match="depot.parcels", exclude=True), TableRule())
    else:
        [source] = how.pipeline.sources
        sources = (replace(source, options=replace(source.options, order_by=order_by)),)
        how = replace(how, pipeline=replace(how.pipeline, sources=sources))
    each, lines, none = lifted(how, [in_partitions(bronze(messages), 50)], at_once=False)
    assert 0 == none
    for size in (11, len(messages)):
        starts = range(0, len(messages), size)
        pages = [in_partitions(bronze(messages[at : at + size], at), 50) for at in starts]
        rows, counts, many = lifted(how, pages, at_once=True)
        assert many > 50
        assert each.equals(rows)
        assert lines == counts


def read_rows(random: Random) -> Message:
    """A message of rows read from the source itself; one in some is of another kind than those around it."""
    types = {"id": "int64", "name": "string"} | ({"more": "string"} if not random.randrange(9) else {})
    place = {
        "phase": str(int(random.randrange(30) > 0)),
        "sequence": ["5", str(random.randrange(3))],
        "half": str(random.choice([2, 2, 2, 2, 1])),
        "arrival": [] if not random.randrange(9) else ["3", str(2**31 - 1), str(random.randrange(3))],
    }
    said = {
        "ingest-snapshot": random.choice([1] * 20 + [2]),
        "op": random.choice(["read"] * 12 + ["delete", "end"]),
        "table": ["depot", None, random.choice(["parcels", "parcels", "lockers"])],
        "keys": random.choice([["id"]] * 12 + [[], ["gone"]]),
        "types": types,
        "place": place,
        "time": random.choice([None, "2024-05-01T00:00:00Z"]),
        "rows": [[str(random.randrange(99)), *["é" for _ in types][1:]] for _ in range(random.randrange(9))],
    }
    text = json.dumps(said).encode()
    return Message(
        text if random.randrange(20) else text[:-3], topic=f"/lake/snapshots/{random.randrange(2)}{SUFFIX}"
    )


@pytest.mark.parametrize(
    "rule", [TableRule(keys=("id",)), TableRule(), TableRule(match="*.lockers", exclude=True)], ids=repr
)
@pytest.mark.parametrize("name", ["canal", "debezium"])
def test_rows_read_from_the_source_as_columns_are_those_of_each_message(
    name: str, rule: TableRule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first load is most of what a table ever sends, and would be wrong as a whole."""
    random = Random(f"{name} {rule}")
    source = Source("s", "files", name, path="/none")
    how = Lifting(Pipeline("p", Path("/p.yaml"), "/none", (source,), (rule, TableRule())))
    for _ in range(4):
        messages = [read_rows(random) for _ in range(60)]
        messages.sort(key=lambda each: each.topic)
        page = bronze(messages)
        page = page.set_column(
            page.schema.get_field_index("partition"), "partition", pa.array([0] * 60, pa.int32())
        )
        each, lines, _ = lifted(how, [page], at_once=False)
        rows, own, many = lifted(how, [page], at_once=True)
        assert many > 20
        assert each.equals(rows)
        assert lines == own


def in_partitions(page: pa.RecordBatch, count: int) -> pa.RecordBatch:
    """Messages of one topic, so many of a partition in a row."""
    numbers = pa.array([offset // count for offset in page["offset"].to_pylist()], pa.int32())
    topics = pa.array(["t"] * page.num_rows)
    page = page.set_column(page.schema.get_field_index("partition"), "partition", numbers)
    return page.set_column(page.schema.get_field_index("topic"), "topic", topics)


# --- what becomes of a message ---------------------------------------------------------------------


def decoder(changes: dict[bytes, list[Change]], *rules: TableRule) -> SourceDecoder:
    """A decoder whose parser looks a message up."""
    made = SourceDecoder(lifting("dms", *(rules or (TableRule(),))), "s")
    made.parse = lambda message, _hints: changes[message.value or b""]
    return made


def change(op: Op, table: TableId = PARCELS, **more: object) -> Change:
    """A change of one row."""
    return Change(op=op, table=table, **more)  # type: ignore[arg-type]


def test_messages_are_counted_by_the_strongest_thing_in_them():
    """A message counted twice or not at all leaves the books without balance."""
    changes = {
        b"row": [change(Op.INSERT, after={"id": "1"})],
        b"mark": [change(Op.HEARTBEAT)],
        b"nothing": [],
        b"both": [change(Op.TRUNCATE), change(Op.DDL, ddl="TRUNCATE parcels", row=1)],
        b"marked row": [change(Op.BEGIN), change(Op.DELETE, before={"id": "1"})],
    }
    mine = decoder(changes)
    (page,) = mine.lift(bronze([Message(value) for value in changes]))
    assert [(0, "insert"), (4, "begin"), (4, "delete"), (3, "truncate"), (3, "ddl")] == [
        (row["offset"], row["op"]) for row in sorted(page.to_pylist(), key=lambda row: row["partition"])
    ]
    lines = merged(mine.lines.values())
    assert all(line.balanced for line in lines)
    assert (5, 2, 1, 2) == tuple(
        sum(getattr(line, name) for line in lines)
        for name in ("messages", "change_messages", "ddl", "control")
    )


def test_marks_say_how_far_the_source_is():
    """In a quiet source only the time of a heartbeat shows that nothing changed."""
    changes = {
        b"0": [change(Op.INSERT, keys=("id",), after={"id": "1"}, event_time=3)],
        b"2": [Change(op=Op.HEARTBEAT, event_time=9)],
        b"4": [Change(op=Op.COMMIT)],
    }
    mine = decoder(changes)
    list(mine.lift(bronze([Message(str(at).encode()) for at in (0, 0, 2, 2, 4, 4)])))
    times = {line.table: (line.control, line.event_high) for line in merged(mine.lines.values())}
    assert (2, 9) == times[None]
    assert [3] == [high for table, (_, high) in times.items() if table and high]


def test_rows_are_counted_in_the_order_of_their_arrival_whatever_tables_their_messages_begin_with():
    """A row that the source placed behind one which came before it would be in no check."""

    def row(table: TableId, place: int, time: int, number: int = 0) -> Change:
        return change(
            Op.INSERT, table, after={"id": "1"}, sequence=(place,), event_time=time, row=number, keys=("id",)
        )

    changes = {
        b"0": [row(PARCELS, 1, 1)],
        b"2": [row(LOCKERS, 2, 2), row(PARCELS, 9, 3, 1)],
        b"4": [row(PARCELS, 5, 4)],
    }
    mine = decoder(changes)
    list(mine.lift(bronze([Message(str(at).encode()) for at in (0, 0, 2, 2, 4, 4)])))
    assert {"parcels": {1}, "lockers": {0}} == {
        table: {line.turned_back for line in mine.lines.values() if line.table == table}
        for table in ("parcels", "lockers")
    }


def test_books_count_what_gold_asks_for():
    """An update not counted as a change of its key would leave the row under its old key."""
    names = {"id": "int64"}
    changes = {
        b"0": [change(Op.INSERT, keys=("id",), after={"id": "1", "v": "a"}, types=names, note="odd")],
        b"2": [change(Op.UPDATE, keys=("id",), before={"id": "1"}, after={"id": "2"}, types=names)],
        b"4": [change(Op.UPDATE, keys=("id",), before={"id": "2"}, after={"v": "b"}, partial=True)],
        b"6": [change(Op.UPDATE, before={"v": "b"}, after={"v": "c"}, partial=True, event_time=5)],
        b"8": [change(Op.DELETE, keys=("id",), before={"id": "2", "w": None}, event_time=3)],
    }
    mine = decoder(changes)
    list(mine.lift(bronze([Message(str(at).encode()) for at in (0, 0, 2, 2, 4, 4, 6, 6, 8, 8)])))
    (line, _) = merged(mine.lines.values())  # the even offsets' partition
    assert (5, 1, 3, 1) == (line.changes, line.inserts, line.updates, line.deletes)
    assert (2, 2, 1, 1) == (line.partials, line.key_changes, line.inherits, line.noted)
    assert (3, 5) == (line.event_low, line.event_high)
    assert [["id"]] == line.keys
    assert {"id": "int64", "v": "unknown", "w": "unknown"} == line.columns


def test_tables_left_out_are_counted_and_not_written():
    """A message that is left out without a count could not be distinguished from a lost one."""
    changes = {
        b"in": [change(Op.INSERT, after={"id": "1"})],
        b"out": [change(Op.INSERT, LOCKERS, after={"id": "1"})],
    }
    mine = decoder(changes, TableRule(match="lockers", exclude=True), TableRule())
    pages = list(mine.lift(bronze([Message(value) for value in (b"in", b"out")])))
    assert ["parcels"] == [row["table"] for page in pages for row in page.to_pylist()]
    assert {"parcels": 0, "lockers": 1} == {line.table: line.routed_out for line in mine.lines.values()}


IN, OUT = change(Op.INSERT, after={"id": "1"}), change(Op.DELETE, LOCKERS, before={"id": "1"})
SAID = change(Op.DDL, LOCKERS, ddl="RENAME TABLE lockers TO parcels")
BEGIN, COMMIT = change(Op.BEGIN, NO_TABLE), change(Op.COMMIT, NO_TABLE)


@pytest.mark.parametrize(
    ("changes", "kept", "counted"),
    [
        ([OUT, IN], ["insert"], (PARCELS, "change_messages")),
        ([IN, OUT], ["insert"], (PARCELS, "change_messages")),
        ([SAID, IN], ["ddl", "insert"], (PARCELS, "ddl")),
        ([SAID, BEGIN, OUT, IN, COMMIT], ["begin", "commit", "ddl", "insert"], (NO_TABLE, "ddl")),
        ([BEGIN, OUT, COMMIT], [], (LOCKERS, "routed_out")),
        ([OUT, BEGIN], [], (LOCKERS, "routed_out")),
        ([OUT, SAID, OUT], ["ddl"], (LOCKERS, "ddl")),
    ],
    ids=lambda value: "-".join(each.op for each in value if isinstance(each, Change)),
)
def test_a_message_of_several_tables_loses_only_rows_of_those_left_out(
    changes: list[Change], kept: list[str], counted: tuple[TableId, str]
):
    """An envelope holds events of many tables: one table's rule must not take the others' rows along, nor they let its in."""
    numbered = [msgspec.structs.replace(each, row=at) for at, each in enumerate(changes)]
    mine = decoder({b"several": numbered}, TableRule(match="lockers", exclude=True), TableRule())
    pages = list(mine.lift(bronze([Message(b"several")])))
    assert kept == sorted(row["op"] for page in pages for row in page.to_pylist())
    (line,) = [line for line in mine.lines.values() if line.messages]
    assert (counted[0], 1) == (line.table_id, getattr(line, counted[1]))
    uncounted = 0 if counted[1] == "routed_out" else changes.count(OUT)
    assert uncounted == sum(each.left_out for each in mine.lines.values() if each.table_id == LOCKERS)
    assert uncounted == sum(each.left_out for each in mine.lines.values())
    assert line.messages == line.change_messages + line.ddl + line.control + line.routed_out


CRATES = TableId("depot", None, "crates")


def test_rows_of_a_second_table_that_is_left_out_are_counted_and_truncates_are_no_rows():
    """Once a table is no longer excluded, its rows are said to be missing if there were any."""
    also = change(Op.INSERT, CRATES, after={"id": "1"}, row=1)
    emptied = [change(Op.TRUNCATE, LOCKERS), change(Op.DDL, LOCKERS, ddl="TRUNCATE TABLE lockers", row=1)]
    rules = [TableRule(match=name, exclude=True) for name in ("lockers", "crates")]
    mine = decoder({b"rows": [OUT, also], b"emptied": emptied}, *rules, TableRule())
    list(mine.lift(bronze([Message(b"rows"), Message(b"emptied")])))
    counts = {(line.table, line.routed_out, line.left_out) for line in mine.lines.values() if line.messages}
    assert ("lockers", 1, 0) in counts
    assert {("crates", 1)} == {(line.table, line.left_out) for line in mine.lines.values() if line.left_out}


def test_what_cannot_be_written_is_set_aside_alone():
    """One lone surrogate in one row must not take the batch with it."""
    changes = {
        b"good": [change(Op.INSERT, after={"id": "1"})],
        b"bad": [change(Op.INSERT, after={"id": "\ud800"})],
        b"late": [change(Op.INSERT, after={"id": "1"}, event_time=2**70)],
    }
    pages = list(decoder(changes).lift(bronze([Message(value) for value in changes])))
    assert [("change", 0), ("reject", 1), ("reject", 2)] == [
        (row["kind"], row["offset"]) for page in pages for row in page.to_pylist()
    ]


def test_a_record_too_large_to_land_is_reported():
    """Its value is cut off: decoded as it is, it would give a wrong row."""
    cut = Message(b"good", headers=((OVERSIZE, b"99"),))
    (page,) = decoder({b"good": [change(Op.INSERT, after={"id": "1"})]}).lift(bronze([cut]))
    reject = json.loads(page.to_pylist()[0]["payload"])
    assert "record-too-large" == reject["reason"]
    assert "99 bytes, more than its source's max_record_bytes, and was not kept: write" in reject["detail"]


@pytest.mark.parametrize("size", [1, 2, 9])
def test_a_moved_row_names_its_old_key(size: int):
    """A file has no headers: without the old key, an unchanged large value of a moved row would become NULL."""

    def event(op: str, lsn: int, **images: object) -> Message:
        source = {"connector": "postgresql", "db": "depot", "schema": "s", "table": "parcels", "lsn": lsn}
        return Message(json.dumps({"op": op, "source": source, **images}).encode())

    large = "__debezium_unavailable_value"
    messages = [
        event("d", 7, before={"no": 1, "text": None}),
        Message(b'{"ts_ms": 1714521600000}'),
        event("c", 7, after={"no": 2, "text": large}),
        event("u", 7, after={"no": 3, "text": large}),
        event("d", 8, before={"no": 4, "text": None}),
        event("c", 9, after={"no": 5, "text": large}),
    ]
    source, rule = Source("s", "files", "debezium", path="/none"), TableRule(keys=("no",))
    how = Lifting(Pipeline("p", Path("/p.yaml"), "/none", (source,), (rule,)))
    pages = [bronze(messages[at : at + size], at) for at in range(0, len(messages), size)]
    whole = (in_partitions(page, len(messages)) for page in pages)
    found = [row for page in lift(how)(whole) for row in page.to_pylist()]
    moved = {
        row["offset"]: (row["op"], row["before"])
        for row in found
        if row["kind"] == "change" and row["op"] != "delete"
    }
    assert {2: ("update", '{"no":"1"}'), 3: ("update", None), 5: ("update", None)} == moved
    assert 1 == sum(json.loads(row["payload"])["inherits"] for row in found if row["kind"] == "book")


def test_equal_places_in_two_topics_are_two_arrivals() -> None:
    """Changes without positions would have one order key, and a fold would keep one of them."""
    changes = {b"a": [change(Op.INSERT, after={"id": "1"})], b"b": [change(Op.UPDATE, after={"id": "1"})]}
    how = lifting("dms", TableRule())
    source = replace(how.pipeline.sources[0], kind="kafka")
    mine = SourceDecoder(replace(how, pipeline=replace(how.pipeline, sources=(source,))), "s")
    mine.parse, mine.parse_many = (lambda message, _hints: changes[message.value or b""]), None
    pages = [bronze([Message(value, topic=value.decode())], 40) for value in changes]
    rows = [row for page in pages for made in mine.lift(page) for row in made.to_pylist()]
    keys = {row["order_key"] for row in rows if row["kind"] == "change"}
    assert len(keys) == 2
