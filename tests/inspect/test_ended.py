"""What a complaint tells the operator to write and to type ends it: afterwards the mirror is right, and nothing more is asked.

Each story is a table that a run holds, the entry of the pipeline file that its sentence asks for, and the commands that are
printed then. It is told in each order of steps that an operator takes.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ingest.config import load
from ingest.ledgers import decisions
from ingest.ledgers.decisions import Decision
from ingest.tables.lake import Lake
from ingest.tables.tables import LakeReader
from tests.fleet import typed
from tests.lakes import ENGINE, change, statement, touch
from tests.unstarted import unstarted

COLUMNS = {"id": "bigint", "word": "varchar(20)"}


class Shed:
    """A pipeline over files, whose entry for its table is edited."""

    def __init__(self, folder: Path, entry: str = "", form: str = "dts-canal") -> None:
        self.file, self.form, self.sent = folder / "shed.yaml", form, 0
        self.write(entry)

    def write(self, entry: str) -> None:
        """The pipeline file, with keys of the table's entry."""
        tables = f"tables:\n  - {{match: depot.tools, {entry}}}\n" if entry else ""
        self.file.write_text(
            f"pipeline: shed\nlake: ./lake\n{ENGINE}sources:\n"
            f"  - {{name: s, kind: files, path: './in-*.jsonl', format: {self.form}, settle: 0s}}\n{tables}",
            "utf-8",
        )

    def send(self, *lines: str) -> None:
        """A file of messages."""
        self.sent += 1
        path = self.file.parent / f"in-{self.sent}.jsonl"
        path.write_text("".join(lines), "utf-8")
        touch(path, 3600 - self.sent)

    def type(self, verb: str, *words: str) -> int:
        """The exit code of a command over the pipeline file."""
        return typed(shlex.join(["ingest", *verb.split(), str(self.file), *words]))[0]

    def status(self) -> list[dict[str, Any]]:
        """What `status` lists."""
        code, out = typed(shlex.join(["ingest", "status", str(self.file), "-o", "json"]))
        causes: list[dict[str, Any]] = json.loads(out)["causes"]
        assert code == bool(causes)
        return causes

    def listed(self) -> list[dict[str, Any]]:
        """The statements, as ``ingest ddl`` lists them."""
        _, out = typed(shlex.join(["ingest", "ddl", str(self.file), "-o", "json"]))
        listed: list[dict[str, Any]] = json.loads(out)
        return listed

    def statements(self) -> list[str]:
        """The ids of the statements that wait."""
        return [entry["id"] for entry in self.listed() if entry["pending"]]

    def rows(self) -> list[tuple[Any, ...]]:
        """The mirror."""
        lake = LakeReader(load(self.file))
        return [
            tuple(row.values())
            for row in lake.ask_mirror("mirrors/depot/tools", "SELECT * FROM {mirror} ORDER BY id")
        ]

    def is_quiet(self) -> bool:
        """True if nothing is asked any more, by a run, by `status` or by the checks."""
        return [] == self.status() and 0 == self.type("run") == self.type("quality") and [] == self.status()


def tool(key: object, serial: int, kinds: dict[str, str] | None = None, **given: Any) -> str:
    """An insert of a row."""
    kinds = COLUMNS | (kinds or {})
    cells = {"id": str(key), "word": "a"} | given.pop("cells", {})
    return change("INSERT", "tools", serial, cells, mysqlType=kinds, **given)


class Story(NamedTuple):
    """What makes a run hold the table or complain of it, the entry before, and as it is told to be written."""

    before: str
    first: Sequence[str]
    second: Sequence[str]  # messages of a later batch, if the first has no fault
    after: str
    expected: list[tuple[Any, ...]]
    verb: str = "retry"  # the command that is printed


KEYLESS = [tool(1, 1, pkNames=None), tool(2, 2, pkNames=None)]
N32, N64 = {"n": "int"}, {"n": "bigint"}
WIDE = 7_000_000_000
STORIES = {
    "keys": Story("", KEYLESS, (), "keys: [id]", [(1, "a"), (2, "a")]),
    "no_key": Story("", KEYLESS, (), "no_key: append", [(1, "a"), (2, "a")]),
    "a key that no row has": Story("keys: [idd]", KEYLESS, (), "keys: [id]", [(1, "a"), (2, "a")]),
    "a condition": Story("where: worth = 1", [tool(1, 1)], (), "where: word = 'a'", [(1, "a")]),
    "a name": Story("columns: {word: {rename: id}}", [tool(1, 1)], (), "columns: {word: {rename: term}}", [(1, "a")]),
    "a wider type of a frozen table": Story(
        "on_schema_change: freeze", [tool(1, 1, N32, cells={"n": "7"})], [tool(2, 2, N64, cells={"n": str(WIDE)})],
        "on_schema_change: freeze, columns: {n: int64}", [(1, "a", 7), (2, "a", WIDE)],
    ),
    "a key that has got a column": Story(
        "", [tool(1, 1)], [tool(2, 2, {"part": "int"}, cells={"part": "5"}, pkNames=["id", "part"])],
        "keys: [id]", [(1, "a", None), (2, "a", 5)],
    ),
    "a key that inserts have shown": Story(
        "", [tool(1, 1, cells={"part": "x"})], [tool(1, 2, cells={"part": "y"})], "keys: [id, part]",
        [(1, "a", "x"), (1, "a", "y")], "rebuild",
    ),
    "states of a key that has got a column": Story(
        "history: true", [tool(1, 1)], [tool(2, 2, {"part": "int"}, cells={"part": "5"}, pkNames=["id", "part"])],
        "history: false, keys: [id]", [(1, "a", None), (2, "a", 5)],
    ),
}  # fmt: skip
ORDERS: dict[str, Callable[[Shed, Story], object]] = {
    "written, then tried again": lambda shed, story: (shed.write(story.after), shed.type(story.verb)),
    "tried again, then written": lambda shed, story: (
        shed.type(story.verb),
        shed.write(story.after),
        shed.type(story.verb),
    ),
    "written, then run": lambda shed, story: (shed.write(story.after), shed.type("run")),
    "run between": lambda shed, story: (shed.type("run"), shed.write(story.after), shed.type(story.verb)),
}


@pytest.mark.one_of(3)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("story", STORIES)
def test_what_is_written_as_told_ends_it(tmp_path: Path, story: str, order: str) -> None:
    """The mirror was right, and `status` ended with 1 for ever: the batches "were decoded with other settings"."""
    told = STORIES[story]
    shed = Shed(tmp_path, told.before)
    shed.send(*told.first)
    code = shed.type("run")
    if told.second:
        shed.send(*told.second)
        code = shed.type("run")
    assert 1 == code
    assert shed.status()
    ORDERS[order](shed, told)
    assert [] == shed.status()
    assert told.expected == shed.rows()
    assert shed.is_quiet()


def debezium(op: str, serial: int, before: dict[str, Any] | None, after: dict[str, Any] | None) -> str:
    """A message of Debezium for MySQL, as a file has it: without a Kafka key."""
    place = {
        "connector": "mysql",
        "db": "depot",
        "table": "tools",
        "file": "bin.000007",
        "pos": serial,
        "row": 0,
    }
    return json.dumps({"before": before, "after": after, "op": op, "ts_ms": serial, "source": place}) + "\n"


def test_a_file_of_debezium_names_no_key(tmp_path: Path) -> None:
    """Its table is held until the pipeline file names one: then nothing of its messages is decoded otherwise."""
    shed = Shed(tmp_path, form="debezium")
    rows = [{"id": number, "word": "a"} for number in (1, 2)]
    shed.send(*(debezium("c", serial, None, row) for serial, row in enumerate(rows, 10)))
    shed.type("run")
    shed.send(debezium("u", 20, rows[0], {"id": 1, "word": "b"}), debezium("d", 30, rows[1], None))
    assert 1 == shed.type("run")
    assert ["held"] == [cause["kind"] for cause in shed.status()]
    shed.write("keys: [id]")
    assert 0 == shed.type("retry")
    assert [("1", "b")] == shed.rows()  # no schema says that it is a number
    assert shed.is_quiet()


@pytest.mark.parametrize("is_sent_before", [True, False])
def test_a_batch_between_changes_nothing(tmp_path: Path, is_sent_before: bool) -> None:
    """Batches from before and after an edit are in the books with two settings, of which the older one asked for more."""
    shed = Shed(tmp_path)
    shed.send(*KEYLESS)
    shed.type("run")
    if not is_sent_before:
        shed.write("keys: [id]")
    shed.send(tool(3, 3, pkNames=None))
    shed.type("run")
    shed.write("keys: [id]")
    shed.type("retry")
    assert [(1, "a"), (2, "a"), (3, "a")] == shed.rows()
    assert shed.is_quiet()


@pytest.mark.parametrize("verb", ["approve", "dismiss"])
def test_a_decided_statement_is_not_said_to_wait(tmp_path: Path, verb: str) -> None:
    """Once it was approved, `status` still said that it waits for a decision, and named a list in which nothing did."""
    shed = Shed(tmp_path, "on_schema_change: freeze, history: true")
    shed.send(tool(1, 1))
    shed.type("run")
    text = "ALTER TABLE tools ADD COLUMN n INT"
    shed.send(
        statement("tools", 2, text), *([tool(2, 3, N32, cells={"n": "7"})] if verb == "approve" else [])
    )
    assert 1 == shed.type("run")
    assert {"held", "ddl_pending"} == {cause["kind"] for cause in shed.status()}
    [waiting] = shed.statements()
    shed.type(f"ddl {verb}", waiting, *(["--reason", "no"] if verb == "dismiss" else []))
    held = shed.status()
    assert {"held"} == {cause["kind"] for cause in held}
    [command] = {cause["command"] for cause in held}
    assert all("decided" in cause["text"] and f"`{command}`" in cause["text"] for cause in held)
    assert 0 == typed(command)[0]
    assert shed.is_quiet()


def test_a_statement_that_holds_nothing_is_not_waited_for(tmp_path: Path) -> None:
    """Beside one that was only noticed, the decided one was still said to wait."""
    shed = Shed(tmp_path, "on_schema_change: evolve")
    shed.send(tool(1, 1))
    shed.type("run")
    shed.send(
        statement("tools", 2, "ALTER TABLE tools FROBNICATE"),
        statement("tools", 3, "ALTER TABLE tools TRUNCATE PARTITION p0"),
    )
    shed.type("run")
    [held] = [entry for entry in shed.listed() if entry["state"] == "held"]
    assert "noticed" in {entry["state"] for entry in shed.listed()}
    shed.type("ddl dismiss", held["id"], "--reason", "no rows were there")
    [cause] = [cause for cause in shed.status() if cause["kind"] == "held"]
    assert "decided" in cause["text"]


def test_a_paused_mirror_is_what_the_operator_has_decided(tmp_path: Path) -> None:
    """Each run failed, and `status` named `ingest retry`, which finds nothing to try; once resumed, it was said to be paused."""
    shed = Shed(tmp_path)
    shed.send(tool(1, 1))
    shed.type("run")
    shed.type("pause", "depot.tools", "--reason", "a release")
    shed.send(tool(2, 2))
    assert 0 == shed.type("run") == shed.type("run") == shed.type("quality")
    [paused] = shed.status()
    assert ("paused", "resume") == (paused["kind"], shlex.split(paused["command"])[1])
    assert 0 == typed(paused["command"])[0]
    assert [] == shed.status()
    assert shed.is_quiet()
    assert [(1, "a"), (2, "a")] == shed.rows()


@pytest.mark.parametrize("is_put_back", [True, False])
def test_an_alarm_of_a_source_ends_without_another_batch(tmp_path: Path, is_put_back: bool) -> None:
    """The run that raised it had a batch, too: the file was put back, and `status` ended with 1 until the next message came."""
    shed = Shed(tmp_path)
    shed.send(tool(1, 1), tool(2, 2))
    shed.type("run")
    shrunk = tmp_path / "in-1.jsonl"
    whole = shrunk.read_text("utf-8")
    shrunk.write_text(whole[:20], "utf-8")
    touch(shrunk)
    shed.send(tool(3, 3))
    for _ in range(2):
        assert 1 == shed.type("run")
        [alarm] = shed.status()
        assert ("last_run", "run") == (alarm["kind"], shlex.split(alarm["command"])[1])
    if is_put_back:
        shrunk.write_text(whole, "utf-8")
        touch(shrunk)
    else:
        shrunk.unlink()
    assert 0 == typed(alarm["command"])[0]
    assert shed.is_quiet()
    assert [(1, "a"), (2, "a"), (3, "a")] == shed.rows()


def test_a_mirror_of_older_changes_is_said_once(tmp_path: Path) -> None:
    """A backfill that was killed leaves it: `status` said of its alarm that the last run has failed, and named `ingest run`."""
    shed = Shed(tmp_path)
    shed.send(tool(1, 1))
    shed.type("run")
    left = Decision(decisions.DECODED, "changes", {"mirrors": ["mirrors/depot/tools"], "new": []}, 1)
    decisions.append(Lake(unstarted(), load(shed.file)), [left])
    for _ in range(2):
        assert 1 == shed.type("run")
        [outdated] = shed.status()
        assert "outdated" == outdated["kind"]
    assert 0 == typed(outdated["command"])[0]
    assert shed.is_quiet()


@pytest.mark.parametrize("verb", ["run", "retry"])
def test_a_rebuilt_mirror_is_brought_up_to_date(tmp_path: Path, verb: str) -> None:
    """It had waited for the rebuild: `status` said that it is held or failed, and named `ingest retry`, which found nothing to try."""
    shed = Shed(tmp_path)
    shed.send(tool(1, 1))
    shed.type("run")
    theirs = pa.table({"id": pa.array([9]), "word": ["theirs"]})
    write_deltalake(tmp_path / "lake/mirrors/depot/tools", theirs, mode="append")
    shed.send(tool(2, 2))
    assert 1 == shed.type("run")
    [held] = shed.status()
    assert ("held", 0) == (held["kind"], typed(held["command"])[0])
    [waiting] = shed.status()
    assert ("up_to_date", "run") == (waiting["kind"], shlex.split(waiting["command"])[1])
    assert f"`{waiting['command']}`" in waiting["text"]
    assert 0 == shed.type(verb)
    assert [(1, "a"), (2, "a")] == shed.rows()
    assert shed.is_quiet()
