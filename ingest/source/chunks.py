"""A table cut into ranges of its key, as its database orders it: any type, any collation, several columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ingest.errors import IngestError
from ingest.source.database import Key, SourceDialect, SourceTable, quoted

Bound = list[str]
"""A key's values as text; a range ends with it."""


class Chunk(NamedTuple):
    """The rows after one bound, up to and with another; None is open."""

    low: Bound | None
    high: Bound | None


def keys_of(dialect: SourceDialect, table: SourceTable) -> list[Key]:
    """How each column of a table's key is compared."""
    columns = {one.name: one for one in table.columns}
    if lost := [name for name in table.keys if name not in columns]:
        raise IngestError(f"{table.id} has no column {lost[0]!r}, which `keys:` names.")
    return [dialect.key(table, columns[name]) for name in table.keys]


def bounds(
    dialect: SourceDialect, connection: Any, table: SourceTable, where: str, size: int
) -> Iterator[Bound]:
    """The last key of every ``size`` rows.

    Raises:
        IngestError: a key column holds NULL, which no range contains.
    """
    keys = keys_of(dialect, table)
    if not keys:
        return
    nulls = " OR ".join(f"{one.order} IS NULL" for one in keys)
    if dialect.values(connection, dialect.nth(f"SELECT 1 AS one FROM {table.name} WHERE {nulls}", "", 0)):
        raise IngestError(
            f"{table.id} holds NULL in a column of its key ({', '.join(table.keys)}): such rows are in no range. "
            "Name another key under `keys:`."
        )
    order = ", ".join(one.order for one in keys)
    texts = ", ".join(
        f"{one.text} AS k{at}" for at, one in enumerate(keys)
    )  # a name of its own: ORDER BY looks here first
    last: Bound | None = None
    while True:
        rest = condition(dialect, keys, Chunk(last, None), where)
        found = dialect.values(
            connection, dialect.nth(f"SELECT {texts} FROM {table.name} {rest}", order, size - 1)
        )
        if not found:
            return
        last = [str(value) for value in found[0]]
        yield last


def chunks(found: Sequence[Bound]) -> list[Chunk]:
    """The ranges between bounds; the last one is open."""
    return [Chunk(low, high) for low, high in zip([None, *found], [*found, None], strict=True)]


def condition(dialect: SourceDialect, keys: Sequence[Key], chunk: Chunk, where: str) -> str:
    """The WHERE of a range."""
    parts = [f"({where})"] if where else []
    if chunk.low is not None:
        parts.append(_beyond(dialect, keys, chunk.low, ">"))
    if chunk.high is not None:
        parts.append(_beyond(dialect, keys, chunk.high, "<", equal=True))
    return f"WHERE {' AND '.join(parts)}" if parts else ""


def _beyond(
    dialect: SourceDialect, keys: Sequence[Key], bound: Bound, than: str, *, equal: bool = False
) -> str:
    """Keys on one side of a bound, column by column; databases find their way through this by an index."""
    literals = [one.literal.format(quoted(text)) for one, text in zip(keys, bound, strict=True)]
    return beyond([one.order for one in keys], literals, than, equal=equal)


def beyond(orders: Sequence[str], literals: Sequence[str], than: str, *, equal: bool = False) -> str:
    """A condition on columns by literals of theirs, in any database's SQL."""
    if len(orders) == 1:
        return f"{orders[0]} {than}{'=' if equal else ''} {literals[0]}"
    cases = []
    for at, one in enumerate(orders):
        same = [f"{other} = {literals[place]}" for place, other in enumerate(orders[:at])]
        cases.append(" AND ".join([*same, f"{one} {than} {literals[at]}"]))
    if equal:
        cases.append(" AND ".join(f"{one} = {text}" for one, text in zip(orders, literals, strict=True)))
    # the first column alone, once more: an index finds the range by it
    first = f"{orders[0]} {than}= {literals[0]}"
    return f"({first} AND ({' OR '.join(f'({case})' for case in cases)}))"
