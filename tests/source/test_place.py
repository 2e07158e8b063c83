"""Rows read from a source while its stream goes on: the mirror ends as the source, whatever was lost before."""

from __future__ import annotations

import json
from random import Random

import pytest

from ingest.change import Change, Hints, Image, Message, Op
from ingest.fold import Placed, fold
from ingest.formats import ingest_snapshot
from ingest.order import Order, order_key, order_of
from ingest.source.place import SnapshotPlace, after, number_after

KEYS = ("id",)
IDS = 12
CHUNK = 4  # keys


class Source:
    """A table with a writer, whose changes lie in a log."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.rows: dict[int, Image] = {}
        self.log: list[Change] = []
        self.serial = 0

    def write(self) -> None:
        """One statement: insert, update of some columns, changed key, or delete."""
        free = [key for key in range(IDS) if key not in self.rows]
        kind = self.random.choice(("insert", "update", "partial", "move", "delete"))
        self.serial += 1
        if (kind == "insert" or not self.rows) and free:
            key = self.random.choice(free)
            self.rows[key] = {"id": str(key), "a": f"a{self.serial}", "b": f"b{self.serial}"}
            self._log(Op.INSERT, None, self.rows[key])
            return
        if not self.rows:
            return
        key = self.random.choice(sorted(self.rows))
        row = self.rows[key]
        if kind == "delete":
            del self.rows[key]
            self._log(Op.DELETE, row, None)
        elif kind == "move" and free:
            to = self.random.choice(free)
            del self.rows[key]
            self.rows[to] = {**row, "id": str(to), "b": f"b{self.serial}"}
            self._log(Op.UPDATE, row, self.rows[to])
        else:
            self.rows[key] = {**row, "a": f"a{self.serial}"}
            image = {"id": row["id"], "a": f"a{self.serial}"} if kind == "partial" else self.rows[key]
            self._log(Op.UPDATE, None, image, partial=kind == "partial")

    def _log(self, op: Op, before: Image | None, after: Image | None, *, partial: bool = False) -> None:
        sequence = (5, self.serial)
        self.log.append(
            Change(op=op, keys=KEYS, before=before, after=after, partial=partial, sequence=sequence)
        )


class Lake:
    """What has landed, with the order keys that silver would give."""

    def __init__(self, random: Random, *, strong: bool) -> None:
        self.random = random
        self.strong = strong
        self.batch = 0
        self.placed: list[Placed] = []

    @property
    def high(self) -> str | None:
        """The highest order key of all batches."""
        return max((order_key(each.order) for each in self.placed), default=None)

    def land(self, changes: list[Change]) -> None:
        """One batch: in any order where positions order the changes, some of them twice."""
        self.batch += 1
        if self.strong:
            changes = changes + self.random.choices(changes, k=len(changes) // 3) if changes else []
            self.random.shuffle(changes)
        for offset, change in enumerate(changes):
            sequence = change.sequence if self.strong else ()
            order = Order(0, change.phase, sequence, change.half, (self.batch, 0, 0, offset), change.row)
            self.placed.append(Placed(order, change))

    def land_read(self, messages: list[bytes]) -> None:
        """Messages of a snapshot, through their parser."""
        self.batch += 1
        for message in messages:
            for one in ingest_snapshot.parse(Message(message), Hints()):
                order = Order(0, one.phase, one.sequence, one.half, one.arrival, one.row)
                assert order == order_of(order_key(order))
                self.placed.append(Placed(order, one))

    def rows(self) -> dict[int, Image]:
        """The mirror."""
        found = fold(self.placed, KEYS)
        return {int(row.values["id"] or ""): row.values for row in found.values()}


def chunk(source: Source, place: SnapshotPlace, number: int) -> bytes:
    """The rows of a range of keys, as they are now."""
    low = number * CHUNK
    rows = [list(row.values()) for key, row in source.rows.items() if low <= key < low + CHUNK]
    return (
        snapshot_message("read", place.of(number, 0), rows)
        if rows
        else snapshot_message("delete", place.of(number, 0), [["-1", None, None]])
    )


def snapshot_message(op: str, place: dict, rows: list | None = None) -> bytes:
    """One message of a snapshot."""
    frame = {"ingest-snapshot": 1, "op": op, "table": ["d", None, "t"], "keys": ["id"], "place": place}
    if rows is not None:
        frame |= {"types": {"id": "int64", "a": "string", "b": "string"}, "rows": rows}
    return json.dumps(frame).encode()


def history(seed: int, *, strong: bool, snapshots: int, lose: float, end: bool = True) -> tuple[Source, Lake]:
    """Writers, deliveries and chunks by turns; before a snapshot the stream may have lost changes."""
    random = Random(seed)
    source, lake = Source(random), Lake(random, strong=strong)
    delivered = 0

    def deliver(upto: int, lost: float) -> None:
        nonlocal delivered
        new = [change for change in source.log[delivered:upto] if random.random() >= lost]
        delivered = max(delivered, upto)
        lake.land(new)

    for _ in range(snapshots):
        for _ in range(random.randint(0, 15)):
            source.write()
            if random.random() < 0.2:
                deliver(random.randint(delivered, len(source.log)), lose)
        if lose:
            deliver(len(source.log), lose)  # a gap ends before the reading begins
        place = after(lake.high, lake.batch, number_after(lake.high, lake.batch))
        waiting: list[bytes] = []
        for number in random.sample(range(IDS // CHUNK), IDS // CHUNK):
            for _ in range(random.randint(0, 6)):
                source.write()
                if random.random() < 0.4:
                    deliver(random.randint(delivered, len(source.log)), 0)
            waiting.append(chunk(source, place, number))
            if random.random() < 0.3:
                lake.land_read(waiting)
                waiting = []
        lake.land_read([*waiting, *([snapshot_message("end", place.end())] if end else [])])
    for _ in range(random.randint(0, 5)):
        source.write()
    late = source.log[delivered:]
    if strong and late:
        random.shuffle(late)
        cut = random.randint(0, len(late))
        lake.land(late[:cut])
        late = late[cut:]
    lake.land(late)
    return source, lake


@pytest.mark.parametrize("strong", [True, False])
@pytest.mark.parametrize("lose", [0.0, 0.4])
@pytest.mark.parametrize("snapshots", [1, 3])
def test_the_mirror_ends_as_the_source(strong, lose, snapshots):
    """A row that was read and hid a later change, or a lost delete that stayed, would be wrong for ever."""
    wrong = {}
    for seed in range(100):
        source, lake = history(seed, strong=strong, snapshots=snapshots, lose=lose)
        if source.rows != lake.rows():
            wrong[seed] = source.rows, lake.rows()
    assert {} == wrong


def test_without_its_end_mark_a_lost_delete_stays():
    """A model in which nothing is ever lost would prove nothing of the end mark."""
    kept = 0
    for seed in range(100):
        source, lake = history(seed, strong=True, snapshots=2, lose=0.5, end=False)
        kept += bool(lake.rows().keys() - source.rows.keys())
    assert kept


def test_a_number_grows_over_landed_and_waiting_snapshots():
    """Two snapshots at one place could not be distinguished: the older one might win."""
    high, numbers = None, []
    for _ in range(3):
        place = after(high, 7, number_after(high, 7))
        numbers.append(place.number)
        high = order_key(
            Order(0, place.phase, place.sequence, place.half, (7, 2**31 - 1, place.number, 1, 0), 0)
        )
        assert len(place.sequence) == 1
    assert numbers == sorted(set(numbers))


def test_an_epoch_without_changes_of_the_table_is_begun_by_the_rows():
    """After the positions of the old server, rows would lose against whatever it ever said."""
    old = order_key(Order(0, 1, (5, 3), 0, (1, 0, 0, 0), 0))
    assert after(old, 4, 5, epoch=1) == SnapshotPlace(0, (5,), 3, 4, 5)


def test_rows_that_were_read_are_decoded_next_to_messages_of_another_format() -> None:
    """The source's own parser would reject them, or their arrival would say that they are newer than they are."""
    from tests.silver.test_lift import lifting, rows

    place = after(None, 4, 5)
    topic = f"/lake/snapshots/s/d.t-5/chunk-1{ingest_snapshot.SUFFIX}"
    read = Message(
        snapshot_message("read", place.of(0, 0), [["1", "a", None], ["2", "b", None]]), topic=topic
    )
    end = Message(snapshot_message("end", place.end()), topic=topic)
    elsewhere = Message(read.value, topic=ingest_snapshot.SUFFIX)  # a Kafka topic may have that name
    found, lines = rows(lifting("canal"), [read, end, elsewhere], 10)
    orders = {
        (row["op"], row["row"]): order_of(str(row["order_key"])) for row in found if row["kind"] == "change"
    }
    assert {
        ("read", 0): Order(0, 0, (5,), 3, (4, 2**31 - 1, 5, 1, 0), 0),
        ("read", 1): Order(0, 0, (5,), 3, (4, 2**31 - 1, 5, 1, 0), 1),
        ("truncate", 0): Order(0, 0, (5,), 2, (4, 2**31 - 1, 5, 0, 0), 0),
    } == orders
    assert ["reject"] == [row["kind"] for row in found if row["kind"] != "change"]
    assert all(line.balanced for line in lines)
