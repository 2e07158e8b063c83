"""Render the report: one self-contained HTML file without network, scripts or fonts.

All data passes through Jinja2's autoescape; colours never stand alone: each state also has a word and a sign.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from ingest.errors import counted
from ingest.quality.catalogue import (
    CHECKS,
    ERROR,
    FAIL,
    FOLD_FAILED,
    HELD,
    LAST_RUN,
    PASS,
    WARN,
    duration,
    explained,
    number,
    shown,
)  # fmt: skip
from ingest.quality.facts import TREND, CheckFact, Facts, SourceFact, TableFact

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
class Problem:
    """One complaint in plain words."""

    light: str
    subject: str
    anchor: str
    title: str
    text: str
    advice: str = ""
    since: dt.datetime | None = None
    check: str = ""  # the check that found it, if one did


@dataclass(slots=True)
class Page:
    """The template's input."""

    facts: Facts
    rows: list[ReportRow]
    sources: list[ReportRow]
    problems: list[Problem]
    counts: dict[str, int]
    headline: str
    verdict: str
    light: str
    tiles: list[tuple[str, str, str, Sequence[float]]] = field(default_factory=list)
    full: bool = True


def render(made: Page) -> str:
    """The whole report as HTML."""
    template = environment().get_template("report.html.j2")
    return template.render(page=made, facts=made.facts, now=made.facts.now).translate(UNSEEN)


def page(facts: Facts, also: Sequence[Problem] = ()) -> Page:
    """Decide the page's content before layout; ``also`` are problems regardless of the checks."""
    rows = [_row(table, f"t{i}") for i, table in enumerate(facts.tables)]
    rows.sort(key=lambda row: (_WORST.index(row.light), row.fact.name))
    sources = [_source_row(source, f"s{i}") for i, source in enumerate(facts.sources)]
    problems = sorted([*_problems(rows, sources, facts), *also], key=lambda one: _WORST.index(one.light))
    counts = {light: sum(row.light == light for row in rows) for light in LIGHTS}
    light = next((one for one in _WORST if any(row.light == one for row in [*rows, *sources])), "none")
    if any(one.light == "bad" for one in problems):
        light = "bad"
    made = Page(
        facts, rows, sources, problems, counts, _headline(counts, len(rows), _unread(facts)),
        _verdict(facts, problems), light,
    )  # fmt: skip
    made.tiles = _tiles(facts)
    made.full = len(rows) <= FULL_DETAIL
    return made


def _row(table: TableFact, anchor: str) -> ReportRow:
    checks = sorted(table.checks, key=lambda one: (_ORDER.get(one.state, 0), _rank(one.check)))
    light = _light(checks)
    stuck = table.batches and table.batches[0].state in ("failed", "held")
    if table.stale and light == "good":
        return ReportRow(table, "none", anchor, checks, "Changed since its check")
    if stuck:
        return ReportRow(table, "bad", anchor, checks, table.batches[0].state.capitalize())
    return ReportRow(table, light, anchor, checks, LIGHTS[light])


def _source_row(source: SourceFact, anchor: str) -> ReportRow:
    checks = sorted(source.checks, key=lambda one: _ORDER.get(one.state, 0))
    return ReportRow(source, _light(checks), anchor, checks, LIGHTS[_light(checks)])


def _rank(check: str) -> int:
    """Built-in checks in the order of their list, the user's own after them."""
    names = list(CHECKS)
    return names.index(check) if check in CHECKS else len(names)


def _light(checks: Sequence[CheckFact]) -> str:
    lights = {_check_light(one) for one in checks}
    return next((one for one in _WORST if one in lights), "none")


def _check_light(check: CheckFact) -> str:
    """An expectation that could not be judged is as bad as its severity says."""
    if check.state == ERROR and check.severity == "warn":
        return "warn"
    return _STATE_LIGHTS.get(check.state, "bad")


def _problems(rows: Sequence[ReportRow], sources: Sequence[ReportRow], facts: Facts) -> list[Problem]:
    found = [_stuck(row) for row in rows if row.word in ("Held", "Failed")]
    for row in [*rows, *sources]:
        kind = "" if isinstance(row.fact, TableFact) else "source "
        for check in row.checks:
            if check.state == PASS or (check.check == "up_to_date" and row.word in ("Held", "Failed")):
                continue
            found.append(_problem(row, kind + row.fact.name, check))
    for alarm in facts.runs[0].alarms if facts.runs else ():
        if not any(alarm.startswith(f"{one.subject}") for one in found):
            found.append(Problem("bad", LAST_RUN, "runs", "The last run raised an alarm", alarm))
    return sorted(found, key=lambda one: _WORST.index(one.light))


def _stuck(row: ReportRow) -> Problem:
    last = row.fact.batches[0]
    title = HELD if last.state == "held" else FOLD_FAILED
    advice = "Its changes wait in the lake and are applied by the first run after this is repaired."
    return Problem("bad", row.fact.name, row.anchor, title, last.message, advice, last.at)


def _problem(row: ReportRow, subject: str, check: CheckFact) -> Problem:
    known = CHECKS.get(check.check)
    return Problem(
        _check_light(check),
        subject,
        row.anchor,
        title(check),
        words(check),
        known.advice if known else "",
        check.bad_since,
        check.check,
    )


def title(check: CheckFact) -> str:
    """A check's claim, or what is wrong if it does not hold, with its column if it has one."""
    known = CHECKS.get(check.check)
    claim = known and (known.title if check.state == PASS else known.fault)
    name = claim or check.check.removeprefix("expect_").replace("_", " ").capitalize()
    return f"{name}: {check.column}" if check.column else name


def words(check: CheckFact) -> str:
    """The finding in a sentence."""
    if check.check not in CHECKS:
        return check.detail
    if check.detail and check.state != PASS:
        return f"{check.detail[:1].upper()}{check.detail[1:]}"
    return explained(check.check, check.observed, check.limit)


def asks(check: CheckFact) -> str:
    """What a check counts or measures."""
    known = CHECKS.get(check.check)
    return f"{known.question[:1].upper()}{known.question[1:]}" if known else check.detail


def observed(check: CheckFact) -> str:
    """The observed value with its unit."""
    known = CHECKS.get(check.check)
    return shown(check.observed, known.unit if known else "count")


def state_word(check: CheckFact) -> str:
    """The verdict in a word; a number without a limit is shown, not judged."""
    if check.state == PASS and check.limit is None and check.check in CHECKS:
        return "Measured"
    return STATE_WORDS.get(check.state, check.state)


def limit(check: CheckFact) -> str:
    """The highest accepted value; a dash if there is none."""
    known = CHECKS.get(check.check)
    return "–" if check.limit is None else shown(check.limit, known.unit if known else "count")


def _unread(facts: Facts) -> int:
    """Open rejects of messages: each may belong to any table."""
    return sum(one.count for one in facts.rejects if one.kind == "message")


def _headline(counts: dict[str, int], tables: int, unread: int) -> str:
    if not tables:
        return "There is no table yet."
    bad, warn, unchecked = counts["bad"], counts["warn"], counts["none"]
    if bad:
        return (
            f"{_tables(bad)} of {tables:,} cannot be trusted right now."
            if tables > 1
            else "The table cannot be trusted right now."
        )
    if unchecked == tables:
        return "Nothing has been checked yet."
    if warn:
        return (
            f"{_tables(warn)} of {tables:,} {'needs' if warn == 1 else 'need'} a look."
            if tables > 1
            else "The table needs a look."
        )
    if unchecked:
        return f"{_tables(tables - unchecked)} of {tables:,} can be trusted; the others are not checked."
    if unread:
        whole = f"All {tables:,} tables agree" if tables > 1 else "The table agrees"
        return f"{whole} with what could be read; {counted(unread, 'message')} could not be, and may belong to any table."
    return f"All {tables:,} tables can be trusted." if tables > 1 else "The table can be trusted."


def _tables(count: int) -> str:
    return f"{count:,} table" if count == 1 else f"{count:,} tables"


def _verdict(facts: Facts, problems: Sequence[Problem]) -> str:
    if not facts.runs:
        return "No run has been recorded."
    last = facts.runs[0]
    batch = f"Batch {last.batch:,}" if last.batch is not None else "The last run"
    ended = (
        "no check complains"
        if not problems
        else f"{len(problems):,} complaint{'' if len(problems) == 1 else 's'}"
    )
    return f"{batch} ended {duration((facts.now - last.at).total_seconds())} ago: {ended}."


def _tiles(facts: Facts) -> list[tuple[str, str, str, Sequence[float]]]:
    """Label, value, remark and trend of the numbers at the top."""
    runs = list(reversed(facts.runs))
    rows = [check for table in facts.tables if (check := table.check("rows"))]
    lags = [(facts.now - table.newest).total_seconds() for table in facts.tables if table.newest]
    last = facts.runs[0] if facts.runs else None
    pending = sum(one.pending for table in facts.tables for one in table.ddl)
    rejected = sum(one.count for one in facts.rejects)
    trends = {name: [run.counts.get(name, 0) for run in runs] for name in ("read", "changes")}
    return [
        (
            "Tables",
            number(len(facts.tables)),
            f"{len(facts.sources)} source{'' if len(facts.sources) == 1 else 's'}",
            (),
        ),
        (
            "Rows",
            number(sum(one.observed for one in rows)),
            "in all mirrors",
            _sum_of([one.trend for one in rows]),
        ),
        (
            "Newest change",
            duration(min(lags)) if lags else "–",
            "ago, at the source" if lags else "no commit times",
            (),
        ),
        (
            "Read",
            number(last.counts.get("read", 0)) if last else "–",
            "messages in the last run",
            trends["read"],
        ),
        (
            "Changes",
            number(last.counts.get("changes", 0)) if last else "–",
            "in the last run",
            trends["changes"],
        ),
        ("Rejects", number(rejected), "wait, of all batches", ()),
        ("Schema changes", number(pending), "wait for a decision", ()),
    ]


def _sum_of(trends: Sequence[Sequence[float]]) -> Sequence[float]:
    """The sum of trends of equal length; trends of different lengths belong to different runs."""
    lengths = {len(one) for one in trends}
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


def moment(at: dt.datetime | None) -> str:
    """A time for display, in UTC."""
    return "–" if at is None else at.strftime("%Y-%m-%d %H:%M")


@cache
def environment(*packages: str) -> jinja2.Environment:
    """The environment of the report's templates; templates of other packages, which share its parts, come first."""
    import jinja2  # the problems that a page lists are asked for by verbs that draw none

    found = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(one) for one in (*packages, "ingest.quality")]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    found.filters.update(
        spark=spark, sign=sign, moment=moment, duration=duration, number=number, title_of=title, words=words,
        observed=observed, limit=limit, asks=asks, word_of=state_word, light_of=_check_light, ticks=ticks,
    )  # fmt: skip
    found.globals.update(most=MOST_PROBLEMS)
    return found
