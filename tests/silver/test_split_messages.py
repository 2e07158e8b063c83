"""Messages in parts: read as the whole ones, however tasks and batches separate the parts, and named where some are missing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from ingest.change import Options
from ingest.config import Pipeline, Source, load
from ingest.decoding.split import MessagePart
from ingest.erase import plan as planning
from ingest.erase import replacements
from ingest.formats import tencent_protobuf
from ingest.lake import rejects
from ingest.lake.barriers import left_of
from ingest.lake.lake import Lake
from ingest.lake.schemas import BRONZE
from ingest.run import run
from ingest.silver.lift import INPUT, Lifting, lift
from ingest.silver.split_messages import PartSpot, Wholes, part_rows, put_together
from tests.formats.one_history.history import history
from tests.formats.one_history.test_one_history import DIALECTS
from tests.formats.protobuf_cases import in_parts
from tests.unstarted import unstarted

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
    landed: Sequence[Landed], size: int, *, every: bool = False
) -> tuple[list[tuple[object, ...]], int, Wholes]:
    """The changes of messages, how many are rejects, and what the lookup says."""
    look = part_rows(lambda page: page, {"s": NAME}, every=every)
    rows = [row for page in look(iter(pages(landed, size))) for row in page.to_pylist()]
    parts = [
        (
            PartSpot(*(row[name] for name in PartSpot._fields)),
            None if row["data"] is None else MessagePart(row["number"], row["total"], row["data"]),
        )
        for row in rows
    ]
    wholes = put_together(parts, tencent_protobuf.joined)
    lifted = lift(replace(HOW, wholes=wholes))(iter(pages(landed, size)))
    done = [row for page in lifted for row in page.to_pylist()]
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
    for envelope in whole:
        parts = random.choice((1, 1, 2, 3, 4))
        if parts == 1:
            sent.append(envelope)
            continue
        cuts = in_parts(envelope, parts)
        sent += cuts[: random.randrange(parts)] if random.random() < 0.3 else []  # broken off, and sent again
        sent += cuts
    landed = [(1, offset, value) for offset, value in enumerate(sent)]
    expected, _, _ = decoded([(1, offset, value) for offset, value in enumerate(whole)], 1000)
    changes, refused, _ = decoded(landed, size, every=every)
    assert expected == changes
    if every or size == 1000:  # what was broken off and sent again is no loss
        assert 0 == refused


@pytest.mark.parametrize("size", [1, 1000])
def test_a_part_of_an_earlier_batch_is_closed_by_the_last_one(size: int) -> None:
    """A mirror that is right would be complained of for ever; a rebuild must refuse the same parts as the runs did."""
    [envelope, *_] = envelopes()
    expected, _, _ = decoded([(1, 0, envelope)], 1)
    first, second, third = in_parts(envelope, 3)
    changes, refused, wholes = decoded([(1, 0, first), (2, 1, second), (2, 2, third)], size)
    assert (expected, 1) == (changes, refused)
    assert (PartSpot("s", "t", 0, 1, 0),) == wholes.closed


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
    assert ([], len(sent), {}, ()) == (changes, refused, dict(wholes.read), wholes.closed)


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
        self.first = next(at for at, value in enumerate(self.sent) if value[3:6] == b"\x03\x18\x01") + 1
        self.waiting: list[list[str]] = []  # the codes of open rejects after each run
        framed = [len(value).to_bytes(4, "big") + value for value in self.sent]
        for end in (self.first, len(self.sent)):
            (folder / "in.bin").write_bytes(b"".join(framed[:end]))
            failures = run(unstarted(), pipeline, stages).failures
            assert not failures, str(failures)
            self.lake = Lake(unstarted(), pipeline)
            self.waiting.append([row["reason"] for row in rejects.waiting(self.lake)])


def test_a_run_reads_parts_over_batches_and_has_no_open_reject(tmp_path: Path) -> None:
    """The parts before the last one are in an older batch, which was decoded when they meant nothing."""
    yard = Yard(tmp_path, "bronze", "silver")
    assert [["split-message"] * 2, []] == yard.waiting
    [books] = yard.lake.ask("SELECT sum(messages) AS messages, sum(rejected) AS rejected FROM {books}")
    assert (len(yard.sent), 2) == (books["messages"], books["rejected"])
    [rows] = yard.lake.ask("SELECT count(*) AS n, count(DISTINCT order_key) AS places FROM {changes.change}")
    expected, _, _ = decoded([(1, offset, value) for offset, value in enumerate(yard.whole)], 1000)
    assert len(expected) == rows["n"] == rows["places"]


def test_all_parts_of_an_erased_rows_message_go(tmp_path: Path) -> None:
    """Its values would stay in the parts before the last one, which no decoder reads by themselves."""
    yard = Yard(tmp_path, "bronze", "silver", "gold")
    [change] = yard.lake.ask(
        """SELECT "offset", after FROM {changes.change} WHERE batch = 2 ORDER BY "offset" LIMIT 1"""
    )
    row = json.loads(change["after"])
    erasure = planning.plan(yard.lake, "depot.parcels", [(row["id"], row["lane"])], "asked", now=False)
    going = replacements.replaced(yard.lake, erasure)
    parts = {place[3]: value for *place, _, _, value, _ in [tuple(each) for each in going]}
    first_parts = yard.lake.ask(
        """SELECT "offset" FROM {bronze.message} WHERE batch = 1 ORDER BY "offset" DESC LIMIT 2"""
    )
    assert {change["offset"], *(each["offset"] for each in first_parts)} <= parts.keys()
    for each in first_parts:
        assert left_of(bytes(parts[each["offset"]])).kept == []
