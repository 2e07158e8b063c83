"""Decode bronze rows by a format's ``parse`` into rows of ``changes``, in Arrow batches.

Runs in Python workers and imports no Spark. It yields all kinds of rows: changes, DDL events, rejects and, at its end,
the book lines of all it decoded. A batch is decoded message by message, written column by column
(`ingest.silver.change_rows`) and counted line by line (`ingest.silver.tally`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ingest import ddl, formats
from ingest.change import NO_TABLE, ROW_OPS, Change, ChangeColumns, Hints, Message, Op, TableId
from ingest.config import Pipeline
from ingest.config.masks import Masks, detail_without_values, masked_with, without_literals
from ingest.errors import Undecodable
from ingest.formats import ingest_snapshot
from ingest.ledgers.barriers import Barriers, Replaced, left_of
from ingest.ledgers.books import Line
from ingest.ledgers.later_loads import Sequences
from ingest.ledgers.starts import Starts, parted
from ingest.order import AFTER_ITS_ROW, arrival_key, arrival_keys, order_keys, order_keys_of_columns
from ingest.silver import change_rows, tally
from ingest.silver.restarts import Restarts
from ingest.silver.split_messages import READ_WITH_LAST, Spot, Wholes, parts_in, put_together, splitting
from ingest.store.envelope import KEY_DROPPED, NOT_SEALED, Opener
from ingest.tables.datafiles import Files, Layout, listed

DECODER = "1"  # incremented whenever a parser's result for some message changes
OVERSIZE = "ingest.oversize"  # header that bronze sets on a record too large to land
_OF_A_SEQUENCE = frozenset(
    (
        "next_not_cached_value", "minimum_value", "maximum_value", "start_value", "increment", "cache_size", "cycle_option",
        "cycle_count",
    )
)  # fmt: skip
INPUT = ("batch", "source", "topic", "partition", "offset", "key", "value", "headers")


@dataclass(frozen=True, slots=True)
class Lifting:
    """What the workers need; small, and without secrets other than the masks' and the data keys.

    ``anchors`` has the position of the row before each table event without one; None if it was not looked up.
    ``starts`` says where each source's epochs begin, ``epochs`` which epoch a decoder is in, ``later`` which loads of each source
    and epoch are changes at their positions. ``batch`` replaces the number
    of the bronze rows on a replay, whose rows keep the arrival of their own bytes. ``schemas`` has the schemas by id of
    each source with a registry. ``opener`` has the data keys of sealed messages, ``barriers`` say which rows were
    erased. ``wholes`` has the messages that parts are put together to, as far as tasks or, in a replay, batches separate them.
    """

    pipeline: Pipeline
    epochs: Mapping[str, int] = field(default_factory=dict)
    starts: Starts = field(default_factory=dict)
    batch: int | None = None
    schemas: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    anchors: Mapping[Spot, tuple[int, ...]] | None = None
    opener: Opener = NOT_SEALED
    barriers: Barriers = field(default_factory=Barriers)
    later: Mapping[tuple[str, int], Sequences] = field(default_factory=dict)
    wholes: Wholes = field(default_factory=Wholes)


Batches = Iterator[pa.RecordBatch]


Taken = dict[int, Sequence[Change]]
"""Decoded messages: each one's row in the Arrow batch, and its changes."""


class Refused(NamedTuple):
    """One message that could not be decoded, and why."""

    at: int
    code: str
    detail: str


class LineKey(NamedTuple):
    """The key of a book line: a table's messages in one partition of one batch."""

    batch: int
    topic: str
    partition: int
    table: TableId


class TableRows(NamedTuple):
    """The messages of one place, and the range of their rows among all rows."""

    place: LineKey
    messages: list[Sequence[Change]]
    start: int
    end: int


class DecodedPage(NamedTuple):
    """All rows of one Arrow batch, as changes and as Arrow, with their order keys and their lines."""

    spans: list[TableRows]
    at: list[int]
    rows: list[Change]
    orders: list[str]
    page: pa.RecordBatch
    erased: Mapping[LineKey, int]  # changes that a barrier stops
    left_out: Mapping[LineKey, int]  # changes of excluded tables, in messages that are counted otherwise


def lift(lifting: Lifting) -> Callable[[Batches], Batches]:
    """The function that ``mapInArrow`` runs: batches of bronze columns `INPUT` to rows of ``changes``."""

    def run(batches: Batches) -> Batches:
        decoders: dict[tuple[str, int], SourceDecoder] = {}
        for batch in map(lifting.opener.opened, batches):
            for name, epoch, mine in parted(batch, lifting.starts):
                if (name, epoch) not in decoders:
                    within = replace(lifting, epochs={name: epoch})
                    decoders[name, epoch] = SourceDecoder(within, name)
                yield from decoders[name, epoch].lift(mine)
        for decoder in decoders.values():
            if decoder.lines:
                yield decoder.books()

    return run


FILES = "file BINARY"


def lift_to_files(how: Lifting, layout: Layout) -> Callable[[Batches], Batches]:
    """As `lift`, but the rows are written as data files where they are decoded, which are reported as rows of `FILES`."""

    def run(batches: Batches) -> Batches:
        with Files(layout) as files:
            for page in lift(how)(batches):
                files.add(page)
            done = [file.to_json() for file in files.finish()]
        yield pa.RecordBatch.from_arrays([pa.array(done, pa.binary())], ["file"])

    return run


FEW = 64  # messages that are not worth columns of their own
_PAUSE = 4096  # the most messages that are read one by one before columns are tried again
_ParseMany = Callable[[Sequence[bytes | None], Hints], ChangeColumns]
_COUNTED = frozenset({Op.INSERT, Op.UPDATE, Op.DELETE})  # all rows of a snapshot share one position
_OF_ROWS = ROW_OPS - {Op.TRUNCATE}
_AFTER_DELETES = frozenset({Op.READ, Op.INSERT, Op.UPDATE, Op.TRUNCATE})


def _is_unmasked(change: Change) -> bool:
    """True unless its values come from ``changes``, where they were masked."""
    return change.note != ingest_snapshot.MASKED


_NO_TABLE = "the message has a row, or empties a table, but names no table"


class SourceDecoder:
    """One source's decoder: its parser, hints and audit counts."""

    def __init__(self, lifting: Lifting, name: str) -> None:
        sources = enumerate(lifting.pipeline.sources)
        self.rank, source = next((rank, source) for rank, source in sources if source.name == name)
        self.name = name
        module = formats.load(source.format)
        upserts = source.options.inserts == "upsert"
        parse = formats.reader(source.format)
        self.parse = partial(_upserting, parse) if upserts else parse
        self.hints: Hints = lifting.pipeline.hints(source, lifting.schemas.get(name))
        self.order_by = source.options.order_by
        self.epoch = lifting.epochs.get(name, 0)
        self.later = lifting.later.get((name, self.epoch), {})
        self.counts_by_topic = source.kind == "kafka"
        self.batch = lifting.batch
        self.excluded: dict[TableId, bool] = {}
        self.pipeline = lifting.pipeline
        self.masks = Masks(self.pipeline) if self.pipeline.masks else None
        self.lines: dict[LineKey, Line] = {}
        self.anchors = lifting.anchors if module.ABOUT.event_marks else None
        self.splitting, self.wholes = splitting(source.format), lifting.wholes.read
        # by topic and partition, the delete that came last, if no other row came after it
        self.last_deletes: dict[tuple[str, int], Change] | None = {} if module.ABOUT.split_moves else None
        self.restarts = Restarts() if module.ABOUT.counts_rows else None
        self.marks_loads = module.ABOUT.load_ends == "marks"
        self.barriers = lifting.barriers
        self.stopped = lifting.barriers.of(name)
        self.replaced: dict[int, Replaced] = {}  # of the batch at hand, by row
        plain = (
            not upserts
            and self.restarts is None
            and self.masks is None
            and not self.stopped
            and self.last_deletes is None
        )
        self.parse_many: _ParseMany | None = getattr(module, "parse_many", None) if plain else None
        snapshots = self.masks is None and not self.stopped
        self.parse_snapshots: _ParseMany | None = ingest_snapshot.parse_many if snapshots else None
        # messages that are read one by one before columns are tried again, by how few are worth it
        self.pauses = {1: 1, FEW: FEW}

    def lift(self, bronze: pa.RecordBatch) -> Batches:
        """The rows of one batch of this source's messages; each message is decoded as a whole or becomes one reject."""
        for piece in self._pieces(bronze):
            for part, changes in self._parts(piece):
                if changes is None:
                    yield from self._lift_each(part)
                else:
                    yield from self._lift_columns(part, changes)

    def _pieces(self, bronze: pa.RecordBatch) -> list[pa.RecordBatch]:
        """The messages of each place by themselves, where a place's may be read as columns."""
        if self.parse_snapshots is not None and any(map(ingest_snapshot.holds, set(listed(bronze["topic"])))):
            return _by_place(bronze, 1)
        return [bronze] if self.parse_many is None else _by_place(bronze, FEW)

    def _parts(self, bronze: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, ChangeColumns | None]]:
        """Messages from one place that follow each other, with their changes as columns where many are as usual."""
        begin = start = 0  # where the messages begin that are to be read one by one
        count = bronze.num_rows
        parse_many, few, longest = self.parse_many, FEW, _PAUSE
        if count and ingest_snapshot.holds(bronze["topic"][0].as_py()):  # one message of it has many rows
            parse_many, few, longest = self.parse_snapshots, 1, 1
        if parse_many is not None and count >= few and _is_plain(bronze):
            values = listed(bronze.column("value"))
            while count - begin >= few:
                changes = parse_many(values[begin:], self.hints)
                if changes.messages < few:  # to try again soon would cost more than it saves
                    begin, self.pauses[few] = begin + self.pauses[few], min(2 * self.pauses[few], longest)
                    continue
                if start < begin:
                    yield bronze.slice(start, begin - start), None
                yield bronze.slice(begin, changes.messages), changes
                start = begin = begin + changes.messages
                self.pauses[few] = few
        if start < count:
            yield bronze.slice(start), None

    def _lift_columns(self, bronze: pa.RecordBatch, changes: ChangeColumns) -> Batches:
        """The rows of usual messages from one place."""
        if not all(shape.table.table for shape in changes.shapes):
            yield from self._lift_each(bronze)
            return
        batches, arrivals = self._batches(bronze), self._arrivals(bronze, changes.arrivals)
        orders = order_keys_of_columns(changes, arrivals, self.epoch, self.order_by)
        try:
            page = change_rows.of_columns(self.name, bronze, batches, changes, orders)
        except Exception:  # a value cannot be written: find it
            yield from self._lift_each(bronze)
            return
        excluded = [number for number, shape in enumerate(changes.shapes) if self._is_excluded(shape.table)]
        for number, shape in enumerate(changes.shapes):
            line = self._line_of(bronze, batches, 0, shape.table)
            if number in excluded:
                tally.count_excluded_columns(line, changes, number)
            else:
                tally.count_columns(line, changes, orders, number)
        if excluded:
            page = page.filter(pa.array([number not in excluded for number in changes.shape]))
        if page.num_rows:
            yield page

    def _batches(self, bronze: pa.RecordBatch) -> pa.Array:
        """The batch of each message's changes."""
        if self.batch is not None:
            return pa.repeat(pa.scalar(self.batch, pa.int64()), bronze.num_rows)
        return bronze.column("batch")

    def _lift_each(self, bronze: pa.RecordBatch) -> Batches:
        """The rows of messages that are read one by one."""
        batches = self._batches(bronze)
        taken, refused = self.decoded(bronze)
        if self.anchors is not None and any(changes[0].second_only for changes in taken.values() if changes):
            taken = {number: self._anchored(bronze, number, changes) for number, changes in taken.items()}
        try:
            written = self._written(bronze, batches, taken)
        except Exception:
            taken, refused = self._weeded(bronze, batches, taken, refused)
            written = self._written(bronze, batches, taken)
        self._book(bronze, written)
        if self.marks_loads:
            self._book_load_marks(bronze, batches, taken)
        for each in refused:
            line = self._line_of(bronze, batches, each.at, NO_TABLE)
            line.messages += 1
            line.rejected += 1
        for number, replaced in self.replaced.items():  # rows that messages no longer hold
            self._line_of(bronze, batches, number, replaced.table).erased += replaced.erased
        if written.rows:
            yield written.page
        if refused:
            yield change_rows.of_rejects(
                self.name,
                bronze,
                batches,
                [each.at for each in refused],
                [_refusal(each, hide=self.pipeline.hides) for each in refused],
            )

    # --- decoding ---

    def _anchored(self, bronze: pa.RecordBatch, number: int, changes: Sequence[Change]) -> Sequence[Change]:
        """Place a table event without a position right after the row before it, else before all rows of its second."""
        assert self.anchors is not None
        if not any(change.second_only for change in changes):
            return changes
        names = ("topic", "partition", "batch", "offset")
        anchor = self.anchors.get(Spot(self.name, *(bronze.column(name)[number].as_py() for name in names)))
        if anchor is None:
            return changes
        return [
            msgspec.structs.replace(change, sequence=anchor or change.sequence[:1], half=AFTER_ITS_ROW)
            for change in changes
        ]

    def decoded(self, bronze: pa.RecordBatch) -> tuple[Taken, list[Refused]]:
        """The changes of each message, and the messages that could not be decoded."""
        try:
            taken, refused = self._decoded(bronze)
            if self.masks is not None:
                self.masks.changes(list(filter(_is_unmasked, chain.from_iterable(taken.values()))))
        except Exception:  # a mask fails: find the messages
            taken, refused = self._decoded(bronze, self.masks)
        if self.later:
            taken = {number: list(map(self._placed, changes)) for number, changes in taken.items()}
        if self.restarts is not None:
            self._count_again(bronze, taken, self.restarts)
        if self.last_deletes is not None:
            topics, partitions = (listed(bronze.column(name)) for name in ("topic", "partition"))
            self._join_moves(taken, topics, partitions, self.last_deletes)
        return taken, refused

    def _decoded(self, bronze: pa.RecordBatch, masks: Masks | None = None) -> tuple[Taken, list[Refused]]:
        """The same; with masks, each message is masked by itself."""
        taken: Taken = {}
        refused: list[Refused] = []
        self.replaced = {}
        parse, hints = self.parse, self.hints
        columns = [listed(bronze.column(name)) for name in ("value", "key", "topic", "headers")]
        if any(map(ingest_snapshot.holds, set(columns[2]))):
            parse = self._parse_either
        wholes = self._wholes(bronze)
        new = tuple.__new__  # half the time of calling Message
        for number, (value, key, topic, headers) in enumerate(zip(*columns, strict=True)):
            try:
                pairs = _pairs(headers) if headers else ()
                parsed: Iterable[Change]
                whole = wholes.get(number)
                if whole == READ_WITH_LAST:
                    parsed = [
                        Change(op=Op.CONTROL, note="a part of a message that is read with its last one")
                    ]
                elif whole is not None:
                    parsed = parse(new(Message, (whole, key, topic, pairs)), hints)
                elif pairs and self.barriers.is_replacement(pairs, value):
                    parsed = self._unerased(number, value)
                else:
                    parsed = parse(new(Message, (value, key, topic, pairs)), hints)
                changes = parsed if type(parsed) is list else list(parsed)
                if any(not change.table.table and change.op in ROW_OPS for change in changes):
                    refused.append(Refused(number, "no-table", _NO_TABLE))
                    continue
                if masks is not None:
                    masks.changes(list(filter(_is_unmasked, changes)))
                taken[number] = changes
            except Undecodable as error:
                refused.append(Refused(number, error.code, error.detail))
            except Exception as error:
                refused.append(_stumbled(number, error))
        return taken, refused

    def _wholes(self, bronze: pa.RecordBatch) -> Mapping[int, bytes]:
        """What the messages become that are parts of others, by their rows."""
        if self.splitting is None:
            return {}
        parts = parts_in(bronze, self.splitting.part)
        here = put_together(dict(parts.values()), self.splitting.joined).read
        read = {number: self.wholes.get(spot, here.get(spot)) for number, (spot, _) in parts.items()}
        return {number: whole for number, whole in read.items() if whole is not None}

    def _placed(self, change: Change) -> Change:
        """The change; a row of a later load at its position."""
        if change.op is Op.READ and not change.phase and change.sequence in self.later.get(change.table, ()):
            return msgspec.structs.replace(change, phase=1)
        return change

    @staticmethod
    def _count_again(bronze: pa.RecordBatch, taken: Taken, restarts: Restarts) -> None:
        """Number the rows of each position of a log's file in the order of their arrival."""
        topics, partitions = (listed(bronze.column(name)) for name in ("topic", "partition"))
        for number, changes in taken.items():
            if len(changes) == 1 and _is_counted(changes[0]):
                numbered = restarts.numbered((topics[number], partitions[number]), changes[0])
                if numbered is not changes[0]:
                    taken[number] = [numbered]

    @staticmethod
    def _join_moves(
        taken: Taken,
        topics: Sequence[str],
        partitions: Sequence[int],
        last_deletes: dict[tuple[str, int], Change],
    ) -> None:
        """Name the old key of a row that lacks values, where the delete before it has the same position.

        Kafka's headers name it; files have none.
        """
        for number, changes in taken.items():
            stream = topics[number], partitions[number]
            for i, change in enumerate(changes):
                if change.op is Op.DELETE:
                    last_deletes[stream] = change
                    continue
                if change.op not in _AFTER_DELETES:
                    continue
                gone = last_deletes.pop(stream, None)
                if (
                    gone is None
                    or not (
                        change.partial
                        and change.op is Op.UPDATE
                        and change.before is None
                        and change.sequence
                    )
                    or (change.table, change.sequence) != (gone.table, gone.sequence)
                ):
                    continue
                keys = change.keys or gone.keys
                images = gone.old_cells
                before = {key: images[key] for key in keys if key in images} or images
                note = f"{change.note}; the key changed" if change.note else "the key changed"
                taken[number] = [
                    *changes[:i],
                    msgspec.structs.replace(change, before=before, note=note),
                    *changes[i + 1 :],
                ]

    def _parse_either(self, message: Message, hints: Hints) -> Iterable[Change]:
        """Parse a message, or a row read from the source itself, which has another form."""
        if not ingest_snapshot.holds(message.topic):
            return self.parse(message, hints)
        changes = list(ingest_snapshot.parse(message, hints))
        if any(change.note == ingest_snapshot.MASKED and change.op in ROW_OPS for change in changes):
            self._refuse_other_masks(changes[0].table, ingest_snapshot.masked_with(message.value or b""))
        return changes

    def _refuse_other_masks(self, table: TableId, then: str) -> None:
        """Refuse rows that were carried over with other masks than today's: one value would have two forms."""
        if then != masked_with(self.pipeline, table):
            raise Undecodable(
                "other-masks",
                f"the rows of {table} were carried over with masks other than those of the pipeline file: write mask: and mask_secret: as "
                "they were, or load the table again and dismiss this message",
            )

    def _unerased(self, number: int, value: bytes) -> list[Change]:
        """What an erasure has left of a message: its other changes, or a mark of its table."""
        self.replaced[number] = replaced = left_of(value)
        return replaced.kept or [Change(op=Op.CONTROL, table=replaced.table)]

    def parsed(self, message: Message) -> list[Change]:
        """A message's changes as its parser has them, before anything is masked."""
        return list(self._parse_either(message, self.hints))

    def _weeded(
        self, bronze: pa.RecordBatch, batches: pa.Array, taken: Taken, refused: list[Refused]
    ) -> tuple[Taken, list[Refused]]:
        """Separate the messages whose changes can be written from all others."""
        kept: Taken = {}
        for number, changes in taken.items():
            try:
                self._written(bronze, batches, {number: changes})
                kept[number] = changes
            except Exception as error:
                refused.append(_stumbled(number, error))
        return kept, refused

    # --- writing ---

    def _written(self, bronze: pa.RecordBatch, batches: pa.Array, taken: Taken) -> DecodedPage:
        self._exclude_sequences(taken)
        spans: list[TableRows] = []
        rows: list[Change] = []
        numbers: list[int] = []
        left_out: Counter[LineKey] = Counter()
        for place, messages in self._grouped(bronze, batches, taken, left_out).items():
            start = len(rows)
            kept = (
                tally.with_statements(messages)
                if self._is_excluded(place.table)
                else tally.with_rows(messages)
            )
            for number, changes in kept.items():
                rows += changes
                numbers += [number] * len(changes)
            spans.append(TableRows(place, list(messages.values()), start, len(rows)))
        orders = order_keys(rows, numbers, self._arrivals(bronze, _named(taken)), self.epoch, self.order_by)
        erased: Counter[LineKey] = Counter()
        if self.stopped:
            spans, numbers, rows, orders = self._without_erased(spans, numbers, rows, orders, erased)
        statement = partial(_statement, masks=self.masks)
        page = change_rows.of_changes(self.name, bronze, batches, numbers, rows, orders, statement)
        return DecodedPage(spans, numbers, rows, orders, page, erased, left_out)

    def _without_erased(
        self,
        spans: Sequence[TableRows],
        numbers: Sequence[int],
        rows: Sequence[Change],
        orders: Sequence[str],
        erased: Counter[LineKey],
    ) -> tuple[list[TableRows], list[int], list[Change], list[str]]:
        """All rows but those that a barrier stops, which are counted."""
        kept: list[int] = []
        left: list[TableRows] = []
        for place, messages, start, end in spans:
            first = len(kept)
            for i in range(start, end):
                if self._is_stopped(rows[i], orders[i]):
                    erased[place._replace(table=rows[i].table)] += 1
                else:
                    kept.append(i)
            left.append(TableRows(place, messages, first, len(kept)))
        return left, [numbers[i] for i in kept], [rows[i] for i in kept], [orders[i] for i in kept]

    def _is_stopped(self, change: Change, order: str) -> bool:
        """True for a change of an erased row."""
        barriers = self.stopped.get(change.table)
        return bool(barriers) and change.op in ROW_OPS and self.barriers.stops(barriers or (), change, order)

    def stopped_rows(self, bronze: pa.RecordBatch) -> dict[int, set[int]]:
        """The messages with changes that a barrier stops, each with the numbers of its rows."""
        taken, _ = self.decoded(bronze)
        placed = [(number, change) for number, changes in taken.items() for change in changes]
        arrivals = self._arrivals(bronze, _named(taken))
        orders = order_keys(
            [change for _, change in placed],
            [number for number, _ in placed],
            arrivals,
            self.epoch,
            self.order_by,
        )
        stopped: dict[int, set[int]] = {}
        for (number, change), order in zip(placed, orders, strict=True):
            if self._is_stopped(change, order):
                stopped.setdefault(number, set()).add(change.row)
        return stopped

    def _grouped(
        self, bronze: pa.RecordBatch, batches: pa.Array, taken: Taken, left_out: Counter[LineKey]
    ) -> dict[LineKey, Taken]:
        """Messages by book line, without rows of excluded tables that come with those of others, which are added to ``left_out``;
        a message counts for its first change's table, of those that are kept if there are any.
        """
        columns = [batches, bronze.column("topic"), bronze.column("partition")]
        places = list(zip(*map(listed, columns), strict=True))
        groups: dict[tuple[tuple[int, str, int], TableId], Taken] = {}
        for number, changes in taken.items():
            kept = self._without_excluded(changes) if len(changes) > 1 else changes
            place: tuple[int, str, int] = places[number]
            group = (place, kept[0].table if kept else NO_TABLE)
            if kept is not changes:
                counted = None if tally.holds_statement(kept) else group[1]  # by the message
                left_out.update(
                    LineKey(*place, change.table)
                    for change in changes
                    if change.op in _OF_ROWS and change.table != counted and self._is_excluded(change.table)
                )
            group_messages = groups.get(group)
            if group_messages is None:
                group_messages = groups[group] = {}
            group_messages[number] = kept
        return {LineKey(*place, table): of_place for (place, table), of_place in groups.items()}

    def _without_excluded(self, changes: Sequence[Change]) -> Sequence[Change]:
        """What a message brings for tables that are kept, and all statements, which may concern these; a message of
        nothing but excluded tables as it is, without the marks around it.
        """
        excluded = {table for table in {change.table for change in changes} if self._is_excluded(table)}
        if not excluded:
            return changes
        others = [change for change in changes if change.table not in excluded]
        if tally.is_control(others):
            return [change for change in changes if change.table in excluded]
        return others + [change for change in changes if change.table in excluded and change.op is Op.DDL]

    def _arrivals(self, bronze: pa.RecordBatch, named: Mapping[int, tuple[int, ...]]) -> list[str]:
        """The arrival of each message as written in its order keys: its own, unless it names another one."""
        names = ("batch", "partition", "offset", "topic")
        batches, partitions, offsets, topics = (listed(bronze.column(name)) for name in names)
        keys = arrival_keys(batches, self.rank, partitions, offsets, topics if self.counts_by_topic else ())
        for number, arrival in named.items():
            keys[number] = arrival_key(arrival)
        return keys

    # --- books ---

    def _book(self, bronze: pa.RecordBatch, written: DecodedPage) -> None:
        counted: dict[LineKey, list[int]] = {}
        for place, messages, start, end in written.spans:
            line = self._line(place)
            if self._is_excluded(place.table):
                tally.count_excluded(line, messages)
            else:
                tally.count_messages(line, messages)
            for table, numbers in _by_table(place.table, written.rows, range(start, end)):
                counted.setdefault(place._replace(table=table), []).extend(numbers)
            if end > start:
                self._count_servers(line, bronze, written.rows[start:end], written.at[start:end])
        for place, numbers in counted.items():
            numbers.sort(
                key=written.at.__getitem__
            )  # a message of several tables is in the span of its first one
            rows, orders = (
                [written.rows[each] for each in numbers],
                [written.orders[each] for each in numbers],
            )
            tally.count_rows(self._line(place), rows, orders)
        for place, count in written.erased.items():
            self._line(place).erased += count
        for place, count in written.left_out.items():
            self._line(place).left_out += count

    def _book_load_marks(self, bronze: pa.RecordBatch, batches: pa.Array, taken: Taken) -> None:
        """Book where full loads begin and end: the marks are not rows, so nothing else keeps them."""
        offsets = bronze.column("offset")
        for number, changes in taken.items():
            if len(changes) == 1 and (mark := tally.load_mark(changes[0], offsets[number].as_py())):
                self._line_of(bronze, batches, number, changes[0].table).load_marks.append(mark)

    def _count_servers(
        self, line: Line, bronze: pa.RecordBatch, rows: Sequence[Change], numbers: Sequence[int]
    ) -> None:
        if self.order_by == "sequence" and any(change.servers for change in rows):
            tally.count_servers(line, self.epoch, rows, bronze["offset"].take(pa.array(numbers)).to_pylist())

    def _line_of(self, bronze: pa.RecordBatch, batches: pa.Array, at: int, table: TableId) -> Line:
        columns = (batches, bronze["topic"], bronze["partition"])
        number, topic, partition = (column[at].as_py() for column in columns)
        return self._line(LineKey(number, topic, partition, table))

    def _line(self, place: LineKey) -> Line:
        line = self.lines.get(place)
        if line is None:
            line = Line(place.batch, self.name, place.topic, place.partition, *place.table)
            self.lines[place] = line
        return line

    def _exclude_sequences(self, taken: Taken) -> None:
        """Leave out MariaDB's sequences, unless the pipeline file says how their rows are kept: each reserved range of numbers is
        a row without a key in the binary log.
        """
        for change in chain.from_iterable(taken.values()):
            if change.keys or change.after is None or change.after.keys() != _OF_A_SEQUENCE:
                continue
            rule = self.pipeline.rule(change.table)
            if not rule.keys and rule.no_key == "hold":
                self.excluded[change.table] = True

    def _is_excluded(self, table: TableId) -> bool:
        known = self.excluded.get(table)
        if known is None:
            known = table.table is not None and self.pipeline.rule(table).exclude
            self.excluded[table] = known
        return known

    def books(self) -> pa.RecordBatch:
        """The book lines of everything decoded so far, as rows."""
        lines = self.lines.values()
        return change_rows.of_book_lines(
            self.name, [line.batch for line in lines], [clean(line.to_json()) for line in lines]
        )


def _upserting(
    parse: Callable[[Message, Hints], Iterable[Change]], message: Message, hints: Hints
) -> list[Change]:
    """A message's changes, of a source whose inserts are of rows that may be there already, and are whole as any insert."""
    return [
        msgspec.structs.replace(change, op=Op.UPDATE, partial=False) if change.op is Op.INSERT else change
        for change in parse(message, hints)
    ]


def _by_table(
    first: TableId, rows: Sequence[Change], numbers: range
) -> Iterator[tuple[TableId, Sequence[int]]]:
    """The rows of one span, by number and by their own table, which need not be that of their message's first change."""
    tables = {rows[number].table for number in numbers}
    if tables <= {first}:
        if numbers:
            yield first, numbers
        return
    for table in sorted(tables, key=str):
        yield table, [number for number in numbers if rows[number].table == table]


def _named(taken: Taken) -> dict[int, tuple[int, ...]]:
    """The arrivals that messages name, by their rows in the Arrow batch."""
    return {number: changes[0].arrival for number, changes in taken.items() if changes and changes[0].arrival}


def _by_place(bronze: pa.RecordBatch, few: int) -> list[pa.RecordBatch]:
    """The messages of each place, one after the other; all together if there are fewer of each."""
    count = bronze.num_rows
    first, second = bronze.slice(0, max(0, count - 1)), bronze.slice(1)
    ends = [pc.not_equal(first[name], second[name]) for name in ("batch", "topic", "partition")]
    cuts = pc.indices_nonzero(reduce(pc.or_, ends)).to_pylist()
    if not cuts or count < few * (len(cuts) + 1):
        return [bronze]
    starts = [0, *(cut + 1 for cut in cuts)]
    return [bronze.slice(start, end - start) for start, end in zip(starts, [*starts[1:], count], strict=True)]


def _is_plain(bronze: pa.RecordBatch) -> bool:
    """True for messages from one place, without headers."""
    places = [bronze.column(name) for name in ("batch", "topic", "partition")]
    headers = bronze.column("headers")
    return all(pc.count_distinct(column).as_py() == 1 for column in places) and headers.null_count == len(
        headers
    )


def _is_counted(change: Change) -> bool:
    """True for a row at a log file's position, which is written as ``file:pos:row``."""
    return len(change.sequence) == 3 and change.op in _COUNTED and (change.position or "").count(":") >= 2


def _pairs(headers: list[Mapping[str, Any]]) -> tuple[tuple[str, bytes | None], ...]:
    for header in headers:
        if header["key"] == KEY_DROPPED:
            raise Undecodable("key-dropped", "the key of its day was dropped before it was decoded")
        if header["key"] == OVERSIZE:
            raise Undecodable(
                "record-too-large",
                f"the record has {bytes(header['value']).decode()} bytes, more than its source's max_record_bytes, and was "
                "not kept: write a larger max_record_bytes there, then deliver the record again in a new file",
            )
    return tuple((header["key"], header["value"]) for header in headers)


def _stumbled(at: int, error: Exception) -> Refused:
    return Refused(at, "decoder-error", f"{type(error).__name__}: {str(error)[:200]}")


def _refusal(refused: Refused, *, hide: bool) -> str:
    detail = detail_without_values(refused.code, refused.detail) if hide else refused.detail
    reject = {"reason": refused.code, "detail": clean(detail), "decoder": DECODER}
    return json.dumps(reject, ensure_ascii=False)


def _statement(change: Change, masks: Masks | None) -> str:
    parsed = ddl.of_change(change)
    if masks is not None:
        parsed, change = masks.statement(parsed), without_literals(change)
    payload = {"statement": change.ddl or "", "parsed": parsed}
    return clean(msgspec.json.encode(payload).decode())


def clean(text: str) -> str:
    """Escape lone surrogates, which cannot be written."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
