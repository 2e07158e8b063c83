"""Access to the service: which users and addresses, and what many, slow or wrong requests get."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode

import pytest

from ingest.errors import SetupError
from ingest.serve import guard
from tests.quality.test_report import Reader
from tests.serve.conftest import Client, client_of
from tests.serve.test_pages import PAGES
from tests.test_injection import COLUMN, DATABASE, NASTY, TABLE, UNSEEN, messages
from tests.written_lake import WrittenLake

SECRET = "correct-horse-battery-staple"
TOKENS = {SECRET: "grace", "another-token-of-a-kind": "alan"}
_FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def guarded(lake: WrittenLake) -> Client:
    """A service that wants a token."""
    return client_of(lake.file, tokens=TOKENS)


@pytest.mark.parametrize(
    "page", [*PAGES.values(), "/api/status", "/metrics", "/api/sql?pipeline=depot&q=SELECT+1"]
)
def test_nothing_is_shown_without_a_token(guarded: Client, page: str) -> None:
    """Any user who finds the port could read every table."""
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
    """A token in every address would be kept in browser histories and logs."""
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
def test_its_own_names_are_known(lake: WrittenLake, host: str) -> None:
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


_LINK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
_IMAGE = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}


@pytest.mark.parametrize(
    ("page", "headers", "code"),
    [
        ("/api/sql?pipeline=depot&q=SELECT+1", _IMAGE, 403),
        ("/api/sql?pipeline=depot&q=SELECT+1", _LINK, 403),
        ("/api/sql?pipeline=depot&q=SELECT+1", {"origin": "https://evil.example"}, 403),
        ("/api/sql?pipeline=depot&q=SELECT+1", {"referer": "https://evil.example/page"}, 403),
        ("/api/explain?pipeline=depot&table=depot.bins&key=1", _IMAGE, 403),
        ("/api/status", _IMAGE, 403),
        ("/sql?pipeline=depot&q=SELECT+1", _LINK, 403),
        ("/row?pipeline=depot&table=depot.bins&key=1", _LINK, 403),
        ("/metrics", _IMAGE, 403),
        ("/pipeline?pipeline=depot", _IMAGE, 403),
        ("/pipeline?pipeline=depot", {**_LINK, "sec-fetch-dest": "iframe"}, 403),
        ("/pipeline?pipeline=depot", _LINK, 200),
        ("/sql?pipeline=depot&q=SELECT+1", {"sec-fetch-site": "same-origin", "referer": "http://127.0.0.1:8765/"}, 200),
        ("/sql?pipeline=depot&q=SELECT+1", {"referer": "http://127.0.0.1:8765/sql?pipeline=depot"}, 200),
        ("/sql?pipeline=depot&q=SELECT+1", {"sec-fetch-site": "none"}, 200),
        ("/api/sql?pipeline=depot&q=SELECT+1", {}, 200),
    ],
)  # fmt: skip
def test_another_site_makes_no_question_run(
    client: Client, page: str, headers: dict[str, str], code: int
) -> None:
    """An image on any page that an operator opens would run a query here; a link in a wiki still leads to a page."""
    assert code == client.get(page, headers).code


def test_a_request_with_two_lengths_is_refused(client: Client) -> None:
    """A proxy that goes by the other length takes the rest of the body for somebody's next request."""
    answer = client.post("/login", b"0\r\n\r\n", {**_FORM, "transfer-encoding": "chunked"})
    assert (400, "close") == (answer.code, answer.headers["connection"])


@pytest.mark.parametrize(
    ("headers", "is_secure"),
    [({}, False), ({"origin": "https://127.0.0.1:8765"}, True), ({"x-forwarded-proto": "https"}, True)],
)
def test_a_session_behind_tls_stays_there(guarded: Client, headers: dict[str, str], is_secure: bool) -> None:
    """One request without TLS to the same name would show the session to everyone on the way."""
    form = urlencode({"token": SECRET}).encode()
    given = guarded.post("/login", form, {**_FORM, **headers}).headers["set-cookie"]
    assert is_secure == ("; Secure" in given)


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
    """A page must not show the server's files."""
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
    """A token that can be guessed, or that every user may read, protects nothing."""
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
    """A form that is old, guessed, or made for another user decides nothing."""
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
    made = WrittenLake(tmp_path_factory.mktemp("hostile"))
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
