"""A repair from beginning to end: compared, read again, landed by a run, and compared once more, without Spark."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner, Result

from ingest.cli.app import app
from ingest.config import load
from ingest.tables.tables import LakeReader
from tests.lakes import touch
from tests.source.bins import Bins, in_place_of_a_source

TYPES = {"id": "bigint", "word": "varchar", "size": "double"}


def stream(bins: Bins, number: int, *rows: tuple[int, str, float], kind: str = "INSERT") -> None:
    """A file of messages, and a run that has nothing to say of them."""
    done = landed(bins, number, *rows, kind=kind)
    assert 0 == done.exit_code, done.output


def landed(
    bins: Bins, number: int, *rows: tuple[int, str, float], kind: str = "INSERT", table: str = "bins"
) -> Result:
    """A file of messages, and a run."""
    lines = []
    for place, (key, word, size) in enumerate(rows):
        moment = 1714521600000 + 1000 * number
        data: dict[str, Any] = {
            "data": [{"id": str(key), "word": word, "size": str(size)}],
            "mysqlType": TYPES,
        }
        lines.append(
            data | {
                "database": "shop", "table": table, "es": moment, "ts": moment, "id": 100 * number + place,
                "isDdl": False, "old": None, "pkNames": ["id"], "sql": "", "type": kind,
            }
        )  # fmt: skip
    file = bins.file.parent / "in" / f"{number}.jsonl"
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(f"{json.dumps(one)}\n" for one in lines), "utf-8")
    touch(file)
    return CliRunner().invoke(app, ["run", str(bins.file)])


def test_a_repaired_mirror_is_equal_and_no_run_complains_of_it(bins: Bins) -> None:
    """A run that fails after a repair has its advice followed, and the advice is to clear the mirror."""
    bins.write("DELETE FROM bins WHERE id >= 40")
    right = [(n, f"w{n}", n / 8) for n in range(40)]
    wrong = [
        (n, "another", n / 8) if n in (4, 7, 9) else (n, word, size)
        for n, word, size in right
        if n not in (1, 2)
    ]
    stream(bins, 1, *wrong, (77, "surplus", 1.0))
    done = bins.type("--settled", "--repair", "--run", "--output", "json")
    assert 0 == done.exit_code, done.output
    [table] = json.loads(done.stdout)["tables"]
    assert (True, 40, 40) == (table["equal_to_source"], table["rows"], table["mirror_rows"])
    assert "the mirror is equal" in " ".join(done.stderr.split())
    lake = LakeReader(load(bins.file))
    failed = lake.ask(
        """SELECT "check", detail FROM {checks} WHERE state IN ('fail', 'warn') AND "check" <> 'reconcile'"""
    )
    assert [] == failed
    stream(bins, 2, (3, "newer", 0.5), kind="UPDATE")  # the next run has nothing to say of the repair, either
    bins.write("UPDATE bins SET word = 'newer', size = 0.5 WHERE id = 3")
    assert 0 == bins.type("--settled").exit_code


def test_a_run_without_a_repair_is_refused(bins: Bins) -> None:
    """Nothing would have been read that a run could land."""
    assert 2 == bins.type("--run").exit_code


def test_what_is_equal_starts_no_run(bins: Bins) -> None:
    """A scheduled comparison of equal tables must cost a comparison and no more."""
    bins.write("DELETE FROM bins WHERE id >= 3")
    stream(bins, 1, *((n, f"w{n}", n / 8) for n in range(3)))
    before = LakeReader(load(bins.file)).ask("SELECT count(*) AS n FROM {runs}")
    assert 0 == bins.type("--settled", "--repair", "--run").exit_code
    assert before == LakeReader(load(bins.file)).ask("SELECT count(*) AS n FROM {runs}")


@pytest.fixture(scope="module")
def mended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a lake whose mirror had a row too many, too few, and one that was wrong, and was repaired from its source."""
    with pytest.MonkeyPatch.context() as patched:
        bins = in_place_of_a_source(tmp_path_factory.mktemp("mended"), patched, rows=6)
        stream(bins, 1, (1, "w1", 0.125), (2, "another", 0.25), (3, "w3", 0.375), (77, "surplus", 1.0))
        assert 0 == bins.type("--settled", "--repair", "--run").exit_code
    return bins.file.parent


@pytest.fixture
def repaired(bins: Bins, mended: Path) -> Bins:
    """A copy of that lake and of its source."""
    shutil.copytree(mended, bins.file.parent, dirs_exist_ok=True)
    return bins


def equals_its_source(bins: Bins) -> None:
    """The mirror is equal, and no check of everything complains."""
    assert 0 == bins.type("--settled").exit_code
    done = CliRunner().invoke(app, ["quality", str(bins.file), "--output", "json"])
    assert 0 == done.exit_code, done.output
    with duckdb.connect(str(bins.source)) as connection:
        there = connection.execute("FROM bins ORDER BY id").fetchall()
    here = LakeReader(load(bins.file)).ask_mirror("mirrors/shop/bins", "SELECT * FROM {mirror} ORDER BY id")
    assert there == [(row["id"], row["word"], row["size"]) for row in here]


AFTERWARDS = {
    "rebuild": [["rebuild"]],
    "rebuild of silver": [["rebuild", "--layer", "silver"], ["rebuild"]],
    "backfill of all": [["backfill", "--last", "2"]],
    "backfill of the repair": [["backfill", "--last", "1"]],
    "replay": [["replay"]],
    "snapshot": [["snapshot", "shop.bins"], ["run"]],
    "epoch from the next batch": [["epoch", "shop", "--from-batch", "3"]],
}


@pytest.mark.spark
@pytest.mark.one_of(2)
@pytest.mark.parametrize("verb", AFTERWARDS)
def test_no_command_after_a_repair_loses_what_it_has_mended(repaired: Bins, verb: str) -> None:
    """What is decoded or folded again must take the read rows again, at the place that they had."""
    bins = repaired
    for name, *words in AFTERWARDS[verb]:
        done = CliRunner().invoke(app, [name, str(bins.file), *words])
        assert 0 == done.exit_code, done.output
    equals_its_source(bins)
    stream(bins, 2, (3, "newer", 0.5), kind="UPDATE")
    bins.write("UPDATE bins SET word = 'newer', size = 0.5 WHERE id = 3")
    equals_its_source(bins)


@pytest.mark.spark
def test_the_epoch_of_a_load_after_a_repair_leaves_the_rows_of_the_load(repaired: Bins) -> None:
    """The connector has lost its place after a repair and loads again: rows that were repaired are gone or changed by then."""
    bins = repaired
    bins.write("DELETE FROM bins WHERE id IN (0, 5)")
    bins.write("UPDATE bins SET word = 'later' WHERE id IN (2, 3)")
    rows = [(1, "w1", 0.125), (2, "later", 0.25), (3, "later", 0.375), (4, "w4", 0.5)]
    done = landed(bins, 2, *rows)
    words = " ".join((done.stdout + done.stderr).split())
    [epoch] = {*re.findall("`ingest (epoch [^`]* --complete)`", words)}
    done = CliRunner().invoke(app, shlex.split(epoch))
    assert 0 == done.exit_code, done.output
    equals_its_source(bins)


# --- what is printed afterwards -------------------------------------------------------------------

_TYPED = re.compile(r"(?:`|next: )(ingest [^`\n]*?)(?:`|\n| with --repair)")


def said(bins: Bins, verb: str, *words: str) -> str:
    """What a command prints, and its problems."""
    done = CliRunner().invoke(app, [verb, str(bins.file), *words])
    assert done.exit_code in (0, 1, 3), done.output
    return f"{done.stdout}\n{done.stderr}\n"


def read_and_not_landed(bins: Bins) -> str:
    """Rows that a snapshot has read."""
    stream(bins, 1, (1, "another", 0.125), (77, "surplus", 1.0))
    return said(bins, "snapshot", "shop.bins")


def read_and_landed(bins: Bins) -> str:
    """A snapshot that a run has landed, beside a row that the stream alone has."""
    return read_and_not_landed(bins) + said(bins, "run")


def compared(bins: Bins) -> str:
    """Rows that differ."""
    stream(bins, 1, (1, "another", 0.125), (2, "w2", 0.25), (77, "surplus", 1.0))
    return said(bins, "reconcile", "--settled")


def read_again(bins: Bins) -> str:
    """Rows that differ, and were read to be mended."""
    return compared(bins) + said(bins, "reconcile", "--settled", "--repair")


def mended_at_once(bins: Bins) -> str:
    """Rows that differed, and were mended."""
    return compared(bins) + said(bins, "reconcile", "--settled", "--repair", "--run")


def loaded_again(bins: Bins) -> str:
    """A connector that loads again after a repair, when some of the rows are gone or changed."""
    text = mended_at_once(bins)
    bins.write("DELETE FROM bins WHERE id IN (0, 5)")
    bins.write("UPDATE bins SET word = 'later' WHERE id IN (2, 3)")
    done = landed(bins, 2, (1, "w1", 0.125), (2, "later", 0.25), (3, "later", 0.375), (4, "w4", 0.5))
    return f"{text}{done.stdout}\n{done.stderr}\n"


def in_a_new_epoch(bins: Bins) -> str:
    """The epoch of such a load, as it was advised."""
    text = loaded_again(bins)
    [epoch] = _commands(text + _problems(bins), "epoch")
    done = CliRunner().invoke(app, epoch)
    assert 0 == done.exit_code, done.output
    return f"{text}{done.stdout}\n{done.stderr}\n"


STATES = (
    read_and_not_landed,
    read_and_landed,
    compared,
    read_again,
    mended_at_once,
    loaded_again,
    in_a_new_epoch,
)


def _commands(text: str, *verbs: str) -> list[list[str]]:
    lines = dict.fromkeys(line.partition(" (")[0] for line in _TYPED.findall(text.replace('\\"', '"')))
    words = [shlex.split(line)[1:] for line in lines]
    return [each for each in words if not verbs or each[0] in verbs]


def _problems(bins: Bins) -> str:
    """The words and the commands of the list of problems, and of the plan."""
    texts = [
        CliRunner().invoke(app, [verb, str(bins.file), "-o", "json"]).stdout for verb in ("status", "plan")
    ]
    causes = json.loads(texts[0])["causes"]
    return "\n".join([*texts, *(f"`{cause['command']}`" for cause in causes if cause["command"])])


def keys(file: Path) -> set[int]:
    """The keys of the mirror."""
    return {
        row["id"] for row in LakeReader(load(file)).ask_mirror("mirrors/shop/bins", "SELECT id FROM {mirror}")
    }


@pytest.mark.spark
@pytest.mark.e2e
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_every_command_that_is_printed_can_be_typed(
    bins: Bins,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    state: Callable[[Bins], str],
) -> None:
    """An advice that is followed after a repair or a load must keep each row that the source has."""
    bins.write("DELETE FROM bins WHERE id >= 6")
    printed = _commands(state(bins) + _problems(bins))
    assert printed, "nothing says how to go on"
    with duckdb.connect(str(bins.source)) as connection:
        there = {key for (key,) in connection.execute("SELECT id FROM bins").fetchall()}
    kept = keys(bins.file) & there
    folder, aside = bins.file.parent, tmp_path_factory.mktemp("aside")
    shutil.copytree(folder, aside / "as it was")
    monkeypatch.chdir(aside)  # where a report is written
    for words in printed:
        for typed in (words, ["run", str(bins.file)]):
            done = CliRunner().invoke(app, typed)
            assert done.exit_code in (0, 1, 3), (words, done.output)
            assert done.exception is None or isinstance(done.exception, SystemExit), words
        assert kept <= keys(bins.file), words
        shutil.rmtree(folder)
        shutil.copytree(aside / "as it was", folder)
