"""plan without a lake: what it names, what it refuses to touch, and that it starts nothing."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

from ingest.bronze import kafka_settings, native_broker
from ingest.bronze.offsets import Cluster, Place
from ingest.cli.app import app
from ingest.cli.plan_verb import _table
from ingest.cli.run_verbs import describe
from ingest.config import TableRule, load
from ingest.errors import SetupError
from ingest.inspect.status import status
from ingest.operate import dry_run
from ingest.result import STAGES
from ingest.run import run
from ingest.silver.preview import decode
from ingest.tables.tables import LakeReader
from tests.cli.planning import FILES, HEAD, KAFKA, planned, runner
from tests.lakes import FORMAT, Depot, change, statement, touch
from tests.shops import Shops
from tests.unstarted import unstarted

pytestmark = pytest.mark.usefixtures("no_session")


def test_it_names_tables_with_keys_and_columns(folder):
    """The first look at a new source must show what the lake will hold."""
    found = planned(folder)
    tables = {one["table"]: one for one in found["tables"]}
    assert {"depot.bins": "create", "depot.shelves": "create"} == {
        name: one["action"] for name, one in tables.items()
    }
    assert (["id"], 2, True) == tuple(
        tables["depot.bins"][name] for name in ("keys", "changes", "from_a_sample")
    )
    assert [("id", "BIGINT"), ("word", "STRING"), ("tall", "INT")] == [
        (one["name"], one["type"]) for one in tables["depot.bins"]["columns"]
    ]


def test_it_says_how_many_bytes_and_which_batch(folder):
    """The plan of a first load must say how much it is."""
    found = planned(folder)
    (source,) = found["sources"]
    size = (folder / "bins-1.jsonl").stat().st_size
    assert [{"file": str(folder / "bins-1.jsonl"), "start": 0, "end": size, "bytes": size}] == source["reads"]
    assert (1, False) == (found["next_batch"], found["lake_exists"])
    assert (5, 1) == (source["sampled"], source["rejected"])
    assert "1 of 5 sampled messages would be rejected" in source["warnings"][0]


def test_it_writes_nothing(folder):
    """A plan that makes the lake's folder has begun the run."""
    before = sorted(folder.rglob("*"))
    planned(folder)
    assert [*before, folder / "depot.yaml"] == sorted(folder.rglob("*"))


def test_a_statement_is_listed_after_the_run(folder):
    """The command that a plan named for it found no lake."""
    with (folder / "bins-1.jsonl").open("a") as feed:
        feed.write(statement("bins", 9, "ALTER TABLE bins TRUNCATE PARTITION p0"))
    touch(folder / "bins-1.jsonl")
    [held] = planned(folder, code=1)["problems"]
    assert held.endswith(
        f"There is no lake yet: `ingest ddl {folder}/depot.yaml` has the statement after the run."
    )


def test_a_table_without_key_would_be_held(folder):
    """The run would end with 1: better to know before."""
    with (folder / "bins-1.jsonl").open("a") as feed:
        feed.write(change("INSERT", "visits", 9, {"word": "x"}, pkNames=None))
    touch(folder / "bins-1.jsonl")
    found = planned(folder, code=1)
    (held,) = [one for one in found["tables"] if one["action"] == "hold"]
    assert ("depot.visits", 1) == (held["table"], held["changes"])
    assert "write `keys: [...]`" in held["why"]
    assert ["depot.visits would be held: " + held["why"]] == found["problems"]
    ruled = planned(folder, FILES, "tables:\n  - {match: depot.visits, no_key: append}\n")
    assert "create" == next(one["action"] for one in ruled["tables"] if one["table"] == "depot.visits")


def test_nothing_to_read_is_said(tmp_path):
    """Silence could also mean that nothing was looked at."""
    found = planned(tmp_path)
    assert (None, []) == (found["next_batch"], found["tables"])
    assert "matches no file yet" in found["sources"][0]["warnings"][0]
    assert "nothing new to read" in runner.invoke(app, ["plan", str(tmp_path / "depot.yaml")]).stdout


def test_a_mirror_whose_folder_is_gone_is_a_problem_of_the_plan_as_of_the_run(tmp_path):
    """The plan had nothing to say, and the run with nothing to read ended with 1."""
    shops = Shops(tmp_path, TableRule("*")).say(1, "INSERT", 1, "a")
    assert "done" == shops.run()[0]
    assert [] == dry_run.foresee(shops.pipeline, None, 0)["problems"]
    shutil.rmtree(tmp_path / "lake/mirrors/shop_1/item")
    problems = dry_run.foresee(shops.pipeline, None, 0)["problems"]
    shops.run()
    assert 1 == len(problems)
    assert shops.result.failures == problems


def test_a_broker_that_is_away_is_a_problem_and_costs_no_session(folder):
    """Half a minute of Spark's start would go before the answer that a socket gives at once."""
    found = planned(folder, FILES + KAFKA, code=1)
    assert "127.0.0.1:9 does not answer" in found["problems"][0]
    assert "source far: " in found["problems"][0]
    assert 2 == len(found["tables"])


def test_a_registry_that_is_away_is_reported_and_its_messages_are_not_called_broken(tmp_path, monkeypatch):
    """Every message of the source would look rejected; and the registry is asked once, not for each."""
    asked = []
    monkeypatch.setattr(
        "ingest.decoding.schema_registry._get", lambda url, *_: asked.append(url) or _refuse(url)
    )
    file = tmp_path / "depot.yaml"
    source = KAFKA.replace(FORMAT, "debezium-avro").replace("]}", "], registry: 'http://r:8081'}")
    file.write_text(HEAD + source, "utf-8")
    framed = b"\x00\x00\x00\x00\x07rest"
    found = decode(load(file), [(1, "far", "bins", 0, n, None, framed, None) for n in range(3)])
    assert ({"far": "http://r:8081 is away"}, [], 1) == (found.faults, found.rejects, len(asked))


def _refuse(url):
    raise SetupError(f"{url} is away")


def test_every_file_has_its_share_of_the_sample(folder):
    """A table whose messages lie in the last file only would not be named."""
    many = "".join(change("INSERT", "bins", n, {"id": str(n), "word": "x"}) for n in range(500))
    (folder / "bins-1.jsonl").write_text(many, "utf-8")
    (folder / "bins-2.jsonl").write_text(change("INSERT", "late", 900, {"id": "1", "word": "x"}), "utf-8")
    for path in folder.glob("bins-*"):
        touch(path)
    found = planned(folder, FILES, "", "--sample", "50")
    assert ["depot.bins", "depot.late"] == [one["table"] for one in found["tables"]]
    assert 26 == found["sources"][0]["sampled"]


def test_without_a_sample_no_table_is_named(folder):
    """Messages must stay unread where that is wanted."""
    found = planned(folder, FILES, "", "--sample", "0")
    assert ([], 0) == (found["tables"], found["sources"][0]["sampled"])
    assert found["next_batch"] == 1


def test_the_table_shows_the_same(folder):
    """The table is what most users read."""
    planned(folder)
    done = runner.invoke(app, ["plan", str(folder / "depot.yaml")])
    assert 0 == done.exit_code
    assert "which does not exist yet" in done.stdout
    assert "id BIGINT, word STRING, tall INT" in done.stdout
    assert "from a sample of at most 200 messages" in done.stdout
    assert "would be rejected" in done.stderr


def test_a_bad_file_is_exit_2(tmp_path):
    """Nothing was planned."""
    assert 2 == runner.invoke(app, ["plan", str(tmp_path / "none.yaml")]).exit_code


def test_a_key_that_only_a_snapshot_names_is_the_plans_and_the_runs(tmp_path):
    """A plan that says create where the run holds the table is worse than none."""
    for part in Path("tests/scenarios/keys_from_snapshot").glob("part-*.jsonl"):
        (tmp_path / part.name).write_bytes(part.read_bytes())
        touch(tmp_path / part.name)
    text = "  - {name: keys_from_snapshot, kind: files, path: ./part-*.jsonl, format: debezium}\n"
    (table,) = planned(tmp_path, text)["tables"]
    assert ("create", ["id"]) == (table["action"], table["keys"])
    (tmp_path / "part-1.jsonl").write_text(
        "\n".join((tmp_path / "part-1.jsonl").read_text().splitlines()[2:]) + "\n"
    )
    (tmp_path / "part-3.jsonl").unlink()
    touch(tmp_path / "part-1.jsonl")
    (held,) = planned(tmp_path, text, code=1)["tables"]
    assert "hold" == held["action"]


def test_a_changed_key_is_foreseen(tmp_path):
    """Each change has the key of its time; a table of old states cannot follow, and the plan says so before the run."""
    for part in Path("tests/scenarios/pk_extended").glob("part-*.jsonl"):
        (tmp_path / part.name).write_bytes(part.read_bytes())
        touch(tmp_path / part.name)
    text = "  - {name: pk_extended, kind: files, path: ./part-*.jsonl, format: dts-canal}\n"
    (table,) = planned(tmp_path, text)["tables"]
    assert ("create", ["id", "day"]) == (table["action"], table["keys"])
    more = "tables:\n  - {match: '*', history: true}\n"
    (held,) = planned(tmp_path, text, more, code=1)["tables"]
    assert "write `history: false`" in held["why"]


@pytest.mark.parametrize(
    ("rule", "action", "added", "why"),
    [
        ("where: word > 'a'", "change", [], "it is folded again from its first change"),
        (
            "columns: {loud: {compute: upper(word)}}",
            "change",
            ["loud"],
            "it is folded again from its first change",
        ),
        (
            "columns: {loud: {compute: upper(wrod)}}",
            "hold",
            [],
            "depot.yaml:7:35 columns: loud needs the column wrod of depot.bins",
        ),
        ("where: wrod > 'a'", "hold", [], "where: needs the column wrod of depot.bins"),
        (
            "columns: {word: {rename: id}}",
            "hold",
            [],
            "depot.yaml:7:35 renames word to id, which is the name of another column",
        ),
        ("columns: {id: exclude}", "hold", [], "id"),
    ],
)
def test_another_rule_of_an_existing_mirror_is_judged(tmp_path, rule, action, added, why):
    """A rule that the next run would hold the mirror for must not look like one that it would follow.

    The mirror's own last batch is older than that of the lake.
    """
    for number, table in enumerate(("bins", "bins", "shelves"), 1):
        feed = tmp_path / f"bins-{number}.jsonl"
        feed.write_text(change("INSERT", table, number, {"id": str(number), "word": "a"}), "utf-8")
        touch(feed)
        file = tmp_path / "depot.yaml"
        file.write_text(HEAD + FILES, "utf-8")
        done = runner.invoke(app, ["run", str(file), "--stage", "bronze,silver,gold"])
        assert 0 == done.exit_code, done.output
    assert [] == planned(tmp_path)["tables"]
    more = f"tables:\n  - {{match: depot.bins, {rule}}}\n"
    (found,) = planned(tmp_path, more=more, code=int(action == "hold"))["tables"]
    assert ("depot.bins", action, 0) == (found["table"], found["action"], found["changes"])
    assert why in found["why"]
    assert added == [one["name"] for one in found["added"]]


def read_rows(folder: Path, source: str, table: str) -> None:
    """A chunk of rows that waits, a broken message, and the end mark."""
    here = folder / "lake" / "snapshots" / source / f"depot.{table}-1"
    here.mkdir(parents=True)
    head = {
        "ingest-snapshot": 1, "op": "read", "table": ["depot", None, table], "keys": ["id"],
        "place": {"phase": "0", "sequence": ["1"], "half": "3", "arrival": ["0", "1", "1", "1", "0"]},
    }  # fmt: skip
    rows = head | {"types": {"id": "int32", "size": "int64"}, "rows": [["1", "8"], ["2", None]]}
    (here / "chunk-000001.ingest-snapshot.jsonl").write_text(json.dumps(rows) + "\n{}\n", "utf-8")
    (here / "end.ingest-snapshot.jsonl").write_text(json.dumps(head | {"op": "end"}) + "\n", "utf-8")


@pytest.mark.parametrize("source", ["bins", "far"])
def test_rows_that_were_read_and_wait_are_planned(folder, monkeypatch, source):
    """`run` lands them: a plan without them shows neither their tables nor that there is anything to do."""
    monkeypatch.setattr(kafka_settings, "find_spec", lambda _name: "there")
    monkeypatch.setattr(dry_run, "unreachable", lambda _servers: "")
    monkeypatch.setattr(native_broker, "connected", quiet_cluster)
    read_rows(folder, source, "racks")
    read_rows(folder, source, "carts")
    (folder / "bins-1.jsonl").unlink()
    found = planned(folder, FILES if source == "bins" else KAFKA)
    own, read = found["sources"]
    assert (FORMAT, source, "ingest-snapshot", True) == (
        own["format"],
        *map(read.get, ("source", "format", "due")),
    )
    assert ["carts-1/chunk", "carts-1/end", "racks-1/chunk", "racks-1/end"] == sorted(
        one["file"].partition("depot.")[2].partition("-000")[0].partition(".ing")[0] for one in read["reads"]
    )
    assert (0, 0, 4, 2) == (own["sampled"], own["rejected"], read["sampled"], read["rejected"])
    assert 1 == found["next_batch"]
    assert {"depot.carts": ["id", "size"], "depot.racks": ["id", "size"]} == {
        one["table"]: [each["name"] for each in one["columns"]] for one in found["tables"]
    }


@contextmanager
def quiet_cluster(_source):
    """A cluster whose topic holds nothing."""
    ends = {Place("bins", 0): 0}
    yield Cluster("c1", {"bins": "t1"}, ends, ends, lambda _moment: ends)


@contextmanager
def cluster(_source):
    """A cluster of one topic of two partitions."""
    ends = {Place("bins", 0): 2, Place("bins", 1): 5}
    yield Cluster("c1", {"bins": "t1"}, dict.fromkeys(ends, 0), ends, lambda _moment: ends)


def test_a_topic_is_planned_without_java(folder, monkeypatch):
    """With librdkafka nothing is started: offsets and a sample come within a second."""
    texts = [change("INSERT", "bins", n, {"id": str(n), "word": "x"}) for n in range(2)]
    rows = [("bins", 0, n, None, text.encode(), None) for n, text in enumerate(texts)]
    monkeypatch.setattr(kafka_settings, "find_spec", lambda _name: "there")
    monkeypatch.setattr(dry_run, "unreachable", lambda _servers: "")
    monkeypatch.setattr(native_broker, "connected", cluster)
    monkeypatch.setattr(native_broker, "first_messages", lambda _source, _spans, count: iter(rows[:count]))
    found = planned(folder, KAFKA)
    (source,) = found["sources"]
    assert [("bins", 0, 0, 2), ("bins", 1, 0, 5)] == [
        (one["topic"], one["partition"], one["start"], one["end"]) for one in source["reads"]
    ]
    assert (7, 2, 1) == (source["messages"], source["sampled"], found["next_batch"])
    assert [("depot.bins", "create")] == [(one["table"], one["action"]) for one in found["tables"]]


def test_a_cluster_that_refuses_is_a_problem(folder, monkeypatch):
    """Exit 1 and one sentence: the run would fail in the same way."""

    @contextmanager
    def refusing(source):
        raise kafka_settings.refused(source, "Authentication failed")
        yield

    monkeypatch.setattr(kafka_settings, "find_spec", lambda _name: "there")
    monkeypatch.setattr(dry_run, "unreachable", lambda _servers: "")
    monkeypatch.setattr(native_broker, "connected", refusing)
    found = planned(folder, KAFKA, code=1)
    [text] = found["problems"]
    assert (
        "the brokers 127.0.0.1:9 cannot be asked (Authentication failed): nothing of this source was read"
        in text
    )


def test_without_the_client_java_is_asked_with_a_reason(folder, monkeypatch):
    """The sentence says what would spare the wait."""
    monkeypatch.setattr(kafka_settings, "find_spec", lambda _name: None)
    monkeypatch.setattr(dry_run, "unreachable", lambda _servers: "")
    file = folder / "depot.yaml"
    file.write_text(HEAD + KAFKA, "utf-8")
    assert "pip install 'ingest[kafka]'" in dry_run.why_spark(load(file))


def test_it_says_what_becomes_of_files(folder):
    """The effect of `rewrite_budget` must be shown before the run, and after it."""
    (folder / "bins-0.jsonl").write_text(change("INSERT", "bins", 0, {"id": "2", "word": "a"}), "utf-8")
    touch(folder / "bins-0.jsonl")
    assert "by Arrow" == said_of(folder, "bins")
    again(folder)
    (before,) = (one for one in looked(folder) if one["table"] == "depot.bins")
    size = before["bytes"]
    assert size > 0
    assert (size, 0) == (before["rewritten_bytes"], before["marked_files"])
    (folder / "bins-2.jsonl").write_text(change("UPDATE", "bins", 12, {"id": "1", "word": "d"}), "utf-8")
    touch(folder / "bins-2.jsonl")
    assert f"by Arrow, which may rewrite its files of {shown(size)} (at most 4.2 MB)" == said_of(
        folder, "bins"
    )
    little = "rewrite_budget: 1B\n"
    assert (
        f"by Arrow, with deletion vectors: its files of {shown(size)} are more than the 1 B that may be rewritten"
        == said_of(folder, "bins", little)
    )
    (planned_,) = (one for one in planned(folder, FILES, little)["tables"] if one["table"] == "depot.bins")
    assert (True, size, 1) == tuple(
        planned_[name] for name in ("deletion_vectors", "bytes", "rewrite_budget")
    )
    again(folder)
    (after,) = (one for one in looked(folder) if one["table"] == "depot.bins")
    assert 1 == after["marked_files"]
    assert 0 < after["rewritten_bytes"] < after["bytes"] == size + after["rewritten_bytes"]


def test_it_says_whether_a_statement_is_a_pass_over_the_rows(folder):
    """The fold of a long history takes hours, a pass over the rows minutes: nobody could know before."""

    def say(at, sql):
        (folder / f"bins-{at}.jsonl").write_text(statement("bins", at, sql), "utf-8")
        touch(folder / f"bins-{at}.jsonl")

    said_of(folder, "bins")
    again(folder)
    say(60, "ALTER TABLE bins ADD COLUMN load INT DEFAULT 5")
    little = "rewrite_budget: 1B\n"
    assert "writes its files of" in said_of(folder, "bins", little)
    (found,) = (one for one in planned(folder, FILES, little)["tables"] if one["table"] == "depot.bins")
    assert (True, "", "") == (found["file_by_file"], found["why_folded_again"], found["why_merge"])
    say(61, "TRUNCATE TABLE bins")
    said = said_of(folder, "bins")
    assert said.endswith("all its changes are folded again, because the same batch empties it")
    told = []
    result = run(unstarted(2), load(folder / "depot.yaml"), STAGES[:3], tell=lambda *said: told.append(said))
    (ran,) = (one for one in describe(result)["mirrors"] if one["table"] == "depot.bins")
    assert "the same batch empties it" == ran["why_folded_again"]
    assert any("whole history, because the same batch empties it" in step for _, step in told)


def said_of(folder, table, more=""):
    """Why, as plan prints it."""
    (folder / "depot.yaml").write_text(HEAD + FILES + more, "utf-8")
    (one,) = (one for one in planned(folder, FILES, more)["tables"] if one["table"] == f"depot.{table}")
    return _table(one)[-1]


def again(folder):
    """Run the pipeline as its file is now."""
    spark = unstarted(2)
    assert [] == run(spark, load(folder / "depot.yaml"), ("bronze", "silver", "gold")).failures


def looked(folder):
    """What status says of each mirror."""
    return status(LakeReader(load(folder / "depot.yaml")))["tables"]


def shown(size):
    return f"{size / 1000:.1f} KB" if size >= 1000 else f"{size} B"


@pytest.mark.parametrize("engine", ["spark", "auto"])
def test_a_plan_says_where_each_stage_would_be_done(tmp_path: Path, engine: str) -> None:
    """A run would start Java, or leave a cluster idle, and nobody could know before."""
    depot = Depot(tmp_path, f"engine: {engine}\n")
    depot.grow()
    [found] = json.loads(runner.invoke(app, ["plan", str(depot.file), "--output", "json"]).stdout)
    where = "spark" if engine == "spark" else "driver"
    assert dict.fromkeys(("bronze", "silver", "gold", "quality"), where) == found["stages"]
    shown = runner.invoke(app, ["plan", str(depot.file)]).stdout
    said = "Spark" if engine == "spark" else "the driver"
    assert f"(engine: {engine}): bronze: {said}; silver: {said}; gold: {said}; quality: {said}." in shown
