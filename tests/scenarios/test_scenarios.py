"""Small histories from message files to mirrors, each ruling out one known failure.

A folder holds a pipeline, its messages in batches (``part-1.jsonl``, ``part-2.jsonl``, ...) and
``expected.json``: the mirrors' rows with every cell as text, the mirrors that must be held and why, the
rejects by kind, under ``epochs`` the files with which the operator begins an epoch, and the tables whose
re-snapshot is complete with them, and under ``at_once`` rows that rightly differ if all comes in one batch (a
policy that keeps the first columns).  All folders run together, as sources of one pipeline: once batch by
batch, once with all batches in one.
"""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.config import Pipeline, load
from ingest.config.model import AUTO, SPARK
from ingest.gold.plan.steps import steps_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HERE = Path(__file__).parent
FOLDERS = sorted(found.parent for found in HERE.glob("*/expected.json"))
SAMPLE = [
    HERE / name
    for name in (
        "absent_columns", "columns_made", "converted", "created_again", "default_fill", "deletes_kept", "deletes_resurrected", "late_truncate_and_ddl",
        "merged", "no_key_append", "no_key_full_row", "old_key_left", "pk_and_back", "rename_evolve", "several_mirrors", "shards", "told_anew", "widened", "zero_dates",
    )
]  # fmt: skip
"""One of each kind of step: partial, retype, created again, fill, late, truncate, key, rename, shards, epoch, cells."""
BY_SPARK = {*SAMPLE[::4], HERE / "restarted"}
"""Those that `make test` runs in tasks of Spark, too slow for all: every fourth kind of step, and the epochs, which are
Spark's in any case. `make e2e` has every second kind, and histories that are dealt out.
"""
LONG = [
    HERE / name
    for name in (
        "default_fill", "key_changed", "merged", "no_key_append", "no_key_default", "no_key_full_row", "no_key_text_append", "no_key_truncate",
        "pk_added", "pk_and_back", "pk_dropped", "pk_dropped_full_row", "pk_extended", "pk_late", "pk_not_given", "pk_renamed", "pk_shrunk",
        "pk_shrunk_too_early", "pk_truncated", "shards",
    )
]  # fmt: skip
"""Those whose mirrors need histories: of keys, of earlier keys, and without a key."""
Rows = list[dict[str, Any]]


@dataclass(slots=True)
class Outcome:
    """What a lake holds after all batches."""

    pipelines: list[Pipeline] = field(default_factory=list)
    rows: dict[str, Rows] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    arrow: int = 0  # merges without Spark
    rejects: dict[str, Counter[str]] = field(default_factory=dict)


def pipeline_of(folder: Path, scenarios: Sequence[Path], engine: str, *, by_merge: bool) -> Pipeline:
    """One pipeline with some scenarios' sources and rules, its files and its lake under ``folder``."""
    sources, tables = [], []
    for scenario in scenarios:
        own = load(scenario / "pipeline.yaml")
        assert [scenario.name] == [one.name for one in own.sources], "the source is named as its folder"
        assert all(rule.match.startswith(f"{scenario.name}.") for rule in own.tables), scenario.name
        sources += [replace(own.sources[0], path=str(folder / scenario.name / "part-*.jsonl"))]
        tables += own.tables
    lake = str(folder / "lake")
    return Pipeline(
        "scenarios",
        folder / "x.yaml",
        lake,
        tuple(sources),
        tuple(tables),
        engine=engine,
        apply="merge" if by_merge else "auto",
    )


def play(
    spark: SparkSession,
    folder: Path,
    scenarios: Sequence[Path],
    *,
    apart: bool = True,
    by_merge: bool = False,
    by_spark: Collection[Path] | None = None,
) -> Outcome:
    """Run scenarios and gather what became of them: in one lake those ``by_spark``, in tasks, in another the others, in this
    process; by default every second one in tasks. ``by_merge`` applies all outcomes by MERGE.
    """
    outcome = Outcome()
    chosen = scenarios[::2] if by_spark is None else by_spark
    parts = {
        SPARK: [one for one in scenarios if one in chosen],
        AUTO: [one for one in scenarios if one not in chosen],
    }
    for engine, mine in parts.items():
        pipeline = pipeline_of(folder / engine, mine, engine, by_merge=by_merge)
        _play(spark, folder / engine, mine, pipeline, outcome, apart=apart)
    return outcome


def _play(
    spark: SparkSession,
    folder: Path,
    scenarios: Sequence[Path],
    pipeline: Pipeline,
    outcome: Outcome,
    *,
    apart: bool,
) -> None:
    """Run the scenarios of one lake."""
    from ingest import run as running

    warm, held = running.Warm(), dict[str, str]()
    outcome.pipelines.append(pipeline)
    parts = [part for scenario in scenarios for part in scenario.glob("part-*.jsonl")]
    numbers = sorted({int(part.stem.partition("-")[2]) for part in parts})
    for batch in [[number] for number in numbers] if apart else [numbers]:
        for part in (part for part in parts if int(part.stem.partition("-")[2]) in batch):
            (folder / part.parent.name).mkdir(parents=True, exist_ok=True)
            shutil.copy(part, folder / part.parent.name / part.name)
        result = running.run(spark, pipeline, ("bronze", "silver", "gold"), warm)
        held = {one.mirror: one.message for one in result.mirrors if one.state == "held"}
        outcome.failed += [f"{one.mirror}: {one.message}" for one in result.mirrors if one.state == "failed"]
        outcome.arrow += sum(one.why_merge == "" for one in result.mirrors)
    outcome.held |= held
    begin_epochs(spark, pipeline, scenarios)
    gather(spark, pipeline, outcome)


def begin_epochs(spark: SparkSession, pipeline: Pipeline, scenarios: Sequence[Path]) -> None:
    """Decide on the epochs that scenarios ask for, then carry them all out in one go."""
    from ingest.gold import rebuild as gold
    from ingest.ledgers import epochs
    from ingest.silver import rebuild as silver
    from ingest.tables.lake import Lake

    lake = Lake(spark, pipeline)
    first: list[int] = []
    names: list[str] = []
    topics = lake.ask("SELECT DISTINCT source, topic, partition FROM {bronze}")
    for folder in scenarios:
        for asked in expected_of(folder).get("epochs", ()):
            [place] = [
                f"{row['topic']}/{row['partition']}/0"
                for row in topics
                if row["source"] == folder.name and row["topic"].endswith(asked["from"])
            ]
            start = epochs.at_places(lake, folder.name, [place])
            epochs.record_start(lake, folder.name, start, "")
            for table in epochs.tables(lake, folder.name, start.first):
                epochs.record_resnapshot(
                    lake, folder.name, start, table, "", complete=str(table) in asked.get("complete", ())
                )
                names.append(str(table))
            first.append(start.first)
    if not first:
        return
    silver.rebuild(lake, 2, since=min(first) - 1, dry_run=False)
    assert {"rebuilt"} == {one.state for one in gold.rebuild(lake, names, dry_run=False)}


def gather(spark: SparkSession, pipeline: Pipeline, outcome: Outcome) -> None:
    """Read every mirror with its cells as text, and count the rejects; by DuckDB, as Spark needs a second for each."""
    from ingest.ledgers import mirrors
    from ingest.tables.lake import Lake

    lake = Lake(spark, pipeline)
    for mirror in mirrors.known(lake).values():
        if lake.exists(mirror.path):
            outcome.rows[mirror.name] = [
                {name: text(cell) for name, cell in row.items()}
                for row in lake.ask_mirror(mirror.path, "SELECT * FROM {mirror}")
            ]
    for row in lake.ask("SELECT database, kind, count(*) AS n FROM {rejects} GROUP BY ALL"):
        outcome.rejects.setdefault(str(row["database"]), Counter())[row["kind"]] = row["n"]


def text(cell: object) -> str | None:
    """A cell as Spark casts it to text."""
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, dt.datetime):
        whole, _, fraction = str(cell.replace(tzinfo=None)).partition(".")
        return f"{whole}.{fraction.rstrip('0')}" if fraction else whole
    if isinstance(cell, float):
        digits, _, power = repr(cell).partition("e+")
        return f"{digits}{'' if '.' in digits else '.0'}E{power}" if power else digits
    if isinstance(cell, bytes):
        return cell.decode("utf-8")
    return None if cell is None else f"{cell:f}" if isinstance(cell, Decimal) else str(cell)


@pytest.fixture(scope="module")
def batch_by_batch(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """All scenarios as they came, most in this process: by files where they can be, else by a MERGE."""
    return play(spark, tmp_path_factory.mktemp("apart"), FOLDERS, by_spark=BY_SPARK)


@pytest.fixture(scope="module")
def by_the_other_engine(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """All scenarios as they came, most in tasks."""
    return play(spark, tmp_path_factory.mktemp("exchanged"), FOLDERS, by_spark={*FOLDERS} - BY_SPARK)


@pytest.fixture(scope="module")
def some_by_merge(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """One scenario of each kind of step, by MERGE alone."""
    return play(spark, tmp_path_factory.mktemp("some"), SAMPLE, by_merge=True)


@pytest.fixture(scope="module")
def in_shares(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Scenarios with histories that are long for a process which holds two changes."""
    from ingest.gold.apply import planner

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "HISTORY_AT_MOST", 2)
        patch.setattr(planner, "KEYLESS_AT_MOST", 2)
        return play(spark, tmp_path_factory.mktemp("shares"), LONG)


@pytest.fixture(scope="module")
def all_by_merge(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """All scenarios as they came, by MERGE alone."""
    return play(spark, tmp_path_factory.mktemp("spark"), FOLDERS, by_merge=True)


@pytest.fixture(scope="module")
def at_once(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """All scenarios as a first run meets them that comes after everything."""
    return play(spark, tmp_path_factory.mktemp("once"), FOLDERS, apart=False)


@pytest.fixture(scope="module")
def at_once_by_merge(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The same by MERGE alone."""
    return play(spark, tmp_path_factory.mktemp("once"), FOLDERS, apart=False, by_merge=True)


def ordered(rows: Rows) -> list[str]:
    """Rows as a multiset that compares."""
    return sorted(json.dumps(row, sort_keys=True, ensure_ascii=False) for row in rows)


def expected_of(folder: Path) -> dict[str, Any]:
    """What a scenario expects."""
    found: dict[str, Any] = json.loads((folder / "expected.json").read_text("utf-8"))
    return found


def names(folder: Path) -> str:
    """A test's name for its folder."""
    return folder.name


def check(folder: Path, outcome: Outcome) -> None:
    """A scenario's mirrors, what is held, and its rejects, batch by batch."""
    expected = expected_of(folder)
    mine = f"{folder.name}."
    assert [] == [text for text in outcome.failed if text.startswith(mine)]
    held = {name: why for name, why in outcome.held.items() if name.startswith(mine)}
    assert expected.get("held", {}).keys() == held.keys()
    for name, why in expected.get("held", {}).items():
        assert why in held[name]
    actual = {name: ordered(rows) for name, rows in outcome.rows.items() if name.startswith(mine)}
    assert {name: ordered(rows) for name, rows in expected["mirrors"].items()} == actual
    assert Counter(expected.get("rejects", {})) == outcome.rejects.get(folder.name, Counter())


def check_at_once(folder: Path, outcome: Outcome) -> None:
    """A scenario's mirrors after one batch."""
    expected = expected_of(folder)
    if "held" in expected:
        pytest.skip("what is held depends on the batch")
    actual = {
        name: ordered(rows) for name, rows in outcome.rows.items() if name.startswith(f"{folder.name}.")
    }
    wanted = expected.get("at_once", expected["mirrors"])
    assert {name: ordered(rows) for name, rows in wanted.items()} == actual


@pytest.mark.parametrize("folder", FOLDERS, ids=names)
def test_scenario(folder: Path, batch_by_batch: Outcome) -> None:
    """Each folder's first line says what breaks for readers if its rows differ."""
    check(folder, batch_by_batch)


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS, ids=names)
def test_scenario_by_the_other_engine(folder: Path, by_the_other_engine: Outcome) -> None:
    """What was tried in this process alone may go wrong in Spark's tasks, which pass it on to other processes."""
    check(folder, by_the_other_engine)


@pytest.mark.e2e
@pytest.mark.parametrize("folder", SAMPLE, ids=names)
def test_scenario_by_merge(folder: Path, some_by_merge: Outcome) -> None:
    """What small mirrors leave to a MERGE only now and then must not break unseen."""
    assert 0 == some_by_merge.arrow
    check(folder, some_by_merge)


@pytest.mark.e2e
@pytest.mark.parametrize("folder", LONG, ids=names)
def test_scenario_in_shares(folder: Path, in_shares: Outcome) -> None:
    """A history that one process does not hold is dealt out: by keys, by earlier keys in turn, or by whole rows."""
    check(folder, in_shares)


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS, ids=names)
def test_every_scenario_by_merge(folder: Path, all_by_merge: Outcome) -> None:
    """Both ways must give the same rows, as a mirror grows out of one into the other."""
    check(folder, all_by_merge)


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS, ids=names)
def test_batches_do_not_matter(folder: Path, at_once: Outcome) -> None:
    """The same messages in one batch must give the same rows, or a rebuild changes the mirror."""
    check_at_once(folder, at_once)


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS, ids=names)
def test_batches_do_not_matter_by_merge(folder: Path, at_once_by_merge: Outcome) -> None:
    """The same of a MERGE."""
    check_at_once(folder, at_once_by_merge)


def test_most_mirrors_need_no_spark(batch_by_batch: Outcome) -> None:
    """Every scenario would cost a second or more of a MERGE for each of its batches."""
    assert batch_by_batch.arrow > len(FOLDERS)


@pytest.mark.parametrize(
    ("batches", "engine"),
    [(0, 0), (1, 1), pytest.param(0, 1, marks=pytest.mark.slow)],
    ids=["all, by Spark", "the last, by auto", "all, by auto"],
)
def test_keys_are_counted_as_by_the_plain_fold(
    spark: SparkSession, batch_by_batch: Outcome, batches: int, engine: int
) -> None:
    """The keys of every mirror, in what all batches say and in what the last one does."""
    from ingest.ledgers.logged_statements import by_lane, done
    from ingest.quality import ddl_ledger, ledgers
    from ingest.quality.key_sides import Side
    from ingest.quality.subjects import survey
    from ingest.tables.lake import Lake
    from tests.quality.plain_keys import by_duckdb, by_plain_fold

    lake = Lake(spark, batch_by_batch.pipelines[engine])
    last = lake.decoded()
    since = last - batches if batches else 0
    chosen = survey(lake, ledgers.read(lake, since, last).lanes, steps=steps_of(lake)).subjects
    sides = [Side(lake, one, since, i) for i, one in enumerate(chosen) if one.exists and one.mirror]
    for one in sides:
        one.begins(by_lane(ddl_ledger.counting_statements(lake)), done(lake))
    found = by_duckdb(lake, sides)
    assert found
    assert found == {one.index: by_plain_fold(lake, one) for one in sides}


def test_every_scenario_names_its_failure() -> None:
    """A scenario without a reason would be deleted by the next maintainer."""
    for folder in FOLDERS:
        first = (folder / "pipeline.yaml").read_text("utf-8").split("\n")[0]
        assert f"# Rules out: {expected_of(folder)['rules_out']}" == first
