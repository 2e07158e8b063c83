"""Faults planted in a lake, each of which must turn exactly its own light."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ingest.config import load
from ingest.quality import stage
from ingest.quality.report import page
from ingest.quality.report_data import gather
from ingest.tables.lake import Lake
from ingest.tables.schemas import CHECKS
from tests.quality.planted import (
    AGAIN,
    BROKEN,
    COUNTED,
    COUNTS,
    LATE,
    PARCELS,
    PIPELINE,
    SOUND,
    SUITE,
    TIED,
    Planted,
)

pytestmark = [pytest.mark.spark, pytest.mark.e2e]


def no_steps(*_: object) -> tuple[()]:
    """No statement has changed a row."""
    return ()


@pytest.fixture(scope="module")
def lake(spark, tmp_path_factory):
    """A small lake with every fault in it, and a mirror without any."""
    folder = tmp_path_factory.mktemp("depot")
    file = folder / "depot.yaml"
    (folder / "expectations").mkdir()
    (folder / "expectations" / "sound.json").write_text(json.dumps(SUITE))
    (folder / "counts.csv").write_text(COUNTS)
    file.write_text(PIPELINE)
    planted = Planted(Lake(spark, load(file)))
    planted.mirror("sound", SOUND, [(1, "a"), (2, "a"), (4, "a")])
    planted.mirror("broken", BROKEN, [(1, "a"), (1, "a"), (None, "a"), (3, "a"), (5, "a")])
    planted.mirror(
        "tied", TIED, [(1, "a", 0), (2, None, 0), (7, "a", 0)], delta="id BIGINT, label STRING, extra INT"
    )
    planted.mirror("late", LATE, [(1, "a")], applied=1)
    planted.mirror("again", AGAIN, [(1, "a")])
    planted.mirror("counted", COUNTED, [(1, "a")])
    planted.mirror("parcels", PARCELS, [(1, "a"), (2, "a"), (3, "a")])
    planted.write()
    planted.dismiss("kind = 'message'", "offset = 1")
    planted.dismiss("kind = 'cell'", "key LIKE '%1%'")
    return planted.lake


@pytest.fixture(scope="module")
def checked(lake):
    """Everything checked once."""
    return stage.check(replace(lake), steps=no_steps)


def found(checked):
    """Observed numbers of everything that does not pass."""
    return {
        (one.subject.removeprefix("depot."), one.metric.check, one.state): one.metric.observed
        for one in checked.verdicts
        if one.state != "pass" and not one.metric.check.startswith("expect_")
    }


def test_each_fault_turns_its_own_light(checked):
    """A check that sees nothing, or sees what is not there, makes every green light worthless."""
    expected = {
        ("broken", "key_unique", "fail"): 1,
        ("broken", "key_not_null", "fail"): 1,
        ("broken", "missing_rows", "fail"): 1,
        ("broken", "ghost_rows", "fail"): 1,
        ("tied", "ambiguities", "warn"): 1,
        ("tied", "incomplete_rows", "fail"): 1,
        ("tied", "cell_rejects", "warn"): 1,
        ("tied", "unknown_values", "fail"): 3,
        ("tied", "schema", "fail"): 1,
        ("late", "up_to_date", "fail"): 1,
        ("source gate", "books_balance", "fail"): 1,
        ("source gate", "gaps", "fail"): 1,
        ("source gate", "reject_rate", "warn"): 0.3,
        ("source bus", "gaps", "fail"): 1,
        ("source bus", "losses", "warn"): 1,
        ("source bus", "missing_parts", "warn"): 1,
        ("source plex", "missing_parts", "warn"): 1,
        ("counted", "row_count", "fail"): 3,
        ("nowhere", "row_count", "fail"): 7,
    }
    seen = found(checked)
    assert 3600 < seen.pop(("late", "freshness", "fail"))
    assert expected == seen


def test_failing_keys_are_named(checked):
    """To repair a table the operator needs the keys, not their number."""
    keys = {
        one.metric.check: one.metric.failing
        for one in checked.verdicts
        if one.metric.mirror in ("depot.broken", "depot.tied") and one.metric.failing
    }
    assert {
        "key_unique": ('{"id":1}',),
        "key_not_null": ('{"id":null}',),
        "missing_rows": ('{"id":2}',),
        "ghost_rows": ('{"id":3}',),
        "ambiguities": ('{"id":1}',),
        "incomplete_rows": ('{"id":7}',),
        "cell_rejects": ('{"id":2}',),
    } == keys


def test_repetitions_are_counted_and_pass(checked):
    """At-least-once delivery repeats messages: repetitions are expected."""
    repeated = [
        one
        for one in checked.verdicts
        if one.metric.check == "duplicates" and one.metric.mirror == "depot.tied"
    ]
    assert [("pass", 1)] == [(one.state, one.metric.observed) for one in repeated]


def test_expectations_are_judged(checked):
    """The user's own checks pass, warn, fail, or say that they cannot be judged."""
    states = [one.state for one in checked.verdicts if one.metric.check.startswith("expect_")]
    assert ["pass", "warn", "error", "fail", "warn"] == states
    broken = next(one for one in checked.verdicts if one.state == "error")
    assert "absent" in broken.sentence()


def test_rows_that_are_not_as_expected_are_named(checked):
    """The keys of the bad rows save the operator a search."""
    keys = [one.metric.failing for one in checked.verdicts if one.metric.check.startswith("expect_")]
    assert [(), ('{"id":4}',), (), ('{"id":1}', '{"id":2}', '{"id":4}'), ('{"id":1}', '{"id":2}')] == keys


def test_each_fault_is_said_in_words(checked):
    """A steward reads the sentence, not the name of the check."""
    said = {
        (one.subject, one.metric.check): one.sentence() for one in checked.verdicts if one.state != "pass"
    }
    words = {
        ("depot.broken", "key_unique"): "Rows beyond the first of their key: 1 (at most 0)",
        ("depot.broken", "key_not_null"): "Rows with a NULL in a key column: 1 (at most 0)",
        ("depot.broken", "missing_rows"): "Live keys among the changes that the mirror lacks: 1 (at most 0)",
        ("depot.late", "up_to_date"): "1 decoded batch with 1 change not applied yet",
        ("depot.late", "freshness"): "Age of the newest source commit",
        ("depot.tied", "ambiguities"): "Ties: two different changes of one key at one place: 1",
        ("depot.tied", "cell_rejects"): "1 cell does not fit: not a text, for example '?'",
        (
            "depot.tied",
            "unknown_values",
        ): "what 'ALTER TABLE tied FROBNICATE' did to 3 rows of depot.tied is not known",
        ("depot.tied", "schema"): "extra is INT, decided absent",
        ("depot.counted", "row_count"): "the source counts 4 rows, the mirror has 1",
        ("depot.nowhere", "row_count"): "the source counts 7 rows, there is no mirror",
        (
            "source gate",
            "reject_rate",
        ): "3 messages could not be decoded and wait: each may belong to any table of gate",
        ("source gate", "books_balance"): "10 messages landed, 10 in the books",
        ("source gate", "gaps"): "gate/1.jsonl bytes 50 to 70",
        ("source bus", "gaps"): "parcels/0 offsets 5 to 8",
        ("source bus", "losses"): "parcels/1 was trimmed by retention: offsets 4 to 5 were not read",
        ("source bus", "missing_parts"): "1 transaction lacks changes: tx1 has 2 of 3",
        ("source plex", "missing_parts"): "1 transaction lacks changes: 7 has 2 of 3",
    }
    assert {} == {about: said.get(about) for about, text in words.items() if text not in said.get(about, "")}


def test_failures_and_warnings_part(checked):
    """Only what makes a mirror wrong may end a run with exit code 1."""
    failures, warnings = stage.complaints(Path("x.yaml"), checked, {("up_to_date", "depot.late")})
    assert not any("not applied yet" in text for text in failures)
    assert any("depot.broken" in text for text in failures)
    again = stage.complaints(
        Path("x.yaml"), checked, {("cell_rejects", "depot.tied"), ("gaps", "source gate")}
    )
    spoken = [text for text in stage.complaints(Path("x.yaml"), checked)[1] if text not in again[1]]
    assert len(spoken) == 1
    assert "depot.tied" in spoken[0]
    assert any("source gate" in text for text in again[0])  # a failure is said, whoever spoke of it
    mild = ("depot.tied", "source gate", "depot.sound", "source bus", "source plex")
    assert all(text.startswith(mild) for text in warnings)


def test_results_are_kept(lake, checked):
    """The report and the history read them from the lake."""
    rows = lake.read(CHECKS.name).where("run = '" + lake.run + "'")
    assert len(checked.verdicts) == rows.count()
    assert 2 == stage.last_checked(lake)


def test_new_batches_are_checked_alone(lake):
    """A tick that looks at everything again takes as long as the lake is large."""
    again = stage.check(replace(lake), since=1, steps=no_steps)
    mirrors = {one.metric.mirror for one in again.verdicts} - {None}
    assert {
        "depot.sound",
        "depot.late",
        "depot.again",
        "depot.nowhere",
    } == mirrors  # the last is counted, not there
    seen = {
        ("late", "up_to_date", "fail"),
        ("source gate", "gaps", "fail"),
        ("source bus", "missing_parts", "warn"),
    }
    assert seen < set(found(again))
    # a change that has not come before is older than what the mirror holds, which the operator should know
    assert [("again", "old_positions", "warn")] == [
        one for one in found(again) if one[0] in ("sound", "again")
    ]
    assert "pass" == [one.state for one in again.verdicts if one.metric.check.startswith("expect_")][-1]


def test_the_report_says_it(lake, checked):
    """The page is made from what was kept, and comes to the same conclusion."""
    made = page(gather(replace(lake)))
    assert {"bad": 6, "warn": 1, "none": 0, "good": 1} == made.counts
    problems = {(one.subject, one.title) for one in made.problems}
    assert ("depot.broken", "Rows are missing") in problems
    assert "depot.nowhere" in {subject for subject, _ in problems}
    assert ("depot.tied", "Cells did not fit their type: label") in problems
    assert ("source gate", "Messages were skipped") in problems
