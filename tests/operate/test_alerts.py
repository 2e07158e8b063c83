"""Alerts: one for each cause, again while it lasts, over when it is over; nothing secret, nothing twice, nothing lost."""

from __future__ import annotations

import datetime as dt
import json
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from typer.testing import CliRunner

from ingest.cli import output
from ingest.cli.app import app
from ingest.config import Pipeline, load
from ingest.config.entries import AlertTarget, QualityRule
from ingest.config.model import Source
from ingest.errors import ConfigError, LockedError, StoppedError
from ingest.inspect.problem_kinds import ERROR, WARN
from ingest.inspect.problems import Problem
from ingest.inspect.status import problems_of
from ingest.ledgers.decisions import Decision, Decisions
from ingest.operate import alerts
from ingest.operate.alerts import FIRING, LASTING, OVER, STOPPED, AlertSender, tell
from ingest.tables.tables import LakeReader

NOW = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
HELD = Problem("shop.orders: The table is held", ERROR, "it has no key")
SLOW = Problem("shop.parts: The newest change is old", WARN, "it is 3 days old")


class Hook(ThreadingHTTPServer):
    """A webhook on loopback that keeps what it is sent, and answers with the status that the test sets."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taking)
        self.bodies: list[dict[str, Any]] = []
        self.status = 200
        self.url = f"http://127.0.0.1:{self.server_address[1]}/hooks/T0P-S3CRET"


class Taking(BaseHTTPRequestHandler):
    """One request."""

    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.status == 200:
            self.server.bodies.append(json.loads(body))
        self.send_response(self.server.status)
        if self.server.status == 302:
            self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


class Mailbox(socketserver.TCPServer):
    """A mail server on loopback that offers nothing and keeps what it is sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Post)
        self.letters: list[str] = []


class Post(socketserver.StreamRequestHandler):
    """One connection."""

    server: Mailbox

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        while line := self.rfile.readline().decode().strip():
            if line.upper() == "DATA":
                self.wfile.write(b"354 go\r\n")
                text = []
                while (part := self.rfile.readline().decode().rstrip()) != ".":
                    text.append(part)
                self.server.letters.append("\n".join(text))
            self.wfile.write(b"221 bye\r\n" if line.upper() == "QUIT" else b"250 ok\r\n")


def served(server: Any) -> Iterator[Any]:
    """A server in a thread of its own, until the test ends."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def hook() -> Iterator[Hook]:
    yield from served(Hook())


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    yield from served(Mailbox())


class World:
    """What is wrong now, the clock, and the lake's decisions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *targets: AlertTarget) -> None:
        self.now, self.wrong, self.kept = NOW, {}, []
        self.pipeline = Pipeline("shop", Path("/shop.yaml"), "/lake", (), alerts=targets)
        clock = SimpleNamespace(now=lambda _zone: self.now, fromisoformat=dt.datetime.fromisoformat)
        monkeypatch.setattr(alerts, "dt", SimpleNamespace(datetime=clock, UTC=dt.UTC))
        monkeypatch.setattr(alerts, "problems_of", lambda _lake: self.problems())
        monkeypatch.setattr("ingest.ledgers.decisions.read", lambda _lake: Decisions(tuple(self.kept)))
        monkeypatch.setattr("ingest.ledgers.decisions.append", lambda _lake, rows: self.kept.extend(rows))

    def problems(self) -> list[Problem]:
        """What is wrong; a lake that cannot be read raises."""
        if isinstance(self.wrong, Exception):
            raise self.wrong
        return [*self.wrong.values()]

    def run(self, *wrong: Problem, stopped: str = "", minutes: float = 1) -> None:
        """Another run, some minutes later."""
        self.now += dt.timedelta(minutes=minutes)
        self.wrong = {one.subject: one for one in wrong}
        for text in tell(SimpleNamespace(pipeline=self.pipeline, run="r"), stopped):
            output.warning(text)


def said(body: dict[str, Any]) -> list[tuple[str, str]]:
    """What one message says."""
    return [(one["state"], one["cause"]) for one in body["alerts"]]


def test_a_cause_is_sent_once_again_while_it_lasts_and_when_it_is_over(
    hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that comes every minute would be filtered out."""
    world = World(monkeypatch, AlertTarget(hook.url, severity=WARN, repeat=3600.0))
    world.run()
    world.run(HELD)
    world.run(HELD)
    world.run(HELD, SLOW)
    world.run(HELD, SLOW, minutes=58)
    world.run(SLOW)
    world.run(SLOW)
    world.run()
    world.run()
    held, slow = HELD.subject, SLOW.subject
    assert [
        [(FIRING, held)], [(FIRING, slow)], [(LASTING, held)], [(OVER, held)], [(LASTING, slow)], [(OVER, slow)],
    ] == [said(body) for body in hook.bodies]  # fmt: skip
    assert {"2024-05-01T12:02:00+00:00"} == {
        one["since"] for body in hook.bodies for one in body["alerts"] if one["cause"] == held
    }


def test_what_comes_again_is_sent_again(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trouble that was over is a new one."""
    world = World(monkeypatch, AlertTarget(hook.url))
    for wrong in ((HELD,), (), (HELD,), (SLOW,)):
        world.run(*wrong)
    assert [FIRING, OVER, FIRING, OVER] == [state for body in hook.bodies for state, _ in said(body)]


def test_what_was_not_taken_is_sent_by_the_next_run(
    hook: Hook, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A service that is down for a minute must not lose the alarm of the night."""
    world = World(monkeypatch, AlertTarget(hook.url))
    for hook.status in (500, 302):
        world.run(HELD)
    assert [] == [*hook.bodies, *world.kept]
    hook.status = 200
    world.run(HELD)
    hook.status = 503
    world.run()
    hook.status = 200
    world.run()
    assert [[(FIRING, HELD.subject)], [(OVER, HELD.subject)]] == [said(body) for body in hook.bodies]
    errors = capsys.readouterr().err
    assert "127.0.0.1" in errors
    assert "S3CRET" not in errors


def test_each_target_is_sent_to_by_itself(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is down, or wants errors alone, must not change what another hears."""
    other = AlertTarget("http://127.0.0.1:9/down", severity=WARN)
    world = World(monkeypatch, other, AlertTarget(hook.url), AlertTarget(hook.url, "slack", severity=WARN))
    world.run(SLOW)
    assert [True] == ["text" in body for body in hook.bodies]
    world.run(SLOW, HELD)
    assert [(FIRING, HELD.subject)] == said(hook.bodies[1])


def test_a_run_that_stopped_is_a_cause_and_ends_no_other(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a broken run could not look at is not over."""
    world = World(monkeypatch, AlertTarget(hook.url))
    world.run(HELD)
    world.run(stopped="OSError: no space")
    world.run(HELD)
    assert [[(FIRING, HELD.subject)], [(FIRING, STOPPED)], [(OVER, STOPPED)]] == [
        said(body) for body in hook.bodies
    ]
    world.problems = lambda: (_ for _ in ()).throw(OSError("gone"))
    world.run()
    assert [(FIRING, STOPPED)] == said(hook.bodies[3])
    assert "gone" in hook.bodies[3]["alerts"][0]["text"]


def test_after_which_runs_a_lake_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop of a second would ask the same thing all day; a lake in use is not a run that stopped."""
    sent: list[str] = []
    moments = iter([0.0, 10.0, 20.0, 59.0, 81.0])
    monkeypatch.setattr(
        AlertSender, "_send", staticmethod(lambda _spark, _pipeline, stopped="": sent.append(stopped))
    )
    monkeypatch.setattr(alerts, "is_usable", lambda spark: spark == "spark")
    monkeypatch.setattr(alerts, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    alarm, pipeline = AlertSender(output.warning), Pipeline("shop", Path("/shop.yaml"), "/lake", ())
    counts = []
    for batch in (None, None, 7, None, None):  # at the moments above
        alarm.ran("spark", pipeline, batch)  # type: ignore[arg-type] # nothing is asked of it
        counts.append(len(sent))
    assert [1, 1, 2, 2, 3] == counts
    for spark, error in (
        ("spark", LockedError("in use")),
        ("gone", ConnectionRefusedError("111")),
        ("spark", OSError("no space")),
    ):
        alarm.stopped(spark, pipeline, error)  # type: ignore[arg-type]
    assert ["ConnectionRefusedError: 111", "OSError: no space"] == sent[3:]


def test_a_run_whose_java_was_killed_is_said(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system kills Java where memory is short, at night; the run ended and nobody was told."""
    world = World(monkeypatch, AlertTarget(hook.url))
    monkeypatch.setattr(alerts, "is_usable", lambda _spark: False)
    AlertSender(output.warning).stopped("gone", world.pipeline, StoppedError("Java has ended"))  # type: ignore[arg-type]
    assert ["Java has ended"] == [alert["text"] for alert in hook.bodies[0]["alerts"]]


def test_the_lake_keeps_no_address(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who may read the lake must not be able to write into the team's channel."""
    world = World(monkeypatch, AlertTarget(hook.url))
    world.run(HELD)
    assert "S3CRET" not in repr(world.kept)
    assert "S3CRET" not in repr(world.pipeline)
    assert isinstance(world.kept[0], Decision)


def test_data_drives_no_channel_and_secrets_stay(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table's name could notify the whole channel, end the line, or reverse it."""
    world = World(monkeypatch, AlertTarget(hook.url, "slack"))
    evil = Problem("<!channel>\n\x1b[2J\u202e", ERROR, f"failed at {hook.url} <http://x|click> {'a' * 9000}")
    world.run(evil)
    text = hook.bodies[0]["text"]
    assert not set("\x1b\u202e<>") & set(text)
    assert "S3CRET" not in text
    assert len(text) < 2000
    assert 3 == len(text.splitlines())


def test_a_thousand_causes_are_one_short_message(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    """One statement may hold every table of a database."""
    world = World(monkeypatch, AlertTarget(hook.url))
    world.run(*(Problem(f"t{n}", ERROR, "held") for n in range(1000)))
    assert (1, 50, 950) == (len(hook.bodies), len(hook.bodies[0]["alerts"]), hook.bodies[0]["more"])
    world.run(*(Problem(f"t{n}", ERROR, "held") for n in range(1000)))
    assert 1 == len(hook.bodies)


def test_mail(mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Not every team has a channel; a login is not sent in plain text."""
    port = mailbox.server_address[1]
    target = AlertTarget(
        email=("a@example.com", "b@example.com"), smtp=f"smtp://127.0.0.1:{port}", sender="i@example.com"
    )
    World(monkeypatch, target).run(HELD)
    (letter,) = mailbox.letters
    assert "To: a@example.com, b@example.com" in letter
    assert "Subject: [ingest] shop: 1 trouble" in letter
    assert "ERROR shop.orders: The table is held: it has no key" in letter
    target = AlertTarget(
        email=("a@example.com",), smtp=f"smtp://me:pass@127.0.0.1:{port}", sender="i@example.com"
    )
    World(monkeypatch, target).run(HELD)
    assert 1 == len(mailbox.letters)
    assert "in the clear" in capsys.readouterr().err


def test_causes_are_what_the_report_lists_and_age_is_as_of_now(tmp_path: Path) -> None:
    """A stream that has stopped makes no run that could check it."""
    old = dt.datetime.now(dt.UTC) - dt.timedelta(days=3)
    checks = [("rows", "pass", None), ("freshness", "pass", "3600.0"), ("key_unique", "fail", "0.0")]
    write_deltalake(
        str(tmp_path / "checks"),
        pa.table(
            {
                "batch": [1] * 3, "mirror": ["shop.orders"] * 3, "check": [one[0] for one in checks],
                "state": [one[1] for one in checks], "threshold": pa.array([one[2] for one in checks], pa.string()),
                "severity": ["error"] * 3, "observed": [1.0, 60.0, 2.0], "detail": ["", "", "2 keys stand twice"],
                "checked_at": [old] * 3, "run": ["r"] * 3,
            }
        ),
    )  # fmt: skip
    write_deltalake(
        str(tmp_path / "books"),
        pa.table(
            {
                "batch": [1], "source": ["s"], "database": ["shop"], "table": ["orders"], "changes": [4],
                "event_high": [old],
            }
        ),
    )  # fmt: skip
    write_deltalake(
        str(tmp_path / "runs"),
        pa.table(
            {
                "run": ["r"] * 3, "pipeline": ["p"] * 3, "batch": [1] * 3, "stage": ["gold", "alarm", "alarm"],
                "subject": pa.array([None, "shop.orders", "s"], pa.string()), "state": ["done", "alarm", "alarm"],
                "started_at": [old] * 3, "seconds": [1.0] * 3, "counts": ["{}"] * 3,
                "message": ["", "shop.orders: 2 keys stand twice", "source s: offsets 5 to 12 are gone"],
            }
        ),
    )  # fmt: skip
    limits = (QualityRule("shop.orders", freshness=3600.0),)
    sources = (Source("s", "files", "dts-canal"),)
    lake = LakeReader(Pipeline("p", Path("/p.yaml"), str(tmp_path), sources, quality=limits))
    found = {one.subject: one for one in problems_of(lake)}
    assert {
        "shop.orders: The newest change is old", "shop.orders: Keys are there more than once",
        "last run: alarm 1",
    } == set(found)  # fmt: skip
    assert "3 days" in found["shop.orders: The newest change is old"].text


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("{webhook: ftp://x/y}", "write an address such as https://"),
        ("{webhook: 'https://x/y', email: [a@b]}", "either webhook or email"),
        ("{}", "either webhook or email"),
        ("{email: [a@b]}", "needs the mail server"),
        ("{email: [a@b], smtp: mail.example.com, sender: c@d}", "write the mail server as smtp://host:25"),
        ("{webhook: 'https://x/y', style: teams}", "teams"),
    ],
)
def test_bad_entries_are_refused_with_their_place(tmp_path: Path, entry: str, said: str) -> None:
    """An alert that goes nowhere is found out on the night when it is needed."""
    file = tmp_path / "p.yaml"
    file.write_text(
        f"pipeline: p\nlake: ./lake\nengine: auto\nsources: [{{name: s, path: ./x, format: dts-canal}}]\nalerts:\n  - {entry}\n",
        "utf-8",
    )
    with pytest.raises(ConfigError, match=said) as caught:
        load(file)
    assert f"{file}:6:" in str(caught.value)


def test_a_sample_is_sent_on_request(hook: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A typing error in the address shows before the night."""
    file = tmp_path / "p.yaml"
    text = "pipeline: p\nlake: ./lake\nengine: auto\nsources: [{name: s, path: ./x, format: dts-canal}]\n"
    file.write_text(text, "utf-8")
    assert 2 == CliRunner().invoke(app, ["alerts", str(file), "--test"]).exit_code
    monkeypatch.setenv("HOOK", hook.url)
    file.write_text(text + "alerts: [{webhook: '${HOOK}'}]\n", "utf-8")
    done = CliRunner().invoke(app, ["alerts", str(file), "--test", "-o", "json"])
    assert (0, [("sent", "")]) == (
        done.exit_code,
        [(one["state"], one["error"]) for one in json.loads(done.stdout)],
    )
    assert [[(FIRING, "sample")]] == [said(body) for body in hook.bodies]
    hook.status = 404
    done = CliRunner().invoke(app, ["alerts", str(file), "--test"])
    assert (1, True) == (done.exit_code, "webhook of 127.0.0.1" in done.stdout and "404" in done.stdout)
