"""Lakes and files that are not there yet, written, damaged or gone."""

from __future__ import annotations

import datetime as dt
import shutil
import threading
from pathlib import Path
from urllib.parse import urlencode

import pytest
from deltalake import DeltaTable

from ingest.config import load
from ingest.serve import fleet as fleets
from ingest.serve.background import JobRunner
from ingest.tables import records
from ingest.tables.schemas import CHECKS
from ingest.tables.tables import LakeReader
from tests.lakes import change
from tests.serve.conftest import client_of
from tests.serve.test_pages import PAGES
from tests.written_lake import WrittenLake

IS_AWAY = 'ingest_problems{pipeline="depot",severity="error",kind="pipeline_file",mirror=""} 1\n'


def test_each_page_of_a_pipeline_that_has_not_run_is_whole(own: Path) -> None:
    """A new user's first page is that of a pipeline without a lake; it must have the button for the first run."""
    shutil.rmtree(own.parent / "depot-lake")
    acting = client_of(own)
    acting.service.work = JobRunner(acting.service.fleet)  # not started
    page = acting.get(PAGES["pipeline"])
    assert (200, True, True) == (page.code, "Not run yet" in page.text, "Run now" in page.text)
    codes = {name: acting.get(address).code for name, address in PAGES.items()}
    assert {name: 200 if name in ("fleet", "pipeline") else 404 for name in PAGES} == codes


def test_the_page_of_a_file_with_faults_says_them(own: Path) -> None:
    """A pipeline that cannot be read when the service starts must be shown, too."""
    own.write_text("pipeline: depot\nlakes: ./lake\n", "utf-8")
    page = client_of(own).get(PAGES["pipeline"])
    assert (200, True) == (page.code, "Cannot be read" in page.text)


def test_a_file_with_faults_takes_no_other_down(lake: WrittenLake, tmp_path: Path) -> None:
    """One colleague saves half a file: the other pipelines are still looked after."""
    broken = [tmp_path / name / "pipeline.yaml" for name in ("one", "two")]
    for file, text in zip(broken, ("pipeline: one\n", "pipeline: ["), strict=True):
        file.parent.mkdir()
        file.write_text(text, "utf-8")
    client = client_of(*broken, lake.file, tmp_path / "missing.yaml")
    found = {one["pipeline"]: one for one in client.get("/api/status").json}
    assert {"pipeline", str(broken[1]), "depot", "missing"} == set(found)
    assert "the key 'lake' is missing" in found["pipeline"]["troubles"][0]["text"]
    assert "is not YAML" in found[str(broken[1])]["troubles"][0]["text"]
    assert "there is no such file" in found["missing"]["troubles"][0]["text"]
    assert 200 == client.get(PAGES["table"]).code
    assert 'pipeline="depot"' in client.get("/metrics").text
    for name in found:
        assert 200 == client.get(f"/pipeline?{urlencode({'pipeline': name})}").code


def test_a_secret_that_only_runs_need_is_missed_by_runs_alone(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service of readers has no password of the broker; once it is there, the warning goes."""
    own.write_text(
        own.read_text("utf-8").replace("settle: 1s", "settle: 1s, storage: {password: '${file:password}'}"),
        "utf-8",
    )
    monkeypatch.setattr(fleets, "AGAIN", 0.0)
    client = client_of(own)
    said = "of ${file:...} cannot be read: No such file or directory; only a run needs it"
    texts = [one["text"] for one in client.get("/api/status").json[0]["troubles"]]
    assert [True] == [said in text for text in texts if "password" in text]
    assert 200 == client.get(PAGES["table"]).code
    own.with_name("password").write_text("x", "utf-8")
    assert said not in client.get("/api/status").text


def test_a_lake_that_goes_away_is_said_and_comes_back(own: Path) -> None:
    """Restoring a backup takes minutes, in which the page must not die with the lake."""
    client = client_of(own)
    lake = own.parent / "depot-lake"
    assert 200 == client.get("/pipeline?pipeline=depot").code
    lake.rename(lake.with_name("away"))
    assert 404 == client.get("/table?pipeline=depot&table=depot.bins").code
    assert "Not run yet" in client.get("/").text
    assert IS_AWAY in client.get("/metrics").text, "or an alert on any problem stays green"
    lake.with_name("away").rename(lake)
    assert 200 == client.get("/table?pipeline=depot&table=depot.bins").code


def test_a_lake_that_is_half_copied_is_said_and_comes_back(own: Path) -> None:
    """A restore copies file by file for an hour: each page says what is missing, or what is there."""
    client, lake = client_of(own), own.parent / "depot-lake"
    whole = lake.rename(lake.with_name("whole"))
    pages = ["/", "/api/status", "/metrics", *(one for one in PAGES.values() if one != "/")]
    for file in sorted(one for one in whole.rglob("*") if one.is_file()):
        copy = lake / file.relative_to(whole)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
        if file.name.endswith("000.json"):  # one table more
            client.service.fleet.forget("depot")
            for page in pages:
                answer = client.get(page)
                assert answer.code in (200, 400, 404, 503), (file, page, answer.text)
                assert "Traceback" not in answer.text
    client.service.fleet.forget("depot")
    assert {200} == {client.get(page).code for page in pages}
    assert ["1 held, 1 suspect"] == [one["state"] for one in client.get("/api/status").json]


def test_a_lake_that_is_replaced_is_not_taken_for_the_one_before(own: Path, tmp_path: Path) -> None:
    """Another pipeline's lake in its place would be shown under its name; an older copy is shown as it is."""
    client, lake = client_of(own), own.parent / "depot-lake"
    assert ["1 held, 1 suspect"] == [one["state"] for one in client.get("/api/status").json]
    other = WrittenLake(tmp_path, "other")
    other.take([change("INSERT", "bins", 1, {"id": "1", "word": "x"})])
    mine = lake.rename(lake.with_name("mine"))
    shutil.copytree(other.lake, lake)
    client.service.fleet.forget("depot")
    found = client.get("/api/status").json[0]
    assert ("Cannot be read", True) == (found["state"], "other" in found["troubles"][0]["text"])
    assert IS_AWAY in client.get("/metrics").text
    assert (400, True) == ((page := client.get(PAGES["table"])).code, "other" in page.text)
    shutil.rmtree(lake)
    mine.rename(lake)
    client.service.fleet.forget("depot")
    assert ["1 held, 1 suspect"] == [one["state"] for one in client.get("/api/status").json]


def test_a_damaged_table_hides_no_other(own: Path) -> None:
    """The page must name the damaged table, and the other tables' pages must work."""
    lake = own.parent / "depot-lake"
    for log in (lake / "mirrors/depot/shelf0/_delta_log").iterdir():
        log.write_text("{", "utf-8")
    client = client_of(own)
    assert "1 held, 1 suspect" in client.get("/").text
    assert "damaged" in client.get("/pipeline?pipeline=depot").text
    assert 200 == client.get("/table?pipeline=depot&table=depot.bins").code


def test_files_that_vanish_while_they_are_read_are_one_sentence(own: Path) -> None:
    """`maintain` may delete files while a page is made; the user is asked to try again."""
    client = client_of(own)
    for file in (own.parent / "depot-lake" / "checks").glob("*.parquet"):
        file.unlink()
    answer = client.get("/table?pipeline=depot&table=depot.bins")
    assert 503 == answer.code
    assert "try again" in answer.text
    assert "Traceback" not in answer.text
    shutil.rmtree(own.parent / "depot-lake" / "checks")
    assert 200 == client.get("/table?pipeline=depot&table=depot.bins").code


def test_a_lake_that_is_written_and_maintained_is_shown(own: Path) -> None:
    """A run commits every second, and maintenance takes files away that a page has just looked up."""
    client, lake = client_of(own), LakeReader(load(own))
    row = (
        "r",
        5,
        "depot.bins",
        "rows",
        None,
        "warn",
        "pass",
        4.0,
        None,
        "",
        dt.datetime.now(dt.UTC),
        "[]",
        None,
        None,
        None,
    )

    def write() -> None:
        for batch in range(12):
            records.append(lake, "r", [row], CHECKS, {"checked": batch})
            if batch in (4, 9):
                checks = DeltaTable(lake.path(CHECKS.name))
                checks.optimize.compact()
                checks.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)

    writer = threading.Thread(target=write)
    writer.start()
    answers = []
    while writer.is_alive() or len(answers) < 12:
        client.service.fleet.forget("depot")  # nothing is answered from what was seen before
        answers += [client.get(address) for address in ("/", PAGES["pipeline"], PAGES["table"])]
    writer.join()
    assert {200} >= {one.code for one in answers} - {503}
    assert all("Traceback" not in one.text for one in answers)
    assert 200 == client.get(PAGES["table"]).code
    assert 11 == lake.last_marks(CHECKS.name)["checked"]
