"""Lakes of random histories in random dialects, with planted values: every file is searched for them.

Their masks, rules, dialects, damages and batches are drawn from a seed; everything else is the product's, as users run it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

from ingest import formats
from ingest.change import Image, Message, TableId
from ingest.cli.app import app
from ingest.config import load
from ingest.erase import plan as planning
from ingest.erase import remove
from ingest.erase.plan import Texts
from ingest.erase.search import search
from ingest.errors import Undecodable
from ingest.gold import evidence
from ingest.run import Warm, run
from ingest.store.names import mirror_path
from ingest.tables.lake import Lake
from tests.formats.one_history.history import KEYS, Event, History, history
from tests.formats.one_history.test_one_history import DIALECTS, LOSSES, NONE
from tests.formats.one_history.writing import Dialect
from tests.formats.protobuf_cases import in_parts
from tests.properties.planting import MARK, Planter, Row, planted
from tests.silver.test_masks import wounds
from tests.unstarted import unstarted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ingest.result import Result

SECRET = "a secret of sixteen characters or more"
SEAL = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
TABLE = "depot.parcels"
FIT = ("id", "lane", "weight", "worth", "remark", "letter", "sent_on", "packed_at", "seal", "extras", "desk")
BATCHES = 3
_EXPECTED = [  # which fail, and whose observed numbers and failing keys are of the rows
    {"type": "expect_column_max_to_be_between", "column": "weight", "max_value": 1, "severity": "warn"},
    {"type": "expect_column_min_to_be_between", "column": "worth", "min_value": 10**30, "severity": "warn"},
    {
        "type": "expect_column_values_to_be_in_set",
        "column": "letter",
        "value_set": ["fine"],
        "severity": "warn",
    },
    {"type": "expect_column_values_to_not_match_regex", "column": "remark", "regex": "q", "severity": "warn"},
]


def dialects() -> list[str]:
    """Those that files can hold: the ones whose messages have no key of their own, and need no registry."""
    return [name for name, one in DIALECTS.items() if not formats.load(one.format).ABOUT.by_registry]


@dataclass(slots=True)
class Searched:
    """What was done, and what was found in it."""

    dialect: str
    values: int  # that were looked for
    files: int
    size: int
    rows: int  # of the mirrors
    wrong: list[str]


class PlantedLake:
    """A lake of one table in one dialect, whose columns are masked or whose rows are erased."""

    def __init__(
        self, seed: int, folder: Path, *, erases: bool = False, spark: SparkSession | None = None
    ) -> None:
        self.random, self.cuts = Random(f"planted/{seed}/{erases}"), Random(f"cut/{seed}")
        names = dialects()
        Random("planted").shuffle(names)  # neighbours are alike
        self.name = names[seed % len(names)]
        self.dialect: Dialect = DIALECTS[self.name]
        self.loss = LOSSES.get(self.name, NONE)
        self.folder = folder / str(seed)
        self.folder.mkdir(parents=True)
        self.spark = spark
        self.session: Any = spark or unstarted()
        self.warm, self.files, self.results = Warm(), 0, list[Any]()
        self.sealed = self.random.random() < 0.5
        truth = history(seed, truncates=not self.loss.truncates, length=80 if erases else 30)
        columns = FIT if erases else self.random.sample(FIT, self.random.randint(3, len(FIT)))
        self.mask = {} if erases else {name: self._mask(name) for name in columns}
        self.planter = Planter(self.random, columns, is_odd=erases)
        self.truth, self.rows_of = planted(truth, self.planter, self.dialect)
        self.sent: list[tuple[set[Row], Message]] = []
        for event, numbers in zip(self.truth.events, self.rows_of, strict=True):
            self.sent += [(numbers, one) for one in self._written([event])]
        parse = formats.load(self.dialect.format).parse
        changes = (change for _, one in self.sent for change in parse(one, self.dialect.hints))
        self.table = next(change.table for change in changes if change.after)
        self.file = self.folder / "depot.yaml"
        self.file.write_text(json.dumps(self._text()), "utf-8")  # JSON is YAML
        self.pipeline = load(self.file)

    def _mask(self, name: str) -> str | None:
        return "hmac" if name in KEYS else self.random.choice(("hmac", "tokenize", "last4", None))

    def _written(self, events: Sequence[Event]) -> list[Message]:
        return self.dialect.write(History(self.truth.seed, list(events)))

    def _text(self) -> dict[str, Any]:
        hints, options = self.dialect.hints.tables(TableId("depot", None, "parcels")), {}
        for name in ("timezone", "swap_old_data", "key_is_full"):
            value = getattr(self.dialect.hints.options, name)
            if value != getattr(type(self.dialect.hints.options)(), name):
                options[name] = value
        if not self.loss.order and formats.load(self.dialect.format).ABOUT.order_by == "arrival":
            options["order_by"] = "sequence"  # as what the dialect's losses say is true for
        if self.dialect.hints.options.table:
            options["table"] = TABLE
        source: dict[str, Any] = {
            "name": "s", "kind": "files", "path": "./in-*.bin", "format": self.dialect.format, "settle": "1s",
            "framing": "length" if self.is_binary else "lines",
        }  # fmt: skip
        if options:
            source["options"] = options
        entry: dict[str, Any] = {"match": str(self.table), "keys": [*KEYS], **self._rules()}
        if hints.columns:
            entry["columns"] = {**hints.columns, **entry.get("columns", {})}
        if self.mask:
            entry["mask"] = self.mask
        text: dict[str, Any] = {
            "pipeline": "depot", "lake": "./lake", "engine": "spark" if self.spark and self.random.random() < 0.25 else "auto", "mask_secret": SECRET,
            "sources": [source], "tables": [entry],
        }  # fmt: skip
        if not self.mask:
            text["quality"] = [{"table": str(self.table), "expect": _EXPECTED}]
        if self.sealed:
            text["bronze"] = {"seal": {"master_key": SEAL}}
        return text

    def _rules(self) -> dict[str, Any]:
        """What the mirror and a further one are made of."""
        random, found = self.random, dict[str, Any]()
        kind = random.choice(
            ("plain", "soft", "where", "feed", "made", *(["history", "delta feed"] if self.spark else []))
        )
        if kind == "soft":
            found["deletes"] = "soft"
        elif kind == "history":
            found["history"] = True
        elif kind == "where":
            found["where"] = "pieces IS NULL OR pieces > 5"
        elif kind == "delta feed":
            found["change_feed"] = True
        elif kind == "feed":
            found["changes_of"] = True
        if kind == "made":
            free = [name for name in ("remark", "letter") if name not in self.mask]
            made = {"double": {"compute": "pieces // 2"}, "batch_of": {"meta": "batch"}}
            found["columns"] = made | {f"long_{name}": {"compute": f"{name} || '!'"} for name in free}
        if random.random() < 0.6:
            further: dict[str, Any] = {
                "into": "far.parcels",
                "columns": {"letter": "exclude", "remark": {"rename": "note"}},
            }
            further |= random.choice(({}, {"deletes": "soft"}, {"changes_of": True}, {"where": "fragile"}))
            found["also"] = [further]
        return found

    # --- running it ---

    def deliver(self, messages: Sequence[Message]) -> Result:
        """One batch through all stages."""
        self.files += 1
        path = self.folder / f"in-{self.files}.bin"
        lines = [part for one in messages for part in self._in_parts(one.value or b"")]
        if self.is_binary:
            path.write_bytes(b"".join(len(one).to_bytes(4, "big") + one for one in lines))
        else:
            path.write_bytes(b"".join(one + b"\n" for one in lines))
        os.utime(path, (time.time() - 3600 + self.files,) * 2)
        judged = () if self.mask else ("quality",)
        result = run(self.session, self.pipeline, ("bronze", "silver", "gold", *judged), self.warm)
        self.results.append(result)
        return result

    def _in_parts(self, value: bytes) -> list[bytes]:
        """A message as its service sends it: one that may be split is at times sent in parts, of which some come twice, or break off."""
        if self.dialect.format != "tencent-protobuf" or self.cuts.random() < 0.6:
            return [value]
        try:
            first, second, third = in_parts(value, 3)
        except Undecodable:  # it is damaged
            return [value]
        return self.cuts.choice(
            (
                [first, second, third],
                [first, second, second, third],
                [first, second, first, second, third],
                [second, value],
            )
        )

    def run(self, hurt: Sequence[Message] = ()) -> None:
        """The history, in batches, with damaged messages among the others."""
        messages = [one for _, one in self.sent]
        damaged = [each for one in hurt for each in wounds(one.value or b"")]
        size = -(-len(messages) // BATCHES)
        for at in range(0, len(messages), size):
            part = messages[at : at + size] + [Message(one) for one in damaged[at // size :: BATCHES]]
            self.deliver(part)

    @property
    def is_binary(self) -> bool:
        """True if a message is not a line of text."""
        return formats.load(self.dialect.format).ABOUT.binary

    @property
    def lake(self) -> Lake:
        """The lake."""
        return Lake(self.session, self.pipeline)

    def mirror(self) -> list[dict[str, Any]]:
        """The rows of the mirror."""
        return self.lake.ask_mirror(mirror_path(self.table), "SELECT * FROM {mirror}")

    # --- masks ---

    def answers(self) -> Iterator[tuple[str, str]]:
        """What the verbs print, and a report."""
        file, report = str(self.file), self.folder / "report.html"
        asked = [
            ("status", file), ("status", file, "-o", "json"), ("tables", file), ("rejects", file, "--all"),
            ("rejects", file, "-o", "json"), ("ddl", file), ("ddl", file, "-o", "json"), ("plan", file),
            ("alerts", file), ("rejects", "show", file, "1"), ("report", file, "--out", str(report)),
            ("sql", file, f"SELECT * FROM {self.table}"), ("sql", file, "SELECT * FROM changes"), ("infer", file),
        ]  # fmt: skip
        for words in asked:
            yield " ".join(words[:2]), CliRunner().invoke(app, [*words]).output
        yield "report.html", report.read_text("utf-8")
        yield "results", repr(self.results)

    def wanted(self) -> list[str]:
        """All planted texts, the mark among them: a part of a text is a leak, too."""
        return [
            MARK,
            *sorted({one for texts in self.planter.texts.values() for one in texts if MARK not in one}),
        ]

    def masked(self) -> Searched:
        """Run it, and search everything but what bronze holds as it was sent."""
        self.run([one for _, one in self.random.sample(self.sent, min(4, len(self.sent)))])
        wanted, wrong = self.wanted(), self._states()
        sent = b"".join(one.value or b"" for _, one in self.sent)
        if not any(one.encode() in sent for one in wanted):
            wrong.append("nothing was planted")
        found = search(self.folder / "lake", wanted)
        for hit in found.hits:
            if self.sealed or not hit.file.startswith("bronze/"):
                wrong.append(f"{hit.file} {hit.column}: {wanted[hit.number - 1]}")
        for name, text in self.answers():
            wrong += [f"{name}: {one}" for one in wanted if one in text]
        return self._searched(wanted, found, wrong)

    def _searched(self, wanted: Sequence[str], found: Any, wrong: Sequence[str]) -> Searched:
        faults = [f"{self.folder.name} {self.name}: {one}" for one in (*wrong, *found.unread)]
        return Searched(self.name, len(wanted), found.files, found.size, len(self.mirror()), faults)

    def _states(self) -> list[str]:
        states = {one.path: one for result in self.results for one in result.mirrors}
        return [f"{one.path} is {one.state}: {one.message}" for one in states.values() if one.state not in ("done", "skipped", "idle")]  # fmt: skip

    # --- erasure ---

    def _leave(self) -> None:
        """What killed processes leave: a rebuild's tables, files that no version has, and halves of log entries."""
        lake = self.folder / "lake"
        shutil.copytree(lake / "changes", lake / "_rebuild" / "killed" / "changes")
        shutil.copytree(lake / "mirrors", lake / "_rebuild" / "killed" / "mirrors")
        for log in [*lake.rglob("_delta_log")]:
            last = max(log.glob("0*.json"))
            shutil.copy(last, log / f".{self.random.getrandbits(64):016x}.tmp")
            shutil.copy(last, log / f"_commit_{self.random.getrandbits(64):016x}.json.tmp")
            for file in [*log.parent.rglob("*.parquet")][:3]:
                if log.name not in file.relative_to(log.parent).parts:
                    shutil.copy(file, file.with_name(f"part-{self.random.getrandbits(64):016x}.parquet"))

    def erased(self) -> Searched:
        """Run it, erase some rows at once, and search every file; then send their old messages again."""
        ends: dict[Row, Texts] = {}
        keys: dict[Row, set[Texts]] = {}  # all that a row had: a mirror may keep it as deleted under each
        for event, numbers in zip(self.truth.events, self.rows_of, strict=True):
            images = [_key(image) for image in (event.before or event.row, event.row)] if numbers else []
            for number, key in zip(sorted(numbers), images, strict=False):
                ends[number] = images[1] if len(numbers) == 1 else key
                keys.setdefault(number, set()).update(images if len(numbers) == 1 else [key])
        victims = set(self.random.sample(sorted(ends), -(-len(ends) * 2 // 3)))
        others = [one for numbers, one in self.sent if not numbers & victims]
        self.run(self.random.sample(others, min(4, len(others))))
        wrong = self._states()
        gone = {key for number in victims for key in keys[number]}
        gone -= {key for number, key in ends.items() if number not in victims}
        wanted = sorted({one for number in victims for one in self.planter.texts[number]})
        held = search(self.folder / "lake", wanted)
        if not held.hits:
            wrong.append("nothing of the rows was there")
        before = self.mirror()
        self._leave()
        lake = self.lake
        erasure = planning.plan(
            lake, str(self.table), [ends[number] for number in victims], "asked", now=True
        )
        remove.erase(lake, erasure)
        found = search(self.folder / "lake", wanted)
        wrong += [f"{hit.file} {hit.column}: {wanted[hit.number - 1]}" for hit in found.hits]
        wrong += self._kept(before, gone, "after the erasure")
        if not self.loss.order:
            mine = [one for numbers, one in self.sent if numbers & victims]
            self.deliver(mine)
            wrong += self._states() + self._kept(before, gone, "after old messages came again")
        return self._searched(wanted, found, wrong)

    def _kept(self, before: list[dict[str, Any]], gone: set[tuple[str, ...]], when: str) -> list[str]:
        """What is wrong with the mirror, which has lost the rows of some keys and no others."""
        mirror = evidence.mirror_of(self.lake, str(self.table))
        keys = {evidence.typed_key(mirror, one) for one in gone}
        typed = [(evidence.typed_key(mirror, [str(row[name]) for name in KEYS]), row) for row in before]
        wanted = sorted(repr(row) for key, row in typed if key not in keys)
        found = sorted(map(repr, self.mirror()))
        lost = [f"{when} a row is lost: {one}" for one in wanted if one not in found]
        return lost + [f"{when} a row is there: {one}" for one in found if one not in wanted]


def _key(image: Image) -> Texts:
    return tuple(str(image[name]) for name in KEYS)


def masked(seed: int) -> Searched:
    """One lake with masks, made and searched, without Spark."""
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        return PlantedLake(seed, Path(folder)).masked()


@contextmanager
def made(*, erases: bool) -> Iterator[Callable[[int], Searched]]:
    """What makes and searches a lake by its number: one with masks, or one of which rows are erased, by Spark."""
    if not erases:
        yield masked
        return
    from ingest.spark.session import session, stop

    started = session("planted")

    def erased(seed: int) -> Searched:
        with tempfile.TemporaryDirectory(prefix="planted-") as folder:
            return PlantedLake(seed, Path(folder), erases=True, spark=started).erased()

    try:
        yield erased
    finally:
        stop(started)
