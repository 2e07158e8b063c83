"""Every command on the screen, typed in the state that shows it: it runs, it ends as promised, and no row is lost.

Each state is a small lake that a run has left. The commands are those of the list of problems, of the last run's words,
of the plan and of the report; each is typed in a copy of the lake.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from deltalake import CommitProperties, DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from ingest.cli.app import app
from ingest.config import load
from ingest.inspect import problems
from ingest.ledgers import decisions
from ingest.ledgers.decisions import Decision
from ingest.quality import report
from ingest.run import Warm, run
from ingest.tables.lake import Lake
from ingest.tables.tables import LakeReader
from tests.lakes import FORMAT, Depot, change, statement, touch
from tests.problem_tests import SHOWN

pytestmark = [pytest.mark.spark, pytest.mark.slow]  # what decodes or folds again starts it

_TYPED = re.compile(r"`(ingest [^`]*)`")
_LOOKS = {"status", "alerts", "explain"}  # end with 1 as long as anything is wrong
_REPAIRS = {"epoch"}  # after which the problem whose command it is has ended
_RUNS = {"run", "retry", "rebuild", "backfill", "quality"}  # end with 1 if the state has not changed


@dataclass
class State:
    """A lake in which something is wrong: its pipeline file, what the run said, and the verbs that must be named."""

    depot: Depot
    verbs: set[str]
    said: list[str] = field(default_factory=list)
    removed: Mapping[str, set[str]] = field(
        default_factory=dict
    )  # the keys that a command takes away on purpose
    edits: Mapping[str, tuple[str, str]] = field(
        default_factory=dict
    )  # what is to be written first, by the verb of the command that the same words name

    @property
    def file(self) -> Path:
        """The pipeline file."""
        return self.depot.file


def send(depot: Depot, *lines: str) -> None:
    """Append messages to the feed."""
    with depot.feed.open("a", encoding="utf-8") as feed:
        feed.writelines(lines)
    depot.slices += 1
    touch(depot.feed, 3600 - depot.slices)


def tick(spark: SparkSession, state: State) -> None:
    """A run, whose words are kept."""
    result = run(spark, load(state.file), warm=Warm())
    state.said += [*result.failures, *result.warnings]


def rows(*numbers: int, word: str = "a", table: str = "bins", base: int = 0, **given: Any) -> list[str]:
    """Inserts of rows."""
    return [
        change("INSERT", table, base + number, {"id": str(number), "word": word}, **given)
        for number in numbers
    ]


def rewritten(depot: Depot, old: str, new: str) -> None:
    """Change the pipeline file."""
    text = depot.file.read_text("utf-8")
    assert old in text
    depot.file.write_text(text.replace(old, new), "utf-8")


# --- the states -----------------------------------------------------------------------------------


def held(spark: SparkSession, folder: Path) -> State:
    """A table without a key."""
    state = State(Depot(folder), {"retry"})
    send(state.depot, *rows(1, 2), *rows(3, table="box", pkNames=None, base=10))
    tick(spark, state)
    return state


def rejected(spark: SparkSession, folder: Path) -> State:
    """A message that is not JSON, and a cell that does not fit."""
    state = State(Depot(folder, "tables:\n  - {match: '*', columns: {word: int64}}\n"), {"rejects"})
    send(state.depot, *rows(1, 2, word="7"), '{"broken": \n', *rows(3, word="seven"))
    tick(spark, state)
    return state


def pending(spark: SparkSession, folder: Path) -> State:
    """A statement that waits."""
    freeze = "tables:\n  - {match: depot.bins, on_schema_change: freeze}\n"
    state = State(Depot(folder, freeze), {"ddl"})
    send(state.depot, *rows(1, 2))
    tick(spark, state)
    send(state.depot, statement("bins", 100, "ALTER TABLE bins ADD COLUMN more INT"), *rows(3, base=200))
    tick(spark, state)
    return state


def unknown(spark: SparkSession, folder: Path) -> State:
    """A default that only the source knows."""
    state = State(Depot(folder), {"ddl"})
    send(state.depot, *rows(1, 2))
    tick(spark, state)
    text = "ALTER TABLE bins ADD COLUMN at DATETIME DEFAULT CURRENT_TIMESTAMP"
    send(state.depot, statement("bins", 100, text), *rows(3, base=200))
    tick(spark, state)
    return state


def paused(spark: SparkSession, folder: Path) -> State:
    """A mirror that the operator has paused, and a change that waits."""
    state = State(Depot(folder), {"resume"})
    send(state.depot, *rows(1, 2))
    tick(spark, state)
    assert 0 == typed(["pause", str(state.file), "depot.bins", "--reason", "a release"])[0]
    send(state.depot, *rows(3, base=100))
    tick(spark, state)
    return state


def gone(spark: SparkSession, folder: Path) -> State:
    """A mirror whose folder was deleted."""
    state = State(Depot(folder), {"retry"})
    send(state.depot, *rows(1, 2), *rows(3, table="box", base=10))
    tick(spark, state)
    shutil.rmtree(folder / "lake/mirrors/depot/box")
    tick(spark, state)
    return state


def damaged(spark: SparkSession, folder: Path) -> State:
    """A mirror whose log is damaged."""
    state = State(Depot(folder), {"rebuild"})
    send(state.depot, *rows(1, 2), *rows(3, table="box", base=10))
    tick(spark, state)
    for log in (folder / "lake/mirrors/depot/box/_delta_log").glob("*.json"):
        log.write_text("{", "utf-8")
    tick(spark, state)
    return state


def foreign(spark: SparkSession, folder: Path) -> State:
    """Another program has written to a mirror."""
    state = State(Depot(folder), {"rebuild"}, removed={"bins": {"9"}})
    send(state.depot, *rows(1, 2))
    tick(spark, state)
    row = "SELECT CAST(9 AS BIGINT) AS id, 'theirs' AS word"
    spark.sql(row).write.format("delta").mode("append").save(str(folder / "lake/mirrors/depot/bins"))
    send(state.depot, *rows(3, base=100))
    tick(spark, state)
    return state


def excluded(spark: SparkSession, folder: Path) -> State:
    """A table that was mirrored, and is to be no more."""
    state = State(Depot(folder, "tables:\n  - {match: depot.box}\n"), {"drop"}, removed={"box": {"3"}})
    send(state.depot, *rows(1, 2), *rows(3, table="box", base=10))
    tick(spark, state)
    rewritten(state.depot, "match: depot.box", "match: depot.box, exclude: true")
    tick(spark, state)
    return state


def taken_back(spark: SparkSession, folder: Path) -> State:
    """A table that was excluded for a while."""
    excludes = "tables:\n  - {match: depot.box, exclude: true}\n"
    state = State(Depot(folder, excludes), {"backfill"})
    send(state.depot, *rows(1, 2), *rows(3, table="box", base=10))
    tick(spark, state)
    rewritten(state.depot, excludes, "")
    send(state.depot, *rows(4, table="box", base=20))
    tick(spark, state)
    return state


def set_back(spark: SparkSession, folder: Path) -> State:
    """A file that comes again, in the order of arrival."""
    state = State(Depot(folder), {"epoch", "explain"})
    rewritten(state.depot, f"format: {FORMAT}", "format: canal")
    send(state.depot, *rows(1, 2))
    tick(spark, state)
    first = change("UPDATE", "bins", 200, {"id": "1", "word": "b"}, old=[{"word": "a"}])
    send(state.depot, first, change("UPDATE", "bins", 300, {"id": "1", "word": "c"}, old=[{"word": "b"}]))
    tick(spark, state)
    late_file(state, first)
    tick(spark, state)
    return state


def late(spark: SparkSession, folder: Path) -> State:
    """A file that comes late, in the order of positions."""
    state = State(Depot(folder), {"epoch", "explain"})
    send(state.depot, *rows(1, 2))
    tick(spark, state)
    send(state.depot, change("UPDATE", "bins", 300, {"id": "1", "word": "c"}))
    tick(spark, state)
    late_file(state, change("UPDATE", "bins", 200, {"id": "1", "word": "b"}))
    tick(spark, state)
    return state


def late_file(state: State, line: str) -> None:
    """Another file."""
    file = state.file.parent / "bins-late.jsonl"
    file.write_text(line, "utf-8")
    touch(file)


def lost(spark: SparkSession, folder: Path) -> State:
    """A change that never came: the next one of its row shows it."""
    state = State(Depot(folder), {"explain"})
    send(state.depot, *rows(1, 2))
    tick(spark, state)
    send(state.depot, change("UPDATE", "bins", 300, {"id": "1", "word": "c"}, old=[{"word": "b"}]))
    tick(spark, state)
    return state


def restarted(spark: SparkSession, folder: Path) -> State:
    """Positions that start again, so that newer changes lose."""
    state = State(Depot(folder), {"epoch"})
    send(state.depot, *rows(1, 2, base=900))
    tick(spark, state)
    send(state.depot, change("UPDATE", "bins", 5000, {"id": "1", "word": "b"}, old=[{"word": "a"}], id=5))
    tick(spark, state)
    return state


def loaded_again(spark: SparkSession, folder: Path) -> State:
    """A full load that differs from the changes before it."""
    state = State(Depot(folder), {"epoch"})
    rewritten(state.depot, f"format: {FORMAT}", "format: oms-default, options: {timezone: UTC}")
    send(state.depot, *(oms("INSERT", number, 100 + number, "a") for number in (1, 2)))
    tick(spark, state)
    send(state.depot, *(oms("ROW", number, None, "b") for number in (1, 2)))
    tick(spark, state)
    return state


def without_a_column(spark: SparkSession, folder: Path) -> State:
    """Rows without a column that others have, before and after them."""
    state = State(Depot(folder), {"report"})
    send(state.depot, *rows(1, 2), change("INSERT", "bins", 3, {"id": "3"}), *rows(4))
    tick(spark, state)
    return state


def no_more_a_column(spark: SparkSession, folder: Path) -> State:
    """A column that comes no more, without a statement that drops it."""
    state = State(Depot(folder), {"report"})
    send(state.depot, *rows(1, 2))
    tick(spark, state)
    send(state.depot, change("INSERT", "bins", 300, {"id": "3"}))
    tick(spark, state)
    return state


def begun_in_the_middle(spark: SparkSession, folder: Path) -> State:
    """An update of some columns of a row that never came."""
    state = State(Depot(folder), {"explain"})
    rewritten(state.depot, f"format: {FORMAT}", "format: ogg")
    row = {"id": 1, "word": "a", "more": 1}
    send(state.depot, ogg("I", 1, row), ogg("U", 2, {"id": 7, "word": "b"}))
    tick(spark, state)
    return state


def cut_off(spark: SparkSession, folder: Path) -> State:
    """A bootstrap of Maxwell that lacks a row of the mirror."""
    state = State(Depot(folder), {"epoch"}, removed={"bins": {"2"}})
    rewritten(state.depot, f"format: {FORMAT}", "format: maxwell")
    send(state.depot, *(maxwell("insert", 1000 + number, number) for number in (1, 2)))
    tick(spark, state)
    loading = ("bootstrap-start", "bootstrap-insert", "bootstrap-complete")
    send(state.depot, *(maxwell(op, 2000, 1 if op == "bootstrap-insert" else None) for op in loading))
    tick(spark, state)
    return state


def loaded_in_part(spark: SparkSession, folder: Path) -> State:
    """A second full load that lacks a row, in a dialect in which nothing says where a load ends."""
    state = State(Depot(folder), {"epoch", "quality"}, removed={"bins": {"3"}})
    for lines in (loaded(0, 1, 2, 3), rows(4, base=100), [*loaded(500, 1, 2, 4), *rows(5, base=600)]):
        send(state.depot, *lines)
        tick(spark, state)
    return state


def spelt_twice(spark: SparkSession, folder: Path) -> State:
    """A key whose delete comes in another spelling than its row."""
    rule = "{match: '*', keys: [id]"
    state = State(
        Depot(folder, f"tables:\n  - {rule}}}\n"), {"explain", "drop"}, removed={"bins": {"1", "77"}}
    )
    state.edits = {"drop": (rule, f"{rule}, exclude: true")}
    rewritten(state.depot, f"format: {FORMAT}", "format: maxwell")
    send(state.depot, maxwell("insert", 1, "1"), maxwell("insert", 2, "77"), maxwell("delete", 3, "1.0"))
    tick(spark, state)
    return state


def planted(spark: SparkSession, folder: Path) -> State:
    """A cell that something has changed behind the product's back, under the product's own marks."""
    state = State(Depot(folder), {"rebuild"})
    send(state.depot, *rows(1, 2))
    tick(spark, state)
    mirror = DeltaTable(str(folder / "lake/mirrors/depot/bins"))
    marks = CommitProperties(custom_metadata={"userMetadata": json.dumps({"batch": 1, "run": "r"})})
    mirror.update({"word": "'other'"}, predicate="id = 1", commit_properties=marks)
    code, out = typed(["quality", str(state.file), "--deep", "*"])
    assert code == 1, out
    return state


def loaded(base: int, *numbers: int) -> list[str]:
    """Rows of a full load."""
    return [change("INIT", "bins", base + number, {"id": str(number), "word": "a"}) for number in numbers]


def oms(kind: str, key: int, serial: int | None, word: str) -> str:
    """A message of OMS in its default form; without a number it is of a full load."""
    about = {
        "record_primary_key": "id", "record_primary_value": str(key), "dbType": "OB_MYSQL", "db": "depot",
        "table_name": "bins", "timestamp": None if serial is None else "1700000000",
        "storeDataSequence": None if serial is None else f"1700000000{serial:05}",
    }  # fmt: skip
    message = {"recordType": kind, "prevStruct": None, "postStruct": {"id": key, "word": word}}
    return json.dumps(message | {"allMetaData": about}) + "\n"


def ogg(kind: str, serial: int, after: dict[str, Any]) -> str:
    """A message of GoldenGate."""
    message = {
        "table": "depot.bins", "op_type": kind, "op_ts": f"2024-06-10 06:14:{serial:02}.000000",
        "pos": f"0000000001000001{serial:04}", "primary_keys": ["id"], "after": after,
    }  # fmt: skip
    return json.dumps(message) + "\n"


def maxwell(kind: str, serial: int, key: int | str | None) -> str:
    """A message of Maxwell."""
    place = {
        "ts": 1_700_000_000 + serial,
        "position": f"master.000001:{serial}",
        "primary_key_columns": ["id"],
    }
    row = {} if key is None else {"id": key, "word": "a"}
    return json.dumps({"database": "depot", "table": "bins", "type": kind, **place, "data": row}) + "\n"


def inserted_twice(spark: SparkSession, folder: Path) -> State:
    """A table that was loaded again, without a row that was deleted meanwhile."""
    state = State(Depot(folder), {"epoch", "backfill", "rebuild"}, removed={"bins": {"3"}})
    send(state.depot, *rows(1, 2, 3))
    tick(spark, state)
    send(state.depot, *rows(1, 2, word="b", base=500))
    tick(spark, state)
    return state


def misread(spark: SparkSession, folder: Path) -> State:
    """Bytes that are sent as hexadecimal digits."""
    state = State(Depot(folder), {"backfill"})
    kinds = {"id": "bigint", "word": "varbinary"}
    send(state.depot, *rows(1, 2, word="48656C6C6F21", mysqlType=kinds))
    tick(spark, state)
    return state


def reconfigured(spark: SparkSession, folder: Path) -> State:
    """An option of the source that changed after messages were decoded."""
    state = State(Depot(folder), {"backfill"})
    send(state.depot, *rows(1, 2))
    tick(spark, state)
    rewritten(state.depot, f"format: {FORMAT}", f"format: {FORMAT}, options: {{timezone: Asia/Shanghai}}")
    send(state.depot, *rows(3, base=100))
    tick(spark, state)
    return state


def without_silver(spark: SparkSession, folder: Path) -> State:
    """A lake that was restored without its changes."""
    state = State(Depot(folder), {"rebuild"})
    send(state.depot, *rows(1, 2))
    tick(spark, state)
    shutil.rmtree(folder / "lake/changes")
    return state


def taken(spark: SparkSession, folder: Path) -> State:
    """Changes as they were before the second batch, by another program."""
    state = State(Depot(folder), {"backfill"})
    for key in (1, 2):
        send(state.depot, *rows(key, base=10 * key))
        tick(spark, state)
    changes = DeltaTable(str(folder / "lake/changes"))
    spark.sql(f"RESTORE TABLE delta.`{folder}/lake/changes` TO VERSION AS OF {changes.version() - 1}")
    return state


def refused(spark: SparkSession, folder: Path) -> State:
    """A change whose key does not fit."""
    state = State(Depot(folder), {"rejects"})
    send(state.depot, *rows(1, 2), change("INSERT", "bins", 3, {"id": "third", "word": "a"}))
    tick(spark, state)
    return state


def remasked(spark: SparkSession, folder: Path) -> State:
    """A column that is to be masked, and was decoded before as it came."""
    state = State(Depot(folder, "tables:\n  - {match: depot.bins}\n"), {"rebuild"})
    send(state.depot, *rows(1, 2))
    tick(spark, state)
    rewritten(state.depot, "match: depot.bins", "match: depot.bins, mask: {word: last4}")
    return state


def decoded_again(spark: SparkSession, folder: Path) -> State:
    """Changes that were decoded again, by a command that was killed before it folded them."""
    state = State(Depot(folder), {"rebuild"})
    send(state.depot, *rows(1, 2))
    tick(spark, state)
    lake = Lake(spark, state.depot.pipeline)
    decisions.append(
        lake, [Decision(decisions.DECODED, "changes", {"mirrors": ["mirrors/depot/bins"], "new": []}, 1)]
    )
    return state


def stale(spark: SparkSession, folder: Path) -> State:
    """A stream that is older than it may be."""
    state = State(Depot(folder, "quality:\n  - {table: depot.bins, freshness: 1h}\n"), {"plan"})
    send(state.depot, *rows(1, 2))
    tick(spark, state)
    return state


STATES = (
    refused, remasked, decoded_again, stale,
    held, rejected, pending, unknown, paused, gone, damaged, foreign, excluded, taken_back, set_back, inserted_twice, misread,
    reconfigured, without_silver, taken, late, lost, restarted, loaded_again, without_a_column, no_more_a_column,
    begun_in_the_middle, cut_off, loaded_in_part, spelt_twice, planted,
)  # fmt: skip


# --- what is shown, and what typing it does -------------------------------------------------------


def typed(words: list[str]) -> tuple[int, str]:
    """The exit code and the output of a command."""
    done = CliRunner().invoke(app, words)
    return done.exit_code, done.stdout if "json" in words else done.output


def shown(state: State) -> dict[str, None]:
    """Every command that the product shows in this state."""
    texts = [*state.said]
    for verb in ("status", "plan"):
        code, out = typed([verb, str(state.file), "-o", "json"])
        assert code in (0, 1, 2), out  # 2: the lake is not whole, which the text says
        texts.append(out)
    reader = LakeReader(load(state.file))
    if (state.file.parent / "lake/changes").exists():
        facts = problems.gathered(reader)
        texts += [f"{one.text} {one.advice}" for one in report.page(facts).problems]
    commands = [line for text in texts for line in _TYPED.findall(text.replace('\\"', '"'))]
    if code != 2:
        found = json.loads(typed(["status", str(state.file), "-o", "json"])[1])
        commands += [one["command"] for one in found["causes"] if one["command"]]
    return dict.fromkeys(line.partition(" (")[0] for line in commands)


def keys(spark: SparkSession, file: Path) -> dict[str, set[str]]:
    """The keys of each mirror that can be read."""
    found = {}
    for path in (file.parent / "lake/mirrors/depot").glob("*"):
        try:
            listed = spark.read.format("delta").load(str(path)).select("id").collect()
        except (PySparkException, Py4JJavaError):  # it is the damaged one
            listed = []
        found[path.name] = {str(row.id) for row in listed}
    return found


def promised(words: list[str]) -> set[int]:
    """The exit codes that a verb may end with while the state lasts."""
    return {0, 1} if words[0] in _LOOKS | _RUNS else {0}


def allowed(state: State, before: dict[str, set[str]], after: dict[str, set[str]]) -> Iterable[str]:
    """The mirrors that have lost rows without being told to."""
    for name, ids in before.items():
        if ids - after.get(name, set()) - state.removed.get(name, set()):
            yield name


@pytest.mark.parametrize("made", STATES, ids=lambda made: made.__name__)
def test_what_is_shown_can_be_typed(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    made: Callable[[SparkSession, Path], State],
) -> None:
    """At three in the morning a command is copied from the screen: one that fails, or loses rows, makes it worse."""
    state = made(spark, tmp_path / "as it was")
    repairs = dict[str, set[str]]()  # the kinds of problems that a command ends
    causes = json.loads(typed(["status", str(state.file), "-o", "json"])[1])["causes"]
    kinds = {problem["kind"] for problem in causes}
    for problem in causes:
        if _REPAIRS & {*problem["command"].split()[1:2]}:
            repairs.setdefault(problem["command"], set()).add(problem["kind"])
    assert [] == [problem for problem in causes if not problem["since"]], "nobody knows since when"
    assert SHOWN[made.__name__] <= kinds, (kinds, state.said)
    commands = shown(state)
    assert state.verbs <= {shlex.split(line)[1] for line in commands}, (commands, state.said)
    before = keys(spark, state.file)
    for number, line in enumerate(commands):
        copy = tmp_path / f"copy {number}"
        shutil.copytree(state.file.parent, copy)
        monkeypatch.chdir(copy)  # where a report is written
        here = str(state.file.parent)
        # a message stays where it was read
        words = [
            word.replace(here, str(copy)) if Path(word).exists() else word for word in shlex.split(line)[1:]
        ]
        if edit := state.edits.get(words[0]):
            file = copy / state.file.name
            file.write_text(file.read_text("utf-8").replace(*edit), "utf-8")
        code, out = typed(words)
        assert code in promised(words), (line, out)
        assert [] == list(allowed(state, before, keys(spark, copy / state.file.name))), line
        if ended := repairs.get(line):
            causes = json.loads(typed(["status", words[1], "-o", "json"])[1])["causes"]
            assert not ended & {problem["kind"] for problem in causes}, (line, causes)
