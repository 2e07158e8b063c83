"""Runs on schedules and actions: the verbs of the command line, once each, in the name of who asked."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psutil  # type: ignore[import-untyped]
import pytest
from typer.testing import CliRunner

from ingest.cli.app import app
from ingest.config import load
from ingest.gold import approval
from ingest.ledgers import decisions
from ingest.serve import background
from ingest.serve.app import Service
from ingest.serve.background import JobRunner
from ingest.serve.fleet import Fleet
from ingest.serve.guard import AccessGuard, Address
from ingest.serve.jobs import ACTIONS, words_of
from ingest.tables.tables import LakeReader
from tests.quality.test_report import Reader
from tests.serve.conftest import Answer, Client
from tests.serve.test_pages import PAGES
from tests.test_injection import NASTY
from tests.timing import until

STAND_IN = (sys.executable, str(Path(__file__).with_name("stand_in.py")))
FORM = {"content-type": "application/x-www-form-urlencoded", "origin": "http://127.0.0.1:8765"}
JSON = {"content-type": "application/json"}


@pytest.fixture
def acting(own: Path) -> Iterator[Client]:
    """A service that acts, by a stand-in for the process with Spark."""
    fleet = Fleet([own])
    work = JobRunner(fleet, schedules=False, worker=STAND_IN)
    work.start()
    yield Client(Service(fleet, AccessGuard(Address("127.0.0.1", 8765), "ada"), work))
    (own.parent / "hold").unlink(missing_ok=True)
    work.close()


def form_in(client: Client, page: str) -> str:
    """What the forms of a page carry."""
    found = re.search(r'name="form" value="([^"]+)"', client.get(page).text)
    assert found is not None
    return found[1]


def sent(client: Client, page: str = PAGES["ddl"], **fields: str) -> Answer:
    """A form of a page, sent."""
    data = urlencode({"form": form_in(client, page), "pipeline": "depot", **fields}).encode()
    return client.post("/act", data, FORM)


def job_of(client: Client, answer: Answer) -> dict[str, Any]:
    """What became of it in the end."""
    name = answer.headers["location"].partition("id=")[2]
    found: dict[str, Any] = until(
        lambda: (job := client.get(f"/api/job?id={name}").json)["state"] in ("done", "failed") and job
    )
    return found


def asked(own: Path) -> list[dict[str, Any]]:
    """What the process was asked to do."""
    file = own.parent / "asked"
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []


@pytest.mark.parametrize(
    ("do", "fields", "words"),
    [
        ("approve", {"statement": "ab12"}, ["ddl", "approve", "--", "{file}", "ab12"]),
        ("dismiss", {"statement": "ab12", "reason": "old; $(x)"}, ["ddl", "dismiss", "--reason=old; $(x)", "--", "{file}", "ab12"]),
        ("dismiss-reject", {"number": "3", "reason": "cut"}, ["rejects", "dismiss", "--reason=cut", "--", "{file}", "3"]),
        ("replay", {"reason": "bad-json"}, ["replay", "--reason=bad-json", "--", "{file}"]),
        ("retry", {}, ["retry", "--", "{file}"]),
        ("pause", {"table": "--jars-dir=/x"}, ["pause", "--", "{file}", "--jars-dir=/x"]),
        ("resume", {"table": "depot.bins"}, ["resume", "--", "{file}", "depot.bins"]),
    ],
)  # fmt: skip
def test_an_action_is_a_command_line(
    acting: Client, own: Path, do: str, fields: dict[str, str], words: list[str]
) -> None:
    """An action without a command line could not be repeated or forbidden."""
    job = job_of(acting, sent(acting, do=do, **fields))
    assert ("done", "ada") == (job["state"], job["user"])
    assert [([word.format(file=own) for word in words], "ada")] == [
        (one["verb"], one["user"]) for one in asked(own)
    ]


def test_every_action_is_understood_by_the_command_line(own: Path) -> None:
    """A renamed option would fail only when a user presses the button."""
    import typer

    group = typer.main.get_command(app)
    given = {"statement": "x", "number": "1", "table": "t", "reason": "r"}
    for do in ACTIONS:
        words = words_of(do, own, given)
        verb: Any = group
        context = typer.Context(group)
        while hasattr(verb, "get_command") and words[0] in verb.list_commands(context):
            verb, words = verb.get_command(context, words[0]), words[1:]
        made = verb.make_context(do, list(words))
        assert own in (made.params.get("file"), *made.params.get("files", ()))
        assert "r" in made.params.values() or not ACTIONS[do][2]


def test_a_form_sent_twice_is_done_once(acting: Client, own: Path) -> None:
    """A double click, or a browser that sends again, must not dismiss the next reject, too."""
    data = urlencode(
        {"form": form_in(acting, PAGES["ddl"]), "pipeline": "depot", "do": "approve", "statement": "ab12"}
    ).encode()
    answers = [acting.post("/act", data, FORM) for _ in range(5)]
    assert {303} == {one.code for one in answers}
    assert 1 == len({one.headers["location"] for one in answers})
    job_of(acting, answers[0])
    assert 1 == len(asked(own))


@pytest.mark.parametrize(
    ("page", "fields", "said"),
    [
        ("ddl", {"do": "approve", "statement": "{statement}", "reason": "agreed"}, "approved already"),
        ("ddl", {"do": "dismiss", "statement": "{statement}", "reason": "not now"}, "dismissed already"),
        ("reject", {"do": "dismiss-reject", "number": "1", "reason": "a test"}, "closed already"),
        ("table", {"do": "pause", "table": "depot.bins", "reason": "moving"}, "paused already"),
    ],
)
def test_a_form_sent_from_two_tabs_decides_once_and_says_so(
    acting: Client, own: Path, page: str, fields: dict[str, str], said: str
) -> None:
    """Two people on call press the same button; the second must read that it was done, and `decisions` name one of them."""
    reader = LakeReader(load(own))
    waits = next(one.statement.id for one in approval.listed(reader) if one.pending)
    given = {"pipeline": "depot"} | {name: text.format(statement=waits) for name, text in fields.items()}
    tabs = [given | {"form": form_in(acting, PAGES[page])} for _ in range(2)]
    answers = [acting.post("/act", urlencode(tab).encode(), FORM) for tab in tabs]
    assert 2 == len({one.headers["location"] for one in answers})
    for answer in answers:
        job_of(acting, answer)
    first, second = (CliRunner().invoke(app, job["verb"]) for job in asked(own))
    assert (0, False) == (first.exit_code, said in first.output), first.output
    assert said in second.output
    assert 1 == sum(one.reason == fields["reason"] for one in decisions.read(LakeReader(load(own))).all)


def test_a_document_with_a_key_is_done_once(acting: Client, own: Path) -> None:
    """A script sends a request again after a broken connection."""
    data = json.dumps({"do": "retry", "pipeline": "depot"}).encode()
    names = {acting.post("/api/act", data, JSON | {"idempotency-key": "7"}).json["job"] for _ in range(3)}
    assert 1 == len(names)
    assert names != {acting.post("/api/act", data, JSON).json["job"]}


@pytest.mark.parametrize(
    ("headers", "form", "code"),
    [
        ({}, None, 403),
        ({}, "0.0.0", 403),
        ({"origin": "http://evil.example"}, "", 403),
        ({"sec-fetch-site": "cross-site"}, "", 403),
    ],
)
def test_a_form_from_elsewhere_does_nothing(
    acting: Client, own: Path, headers: dict[str, str], form: str | None, code: int
) -> None:
    """A page that an operator opens by chance could approve a DROP TABLE in his name."""
    fields = {"pipeline": "depot", "do": "approve", "statement": "ab12"}
    if form is not None:
        fields["form"] = form or form_in(acting, PAGES["ddl"])
    kind = {"content-type": "application/x-www-form-urlencoded"}
    assert code == acting.post("/act", urlencode(fields).encode(), kind | headers).code
    assert [] == asked(own)


@pytest.mark.parametrize(
    ("data", "kind", "code"),
    [
        (b'{"do": "retry", "pipeline": "depot"}', "text/plain", 415),
        (b'{"do": "retry", "pipeline": "depot"}', "application/x-www-form-urlencoded", 415),
        (b"[]", "application/json", 400),
        (b'{"do": "drop", "pipeline": "depot"}', "application/json", 400),
        (b'{"do": "approve", "pipeline": "depot"}', "application/json", 400),
        (b'{"do": "retry", "pipeline": "other"}', "application/json", 404),
        (b'{"do": {}, "pipeline": 1}', "application/json", 400),
    ],
)
def test_a_document_that_is_not_one_is_refused(
    acting: Client, own: Path, data: bytes, kind: str, code: int
) -> None:
    """Another site's page can send text and forms without being asked; it cannot send JSON."""
    answer = acting.post("/api/act", data, {"content-type": kind})
    assert (code, True) == (answer.code, bool(answer.json["error"]))
    assert [] == asked(own)


def test_a_service_that_only_looks_does_nothing(client: Client) -> None:
    """`--no-run` is given out to those who must not decide."""
    assert '<form class="act"' not in client.get(PAGES["ddl"]).text
    assert 403 == client.post("/api/act", b'{"do": "retry", "pipeline": "depot"}', JSON).code


@pytest.mark.parametrize("page", PAGES)
def test_pages_with_forms_are_whole(acting: Client, page: str) -> None:
    """A form inside another would be sent as the wrong one."""
    read = Reader(acting.get(PAGES[page]).text)
    assert [] == read.open
    forms = [attributes for attributes in read.named("form") if attributes.get("method") == "post"]
    assert {"/act"} >= {one["action"] for one in forms}


def test_the_page_of_an_action_says_what_became_of_it(acting: Client, own: Path) -> None:
    """An action has no terminal: its page must show its progress and its end."""
    hold = own.parent / "hold"
    hold.touch()
    answer = sent(acting, do="retry")
    place = answer.headers["location"]
    until(lambda: "gold shop.orders: merge" in acting.get(place).text)
    text = acting.get(place).text
    assert "It runs." in text
    assert '<meta http-equiv="refresh" content="3">' in text
    assert "runs: gold shop.orders: merge" in acting.get("/").text.replace("\n", "")
    hold.unlink()
    job_of(acting, answer)
    text = acting.get(place).text
    assert "said &lt;b&gt;so&lt;/b&gt;" in text
    assert "http-equiv" not in text
    assert "ingest retry /" in acting.get(PAGES["pipeline"]).text


def test_hostile_words_of_an_action_stay_text(acting: Client, own: Path) -> None:
    """A form sent to a colleague's service could run scripts in the colleague's pages."""
    answer = sent(acting, do="pause", table=NASTY, reason=NASTY)
    job = job_of(acting, answer)
    assert NASTY in asked(own)[0]["verb"][-1]
    for page in (answer.headers["location"], PAGES["pipeline"]):
        read = Reader(acting.get(page).text)
        assert [] == read.open
        assert [{"src": "/live.js", "defer": None}] == read.named("script")
        assert any("<script>alert(1)</script>" in text for text in read.texts), page
    assert "done" == job["state"]


def test_a_failure_is_shown(acting: Client, own: Path) -> None:
    """A failed action must not look as if it had worked."""
    (own.parent / "fail").touch()
    assert ("failed", 1) == ((job := job_of(acting, sent(acting, do="retry")))["state"], job["code"])


def test_a_process_that_dies_is_one_failure_and_started_again(acting: Client, own: Path) -> None:
    """A JVM without memory takes its process along, not the service."""
    (own.parent / "die").touch()
    job = job_of(acting, sent(acting, do="retry"))
    assert "its process ended with code 137" in job["text"]
    (own.parent / "die").unlink()
    assert "done" == job_of(acting, sent(acting, do="retry"))["state"]


def test_the_end_waits_for_what_is_under_way(acting: Client, own: Path) -> None:
    """An interrupted commit would leave unreferenced files and a lock."""
    (own.parent / "hold").touch()
    answer = sent(acting, do="retry")
    until((own.parent / "asked").exists)
    assert acting.service.work is not None
    acting.service.work.close()
    assert (own.parent / "ended").exists()
    assert "the commit was finished" == job_of(acting, answer)["text"]


def _is_alive(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


@pytest.mark.parametrize(("seconds", "patience"), [("1", 30.0), ("60", 0.2)])
def test_no_java_outlives_the_service(
    acting: Client, own: Path, monkeypatch: pytest.MonkeyPatch, seconds: str, patience: float
) -> None:
    """Java ends after the process that started it: a service that has ended still writes, or its memory stays taken."""
    monkeypatch.setattr(background, "REST", patience)
    (own.parent / "java").write_text(seconds, "utf-8")
    job_of(acting, sent(acting, do="retry"))
    java = int((own.parent / "java.pid").read_text("utf-8"))
    assert acting.service.work is not None
    assert _is_alive(java)
    acting.service.work.close()
    assert not _is_alive(java)


def test_nothing_is_started_while_the_service_ends(own: Path) -> None:
    """A run that becomes due in the last moment is started after the end has looked for what runs, and outlives it."""
    work = JobRunner(Fleet([own]), schedules=False, worker=STAND_IN)
    work.close()
    work._do(job := work.ask("retry", "depot", {}, "ada"))
    assert (1, "error: it was stopped with the service") == (job.code, job.text)
    assert not (own.parent / "started").exists()
