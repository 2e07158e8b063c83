"""The pages: they say what the verbs say, the worst first, and every one is well-formed."""

from __future__ import annotations

import datetime as dt
import html
import json
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from typer.testing import CliRunner

from ingest import config
from ingest.cli.app import app
from ingest.serve import fleet, pages
from tests.lakes import change
from tests.quality.test_report import Reader
from tests.serve.conftest import Client, client_of, depot
from tests.written_lake import WrittenLake

PAGES = {
    "fleet": "/",
    "pipeline": "/pipeline?pipeline=depot",
    "table": "/table?pipeline=depot&table=depot.bins",
    "held table": "/table?pipeline=depot&table=depot.box",
    "row": "/row?pipeline=depot&table=depot.bins&key=2",
    "no row": "/row?pipeline=depot&table=depot.bins&key=99",
    "rejects": "/rejects?pipeline=depot",
    "rejects of a reason": "/rejects?pipeline=depot&kind=message&reason=bad-json&column=",
    "reject": "/reject?pipeline=depot&number=1",
    "ddl": "/ddl?pipeline=depot",
    "sql": "/sql?pipeline=depot",
    "query": "/sql?pipeline=depot&q=SELECT+*+FROM+depot.bins",
}


def words(text: str) -> str:
    """A page's text without its tags, blanks as one."""
    main = text[text.index("<main") : text.index("</main>")]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", main))


@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_whole_and_loads_only_from_here(client: Client, page: str) -> None:
    """A page with an open tag shows cells where they mean something else; a foreign address would learn who looks."""
    answer = client.get(PAGES[page])
    assert 200 == answer.code
    read = Reader(answer.text)
    assert [] == read.open
    places = [
        value
        for _, attributes in read.tags
        for name, value in attributes.items()
        if name in ("href", "src", "action")
    ]
    assert [] == [one for one in places if not re.match(r"/(?!/)|#", one or "")]
    assert [{"src": "/live.js", "defer": None}] == read.named("script")
    assert [] == [
        tag
        for tag, attributes in read.tags
        if "style" in attributes or any(name.startswith("on") for name in attributes)
    ]
    ids = [attributes["id"] for _, attributes in read.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("fleet", ["needs attention now", "1 held", "depot.box has no key", "ingest retry", "2 rows are missing|1 check failed"]),
        ("pipeline", ["depot.box is held", "depot.shelf0", "bronze", "row changes", "messages could not be decoded"]),
        ("table", ["No row is missing|2 rows are missing", "ADD COLUMN more", "id", "Last batches", "int64"]),
        ("held table", ["Held", "no_key: full_row"]),
        ("row", ["new 2", "old 3", "insert carries the row", "The mirror's row is what its messages say"]),
        ("no row", ["No message has named this key"]),
        ("rejects", ["2 rejects wait", "bad-json", "ingest replay"]),
        ("reject", ["{&#34;broken&#34;:", "bad-json", "ingest rejects dismiss"]),
        ("ddl", ["1 statement waits for a decision", "ADD COLUMN more INT", "ingest ddl approve"]),
        ("sql", ["depot.bins", "read-only"]),
        ("query", ["4 rows", "old 1"]),
    ],
)  # fmt: skip
def test_each_page_says_what_it_is_for(client: Client, page: str, expected: list[str]) -> None:
    """A page without the next step would send its reader to the terminal to find it."""
    text = words(client.get(PAGES[page]).text)
    assert [] == [
        one for one in expected if not any(word.replace("'", "&#39;") in text for word in one.split("|"))
    ], text


def test_the_api_answers_as_the_verbs_do(client: Client, lake: WrittenLake) -> None:
    """Scripts that move from the command to the service would read other values."""
    runner = CliRunner()
    for verb, address in {
        ("status",): "status?pipeline=depot", ("tables",): "tables?pipeline=depot", ("rejects",): "rejects?pipeline=depot",
        ("ddl",): "ddl?pipeline=depot", ("sql", "SELECT * FROM depot.bins"): "sql?pipeline=depot&q=SELECT+*+FROM+depot.bins",
        ("explain", "depot.bins", "2"): "explain?pipeline=depot&table=depot.bins&key=2",
    }.items():  # fmt: skip
        done = runner.invoke(app, [verb[0], str(lake.file), *verb[1:], "-o", "json"])
        assert int(verb == ("status",)) == done.exit_code, done.output  # something needs the operator
        answer = client.get(f"/api/{address}")
        assert "application/json" == answer.headers["content-type"]
        assert without_ages(json.loads(done.stdout)) == without_ages(answer.json), verb


def test_processor_time_is_shown_where_it_is_known(tmp_path: Path) -> None:
    """A zero for what Spark did would make the dearest tables look the cheapest."""
    made = WrittenLake(tmp_path)
    made.take([change("INSERT", "bins", 1, {"id": "1", "word": "w"})])
    client = client_of(made.file)
    address = "/table?pipeline=depot&table=depot.bins"
    assert "by Spark, not known per table" in client.get(address).text
    assert "not known of one" in client.get(address).text
    (table,) = client.get("/api/status?pipeline=depot").json["tables"]
    assert (0.5, None) == (table["seconds"], table["cpu_seconds"])
    row = {"run": "r2", "pipeline": "depot", "batch": 1, "stage": "gold", "subject": "depot.bins", "state": "done",
           "started_at": made.now, "seconds": 2.0, "counts": '{"cpu_ms": 1250}', "message": ""}  # fmt: skip
    made.product("runs", [row], complete=1, lagging=[])
    client = client_of(made.file)
    assert "by the 1 of them that Arrow folded" in client.get(address).text
    assert "<td>1.25</td>" in client.get(address).text
    (table,) = client.get("/api/status?pipeline=depot").json["tables"]
    assert (2.0, 1.25) == (table["seconds"], table["cpu_seconds"])


def without_ages(found: object) -> object:
    """JSON without what changes from moment to moment."""
    text = json.dumps(found)
    return json.loads(text, object_hook=lambda one: {k: v for k, v in one.items() if not k.startswith("lag")})


def test_every_trouble_leads_to_the_page_of_it(client: Client) -> None:
    """A problem must link to its page, so that the operator need not search."""
    for page in ("fleet", "pipeline"):
        text = client.get(PAGES[page]).text
        links = {html.unescape(one) for one in re.findall(r'see</span> <a href="([^"]+)"', text)}
        wanted = {"/table?pipeline=depot&table=depot.box", "/table?pipeline=depot&table=depot.bins"}
        if page == "pipeline":
            wanted |= {"/rejects?pipeline=depot", "/ddl?pipeline=depot"}
        assert wanted == links
        assert {200} == {client.get(one).code for one in links}


def test_until_when_all_is_complete_is_said_of_each_pipeline(client: Client, tmp_path: Path) -> None:
    """A scheduler that asks for many pipelines at once needs the number that it waits for."""
    made = WrittenLake(tmp_path, "harbour")
    made.take([change("INSERT", "ships", 1, {"id": "1", "word": "x"}, es=int(time.time() * 1000))])
    both = client_of(made.file, client.service.fleet.member("depot").file)
    found = {one["pipeline"]: one for one in both.get("/api/status").json}
    for name, one in found.items():
        status = both.get(f"/api/status?pipeline={name}").json
        assert (status["complete_until"], status["complete_reason"]) == (
            one["complete_until"],
            one["complete_reason"],
        )
    assert (True, False) == (
        found["depot"]["complete_until"] is None,
        found["harbour"]["complete_until"] is None,
    )
    assert found["harbour"]["complete_until"][:16].replace("T", " ") in words(both.get("/").text)


def test_what_a_table_costs_is_shown_with_its_trend(tmp_path: Path) -> None:
    """One number says what was spent; whether it grows is what must be known before the disk is full."""
    made = WrittenLake(tmp_path)
    for n in range(4):
        made.take([change("INSERT", "bins", n + 1, {"id": str(n), "word": "x"})])
        counts = json.dumps({"inserted": 1, "cpu_ms": 20 * 4**n, "rewritten_bytes": 1000 * 3**n})
        row = {"run": f"r{n}", "pipeline": "depot", "batch": n + 1, "stage": "gold", "subject": "depot.bins", "state": "done",
               "started_at": made.now, "seconds": 0.1 * 2**n, "counts": counts, "message": ""}  # fmt: skip
        made.product("runs", [row], complete=n + 1, lagging=[])
    text = client_of(made.file).get("/table?pipeline=depot&table=depot.bins").text
    lines = {}
    for label in ("Seconds", "CPU seconds", "Written"):
        tile = re.findall(f"<dt>{label}</dt>(.*?)</div>", text)[0]
        lines[label] = [
            int(point.split(",")[1]) for point in re.findall(r'points="([^"]+)"', tile)[0].split()
        ]
    assert sorted(lines["CPU seconds"], reverse=True) == lines["CPU seconds"]  # a drawing counts downwards
    assert {"Seconds": 8, "CPU seconds": 4, "Written": 8} == {label: len(ys) for label, ys in lines.items()}


def test_statements_without_effect_are_folded_away(client: Client) -> None:
    """Twelve comments in the ledger hide the one statement that waits."""
    text = client.get(PAGES["table"]).text
    shown, _, rest = text.partition("4 without effect on the columns</summary>")
    assert ("ADD COLUMN more" in shown, "COMMENT" in shown, "COMMENT" in rest) == (True, False, True)


def test_metrics_are_those_of_the_verb(client: Client, lake: WrittenLake) -> None:
    """Dashboards made for the textfile collector must go on."""
    done = CliRunner().invoke(app, ["status", str(lake.file), "-o", "prom"])
    ages = re.compile(r"(lag_seconds\{.*\}) \d+")
    assert ages.sub(r"\1", done.stdout) == ages.sub(r"\1", client.get("/metrics").text)


def test_metrics_of_several_pipelines_are_one_family_each(lake: WrittenLake, tmp_path: Path) -> None:
    """A second TYPE line of one name would make a scraper drop all metrics."""
    other = WrittenLake(tmp_path, "garden")
    other.take(['{"broken": \n'])
    text = client_of(lake.file, other.file).get("/metrics").text
    types = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types))
    assert {"depot", "garden"} == set(re.findall(r'ingest_last_run_failed\{pipeline="(\w+)"', text))


def test_metrics_name_a_pipeline_file_that_cannot_be_used(lake: WrittenLake, tmp_path: Path) -> None:
    """The metrics of the others went on, and no alert rang for the one with a slip."""
    later = WrittenLake(tmp_path, "later")
    wrong = tmp_path / "zinc.yaml"
    wrong.write_text("pipeline: zinc\nlak: x\n", "utf-8")
    client = client_of(lake.file, later.file, wrong)
    later.file.write_text("pipeline: later\nlak: x\n", "utf-8")  # while it is served
    unusable = re.findall(
        r'ingest_problems{pipeline="(\w+)",severity="error",kind="pipeline_file"', client.get("/metrics").text
    )
    assert ["later", "zinc"] == sorted(unusable)


def test_the_worst_comes_first(lake: WrittenLake, tmp_path: Path) -> None:
    """The most urgent problem must be on the first screen."""
    good, new, wrong = WrittenLake(tmp_path, "apple"), WrittenLake(tmp_path, "basil"), tmp_path / "zinc.yaml"
    good.take([json.dumps({"data": [{"id": "1"}], "database": "d", "es": 1_700_000_000_000, "id": 1, "isDdl": False, "mysqlType": {"id": "bigint"},
                           "old": None, "pkNames": ["id"], "sql": "", "table": "t", "ts": 1, "type": "INSERT"})])  # fmt: skip
    shutil.rmtree(new.lake)
    wrong.write_text("pipeline: zinc\nlak: x\n", "utf-8")
    found = client_of(good.file, new.file, wrong, lake.file).get("/api/status").json
    assert ["depot", "zinc", "basil", "apple"] == [one["pipeline"] for one in found]
    assert ["bad", "bad", "none", "good"] == [one["light"] for one in found]
    assert "zinc.yaml:2" in found[1]["troubles"][0]["text"]
    assert found[2]["troubles"][0]["command"].startswith("ingest run ")


MANY = "FROM (SELECT unnest(generate_series(1, 200)))"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT * FROM read_text('/etc/passwd')", ""),
        ("DROP TABLE depot.bins", ""),
        (f"SELECT sum(c0.batch) FROM {', '.join(f'changes c{n}' for n in range(9))}", "was stopped after"),
        ("SELECT repeat('x', 1000000000 + id) FROM depot.bins", "more than 256 MB of memory"),
        (f"SELECT {', '.join(f'1 AS c{n}' for n in range(600))} {MANY}", "more than 100,000 cells or 8 MB"),
        (f"SELECT repeat('x', 50000) {MANY}", "more than 100,000 cells or 8 MB"),
        (f"SELECT list_transform(generate_series(1, 900), x -> repeat('x', 60)) {MANY}", "or 8 MB"),
        ("nonsense", ""),
    ],
)
def test_a_query_reads_the_lake_and_nothing_more(
    client: Client, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    """A page that runs any text is a shell for everyone who reaches it, and one query must not stop the others."""
    if "stopped" in message:
        monkeypatch.setattr("ingest.serve.pages.BOUNDS", replace(pages.BOUNDS, seconds=6.0))
    answer = client.get(f"/sql?pipeline=depot&q={quote(text)}")
    assert 400 == answer.code
    assert message in answer.text
    assert "root:" not in answer.text
    assert 400 == client.get(f"/api/sql?pipeline=depot&q={quote(text)}").code


def test_a_pipeline_file_is_read_again_when_it_changes(own: Path) -> None:
    """A policy written during an incident would hold only after a restart; a typing error must not end the service."""
    client = client_of(own)
    good = own.read_text("utf-8")
    own.write_text(good.replace("freeze", "freez"), "utf-8")
    troubles = client.get("/api/status").json[0]["troubles"]
    assert any("freez" in one["text"] for one in troubles)
    assert 200 == client.get(PAGES["ddl"]).code
    own.write_text(good, "utf-8")
    assert not any("freez" in one["text"] for one in client.get("/api/status").json[0]["troubles"])


def test_one_bad_file_keeps_no_other_from_being_served(
    lake: WrittenLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slip in one team's file would take the pages, schedules and metrics of all others away at the next restart."""
    own, broken = tmp_path / "own.yaml", tmp_path / "broken.yaml"
    own.write_text("x: &a {<<: *a}\n", "utf-8")
    broken.write_text("pipeline: broken\n", "utf-8")

    def load(file: Path, **how: Any) -> Any:
        if file == broken:
            raise ZeroDivisionError("a fault of the reader")
        return config.load(file, **how)

    monkeypatch.setattr(fleet, "load", load)
    found = {one["pipeline"]: one for one in client_of(own, broken, lake.file).get("/api/status").json}
    assert {"own", "broken", "depot"} == set(found)
    assert "an alias that holds itself" in found["own"]["troubles"][0]["text"]
    assert "ZeroDivisionError: a fault of the reader" in found["broken"]["troubles"][0]["text"]
    assert found["depot"]["tables"]


def test_a_statement_that_waits_is_counted_with_its_table(
    client: Client, lake: WrittenLake, tmp_path: Path
) -> None:
    """The pipeline's page would show 1 above and 0 in the row of the held table, and the report would show 0."""
    text = words(client.get(PAGES["pipeline"]).text)
    assert "Schema changes 1 waits for a decision" in text
    row = next(
        line
        for line in client.get(PAGES["pipeline"]).text.splitlines()
        if ">depot.bins</a>" in line and "<tr>" in line
    )
    assert '<td class="n hot">1</td>' in row
    assert "waits for a decision" in client.get(PAGES["table"]).text
    assert text.count("ingest ddl /") == 1, "the command is next to the sentence, not in it, too"
    done = CliRunner().invoke(app, ["report", str(lake.file), "--out", str(tmp_path / "report.html")])
    assert 0 == done.exit_code, done.output
    assert "Schema changes 1 waits for a decision" in words((tmp_path / "report.html").read_text("utf-8"))


def test_until_when_a_mirror_is_complete_fits_its_tile(tmp_path: Path) -> None:
    """A date and a time in large letters would run over the next tile."""
    made = WrittenLake(tmp_path)
    made.take([change("INSERT", "bins", 1, {"id": "1", "word": "x"})])
    client = client_of(made.file)
    for page in (PAGES["pipeline"], PAGES["table"]):
        assert "Complete until 2023-11-14 22:13 UTC, by changes" in words(client.get(page).text)
    now = int(time.time() * 1000)
    made.take([change("INSERT", "bins", 2, {"id": "2", "word": "x"}, es=now, ts=now)])
    moment = dt.datetime.fromtimestamp(now / 1000, dt.UTC)
    client = client_of(made.file)
    for page in (PAGES["pipeline"], PAGES["table"]):
        assert f"Complete until {moment:%H:%M} today UTC, by changes" in words(client.get(page).text)


def test_what_is_old_is_said_wherever_it_is_shown(tmp_path: Path) -> None:
    """A sender that stopped an hour after the last check would go unnoticed if its table's page said Good."""
    made = depot(tmp_path)
    with made.file.open("a", encoding="utf-8") as file:
        file.write("quality:\n  - {table: depot.shelf1, freshness: 1h}\n")
    names = ("freshness", "rows")
    made.product("checks", [made.check("depot.shelf1", name, 5.0) for name in names])
    client = client_of(made.file)
    old = next(row for row in client.get("/api/status").json[0]["troubles"] if "shelf1" in row["text"])
    assert "bad" == old["light"]
    assert re.fullmatch(
        r"depot\.shelf1: the newest change is .+ old, and `freshness:` allows 60 minutes: see whether bins still sends",
        old["text"],
    )
    page = client.get("/table?pipeline=depot&table=depot.shelf1").text
    assert "<b>The newest change is old.</b>" in page
    assert "a quiet table looks like a broken export" in page
    assert '<small class="word bad">Failing</small>' in page
    row = re.search(r"<tr>(?:(?!</tr>).)*depot\.shelf1</a></th>", client.get(PAGES["pipeline"]).text)
    assert row is not None
    assert "Failing" in row[0]


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("/table?pipeline=depot&table=depot.box", ["<b>The table is held.</b> depot.box has no key", "applied by the first run"]),
        ("/table?pipeline=depot&table=depot.bins", ["<b>Rows are missing.</b> 2 rows are missing"]),
        (
            "/reject?pipeline=depot&number=1",
            ["A message could not be decoded: ", "any table of source bins", "kind=message&amp;reason=bad-json#h-each",
             "depot.yaml --reason bad-json</code> decodes"],
        ),
    ],
)  # fmt: skip
def test_a_page_says_what_to_do(client: Client, page: str, expected: list[str]) -> None:
    """An operator who is woken by a table's name must not have to guess what is wrong with it."""
    text = client.get(page).text
    assert [] == [one for one in expected if one not in text]
