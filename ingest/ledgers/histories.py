"""History tables: their paths, and their own columns next to those of the mirror."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ingest import types
from ingest.ledgers.mirrors import Column, Mirror
from ingest.store.names import MIRRORS, column_name, folded

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
    described = before if before is not None and before.columns else mirror
    taken = {folded(column.column) for column in described.columns}
    return replace(mirror, history=tuple(column_name(shown, taken) for _, shown, _ in _EXTRA))


def is_history(mirror: Mirror) -> bool:
    """True for the history table of a mirror."""
    return mirror.path.startswith(FOLDER)


def mirror_name(table: Mirror) -> str:
    """The name of a mirror, given itself or its history table: commands take that."""
    return table.name.removesuffix(SUFFIX) if is_history(table) else table.name


def path_of(mirror: Mirror) -> str:
    """The path of a mirror's history table."""
    return FOLDER + mirror.path.removeprefix(MIRRORS)


def kept(mirror: Mirror, before: Mirror | None, rows: Mapping[str, str]) -> Mirror:
    """The mirror with what its older states need: the columns that it no longer has, or has in a type that does not hold
    their values.

    Args:
        mirror: as decided now.
        before: as decided last.
        rows: the columns of its new rows, with their types.
    """
    now, former = (
        mirror.by_name,
        {column.name: column for column in mirror.former},
    )
    columns_before = before.by_name if before is not None else {}
    taken = {
        folded(column.column) for columns in (columns_before, now, former) for column in columns.values()
    }
    for name, logical in (*((column.name, column.type) for column in columns_before.values()), *rows.items()):
        column = former.get(name) or columns_before.get(name) or now.get(name)
        column = column or Column(name, column_name(name, taken), logical)
        held = replace(column, type=types.grown(column.type, logical))
        column_now = now.get(name)
        if column_now is None or (logical != "unknown" and not types.widens(held.delta, column_now.delta)):
            former[name] = held
    return replace(mirror, former=tuple(former.values()))


def table_of(mirror: Mirror) -> Mirror:
    """The history table of a mirror, as a mirror of its own, with the columns of older states, too.

    A later source column with the name of one of its own columns, or of an older one in another letter case, gets another
    name there.
    """
    mirror = named(mirror, None)
    own_columns, former = (
        {folded(name) for name in mirror.history},
        {column.name: column for column in mirror.former},
    )
    names = {*mirror.by_name}
    columns = [_with_former(column, former.get(column.name)) for column in mirror.columns]
    columns += [column for column in mirror.former if column.name not in names]
    fixed = {folded(column.column) for column in mirror.former}
    taken = own_columns | fixed | {folded(column.column) for column in columns}
    columns = [
        replace(column, column=column_name(column.name, taken))
        if folded(column.column) in own_columns
        or (column.name not in former and folded(column.column) in fixed)
        else column
        for column in columns
    ]
    extra = [
        Column(name, column, logical)
        for (name, _, logical), column in zip(_EXTRA, mirror.history, strict=True)
    ]
    name = mirror.table._replace(table=f"{mirror.table.table}{SUFFIX}")
    return replace(mirror, table=name, path=path_of(mirror), columns=(*columns, *extra))


def _with_former(column: Column, former: Column | None) -> Column:
    """A column with the name that it has in older states, and a type that holds their values, too."""
    if former is None:
        return column
    return replace(column, column=former.column, type=types.grown(former.type, column.type))
