"""Messages in parts: read as the whole ones, however tasks and batches separate the parts, and named where some are missing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ingest.change import Options
from ingest.config import Pipeline, Source, load
from ingest.decoding.split import MessagePart
from ingest.erase import plan as planning
from ingest.erase import replacements
from ingest.formats import tencent_protobuf
from ingest.ledgers import rejects
from ingest.ledgers.barriers import left_of
from ingest.run import run
from ingest.silver import preview, replay, split_lookup
from ingest.silver.decode import lifted, lifting
from ingest.silver.lift import INPUT, Lifting, lift
from ingest.silver.rebuild import rebuild
from ingest.silver.split_messages import Spot, Wholes, part_rows, put_together
from ingest.store.envelope import NOT_SEALED
from ingest.tables.lake import Lake
from ingest.tables.schemas import BRONZE
from tests.formats.one_history.history import history
from tests.formats.one_history.test_one_history import DIALECTS
from tests.formats.protobuf_cases import in_parts
from tests.unstarted import unstarted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "tencent-protobuf"
HOW = Lifting(
    Pipeline("p", Path("/p.yaml"), "/lake", (Source("s", "kafka", NAME, Options(), topics=("t",)),), ())
)


def envelopes(seed: int = 1) -> list[bytes]:
    """Whole envelopes of a history."""
    return [sent.value for sent in DIALECTS[NAME].write(history(seed)) if sent.value]


Landed = tuple[int, int, bytes]  # batch, offset, value


def pages(landed: Sequence[Landed], size: int) -> list[pa.RecordBatch]:
    """Bronze rows in Arrow batches of a size."""
    rows = [
        {
            "source": "s",
            "topic": "t",
            "partition": 0,
            "batch": batch,
            "offset": offset,
            "value": value,
            "headers": [],
        }
        for batch, offset, value in landed
    ]
    schema = BRONZE.part(*INPUT)
    return [
        pa.RecordBatch.from_pylist(rows[at : at + size], schema=schema) for at in range(0, len(rows), size)
    ]


def decoded(
    landed: Sequence[Landed], size: int, *, every: bool = False, over_batches: bool = False
) -> tuple[list[tuple[object, ...]], int, Wholes]:
    """The changes of messages, how many are rejects, and what the lookup says."""
    look = part_rows(lambda page: page, {"s": NAME}, every=every)
    rows = [row for page in look(iter(pages(landed, size))) for row in page.to_pylist()]
    parts = {Spot.of(row): MessagePart(*(row[name] for name in MessagePart._fields)) for row in rows}
    wholes = put_together(parts, tencent_protobuf.joined, over_batches=over_batches)
    written = lift(replace(HOW, wholes=wholes))(iter(pages(landed, size)))
    done = [row for page in written for row in page.to_pylist()]
    changes = sorted(
        (row["sequence"], row["row"], row["op"], row["table"], str(row["before"]), str(row["after"]))
        for row in done
        if row["kind"] == "change"
    )
    return changes, sum(row["kind"] == "reject" for row in done), wholes


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
@pytest.mark.parametrize("every", [False, True])
def test_parts_are_read_as_the_whole_message(size: int, every: bool) -> None:
    """Rows of an event that is too large for a message would be missing in the mirror, or there twice."""
    random = Random(f"parts {size}")
    whole = envelopes()
    sent: list[bytes] = []
    broken_off = 0
    for envelope in whole:
        parts = random.choice((1, 1, 2, 3, 4))
        if parts == 1:
            sent.append(envelope)
            continue
        cuts = in_parts(envelope, parts)
        begun = cuts[: random.randrange(parts)] if random.random() < 0.3 else []  # and sent again
        broken_off += len(begun)
        sent += begun + cuts
    landed = [(1, offset, value) for offset, value in enumerate(sent)]
    expected, _, _ = decoded([(1, offset, value) for offset, value in enumerate(whole)], 1000)
    changes, refused, _ = decoded(landed, size, every=every)
    assert broken_off
    assert (expected, broken_off) == (changes, refused)


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("twice", [0, 1, 2])
def test_a_message_is_read_of_which_a_part_came_twice(size: int, every: bool, twice: int) -> None:
    """What a producer sends again would lose the whole message."""
    [envelope, *_] = envelopes()
    expected, _, _ = decoded([(1, 0, envelope)], 1)
    parts = in_parts(envelope, 3)
    parts.insert(twice, parts[twice])
    landed = [(1, offset, value) for offset, value in enumerate(parts)]
    changes, refused, _ = decoded(landed, size, every=every)
    assert (expected, 1) == (changes, refused)


@pytest.mark.parametrize("size", [1, 1000])
def test_parts_between_which_another_message_lies_are_of_two(size: int) -> None:
    """Where a message was lost, or tasks have read other offsets, halves of two events would be read as one."""
    [envelope, *_] = envelopes()
    first, second = in_parts(envelope, 2)
    changes, refused, wholes = decoded([(1, 0, first), (1, 2, second)], size)
    assert ([], 2, {}) == (changes, refused, dict(wholes.read))


@pytest.mark.parametrize("size", [1, 1000])
def test_parts_of_several_batches_are_left_to_a_replay(size: int) -> None:
    """A rebuild must refuse the parts that the runs have refused, which knew no later batch."""
    [envelope, *_] = envelopes()
    expected, _, _ = decoded([(1, 0, envelope)], 1)
    first, second, third = in_parts(envelope, 3)
    landed = [(1, 0, first), (2, 1, second), (2, 2, third)]
    changes, refused, wholes = decoded(landed, size)
    assert ([], 3, {}) == (changes, refused, dict(wholes.read))
    changes, refused, wholes = decoded(landed, size, every=True, over_batches=True)
    assert (expected, 0) == (changes, refused)
    assert {Spot("s", "t", 0, 2, 2): (Spot("s", "t", 0, 1, 0), Spot("s", "t", 0, 2, 1))} == wholes.others


def test_a_replay_takes_no_part_without_those_of_other_batches() -> None:
    """The mark of a part would close its reject, and the last part alone could never be read."""
    first, second, last = (Spot("s", "t", 0, batch, offset) for batch, offset in ((1, 0), (2, 1), (2, 2)))
    others = {last: (first, second)}
    for there, taken in (
        ([first, second, last], [first, second, last]),
        ([first, last], [first, last]),  # the second one is a mark of the last one's batch
        ([first, second], []),
        ([second, last], []),
    ):
        rows = replay._complete([spot._asdict() for spot in there], others)
        assert taken == [Spot(**row) for row in rows]


def test_a_sample_need_not_have_all_parts() -> None:
    """A plan would foretell rejects wherever its sample ends."""
    [envelope, *_] = envelopes()
    [first, _] = in_parts(envelope, 2)
    landed = [(1, "s", "t", 0, offset, None, value, None) for offset, value in enumerate([first, b"damaged"])]
    [reject] = preview.decode(HOW.pipeline, landed).rejects
    assert "split-message" != reject[2]


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize(
    "lacking",
    [
        lambda a, b: a[:2],
        lambda a, b: a[1:],
        lambda a, b: [a[0], a[2]],
        lambda a, b: [*a[:2], b[-1]][::-1],
        lambda a, b: [a[0], b[1]],
    ],
)
def test_parts_of_which_some_are_missing_are_named(lacking, size: int) -> None:
    """Bytes of two messages would be read as one, or a lost event be silent."""
    a, b = (in_parts(envelope, total) for envelope, total in zip(envelopes()[:2], (3, 2), strict=True))
    sent = lacking(a, b)
    changes, refused, wholes = decoded([(1, offset, value) for offset, value in enumerate(sent)], size)
    assert ([], len(sent), {}) == (changes, refused, dict(wholes.read))


@pytest.mark.parametrize(
    "damaged",
    [
        b"\x08\x01\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x18\xff\xff\xff\xff\x7f\x22\x01a",
        b"\x08\x01\x10\x80\x80\x04\x18\xff\xff\x03\x22\x01a",
        b"\x08\x01\x10\x02\x18\x05\x22\x01a",
        b"\x08\x01\x10\x02\x22\x05a",
    ],
)
def test_a_damaged_part_ends_no_run(damaged: bytes) -> None:
    """A number of parts that nothing can hold would take the memory of the task, or of the run."""
    [envelope, *_] = envelopes()
    expected, _, _ = decoded([(1, 0, envelope)], 1)
    changes, refused, _ = decoded([(1, 0, damaged), (1, 1, envelope)], 1)
    assert (expected, 1) == (changes, refused)


class Yard:
    """A lake of one growing file of envelopes, some of them in parts; the first run ends after a message's second part."""

    def __init__(self, folder: Path, *stages: str) -> None:
        self.whole = envelopes()
        self.sent = [
            part
            for at, value in enumerate(self.whole)
            for part in ([value] if at % 3 else in_parts(value, 3))
        ]
        (folder / "yard.yaml").write_text(
            "pipeline: yard\nlake: ./lake\nengine: auto\nsources:\n  - name: s\n    path: ./in.bin\n"
            f"    format: {NAME}\n    settle: 0s\n"
        )
        pipeline = load(folder / "yard.yaml")
        self.lake = Lake(unstarted(), pipeline)
        self.offsets = [4 * at + sum(map(len, self.sent[:at])) for at in range(len(self.sent))]
        parts = [tencent_protobuf.part(value) for value in self.sent]
        numbers = [None if part is None else part.number for part in parts]
        self.first = numbers.index(1) + 1
        self.lasts = [at for at, number in enumerate(numbers) if number == 2]
        self.waiting: list[list[str]] = []  # the codes of open rejects after each run
        framed = [len(value).to_bytes(4, "big") + value for value in self.sent]
        for end in (self.first, len(self.sent)):
            (folder / "in.bin").write_bytes(b"".join(framed[:end]))
            failures = run(unstarted(), pipeline, stages).failures
            assert not failures, str(failures)
            self.lake = Lake(unstarted(), pipeline)
            self.waiting.append([row["reason"] for row in rejects.waiting(self.lake)])

    def changes(self) -> tuple[int, int]:
        """The number of changes, and of their places."""
        [rows] = self.lake.ask(
            "SELECT count(*) AS n, count(DISTINCT order_key) AS places FROM {changes.change}"
        )
        return rows["n"], rows["places"]


def test_a_run_has_the_parts_of_several_batches_as_rejects(tmp_path: Path) -> None:
    """A row would be lost without a word; all that a batch has of a message is put together."""
    yard = Yard(tmp_path, "bronze", "silver")
    assert [["split-message"] * 2, ["split-message"] * 3] == yard.waiting
    [books] = yard.lake.ask("SELECT sum(messages) AS messages, sum(rejected) AS rejected FROM {books}")
    assert (len(yard.sent), 3) == (books["messages"], books["rejected"])
    expected, _, _ = decoded([(1, offset, value) for offset, value in enumerate(yard.whole[1:])], 1000)
    assert (len(expected), len(expected)) == yard.changes()


def erased_parts(lake: Lake, where: str) -> tuple[int, dict[int, bytes]]:
    """Erase the row of a change: the offset of its message, and the replacements of messages by offset."""
    [change] = lake.ask(
        f'SELECT "offset", after FROM {{changes.change}} WHERE after IS NOT NULL AND {where} ORDER BY "offset" LIMIT 1'
    )
    row = json.loads(change["after"])
    erasure = planning.plan(lake, "depot.parcels", [(row["id"], row["lane"])], "asked", now=False)
    going = replacements.replaced(lake, erasure)
    return change["offset"], {
        place[3]: bytes(value) for *place, _, kind, value, _ in going if kind == "message"
    }


def test_all_parts_of_an_erased_rows_message_go(tmp_path: Path) -> None:
    """Its values would stay in the parts before the last one, which no decoder reads by themselves."""
    yard = Yard(tmp_path, "bronze", "silver", "gold")
    lasts = {yard.offsets[at]: at for at in yard.lasts}
    offset, parts = erased_parts(yard.lake, f'"offset" IN ({", ".join(map(str, lasts))})')
    for first in yard.offsets[lasts[offset] - 2 : lasts[offset]]:
        assert left_of(parts[first]).kept == []


@pytest.mark.spark
@pytest.mark.slow
def test_a_replay_reads_the_parts_of_several_batches(spark: SparkSession, tmp_path: Path) -> None:
    """Its rejects would stay for ever, or a rebuild lose what it has read, or an erasure leave values in them."""
    yard = Yard(tmp_path, "bronze", "silver", "gold")
    pipeline = yard.lake.pipeline
    assert (3, 3, 0) == replay.appoint(Lake(spark, pipeline), lifting, lifted)
    assert [] == run(spark, pipeline, ("bronze", "silver", "gold")).failures
    yard.lake = Lake(spark, pipeline)
    assert [] == rejects.waiting(yard.lake)
    expected, _, _ = decoded([(1, offset, value) for offset, value in enumerate(yard.whole)], 1000)
    assert (len(expected), len(expected)) == yard.changes()
    compared = rebuild(yard.lake, 2, dry_run=True)
    assert compared.none, compared.differences
    offset, parts = erased_parts(yard.lake, "batch = 3")
    assert offset == yard.offsets[yard.first]
    for first in yard.offsets[: yard.first]:
        assert left_of(parts[first]).kept == []


@pytest.mark.spark
@pytest.mark.slow
def test_a_replay_of_the_last_part_has_the_others_of_its_batch(spark: SparkSession, tmp_path: Path) -> None:
    """Of a whole message that was refused only the last part is a reject, and nothing could ever read it."""
    yard = Yard(tmp_path, "bronze", "silver")
    lake = Lake(spark, yard.lake.pipeline)
    at = next(at for at in yard.lasts if at > yard.first)
    rows = lake.read(BRONZE.name).where(f"kind = 'message' AND `offset` = {yard.offsets[at]}")
    [whole] = [
        whole
        for spot, whole in split_lookup.wholes_of_replay(lake, rows, NOT_SEALED).read.items()
        if spot.offset == yard.offsets[at]
    ]
    assert whole in {bytes(tencent_protobuf.joined([_data(value)])) for value in yard.whole}


def _data(envelope: bytes) -> bytes:
    return tencent_protobuf.SUBSCRIBE.read("Envelope", envelope).data
