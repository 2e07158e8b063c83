"""Rows erased from a whole lake: every byte of every file is searched for what was planted in them."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ingest.cli.app import app
from ingest.erase import late, plan, remove
from ingest.erase.search import search
from ingest.errors import IngestError
from ingest.gold import rebuild as folding
from ingest.inspect import status
from ingest.ledgers import decisions
from ingest.ledgers.feeds import replayed
from ingest.run import run
from ingest.silver import rebuild as decoding
from ingest.tables.lake import Lake
from tests.lakes import TYPES, Depot, change, counted, rows, touch

pytestmark = [pytest.mark.spark, pytest.mark.e2e]
WIDE = TYPES | {"price": "decimal(4,2)", "mail": "varchar"}
OLD, NEW = "774100001", "774100002"  # the row's first key, and the one that it has now
PLANTED = ("planted", OLD, NEW, "987.65", "hidden@example.org")
RULES = """\
mask_secret: a secret of sixteen characters
tables:
  - {match: depot.people, history: true, columns: {price: "decimal(4,2)"}, mask: {mail: hmac}}
"""


def person(key: str, word: str, price: str = "1.00", mail: str = "a@example.org") -> dict[str, str | None]:
    """A row."""
    return {"id": key, "word": word, "price": price, "mail": mail}


class People(Depot):
    """A lake of people, one of whom is to be erased."""

    def more(self, *lines: str) -> None:
        """Append lines, as a next slice."""
        with self.feed.open("a", encoding="utf-8") as file:
            file.writelines(lines)
        self.slices += 1
        touch(self.feed, 36_000 - self.slices)

    def send_again(self) -> None:
        """Deliver all messages a second time, in another file and in another order."""
        resent = self.folder / "bins-2.jsonl"
        lines = self.feed.read_text("utf-8").splitlines(keepends=True)
        resent.write_text("".join(reversed(lines)), "utf-8")
        touch(resent)

    def command(self, *arguments: str) -> Result:
        """Run `ingest erase` on the lake."""
        return CliRunner().invoke(app, ["erase", str(self.file), *arguments])


def said(kind: str, serial: int, *found: dict[str, str | None], **given: Any) -> str:
    """One message about people."""
    return change(kind, "people", serial, {}, data=list(found), mysqlType=WIDE, **given)


def planted(lake: Lake) -> set[str]:
    """The tables of a lake with files that contain something of the row."""
    found = search(Path(lake.path("")), PLANTED)
    assert [] == found.unread
    return {hit.file.partition("/")[0] for hit in found.hits}


def mirror(lake: Lake) -> list[tuple[Any, ...]]:
    """The rows of the mirror."""
    return sorted((row["id"], row["word"]) for row in rows(lake, "SELECT id, word FROM depot.people"))


STAY = [(1, "stays"), (2, "stays, too")]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> People:
    """A lake of two batches: the row has moved from one key to another one, and shared its messages."""
    made = People(tmp_path_factory.mktemp("people"), RULES)
    made.more(
        said("INSERT", 1, person("1", "stays"), person(OLD, "planted one"), person("2", "stays, too")),
        said("INSERT", 2, person("3", "soon gone")),
    )
    run(spark, made.pipeline)
    now = person(NEW, "planted two", "987.65", "hidden@example.org")
    made.more(
        said("UPDATE", 3, now, old=[{"id": OLD, "word": "planted one"}]),
        said("DELETE", 4, person("3", "soon gone")),
    )
    run(spark, made.pipeline)
    return made


@pytest.fixture
def depot(tmp_path: Path, first: People) -> People:
    """A copy of the lake and of its feed."""
    shutil.copytree(first.folder, tmp_path / "copy")
    made = People(tmp_path / "copy", RULES)
    made.slices = first.slices
    return made


def test_what_would_be_erased(spark: Any, depot: People) -> None:
    """A condition or a key that names other rows than meant is found out before, not afterwards."""
    lake = Lake(spark, depot.pipeline)
    assert [(NEW,)] == plan.keys_where(lake, "depot.people", "id > 5 AND word LIKE 'planted%'")
    for wrong, words in (
        ("id >", "--where"),
        ("nothing = 1", "cannot be evaluated"),
        ("word = ''; DROP", "--where"),
    ):
        with pytest.raises(IngestError, match=words):
            plan.keys_where(lake, "depot.people", wrong)
    with pytest.raises(IngestError, match="have a row with the key 5"):
        plan.plan(lake, "depot.people", [("5",)], "", now=False)
    done = depot.command("depot.people", "--where", "id > 5", "--dry-run", "--output", "json")
    expected = {
        "table": "depot.people", "rows": 1, "keys": 2, "changes": 2, "messages": 2, "also_from": [], "perhaps_also": [],
            "without_position": 0,
    }  # fmt: skip
    assert (0, expected) == (done.exit_code, json.loads(done.stdout))
    assert (
        depot.command("depot.people", "--where", "id > 99999999999", "--reason", "asked for").exit_code != 0
    )
    assert depot.command("depot.people", NEW).exit_code != 0


def test_an_erased_row_is_nowhere_and_stays_nowhere(spark: Any, depot: People) -> None:
    """One byte that is left, or one message that brings the row back, and the certificate is a lie."""
    lake = Lake(spark, depot.pipeline)
    alert = {
        "severity": "error",
        "text": f"depot.people: id = {NEW} is planted",
        "since": "2026",
        "sent": {},
        "state": "over",
    }
    decisions.append(lake, [decisions.Decision(decisions.ALERT, "depot.people: held", alert)])
    assert {"bronze", "changes", "mirrors", "histories", "decisions"} <= planted(lake)
    before = Counter({name: n or 0 for name, n in counted(lake).items()})
    given = ("depot.people", "--where", f"id = {NEW}", "--now", "--reason", "asked for", "--output", "json")
    done = depot.command(*given)
    assert 0 == done.exit_code, done.output
    certificate = json.loads(done.stdout)
    assert set() == planted(lake)
    lake = Lake(spark, depot.pipeline)
    assert STAY == mirror(lake)
    assert +before == +Counter({name: n or 0 for name, n in counted(lake).items()})
    assert 2 == certificate["removed"]["bronze"]["messages"]
    assert 2 == certificate["removed"]["changes"]["rows"]
    assert 1 == certificate["removed"]["decisions"]["alerts"]
    assert ["(erased)"] == [one.value["text"] for one in decisions.read(lake).of(decisions.ALERT)]
    assert (None, "depot.people", 1) == tuple(certificate[one] for one in ("readable_until", "table", "rows"))

    decoding.rebuild(lake, 2, dry_run=False)
    assert 2 == sum(row["erased"] for row in lake.ask("SELECT erased FROM {books}"))
    assert ["rebuilt"] == [one.state for one in folding.rebuild(lake, [], dry_run=False)]
    assert STAY == mirror(lake)
    depot.send_again()
    again = said("UPDATE", 2, person(OLD, "planted again"), old=[{"word": "planted one"}])
    depot.more(again, said("INSERT", 9, person(NEW, "another row")), said("INSERT", 10, person("9", "last")))
    result = run(spark, depot.pipeline)
    assert [] == result.failures
    assert [*STAY, (9, "last"), (int(NEW), "another row")] == mirror(lake)
    assert 2 + 3 == sum(row["erased"] for row in lake.ask("SELECT erased FROM {books}"))
    assert [3, 0] == [late.erase(Lake(spark, depot.pipeline)) for _ in range(2)]
    texts = [str(row["value"]) for row in lake.ask("SELECT value FROM {bronze}")]
    assert [] == [one for one in texts if "planted" in one]
    assert before["bronze"] + 4 + 3 == counted(lake)["bronze"]


def test_a_deleted_row_that_is_kept_is_erased_under_all_its_keys(spark: Any, tmp_path: Path) -> None:
    """Under the key that it left, a mirror that keeps deleted rows still has the whole row."""
    depot = People(tmp_path / "soft", "tables: [{match: depot.people, deletes: soft}]\n")
    depot.more(said("INSERT", 1, person("1", "stays"), person(OLD, "planted one"), person("5", "moves")))
    depot.more(
        said("UPDATE", 2, person(NEW, "planted two"), old=[{"id": OLD, "word": "planted one"}]),
        said("DELETE", 3, person(NEW, "planted two")),
        said("UPDATE", 4, person("6", "moves"), old=[{"id": "5"}]),
        said("INSERT", 5, person("5", "another row")),
    )
    run(spark, depot.pipeline)
    moved = [(1, "stays"), (5, "another row"), (6, "moves")]
    assert [*moved, (int(OLD), "planted one"), (int(NEW), "planted two")] == mirror(
        Lake(spark, depot.pipeline)
    )
    done = depot.command("depot.people", NEW, "--now", "--reason", "asked for")
    assert 0 == done.exit_code, done.output
    assert set() == planted(Lake(spark, depot.pipeline))
    assert moved == mirror(Lake(spark, depot.pipeline))
    with pytest.raises(IngestError, match="take `deletes: soft` out of the pipeline file"):
        plan.plan(Lake(spark, depot.pipeline), "depot.people", [("6",)], "", now=False)


@pytest.mark.slow
def test_a_change_feed_forgets_an_erased_row(spark: Any, tmp_path: Path) -> None:
    """The feed has the row, each of its states, and would get it once more as deleted; then it goes on."""
    depot = People(tmp_path / "fed", "tables: [{match: depot.people, changes_of: true}]\n")
    depot.more(said("INSERT", 1, person("1", "stays"), person(OLD, "planted one")))
    run(spark, depot.pipeline)
    depot.more(said("UPDATE", 2, person(NEW, "planted two"), old=[{"id": OLD, "word": "planted one"}]))
    run(spark, depot.pipeline)
    assert "feeds" in planted(Lake(spark, depot.pipeline))
    done = depot.command("depot.people", NEW, "--now", "--reason", "asked for")
    assert 0 == done.exit_code, done.output
    assert set() == planted(Lake(spark, depot.pipeline))
    depot.more(said("INSERT", 3, person("9", "last")))
    assert [] == run(spark, depot.pipeline).failures
    changes = rows(Lake(spark, depot.pipeline), "SELECT * FROM depot.people__changes ORDER BY number")
    assert {"1", "9"} == {row["id"] for row in replayed(changes)}


def test_an_erasure_that_was_killed_is_completed(
    spark: Any, depot: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that is half erased is not erased, and the operator must be warned."""
    lake = Lake(spark, depot.pipeline)

    def killed(*_given: object) -> dict[str, int]:
        raise KeyboardInterrupt

    begun = plan.plan(lake, "depot.people", [(OLD,)], "asked for", now=False)
    for step in ("messages", "_rows", "_changes"):
        with monkeypatch.context() as patch:
            patch.setattr(remove.Removal, step, killed)
            with pytest.raises(KeyboardInterrupt):
                remove.erase(lake, begun)
        begun = plan.unfinished(lake) or begun
        [found] = [one for one in status.status(lake)["causes"] if "erasure" in one["cause"]]
        assert found["command"].endswith("--resume")
    with pytest.raises(IngestError, match="--resume"):
        plan.refuse(lake)
    done = depot.command("--resume", "--output", "json")
    assert 0 == done.exit_code, done.output
    assert json.loads(done.stdout)["readable_until"] is not None
    lake = Lake(spark, depot.pipeline)
    assert STAY == mirror(lake)
    assert [] == [one for one in status.status(lake)["causes"] if "erasure" in one["cause"]]
    texts = [str(row) for name in ("bronze", "changes") for row in rows(lake, f"SELECT * FROM {name}")]
    assert [] == [one for one in texts if "planted one" in one or "planted two" in one]
    assert 2 == depot.command("--resume").exit_code
