"""A fault that one batch made is a fault of the mirror until it is repaired, whatever later batches bring."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from ingest.change import TableId
from ingest.cli.app import app
from ingest.cli.repair_verbs import fold_again
from ingest.config import load
from ingest.config.model import TableRule
from ingest.gold.plan.steps import steps_of
from ingest.inspect import problems, status
from ingest.ledgers import epochs
from ingest.ledgers.starts import Start
from ingest.quality import lasting
from ingest.quality.report_data import gather
from ingest.quality.stage import check
from ingest.result import STAGES
from ingest.run import Warm, run
from ingest.tables.schemas import CHECKS
from ingest.tables.tables import LakeReader
from tests.shops import Shops, metrics_by_spark, order_metrics
from tests.unstarted import unstarted

if TYPE_CHECKING:
    from ingest.config import Pipeline

NAME, TWICE = "shop_1.item", "insert_of_a_live_key"


class Doubted(Shops):
    """Shops whose runs check what they fold."""

    @property
    def pipeline(self) -> Pipeline:
        """As a pipeline file has it."""
        file = self.folder / "x.yaml"
        file.write_text(
            f"pipeline: shops\nlake: {self.folder}/lake\nengine: auto\nsources:\n  - {{name: s, kind: files, format: dts-canal, "
            f"path: '{self.folder}/in-*.jsonl', settle: 0s}}\n",
            "utf-8",
        )
        return load(file)

    def batch(self) -> tuple[list[str], list[str]]:
        """What the run of the next batch says: failures and warnings."""
        (self.folder / f"in-{self.number}.jsonl").write_text("\n".join(self.lines) + "\n")
        self.lines.clear()
        spark = unstarted()
        found = run(spark, self.pipeline, warm=Warm())
        return found.failures, found.warnings

    def states(self) -> dict[str, str]:
        """The mirror's last verdicts that do not pass."""
        facts = problems.gathered(self.lake)
        [table] = [one for one in facts.tables if one.name == NAME]
        return {one.check: one.state for one in table.checks if one.state != "pass"}


@pytest.fixture
def shops(tmp_path: Path) -> Doubted:
    """A key was inserted with other values while it was there, and then another row came."""
    mine = Doubted(tmp_path, TableRule(match=NAME))
    assert ([], []) == mine.say(1, "INSERT", 1, "a").batch()
    [failure], _ = mine.say(1, "INSERT", 1, "b").batch()
    assert "inserted again with other" in failure
    failures, warnings = mine.say(1, "INSERT", 2, "c").batch()
    assert [] == failures
    [warned] = warnings
    assert warned.startswith(
        f"{NAME}: found in batch 2 and not repaired since (`ingest quality {tmp_path}/x.yaml` checks"
    )
    assert warned.endswith(failure.partition(": ")[2])
    return mine


def test_a_fault_stays_while_other_rows_come(shops: Doubted) -> None:
    """The state, the problems and the report know it; a mirror of which nothing was wrong stays as it is."""
    _, [warned] = shops.say(1, "INSERT", 3, "d").say(2, "INSERT", 3, "d").batch()
    assert 1 == warned.count("found in batch")
    assert {TWICE: "fail"} == shops.states()
    assert 1 == status.verdicts(shops.lake)["fail"]
    found = [
        one
        for name, one in {one.subject: one for one in status.problems_of(shops.lake)}.items()
        if name.startswith(NAME)
    ]
    assert ["error"] == [one.severity for one in found]
    assert found[0].text.startswith("Found in batch 2 and not repaired since")


def test_what_is_not_open_is_not_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tick would read the whole history of checks; a fault of any mirror, or a comparison, makes it look again."""
    mine, looks = Doubted(tmp_path, TableRule(match=NAME)), []
    found = lasting.found_before
    monkeypatch.setattr(lasting, "found_before", lambda *given: looks.append(1) or found(*given))
    for key in (1, 2, 3):
        mine.say(1, "INSERT", key, "a").say(2, "INSERT", key, "a").batch()
    assert [] == looks
    assert 1 == len(mine.say(1, "INSERT", 1, "b").batch()[0])
    assert [] == looks
    for key in (7, 8):
        assert ([], []) == mine.say(2, "INSERT", key, "of another mirror").batch()
    assert 2 == len(looks)
    assert 1 == len(mine.say(1, "INSERT", 9, "of the same").batch()[1])
    epochs.record_start(mine.lake, "s", Start(9), "loaded again")
    assert ([], []) == mine.say(1, "INSERT", 10, "d").batch()
    assert 4 == len(looks)
    mine.say(1, "INSERT", 11, "d").batch()
    assert 4 == len(looks)


def test_checking_everything_decides_again(shops: Doubted) -> None:
    """What is still wrong is found there; what is not is over."""
    checked = check(shops.lake, steps=steps_of(shops.lake))
    again = [one for one in checked.verdicts if one.metric.check == TWICE and one.state == "fail"]
    assert [False] == [one.lasting for one in again]
    assert {TWICE: "fail"} == shops.states()


@pytest.mark.parametrize("subject", [NAME, "s"])
def test_an_epoch_of_its_source_ends_it(shops: Doubted, subject: str) -> None:
    """It is the way out that most of these faults name."""
    if subject == NAME:
        epochs.record_start(shops.lake, "s", Start(4), "loaded again")
    else:
        epochs.record_resnapshot(
            shops.lake, "s", Start(1), TableId("shop_1", None, "item"), "", complete=True
        )
    assert ([], []) == shops.say(1, "INSERT", 3, "d").batch()
    assert {} == shops.states()


def test_a_mirror_that_is_gone_leaves_nothing_open(tmp_path: Path) -> None:
    """Each run read the whole history of checks, for ever, once a mirror with a fault was no mirror of the file any more."""
    mine = Doubted(tmp_path, TableRule(match=NAME))
    assert ([], []) == mine.say(1, "INSERT", 1, "a").batch()
    planted(mine, "ghost_rows", 2, 1, 2, mirror="shop_9.item")
    assert ([], []) == mine.say(1, "INSERT", 2, "b").batch()
    assert not lasting.may_be_open(mine.lake)


def test_an_epoch_of_another_source_does_not(shops: Doubted) -> None:
    """Its tables are others."""
    epochs.record_start(shops.lake, "elsewhere", Start(4), "")
    assert 1 == len(shops.say(1, "INSERT", 3, "d").batch()[1])


def test_an_equal_comparison_with_the_source_ends_it(shops: Doubted) -> None:
    """A comparison with the source settles a fault, if it was made after the fault."""
    lake = shops.lake
    names = ("run", "batch", "mirror", "check", "severity", "state", "observed")
    for state, kept in (("fail", 1), ("pass", 0)):
        row = dict.fromkeys(CHECKS.arrow.names) | dict(
            zip(names, ("r", 3, NAME, "reconcile", "error", state, 0.0), strict=True)
        )
        lake.append_unguarded([tuple((row | {"checked_at": lake.now()}).values())], CHECKS)
        assert kept == len(shops.say(1, "INSERT", 10 + kept, "d").batch()[1])


def planted(shops: Doubted, check: str, n: int, *keys: int, mirror: str = NAME) -> None:
    """A fault that the last look found in some rows, of which these are named."""
    row = {
        "run": "r", "batch": shops.lake.decoded(), "mirror": mirror, "check": check, "severity": "error", "state": "fail",
        "observed": float(n), "failing": json.dumps([f'{{"id":{key}}}' for key in keys]), "checked_at": shops.lake.now(),
    }  # fmt: skip
    shops.lake.append_unguarded([tuple((dict.fromkeys(CHECKS.arrow.names) | row).values())], CHECKS)


def test_rows_that_newer_changes_have_written_are_right_again(tmp_path: Path) -> None:
    """The warning stayed until everything was checked again, although nothing was wrong any more."""
    mine = Doubted(tmp_path, TableRule(match=NAME))
    for key in (1, 2, 3):
        mine.say(1, "INSERT", key, "a")
    assert ([], []) == mine.batch()
    planted(mine, "ghost_rows", 2, 1, 2)
    assert 1 == len(mine.say(1, "UPDATE", 3, "another row").batch()[1])
    late = mine.number - 35
    assert 1 == len(
        [one for one in mine.say(1, "UPDATE", 1, "late", at=late).batch()[1] if "found in" in one]
    )
    assert 1 == len(mine.say(1, "DELETE", 2, "a").batch()[1])
    assert {"ghost_rows": "fail"} == mine.states()
    assert ([], []) == mine.say(1, "UPDATE", 1, "b").batch()
    assert {} == mine.states()
    assert not lasting.may_be_open(mine.lake)


@pytest.mark.parametrize(("check", "n"), [("ghost_rows", 25), (TWICE, 1)])
def test_rows_that_are_not_all_named_are_not_looked_at(tmp_path: Path, check: str, n: int) -> None:
    """The others may still be wrong; and a key of several rows is not right because one of them has changed."""
    mine = Doubted(tmp_path, TableRule(match=NAME))
    assert ([], []) == mine.say(1, "INSERT", 1, "a").batch()
    planted(mine, check, n, 1)
    [warned] = mine.say(1, "UPDATE", 1, "b").batch()[1]
    assert warned.startswith(f"{NAME}: found in batch 1 ")


def test_it_is_accepted_by_hand(shops: Doubted) -> None:
    """The sentence names the command; nothing is said after it, at once and in later runs."""
    file = str(shops.folder / "x.yaml")
    done = CliRunner().invoke(
        app, ["quality", file, "--accept", NAME, "--reason", "seen", "--output", "json"]
    )
    assert 0 == done.exit_code, done.output
    accepted = json.loads(done.output)
    assert NAME == accepted["accepted"]
    assert ["found in batch 2 and not repaired since"] == [
        one.partition(" (")[0] for one in accepted["faults"]
    ]
    assert {} == shops.states()
    before = status.verdicts(shops.lake)["pass"]
    assert before > 10  # the other checks are there as they were
    [row] = shops.lake.ask(
        f"SELECT detail FROM {{checks}} WHERE \"check\" = '{TWICE}' AND detail LIKE 'accepted%'"
    )
    assert "(seen): found in batch 2" in row["detail"]
    assert ([], []) == shops.say(1, "INSERT", 3, "d").batch()
    again = CliRunner().invoke(app, ["quality", file, "--accept", NAME])
    assert 2 == again.exit_code
    assert f"Nothing that stays was found wrong in {NAME}" in again.output
    both = CliRunner().invoke(app, ["quality", file, "--accept", NAME, "--last"])
    assert 2 == both.exit_code


def test_a_mirror_that_is_folded_again_is_checked_as_a_whole(tmp_path: Path) -> None:
    """Another key can lose rows of batches that were right under the former one, and the right one brings them back."""
    shops = Shops(tmp_path, TableRule("*", keys=("id",)), stages=STAGES)
    shops.say(1, "INSERT", 1, "a").say(1, "INSERT", 2, "a").run()
    shops.rule, shops.warm = TableRule("*", keys=("text",)), Warm()
    shops.say(1, "INSERT", 3, "b").run()
    assert shops.result is not None
    [failure] = shops.result.failures
    assert '1 key, such as {"text":"a"}, was inserted again' in failure
    shops.rule, shops.warm = TableRule("*", keys=("id",)), Warm()
    shops.say(1, "INSERT", 4, "c").run()
    assert ([], {1: "a", 2: "a", 3: "b", 4: "c"}) == (
        shops.result.failures,
        shops.rows("mirrors/shop_1/item"),
    )
    assert not [one for one in shops.result.warnings if "inserted again" in one]


def test_rows_that_are_newer_than_their_check_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report would show numbers of a check as those of rows that came after it; what folds again checks again."""
    shops = Shops(tmp_path, TableRule("shop_1.item"), stages=STAGES).say(1, "INSERT", 1, "a")
    shops.run()
    assert [False] == [one.stale for one in gather(shops.lake).tables]
    shops.stages = STAGES[:3]
    shops.say(1, "INSERT", 2, "b").run()
    assert [True] == [one.stale for one in gather(shops.lake).tables]
    done = SimpleNamespace(mirror=NAME, state="rebuilt", batch=2, message="", difference=None)
    monkeypatch.setattr("ingest.gold.rebuild.rebuild", lambda *_, **_more: [done])
    fold_again(shops.lake, [NAME], dry_run=False)
    assert [False] == [one.stale for one in gather(shops.lake).tables]


def test_a_message_that_waits_is_said_with_later_batches(tmp_path: Path) -> None:
    """A batch without rejects has no less of the source's rows missing than the one that had some."""
    shops = Shops(tmp_path, TableRule("shop_1.item"), stages=STAGES).say(1, "INSERT", 1, "a")
    shops.lines.append('{"broken": ')
    shops.run()
    shops.say(1, "INSERT", 2, "b").run()
    assert shops.result is not None
    [said] = shops.result.warnings
    assert "source s: 1 message could not be decoded and waits" in said


@pytest.mark.parametrize(
    ("old", "key", "kinds"),
    [
        ("a", 1, []),
        ("z", 1, ["images_before", "old_positions"]),
        ("x", 2, ["images_before", "old_positions"]),
    ],
    ids=["the missing one", "another one", "of another row"],
)
def test_a_late_change_that_closes_a_gap_is_known_as_late(
    tmp_path: Path, old: str, key: int, kinds: list[str]
) -> None:
    """The doubt whether positions had started again stayed on a mirror that the images before had proven right."""
    shops = Shops(tmp_path, TableRule(match="shop_1.item"), stages=STAGES)

    def updated(at: int, key: int, old: str, new: str) -> None:
        shops.say(1, "UPDATE", key, new, at=at)
        shops.lines[-1] = shops.lines[-1].replace('"old": null', f'"old": [{{"text": "{old}"}}]')
        shops.run()

    shops.say(1, "INSERT", 1, "a").say(1, "INSERT", 2, "x").run()
    updated(300, 1, "b", "c")
    updated(200, key, old, "b")
    causes = status.status(LakeReader(shops.pipeline))["causes"]
    assert kinds == sorted(cause["kind"] for cause in causes)


def test_what_is_sent_again_does_not_raise_the_doubt(tmp_path: Path) -> None:
    """A capture that went back was complained of, if a batch ended before it had come to anything new."""
    shops = Shops(tmp_path, TableRule(match="shop_1.item"), stages=STAGES)
    shops.say(1, "INSERT", 1, "a", at=100).say(1, "UPDATE", 1, "b", at=200).say(1, "INSERT", 2, "c", at=300)
    again = shops.lines[:2]
    shops.run()
    shops.number, shops.lines = 400, again
    shops.run()
    assert [] == status.status(LakeReader(shops.pipeline))["causes"]
    shops.say(1, "UPDATE", 1, "z", at=200).run()
    kinds = [cause["kind"] for cause in status.status(LakeReader(shops.pipeline))["causes"]]
    assert "old_positions" in kinds


def test_a_loaded_row_that_is_sent_again_at_its_place_has_lost_nothing(tmp_path: Path) -> None:
    """A capture that went back into its load was told to let the old rows win."""
    shops = Shops(tmp_path, TableRule(match="shop_1.item"), stages=STAGES)
    shops.say(1, "INIT", 1, "a", at=100).say(1, "UPDATE", 1, "b", at=200)
    again = shops.lines[:1]
    shops.run()
    shops.number, shops.lines = 400, again
    shops.run()
    assert [] == status.status(LakeReader(shops.pipeline))["causes"]
    shops.say(1, "INIT", 1, "z", at=150).run()
    assert "re_reads_ignored" in [
        each["kind"] for each in status.status(LakeReader(shops.pipeline))["causes"]
    ]


@pytest.mark.e2e
@pytest.mark.spark
def test_spark_names_the_rows_of_old_positions_as_duckdb_does(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """In a store that only Spark reads the doubt named no row, or ended the checks with an error."""
    shops = Shops(tmp_path, TableRule(match="shop_1.item"), stages=STAGES)
    shops.say(1, "INSERT", 1, "a", at=300).say(1, "INSERT", 2, "x", at=400).run()
    shops.say(1, "UPDATE", 2, "b", at=100).say(1, "UPDATE", 1, "c", at=200).run()
    said = order_metrics(shops.lake, 1)
    assert [("old_positions", ('{"id":"1"}', '{"id":"2"}'))] == [(each.check, each.failing) for each in said]
    assert said == metrics_by_spark(shops.lake, 1, request)
