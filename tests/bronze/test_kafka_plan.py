"""What a Kafka source reads next: starts, gaps and bounded batches, without a cluster."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.bronze.offsets import (
    Cluster,
    KafkaReceipt,
    OffsetSpan,
    Place,
    Position,
    limited,
    milliseconds,
    plan,
    reached,
)
from ingest.bronze.positions import Positions
from ingest.config.model import Source

SOURCE = Source("beds", "kafka", "canal", topics=("soil",))
A, B = Place("soil", 0), Place("soil", 1)


def cluster(spans, times=None, topics=None):
    """A cluster whose partitions hold ``[begin, end)``; ``times`` gives each one's offset for a moment."""
    begins = {place: begin for place, (begin, _) in spans.items()}
    ends = {place: end for place, (_, end) in spans.items()}

    def since(moment):
        return {place: times(place, moment) if times else ends[place] for place in ends}

    return Cluster("c1", topics or {place.topic: "t1" for place in spans}, begins, ends, since)


def at(offset, topic_id="t1", cluster_id="c1"):
    """A position as the receipts give it."""
    return Position(offset, cluster_id, topic_id)


def texts(found):
    """The sentences of a plan's gaps."""
    return [gap.text for gap in found.gaps]


# --- starts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "begins"),
    [
        ("earliest", (5, 0)),
        ("latest", (9, 4)),
        ({"soil": {1: 2}}, (5, 2)),
        ("2024-05-01T00:00:00Z", (7, 1)),
    ],
)
def test_first_start(start, begins):
    """The first run begins where the file says."""
    found = cluster({A: (5, 9), B: (0, 4)}, lambda place, _: {A: 7, B: 1}[place])
    spans = plan(replace(SOURCE, start=start), {}, found).spans
    assert begins == tuple(span.start for span in spans)


def test_time_of_a_start():
    """A start in time is asked for in milliseconds, zones minded."""
    assert 1_714_521_600_123 == milliseconds("2024-05-01T02:00:00.123456+02:00")


def test_later_partitions_begin_at_their_beginning():
    """A partition that appears under ``start: latest`` was never skipped on purpose."""
    found = plan(replace(SOURCE, start="latest"), {A: at(9)}, cluster({A: (0, 9), B: (0, 4)}))
    assert ((OffsetSpan(B, 0, 4),), True) == (found.spans, found.due)


@pytest.mark.parametrize(("start", "due"), [("latest", True), ("earliest", False)])
def test_a_start_at_the_end_is_written_down(start, due):
    """An end that is not kept is another end on the next run, and what came between would be lost."""
    held = (3, 3) if start == "earliest" else (0, 3)
    found = plan(replace(SOURCE, start=start), {}, cluster({A: held}))
    assert (due, (OffsetSpan(A, 3, 3),)) == (found.due, found.spans)


def test_nothing_new_makes_no_batch():
    """An idle tick must not write."""
    found = plan(SOURCE, {A: at(4)}, cluster({A: (0, 4)}))
    assert (False, (), ()) == (found.due, found.spans, found.gaps)


def test_topic_that_is_not_there_yet():
    """A topic that was never read may come later: a warning, no failure."""
    found = plan(SOURCE, {}, cluster({}))
    said = "topic soil does not exist yet, or its user may not see it"
    assert ((f"{said}.",), ()) == (found.warnings, found.gaps)
    near = plan(SOURCE, {}, replace(cluster({}), seen=("seed", "soils", "__consumer_offsets")))
    assert (f"{said}; did you mean soils?",) == near.warnings


def test_a_pattern_that_fits_no_topic() -> None:
    """A slip in a pattern was told as "yet", every time, and nothing said what there is."""
    source = replace(SOURCE, topics=(), topic_pattern=r"sois\..*")
    found = plan(source, {}, replace(cluster({}), seen=("soil.b", "soil.a", "__consumer_offsets")))
    assert (
        r"no topic matches sois\..* yet: its user sees 2 topics, such as soil.a, soil.b.",
    ) == found.warnings


# --- gaps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "held", "text"),
    [
        (at(3), (7, 9), "soil/0 was trimmed by retention: offsets 3 to 6 were not read"),
        (at(12), (0, 9), "soil/0 ends at offset 9, before the position 12"),
        (at(3, "t0"), (0, 9), "soil/0 was deleted after offset 3 and made again"),
        (at(3, "t1", "c0"), (0, 9), "soil/0 was read from cluster c0, but the brokers belong to c1 now"),
    ],
)
def test_gap(position, held, text):
    """What the cluster no longer has must stop that partition, and that one alone."""
    found = plan(SOURCE, {A: position, B: at(1)}, cluster({A: held, B: (0, 2)}))
    assert [True] == [one.startswith(text) for one in texts(found)]
    assert (OffsetSpan(B, 1, 2),) == found.spans


@pytest.mark.parametrize("position", [7, 9])
def test_no_gap_at_the_ends(position):
    """A position at the first offset, or just after the last, has lost nothing."""
    assert () == plan(SOURCE, {A: at(position)}, cluster({A: (7, 9)})).gaps


def test_deleted_topic():
    """A topic that vanished with what was unread in it is a gap; one taken out of the file is not."""
    known = {A: at(3), Place("rain", 0): at(5)}
    found = plan(SOURCE, known, cluster({}))
    assert ["soil/0"] == [str(gap.place) for gap in found.gaps]


def test_partition_lost_with_its_topic():
    """A topic made again with fewer partitions has lost the others too."""
    found = plan(SOURCE, {A: at(3, "t0"), B: at(3, "t0")}, cluster({A: (0, 1)}))
    assert [A, B] == [gap.place for gap in found.gaps]


def test_accepted_gap_goes_on_at_the_beginning():
    """An accepted loss lets the partition go on with the oldest message that is there."""
    now = cluster({A: (7, 9)})
    gap = plan(SOURCE, {A: at(3)}, now).gaps[0]
    word = json.loads(json.dumps(gap.value))
    found = plan(SOURCE, {A: at(3)}, now, lambda one: one.value == word)
    assert ((OffsetSpan(A, 7, 9),), ()) == (found.spans, found.gaps)
    assert "goes on at 7" in found.warnings[0]


def test_acceptance_holds_for_one_gap():
    """A later gap of the same partition needs a decision of its own."""
    word = plan(SOURCE, {A: at(3)}, cluster({A: (7, 9)})).gaps[0].value

    def accepted(one):
        return one.value == word

    later = cluster({A: (20, 30)})
    assert 1 == len(plan(SOURCE, {A: at(9)}, later, accepted).gaps)
    again = replace(later, topics={"soil": "t2"})
    assert 1 == len(plan(SOURCE, {A: at(3)}, again, accepted).gaps)


def test_accepted_gap_of_an_empty_partition_is_written_down():
    """Otherwise the position stays the old one, and the same decision would accept the next loss."""
    found = plan(SOURCE, {A: at(3)}, cluster({A: (7, 7)}), lambda _gap: True)
    assert (True, (OffsetSpan(A, 7, 7),)) == (found.due, found.spans)


# --- receipts -----------------------------------------------------------------------------------


def receipt(end, topic_id="t1"):
    """A receipt that ends at an offset."""
    return KafkaReceipt(*A, 0, end, 0, "c1", topic_id)


def test_receipts_are_read_in_the_form_that_lakes_hold():
    """The next run would read every topic again, or not start."""
    written = b'{"topic":"soil","partition":0,"from":0,"to":9,"count":0,"cluster":"c1","topic_id":"t1"}'
    assert written == msgspec.json.encode(receipt(9))
    positions = Positions()
    assert receipt(9) == positions.add("s", 1, written[:-1] + b',"later":1}')
    assert {"s": {A: at(9)}} == positions.places


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_position_from_receipts_in_any_order(order):
    """Receipts are read back in any order; the newest batch counts, even where its topic begins again."""
    found = [(receipt(100), 1), (receipt(5, "t2"), 2), (receipt(9, "t2"), 2)]
    position = None
    for index in order:
        one, batch = found[index]
        position = position.after(one, batch) if position else reached(one, batch)
    assert at(9, "t2") == position


# --- bounded batches ----------------------------------------------------------------------------


def test_limit_cuts_at_one_moment():
    """No partition may run far ahead of another in time."""
    times = {A: range(0, 10_000, 100), B: range(5_000, 15_000, 100)}

    def since(moment):
        return {place: sum(time < moment for time in of) for place, of in times.items()}

    cut = limited([OffsetSpan(A, 0, 100), OffsetSpan(B, 0, 100)], 80, since)
    assert 80 == sum(span.end - span.start for span in cut)
    last = [times[span.place][span.end - 1] for span in cut]
    assert abs(last[0] - last[1]) <= 1_000


spans = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=5)


@given(spans, st.integers(1, 120), st.lists(st.integers(0, 2**41), min_size=1, max_size=60))
def test_limit_is_kept(sizes, limit, times):
    """Whatever the times say: never more than the limit, and never less than there is up to it."""
    work = [OffsetSpan(Place("soil", n), start, start + size) for n, (start, size) in enumerate(sizes)]

    def since(moment):
        return {one.place: one.start + sum(time < moment for time in times) for one in work}

    cut = limited(work, limit, since)
    taken = sum(one.end - one.start for one in cut)
    assert min(limit, sum(size for _, size in sizes)) == taken
    assert all(one.start <= new.end <= one.end for one, new in zip(work, cut, strict=True))
