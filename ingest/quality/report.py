"""Render the report: one self-contained HTML file without network, scripts or fonts.

All data passes through Jinja2's autoescape; each state has a word and a sign besides its colour.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from ingest.errors import agreeing, capitalised, counted
from ingest.quality.catalogue import (
    CHECKS,
    ERROR,
    FAIL,
    FOLD_FAILED,
    HELD,
    LAST_RUN,
    PASS,
    WARN,
    advice,
    duration,
    explained,
    number,
    shown,
)  # fmt: skip
from ingest.quality.charts import charts, drawn, timeline
from ingest.quality.report_model import TREND, AlarmFact, CheckFact, Facts, RunFact, TableFact

if TYPE_CHECKING:
    import jinja2

LIGHTS = {"bad": "Failing", "warn": "Warning", "good": "Good", "none": "Not checked"}
_WORST = ("bad", "warn", "none", "good")
_CONTROLS = {*range(0x20), *range(0x7F, 0xA0)} - {0x09, 0x0A, 0x0D}
_DIRECTIONS = {*range(0x202A, 0x202F), *range(0x2066, 0x206A)}
UNSEEN = {code: f"\\u{code:04x}" for code in _CONTROLS | _DIRECTIONS}
"""Replace invisible characters of names and values, and those that change the text's direction, by their codes."""
STATE_WORDS = {PASS: "Passed", WARN: "Warns", FAIL: "Failed", ERROR: "No answer"}
_STATE_LIGHTS = {PASS: "good", WARN: "warn", FAIL: "bad", ERROR: "bad"}
_ORDER = {ERROR: 0, FAIL: 1, WARN: 2, PASS: 3}
MOST_PROBLEMS = 60
FULL_DETAIL = 150  # with more tables, passed ones take one line each


@dataclass(slots=True)
class ReportRow:
    """One subject on the page: its light, its anchor, and its checks with the worst first."""

    fact: Any
    light: str
    anchor: str
    checks: list[CheckFact]
    word: str = ""


@dataclass(slots=True)
class Complaint:
    """One complaint in plain words."""

    light: str
    subject: str
    anchor: str
    title: str
    text: str
    advice: str = ""
    since: dt.datetime | None = None
    check: str = ""  # the check that found it, if one did
    statement: str = ""  # the id of the statement whose decision settles it
    command: str = ""  # that repairs it; empty if there is none for just this
    about: str = ""  # of an alarm of the last run: the mirror or source


@dataclass(slots=True)
class Page:
    """The template's input."""

    facts: Facts
    rows: list[ReportRow]
    sources: list[ReportRow]
    problems: list[Complaint]
    counts: dict[str, int]
    headline: str
    verdict: str
    light: str
    tiles: Sequence[tuple[str, str, str, Sequence[float]]]  # label, value, remark and trend
    full: bool
    common: frozenset[
        str
    ]  # what every table passes without a finding, by title: said once where tables are many


def render(made: Page) -> str:
    """The whole report as HTML."""
    template = environment().get_template("report.html.j2")
    return template.render(page=made, facts=made.facts, now=made.facts.now).translate(UNSEEN)


def page(facts: Facts, also: Sequence[Complaint] = ()) -> Page:
    """Decide the page's content before layout; ``also`` are problems regardless of the checks."""
    rows = [_row(table, f"t{i}") for i, table in enumerate(facts.tables)]
    for row in rows:
        _darken(row, also)
    rows.sort(key=lambda row: (_WORST.index(row.light), row.fact.name))
    sources = []
    for i, source in enumerate(facts.sources):
        checks = sorted(source.checks, key=lambda check: _ORDER.get(check.state, 0))
        sources.append(ReportRow(source, _light(checks), f"s{i}", checks, LIGHTS[_light(checks)]))
    problems = sorted(
        [*_problems(rows, sources, facts), *also], key=lambda complaint: _WORST.index(complaint.light)
    )
    counts = {light: sum(row.light == light for row in rows) for light in LIGHTS}
    light = next((light for light in _WORST if any(row.light == light for row in [*rows, *sources])), "none")
    if any(problem.light == "bad" for problem in problems):
        light = "bad"
    unread = sum(
        reject.count for reject in facts.rejects if reject.kind == "message"
    )  # each may belong to any table
    names = {row.fact.name for row in rows}
    of_lake = sum(problem.light == "bad" and problem.subject not in names for problem in also)
    headline = _headline(counts, len(rows), unread, of_lake)
    verdict = _verdict(facts, problems)
    full = len(rows) <= FULL_DETAIL
    return Page(
        facts, rows, sources, problems, counts, headline, verdict, light, _tiles(facts), full, _common(rows)
    )


def _darken(row: ReportRow, also: Sequence[Complaint]) -> None:
    """Give a row the worst light of the problems that are known of its table regardless of the checks."""
    lights = [problem.light for problem in also if problem.subject == row.fact.name]
    light = min([row.light, *lights], key=_WORST.index)
    if light != row.light:
        row.light, row.word = light, LIGHTS[light]


def _common(rows: Sequence[ReportRow]) -> frozenset[str]:
    """The titles of the checks that every checked table passes, and that find nothing in any."""
    passed = [
        {title(check) for check in row.checks if check.state == PASS and not check.observed}
        for row in rows
        if row.checks
    ]
    return frozenset.intersection(*map(frozenset, passed)) if passed else frozenset()


def _row(table: TableFact, anchor: str) -> ReportRow:
    ranks = {name: i for i, name in enumerate(CHECKS)}  # the user's own come last
    checks = sorted(
        table.checks, key=lambda check: (_ORDER.get(check.state, 0), ranks.get(check.check, len(ranks)))
    )
    light = _light(checks)
    stuck = table.batches and table.batches[0].state in ("failed", "held")
    if table.stale and light == "good":
        return ReportRow(table, "none", anchor, checks, "Changed since its check")
    if stuck:
        return ReportRow(table, "bad", anchor, checks, table.batches[0].state.capitalize())
    return ReportRow(table, light, anchor, checks, LIGHTS[light])


def _light(checks: Sequence[CheckFact]) -> str:
    lights = {_check_light(check) for check in checks}
    return next((light for light in _WORST if light in lights), "none")


def _check_light(check: CheckFact) -> str:
    """An expectation that could not be judged is as bad as its severity says."""
    if check.state == ERROR and check.severity == "warn":
        return "warn"
    return _STATE_LIGHTS.get(check.state, "bad")


def _problems(rows: Sequence[ReportRow], sources: Sequence[ReportRow], facts: Facts) -> list[Complaint]:
    complaints = []
    for row in rows:
        if row.word in ("Held", "Failed"):
            last = row.fact.batches[0]
            advice = "Its changes wait in the lake and are applied by the first run after this is repaired."
            claim = HELD if last.state == "held" else FOLD_FAILED
            complaints.append(
                Complaint("bad", row.fact.name, row.anchor, claim, last.message, advice, last.at)
            )
    for row in [*rows, *sources]:
        subject = row.fact.name if isinstance(row.fact, TableFact) else _of_source(row.fact.name)
        for check in row.checks:
            if check.state == PASS or (check.check == "up_to_date" and row.word in ("Held", "Failed")):
                continue
            complaints.append(_problem(facts, row, subject, check))
    complaints += _alarms(rows, facts)
    return sorted(complaints, key=lambda complaint: _WORST.index(complaint.light))


def _alarms(rows: Sequence[ReportRow], facts: Facts) -> Iterator[Complaint]:
    """The last run's alarms, without those of mirrors of which something is listed that says the same.

    A source has alarms of its own, as of a file that shrank, whatever else is wrong with it.
    """
    listed = {row.fact.name for row in rows for check in row.checks if check.state != PASS}
    listed |= {row.fact.name for row in rows if row.word in ("Held", "Failed")}
    for alarm in facts.runs[0].alarms if facts.runs else ():
        if alarm.subject not in listed:
            since, claim = _since(facts.runs, alarm), "The last run raised an alarm"
            yield Complaint("bad", LAST_RUN, "runs", claim, alarm.text, since=since, about=alarm.subject)


def _since(runs: Iterable[RunFact], alarm: AlarmFact) -> dt.datetime:
    """When the first of the last runs was that all raised this alarm; the newest run, which did, is first."""
    return [run.at for run in takewhile(lambda run: alarm in run.alarms, runs)][-1]


def _of_source(name: str) -> str:
    """The subject of a source's complaints."""
    return f"source {name}"


def _problem(facts: Facts, row: ReportRow, subject: str, check: CheckFact) -> Complaint:
    mirror = row.fact.name if isinstance(row.fact, TableFact) else ""
    way_out = advice(check.check, facts.file, mirror)
    light, name = _check_light(check), check.check
    return Complaint(
        light,
        subject,
        row.anchor,
        title(check),
        words(check),
        way_out,
        check.bad_since,
        name,
        check.statement,
        check.command,
    )


def title(check: CheckFact) -> str:
    """A check's claim, or what is wrong if it does not hold, with its column if it has one."""
    kind = CHECKS.get(check.check)
    claim = kind and (kind.title if check.state == PASS else kind.fault)
    name = claim or check.check.removeprefix("expect_").replace("_", " ").capitalize()
    return f"{name}: {check.column}" if check.column else name


def words(check: CheckFact) -> str:
    """The finding in a sentence."""
    if check.check not in CHECKS:
        return check.detail
    if check.detail and check.state != PASS:
        return capitalised(check.detail)
    return explained(check.check, check.observed, check.limit)


def asks(check: CheckFact) -> str:
    """What a check counts or measures."""
    kind = CHECKS.get(check.check)
    return capitalised(kind.question) if kind else check.detail


def observed(check: CheckFact) -> str:
    """The observed value with its unit."""
    kind = CHECKS.get(check.check)
    return shown(check.observed, kind.unit if kind else "count")


def state_word(check: CheckFact) -> str:
    """The verdict in a word; a number without a limit is shown, not judged."""
    if check.state == PASS and check.limit is None and check.check in CHECKS:
        return "Measured"
    return STATE_WORDS.get(check.state, check.state)


def limit(check: CheckFact) -> str:
    """The highest accepted value; a dash if there is none."""
    kind = CHECKS.get(check.check)
    return "–" if check.limit is None else shown(check.limit, kind.unit if kind else "count")


def _headline(counts: dict[str, int], tables: int, unread: int, of_lake: int) -> str:
    bad, warn, unchecked = counts["bad"], counts["warn"], counts["none"]

    def of_tables(count: int) -> str:
        return f"{counted(count, 'table')} of {tables:,}" if tables > 1 else "The table"

    if not tables:
        return "There is no table yet."
    if bad:
        return f"{of_tables(bad)} cannot be trusted right now."
    if unchecked == tables:
        return "Nothing has been checked yet."
    if warn:
        return f"{of_tables(warn)} {agreeing(warn, 'needs', 'need')} a look."
    if of_lake:
        wrong = f"{counted(of_lake, 'problem of the lake needs', 'problems of the lake need')} the operator"
        return f"{wrong}; no table is known to be wrong."
    if unchecked:
        return f"{of_tables(tables - unchecked)} can be trusted; the others are not checked."
    whole = f"All {tables:,} tables" if tables > 1 else "The table"
    if unread:
        agree = "agree" if tables > 1 else "agrees"
        return f"{whole} {agree} with what could be read; {counted(unread, 'message')} could not be, and may belong to any table."
    return f"{whole} can be trusted."


def _verdict(facts: Facts, problems: Sequence[Complaint]) -> str:
    if not facts.runs:
        return "No run has been recorded."
    last = facts.runs[0]
    batch = f"Batch {last.batch:,}" if last.batch is not None else "The last run"
    ended = counted(len(problems), "complaint") if problems else "no check complains"
    return f"{batch} ended {duration((facts.now - last.at).total_seconds())} ago: {ended}."


def _tiles(facts: Facts) -> list[tuple[str, str, str, Sequence[float]]]:
    """The numbers at the top."""
    rows = [check for table in facts.tables if (check := table.check("rows"))]
    total = number(sum(row.observed for row in rows))
    lags = [(facts.now - table.newest).total_seconds() for table in facts.tables if table.newest]
    since = "at the source's clock" if lags and min(lags) <= -1 else "ago, at the source"
    age = (duration(min(lags)), since) if lags else ("–", "no commit times")

    def wait(shown: str) -> str:
        return "waits" if shown == "1" else "wait"

    runs = [run.counts for run in reversed(facts.runs)]
    trends = {name: [counts.get(name, 0) for counts in runs] for name in ("read", "changes")}
    read, changes = (number(trend[-1]) if trend else "–" for trend in trends.values())
    rejected = number(sum(reject.count for reject in facts.rejects))
    pending = number(sum(statement.pending for table in facts.tables for statement in table.ddl))
    return [
        ("Tables", number(len(facts.tables)), counted(len(facts.sources), "source"), ()),
        ("Rows", total, "in all mirrors", _sum_of([row.trend for row in rows])),
        ("Newest change", *age, ()),
        ("Read", read, "messages in the last run", trends["read"]),
        ("Changes", changes, "in the last run", trends["changes"]),
        ("Rejects", rejected, f"{wait(rejected)}, of all batches", ()),
        ("Schema changes", pending, f"{wait(pending)} for a decision", ()),
    ]


def _sum_of(trends: Sequence[Sequence[float]]) -> Sequence[float]:
    """The sum of trends of equal length; trends of different lengths belong to different runs."""
    lengths = {len(trend) for trend in trends}
    return [sum(values) for values in zip(*trends, strict=True)] if len(lengths) == 1 else ()


# --- drawing ---

_WIDTH, _HEIGHT = 64, 16
_QUOTED = re.compile(r"`([^`]+)`")


def spark(values: Sequence[float]) -> Markup:
    """A sparkline; empty if the value never changed. The numbers next to it give the same to screen readers."""
    points = list(values)[-TREND:]
    if len(set(points)) < 2:
        return Markup("")
    low, high = min(points), max(points)
    step = _WIDTH / (len(points) - 1)
    ys = [_HEIGHT - 2 - (value - low) / (high - low) * (_HEIGHT - 4) for value in points]
    line = " ".join(f"{i * step:.0f},{y:.0f}" for i, y in enumerate(ys))
    return Markup(  # noqa: S704 - numbers only
        f'<svg class="k" viewBox="-2 0 {_WIDTH + 4} {_HEIGHT}" aria-hidden="true"><polyline points="{line}"/>'
        f'<circle cx="{_WIDTH}" cy="{ys[-1]:.0f}" r="1.8"/></svg>'
    )


def sign(light: str) -> Markup:
    """The sign of a state, from the symbols at the top of the page."""
    return Markup('<svg class="i {0}" aria-hidden="true"><use href="#{0}"/></svg>').format(light)


def ticks(text: str) -> Markup:
    """Format the parts of a text between two backticks as code; a single backtick is kept."""
    parts = [
        Markup("<code>{}</code>").format(part) if i % 2 else escape(part)
        for i, part in enumerate(_QUOTED.split(text))
    ]
    return Markup("").join(parts)


def moment(when: dt.datetime | None) -> str:
    """A time for display, in UTC."""
    return "–" if when is None else when.strftime("%Y-%m-%d %H:%M")


@cache
def environment(*packages: str) -> jinja2.Environment:
    """The environment of the report's templates; templates of other packages, which share its parts, come first."""
    import jinja2  # the problems that a page lists are asked for by verbs that draw none

    templates = jinja2.Environment(
        loader=jinja2.ChoiceLoader(
            [jinja2.PackageLoader(package) for package in (*packages, "ingest.quality")]
        ),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    templates.filters.update(
        spark=spark, sign=sign, moment=moment, duration=duration, number=number, title_of=title, words=words,
        observed=observed, limit=limit, asks=asks, word_of=state_word, timeline=timeline,
        drawn=drawn, charts=lambda table: list(charts(table, number, duration)), light_of=_check_light, ticks=ticks,
    )  # fmt: skip
    templates.globals.update(most=MOST_PROBLEMS)
    return templates
