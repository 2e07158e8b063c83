"""What each page shows: facts for its template, without Spark. A page is a function of the fleet and of the address."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from ingest.change import TableId
from ingest.errors import IngestError, command, counted
from ingest.gold import approval
from ingest.gold.approval import Listed
from ingest.inspect import problems, query, status, story
from ingest.inspect.duck_query import Bounds
from ingest.ledgers import decisions, mirrors, rejects
from ingest.ledgers.decisions import PAUSE, Decision
from ingest.ledgers.raw import raw
from ingest.quality import report
from ingest.quality.catalogue import duration, number
from ingest.quality.charts import charts_of_lake
from ingest.quality.report_model import BatchFact, Facts, RunFact
from ingest.quality.trends import BatchTrend, of_batches
from ingest.result import STAGES
from ingest.serve.fleet import Fleet
from ingest.tables import duck
from ingest.tables.tables import LakeReader

PER_PAGE = 50
ROWS = 200  # of a query
BOUNDS = Bounds(10.0, 256 << 20)
AT_ONCE = 2  # queries and stories
Query = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Paged:
    """One page of a list."""

    rows: Sequence[Any]
    page: int
    pages: int
    total: int


@dataclass(slots=True)
class View:
    """A page: its template and what that is given; ``live`` is how often it is looked at again."""

    template: str
    title: str
    facts: dict[str, Any] = field(default_factory=dict)
    live: int = 5
    code: int = 200


class BusyError(IngestError):
    """Too many are asking for what takes long."""


_places = threading.BoundedSemaphore(AT_ONCE)


@contextmanager
def _place() -> Iterator[None]:
    """A place among the few that may ask for what takes long; a caller that finds none within a moment is refused."""
    if not _places.acquire(timeout=5):
        raise BusyError("Others are asking already: try again in a moment.")
    try:
        yield
    finally:
        _places.release()


def page_of(rows: Sequence[Any], asked: Query) -> Paged:
    """The rows of the page that is asked for, or of the nearest one."""
    page, pages = _page(asked, len(rows))
    return Paged(rows[(page - 1) * PER_PAGE : page * PER_PAGE], page, pages, len(rows))


def _page(asked: Query, rows: int) -> tuple[int, int]:
    """The number of the page that is asked for, or of the nearest one, and how many pages there are."""
    pages = max(1, -(-rows // PER_PAGE))
    return min(max(1, _number(asked.get("page", ""), 1)), pages), pages


def _number(text: str, otherwise: int) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else otherwise


def link(page: str, /, **words: object) -> str:
    """The address of a page. Names travel as words of the query: in a path, a browser would resolve ``..``."""
    given = {name: word for name, word in words.items() if word not in (None, "")}
    return f"/{page}?{urlencode(given, doseq=True)}" if given else f"/{page}"


# --- the fleet and a pipeline ---


def fleet(fleet: Fleet, asked: Query) -> View:
    """All pipelines, the worst first."""
    everything = fleet.states(soon=True)
    wanted = asked.get("q", "").lower()
    rows = [
        state for state in everything
        if wanted in state.name.lower() and (asked.get("show") != "bad" or state.light in ("bad", "warn"))
    ]  # fmt: skip
    bad = sum(state.light == "bad" for state in everything)
    warn = sum(state.light == "warn" for state in everything)
    reading = sum(state.being_read for state in everything)
    light = next((state.light for state in everything), "none")
    return View("fleet.html.j2", "All pipelines", {
        "all": everything, "shown": page_of(rows, asked), "light": light,
        "headline": _headline(len(everything), bad, warn, light, reading), "reading": reading,
        "tables": sum(len(state.tables) for state in everything),
        "held": sum(state.bad for state in everything),
        "rejects": sum(state.rejects for state in everything),
        "statements": sum(state.statements for state in everything),
        "failing": sum(state.failing for state in everything),
    }, live=1 if reading else 5)  # fmt: skip


def _headline(count: int, bad: int, warn: int, light: str, reading: int) -> str:
    pipelines = counted(count, "pipeline")
    if reading:
        known = f"{bad} need attention now, " if bad else ""
        return f"{pipelines}: {known}{reading} still being read."
    if bad:
        return f"{bad} of {pipelines} {'needs' if bad == 1 else 'need'} attention now."
    if warn:
        return f"{warn} of {pipelines} {'has' if warn == 1 else 'have'} something to look at."
    if light == "good":
        return f"{'All ' if count > 1 else ''}{pipelines}: nothing needs attention."
    return f"{pipelines}, none with tables yet."


def pipeline(fleet: Fleet, asked: Query) -> View:
    """One pipeline: its tables, batches and books."""
    name = asked.get("pipeline", "")
    fleet.member(name)
    state = fleet.state(name)
    facts = made = None
    flow: list[tuple[str, int]] = []
    trends: list[BatchTrend] = []
    if state.status:
        lake = fleet.lake(name)
        facts = fleet.facts(name, lake)
        made = report.page(facts)
        flow = fleet.kept(name, "flow", lake, _flow)
        trends = fleet.kept(name, "trends", lake, of_batches)
    wanted, show = asked.get("q", "").lower(), asked.get("show", "")
    rows = [
        row for row in (made.rows if made else [])
        if wanted in row.fact.name.lower() and (show != "bad" or row.light in ("bad", "warn"))
    ]  # fmt: skip
    states = {table["table"]: table for table in state.tables}
    return View("pipeline.html.j2", name, {
        "pipeline": name, "state": state, "facts": facts, "made": made, "states": states,
        "shown": page_of(rows, asked), "flow": flow, "bars": bars(facts.runs) if facts else [],
        "charts": [*charts_of_lake(trends, facts.runs, number, duration)] if facts else [],
        "tallest": max((sum(run.seconds.values()) for run in facts.runs), default=0) if facts else 0,
        "books": _books(facts) if facts else [], "stages": STAGES,
    })  # fmt: skip


def _flow(lake: LakeReader) -> list[tuple[str, int]]:
    """How many changes the last batches brought for which mirror, the most first."""
    rows = lake.ask(
        """SELECT "database", "schema", "table", CAST(sum(changes) AS BIGINT) AS n FROM {books}
        WHERE "table" IS NOT NULL AND batch > (SELECT max(batch) FROM {books}) - 30
        GROUP BY "database", "schema", "table" """
    )
    flow: dict[str, int] = {}
    for row in rows:
        source = TableId.of(row)
        for name in map(str, mirrors.names(lake.pipeline, source)):
            flow[name] = flow.get(name, 0) + row["n"]
    return sorted(((name, n) for name, n in flow.items() if n), key=lambda entry: (-entry[1], entry[0]))


def _books(facts: Facts) -> list[tuple[str, str, int]]:
    """Where the messages of the last batches went: a word, its class, and how many."""
    names = ("changes", "ddl", "control", "routed_out", "rejected", "missing")
    words = ("row changes", "DDL", "control marks", "routed out", "rejected", "missing")
    sums = [sum(getattr(line, name) for line in facts.books) for name in names]
    return [(word, name, n) for word, name, n in zip(words, names, sums, strict=True) if n]


@dataclass(frozen=True, slots=True)
class Bar:
    """A run in the timeline: its stages as boxes of a drawing 60 high."""

    run: RunFact
    x: float
    width: float
    boxes: list[tuple[str, float, float]]  # stage, y, height

    @property
    def words(self) -> str:
        """What it says to whoever points at it."""
        parts = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in self.run.seconds.items())
        batch = "no batch" if self.run.batch is None else f"batch {self.run.batch}"
        return f"{batch}, {report.moment(self.run.at)} UTC: {parts or 'nothing done'}" + (
            f"; {counted(len(self.run.alarms), 'alarm')}" if self.run.alarms else ""
        )


def bars(runs: Sequence[RunFact]) -> list[Bar]:
    """The last runs as bars, the oldest first; the longest fills the drawing."""
    ordered = list(reversed(runs))
    longest = max((sum(run.seconds.values()) for run in ordered), default=0) or 1
    width = 600 / max(20, len(ordered))
    bars = []
    for i, run in enumerate(ordered):
        y, boxes = 60.0, []
        for stage in STAGES:
            height = 56 * run.seconds.get(stage, 0.0) / longest
            y -= height
            boxes.append((stage, y, height))
        bars.append(Bar(run, i * width, width - 3, boxes))
    return bars


# --- a table and a row ---


def table(fleet: Fleet, asked: Query) -> View:
    """One mirror: freshness, checks, columns, schema changes, batches."""
    name, table = asked.get("pipeline", ""), asked.get("table", "")
    lake = fleet.lake(name)
    entry = status.named(fleet.status(name)["tables"], table)
    facts = fleet.kept(name, f"facts of {table}", lake, lambda lake: problems.gathered(lake, only=table))
    facts.look()
    made = report.page(facts)
    decided = decisions.read(lake).newest(PAUSE, decisions.RESUME)
    row = made.rows[0] if made.rows else None
    paused: Decision | None = decided.get(row.fact.path) if row else None
    quoted = ".".join(duck.name(part) for part in row.fact.id if part is not None) if row else ""
    return View("table.html.j2", table, {
        "pipeline": name, "table": table, "entry": entry, "facts": facts, "page": made, "now": facts.now,
        "row": row, "problems": _problems(made, entry), "spent": _spent(row.fact.batches if row else ()), "paused": paused if paused and paused.kind == PAUSE else None,
        "file": lake.pipeline.file,
        "all_rows": link("sql", pipeline=name, q=quoted and f"SELECT * FROM {quoted} LIMIT 100"),
    })  # fmt: skip


def _problems(made: report.Page, entry: Mapping[str, Any]) -> list[report.Complaint]:
    """What is wrong with a table, with advice; first its state, if its last checks do not say it."""
    complaints = [problem for problem in made.problems if problem.subject == entry["table"]]
    state, text = entry["state"], entry["message"]
    if state != "ok" and not any(text in problem.text for problem in complaints):
        light = "warn" if state == "paused" else "bad"
        complaints.insert(0, report.Complaint(light, entry["table"], "", state.capitalize(), text, ""))
    return complaints


def _spent(batches: Sequence[BatchFact]) -> dict[str, Any]:
    """What the shown batches took of a mirror's disk and of everybody's time, and how that went."""
    ordered = batches[::-1]
    return {
        "batches": len(batches), "seconds": sum(batch.seconds for batch in batches),
        "bytes": sum(batch.counts.get("rewritten_bytes", 0) for batch in batches),
        "cpu": sum(batch.cpu or 0.0 for batch in batches), "cpu_known": sum(batch.cpu is not None for batch in batches),
        "trends": {
            "Seconds": [batch.seconds for batch in ordered],
            "CPU seconds": [batch.cpu for batch in ordered if batch.cpu is not None],
            "Written": [batch.counts.get("rewritten_bytes", 0) for batch in ordered],
        },
    }  # fmt: skip


def row(fleet: Fleet, asked: Mapping[str, Sequence[str]]) -> View:
    """One row's whole life: raw messages, changes, the mirror's cells."""
    first = {name: values[0] for name, values in asked.items() if values}
    name, table, key = first.get("pipeline", ""), first.get("table", ""), list(asked.get("key", ()))
    lake = fleet.lake(name)
    story_of_row = explained(lake, table, key)
    names = list(
        dict.fromkeys(
            [
                *(story_of_row.folded or {}),
                *(cell for mirror_row in story_of_row.mirror_rows for cell in mirror_row),
            ]
        )
    )
    return View("row.html.j2", table, {
        "pipeline": name, "table": story_of_row.mirror, "story": story_of_row, "headline": story.headline(story_of_row),
        "light": "good" if story_of_row.equal else "bad", "names": names,
        "suspects": [story.suspect(suspect) for suspect in story_of_row.suspects],
        "changed": [set(story.changed(*event)) for event in zip(story_of_row.events, story.rows_before(story_of_row), strict=True)],
        "typed": command("explain", lake.pipeline.file, story_of_row.mirror, "--", *key),
    }, live=0)  # fmt: skip


def explained(lake: LakeReader, table: str, key: Sequence[str]) -> Any:
    """The story of a row, as `ingest explain` prints it."""
    with _place():
        from ingest.gold import explain  # Spark's packages, of which nothing else here has need

        return explain.explain(lake, table, key)


# --- what waits ---


def rejected(fleet: Fleet, asked: Query) -> View:
    """The open rejects by reason, and those of one reason."""
    name = asked.get("pipeline", "")
    lake = fleet.lake(name)
    groups = fleet.kept(name, "rejects", lake, rejects.groups)
    group = tuple(asked.get(word, "") for word in ("kind", "reason", "column")) if "kind" in asked else ()
    total = sum(
        entry["n"]
        for entry in groups
        if not group or (entry["kind"], entry["reason"], entry["column"]) == group
    )
    page, pages = _page(asked, total)
    rows = rejects.waiting(lake, group, PER_PAGE, (page - 1) * PER_PAGE)
    return View("rejects.html.j2", f"Rejects of {name}", {
        "pipeline": name, "groups": groups, "group": group, "file": lake.pipeline.file,
        "shown": Paged(rows, page, pages, total), "place_of": rejects.place_of,
        "table_name": TableId.of,
    })  # fmt: skip


def reject(fleet: Fleet, asked: Query) -> View:
    """One reject: the bytes as they came, and the decoder's complaint."""
    name = asked.get("pipeline", "")
    lake = fleet.lake(name)
    waiting = rejects.waiting(lake, (), 1, 0, number=_number(asked.get("number", ""), 0))
    if not waiting:
        raise IngestError(
            f"There is no open reject {asked.get('number', '')}: it was replayed or dismissed, or there never was one."
        )
    return View("reject.html.j2", f"Reject {waiting[0]['number']} of {name}", {
        "pipeline": name, "row": waiting[0], "fields": rejects.described(waiting[0]), "file": lake.pipeline.file,
        "raw": list(raw(lake, waiting, TableId.of(waiting[0])).values()),
    }, live=0)  # fmt: skip


def ddl(fleet: Fleet, asked: Query) -> View:
    """The DDL ledger: what waits first, with what each statement does."""
    name = asked.get("pipeline", "")
    lake = fleet.lake(name)
    listed = fleet.kept(name, "ddl", lake, approval.listed)
    pending = [entry for entry in listed if entry.pending]
    rows = (
        pending
        if asked.get("show") == "pending"
        else [*pending, *(entry for entry in reversed(listed) if not entry.pending)]
    )
    return View("ddl.html.j2", f"DDL of {name}", {
        "pipeline": name, "shown": page_of(rows, asked), "pending": len({entry.statement.id for entry in pending}),
        "light_of": _light_of, "file": lake.pipeline.file, "refusal": approval.refusal, "no_effect": approval.NO_EFFECT,
    })  # fmt: skip


def _light_of(entry: Listed) -> str:
    return "warn" if entry.pending else "none" if entry.state in ("logged", "dismissed") else "good"


def sql(fleet: Fleet, asked: Query) -> View:
    """One query, read-only, with so many rows and so much time."""
    name, text = asked.get("pipeline", ""), asked.get("q", "").strip()
    lake = fleet.lake(name)
    facts: dict[str, Any] = {
        "pipeline": name,
        "q": text,
        "batch": asked.get("batch", ""),
        "file": lake.pipeline.file,
    }
    facts |= {"columns": None, "rows": [], "lacking": [], "error": "", "most": ROWS, "seconds": 0.0}
    code = 200
    if text:
        began = time.monotonic()
        try:
            facts["columns"], facts["rows"], facts["lacking"] = queried(lake, text, asked.get("batch", ""))
        except IngestError as error:
            facts["error"], code = str(error), 503 if isinstance(error, BusyError) else 400
        facts["seconds"] = time.monotonic() - began
    else:
        facts["names"] = [str(place) for place in query.places(lake, None)[0]][:200]
    return View("sql.html.j2", f"SQL over {name}", facts, live=0, code=code)


def queried(lake: LakeReader, text: str, batch: str = "") -> query.QueryAnswer:
    """A query's first rows."""
    with _place():
        return query.query(lake, text, ROWS, _number(batch, 0) or None, BOUNDS)


PAGES: dict[str, Callable[[Fleet, Query], View]] = {
    "": fleet, "pipeline": pipeline, "table": table, "rejects": rejected, "reject": reject, "ddl": ddl, "sql": sql,
}  # fmt: skip
