"""The same histories through a whole pipeline: message files, Spark, Delta mirrors, quality."""

from __future__ import annotations

import datetime as dt
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingest import formats
from ingest.change import Message, TableId
from ingest.config import Pipeline
from ingest.config.model import Source as Origin
from ingest.gold import approval
from ingest.gold.plan.policy import HELD, NOTICED, PARTLY
from ingest.ledgers import mirrors
from ingest.quality.arrow_rows import read
from ingest.result import STAGES
from ingest.store.names import mirror_path
from tests.model.checks import (
    BATCHES,
    BY_SECOND,
    Capture,
    Wrong,
    binlog,
    delivered,
    differences,
    policy_of,
)
from tests.model.plain import Mirror
from tests.model.rows import History

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ingest.tables.lake import Lake


@dataclass(slots=True)
class Feed:
    """The histories of one dialect, and their messages in batches."""

    capture: Capture
    made: list[History] = field(default_factory=list)
    batches: list[list[Message]] = field(default_factory=lambda: [[] for _ in range(BATCHES)])

    @property
    def name(self) -> str:
        """The source's name."""
        return self.capture.name.replace(" ", "_")


def in_lines(capture: Capture) -> bool:
    """True for dialects whose messages are lines of a file, each whole without its Kafka key."""
    return formats.load(capture.dialect.format).ABOUT.framing == "lines"


def feeds(
    captures: Sequence[Capture], numbers: Iterable[int], steps: Mapping[str, int], seed: str
) -> list[Feed]:
    """Histories of all dialects in turn."""
    found = [Feed(one) for one in captures if in_lines(one)]
    for number in numbers:
        feed = found[number % len(found)]
        [made] = feed.capture.histories([number], feed.capture.life(steps), seed)
        feed.made.append(made)
        messages = feed.capture.dialect.write(made)  # type: ignore[arg-type]
        ordered = feed.capture.name in BY_SECOND
        for batch, part in enumerate(delivered(messages, number, feed.capture, ordered=ordered)):
            feed.batches[batch] += [message._replace(topic=f"h{number}") for message in part]
    return [feed for feed in found if feed.made]


def pipeline_of(feeds: Sequence[Feed], folder: Path, apply: str, budget: int | None) -> Pipeline:
    """One pipeline with a source for each dialect."""
    sources = tuple(
        Origin(
            feed.name, "files", feed.capture.dialect.format, feed.capture.dialect.hints.options,
            path=str(folder / feed.name / "*.jsonl"),
        )
        for feed in feeds
    )  # fmt: skip
    rules = tuple(rule for feed in feeds for rule in feed.capture.rules(feed.made))
    lake = str(folder / "lake")
    return Pipeline(
        "model", folder / "x.yaml", lake, sources, rules, engine="auto", apply=apply, rewrite_budget=budget
    )


def arrive(messages: Iterable[Message], folder: Path) -> None:
    """Write messages at the ends of their histories' files: each is a stream of its own, and grows."""
    folder.mkdir(exist_ok=True)
    for message in messages:
        if message.value is not None:
            with (folder / f"{message.topic}.jsonl").open("ab") as stream:
                stream.write(message.value + b"\n")


def played(
    spark: SparkSession, feeds: Sequence[Feed], folder: Path, apply: str = "auto", budget: int | None = None
) -> list[Wrong]:
    """Run all batches with that ``apply`` and ``rewrite_budget``; the histories that end silently wrong."""
    from ingest import run as running
    from ingest.tables.lake import Lake

    pipeline, warm = pipeline_of(feeds, folder, apply, budget), running.Warm()
    loud: dict[str, set[str]] = {}
    for number in range(BATCHES):
        for feed in feeds:
            arrive(feed.batches[number], folder / feed.name)
        stages = STAGES if number == BATCHES - 1 else STAGES[:3]
        result = running.run(spark, pipeline, stages, warm)
        for one in result.mirrors:
            if one.state in ("failed", "held"):
                loud.setdefault(one.mirror, set()).add(f"{one.state}: {one.message}")
    lake = Lake(spark, pipeline)
    return alarmed(lake, feeds, loud) + wrong(lake, feeds, loud)


def wrong(lake: Lake, feeds: Sequence[Feed], loud: dict[str, set[str]]) -> list[Wrong]:
    """The histories whose mirrors differ from the source, and neither a run, a check nor a statement says so."""
    failed = "SELECT mirror, \"check\", detail FROM {checks} WHERE mirror IS NOT NULL AND state <> 'pass'"
    for row in lake.ask(failed):
        loud.setdefault(row["mirror"], set()).add(f"{row['check']}: {row['detail']}")
    # a table that no row has come for has no mirror, but its statements are listed
    for listed in approval.listed(lake):
        if listed.state in (HELD, NOTICED, PARTLY):
            loud.setdefault(listed.mirror, set()).add(f"{listed.state}: {listed.statement.text}")
    known = mirrors.known(lake)
    return [
        Wrong(one.number, feed.capture.name, found, binlog(one))
        for feed in feeds
        for one in feed.made
        if (found := differences(one, got := _mirrors(lake, known, one, loud)) + _surplus(one, got))
    ]


JUDGING = (
    "key_unique", "key_not_null", "missing_rows", "ghost_rows", "wrong_cells", "schema", "up_to_date", "readable",
)  # fmt: skip
"""The checks that say of a mirror that it is not the fold of its changes."""


def alarmed(lake: Lake, feeds: Sequence[Feed], loud: Mapping[str, set[str]]) -> list[Wrong]:
    """The histories whose mirrors equal the source although a check says that they are not the fold of their changes.

    A mirror that is held or failed may differ from the source.
    """
    complaints: dict[str, list[str]] = {}
    for row in lake.ask(
        "SELECT mirror, \"check\", state, detail FROM {checks} WHERE state <> 'pass' AND mirror IS NOT NULL"
    ):
        if row["check"] in JUDGING:
            complaints.setdefault(row["mirror"], []).append(f"false alarm of {row['check']}: {row['detail']}")
    known, found = mirrors.known(lake), list[Wrong]()
    for feed in feeds:
        for made in feed.made:
            names = {str(made.table_id(table)) for table in made.source.known()}
            alarms = [text for name in sorted(names) for text in complaints.get(name, [])]
            if alarms and not names & loud.keys() and not differences(made, _mirrors(lake, known, made, {})):
                found.append(Wrong(made.number, feed.capture.name, alarms, binlog(made)))
    return found


def _surplus(made: History, found: Mapping[TableId, Mirror]) -> list[str]:
    """Columns that a table has lost since tables were created or renamed, and a mirror under ``evolve`` still has."""
    if policy_of(made.number) != "evolve" or not made.statements:
        return []
    wrong = []
    for table in made.source.known():
        lost: set[str] = set()
        for event in made.events:
            if event.kind in ("rename", "query"):
                lost.clear()
            elif event.table == table.name:
                lost |= event.shape.keys()
        mirror = found[made.table_id(table)]
        if not mirror.loud:
            names = (mirror.columns & lost) - table.shape.keys() - {*mirror.keys}
            wrong += [f"{table.name}: column {name} should not be" for name in sorted(names)]
    return wrong


def _mirrors(
    lake: Lake, known: Mapping[str, mirrors.Mirror], made: History, loud: Mapping[str, set[str]]
) -> dict[TableId, Mirror]:
    found = {}
    for table in made.source.known():
        name = made.table_id(table)
        mirror = found[name] = Mirror(loud=set(loud.get(str(name), ())))
        if not any(event.row and event.table == table.name for event in made.events):
            mirror.loud.add("a name that has sent no row has no mirror, also if a table with rows gets it")
        if not mirror.loud and lake.exists(path := mirror_path(name)):
            mirror.keys, columns = known[path].keys, known[path].columns
            mirror.columns = {one.name for one in columns}
            for page in read(lake, path, [one.column for one in columns], "true"):
                for row in zip(*[column.to_pylist() for column in page.columns], strict=True):
                    cells = zip(columns, map(_text, row), strict=True)
                    mirror.rows[len(mirror.rows)] = {one.name: cell for one, cell in cells}
    return found


_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _text(cell: Any) -> str | None:
    """A cell as canonical text."""
    if isinstance(cell, Decimal):  # a column that was made again keeps its old type, of more digits
        return re.sub(r"\.0+$", "", f"{cell:f}")
    if isinstance(cell, float):
        return _NOT_FINITE.get(str(cell)) or str(cell).removesuffix(".0")
    if isinstance(cell, bytes):
        return b64encode(cell).decode()
    if isinstance(cell, dt.datetime):
        return cell.replace(tzinfo=None).isoformat() + "Z" if cell.tzinfo else str(cell)
    return None if cell is None else json.dumps(cell) if isinstance(cell, bool) else str(cell)
