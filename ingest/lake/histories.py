"""History tables: their paths, and their own columns next to those of the mirror."""

from __future__ import annotations

from dataclasses import replace

from ingest.lake.mirrors import Column, Mirror
from ingest.lake.names import MIRRORS, column_name, folded

SUFFIX = "__history"
FOLDER = "histories/"
# no source column's Delta name contains a percent sign
FROM, TO, CURRENT, TAKEN = ("%from", "%to", "%current", "%taken")
_EXTRA = (
    (FROM, "valid_from", "timestamp"),
    (TO, "valid_to", "timestamp"),
    (CURRENT, "is_current", "boolean"),
)
MEANINGS = {
    FROM: "from when the row was so",
    TO: "until when it was so; NULL if it still is, or the moment is not known",
    CURRENT: "true for the state that the mirror holds",
}


def named(mirror: Mirror, before: Mirror | None) -> Mirror:
    """The mirror with names for its history's own columns, which stay the same whatever columns the source gets later.

    ``before`` is the mirror as decided last.
    """
    if mirror.history:
        return mirror
    known = before if before is not None and before.columns else mirror
    taken = {folded(one.column) for one in known.columns}
    return replace(mirror, history=tuple(column_name(shown, taken) for _, shown, _ in _EXTRA))


def is_history(mirror: Mirror) -> bool:
    """True for the history table of a mirror."""
    return mirror.path.startswith(FOLDER)


def path_of(mirror: Mirror) -> str:
    """The path of a mirror's history table."""
    return FOLDER + mirror.path.removeprefix(MIRRORS)


def table_of(mirror: Mirror) -> Mirror:
    """The history table of a mirror, as a mirror of its own.

    A later source column with the name of one of its own columns gets another name there.
    """
    mirror = named(mirror, None)
    own = {folded(name) for name in mirror.history}
    taken = own | {folded(one.column) for one in mirror.columns}
    extra = [
        Column(name, column, logical)
        for (name, _, logical), column in zip(_EXTRA, mirror.history, strict=True)
    ]
    columns = [
        replace(one, column=column_name(one.name, taken)) if folded(one.column) in own else one
        for one in mirror.columns
    ]
    name = mirror.table._replace(table=f"{mirror.table.table}{SUFFIX}")
    return replace(mirror, table=name, path=path_of(mirror), columns=(*columns, *extra))
