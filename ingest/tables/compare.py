"""Compare two states of one table by DuckDB: missing rows, surplus rows, cells that differ, and a sample of each."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ingest.tables import delta, duck
from ingest.tables.delta import UnreadableError
from ingest.tables.tables import Tables, scan

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

    from ingest.tables.lake import Lake

SAMPLE = 10
_BEFORE, _AFTER = "before", "after"
_NUMBER, _THERE = '"%n"', '"%there"'  # no column name of a table contains a percent sign
_FLOATING = frozenset({"FLOAT", "DOUBLE"})
_NUMBERS = _FLOATING | {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "DECIMAL"}


@dataclass(frozen=True, slots=True)
class Difference:
    """What a rebuild would change. ``missing`` and ``surplus`` describe the table as it is now.

    ``cells`` counts differing cells by column. Each sample has the row's key, and its columns as they are and as they
    would be.
    """

    rows: int  # as rebuilt
    missing: int = 0
    surplus: int = 0
    differing: int = 0
    cells: Mapping[str, int] = field(default_factory=dict)
    sample: tuple[dict[str, Any], ...] = ()

    @property
    def none(self) -> bool:
        """True if the table equals the rebuilt one."""
        return not (self.missing or self.surplus or self.differing)


@dataclass(frozen=True, slots=True)
class TableState:
    """A state of a table: its rows as a relation of DuckDB's SQL, with instants in UTC without a zone.

    ``loaded`` are rows that only Spark reads, instead of a relation.
    """

    rows: str = ""
    loaded: pa.Table | None = None

    @classmethod
    def of(cls, lake: Lake, name: str) -> TableState:
        """A mirror's table as it is now."""
        folder = lake.path(name)
        if lake.is_local:
            with suppress(UnreadableError):
                return cls(scan(folder, delta.snapshot(folder)))
        return cls(loaded=_without_zones(lake.read(name).toArrow()))

    @classmethod
    def asked(cls, lake: Tables, query: str) -> TableState:
        """The rows of a query of `Tables.ask`."""
        loaded = lake.far_rows(query)
        return cls(f"({lake.sql(query)})") if loaded is None else cls(loaded=_without_zones(loaded))

    def within(self, base: DuckDBPyConnection, label: str) -> str:
        """The relation in a database, where loaded rows get a name."""
        if self.loaded is None:
            return self.rows
        base.register(label, self.loaded)
        return duck.name(label)


def _without_zones(rows: pa.Table) -> pa.Table:
    """Rows with their instants in UTC without a zone, as `scan` gives them."""
    import pyarrow as pa

    kinds = [
        field.with_type(pa.timestamp("us")) if pa.types.is_timestamp(field.type) else field
        for field in rows.schema
    ]
    return rows.cast(pa.schema(kinds))


def by_key(present: TableState, rebuilt: TableState, keys: Sequence[str]) -> Difference:
    """Compare the table as it is with the rebuilt one row by row under a key, which is unique in both."""
    with _opened(present, rebuilt) as sides:
        names = list(dict.fromkeys([*sides.rebuilt, *sides.present]))
        rest = [number for number, name in enumerate(names) if name not in keys]
        on = " AND ".join(f"b.c{i} IS NOT DISTINCT FROM a.c{i}" for i in map(names.index, keys))
        joined = f"({sides.before(names)}) AS b FULL JOIN ({sides.after(names)}) AS a ON {on}"
        missing, surplus = f"b.{_THERE} IS NULL", f"a.{_THERE} IS NULL"
        both = f"NOT ({missing}) AND NOT ({surplus})"
        differs = {number: f"({both} AND b.c{number} IS DISTINCT FROM a.c{number})" for number in rest}
        any_cell = " OR ".join(differs.values()) or "false"
        counts = [f"a.{_THERE} IS NOT NULL", missing, surplus, any_cell, *differs.values()]
        asked = ", ".join(f"count(*) FILTER (WHERE {condition})" for condition in counts)
        [totals] = sides.ask(f"SELECT {asked} FROM {joined}")
        cells = {names[number]: cells for number, cells in zip(rest, totals[4:], strict=True) if cells}
        count, absent, extra, differing = totals[:4]
        difference = Difference(count, absent, extra, differing, cells)
        if difference.none:
            return difference
        texts = ", ".join(
            f"CAST({side}.c{number} AS VARCHAR)" for number in range(len(names)) for side in ("b", "a")
        )
        rows = sides.ask(
            f"SELECT NOT ({missing}), NOT ({surplus}), {texts} FROM {joined} "
            f"WHERE {missing} OR {surplus} OR {any_cell} LIMIT {SAMPLE}"
        )
        return replace(difference, sample=tuple(_sampled(row, names, keys) for row in rows))


def as_sets(present: TableState, rebuilt: TableState, columns: Sequence[str]) -> Difference:
    """Compare rows without a key, as multisets."""
    with _opened(present, rebuilt) as sides:
        unequal = sides.unequal(columns)
        [(missing, surplus)] = sides.ask(
            f"SELECT coalesce(sum({_NUMBER}) FILTER (WHERE {_NUMBER} > 0), 0)::BIGINT, "
            f"coalesce(-sum({_NUMBER}) FILTER (WHERE {_NUMBER} < 0), 0)::BIGINT FROM ({unequal})"
        )
        [(rows,)] = sides.ask(f"SELECT count(*) FROM ({sides.after(columns)})")
        if not (missing or surplus):
            return Difference(rows)
        texts = ", ".join(f"CAST(c{number} AS VARCHAR)" for number in range(len(columns)))
        sample = [
            {
                (_AFTER if number > 0 else _BEFORE): {
                    name: cell for name, cell in zip(columns, cells, strict=True) if cell is not None
                }
            }
            for number, *cells in sides.ask(f"SELECT {_NUMBER}, {texts} FROM ({unequal}) LIMIT {SAMPLE}")
        ]
        return Difference(rows, missing, surplus, sample=tuple(sample))


def groups(
    present: TableState, rebuilt: TableState, columns: Sequence[str], by: Sequence[str]
) -> list[tuple[Any, ...]]:
    """The values of some columns in the rows that `as_sets` would find missing or surplus."""
    with _opened(present, rebuilt) as sides:
        names = ", ".join(f"c{columns.index(name)}" for name in by)
        return sides.ask(f"SELECT DISTINCT {names} FROM ({sides.unequal(columns)})")


@dataclass(frozen=True, slots=True)
class _Sides:
    """Two states of a table in a database, with the types of their columns."""

    base: DuckDBPyConnection
    relations: tuple[str, str]
    present: Mapping[str, str]
    rebuilt: Mapping[str, str]

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return self.base.execute(query).fetchall()

    def before(self, names: Sequence[str]) -> str:
        """Some columns of the table as it is, numbered, as they are compared."""
        return self._numbered(self.relations[0], self.present, names)

    def after(self, names: Sequence[str]) -> str:
        """The same of the rebuilt one."""
        return self._numbered(self.relations[1], self.rebuilt, names)

    def unequal(self, names: Sequence[str]) -> str:
        """Rows that one side has more often than the other, with the difference."""
        columns = ", ".join(f"c{number}" for number in range(len(names)))
        both = f"SELECT *, -1 AS {_NUMBER} FROM ({self.before(names)}) UNION ALL SELECT *, 1 FROM ({self.after(names)})"
        return f"SELECT {columns}, sum({_NUMBER}) AS {_NUMBER} FROM ({both}) GROUP BY {columns} HAVING sum({_NUMBER}) <> 0"

    def _numbered(self, relation: str, expressions: Mapping[str, str], names: Sequence[str]) -> str:
        cells = [f"{self._cell(name, expressions)} AS c{number}" for number, name in enumerate(names)]
        return f"SELECT {', '.join([*cells, f'true AS {_THERE}'])} FROM {relation}"

    def _cell(self, name: str, types_there: Mapping[str, str]) -> str:
        """A column as it is compared: by its text if it has a floating point (SQL takes 0.0 and -0.0 for equal), or another
        kind of type on the other side.
        """
        kinds = {types[name].partition("(")[0] for types in (self.present, self.rebuilt) if name in types}
        as_text = kinds <= _FLOATING or (len(kinds) > 1 and not kinds <= _NUMBERS)
        cell = duck.name(name) if name in types_there else "NULL"
        return f"CAST({cell} AS VARCHAR)" if as_text else cell


@contextmanager
def _opened(present: TableState, rebuilt: TableState) -> Iterator[_Sides]:
    """A database of its own, which may use the disk for what does not fit into memory."""
    with tempfile.TemporaryDirectory() as folder, closing(duck.opened()) as base:
        base.execute(f"SET temp_directory = {duck.text(folder)}")
        base.execute("SET preserve_insertion_order = false")
        relations, types = [], []
        for label, state in (("present", present), ("rebuilt", rebuilt)):
            relations.append(state.within(base, label))
            described = base.execute(f"DESCRIBE SELECT * FROM {relations[-1]}").fetchall()
            types.append({row[0]: row[1] for row in described})
        yield _Sides(base, (relations[0], relations[1]), *types)


def _sampled(row: Sequence[Any], names: Sequence[str], keys: Sequence[str]) -> dict[str, Any]:
    was, is_, *cells = row
    before, after = (dict(zip(names, cells[side::2], strict=True)) for side in (0, 1))
    rest = [name for name in names if name not in keys and before[name] != after[name]]
    return {
        "key": {name: (after if is_ else before)[name] for name in keys},
        _BEFORE: {name: before[name] for name in rest} if was else None,
        _AFTER: {name: after[name] for name in rest} if is_ else None,
    }
