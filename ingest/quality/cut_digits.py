"""Digits of a time after the sixth, which a mirror cuts: Delta's times have microseconds, and Oracle sends up to nine digits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ingest import types
from ingest.errors import counted
from ingest.lake import duck
from ingest.lake.lake import Lake
from ingest.quality.catalogue import CELLS_CUT, Metric
from ingest.quality.subjects import CheckedMirror
from ingest.values.dates_and_times import CUT_DIGITS


def of_mirrors(lake: Lake, chosen: Iterable[CheckedMirror], since: int) -> Iterator[Metric]:
    """The cells of new changes that lose digits, by mirror; nothing for a mirror without any."""
    for subject in chosen:
        columns = subject.decided.sent if subject.mirror is not None else ()
        names = [
            column.name
            for column in columns
            if types.family(column.type) in ("datetime", "timestamp")
            and column.name not in subject.decided.keys  # a key that would be cut is refused
        ]
        lanes = [duck.of_lane(lane.source, lane.table) for lane in subject.lanes if lane.changes]
        if names and lanes:
            yield from _of_mirror(lake, subject, names, f"batch > {since} AND ({' OR '.join(lanes)})")


def _of_mirror(lake: Lake, subject: CheckedMirror, names: list[str], where: str) -> Iterator[Metric]:
    cells = [
        f"count(*) FILTER ({_is_cut(duck.member('after', name))}) AS n{i}" for i, name in enumerate(names)
    ]
    # one look at the whole image leaves nothing to take apart in most tables
    [counts] = lake.ask(
        f"SELECT {', '.join(cells)} FROM {{changes.change}} WHERE op <> 'delete' AND {_is_cut('after')} AND {where}"
    )
    of_column = {name: counts[f"n{i}"] for i, name in enumerate(names) if counts[f"n{i}"]}
    if of_column:
        told = ", ".join(f"{n} of {name}" for name, n in of_column.items())
        n = sum(of_column.values())
        detail = (
            f"{counted(n, 'cell')} with more than six digits of a second, which the mirror cuts: {told}. The changes have all digits; "
            "a column that is declared `string` under columns: keeps them"
        )
        yield Metric(CELLS_CUT, n, subject.name, detail=detail)


def _is_cut(text: str) -> str:
    return f"regexp_matches({text}, {duck.text(CUT_DIGITS)})"
