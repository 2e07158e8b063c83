"""Digits of a time after the sixth, which a mirror cuts: Delta's times have microseconds, and Oracle sends up to nine digits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ingest import types
from ingest.change import lane_of
from ingest.errors import counted
from ingest.quality.catalogue import CELLS_CUT, Metric
from ingest.quality.subjects import CheckedMirror, of_some
from ingest.tables import duck
from ingest.tables.tables import Tables
from ingest.values.dates_and_times import CUT_DIGITS
from ingest.values.typed_values import fits

_CLOCK = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9][.][0-9]+"
_Columns = dict[str, str]
"""Types by column."""


def of_mirrors(lake: Tables, chosen: Iterable[CheckedMirror], since: int) -> Iterator[Metric]:
    """The cells of new changes that lose digits, by mirror; nothing for a mirror without any."""
    times = [(subject, columns) for subject in chosen if (columns := _times(subject))]
    if not times:
        return
    new = f"op <> 'delete' AND {_is_cut('after')} AND batch > {since}"
    lanes = of_some(lane for subject, _ in times for lane in subject.lanes)
    # one look at all whole images leaves nothing to take apart in most tables
    rows = lake.ask(f"SELECT DISTINCT {duck.LANE_SQL} FROM {{changes.change}} WHERE {new} AND {lanes}")
    places = {lane_of(row) for row in rows}
    for subject, columns in times:
        cut = [lane.where for lane in subject.lanes if lane.id in places]
        if cut:
            yield from _of_mirror(lake, subject, columns, f"{new} AND ({' OR '.join(cut)})")


def _times(subject: CheckedMirror) -> _Columns:
    """The columns of a mirror whose cells may be cut; none without new changes."""
    if not any(lane.changes for lane in subject.lanes):
        return {}
    return {
        column.name: column.type
        for column in subject.decided.sent
        if types.family(column.type) in ("datetime", "timestamp")
        and column.name not in subject.decided.keys  # a key that would be cut is refused
    }


def _of_mirror(lake: Tables, subject: CheckedMirror, columns: _Columns, where: str) -> Iterator[Metric]:
    of_column = {name: n for name, logical in columns.items() if (n := _cut(lake, name, logical, where))}
    if of_column:
        told = ", ".join(f"{n} of {name}" for name, n in of_column.items())
        n = sum(of_column.values())
        detail = (
            f"{counted(n, 'cell')} with more than six digits of a second, which the mirror cuts: {told}. The changes have all digits; "
            "a column that is declared `string` under columns: keeps them"
        )
        yield Metric(CELLS_CUT, n, subject.name, detail=detail)


def _cut(lake: Tables, name: str, logical: str, where: str) -> int:
    """The cells of a column that are cut: one whose text is no value of its type is rejected as a whole."""
    text = duck.member("after", name)
    # all times of a day are values, or none is
    alike = f"regexp_replace({text}, {duck.text(_CLOCK)}, '00:00:00')"
    rows = lake.ask(
        f"SELECT {alike} AS text, count(*) AS n FROM {{changes.change}} WHERE {where} AND {_is_cut(text)} GROUP BY {alike}"
    )
    return sum(row["n"] for row in rows if fits(logical, row["text"]))


def _is_cut(text: str) -> str:
    return f"regexp_matches({text}, {duck.text(CUT_DIGITS)})"
