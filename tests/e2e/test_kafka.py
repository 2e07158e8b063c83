"""Kafka sources against a real broker: what lands, what is counted, what is never passed over."""

from __future__ import annotations

import json
import textwrap
import uuid
from dataclasses import replace
from datetime import datetime

import pytest

from ingest.bronze import kafka, offsets
from ingest.bronze.land import last_batch
from ingest.bronze.offsets import Place
from ingest.bronze.positions import Positions
from ingest.change import TableId
from ingest.config import load
from ingest.config.model import TableRule
from ingest.run import Warm, run
from ingest.tables.lake import Lake
from tests.e2e.registry import ENVELOPE, KEY, plant_event
from tests.e2e.topics import Sent
from tests.formats.one_history.debezium import registry as schemas
from tests.formats.one_history.history import KEYS, history
from tests.formats.one_history.test_one_history import DIALECTS
from tests.formats.protobuf_cases import in_parts
from tests.lakes import write_by_spark
from tests.timing import until

pytestmark = pytest.mark.spark
LAND = ("bronze", "silver")
FOLD = (*LAND, "gold")


@pytest.fixture
def pipeline(tmp_path, broker):
    """Writes a pipeline file of one Kafka source and loads it."""

    def write(format_="canal", engine="auto", **keys):
        text = f"pipeline: garden\nlake: ./lake\nengine: {engine}\nsources:\n  - name: beds\n    format: {format_}\n"
        keys = {"bootstrap_servers": broker.address, **keys}
        lines = "".join(f"{name}: {json.dumps(value)}\n" for name, value in keys.items())
        file = tmp_path / "garden.yaml"
        file.write_text(text + textwrap.indent(lines, "    "))
        return load(file)

    return write


@pytest.fixture
def name():
    """A topic's name that no other test uses."""
    return f"garden-{uuid.uuid4().hex[:8]}"


def canal(key, height, op="UPDATE"):
    """One Canal message of a plant."""
    row = {"id": str(key), "height": str(height)}
    body = {
        "database": "garden", "table": "plants", "type": op, "isDdl": False, "pkNames": ["id"],
        "mysqlType": {"id": "bigint", "height": "int"}, "sqlType": {"id": -5, "height": 4},
        "es": 1_700_000_000_000 + height, "ts": 1_700_000_000_500, "id": 1, "data": [row], "old": None,
    }  # fmt: skip
    return json.dumps(body).encode()


def landed(spark, pipeline):
    """The messages in bronze as ``(partition, offset, key, value)``."""
    rows = Lake(spark, pipeline).read("bronze").where("kind = 'message'").orderBy("partition", "offset")
    return [tuple(row) for row in rows.select("partition", "offset", "key", "value").collect()]


def receipts(spark, pipeline):
    """All receipts as mappings."""
    rows = Lake(spark, pipeline).read("bronze").where("kind = 'receipt'").orderBy("batch").collect()
    return [{"batch": row["batch"], **json.loads(bytes(row["value"]))} for row in rows]


def test_from_topic_to_mirror(spark, pipeline, topics, name):
    """Three partitions, two runs: the mirror must hold each key's last change, the books every message."""
    topics.make(name, 3)
    topics.send(name, [Sent(canal(n, 1, "INSERT"), b"%d" % n, n % 3) for n in range(30)])
    made = pipeline(topics=[name], start="earliest")
    warm = Warm()
    first = run(spark, made, FOLD, warm)
    assert ([], 1, 30, 30) == (first.failures, first.batch, first.read, first.changes)
    idle = run(spark, made, FOLD, warm)
    assert (None, 0, []) == (idle.batch, idle.read, idle.failures)
    topics.send(name, [Sent(canal(n, 2), b"%d" % n, n % 3) for n in range(0, 30, 2)])
    second = run(spark, made, FOLD, Warm())
    assert (2, 15, []) == (second.batch, second.read, second.failures)
    mirror = Lake(spark, made).read("mirrors/garden/plants").collect()
    assert {n: 1 + (n % 2 == 0) for n in range(30)} == {row["id"]: row["height"] for row in mirror}


@pytest.mark.parametrize("writer", ["spark", "arrow"])
def test_everything_of_a_message(spark, pipeline, topics, name, monkeypatch, writer):
    """Key, value, headers and time as sent, a null is not an empty text; none of it may be made up."""
    topics.make(name)
    sent = [
        Sent(b"\x00\xff", b"k", headers=[("a", b"1"), ("a", None), ("b", b"")], timestamp=1_700_000_000_123),
        Sent(None, b"gone"),
        Sent(b"", None),
        Sent(b"v", b""),
    ]
    topics.send(name, sent)
    if writer == "spark":
        write_by_spark(monkeypatch)
    made = pipeline(topics=[name])
    run(spark, made, ("bronze",))
    assert [(0, n, one.key, one.value) for n, one in enumerate(sent)] == landed(spark, made)
    row = Lake(spark, made).read("bronze").where("`offset` = 0 AND kind = 'message'").selectExpr(
        "headers", "unix_millis(timestamp) AS at", "topic", "source", "batch"
    ).first()  # fmt: skip
    assert [("a", b"1"), ("a", None), ("b", b"")] == [tuple(one) for one in row["headers"]]
    assert (1_700_000_000_123, name, "beds", 1) == (row["at"], row["topic"], row["source"], row["batch"])


def test_aborted_transactions(spark, pipeline, topics, name):
    """Aborted messages must not land, and the holes that they leave are not a loss."""
    topics.make(name)
    good = [Sent(canal(n, 1, "INSERT")) for n in range(5)]
    topics.transactions(name, (good[:3], True), ([Sent(b"never")] * 4, False), (good[3:], True))
    made = pipeline(topics=[name])
    result = run(spark, made, LAND, Warm())
    assert (5, []) == (result.read, result.failures)
    assert [one.value for one in good] == [value for _, _, _, value in landed(spark, made)]
    topics.transactions(name, ([Sent(b"never")] * 4, False))
    nothing = run(spark, made, LAND, Warm())
    assert (0, []) == (nothing.read, nothing.failures)
    topics.send(name, [Sent(canal(9, 1))])
    more = run(spark, made, LAND, Warm())
    assert (1, []) == (more.read, more.failures)


def test_compacted_topic(spark, pipeline, topics, name, tmp_path):
    """What compaction has left lands once; the holes, also where a batch ends or begins, are not a loss."""
    topics.make(
        name, **{"cleanup.policy": "compact", "segment.ms": "60000", "min.cleanable.dirty.ratio": "0.001"}
    )

    def sent(heights):
        return [
            Sent(canal(key, height), b"%d" % key, timestamp=1_700_000_000_000 + height)
            for height in heights
            for key in range(5)
        ]

    topics.send(name, sent(range(1, 7)))
    made, warm = pipeline(topics=[name]), Warm()
    first = run(spark, made, LAND, warm)
    assert (30, []) == (first.read, first.failures)
    last_of_the_segment = Sent(None, b"0", timestamp=1_700_000_000_020)
    topics.send(name, [*sent(range(7, 10)), last_of_the_segment])
    # much later: a new segment, so that the one before is compacted
    topics.send(name, [Sent(canal(9, 1), b"9")])
    until(lambda: [41, 42, 43, 44, 45, 46] == [offset for offset, *_ in topics.held(name)])
    second = run(spark, made, LAND, warm)
    assert (6, 5, 1, []) == (second.read, second.changes, second.control, second.failures)
    kept = [(0, *one) for one in topics.held(name)]
    assert kept == [one for one in landed(spark, made) if one[1] >= 30]
    assert [*range(30), *range(41, 47)] == [offset for _, offset, *_ in landed(spark, made)]
    nothing = run(spark, made, LAND, warm)
    assert (None, 0, []) == (nothing.batch, nothing.read, nothing.failures)
    topics.send(name, [Sent(canal(8, 1), b"8")])
    assert (1, []) == ((third := run(spark, made, LAND, Warm())).read, third.failures)

    fresh = replace(made, lake=str(tmp_path / "fresh"))  # its first position lies in a hole
    result = run(spark, fresh, LAND)
    assert (7, []) == (result.read, result.failures)
    assert [(0, *one) for one in topics.held(name)] == landed(spark, fresh)


def test_a_delete_of_which_compaction_left_the_tombstone(spark, pipeline, topics, name):
    """It has no place in the source's order, so its row stays: the run must say so."""
    topics.make(name)
    source = {
        "connector": "mysql",
        "db": "garden",
        "table": "plants",
        "file": "log.000001",
        "row": 0,
        "pos": 4,
    }
    row = json.dumps({"op": "c", "before": None, "after": {"id": 1}, "source": source}).encode()
    topics.send(name, [Sent(row, b'{"id": 1}')])
    made, warm = pipeline("debezium", topics=[name], start="earliest"), Warm()
    assert [] == run(spark, made, warm=warm).failures
    topics.send(name, [Sent(None, b'{"id": 1}')])
    [failure] = run(spark, made, warm=warm).failures
    assert f"1 null value in {name} deleted no row" in failure


def test_uncommitted_on_request(spark, pipeline, topics, name):
    """``isolation.level`` of the file wins over the default, as every Kafka setting does."""
    topics.make(name)
    topics.transactions(name, ([Sent(b"a")], False))
    made = pipeline(topics=[name], kafka={"isolation.level": "read_uncommitted"})
    assert 1 == run(spark, made, ("bronze",)).read


def test_bounded_batches(spark, pipeline, topics, name):
    """A batch takes the oldest messages of all partitions, not all of one before the next."""
    topics.make(name, 2)
    base = 1_700_000_000_000
    topics.send(
        name, [Sent(b"%d" % n, partition=p, timestamp=base + 1000 * n) for n in range(100) for p in (0, 1)]
    )
    made = pipeline(topics=[name], max_messages=60)
    warm = Warm()
    counts = [run(spark, made, ("bronze",), warm).read for _ in range(5)]
    assert [60, 60, 60, 20, 0] == counts
    ahead = [one for one in receipts(spark, made) if one["batch"] == 1 and not one["count"]]
    assert {29, 30, 31} >= {one["to"] for one in ahead}
    assert 200 == len(set(landed(spark, made)))


def test_new_partitions_and_topics(spark, pipeline, topics, name):
    """What appears later is read from its beginning even where the source began at the end."""
    topics.make(f"{name}-a")
    topics.send(f"{name}-a", [Sent(b"old")])
    made = pipeline(topic_pattern=f"{name}-.*", start="latest")
    first = run(spark, made, ("bronze",))
    assert (1, 0) == (first.batch, first.read)
    topics.grow(f"{name}-a", 2)
    topics.make(f"{name}-b")
    topics.send(f"{name}-a", [Sent(b"one"), Sent(b"two", partition=1)])
    topics.send(f"{name}-b", [Sent(b"three")])
    second = run(spark, made, ("bronze",))
    assert (3, []) == (second.read, second.failures)
    assert {b"one", b"two", b"three"} == {value for *_, value in landed(spark, made)}


def test_start_at_a_time(spark, pipeline, topics, name):
    """A start in time must find the first message at or after it."""
    topics.make(name)
    base = 1_714_521_600_000  # 2024-05-01T00:00:00Z
    topics.send(name, [Sent(b"%d" % n, timestamp=base + n * 1000) for n in range(-2, 3)])
    made = pipeline(topics=[name], start="2024-05-01T00:00:00Z")
    run(spark, made, ("bronze",))
    assert [b"0", b"1", b"2"] == [value for *_, value in landed(spark, made)]


def test_start_at_offsets(spark, pipeline, topics, name):
    """Offsets of the file hold for the partitions that it names."""
    topics.make(name, 2)
    topics.send(name, [Sent(b"%d" % n, partition=p) for n in range(4) for p in (0, 1)])
    made = pipeline(topics=[name], start={name: {"1": 3}})
    run(spark, made, ("bronze",))
    assert [0, 0, 0, 0, 1] == [partition for partition, *_ in landed(spark, made)]


def gaps(spark, made):
    """The gaps of the pipeline's source as its file is now."""
    lake = Lake(spark, made)
    positions = Positions()
    positions.catch_up(lake, last_batch(lake))
    return lake, kafka.look(lake, made.sources[0], positions.places["beds"]).plan.gaps


def test_retention_overtakes(spark, pipeline, topics, name):
    """Messages that retention took unread are an alarm every time, until the operator accepts the loss."""
    topics.make(name, 2)
    topics.send(name, [Sent(b"%d" % n) for n in range(10)])
    made = pipeline(topics=[name])
    run(spark, made, ("bronze",))
    topics.send(name, [Sent(b"%d" % n) for n in range(10, 30)] + [Sent(b"other", partition=1)])
    topics.trim(name, 0, 20)
    alarm = run(spark, made, ("bronze",))
    assert 1 == alarm.exit_code
    assert f"{name}/0" in alarm.failures[0]
    assert "offsets 10 to 19 were not read" in alarm.failures[0]
    assert 1 == alarm.read, "the other partition goes on"
    lake, found = gaps(spark, made)
    offsets.accept(lake, made.sources[0], found, last_batch(lake))
    after = run(spark, made, ("bronze",))
    assert (10, 0) == (after.read, after.exit_code)
    assert [*range(10), *range(20, 30)] == [offset for p, offset, *_ in landed(spark, made) if p == 0]
    assert [] == run(spark, made, ("bronze",)).failures


def test_topic_made_again(spark, pipeline, topics, name):
    """A topic deleted and made again must not look like progress, whatever its offsets are."""
    topics.make(name)
    topics.send(name, [Sent(b"old-%d" % n) for n in range(3)])
    made = pipeline(topics=[name])
    run(spark, made, ("bronze",))
    topics.delete(name)
    assert "its topic deleted" in run(spark, made, ("bronze",)).failures[0]
    topics.make(name)
    topics.send(name, [Sent(b"new-%d" % n) for n in range(5)])
    alarm = run(spark, made, ("bronze",))
    assert (None, 0) == (alarm.batch, alarm.read)
    assert "made again" in alarm.failures[0]
    lake, found = gaps(spark, made)
    assert [Place(name, 0)] == [gap.place for gap in found]
    offsets.accept(lake, made.sources[0], found, last_batch(lake))
    after = run(spark, made, ("bronze",))
    assert (5, []) == (after.read, after.failures)


def test_broker_down(spark, pipeline, topics, name):
    """A broker that is away costs its own source one sentence, without the password in it."""
    topics.make(name)
    made = pipeline(
        topics=[name],
        bootstrap_servers="127.0.0.1:1",
        kafka={"default.api.timeout.ms": "3000", "request.timeout.ms": "2000", "sasl.jaas.config": "hush"},
    )
    result = run(spark, made, ("bronze",))
    assert 1 == result.exit_code
    assert "127.0.0.1:1 cannot be asked" in result.failures[0]
    assert "hush" not in result.failures[0]


def test_framed_avro(spark, pipeline, topics, registry, name):
    """Schemas are asked for once and kept: decoding goes on when the registry is away, new ids wait for it."""
    topics.make(name)
    key, value = registry.add(KEY), registry.add(ENVELOPE)

    def sent(number, height, op, place):
        return Sent(
            registry.framed(value, plant_event(number, height, op, place)),
            registry.framed(key, {"id": number}),
        )

    topics.send(name, [sent(1, 10, "c", 1), sent(2, 20, "c", 2)])
    made = pipeline("debezium-avro", topics=[name], registry=registry.url)
    warm = Warm()
    first = run(spark, made, FOLD, warm)
    assert ([], 0, 2) == (first.failures, first.rejected, first.changes)
    registry.stop()
    topics.send(name, [sent(1, 11, "u", 3), sent(2, 20, "d", 4)])
    second = run(spark, made, FOLD, warm)
    assert ([], 0, 2) == (second.failures, second.rejected, second.changes)
    assert [1, 2] == sorted(registry.asked)

    later = registry.add({**ENVELOPE, "doc": "a later version"})
    topics.send(name, [Sent(registry.framed(later, plant_event(3, 30, "c", 5)))])
    down = run(spark, made, FOLD, warm)
    assert (1, 1, 0) == (down.exit_code, down.read, down.changes)
    assert "gave no answer" in down.failures[0]
    registry.start()
    up = run(spark, made, FOLD, warm)
    assert ([], 1) == (up.failures, up.changes)
    mirror = Lake(spark, made).read("mirrors/garden/plants").collect()
    assert {1: 11, 3: 30} == {row["id"]: row["height"] for row in mirror}


@pytest.mark.parametrize(
    "dialect", ["canal-protobuf", "tencent-protobuf", "qlik-replicate", "ogg-avro compressed"]
)
def test_a_history_from_a_topic_ends_in_the_sources_rows(spark, pipeline, topics, registry, name, dialect):
    """Binary and text formats through the broker's batches and the client: every row, and the books of every message."""
    written, writer = history(7, length=40), DIALECTS[dialect]
    topics.make(name)
    sent = [Sent(each.value, each.key) for each in writer.write(written) if each.value]
    if dialect == "tencent-protobuf":  # the service splits what is too large for a message
        cuts = [in_parts(each.value, 1 + at % 3) if at % 3 else [each.value] for at, each in enumerate(sent)]
        sent = [Sent(part) for parts in cuts for part in parts]
    topics.send(name, sent)
    registry.texts |= schemas()
    options = {"registry": registry.url} if writer.hints.schema else {}
    declared = writer.hints.tables(TableId("depot", None, "parcels"))
    made = pipeline(writer.format, topics=[name], start="earliest", **options)
    rule = TableRule(keys=declared.keys or KEYS, columns=declared.columns)
    source = replace(made.sources[0], options=writer.hints.options)
    made = replace(made, sources=(source,), tables=(rule,))
    result = run(spark, made, (*FOLD, "quality"), Warm())
    assert ([], 0, len(sent)) == (result.failures, result.rejected, result.read)
    columns = ("id", "lane", "pieces", "fee", "remark", "sent_on", "packed_at")
    mirror = Lake(spark, made).read("mirrors/depot/parcels").select(*columns).collect()
    as_sent = {key: tuple(row.get(column) for column in columns) for key, row in written.rows.items()}
    assert as_sent == {(str(row["id"]), row["lane"]): tuple(map(_text, row)) for row in mirror}


def _text(value):
    """A cell as its canonical text."""
    if isinstance(value, datetime):
        return value.isoformat(" ").rstrip("0").rstrip(".") if value.microsecond else value.isoformat(" ")
    return None if value is None else str(value)


def test_unknown_schema(spark, pipeline, topics, registry, name):
    """An id that the registry lacks costs its message, not the batch."""
    topics.make(name)
    value = registry.add(ENVELOPE)
    known = registry.framed(value, plant_event(1, 10, "c", 1))
    topics.send(name, [Sent(known), Sent(b"\x00\x00\x00\x00\x63" + known[5:])])
    made = pipeline("debezium-avro", topics=[name], registry=registry.url)
    result = run(spark, made, LAND, Warm())
    assert ([], 1, 1) == (result.failures, result.changes, result.rejected)
    assert ["unknown-schema"] == [row["reason"] for row in Lake(spark, made).read("rejects").collect()]


@pytest.mark.parametrize("writer", ["spark", "arrow"])
def test_lost_between_look_and_read(spark, pipeline, topics, name, monkeypatch, writer):
    """What retention takes while a batch begins must land nothing, and be a gap on the next run."""
    topics.make(name)
    topics.send(name, [Sent(b"%d" % n) for n in range(10)])
    if writer == "spark":
        write_by_spark(monkeypatch)
    made = pipeline(topics=[name], start={name: {"0": 0}})
    seen = kafka.look(Lake(spark, made), made.sources[0], {})
    topics.trim(name, 0, 5)
    with monkeypatch.context() as patch:
        patch.setattr(kafka, "look", lambda *_: seen)
        result = run(spark, made, ("bronze",))
    assert (None, 0, 1) == (result.batch, result.read, result.exit_code)
    assert "reading failed" in result.failures[0]
    assert "offsets 0 to 4 were not read" in run(spark, made, ("bronze",)).failures[0]
