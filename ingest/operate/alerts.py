"""Alerts: what is wrong with a lake, sent once for each cause, again while it lasts, and once more when it is over.

What was sent, and to whom, is kept in the lake's `decisions` (kind ``alert``), so that the next process goes on where
this one ends.  A target that cannot be reached is a warning, never a fault of the run, and is tried again by the next.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import smtplib
import ssl
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

from ingest.config.entries import AlertTarget
from ingest.config.model import Pipeline
from ingest.config.secrets import struck
from ingest.errors import IngestError, LockedError, command, counted, first_line, visible
from ingest.inspect import problems
from ingest.inspect.problem_kinds import ERROR, WARN
from ingest.inspect.problems import LONGEST, Problem
from ingest.inspect.status import problems_of
from ingest.spark.deferred import NoSession, is_usable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ingest.tables.lake import Lake
    from ingest.tables.tables import Tables

FIRING, LASTING, OVER = "firing", "lasting", "over"
STOPPED = "run stopped"  # the cause of a run that ended in the middle
EVERY = 60.0  # seconds between two looks where nothing happens
SECONDS = 10.0  # a target that is silent for longer is not waited for
_MOST = 50  # causes in one message; the others are counted


@dataclass(frozen=True, slots=True)
class Alert:
    """What is said of a cause: that it has begun, lasts, or is over."""

    state: str
    cause: Problem
    since: dt.datetime


def listed(lake: Tables) -> list[dict[str, Any]]:
    """What is wrong now, with what was sent of it."""
    alerts_before = _known(lake)
    rows = []
    for problem in problems_of(lake):
        kept = alerts_before.get(problem.subject)
        sent = kept and max(kept["sent"].values())
        since = problem.since or (kept and kept["since"])
        rows.append({"pipeline": lake.pipeline.name, **problem.described(), "since": since, "sent": sent})
    return rows


def unusable(file: Path, fault: IngestError) -> dict[str, Any]:
    """As an entry of `listed`, that a pipeline's lake cannot be looked at; no run could have sent it."""
    problem = problems.unusable(file, fault, "alerts")
    return {"pipeline": problems.name_of(file), **problem.described(), "sent": None}


def send_samples(pipeline: Pipeline) -> list[dict[str, str]]:
    """Send a test to each target: what came of each, with an error if it did not take it.

    Raises:
        IngestError: there are no targets.
    """
    if not pipeline.alerts:
        raise IngestError(
            f"{pipeline.file} has no `alerts:`; docs/pipeline-file.md shows how they are written."
        )
    sample = Problem("sample", ERROR, "This is a test: nothing is wrong.")
    sent = []
    for target in pipeline.alerts:
        why = _refused(target, pipeline, [Alert(FIRING, sample, dt.datetime.now(dt.UTC))])
        sent.append({"target": _named(target), "state": "refused" if why else "sent", "error": why})
    return sent


# --- after a run ---------------------------------------------------------------------------------


class AlertSender:
    """Sends what `alerts:` asks for after runs; a failure of it is never a failure of the run."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn  # says what could not be sent
        self._looked: dict[Path, float] = {}

    def ran(self, spark: SparkSession, pipeline: Pipeline, batch: int | None) -> None:
        """A run has ended; where it found nothing to do, the lake is looked at once a minute."""
        now = time.monotonic()
        if batch is not None or now - self._looked.get(pipeline.file, -EVERY) >= EVERY:
            self._looked[pipeline.file] = now
            self._send(spark, pipeline)

    def stopped(self, spark: SparkSession, pipeline: Pipeline, error: Exception) -> None:
        """A run has ended in the middle, perhaps with its Java; one that only met another at work has not."""
        if not isinstance(error, LockedError):
            self._send(
                spark if is_usable(spark) else cast("SparkSession", NoSession()), pipeline, why_stopped(error)
            )

    def _send(self, spark: SparkSession, pipeline: Pipeline, stopped: str = "") -> None:
        if not pipeline.alerts:
            return
        from ingest.tables.lake import Lake

        try:
            for text in tell(Lake(spark, pipeline), stopped):
                self._warn(f"{pipeline.name}: {text}")
        except Exception as error:
            self._warn(f"{pipeline.name}: alerts could not be sent: {first_line(error)}")


def why_stopped(error: Exception) -> str:
    """What an alert says of a run that ended in the middle."""
    return str(error) if isinstance(error, IngestError) else f"{type(error).__name__}: {first_line(error)}"


def tell(lake: Lake, stopped: str = "") -> list[str]:
    """Send what has begun, lasts or is over since the last run, and why the run ended in the middle if it did.

    Returns one sentence for each target that did not take its alerts, which the next run tries again.
    """
    from ingest.ledgers import decisions
    from ingest.ledgers.decisions import ALERT, Decision

    pipeline, now = lake.pipeline, dt.datetime.now(dt.UTC)
    if not pipeline.alerts:
        return []
    before, present = _now(lake, stopped)
    kept = {name: {**before[name], "sent": dict(before[name]["sent"])} for name in before}
    refused = []
    for target in pipeline.alerts:
        if due := list(_due(target, present, kept, now)):
            if why := _refused(target, pipeline, due):
                refused.append(f"no alert was sent to {_named(target)}: {why}")
            else:
                _note(kept, _key(target), due, now)
    changed = [
        Decision(ALERT, name, state | {"state": FIRING if state["sent"] else OVER}, by=lake.run)
        for name, state in kept.items()
        if state["sent"] != before.get(name, {"sent": {}})["sent"]
    ]
    decisions.append(lake, changed)
    return refused


def _now(lake: Tables, stopped: str) -> tuple[dict[str, dict[str, Any]], dict[str, Problem]]:
    """What was sent, and what is wrong; what a run that stopped could not look at is as it was."""
    try:
        alerts_before = _known(lake)
        by_subject = {problem.subject: problem for problem in problems_of(lake) if not problem.acknowledged}
    except Exception as error:  # an unreadable lake is a problem of its own; the others are as they were
        stopped = stopped or f"the lake cannot be read: {first_line(error)}"
        return {}, {STOPPED: Problem(STOPPED, ERROR, stopped)}
    if stopped:
        for name, kept in alerts_before.items():
            by_subject.setdefault(name, Problem(name, kept["severity"], kept["text"]))
        by_subject[STOPPED] = Problem(STOPPED, ERROR, stopped)
    return alerts_before, by_subject


def _refused(target: AlertTarget, pipeline: Pipeline, due: list[Alert]) -> str:
    """Send alerts; why the target did not take them, if it did not."""
    try:
        _send(target, pipeline, due)
    except Exception as error:  # whatever a service, its network or its answer brings
        return struck(f"{type(error).__name__}: {first_line(error)}", pipeline)[:LONGEST]
    return ""


def _note(kept: dict[str, dict[str, Any]], key: str, sent: list[Alert], now: dt.datetime) -> None:
    """Keep what a target was sent."""
    for message in sent:
        new = {
            "severity": message.cause.severity,
            "text": message.cause.text,
            "since": message.since.isoformat(),
            "sent": {},
        }
        state = kept.setdefault(message.cause.subject, new)
        if message.state == OVER:
            del state["sent"][key]
        else:
            state["sent"][key] = now.isoformat()
            state["text"] = message.cause.text


def _known(lake: Tables) -> dict[str, dict[str, Any]]:
    """What was sent and was not over, by its cause."""
    from ingest.ledgers import decisions

    newest = decisions.read(lake).newest(decisions.ALERT)
    return {name: row.value for name, row in newest.items() if row.value["state"] == FIRING}


def _due(
    target: AlertTarget, present: Mapping[str, Problem], kept: Mapping[str, dict[str, Any]], now: dt.datetime
) -> Iterable[Alert]:
    """What is to be sent to a target: errors first, and what is over last."""
    key = _key(target)
    for cause in sorted(present.values(), key=lambda problem: problem.severity):
        since, sent = (kept.get(cause.subject, {}).get(name) for name in ("since", "sent"))
        since = cause.since or since
        begun = dt.datetime.fromisoformat(since) if since else now
        if not sent or key not in sent:
            if target.severity in (WARN, cause.severity):
                yield Alert(FIRING, cause, begun)
        elif target.repeat and (now - dt.datetime.fromisoformat(sent[key])).total_seconds() >= target.repeat:
            yield Alert(LASTING, cause, begun)
    for name, state in kept.items():
        if name not in present and key in state["sent"]:
            cause = Problem(name, state["severity"], state["text"])
            yield Alert(OVER, cause, dt.datetime.fromisoformat(state["since"]))


# --- sending -------------------------------------------------------------------------------------


def _key(target: AlertTarget) -> str:
    """What a target is called in the lake, which must not hold its address."""
    return hashlib.sha256("\n".join((target.webhook, *target.email)).encode()).hexdigest()[:12]


def _named(target: AlertTarget) -> str:
    return f"webhook of {urlsplit(target.webhook).hostname}" if target.webhook else ", ".join(target.email)


def _send(target: AlertTarget, pipeline: Pipeline, alerts: list[Alert]) -> None:
    """Send them as one message; any exception means that it was not taken."""
    if target.email:
        _mail(target, pipeline, alerts)
        return
    body = _slack(pipeline, alerts) if target.style == "slack" else _document(pipeline, alerts)
    request = urllib.request.Request(  # noqa: S310 - the pipeline file takes http and https alone
        target.webhook,
        json.dumps(body, ensure_ascii=False).encode(),
        {"Content-Type": "application/json", "User-Agent": "ingest"},
    )
    with urllib.request.build_opener(_NoRedirect()).open(request, timeout=SECONDS) as answer:
        answer.read(1)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Another server than the one that was named gets nothing."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """None makes the redirect an error."""


def _text(alert: Alert, pipeline: Pipeline) -> str:
    """One line, in which data cannot move the text around it, and without secrets."""
    text = struck(alert.cause.text, pipeline)
    head = {
        FIRING: alert.cause.severity.upper(),
        LASTING: f"STILL {alert.cause.severity.upper()}",
        OVER: "OVER",
    }
    return visible(f"{head[alert.state]} {alert.cause.subject}: {text}")[:LONGEST]


def _headline(pipeline: Pipeline, alerts: list[Alert]) -> str:
    begun = sum(alert.state != OVER for alert in alerts)
    parts = [counted(begun, "trouble")] if begun else []
    parts += [f"{len(alerts) - begun} over"] if begun < len(alerts) else []
    return f"{pipeline.name}: {', '.join(parts)}"


def _document(pipeline: Pipeline, alerts: list[Alert]) -> dict[str, Any]:
    return {
        "pipeline": pipeline.name,
        "file": str(pipeline.file),
        "headline": _headline(pipeline, alerts),
        "alerts": [
            {
                "state": alert.state,
                "severity": alert.cause.severity,
                "cause": visible(alert.cause.subject),
                "text": visible(struck(alert.cause.text, pipeline))[:LONGEST],
                "since": alert.since.isoformat(timespec="seconds"),
            }
            for alert in alerts[:_MOST]
        ],
        "more": max(0, len(alerts) - _MOST),
        "next": command("status", pipeline.file),
    }


def _slack(pipeline: Pipeline, alerts: list[Alert]) -> dict[str, Any]:
    """A message in Slack's text form, where ``<!channel>`` in a name would wake everybody."""
    text = _letter(pipeline, alerts).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {"text": f"*{_headline(pipeline, alerts)}*\n{text}"}


def _letter(pipeline: Pipeline, alerts: list[Alert]) -> str:
    lines = [_text(alert, pipeline) for alert in alerts[:_MOST]]
    if len(alerts) > _MOST:
        lines.append(f"and {len(alerts) - _MOST} more")
    return "\n".join([*lines, f"next: {command('status', pipeline.file)}"])


def _mail(target: AlertTarget, pipeline: Pipeline, alerts: list[Alert]) -> None:
    """Send a mail; a password never goes over the network in the clear."""
    message = EmailMessage()
    message["Subject"] = f"[ingest] {_headline(pipeline, alerts)}"
    message["From"], message["To"] = target.sender, ", ".join(target.email)
    message.set_content(_letter(pipeline, alerts))
    url, context = urlsplit(target.smtp), ssl.create_default_context()
    host = str(url.hostname)
    secure = url.scheme == "smtps"
    with (
        smtplib.SMTP_SSL(host, url.port or 465, timeout=SECONDS, context=context)
        if secure
        else smtplib.SMTP(host, url.port or 25, timeout=SECONDS)
    ) as server:
        if not secure:
            server.ehlo()
            if server.has_extn("starttls"):
                server.starttls(context=context)
                server.ehlo()
            elif url.username:
                raise IngestError(
                    f"{host} offers no STARTTLS, and a password must not be sent in the clear: write smtps://"
                )
        if url.username:
            server.login(unquote(url.username), unquote(url.password or ""))
        server.send_message(message)
