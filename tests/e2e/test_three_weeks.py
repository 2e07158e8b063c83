"""Three weeks of a fleet: eight pipelines in eight dialects, a clock that moves, and something goes wrong every day.

Each day the mirrors equal the truth that the script keeps, and the list of problems is exactly what the script did
wrong; each way out is the command that the problem itself names, and the day after it the list is empty.
"""

from __future__ import annotations

import datetime as dt
import logging
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.fleet import Clock, Plant, typed

pytestmark = pytest.mark.slow

DAYS = 21
_LOG = logging.getLogger(__name__)  # the table of days: --log-file=FILE --log-file-level=INFO keeps it
START = dt.datetime(2026, 3, 2, 9, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Expected:
    """What a day must show of one pipeline.

    Args:
        problems: kind and mirror of each problem.
        rows: the rows that differ from the truth, as patterns of ``table/key``.
    """

    problems: set[tuple[str, str]] = field(default_factory=set)
    rows: set[str] = field(default_factory=set)


CALM = Expected()
Incident = Iterator[Expected]
BINS, BOXES = "depot.bins", "depot.boxes"


# --- what goes wrong: before a ``yield`` in the morning, after it in the evening -------------------------


def late_file_by_arrival(plant: Plant) -> Incident:
    """A file comes a day late, in a dialect whose messages have no position."""
    plant.update("bins", 1, word="early")
    late = [message.value or b"" for message in plant.taken()]
    plant.update("bins", 1, word="late")
    yield Expected({("images_before", BINS)})  # a change is missing
    plant.land(*late)
    yield Expected({("images_before", BINS)}, {"bins/1"})
    follow(plant, "explain")
    plant.load("bins")
    yield CALM


def late_file_by_position(plant: Plant) -> Incident:
    """A file comes a day late, in a dialect whose messages have positions."""
    plant.update("bins", 1, word="early")
    late = [message.value or b"" for message in plant.taken()]
    plant.update("bins", 1, word="late")
    yield Expected({("images_before", BINS)})
    plant.land(*late)
    yield CALM  # it was the change that was missing


def replayed_file(plant: Plant) -> Incident:
    """Yesterday's file arrives again under another name."""
    [*_, last] = sorted((plant.folder / "land").glob("*.jsonl"), key=lambda one: one.stat().st_mtime)
    plant.land(*last.read_bytes().splitlines())
    yield CALM


def full_load(plant: Plant) -> Incident:
    """A full load of a table beside ordinary changes."""
    plant.update("bins", 1, word=f"before {plant.number}")
    plant.load("bins")
    plant.insert([*plant.tables][-1], 900 + plant.files)
    yield CALM
    yield CALM


def refused_message(plant: Plant) -> Incident:
    """A message whose key is no number."""
    plant.insert("bins", 555)
    lines = [(message.value or b"").replace(b"555", b'"abc"', 1) for message in plant.taken()]
    del plant.tables["bins"]["555"]
    plant.land(*lines)
    yield Expected({("refused_changes", BINS)})
    follow(plant, "rejects", "rejects show", "rejects dismiss")
    yield CALM


def broken_line(plant: Plant) -> Incident:
    """A line that is no message."""
    plant.land(b'{"broken": ')
    yield Expected({("reject_rate", "")})
    follow(plant, "rejects", "rejects show", "rejects dismiss")
    yield CALM


def upserts(plant: Plant) -> Incident:
    """From now on, the source sends inserts of rows that are there: the pipeline file says so."""
    plant.rewrite('"options": {', '"options": {"inserts": "upsert"' + (", " if plant.options else ""))
    plant.load("bins", kind="insert")
    plant.tables["bins"]["1"] = {**plant.tables["bins"]["1"], "word": "upserted"}
    plant.load("bins", kind="insert")
    yield Expected({("decoded_before", "")})
    follow(plant, "backfill")
    yield CALM


def statement_that_waits(plant: Plant) -> Incident:
    """A table whose statements wait for approval gets a column."""
    plant.alter("frozen", "desk")
    plant.insert("frozen", 700)
    yield Expected({("held", "depot.frozen"), ("ddl_pending", "")}, {"frozen/*"})
    follow(plant, "ddl", "ddl approve", "run")
    yield CALM


def excluded_table(plant: Plant) -> Incident:
    """A table is not to be in the lake any more."""
    plant.rewrite("tables:\n", "tables:\n  - {match: depot.boxes, exclude: true}\n")
    yield Expected({("excluded", BOXES)}, {"boxes/*"})
    follow(plant, "drop")
    plant.tables.pop("boxes")
    yield CALM


def lost_file(plant: Plant) -> Incident:
    """A file never arrives; the next change of its row shows it."""
    plant.update("bins", 1, word="lost")
    plant.update("bins", 3, fee="0.01")
    plant.taken()
    yield Expected(rows={"bins/1", "bins/3"})
    plant.update("bins", 1, word="after")
    yield Expected({("images_before", BINS)}, {"bins/3"})
    follow(plant, "explain")
    plant.load("bins")
    told = {
        "images_before",
        "re_reads_ignored",
        "rows_read_again",
    }  # row 3 had been loaded before, with other values
    yield Expected({(kind, BINS) for kind in told}, {"bins/3"})
    follow(plant, "epoch", "epoch --complete")
    yield CALM


def moved(plant: Plant) -> Incident:
    """The folder of pipeline, lake and files has another name."""
    there = plant.folder.with_name(plant.folder.name + " moved")
    shutil.move(plant.folder, there)
    plant.folder = there
    yield CALM
    yield CALM


def mirror_deleted(plant: Plant) -> Incident:
    """Somebody deletes a mirror's folder."""
    shutil.rmtree(plant.folder / "lake/mirrors/depot/boxes")
    plant.quiet = {"boxes"}
    yield Expected({("failed", BOXES)}, {"boxes/*"})
    plant.quiet = set()
    follow(plant, "retry")
    yield CALM


def silence(plant: Plant) -> Incident:
    """The source sends nothing for three days."""
    plant.quiet = {*plant.tables}
    yield CALM
    yield CALM
    yield Expected({("freshness", BINS), ("freshness", BOXES)})
    plant.quiet = set()
    yield CALM


# --- the days ---------------------------------------------------------------------------------------

_SHOWN = re.compile(r"`(ingest [^`]*)`|^next: (ingest .*)$", re.MULTILINE)


def follow(plant: Plant, *verbs: str) -> None:
    """Type one command after the other, each as the problems or what was typed before it show it."""
    said = "\n".join(f"{one['text']}\nnext: {one['command']}" for one in plant.problems())
    for verb in verbs:
        shown = [one for pair in _SHOWN.findall(said) for text in pair for one in text.split(", or ")]
        line = next((one for one in shown if set(verb.split()) <= set(one.split())), None)
        assert line, (verb, said)
        code, out = typed(line.replace(" ...", " 'it was seen to'"))
        assert code == 0, (line, out)
        said += "\n" + out


@dataclass(frozen=True)
class Script:
    """A pipeline, what happens to it on which day, and its tables."""

    plant: Plant
    incidents: dict[int, Callable[[Plant], Incident]]
    tables: tuple[str, ...] = ("bins", "boxes")
    rules: str = ""


def scripts(folder: Path, clock: Clock) -> list[Script]:
    """The fleet."""

    def plant(dialect: str, *, columns: bool = True, **options: str) -> Plant:
        return Plant(dialect, folder / dialect.replace(" ", "_"), clock, options, columns)

    frozen = "  - {match: depot.frozen, on_schema_change: freeze}\n"
    shanghai = {"timezone": "Asia/Shanghai"}
    return [
        Script(
            plant("oms-canal", columns=False),
            {2: late_file_by_arrival, 9: replayed_file, 14: full_load},
        ),
        Script(
            plant("dts-canal", columns=False, **shanghai),
            {1: late_file_by_position, 6: statement_that_waits, 12: full_load, 16: upserts},
            ("bins", "boxes", "frozen"),
            frozen,
        ),
        Script(plant("debezium with schema"), {3: full_load, 8: late_file_by_position, 15: replayed_file}),
        Script(plant("oms-default"), {4: full_load, 10: refused_message, 16: full_load}),
        Script(plant("maxwell with position"), {5: full_load, 11: moved, 16: upserts}),
        Script(plant("drs-json"), {3: broken_line, 9: excluded_table, 14: full_load}),
        Script(plant("dataworks", timezone="Etc/GMT-8"), {2: full_load, 7: lost_file, 15: replayed_file}),
        Script(plant("dms"), {6: full_load, 10: mirror_deleted, 15: silence}),
    ]


def wrong(plant: Plant, expected: Expected) -> list[str]:
    """What a day shows otherwise than it must."""
    listed = {(one["kind"], one["mirror"] or ""): one["text"] for one in plant.problems()}
    differing = plant.differences()
    said = [f"no alarm: {one}" for one in expected.problems - listed.keys()]
    said += [f"false alarm: {one}: {listed[one]}" for one in listed.keys() - expected.problems]
    said += [
        f"differs: {row}" for row in sorted(differing) if not any(fnmatch(row, one) for one in expected.rows)
    ]
    return said + [
        f"does not differ: {one}" for one in expected.rows if not any(fnmatch(row, one) for row in differing)
    ]


def test_three_weeks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """People switch alarms off that are wrong twice, and trust a list that has been silent once too often."""
    clock = Clock(monkeypatch, START)
    fleet = scripts(tmp_path, clock)
    running: dict[str, Incident] = {}
    for script in fleet:
        script.plant.begin(script.rules)
        script.plant.tables |= {name: {} for name in script.tables}
    for day in range(DAYS):
        expected: dict[str, Expected] = {}
        for script in fleet:
            plant = script.plant
            if day in script.incidents:
                running[plant.name] = script.incidents[day](plant)
            expected[plant.name] = next(running.get(plant.name, iter(())), CALM)
            plant.ordinary(day)
            plant.deliver()
        code, out = typed(" ".join(["ingest", "run", *(shlex.quote(str(one.plant.file)) for one in fleet)]))
        assert code == 0 or any(one.problems for one in expected.values()), out
        shown = {one.plant.name: wrong(one.plant, expected[one.plant.name]) for one in fleet}
        faults = {name: said for name, said in shown.items() if said}
        listed = {name: sorted(one.problems) for name, one in expected.items() if one.problems}
        _LOG.info("day %s: %s", day + 1, listed or "nothing")
        assert not faults, (day, faults)
        clock.next_day()
