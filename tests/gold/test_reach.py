"""Statements that change other tables than the one that they name: measured on PostgreSQL 15, followed in the mirrors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ingest.change import TableId
from ingest.config.entries import Database
from ingest.ddl import Effect
from ingest.errors import command
from ingest.gold import approval
from ingest.ledgers.logged_statements import Statement
from ingest.ledgers.reach import Reach
from ingest.operate.dry_run import foresee
from tests.schemas import Schemas

if TYPE_CHECKING:
    from pathlib import Path


def test_a_renamed_label_is_renamed_in_the_rows(tmp_path: Path) -> None:
    """The old rows kept the old label, and nothing said so."""
    said = Schemas(tmp_path).ddl("CREATE TYPE s.mood AS ENUM ('sad', 'ok')", "s.t")
    said.ddl("CREATE TABLE s.t (id int PRIMARY KEY, v s.mood, note text)", "s.t")
    said.row("s.t", id=1, v="sad", note="sad").row("s.t", id=2, v="ok", note="-").run()
    said.ddl("ALTER TYPE s.mood RENAME VALUE 'sad' TO 'unhappy'", "s.t")
    assert {"s.t": "done"} == said.row("s.t", id=3, v="unhappy", note="n").run()
    assert [(1, "unhappy", "sad"), (2, "ok", "-"), (3, "unhappy", "n")] == said.rows("s.t")


def test_a_renamed_label_of_columns_that_nothing_has_declared(tmp_path: Path) -> None:
    """Without a CREATE TABLE any text may be of the type: the statement must ask, and not be left out of the list."""
    said = Schemas(tmp_path, types={"n": "LONG"})
    said.row("s.t", id=1, v="sad").row("s.numbers", id=1, n=4).run()
    said.ddl("ALTER TYPE s.mood RENAME VALUE 'sad' TO 'unhappy'", "s.t").run()
    assert {("s.t", "noticed")} == said.states()


def test_a_label_of_a_type_under_its_new_name(tmp_path: Path) -> None:
    """A type that is renamed and moved keeps its columns."""
    said = Schemas(tmp_path).ddl("CREATE TYPE public.mood AS ENUM ('sad')", "s.t")
    said.ddl("CREATE TABLE s.t (id int PRIMARY KEY, v mood, w mood[])", "s.t")
    said.row("s.t", id=1, v="sad", w="{sad}").run()
    said.ddl("ALTER TYPE public.mood RENAME TO m", "s.t").ddl("ALTER TYPE public.m SET SCHEMA s", "s.t")
    said.ddl("ALTER TYPE s.m RENAME VALUE 'sad' TO 'low'", "s.t").run()
    assert [(1, "low", None)] == said.rows("s.t"), "what an array's text becomes is not known"
    assert ("s.t", "partly") in said.states()


def test_a_renamed_schema_renames_its_tables(tmp_path: Path) -> None:
    """A new mirror began with the rows since then only, and the old one was called up to date."""
    said = Schemas(tmp_path).row("s.t", id=1, v="a").row("o.t", id=1, v="x")
    said.run()
    states = said.ddl("ALTER SCHEMA s RENAME TO s2", "s.t").row("s2.t", id=2, v="b").row("o.t", id=2).run()
    assert ("held", "done") == (states["s2.t"], states["o.t"])


FAMILY = (
    "CREATE TABLE s.a (id int PRIMARY KEY)",
    "CREATE TABLE s.b (id int PRIMARY KEY REFERENCES s.a)",
    "CREATE TABLE s.c (id int PRIMARY KEY, CONSTRAINT f FOREIGN KEY (id) REFERENCES s.b (id))",
    "CREATE TABLE s.d (id int PRIMARY KEY)",
)


def test_truncate_cascade_follows_foreign_keys(tmp_path: Path) -> None:
    """Only the named table was emptied."""
    said = Schemas(tmp_path)
    for text in FAMILY:
        said.ddl(text, "s.a")
    for name in "abcd":
        said.row(f"s.{name}", id=1)
    said.run()
    states = said.ddl("TRUNCATE TABLE s.a CASCADE", "s.a").row("s.b", id=2).run()
    assert {"s.a": "done", "s.b": "done", "s.c": "done"} == states
    rows = {name: said.rows(f"s.{name}") for name in "abcd"}
    assert {"a": [], "b": [(2,)], "c": [], "d": [(1,)]} == rows


def test_truncate_cascade_without_the_foreign_keys(tmp_path: Path) -> None:
    """A table whose CREATE was never sent may refer to the emptied one; one that says what it refers to does not."""
    said = Schemas(tmp_path).ddl("CREATE TABLE s.d (id int PRIMARY KEY)", "s.a")
    said.row("s.a", id=1).row("s.b", id=1).row("s.d", id=1).run()
    said.ddl("TRUNCATE TABLE s.a CASCADE", "s.a").run()
    assert {("s.a", "applied"), ("s.b", "noticed"), ("s.d", "applied")} == said.states()


def test_truncate_without_cascade_asks_nothing(tmp_path: Path) -> None:
    """A question at each TRUNCATE would be a false alarm."""
    said = Schemas(tmp_path).row("s.a", id=1).row("s.b", id=1)
    said.run()
    said.ddl("TRUNCATE TABLE s.a", "s.a").run()
    assert {("s.a", "applied")} == said.states()


def test_oracle_truncates_what_is_deleted_with_its_parent(tmp_path: Path) -> None:
    """TRUNCATE ... CASCADE of Oracle 12c follows the keys that say ON DELETE CASCADE (SQL Language Reference, TRUNCATE TABLE)."""
    said = Schemas(tmp_path, "oracle").ddl("CREATE TABLE A (ID NUMBER(9) PRIMARY KEY)", "S.A")
    said.ddl("CREATE TABLE B (ID NUMBER(9) PRIMARY KEY REFERENCES A ON DELETE CASCADE)", "S.A")
    said.row("S.A", ID="1").row("S.B", ID="1").run()
    said.ddl("TRUNCATE TABLE A CASCADE", "S.A").run()
    assert ([], []) == (said.rows("S.A"), said.rows("S.B"))


@pytest.mark.parametrize(("words", "left"), [("TRUNCATE s.root", []), ("TRUNCATE ONLY s.root", [(1,)])])
def test_truncate_of_a_parent(tmp_path: Path, words: str, left: list[tuple[int]]) -> None:
    """Rows of a partitioned table come under the names of its leaves, which kept them."""
    said = Schemas(tmp_path).ddl("CREATE TABLE s.root (id int PRIMARY KEY)", "s.root")
    said.ddl("CREATE TABLE s.leaf () INHERITS (s.root)", "s.root").row("s.root", id=1).row("s.leaf", id=1)
    said.run()
    said.ddl(words, "s.root").run()
    assert ([], left) == (said.rows("s.root"), said.rows("s.leaf"))


@pytest.mark.parametrize("family", ["PARTITION OF s.root FOR VALUES IN (1)", "(x int) INHERITS (s.root)"])
def test_columns_of_a_parent_are_those_of_its_children(tmp_path: Path, family: str) -> None:
    """Old rows of the leaves had NULL in a new column, and the old name of a renamed one."""
    said = Schemas(tmp_path, types={"n": "LONG"})
    said.ddl("CREATE TABLE s.root (id int PRIMARY KEY, v text)", "s.root")
    said.ddl(f"CREATE TABLE s.leaf {family}", "s.root").row("s.leaf", id=1, v="a").run()
    said.ddl("ALTER TABLE s.root ADD COLUMN n int DEFAULT 7, RENAME COLUMN v TO w", "s.root")
    said.row("s.leaf", id=2, w="b", n="8").run()
    [one, two] = said.ask("s.leaf", "SELECT w, n FROM {mirror} ORDER BY id")
    assert ([("w", "a"), ("n", 7)], [("w", "b"), ("n", 8)]) == ([*one.items()], [*two.items()])


def test_a_child_that_was_let_go_is_left_alone(tmp_path: Path) -> None:
    """After DETACH or NO INHERIT a table stands alone."""
    said = Schemas(tmp_path).ddl("CREATE TABLE s.root (id int PRIMARY KEY)", "s.root")
    said.ddl("CREATE TABLE s.leaf () INHERITS (s.root)", "s.root").row("s.leaf", id=1)
    said.ddl("ALTER TABLE s.leaf NO INHERIT s.root", "s.root").run()
    said.ddl("TRUNCATE s.root", "s.root").row("s.leaf", id=2).run()
    assert [(1,), (2,)] == said.rows("s.leaf")


ROOT = "CREATE TABLE s.root (id int PRIMARY KEY) PARTITION BY RANGE (id)"
P2 = "CREATE TABLE s.p2 (LIKE s.root INCLUDING ALL)"
ATTACH = "ALTER TABLE s.root ATTACH PARTITION s.p2 FOR VALUES FROM (10) TO (20)"


@pytest.mark.parametrize("brings", [False, True])
def test_an_attached_partition_brings_its_rows(tmp_path: Path, *, brings: bool) -> None:
    """Each new month of a partitioned table whose rows come under its own name held its mirror, although the table that
    becomes the partition was empty.
    """
    said = Schemas(tmp_path).ddl(ROOT, "s.root").row("s.root", id=1).ddl(P2, "s.p2")
    if brings:
        said.row("s.p2", id=12)
    said.run()
    said.ddl(ATTACH, "s.root").row("s.root", id=11).run("bronze")
    [planned] = [plan for plan in foresee(said.pipeline, None, 200)["tables"] if plan["table"] == "db.s.root"]
    assert brings == (planned["action"] == "hold")
    said.row("s.root", id=13).run()
    assert [(1,), *([] if brings else [(11,), (13,)])] == said.rows("s.root")
    assert brings == (("s.root", "held") in said.states())
    assert brings == (
        "then dismiss it, and let the source send the table's rows again" in said.message("s.root")
    )


@pytest.mark.parametrize(
    "made", [(P2, ATTACH), ("CREATE TABLE s.p2 PARTITION OF s.root FOR VALUES FROM (10) TO (20)",)]
)
def test_a_partition_that_comes_back_brings_its_rows(tmp_path: Path, made: tuple[str, ...]) -> None:
    """They came under the name of the other table, so that it had sent none of its own, and was taken for empty."""
    said = Schemas(tmp_path).ddl(ROOT, "s.root")
    for text in made:
        said.ddl(text, "s.root")
    said.row("s.root", id=1).row("s.root", id=11).run()
    assert [(1,), (11,)] == said.rows("s.root")
    said.ddl("ALTER TABLE s.root DETACH PARTITION s.p2", "s.root").run()
    assert "then dismiss it, and after the next run load the table again at the source" in said.message(
        "s.root"
    )
    [detached] = [entry.statement for entry in approval.listed(said.lake) if entry.state == "held"]
    approval.approve_or_dismiss(said.lake, detached.id, "dismiss", "repaired")
    said.ddl(ATTACH, "s.root").run()
    assert [ATTACH] == [entry.statement.text for entry in approval.listed(said.lake) if entry.state == "held"]


def test_a_partition_that_gets_another_name_takes_rows_along(tmp_path: Path) -> None:
    """It had sent no row under its own name, and the mirror of the new one began without them, and without a word."""
    said = Schemas(tmp_path).ddl(ROOT, "s.root").ddl(P2, "s.p2").ddl(ATTACH, "s.root").row("s.root", id=11)
    said.run()
    said.ddl("ALTER TABLE s.p2 RENAME TO old", "s.p2").row("s.old", id=12)
    assert "held" == said.run()["s.old"]
    assert (
        f"The rows of db.s.p2 cannot be carried over: no message shows what {ATTACH!r} did"
        in said.message("s.old")
    )


PART = "CREATE TABLE s.p2 PARTITION OF s.root FOR VALUES FROM (10) TO (20)"
DETACH = "ALTER TABLE s.root DETACH PARTITION s.p2"


def foreseen(said: Schemas, table: str, *stages: str) -> str:
    """What `ingest plan` says of a mirror, once the messages have landed, or are decoded, too."""
    said.run("bronze", *stages)
    plans = foresee(said.pipeline, None, 200)["tables"]
    return next((str(plan["action"]) for plan in plans if plan["table"] == f"db.{table}"), "")


@pytest.mark.one_of(2, "loaded")
@pytest.mark.parametrize("statement", [DETACH, "DROP TABLE s.p2", "TRUNCATE s.p2"])
@pytest.mark.parametrize("loaded", [False, True])
def test_a_partition_whose_rows_come_under_its_own_name(
    tmp_path: Path, statement: str, *, loaded: bool
) -> None:
    """publish_via_partition_root is off by default: the table's mirror has none of these rows, and each retired month held it.

    Only one that was loaded with them, by a tool that reads the whole table, is in question: not for this statement.
    """
    said = Schemas(tmp_path).ddl(ROOT, "s.root").ddl(PART, "s.p2").row("s.p2", id=11)
    if loaded:
        said.row("s.root", id=1)
    said.run()
    said.ddl(statement, "s.p2").ddl("CREATE TABLE IF NOT EXISTS s.p2 (id int PRIMARY KEY)", "s.p2")
    assert "hold" not in foreseen(said, "s.root") + foreseen(said, "s.p2")
    said.row("s.p2", id=12).run()
    assert [*([(11,)] if statement == DETACH else []), (12,)] == said.rows("s.p2")
    assert said.result is not None
    assert {"done"} == {mirror.state for mirror in said.result.mirrors}
    asks = [entry.statement.text for entry in approval.listed(said.lake) if entry.pending]
    assert asks == ([PART] if loaded else [])


@pytest.mark.one_of(2, "cut")
@pytest.mark.parametrize("made", [(PART,), (P2, ATTACH)])
@pytest.mark.parametrize("cut", [False, True])
def test_a_table_that_was_loaded_with_rows_of_its_partitions(
    tmp_path: Path, made: tuple[str, ...], *, cut: bool
) -> None:
    """Changes come under the partition's name: the loaded copy of its rows got none of them, without a word."""
    said = Schemas(tmp_path).ddl(ROOT, "s.root").row("s.root", id=1)
    for text in made:
        said.ddl(text, "s.root")
    if cut:
        said.run()
        assert not [entry for entry in approval.listed(said.lake) if entry.pending]
    said.row("s.p2", id=11).run()
    [entry] = [entry for entry in approval.listed(said.lake) if entry.pending]
    assert ("db.s.root", "noticed", made[-1]) == (entry.mirror, entry.state, entry.statement.text)
    assert "rows of its partition db.s.p2 come under that name" in str(entry.verdict.does)


CLEARED = {
    "emptied": (["TRUNCATE s.root", PART], []),
    "made again": (["DROP TABLE s.root", ROOT.replace("TABLE", "TABLE IF NOT EXISTS"), PART], []),
    "emptied as a partition's table": ([PART], ["TRUNCATE s.root"]),
}


@pytest.mark.parametrize("name", CLEARED)
def test_a_table_that_was_emptied_since_it_was_loaded(tmp_path: Path, name: str) -> None:
    """Its mirror holds no row of the partition, but the operator was asked about it."""
    before, after = CLEARED[name]
    said = Schemas(tmp_path).ddl(ROOT, "s.root").row("s.root", id=1)
    for text in before:
        said.ddl(text, "s.root")
    said.row("s.p2", id=11)
    for text in after:
        said.ddl(text, "s.root")
    said.row("s.p2", id=12).run()
    assert not [entry for entry in approval.listed(said.lake) if entry.pending]
    assert [] == said.rows("s.root")


OTHERS = {
    "loaded again": ["TRUNCATE s.root", PART, "row"],
    "by its name of later": [PART, "ALTER TABLE s.root RENAME TO r", ROOT, "TRUNCATE s.root"],
    "by its name of before": ["TRUNCATE s.root", "ALTER TABLE s.root RENAME TO r", ROOT, "row", PART],
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_loaded_table_that_was_not_emptied(tmp_path: Path, name: str) -> None:
    """Another table of its name was, or it was loaded again."""
    said = Schemas(tmp_path).ddl(ROOT, "s.root").row("s.root", id=1)
    for text in OTHERS[name]:
        said = said.row("s.root", id=2) if text == "row" else said.ddl(text, "s.root")
        if text == PART:
            said.row("s.p2", id=11)
    said.run()
    assert PART in [entry.statement.text for entry in approval.listed(said.lake) if entry.state == "noticed"]


@pytest.mark.parametrize("words", [DETACH, "DROP TABLE s.p2"])
def test_rows_of_a_table_that_was_a_partition_are_its_own(tmp_path: Path, words: str) -> None:
    """They say nothing of the table above, which had its rows under the own name."""
    said = Schemas(tmp_path).ddl(ROOT, "s.root").ddl(PART, "s.root").row("s.root", id=1).row("s.root", id=11)
    said.ddl(words, "s.root").ddl("CREATE TABLE IF NOT EXISTS s.p2 (id int PRIMARY KEY)", "s.p2").row(
        "s.p2", id=12
    ).run()
    asks = [entry for entry in approval.listed(said.lake) if entry.pending and entry.mirror == "db.s.root"]
    assert [words] == [entry.statement.text for entry in asks]


@pytest.mark.one_of(2, "stages")
@pytest.mark.parametrize("stages", [(), ("silver",)])
@pytest.mark.parametrize("statement", [DETACH, "DROP TABLE s.p2", "TRUNCATE s.p2"])
def test_a_partition_whose_rows_come_under_the_name_of_its_table(
    tmp_path: Path, statement: str, stages: tuple[str, ...]
) -> None:
    """publish_via_partition_root: rows that a DROP of the partition removes stayed in the table's mirror, without a word."""
    said = Schemas(tmp_path).ddl(ROOT, "s.root").ddl(PART, "s.p2").row("s.root", id=1).row("s.root", id=11)
    said.run()
    said.ddl(statement, "s.p2").row("s.root", id=2)
    assert "hold" == foreseen(said, "s.root", *stages)
    if stages:
        said.database = Database(url="postgresql://db:5432/db", user="reader")
    assert "held" == said.run()["s.root"]
    exact = command("reconcile", said.pipeline.file, "db.s.root", "--repair")
    way = f"make the mirror exact by `{exact}`" if stages else "load the table again at the source"
    assert f"then dismiss it, and after the next run {way}" in said.message("s.root")


def test_a_detached_partition_lacks_the_rows_that_came_under_the_other_name(tmp_path: Path) -> None:
    """Its mirror began with what came since, and was called up to date."""
    said = Schemas(tmp_path).ddl(ROOT, "s.root").ddl(P2, "s.p2").ddl(ATTACH, "s.p2").row("s.root", id=11)
    said.run()
    said.ddl(DETACH, "s.root").run()
    assert [("s.root", "held")] == [state for state in said.states() if state[1] == "held"]
    said.row("s.p2", id=12)
    assert "hold" == foreseen(said, "s.p2")
    assert "held" == said.run()["s.p2"]
    assert "let the source send the table's rows again" in said.message("s.p2")


def test_tables_above_a_partition_of_a_partition(tmp_path: Path) -> None:
    """With publish_via_partition_root rows come under the name of the topmost one."""
    said = Schemas(tmp_path).ddl(ROOT, "s.root").row("s.root", id=11)
    said.ddl(
        "CREATE TABLE s.mid PARTITION OF s.root FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (id)", "s.mid"
    )
    said.ddl("CREATE TABLE s.p2 PARTITION OF s.mid FOR VALUES FROM (10) TO (15)", "s.p2").run()
    assert "held" == said.ddl("ALTER TABLE s.mid DETACH PARTITION s.p2", "s.mid").run()["s.root"]


@pytest.mark.parametrize("later", [False, True])
def test_an_attached_partition_of_a_table_without_rows(tmp_path: Path, *, later: bool) -> None:
    """A mirror that has no row lacks none; as soon as rows come under the table's name, it lacks the partition's."""
    said = Schemas(tmp_path).ddl(P2, "s.p2").row("s.p2", id=11)
    said.run()
    said.ddl(ROOT, "s.root").ddl(ATTACH, "s.root").row("s.root" if later else "s.p2", id=12)
    assert later == (foreseen(said, "s.root") == "hold")
    states = said.run()
    assert later == ("held" in states.values())
    assert later == ("s.p2" in {mirror for mirror, state in said.states() if state == "noticed"})
    if not later:
        assert [(11,), (12,)] == said.rows("s.p2")
        assert not [entry for entry in approval.listed(said.lake) if entry.pending]


RENAMED = {
    "the table": (
        "ALTER TABLE s.t RENAME TO t_old",
        "CREATE TABLE s.t (id int PRIMARY KEY) PARTITION BY RANGE (id)",
    ),
    "both": (
        "CREATE TABLE s.n (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "ALTER TABLE s.t RENAME TO t_old",
        "ALTER TABLE s.n RENAME TO t",
    ),
}


@pytest.mark.one_of(2, "known")
@pytest.mark.parametrize("texts", RENAMED.values(), ids=RENAMED)
@pytest.mark.parametrize("known", [False, True])
def test_a_table_that_becomes_a_partition_of_one_by_its_name(
    tmp_path: Path, texts: tuple[str, ...], *, known: bool
) -> None:
    """PostgreSQL's way to partition a table: rows of before counted as those of the new one, which was held for its partitions."""
    said = Schemas(tmp_path)
    if known:
        said.ddl("CREATE TABLE s.t (id int PRIMARY KEY)", "s.t")
    said.row("s.t", id=1).row("s.t", id=2).run()
    for text in texts:
        said.ddl(text, "s.t")
    said.ddl("ALTER TABLE s.t ATTACH PARTITION s.t_old FOR VALUES FROM (0) TO (10)", "s.t")
    said.ddl("CREATE TABLE s.t_2 PARTITION OF s.t FOR VALUES FROM (10) TO (20)", "s.t_2")
    said.row("s.t_old", id=3).run()
    states = said.ddl("DROP TABLE s.t_2", "s.t_2").row("s.t_old", id=4).run()
    waiting = [entry.statement.text for entry in approval.listed(said.lake) if entry.pending]
    renaming = "ALTER TABLE s.t RENAME TO t_old"
    assert (True, [] if known else [renaming]) == (states.get("s.t") != "held", waiting)
    if known:  # else rows of before may be lacking, and its mirror waits
        assert [[], [(1,), (2,), (3,), (4,)]] == [said.rows("s.t"), said.rows("s.t_old")]


def test_a_table_with_rows_of_its_partitions_that_gets_another_name(tmp_path: Path) -> None:
    """Its rows came under the name before, and none under the new one so far."""
    said = Schemas(tmp_path).ddl(ROOT, "s.root").ddl(PART, "s.p2").row("s.root", id=11)
    said.run()
    said.ddl("ALTER TABLE s.root RENAME TO r", "s.root").ddl("DROP TABLE s.p2", "s.p2").row("s.r", id=1)
    assert "held" == said.run()["s.r"]


@pytest.mark.parametrize("sends", [False, True])
def test_partitions_are_asked_for_once(*, sends: bool) -> None:
    """Each of 300 dropped partitions read all rows of the table again, in each batch."""
    root, asked = TableId("db", "s", "root"), list[str]()

    def came(_table: TableId, low: str, high: str, *, surely: bool = False) -> bool:
        asked.append(high)
        return sends and not surely

    reach = Reach({root}, came=came)
    made = Statement("0", "s", root, 1, "0.0", "CREATE", "safe", (Effect("create_table", root),))
    assert [*made.effects] == [*reach.take(made)]
    for number in range(300):
        part = TableId("db", "s", f"p{number}")
        effects = Effect("inherit", part, to=root, note="partition-of"), Effect("drop_table", part)
        place = f"1.{number:03}"
        statement = Statement(place, "s", part, 1, place, "DROP", "safe", effects)
        held = [effect for effect in reach.take(statement) if effect.action == "truncate_partition"]
        assert sends == bool(held)
    assert ["~", "1.000"][: 1 + sends] == list(dict.fromkeys(asked))
    assert not sends or len(asked) == 2


def test_partitions_are_dropped_with_their_table(tmp_path: Path) -> None:
    """A leaf that is created again begins empty only if its DROP is known."""
    said = Schemas(tmp_path).ddl("CREATE TABLE s.root (id int PRIMARY KEY)", "s.root")
    said.ddl("CREATE TABLE s.leaf PARTITION OF s.root DEFAULT", "s.root").row("s.leaf", id=1).run()
    said.ddl("DROP TABLE s.root", "s.root").ddl(
        "CREATE TABLE IF NOT EXISTS s.leaf (id int PRIMARY KEY)", "s.leaf"
    )
    said.row("s.leaf", id=2).run()
    assert [(2,)] == said.rows("s.leaf")


def test_a_column_of_a_domain_has_its_default(tmp_path: Path) -> None:
    """The old rows had NULL: a type that the reader does not know passed for one without a default."""
    said = Schemas(tmp_path).ddl("CREATE DOMAIN s.pos AS int DEFAULT 5", "s.t").row("s.t", id=1)
    said.run()
    said.ddl("ALTER TABLE s.t ADD COLUMN b s.pos", "s.t").ddl("ALTER DOMAIN s.pos SET DEFAULT 6", "s.t")
    said.ddl("ALTER TABLE s.t ADD COLUMN c s.pos, ADD COLUMN d s.pos DEFAULT 7", "s.t").run()
    assert [(1, 5, 6, 7)] == said.rows("s.t")


def test_a_column_of_a_type_that_nothing_has_made(tmp_path: Path) -> None:
    """It may be a domain with a default; an enum that was created has none."""
    said = Schemas(tmp_path).ddl("CREATE TYPE s.mood AS ENUM ('sad')", "s.t").row("s.t", id=1)
    said.run()
    said.ddl("ALTER TABLE s.t ADD COLUMN b s.mood, ADD COLUMN x int", "s.t").run()
    assert {("s.t", "applied")} == said.states()
    said.ddl("ALTER TABLE s.t ADD COLUMN c s.other", "s.t").run()
    assert {("s.t", "applied"), ("s.t", "partly")} == said.states()


def test_a_dropped_type_takes_its_columns(tmp_path: Path) -> None:
    """DROP TYPE ... CASCADE drops columns; a column that comes later under such a name is another."""
    said = Schemas(tmp_path).ddl("CREATE TYPE s.mood AS ENUM ('sad')", "s.t")
    said.ddl("CREATE TABLE s.t (id int PRIMARY KEY, v s.mood)", "s.t").row("s.t", id=1, v="sad")
    said.run()
    said.ddl("DROP TYPE s.mood CASCADE", "s.t").ddl("ALTER TABLE s.t ADD COLUMN v text", "s.t")
    said.row("s.t", id=2, v="x").run()
    assert [(1, None), (2, "x")] == said.rows("s.t")


def test_an_unknown_statement_without_a_table_concerns_all_of_its_database(tmp_path: Path) -> None:
    """Such a statement was in no list, whatever it did."""
    said = Schemas(tmp_path).row("s.a", id=1).row("s.b", id=1)
    said.run()
    said.ddl("DO $$ BEGIN TRUNCATE s.a; END $$").run()
    assert {("s.a", "noticed"), ("s.b", "noticed")} == said.states()


GENERATED = [
    ("ALTER TABLE t MODIFY c DECIMAL(10,0)", None),
    ("ALTER TABLE t MODIFY c DECIMAL(20,2)", "2.50"),  # every value stays as it is
    ("ALTER TABLE t MODIFY c DECIMAL(10,2) COMMENT 'x'", "2.50"),
    ("ALTER TABLE t MODIFY other VARCHAR(1)", "2.50"),
    ("ALTER TABLE t CONVERT TO CHARACTER SET latin1", "2.50"),
]


@pytest.mark.parametrize(("statement", "kept"), GENERATED)
def test_generated_columns_follow_a_retyped_one(tmp_path: Path, statement: str, kept: str | None) -> None:
    """The server computes them again from the converted values; the mirror kept the old ones."""
    said = Schemas(tmp_path, "mysql", types={"c": "DECIMAL", "g": "DECIMAL"})
    said.ddl(
        "CREATE TABLE t (id int PRIMARY KEY, c decimal(10,2), g decimal(12,2) AS (c * 2) STORED, other varchar(9))",
        "t",
    )
    said.row("t", id=1, c="1.25", g="2.50", other="x").run()
    said.ddl(statement, "t").run()
    [row] = said.ask("t", "SELECT CAST(g AS VARCHAR) AS g FROM {mirror}")
    assert kept == row["g"]
    assert ("partly" if kept is None else "applied") in {state for _, state in said.states()}


def test_generated_columns_of_postgresql(tmp_path: Path) -> None:
    """SET EXPRESSION computes all rows again; ALTER TYPE does, too."""
    said = Schemas(tmp_path).ddl(
        "CREATE TABLE s.t (id int PRIMARY KEY, c numeric(6,2), g numeric GENERATED ALWAYS AS (c * 2) STORED)",
        "s.t",
    )
    said.row("s.t", id=1, c="1.25", g="2.50").run()
    said.ddl("ALTER TABLE s.t ALTER COLUMN c TYPE numeric(6,1)", "s.t").run()
    [row] = said.ask("s.t", "SELECT g FROM {mirror}")
    assert row["g"] is None
