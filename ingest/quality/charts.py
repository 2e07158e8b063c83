"""Small charts of a mirror, and of a whole lake, for the report and the pages: inline SVG that needs no script, with the numbers in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from ingest.errors import counted
from ingest.quality.report_model import TREND, DdlFact, RunFact, TableFact
from ingest.quality.trends import BatchTrend

_PROVEN = "Share of changes proven by the next one"
_WIDTH, _HEIGHT = 180, 44
_STRIP, _DOT = 600, 5  # of a timeline, and the radius of what it shows


class Chart(NamedTuple):
    """A number over the last batches, the oldest first; bars count what one batch did, a line shows a level."""

    label: str
    values: Sequence[float]
    in_words: Callable[[float], str]
    bars: bool = False

    @property
    def said(self) -> str:
        """What the chart shows, for whoever does not see it."""
        low, high, last = (
            self.in_words(value) for value in (min(self.values), max(self.values), self.values[-1])
        )
        return f"{self.label} over the last {counted(len(self.values), 'batch', 'batches')}: from {low} to {high}, now {last}"


def charts(
    table: TableFact, number: Callable[[float], str], duration: Callable[[float], str]
) -> Iterator[Chart]:
    """The charts of a mirror that has had several batches; ``number`` and ``duration`` put values into words."""
    applied = [float(batch.applied) for batch in reversed(table.batches)]
    yield from _drawable(
        Chart("Rows", _of_check(table, "rows"), number),
        Chart("Changes", applied[-TREND:], number, bars=True),
        Chart("Lag when checked", _of_check(table, "freshness"), duration),
        Chart("Cells rejected", _of_check(table, "cell_rejects"), number, bars=True),
        Chart(_PROVEN, _shares(table), share),
    )


def charts_of_lake(
    batches: Sequence[BatchTrend],
    runs: Sequence[RunFact],
    number: Callable[[float], str],
    duration: Callable[[float], str],
) -> Iterator[Chart]:
    """The charts of a lake that has had several batches.

    Args:
        batches: what was measured, the oldest first.
        runs: the last runs, the newest first; those that read nothing have no bar.
        number: puts a count into words.
        duration: puts seconds into words.
    """
    counts = [run.counts for run in reversed(runs) if run.batch is not None][-TREND:]
    yield from _drawable(
        Chart("Rows in all mirrors", [batch.rows for batch in batches], number),
        Chart("Changes", [float(count.get("changes", 0)) for count in counts], number, bars=True),
        Chart("Lag when checked", [batch.lag for batch in batches if batch.lag is not None], duration),
        Chart("Messages rejected", [float(count.get("rejected", 0)) for count in counts], number, bars=True),
        Chart("Cells rejected", [batch.cells for batch in batches], number, bars=True),
        Chart(_PROVEN, [batch.proven for batch in batches if batch.proven is not None], share),
    )


def _drawable(*charts: Chart) -> Iterator[Chart]:
    """Those of several batches."""
    return (chart for chart in charts if len(chart.values) > 1)


def _of_check(table: TableFact, name: str) -> Sequence[float]:
    check = table.check(name)
    return check.trend[-TREND:] if check else ()


def _shares(table: TableFact) -> list[float]:
    """The share of proven changes batch by batch; an older version did not count what it compared."""
    proven, compared = _of_check(table, "changes_proven"), _of_check(table, "changes_compared")
    batches = min(len(proven), len(compared))
    pairs = zip(proven[len(proven) - batches :], compared[len(compared) - batches :], strict=True)
    return [true / of for true, of in pairs if of]


def share(value: float) -> str:
    """A share in percent, rounded down: all but one of very many is not all."""
    return f"{math.floor(value * 1000) / 10:g}%"


def drawn(chart: Chart) -> Markup:
    """A chart as SVG; what it shows is its name."""
    high = max(*chart.values, 0.0) or 1.0
    low = min(chart.values)
    if chart.bars or low == high:  # a level that stays is not drawn as none
        low = 0.0
    span = (high - low) or 1.0
    heights = [(value - low) / span * (_HEIGHT - 6) for value in chart.values]
    shapes = _bars(heights) if chart.bars else _line(heights)
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        _WIDTH, _HEIGHT, chart.said, shapes
    )


def _bars(heights: Sequence[float]) -> Markup:
    step = _WIDTH / len(heights)
    return Markup("").join(
        Markup('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
            i * step + step * 0.1, _HEIGHT - 2 - max(height, 1), step * 0.8, max(height, 1)
        )
        for i, height in enumerate(heights)
    )


def _line(heights: Sequence[float]) -> Markup:
    step = (_WIDTH - 6) / (len(heights) - 1)
    points = [(3 + i * step, _HEIGHT - 3 - height) for i, height in enumerate(heights)]
    x, y = points[-1]
    return Markup('<polyline points="{}"/><circle cx="{:.1f}" cy="{:.1f}" r="2.4"/>').format(
        " ".join(f"{across:.1f},{down:.1f}" for across, down in points), x, y
    )


def timeline(statements: Iterable[DdlFact], last: int | None) -> Markup:
    """The batches in which a table's columns changed, on a line from the first of them to the ``last`` batch."""
    dated = sorted(
        (statement for statement in statements if not statement.is_idle),
        key=lambda statement: statement.batch,
    )
    if not dated:
        return Markup("")
    first, last = dated[0].batch, max(last or 0, dated[-1].batch)
    step = (_STRIP - 4 * _DOT) / max(1, last - first)
    dots = Markup("").join(
        Markup('<circle class="{}" cx="{:.1f}" cy="10" r="{}"><title>{}</title></circle>').format(
            "waits" if statement.pending else "done",
            2 * _DOT + (statement.batch - first) * step,
            _DOT,
            f"batch {statement.batch}: {statement.statement or statement.kind}",
        )
        for statement in dated
    )
    waiting = sum(statement.pending for statement in dated)
    said = f"{counted(len(dated), 'schema change')} from batch {first} to batch {last}" + (
        f", {counted(waiting, 'of them waits', 'of them wait')} for a decision" if waiting else ""
    )
    return Markup(
        '<svg class="strip" viewBox="0 0 {0} 32" role="img" aria-label="{1}"><line x1="{2}" x2="{3}" y1="10" y2="10"/>{4}'
        '<text x="{2}" y="29">batch {5}</text><text class="end" x="{3}" y="29">batch {6}</text></svg>'
    ).format(_STRIP, escape(said), 2 * _DOT, _STRIP - 2 * _DOT, dots, first, last)
