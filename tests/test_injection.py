"""Text of a source is data wherever it goes: names, comments, cells, types and statements, in every output."""

from __future__ import annotations

import json
import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from typer.testing import CliRunner, Result

from ingest.cli.app import app
from ingest.store.names import quoted
from ingest.tables.lake import Lake
from tests.lakes import Depot, change, statement, touch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]  # one run, and every command twice

REFERENCES = "${env:PATH} ${env:HOME} ${system:user.home} ${spark.app.name} ${PATH} $PATH %PATH% {{7*7}}"
MARKUP = "<script>alert(1)</script><img src=x onerror=alert(1)> [link=http://x]y[/link] &amp;"
CLOSING = "`'\"; DROP TABLE x; -- */ /* \\\n%s%n%2e%2e/../ \\' \\u0027 #"
DRIVING = "\x1b[2J\x1b]52;c;ZWNobyBwd24=\x07\x9b31m\u202egnp.exe\u2066\r\x00"
UNSEEN = set("\x1b\x07\x9b\u202e\u2066\r\x00")
NASTY = f"{REFERENCES} {MARKUP} {CLOSING} {DRIVING}"
COLUMN, TABLE, DATABASE = f"c {NASTY}", f"t {NASTY}", f"d {NASTY}"
TYPES = {"id": "bigint", "word": "varchar", COLUMN: "varchar"}


class Seen(NamedTuple):
    """A command's words, and what it wrote."""

    words: list[str]
    done: Result

    @property
    def text(self) -> str:
        """All that an operator sees."""
        return self.done.stdout + self.done.stderr


class Made(NamedTuple):
    """A lake that took such text for everything that a source can say, and what commands show of it."""

    depot: Depot
    seen: list[Seen]
    pages: list[str]


def messages() -> list[str]:
    """Such text at every place of a message."""
    literal = NASTY.replace("\\", "\\\\").replace("'", "''")
    create = (
        f"CREATE TABLE bins (id BIGINT PRIMARY KEY COMMENT '{literal}', word VARCHAR(500) COMMENT '{literal}', "
        f"{quoted(COLUMN)} VARCHAR(500) DEFAULT '{literal}' COMMENT '{literal}') COMMENT='{literal}'"
    )
    late = f"ALTER TABLE bins ADD COLUMN late VARCHAR(500) NOT NULL DEFAULT '{literal}' COMMENT '{literal}'"
    row: dict[str, str | None] = {"id": "1", "word": NASTY, COLUMN: NASTY}
    return [
        statement("bins", 1, create),
        change("INSERT", "bins", 2, row, mysqlType=TYPES, gtid=NASTY),
        change("INSERT", TABLE, 3, row, mysqlType=TYPES, database=DATABASE),
        statement("bins", 4, late),
        statement("bins", 5, f"ALTER TABLE bins COMMENT = '{literal}' -- {NASTY}"),
        statement("bins", 6, f"nonsense {NASTY}"),
        change("INSERT", "keyed", 7, {COLUMN: NASTY, "word": "old"}, mysqlType=TYPES, pkNames=[COLUMN]),
        change("UPDATE", "keyed", 8, {COLUMN: NASTY, "word": "new"}, mysqlType=TYPES, pkNames=[COLUMN]),
        change("INSERT", "typed", 9, {"id": "1", "word": NASTY}, mysqlType={"id": "bigint", "word": NASTY}),
        change(
            "INSERT", "numbers", 10, {"id": "1", "word": NASTY}, mysqlType={"id": "bigint", "word": "int"}
        ),
        change(NASTY, "bins", 11, row, mysqlType=TYPES),
        change("INSERT", "bins", 12, {NASTY: NASTY}, mysqlType=NASTY, pkNames=NASTY),
        '{"broken": ' + json.dumps(NASTY) + "\n",
        NASTY.replace("\n", " ") + "\n",
    ]


def commands(file: str, page: str) -> list[list[str]]:
    """Every command that shows something of a lake."""
    both = [
        *(["tables", file], ["status", file], ["ddl", "list", file], ["rejects", "list", file]),
        *(["rejects", "show", file, "1"], ["rejects", "show", file, "2"], ["plan", file]),
        *(["quality", file, "--all"], ["explain", file, "depot.bins", "1"]),
        ["explain", file, "depot.keyed", "--", NASTY],
        *(
            ["sql", file, f"SELECT * FROM {name}"]
            for name in "depot.bins changes ddl rejects checks runs bronze".split()
        ),
        ["sql", file, f"SELECT * FROM {quoted(DATABASE)}.{quoted(TABLE)}"],
    ]
    forms = [[*words[:2], "--output", form, *words[2:]] for words in both for form in ("table", "json")]
    return [*forms, ["tables", file, "--output", "sql"], ["status", file, "--output", "prom"], ["report", file, "--out", page]]  # fmt: skip


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """One run, and one look with each command."""
    lineage = "openlineage: {file: ./events.jsonl}\n" if find_spec("openlineage") else ""
    depot = Depot(tmp_path_factory.mktemp("injection"), lineage)
    depot.feed.write_text("".join(messages()), "utf-8")
    touch(depot.feed)
    name = f"{NASTY.replace('/', '_')[:200]}".replace("\0", "").encode()[:150].decode("utf-8", "ignore")
    odd = depot.folder / f"bins-{name}.jsonl"
    odd.write_text(change("INSERT", "bins", 20, {"id": "2", "word": NASTY}, mysqlType=TYPES), "utf-8")
    touch(odd)
    page = depot.folder / "page.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ingest.spark.session.stop", lambda _spark: None)
        patch.setattr("ingest.cli.run_verbs._listen", lambda _stop: None)
        seen = [
            Seen(words, CliRunner().invoke(app, words))
            for words in [["run", str(depot.file), "--output", "json"], *commands(str(depot.file), str(page))]
        ]
    return Made(depot, seen, [path.read_text("utf-8") for path in depot.folder.glob("*.html")])


def test_such_references_would_be_read(spark: SparkSession) -> None:
    """The tests below would find nothing if the references named nothing."""
    session = spark.newSession()
    session.conf.set("spark.sql.variable.substitute", "true")
    assert os.environ["PATH"] == session.sql("SELECT '${env:PATH}'").first()[0]  # type: ignore[index]
    assert "false" == spark.conf.get("spark.sql.variable.substitute")


def test_mirrors_hold_the_text_itself(spark: SparkSession, made: Made) -> None:
    """A comment in the source would read the environment of the host into a table that all readers see."""
    lake = Lake(spark, made.depot.pipeline)
    bins = lake.read("mirrors/depot/bins")
    found = {row["id"]: row for row in bins.collect()}
    assert {1: NASTY, 2: NASTY} == {key: row["word"] for key, row in found.items()}
    assert NASTY == found[1]["late"]
    comments = {field.name: field.metadata.get("comment", "") for field in bins.schema.fields}
    assert {"word", "late"} <= set(comments)
    for name, comment in comments.items():
        assert name.startswith("_") or REFERENCES in comment, name
    (keyed,) = lake.read("mirrors/depot/keyed").collect()
    assert {NASTY, "new"} <= set(keyed.asDict().values())


def test_nothing_of_the_host_is_in_the_lake(made: Made) -> None:
    """Schemas, comments, properties, statistics, lineage: whatever is text on disk."""
    path = os.environ["PATH"].encode()
    files = [file for file in made.depot.folder.rglob("*") if file.is_file()]
    assert [] == [file for file in files if path in file.read_bytes()]
    logs = b"".join(file.read_bytes() for file in files if file.parent.name == "_delta_log")
    assert REFERENCES.encode() in logs
    assert not find_spec("openlineage") or (made.depot.folder / "events.jsonl").stat().st_size


def test_no_output_drives_a_terminal(made: Made) -> None:
    """One statement in a source would clear the operator's screen, or put a command into the clipboard."""
    for words, done in made.seen:
        shown = done.stdout + done.stderr
        assert isinstance(done.exception, SystemExit | None), (words, done.exception)
        refused = words[0] == "sql" and "\0" in words[-1]  # which DuckDB takes for the end of the query
        assert done.exit_code in ({2} if refused else {0, 1}), (words, shown)
        assert shown, words
        assert set() == set(shown) & UNSEEN, words
        assert os.environ["PATH"] not in shown, words


def test_json_is_json(made: Made) -> None:
    """A consumer would break, or read something else than the source said."""
    texts = set()
    for words, done in made.seen:
        if "json" in words and done.exit_code == 0:
            texts |= set(_texts(json.loads(done.stdout)))
    assert NASTY in texts


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in _texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    return [value] if isinstance(value, str) else []


def test_the_report_shows_text_and_runs_nothing(made: Made) -> None:
    """A cell's text would run in the browser of whoever looks at the report."""
    assert made.pages
    for page in made.pages:
        assert os.environ["PATH"] not in page
        assert "<script>alert" not in page
        assert "<img src=x" not in page
        assert set() == set(page) & (UNSEEN - {"\r"})
        assert not re.search(r"""(href|src)\s*=\s*["']?\s*(http|javascript)""", page, re.IGNORECASE)


def test_nothing_is_written_outside_the_lake(made: Made) -> None:
    """A table name with dots and slashes would lead out of the lake."""
    entries = {path.name for path in made.depot.folder.iterdir()} - {"events.jsonl", "page.html"}
    assert {"depot.yaml", "lake"} == {name for name in entries if not name.startswith("bins-")}
    assert {"mirrors"} <= {path.name for path in Path(made.depot.pipeline.lake).iterdir()}
