"""A table cut into ranges of its key, as its database orders it: any type, any collation, several columns."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, NamedTuple, TypeVar

from ingest.errors import IngestError
from ingest.source.database import Key, SourceDialect, SourceTable, quoted

_TOGETHER = 200  # keys of one condition
_Item = TypeVar("_Item")

Bound = list[str]
"""A key's values as text; a range ends with it."""


class Chunk(NamedTuple):
    """The rows after one bound, up to and with another; None is open."""

    low: Bound | None
    high: Bound | None


def in_threads(
    count: int, do: Callable[[_Item], None], items: Iterable[_Item], stop: threading.Event | None = None
) -> None:
    """Do something for each item in some threads; the first error ends it, after ``stop`` is set for those at work."""
    with ThreadPoolExecutor(count) as pool:
        tasks = [pool.submit(do, item) for item in items]
        try:
            for task in wait(tasks, return_when=FIRST_EXCEPTION).done:
                task.result()
        except BaseException:
            if stop is not None:
                stop.set()
            raise
        finally:
            for task in tasks:
                task.cancel()


def keys_of(dialect: SourceDialect, table: SourceTable) -> list[Key]:
    """How each column of a table's key is compared."""
    columns = {column.name: column for column in table.columns}
    if lost := [name for name in table.keys if name not in columns]:
        raise IngestError(f"{table.id} has no column {lost[0]!r}, which `keys:` names.")
    return [dialect.key(columns[name]) for name in table.keys]


def bounds(
    dialect: SourceDialect, connection: Any, table: SourceTable, where: str, size: int
) -> Iterator[Bound]:
    """The last key of every ``size`` rows; an `IngestError` if a key column holds NULL, which no range contains."""
    keys = keys_of(dialect, table)
    if not keys:
        return
    nulls = " OR ".join(f"{key.order} IS NULL" for key in keys)
    if dialect.values(connection, dialect.nth(f"SELECT 1 AS one FROM {table.name} WHERE {nulls}", "", 0)):
        raise IngestError(
            f"{table.id} holds NULL in a column of its key ({', '.join(table.keys)}): such rows are in no range. "
            "Name columns that are never NULL under `keys:`, or none and write `no_key: full_row`."
        )
    order = ", ".join(key.order for key in keys)
    # each text has a name of its own: ORDER BY looks here first
    texts = ", ".join(f"{key.text} AS k{i}" for i, key in enumerate(keys))
    last: Bound | None = None
    while True:
        rest = condition(keys, Chunk(last, None), where)
        rows = dialect.values(
            connection, dialect.nth(f"SELECT {texts} FROM {table.name} {rest}", order, size - 1)
        )
        if not rows:
            return
        last = [str(value) for value in rows[0]]
        yield last


def chunks(cuts: Sequence[Bound]) -> list[Chunk]:
    """The ranges between bounds; the last one is open."""
    return [Chunk(low, high) for low, high in zip([None, *cuts], [*cuts, None], strict=True)]


def condition(keys: Sequence[Key], chunk: Chunk, where: str, quote: Callable[[str], str] = quoted) -> str:
    """The WHERE of a range."""
    orders = [key.order for key in keys]
    parts = [f"({where})"] if where else []
    if chunk.low is not None:
        parts.append(beyond(orders, literals(keys, chunk.low, quote), ">"))
    if chunk.high is not None:
        parts.append(beyond(orders, literals(keys, chunk.high, quote), "<", equal=True))
    return f"WHERE {' AND '.join(parts)}" if parts else ""


def literals(keys: Sequence[Key], bound: Sequence[str], quote: Callable[[str], str] = quoted) -> list[str]:
    """A key's values as SQL."""
    return [key.literal.format(quote(text)) for key, text in zip(keys, bound, strict=True)]


def key_conditions(
    dialect: SourceDialect, table: SourceTable, keys: Sequence[Sequence[str | None]]
) -> Iterator[str]:
    """Conditions for the rows of some keys, each for as many as one question may have."""
    columns = {column.name: column for column in table.columns}
    conditions = [
        " AND ".join(
            dialect.equal(columns[name], text or "") for name, text in zip(table.keys, key, strict=True)
        )
        for key in keys
    ]
    for first in range(0, len(keys), _TOGETHER):
        yield " OR ".join(f"({condition})" for condition in conditions[first : first + _TOGETHER])


def beyond(orders: Sequence[str], values: Sequence[str], than: str, *, equal: bool = False) -> str:
    """Compare columns with literals of their values, in any database's SQL."""
    if len(orders) == 1:
        return f"{orders[0]} {than}{'=' if equal else ''} {values[0]}"
    cases = []
    for i, column in enumerate(orders):
        same = [f"{other} = {values[place]}" for place, other in enumerate(orders[:i])]
        cases.append(" AND ".join([*same, f"{column} {than} {values[i]}"]))
    if equal:
        cases.append(" AND ".join(f"{order} = {text}" for order, text in zip(orders, values, strict=True)))
    # the first column alone, once more: an index finds the range by it
    first = f"{orders[0]} {than}= {values[0]}"
    return f"({first} AND ({' OR '.join(f'({case})' for case in cases)}))"
