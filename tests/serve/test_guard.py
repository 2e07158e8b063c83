"""Who may ask and from where, and what becomes of askers who are many, slow, or want something else."""

from __future__ import annotations

import datetime as dt
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import psutil
import pytest
from deltalake import DeltaTable

from ingest.config import load
from ingest.errors import SetupError
from ingest.lake import records
from ingest.lake.schemas import CHECKS
from ingest.lake.tables import LakeReader
from ingest.serve import app as application
from ingest.serve import fleet as fleets
from ingest.serve import guard
from ingest.serve.app import Service
from ingest.serve.work import JobRunner
from tests.lakes import ROOT, change
from tests.quality.test_report import Reader
from tests.serve.conftest import Client, client_of
from tests.serve.test_pages import PAGES
from tests.test_injection import COLUMN, DATABASE, NASTY, TABLE, UNSEEN, messages
from tests.timing import PATIENCE, until
from tests.written import Written

SECRET = "correct-horse-battery-staple"
TOKENS = {SECRET: "grace", "another-token-of-a-kind": "alan"}
_FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def guarded(lake: Written) -> Client:
    """A service that wants a token."""
    return client_of(lake.file, tokens=TOKENS)


@pytest.mark.parametrize(
    "page", [*PAGES.values(), "/api/status", "/metrics", "/api/sql?pipeline=depot&q=SELECT+1"]
)
def test_nothing_is_shown_without_a_token(guarded: Client, page: str) -> None:
    """The rows of every table would be anybody's who finds the port."""
    for headers in (
        {},
        {"authorization": "Bearer wrong"},
        {"cookie": "ingest=made-up"},
        {"authorization": "Bearer "},
    ):
        answer = guarded.get(page, headers)
        assert answer.code in (303, 401)
        assert b"depot.b" not in answer.data
    assert 200 == guarded.get(page, {"authorization": f"Bearer {SECRET}"}).code


def test_a_refusal_of_the_api_is_an_object(guarded: Client) -> None:
    """docs/serve.md says so: a script that reads the answer as JSON must not end with a traceback."""
    refused = guarded.get("/api/status")
    assert (401, {"error": "Give a valid token: Authorization: Bearer TOKEN."}) == (
        refused.code,
        refused.json,
    )
    foreign = {"origin": "http://elsewhere.example", "content-type": "application/json"}
    assert ["error"] == list(guarded.post("/api/act", b"{}", foreign).json)


def test_signing_in_and_out(guarded: Client) -> None:
    """A token in every address would stand in histories and logs."""
    form = urlencode({"token": SECRET}).encode()
    wrong = guarded.post("/login", urlencode({"token": SECRET[:-1]}).encode(), _FORM)
    assert (401, False) == (wrong.code, "set-cookie" in wrong.headers)
    done = guarded.post("/login?to=/ddl%3Fpipeline%3Ddepot", form, _FORM)
    assert (303, "/ddl?pipeline=depot") == (done.code, done.headers["location"])
    given = done.headers["set-cookie"]
    assert "HttpOnly" in given
    assert "SameSite=Strict" in given
    cookie = {"cookie": given.partition(";")[0]}
    assert "grace" in guarded.get("/", cookie).text
    guarded.post("/logout", b"", cookie)
    assert 303 == guarded.get("/", cookie).code


@pytest.mark.parametrize(
    "to", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"]
)
def test_signing_in_leads_nowhere_else(guarded: Client, to: str) -> None:
    """A link to our own sign-in would end on a copy of it, which asks for the token again."""
    done = guarded.post(f"/login?{urlencode({'to': to})}", urlencode({"token": SECRET}).encode(), _FORM)
    assert "/" == done.headers["location"]


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "", "[::2]:80"]
)
def test_another_name_is_refused(client: Client, host: str) -> None:
    """A name that its owner lets point at this machine makes his scripts our pages (DNS rebinding)."""
    assert 421 == client.get("/", host=host).code
    assert 421 == client.get("/api/status", host=host).code


@pytest.mark.parametrize(
    "host", ["localhost:8765", "127.0.0.1:8765", "[::1]:8765", "LOCALHOST", "lake.example"]
)
def test_its_own_names_are_known(lake: Written, host: str) -> None:
    """A proxy in front of it passes its own name on."""
    assert 200 == client_of(lake.file, names=guard.names(["Lake.example"])).get("/", host=host).code


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_what_another_site_sends_is_refused(client: Client, headers: dict[str, str]) -> None:
    """A page that an operator opens by chance could sign him out, or do worse."""
    assert 403 == client.post("/logout", b"", headers).code


def test_every_answer_carries_what_browsers_need(client: Client, guarded: Client) -> None:
    """One page that may be framed, or may run a script from elsewhere, opens all others."""
    for answer in (client.get("/"), client.get("/nope"), client.get("/api/status"), client.get("/live.js"),
                   client.get("/", host="evil.example"), guarded.get("/")):  # fmt: skip
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert "nosniff" == answer.headers["x-content-type-options"]
        assert not any(name.startswith("access-control") for name in answer.headers)
    assert "no-store" == client.get("/").headers["cache-control"]


@pytest.mark.parametrize(
    "path",
    ["/../pyproject.toml", "/..%2f..%2fetc/passwd", "/style.css/../../app.py", "/static/../../etc/passwd", "//etc/passwd",
     "/table?pipeline=depot&table=../../secrets", "/pipeline?pipeline=../depot", "/api/../status", "/api/sql/../status"],
)  # fmt: skip
def test_a_path_leads_to_no_file(client: Client, path: str) -> None:
    """The server's files are nobody's business."""
    answer = client.get(path)
    assert answer.code in (400, 404)
    assert "root:" not in answer.text
    assert "[project]" not in answer.text


def test_a_request_too_large_is_refused(client: Client) -> None:
    """One request must not fill the memory."""
    assert 413 == client.post("/login", b"x" * 70_000, _FORM).code
    assert 413 == client.post("/login", b"", {**_FORM, "content-length": "9" * 30}).code


@pytest.mark.parametrize(
    ("text", "said"),
    [("short\n", "at least 16"), ("a b c\n", "at least 16"), (None, "cannot be read"), ("open", "chmod 600")],
)
def test_a_bad_token_file_is_refused(tmp_path: Path, text: str | None, said: str) -> None:
    """A token that is guessed, or read by all, is none."""
    file = tmp_path / "tokens"
    if text is not None:
        file.write_text(f"{SECRET}\n" if text == "open" else text, "utf-8")
        file.chmod(0o644 if text == "open" else 0o600)
    with pytest.raises(SetupError, match=said):
        guard.tokens(file, "me")


def test_tokens_have_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decisions say who made them."""
    file = tmp_path / "tokens"
    file.write_text(f"# of the team\ngrace {SECRET}\n\nanother-token-of-a-kind\n", "utf-8")
    file.chmod(0o600)
    monkeypatch.setenv(guard.TOKEN, "a-token-of-the-environment")
    assert {
        "a-token-of-the-environment": "me",
        SECRET: "grace",
        "another-token-of-a-kind": "me",
    } == guard.tokens(file, "me")


def test_a_form_is_of_its_user_and_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    """A form that was kept, guessed, or made for somebody else decides nothing."""
    made = guard.AccessGuard(guard.Address("127.0.0.1", 1), "me", TOKENS)
    form = made.form("grace")
    assert made.is_form("grace", form)
    for given in ("", "x", form[:-1], "z" + form, form.replace(".", "")):
        assert not made.is_form("grace", given)
    assert not made.is_form("alan", form)
    monkeypatch.setattr(guard, "FORM", -1.0)
    assert not made.is_form("grace", form)


# --- what data says ---


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Client:
    """A service over a lake in which every text that a source can say is hostile."""
    made = Written(tmp_path_factory.mktemp("hostile"))
    name = f"{DATABASE}.{TABLE}"
    made.take(messages(), held={name: f"{NASTY} `{NASTY}`"})
    made.product(
        "checks",
        [made.check(name, "missing_rows", 2.0, "fail", NASTY) | {"failing": '["<b>"]', "column": NASTY}],
    )
    made.decide("pause", "mirrors/x", {}, by=NASTY, reason=NASTY)
    return client_of(made.file)


def test_hostile_names_and_values_stay_text(hostile: Client) -> None:
    """A table's name that runs as a script reads every page that its reader may read."""
    table = f"{DATABASE}.{TABLE}"
    query = urlencode({"q": f'SELECT * FROM "{DATABASE}"."{TABLE}"'})
    addresses = [
        *(one for one in PAGES.values() if "bins&key" not in one and "table=" not in one),
        f"/table?{urlencode({'pipeline': 'depot', 'table': table})}",
        f"/row?{urlencode({'pipeline': 'depot', 'table': 'depot.bins', 'key': '1'})}",
        f"/row?{urlencode({'pipeline': 'depot', 'table': 'depot.keyed', 'key': NASTY})}",
        f"/table?{urlencode({'pipeline': 'depot', 'table': NASTY})}",
        f"/pipeline?{urlencode({'pipeline': NASTY})}",
        f"/pipeline?{urlencode({'pipeline': 'depot', 'q': NASTY, 'show': NASTY, 'page': NASTY})}",
        f"/rejects?{urlencode({'pipeline': 'depot', 'kind': NASTY, 'reason': NASTY, 'column': NASTY, 'page': '9' * 400})}",
        f"/reject?{urlencode({'pipeline': 'depot', 'number': NASTY})}",
        f"/sql?{urlencode({'pipeline': 'depot', 'q': NASTY, 'batch': NASTY})}",
        f"/sql?pipeline=depot&{query}",
        f"/login?{urlencode({'to': NASTY})}",
    ]  # fmt: skip
    seen = 0
    for address in addresses:
        answer = hostile.get(address)
        assert answer.code in (200, 400, 404), (address, answer.text)
        read = Reader(answer.text)
        assert [] == read.open, address
        assert {"img", "b"}.isdisjoint(
            tag for tag, attributes in read.tags if "src" in attributes or "onerror" in attributes
        )
        assert [{"src": "/live.js", "defer": None}] == read.named("script")
        assert set() == (UNSEEN - {"\r"}) & set(answer.text), address
        seen += sum("<script>alert(1)</script>" in text for text in read.texts)
    assert seen > 20, "the hostile text was not shown"
    for address in ("/api/tables?pipeline=depot", "/api/ddl?pipeline=depot", "/api/rejects?pipeline=depot"):
        answer = hostile.get(address)
        assert (200, "application/json") == (answer.code, answer.headers["content-type"])
    tables = hostile.get("/api/tables?pipeline=depot").json
    assert COLUMN in {column["source"] for one in tables for column in one["columns"]}


# --- lakes that are not there yet, written, or gone ---


def test_each_page_of_a_pipeline_that_has_not_run_is_whole(own: Path) -> None:
    """The first page that a new user opens is that of a pipeline without a lake; the button for its first run is there."""
    shutil.rmtree(own.parent / "depot-lake")
    acting = client_of(own)
    acting.service.work = JobRunner(acting.service.fleet)  # not started
    page = acting.get(PAGES["pipeline"])
    assert (200, True, True) == (page.code, "Not run yet" in page.text, "Run now" in page.text)
    codes = {name: acting.get(address).code for name, address in PAGES.items()}
    assert {name: 200 if name in ("fleet", "pipeline") else 404 for name in PAGES} == codes


def test_the_page_of_a_file_with_faults_says_them(own: Path) -> None:
    """A pipeline that cannot be read when the service starts is the one that is looked for."""
    own.write_text("pipeline: depot\nlakes: ./lake\n", "utf-8")
    page = client_of(own).get(PAGES["pipeline"])
    assert (200, True) == (page.code, "Cannot be read" in page.text)


def test_a_file_with_faults_takes_no_other_down(lake: Written, tmp_path: Path) -> None:
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
    assert ["1 held"] == [one["state"] for one in client.get("/api/status").json]


def test_a_lake_that_is_replaced_is_not_taken_for_the_one_before(own: Path, tmp_path: Path) -> None:
    """Another pipeline's lake in its place would be shown under its name; an older copy is shown as it is."""
    client, lake = client_of(own), own.parent / "depot-lake"
    assert ["1 held"] == [one["state"] for one in client.get("/api/status").json]
    other = Written(tmp_path, "other")
    other.take([change("INSERT", "bins", 1, {"id": "1", "word": "x"})])
    mine = lake.rename(lake.with_name("mine"))
    shutil.copytree(other.lake, lake)
    client.service.fleet.forget("depot")
    found = client.get("/api/status").json[0]
    assert ("Cannot be read", True) == (found["state"], "other" in found["troubles"][0]["text"])
    assert (400, True) == ((page := client.get(PAGES["table"])).code, "other" in page.text)
    shutil.rmtree(lake)
    mine.rename(lake)
    client.service.fleet.forget("depot")
    assert ["1 held"] == [one["state"] for one in client.get("/api/status").json]


def test_a_damaged_table_hides_no_other(own: Path) -> None:
    """The one table that needs help is the one that the page must name."""
    lake = own.parent / "depot-lake"
    for log in (lake / "mirrors/depot/shelf0/_delta_log").iterdir():
        log.write_text("{", "utf-8")
    client = client_of(own)
    assert "1 held" in client.get("/").text
    assert "damaged" in client.get("/pipeline?pipeline=depot").text
    assert 200 == client.get("/table?pipeline=depot&table=depot.bins").code


def test_files_that_vanish_while_they_are_read_are_one_sentence(own: Path) -> None:
    """`maintain` deletes what nobody needs any more; who asks in that moment must be able to ask again."""
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


# --- many, and slow ---


def test_a_hundred_at_once_are_all_answered(client: Client, listening: Callable[[Service], int]) -> None:
    """An incident is when everyone opens the page."""
    port = listening(client.service)
    codes: list[int] = []

    def ask(n: int) -> None:
        asking = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        asking.request("GET", list(PAGES.values())[n % 3] if n % 10 else "/sql?pipeline=depot&q=SELECT+1")
        answer = asking.getresponse()
        answer.read()
        codes.append(answer.status)
        asking.close()

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(100)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert 100 == len(codes)
    assert {200} >= set(codes) - {400, 503}  # SQL sends away whom it has no place for
    assert 90 <= codes.count(200)


def test_who_reads_or_writes_slowly_holds_nobody_up(
    client: Client, listening: Callable[[Service], int]
) -> None:
    """One sleeping laptop must not stop the pages of all others."""
    port = listening(client.service)
    sleepers = []
    for text in (
        b"GET /pipeline?pipeline=depot HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50,
        b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nto",
        b"GE",
    ):
        for _ in range(10):
            sleeper = socket.create_connection(("127.0.0.1", port))
            sleeper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            sleeper.sendall(text)
            sleepers.append(sleeper)
    began = time.monotonic()
    asking = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    for page in ("/healthz", PAGES["table"]):
        asking.request("GET", page)
        answer = asking.getresponse()
        answer.read()
        assert 200 == answer.status
    assert time.monotonic() - began < 30
    for sleeper in sleepers:
        sleeper.close()


def test_a_request_that_comes_byte_by_byte_is_answered(
    client: Client, listening: Callable[[Service], int]
) -> None:
    """A bad line is not a bad client."""
    with socket.create_connection(("127.0.0.1", listening(client.service)), timeout=30) as slow:
        for byte in b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n":
            slow.send(bytes([byte]))
            time.sleep(0.002)
        assert b"HTTP/1.1 200 OK" in slow.recv(1000)


def test_a_request_that_never_ends_is_sent_away(
    client: Client, listening: Callable[[Service], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its place is for others."""
    monkeypatch.setattr(application, "PATIENCE", 0.3)
    port = listening(client.service)
    with socket.create_connection(("127.0.0.1", port), timeout=30) as endless:
        endless.sendall(b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\ntoken=")
        answer = endless.recv(10_000)
    assert b"HTTP/1.1 408" in answer
    asking = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    asking.request("GET", "/healthz")
    assert 200 == asking.getresponse().status
    asking.close()


# --- the process ---


def started(*words: str, **environment: str) -> subprocess.Popen[str]:
    """The verb in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "ingest", "serve", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(lake: Written, number: signal.Signals) -> None:
    """A service manager waits, then kills; and counts every exit code but 0 as a failure."""
    running = started(str(lake.file), "--listen", "127.0.0.1:0")
    assert running.stderr is not None
    assert "shows them" in running.stderr.readline()
    running.send_signal(number)
    _, said = running.communicate(timeout=PATIENCE)
    assert (0, False) == (running.returncode, "Traceback" in said)


_MANY = "(SELECT unnest(generate_series(1, 1000000)) AS x FROM depot.bins)"
LONG = f"SELECT count(*) FROM {_MANY} AS a, {_MANY} AS b WHERE a.x * b.x % 7 = 3"  # takes hours


@pytest.mark.parametrize("address", ["/api/sql", "/sql"])
def test_the_end_does_not_wait_for_a_long_answer(lake: Written, address: str) -> None:
    """A service manager that waits for a query of ten seconds, and then logs a trace, tells of a fault where none is."""
    running = started(str(lake.file), "--listen", "127.0.0.1:0")
    assert running.stderr is not None
    url = urlsplit(running.stderr.readline().split()[0])
    asking = http.client.HTTPConnection(url.hostname or "", url.port, timeout=PATIENCE)
    asking.request("GET", f"{address}?{urlencode({'pipeline': 'depot', 'q': LONG})}")
    asleep = socket.create_connection((url.hostname, url.port))  # reads nothing of its answers
    asleep.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    asleep.sendall(b"GET /table?pipeline=depot&table=depot.bins HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
    server = psutil.Process(running.pid)
    before = server.cpu_times().user
    until(lambda: server.cpu_times().user > before + 1)  # it counts
    running.send_signal(signal.SIGTERM)
    answer = asking.getresponse()
    said = answer.read().decode()
    assert (503, True) == (answer.status, "The service was stopped before this was answered" in said)
    _, err = running.communicate(timeout=PATIENCE)
    asleep.close()
    assert (0, "") == (running.returncode, err)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--listen", "127.0.0.1:{taken}"], 2, "another process listens there"),
        (["--listen", "0.0.0.0:0"], 2, "give a token with --token-file"),
        (["--listen", "here"], 2, "is not an address"),
        (["--listen", "203.0.113.7:1", "--token-file", "{tokens}"], 2, "cannot be listened at"),
    ],
)
def test_what_cannot_be_served_is_one_sentence(
    lake: Written, tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    """A trace of forty lines hides the port."""
    tokens = tmp_path / "tokens"
    tokens.write_text(SECRET, "utf-8")
    tokens.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = [word.format(taken=taken.getsockname()[1], tokens=tokens) for word in words]
        running = started(str(lake.file), *given)
        out, err = running.communicate(timeout=PATIENCE)
    assert (code, "") == (running.returncode, out)
    assert said in err
    assert 1 == len(err.splitlines())


def test_two_files_of_one_name_or_lake_are_refused(lake: Written, tmp_path: Path) -> None:
    """An action on one of them would fall on the other."""
    twin = tmp_path / "twin.yaml"
    twin.write_text(lake.file.read_text("utf-8"), "utf-8")
    with pytest.raises(Exception, match="both called depot"):
        client_of(lake.file, twin)
    twin.write_text(
        twin.read_text("utf-8")
        .replace("pipeline: depot", "pipeline: other")
        .replace("./depot-lake", str(lake.lake)),
        "utf-8",
    )
    with pytest.raises(Exception, match="name the same lake"):
        client_of(lake.file, twin)
