"""One history through one dialect: messages, delivery, mirrors, and what differs from the source."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from random import Random
from typing import Any, cast

from ingest import formats, types
from ingest.change import Message, Op, TableId
from ingest.config.model import TableRule
from ingest.values import instant_micros
from tests.formats.one_history.history import Column
from tests.formats.one_history.test_one_history import DIALECTS, LOSSES, NONE, Loss
from tests.formats.one_history.writing import Dialect
from tests.model import histories, plain, values
from tests.model.histories import history
from tests.model.parts import Life
from tests.model.rows import History
from tests.model.tables import Table

BATCHES = 3
AGAIN = (1, 2, 3, 4, 12, 40)  # so many messages a stream goes back
SEEDS = "abcdefghij"  # of the slow tests
WRITTEN = (
    "int", "bigint", "bigint unsigned", "decimal(10,2)", "decimal(38,10)", "double", "varchar(20)", "varchar(40)",
    "date", "time(6)", "datetime(6)", "timestamp(6)", "varbinary(6)", "varbinary(20)", "bit(12)",
    "enum('new','old')", "enum('new','old','it''s')",
)  # fmt: skip
"""Types that every writer knows."""
UNWRITTEN = {"tencent-json": ("timestamp(6)",)}
"""Types of which a dialect sends fewer digits than the source has: its TIMESTAMP counts milliseconds."""
RELOADS = {
    **dict.fromkeys(
        ("oms-canal", "oms-dataworks", "maxwell", "dts-avro", "debezium", "debezium with schema"), ("rows",)
    ),
    **dict.fromkeys(("dts-canal", "dts-canal before 2022-03-20", "drs-json", "drs-json-c"), ("rows",)),
    **dict.fromkeys(("dts-avro before 2020-06-18", "debezium-avro", "debezium flattened"), ("rows",)),
    "dms": ("drop", "truncate"),
}
"""Dialects in which rows that are loaded again have their place among the changes, and how that begins."""
FIXED = {
    "id": "int", "day": "varchar(20)", "a": "varchar(40)", "b": "varchar(40)", "c": "int", "d": "int",
    "Total": "decimal(10,2)", "note": "date", "uid": "int", "order_id": "int",
}  # fmt: skip
"""Columns as a pipeline file declares them, for dialects whose messages do not."""


@dataclass(frozen=True, slots=True)
class Capture:
    """A dialect in the model: its writer, and what it cannot say."""

    name: str
    dialect: Dialect
    loss: Loss
    keyed: bool
    typed: bool

    def life(self, steps: Mapping[str, int], **parts: Any) -> Life:
        """A life of those steps that the dialect can express."""
        unsaid = set() if not self.loss.statements else histories.STATEMENTS - {"truncate"}
        unsaid |= {"truncate"} if self.loss.truncates else set()
        unsaid |= set() if self.typed else histories.TYPING
        unsaid |= set() if self.keyed else histories.KEYING
        reloads = RELOADS.get(self.name, ())
        unsaid |= set() if reloads else {"reload"}
        known = {name: weight for name, weight in steps.items() if name not in unsaid}
        wide = self.name.startswith(("dts-canal", "obcloud-canal"))
        written = tuple(name for name in WRITTEN if name not in UNWRITTEN.get(self.name, ()))
        types = {} if wide else {"types": written, "keys": ("int", "bigint", "varchar(20)")}
        # "Incremental snapshot for table ... skipped cause the table has no primary keys" (Debezium's log)
        by_key = self.dialect.format.startswith("debezium")
        fixed = {} if self.typed else FIXED
        return Life(known, reloads=reloads, keyed_reloads=by_key, fixed=fixed, **{**types, **parts})

    def histories(self, numbers: Iterable[int], life: Life, seed: str) -> list[History]:
        """The histories of some numbers, as far as the dialect tells of them."""
        made = [history(number, life, seed) for number in numbers]
        for one in made:
            one.view, one.statements = self.loss.view, not self.loss.statements
        return made

    def rules(self, made: Iterable[History]) -> list[TableRule]:
        """What the pipeline file says of the tables of histories."""
        columns = {} if self.typed else {name: values.read(kind).logical for name, kind in FIXED.items()}
        return [
            TableRule(
                f"h{one.number}.{table}{end}",
                keys=() if self.keyed else keys,
                columns=columns,
                on_schema_change=policy_of(one.number),
            )
            for one in made
            if policy_of(one.number) != "lenient" or columns or not self.keyed
            for table, keys in {**{there.name: () for there in one.source.known()}, **one.keys}.items()
            for end in ("", "_*")  # and what it is renamed to
        ]


def policy_of(number: int) -> str:
    """The `on_schema_change` of a history's tables."""
    return Random(f"policy {number}").choice(("lenient", "lenient", "evolve"))


def _capture(name: str) -> Capture:
    dialect = DIALECTS[name]
    hints = dialect.hints.tables(TableId(None, None, None))
    loss = LOSSES.get(name, NONE)
    if dialect.format == "dts-shareplex":  # its sources are Oracle, whose statements the model does not write
        loss = loss._replace(statements=True)
    keyed = not hints.keys
    if dialect.format == "confluent-oracle":  # the model has no schemas; a key of one column is not named
        dialect, keyed = dialect._replace(write=partial(cast("Any", dialect.write), within="")), False
    return Capture(name, dialect, loss, keyed=keyed, typed=not hints.columns)


CAPTURES = tuple(_capture(name) for name, dialect in DIALECTS.items() if not dialect.hints.options.table)


@dataclass(slots=True)
class Wrong:
    """A history whose mirrors are silently wrong."""

    number: int
    capture: str
    found: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(
            [f"history {self.number} in {self.capture}:", *(f"  {one}" for one in self.found), *self.log]
        )


def delivered(
    messages: Sequence[Message], number: int, capture: Capture, *, ordered: bool = False
) -> list[list[Message]]:
    """The messages in batches: late (unless ``ordered``), twice and cut anywhere, as far as the dialect allows."""
    random, loss = Random(f"delivery {number}"), capture.loss
    blocks = _blocks(messages, capture.dialect)
    found: list[list[Message]] = []
    if not loss.order and not ordered:
        style = random.randrange(3)
        found = list(blocks)
        if style == 1:
            random.shuffle(found)
        elif style == 2:
            late = [i + 4 * random.random() for i in range(len(found))]
            found = [one for _, one in sorted(zip(late, found, strict=True), key=lambda pair: pair[0])]
        for one in random.choices(blocks, k=random.choice((0, len(blocks) // 4))):
            found.insert(random.randrange(len(found) + 1), one)
    else:
        for at, one in enumerate(blocks):
            if random.random() < 0.08 and not loss.once:
                found += blocks[max(0, at - random.choice(AGAIN)) : at]
            found.append(one)
    ends = sorted(random.randrange(len(found) + 1) for _ in range(random.choice((0, 1, BATCHES - 1))))
    parts = [found[start:end] for start, end in zip([0, *ends], [*ends, len(found)], strict=True)]
    return [[message for block in part for message in block] for part in parts]


def _blocks(messages: Sequence[Message], dialect: Dialect) -> list[list[Message]]:
    """The messages in blocks that arrive together and in their order: those of one position whose rows are counted again and
    again, where nothing but arrival gives their order.
    """
    module = formats.load(dialect.format)
    if not module.ABOUT.counts_rows:
        return [[message] for message in messages]
    blocks: list[list[Message]] = []
    last: tuple[int, ...] = ()
    for message in messages:
        [*changes] = module.parse(message, dialect.hints)
        sequence = changes[0].sequence if changes else ()
        position = sequence[:-1] if len(sequence) == 3 else ()
        if changes and changes[0].op is Op.CONTROL:  # a tombstone belongs to its delete
            position = last
        if position and position == last:
            blocks[-1].append(message)
        else:
            blocks.append([message])
        last = position
    return blocks


def checked(
    numbers: Iterable[int], capture: Capture, life: Life, seed: str = "", *, ordered: bool = False
) -> list[Wrong]:
    """Make, write, deliver and fold histories, all in the same few batches; those that end silently wrong."""
    dialect = capture.dialect
    made = capture.histories(numbers, life, seed)
    batches: list[list[Message]] = [[] for _ in range(BATCHES)]
    for one in made:
        written = dialect.write(one)  # type: ignore[arg-type]
        for number, part in enumerate(delivered(written, one.number, capture, ordered=ordered)):
            batches[number] += [message._replace(topic=f"h{one.number}") for message in part]
    pipeline = plain.pipeline_of(dialect, capture.rules(made))
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in plain.silver(pipeline, batches):
        rows.setdefault(row["topic"], []).append(row)
    found = []
    for one in made:
        wrong = differences(one, plain.mirrors(pipeline, rows.get(f"h{one.number}", ())))
        if wrong:
            found.append(Wrong(one.number, capture.name, wrong, binlog(one)))
    return found


BY_SECOND = ("oms-default", "oms-default-extended", "oms-shareplex")
"""Dialects whose statements have a second and no counter: the order of arrival is their only sure place."""


def sure(capture: Capture) -> Life:
    """A life of the steps of which nothing may go wrong."""
    return capture.life(histories.SURE, hurried=capture.name not in BY_SECOND)


def share(first: int, seed: str) -> list[Wrong]:
    """A hundred sure histories of the dialect whose turn it is, for a process of its own."""
    capture = CAPTURES[first // 100 % len(CAPTURES)]
    numbers = range(first, first + 100)
    return checked(numbers, capture, sure(capture), seed, ordered=capture.name in BY_SECOND)


def binlog(made: History) -> list[str]:
    """The binlog, one line per event."""
    return [
        f"    {one.number} {one.time / 1000:.3f} {one.kind} {one.table}: {one.sql or ''}"
        + (f" {one.before} -> {one.after}" if one.row else "")
        for one in made.events
    ]


def differences(made: History, found: Mapping[TableId, plain.Mirror]) -> list[str]:
    """What is silently wrong in the mirrors of the tables that are there."""
    wrong: list[str] = []
    for table in made.source.known():
        mirror = found.get(made.table_id(table), plain.Mirror())
        if not mirror.loud:
            wrong += [f"{table.name}: {one}" for one in compared(made.source.sent(table), mirror, made.view)]
            wrong += [f"{table.name}: a false alarm of key {key}" for key in mirror.twice]
            broken = [link for link in mirror.links if link.is_broken and not made.lost]
            wrong += [f"{table.name}: a false alarm of {link}" for link in broken]
    return wrong


def compared(table: Table, mirror: plain.Mirror, view: Callable[[Column, str], str | None]) -> list[str]:
    """What differs between a table and its mirror; ``view`` is what the dialect leaves of a value."""
    if not mirror.rows and not table.rows:
        return []
    names = table.key or mirror.keys  # a dropped key distinguishes the rows until another row comes
    if not all(name in table.shape for name in names):  # it was dropped, and so were its columns
        return _uncounted(table, mirror)
    wanted = {_key(table, row, names): row for row in table.rows.values()}
    actual = {_key(table, row, names): row for row in mirror.rows.values()}
    wrong = [] if len(actual) == len(mirror.rows) else ["one key twice"]
    wrong += [] if len(wanted) == len(table.rows) else ["two rows are one"]
    wrong += [f"row {key} is missing" for key in wanted.keys() - actual.keys()]
    wrong += [f"row {key} should not be" for key in actual.keys() - wanted.keys()]
    for key in wanted.keys() & actual.keys():
        for column in table.columns:
            truth, value = wanted[key][column.name], actual[key].get(column.name)
            truth = None if truth is None else view(table.shape[column.name], truth)
            if typed(column.type.logical, truth) != typed(column.type.logical, value):
                wrong.append(f"row {key}, {column.name}: {truth!r} became {value!r}")
    return wrong


def _uncounted(table: Table, mirror: plain.Mirror) -> list[str]:
    """What differs where nothing distinguishes the rows."""

    def counted(rows: Iterable[Mapping[str, str | None]]) -> Counter[tuple[object, ...]]:
        return Counter(
            tuple(typed(one.type.logical, row.get(one.name)) for one in table.columns) for row in rows
        )

    wanted, actual = counted(table.rows.values()), counted(mirror.rows.values())
    wrong = [f"row {row} is missing" for row in wanted - actual]
    return wrong + [f"row {row} should not be" for row in actual - wanted]


def _key(table: Table, row: Mapping[str, str | None], names: Iterable[str]) -> tuple[object, ...]:
    return tuple(typed(table.shape[name].logical, row.get(name)) for name in names if name in table.shape)


def typed(logical: str, text: str | None) -> object:
    """A value as what it is; text that is not canonical for its type equals no value."""
    if text is None:
        return None
    if types.base(logical) == "datetime" and len(text) == 10:
        text += " 00:00:00"  # as the column's widening from DATE casts it
    if types.base(logical) == "date":
        text = text.removesuffix(" 00:00:00")  # a column that was DATETIME before stays one
    pattern = types.PATTERNS.get(types.family(logical) or "")
    if pattern and not re.fullmatch(pattern, text):
        return ("not canonical", text)
    if text in ("NaN", "Infinity", "-Infinity"):
        return text
    base = types.base(logical)
    if base == "boolean":
        return {"true": True, "1": True, "false": False, "0": False}.get(text, text)
    if base == "timestamp":
        return instant_micros(text, "UTC")
    if base in ("datetime", "time"):
        return text.rstrip("0").rstrip(".") if "." in text else text
    if types.family(logical) == "integer" or base == "decimal":
        return Decimal(text)
    return float(text) if types.family(logical) == "float" else text
