"""Lakes of random histories under random rules, run as users run them: files, a pipeline file, and the stages.

Messages are lists of changes in JSON, which a parser of the test's own reads. All else is the product's, and no Spark.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ingest import formats
from ingest.change import Change, Message, Op, TableId
from ingest.config import load
from ingest.erase import plan as planning
from ingest.erase import remove
from ingest.errors import IngestError
from ingest.run import Warm, run
from ingest.tables.lake import Lake
from tests.properties.delivery import Batches, deliver
from tests.properties.histories import History, Sent, history, moment
from tests.properties.kinds import ARRIVAL, ONE_OF_EACH, SEQUENCE, TRANSACTION, Kind
from tests.properties.rules import SECRET, Rule, canonical, rule
from tests.unstarted import unstarted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "dts-canal"
KINDS = {
    "full": {},
    "partial": {"partials": True},
    "moving": {"moves": True},
    "mixed": {"partials": True, "moves": True},
    "inheriting": {"partials": True, "moves": True, "inherits": True},
    "cleared": {"partials": True, "moves": True, "truncate_at": (4, 9)},
    "weak": {"partials": True, "moves": True, "order": ARRIVAL},
    "shared": {"partials": True, "moves": True, "order": TRANSACTION},
}
BATCHES = 4
Place = tuple[str | None, tuple[object, ...]]
"""A row's database and key."""


@dataclass(slots=True)
class Source:
    """A source table with its histories."""

    table: TableId
    histories: list[History]


@dataclass(slots=True)
class Subject:
    """A mirror: its rule, the tables that it has the rows of, and what erasures have changed."""

    name: str
    kind: Kind
    rule: Rule
    sources: list[Source]
    merged: str = ""  # "", "shard" (a column says which table a row is of), or "apart" (the key alone does)
    erased: set[Place] = field(default_factory=set)
    new: dict[Place, dict[str, str | None]] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The mirror's path under the lake."""
        return f"mirrors/shop/{self.name}"

    @property
    def entry(self) -> dict[str, Any]:
        """The entry of `tables:`."""
        if not self.merged:
            return {"match": f"db_0.{self.name}", "into": f"shop.{self.name}", **self.rule.entry}
        column = {"shard_column": "shard"} if self.merged == "shard" else {}
        return {"match": rf"db_(\d+).{self.name}", "into": f"shop.{self.name}", **column, **self.rule.entry}

    def images(self) -> Iterator[tuple[Source, dict[str, Any], dict[str, str | None], int | None]]:
        """The rows at the sources: each one's source, key, other columns, and the message that deleted it, if one did."""
        for source in self.sources:
            place = source.table.database
            for one in source.histories:
                live = {key: row for key, row in one.rows.items() if (place, key) not in self.erased}
                for key, row in live.items():
                    yield source, dict(zip(one.keys, key, strict=True)), row, None
                for key, (row, at) in one.dead.items() if self.rule.soft else ():
                    if (place, key) not in self.erased and (place, key) not in self.new:
                        yield source, dict(zip(one.keys, key, strict=True)), row, at
            for (of, key), row in self.new.items():
                if of == place:
                    yield source, dict(zip(source.histories[0].keys, key, strict=True)), row, None

    @property
    def collides(self) -> bool:
        """True if two tables have rows with the same key and nothing distinguishes them."""
        keys = Counter(str(key) for _, key, _, _ in self.images())
        return self.merged == "apart" and max(keys.values(), default=0) > 1

    def put(self, place: str | None, key: tuple[object, ...], number: int) -> Sent:
        """A new row under a key, newer than all others."""
        row: dict[str, str | None] = {
            "n": str(number),
            "s": f"s{number}",
            "d": f"900719925474099307{number}.10",
        }
        self.new[place, key] = row
        [source] = [one for one in self.sources if one.table.database == place]
        made = source.histories[0]
        cells = dict(zip(made.keys, map(canonical, key), strict=True))
        change = Change(
            op=Op.INSERT, table=source.table, keys=made.keys, types=made.sent[0].changes[0].types,
            after=cells | row, sequence=(10**20 + number,), event_time=moment(99),
        )  # fmt: skip
        return Sent(0, (change,))

    def expected(self) -> list[dict[str, Any]]:
        """The rows that the mirror must hold."""
        found = []
        for source, key, row, deleted in self.images():
            made = self.rule.row(key, row, str(source.table))
            if made is None:
                continue
            if self.merged == "shard":
                made["shard"] = str(source.table)
            if self.rule.soft:
                at = None if deleted is None else moment(deleted)
                made |= {"_deleted": deleted is not None, "_deleted_at": at}
            found.append(made)
        return found


# --- making them ----------------------------------------------------------------------------------


def subject(random: Random, number: int, count: int) -> Subject:
    """A mirror of ``count`` histories with a random rule; one in four has the rows of two or three tables."""
    name, key_types = random.choice(list(KINDS)), random.choice(ONE_OF_EACH)
    kind = Kind(name, key_types, epochs=False, **cast("dict[str, Any]", KINDS[name]))
    merged = random.choice(["", "", "", "", "", "shard", "shard", "apart"])
    own = rule(random, key_types, soft_allowed=merged != "apart" and name != "inheriting")
    parts = random.choice((2, 3)) if merged else 1
    collides = merged == "apart" and random.random() < 0.25
    sources = []
    for part in range(parts):
        table = TableId(f"db_{part}", None, f"t{number}")
        numbers = (
            range(part, count, parts) if merged != "shard" and not collides else range(-(-count // parts))
        )
        made = [_history(kind, one, number, table, own.untyped) for one in numbers]
        for one in made[1:]:  # a table is truncated once for all of its histories
            if kind.truncate_at:
                one.sent = [sent for sent in one.sent if sent.changes[0].op is not Op.TRUNCATE]
        sources.append(Source(table, [one for one in made if one.sent]))
    return Subject(f"t{number}", kind, own, [one for one in sources if one.histories], merged)


def _history(kind: Kind, number: int, lake: int, table: TableId, untyped: str) -> History:
    """A history whose messages lack a column's type if the rule wants to say it."""
    made = history(
        replace(kind, name=f"{kind.name}_{lake}_{table.database}"), number, table=table, shared=True
    )
    types = {name: one for name, one in made.types.items() if name != untyped}
    made.sent = [
        Sent(0, tuple(msgspec.structs.replace(one, types=types) for one in sent.changes))
        for sent in made.sent
    ]  # fmt: skip
    return made


def checked(
    seed: int, folder: Path, count: int = 100, spark: SparkSession | None = None
) -> tuple[int, int, int, list[str]]:
    """Make, run and judge one lake; with a session rows are erased, too: changes, rows, erased rows, what is wrong."""
    lake = RuledLake(folder / str(seed), subjects(seed, count, 10))
    lake.run()
    wrong, erased = lake.wrong(), 0
    if spark is not None and not wrong:
        erased = lake.erase(spark, Random(f"erase/{seed}"))
        wrong = lake.wrong()
    changes = sum(
        len(made.sent) for one in lake.subjects for source in one.sources for made in source.histories
    )
    return changes, sum(len(one.expected()) for one in lake.subjects), erased, wrong


def subjects(seed: int, count: int, each: int) -> list[Subject]:
    """Mirrors for one lake, together of ``count`` histories."""
    random = Random(f"rules/{seed}")
    return [subject(random, seed * 1000 + number, each) for number in range(-(-count // each))]


# --- running them ---------------------------------------------------------------------------------


def parse(message: Message, _hints: object) -> list[Change]:
    """The changes of a message of these lakes."""
    return msgspec.json.decode(message.value or b"", type=list[Change])


@contextmanager
def parsed() -> Iterator[None]:
    """While it lasts, the format reads messages of these lakes."""
    module = cast("Any", formats.load(FORMAT))
    before, module.parse = module.parse, parse
    formats.reader.cache_clear()
    try:
        yield
    finally:
        module.parse = before
        formats.reader.cache_clear()


class RuledLake:
    """A lake with some mirrors under random rules."""

    def __init__(self, folder: Path, subjects: list[Subject]) -> None:
        self.folder, self.subjects, self.warm, self.files = folder, subjects, Warm(), 0
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "rules.yaml"
        text = {
            "pipeline": "rules", "lake": "./lake", "engine": "auto", "mask_secret": SECRET,
            "sources": [{"name": "s", "kind": "files", "path": "./in-*.jsonl", "format": FORMAT, "settle": "1s"}],
            "tables": [one.entry for one in subjects],
        }  # fmt: skip
        self.file.write_text(json.dumps(text), "utf-8")  # JSON is YAML
        self.states: dict[str, tuple[str, str]] = {}
        self.pipeline = load(self.file)
        self.session = unstarted()

    @property
    def lake(self) -> Lake:
        """The lake, without Spark."""
        return Lake(self.session, self.pipeline)

    def deliver(self, messages: list[Sent]) -> None:
        """One batch through bronze, silver and gold."""
        self.files += 1
        path = self.folder / f"in-{self.files}.jsonl"
        path.write_bytes(b"".join(msgspec.json.encode(sent.changes) + b"\n" for sent in messages))
        os.utime(path, (time.time() - 3600 + self.files,) * 2)
        result = run(self.session, self.pipeline, ("bronze", "silver", "gold"), self.warm)
        assert result.rejected == 0, result.warnings
        self.states |= {one.path: (one.state, one.message) for one in result.mirrors}

    def run(self) -> None:
        """All histories, batch by batch."""
        cut: Batches = [[] for _ in range(BATCHES)]
        for one in self.subjects:
            for source in one.sources:
                for made in source.histories:
                    for batch, sent in zip(cut, deliver(made, BATCHES), strict=True):
                        batch.extend(sent)
        for batch in cut:
            if batch:
                self.deliver(batch)

    def erase(self, spark: SparkSession, random: Random, most: int = 2) -> int:
        """Erase rows of some mirrors, and send old messages and new rows of erased keys; returns how many were erased.

        Only of tables with an order: in the others what comes again is newer.
        """
        fit = [
            one for one in self.subjects
            if one.kind.order == SEQUENCE and not one.collides and not (one.rule.soft and one.kind.moves)
        ]  # fmt: skip
        again: list[Sent] = []
        erased = 0
        for one in random.sample(fit, min(most, len(fit))):
            found = self._erase(spark, one, random)
            erased += len(found)
            for source in one.sources if found else ():
                sent = [message for made in source.histories for message in made.sent]
                last = max(sent, key=lambda message: message.changes[-1].sequence)
                again += [*random.sample(sent, len(sent) // 3), last]
            again += [one.put(*place, at) for at, place in enumerate(found[::2])]
        if again:
            self.deliver(again)
        return erased

    def _erase(self, spark: SparkSession, subject: Subject, random: Random) -> list[Place]:
        rows = [
            (source.table.database, key) for source in subject.sources for one in source.histories for key in one.rows
        ]  # fmt: skip
        chosen, lake = random.sample(rows, min(3, len(rows))), Lake(spark, self.pipeline)
        shard = subject.merged == "shard"
        texts = [[*map(canonical, key), *([f"{place}.{subject.name}"] * shard)] for place, key in chosen]
        try:
            erasure = planning.plan(lake, f"shop.{subject.name}", texts, "asked", now=False)
        except IngestError as error:
            if "has had another row" not in str(error):
                raise
            return []
        remove.erase(lake, erasure)
        subject.erased |= set(chosen)
        return chosen

    # --- judging them ---

    def wrong(self) -> list[str]:
        """What a mirror holds that it must not, or lacks; nothing if all are right."""
        return [
            f"{self.folder.name} {one.name}: {text}" for one in self.subjects for text in self._wrong(one)
        ]

    def _wrong(self, subject: Subject) -> Iterator[str]:
        state, why = self.states.get(subject.path, ("missing", ""))
        if subject.collides:
            if state != "held" or "both have a row with" not in why:
                yield f"two tables have rows of one key, but it is {state}: {why}"
            return
        expected = subject.expected()
        if state not in ("done", "skipped", "idle"):
            yield f"{state}: {why} {json.dumps(subject.entry)}"
            return
        found = self.lake.ask_mirror(subject.path, "SELECT * FROM {mirror}")
        yield from differences(subject, expected, [_plain(row) for row in found])
        if subject.rule.feed:
            yield from _of_feed(self.lake, subject, found)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a mirror with its time of deletion in microseconds."""
    at = row.get("_deleted_at")
    return row | ({"_deleted_at": round(at.timestamp() * 1_000_000)} if at is not None else {})


def differences(
    subject: Subject, expected: list[dict[str, Any]], found: list[dict[str, Any]]
) -> Iterator[str]:
    """Rows that are missing, wrong, or too many."""
    keys = [subject.rule.names.get(one, one) for one in subject.sources[0].histories[0].keys]
    keys += ["shard"] * (subject.merged == "shard")
    wanted = {tuple(canonical(row[key]) for key in keys): row for row in expected}
    there = {tuple(canonical(row[key]) for key in keys): row for row in found}
    if len(there) != len(found) or len(wanted) != len(expected):
        yield f"a key occurs twice, in {len(found)} rows of {len(there)} keys"
    for key in [*wanted.keys() - there.keys(), *there.keys() - wanted.keys()][:3]:
        yield f"{key}: expected {wanted.get(key)}, found {there.get(key)} under {json.dumps(subject.entry)}"
    for key in wanted.keys() & there.keys():
        if wanted[key] != there[key]:
            yield f"{key}: expected {wanted[key]}, found {there[key]} under {json.dumps(subject.entry)}"
            return


def _of_feed(lake: Lake, subject: Subject, found: list[dict[str, Any]]) -> Iterator[str]:
    """The mirror as its feed of changes gives it."""
    path = subject.path.replace("mirrors/", "feeds/")
    rows = Counter[str]()
    for one in lake.ask_mirror(path, "SELECT before, after FROM {mirror} ORDER BY number"):
        for image, sign in ((one["before"], -1), (one["after"], 1)):
            if image is not None:
                rows[_shown(json.loads(image))] += sign
                if rows[_shown(json.loads(image))] < 0:
                    yield f"its feed takes a row away that is not there: {image}"
    mirror = Counter(
        _shown({name: cell for name, cell in row.items() if not name.startswith("_deleted")}) for row in found
    )
    if +rows != mirror:
        yield f"its feed says {list((+rows - mirror).elements())[:2]}, the mirror {list((mirror - rows).elements())[:2]}"


def _shown(row: dict[str, Any]) -> str:
    """A row as text, whatever the spelling of its numbers."""
    texts = {
        name: re.sub(r"\.0$|(\.\d*?)0+$", r"\1", str(cell)).rstrip(".")
        for name, cell in row.items()
        if cell is not None and not name.startswith("_deleted")
    }
    return json.dumps(texts, sort_keys=True)
