"""SQL that makes the mirrors known to an engine by name: printed, never run here.

Spark's own catalog and Trino take names of letters, digits and ``_`` only, and no two that differ in case
alone; what a source's name has beyond that becomes ``_x`` and its code point in hex, and a name that is
taken gets a short hash.  DuckDB takes every name in quotes, but folds case as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ingest.catalog.entries import Registered, RegisteredColumn, entry
from ingest.catalog.names import plain, short_hash
from ingest.change import TableId
from ingest.config import is_stored
from ingest.errors import visible
from ingest.inspect import status
from ingest.ledgers import histories, mirrors
from ingest.ledgers.mirrors import Mirror
from ingest.store.names import folded, literal, quoted
from ingest.tables.duck import name as double
from ingest.tables.duck import text as single
from ingest.tables.tables import Tables


def registered(lake: Tables) -> list[Registered]:
    """Every mirror as an engine's catalog needs it, with the columns and comments that its table has."""
    mirrors_by_path = mirrors.known(lake)
    runs = status.last_runs(lake)
    entries = [
        _registered(lake, history, {})
        for history in status.histories_of(lake, mirrors_by_path.values()).values()
    ]
    entries += [_registered(lake, mirror, runs.pop(mirror.name, {})) for mirror in mirrors_by_path.values()]
    entries += [Registered(TableId(None, None, name), why=_absent(run)) for name, run in runs.items()]
    return sorted(entries, key=lambda entry: str(entry.table))


def _registered(lake: Tables, mirror: Mirror, run: dict[str, Any]) -> Registered:
    return entry(lake, mirror) or Registered(mirror.table, why=_absent(run))


def _absent(run: dict[str, Any]) -> str:
    return f"there is no table yet ({status.state_of(run)}: {run.get('message') or 'no row has been folded'})"


@dataclass(slots=True)
class Names:
    """The names given so far, each once without regard to case."""

    clean: Callable[[str], str]
    taken: dict[tuple[str, ...], tuple[str | None, ...]] = field(default_factory=dict)  # folded -> whose

    def of(self, table: TableId) -> tuple[str, str]:
        """The schema and the name of a mirror: database and schema, where there is one, are one name."""
        outer = "_".join(part for part in table[:2] if part) or "default"
        schema = self._free((), outer, table[:2])
        return schema, self._free((folded(schema),), table.table or "table", table)

    def _free(self, inside: tuple[str, ...], name: str, whose: tuple[str | None, ...]) -> str:
        free_name = self.clean(name)
        if self.taken.setdefault((*inside, folded(free_name)), whose) != whose:
            free_name = f"{free_name}_{short_hash(repr(whose))}"
            self.taken[(*inside, folded(free_name))] = whose
        return free_name


NAMES: dict[str, Callable[[str], str]] = {
    "spark": plain,
    "duckdb": lambda name: name,
    "trino": lambda name: plain(name).lower(),
}
"""What each engine's catalog makes of a source's name."""


def sql(dialect: str, mirrors: Iterable[Registered]) -> str:
    """The statements for all mirrors; those without a table are named in comments."""
    names = Names(NAMES[dialect])
    lines = list(_HEADS[dialect])
    schemas: set[str] = set()
    for mirror in mirrors:
        if not mirror.path:
            lines += ["", remark(f"{mirror.table}: {mirror.why}")]
            continue
        schema, name = names.of(mirror.table)
        lines += [] if schema in schemas else ["", _SCHEMAS[dialect](schema)]
        schemas.add(schema)
        lines += ["", *_TABLES[dialect](mirror, schema, name)]
    return "\n".join(lines) + "\n"


def remark(text: str) -> str:
    """A comment of one line, whatever the text holds."""
    return "-- " + visible(text)


# --- Spark --------------------------------------------------------------------------------------


def _spark(registered: Registered, schema: str, name: str) -> Iterator[str]:
    yield remark(registered.title)
    yield f"CREATE TABLE IF NOT EXISTS {quoted(schema)}.{quoted(name)} ("
    for i, each in enumerate(registered.fields):
        comment = f" COMMENT {literal(visible(each.comment))}" if each.comment else ""
        comma = "," if i + 1 < len(registered.fields) else ""
        yield f"  {quoted(each.name)} {each.delta}{comment}{comma}  {remark(_source_of(each))}"
    yield f") USING delta LOCATION {literal(registered.path)};"


# --- DuckDB -------------------------------------------------------------------------------------


def _duckdb(registered: Registered, schema: str, name: str) -> Iterator[str]:
    view = f"{double(schema)}.{double(name)}"
    yield remark(registered.title)
    yield f"CREATE OR REPLACE VIEW {view} AS SELECT * FROM delta_scan({single(registered.path)});"
    yield f"COMMENT ON VIEW {view} IS {single(registered.title)};"
    for each in registered.fields:
        yield f"COMMENT ON COLUMN {view}.{double(each.name)} IS {single(_source_of(each))};"


# --- Trino --------------------------------------------------------------------------------------


def _trino(registered: Registered, schema: str, name: str) -> Iterator[str]:
    yield remark(registered.title)
    yield "CALL system.register_table("
    yield f"  schema_name => {single(schema)}, table_name => {single(name)},"
    yield f"  table_location => {single(uri(registered.path))});"


def uri(path: str) -> str:
    """A location that names its file system."""
    return path if is_stored(path) else f"file://{path}"


# --- shared -------------------------------------------------------------------------------------


def _source_of(each: RegisteredColumn) -> str:
    if each.source in histories.MEANINGS:
        return histories.MEANINGS[each.source]
    kind = "of a type that the messages do not name" if each.source_type == "unknown" else each.source_type
    return kind if each.source == each.name else f"{each.source}, {kind}"


_HEADS = {
    "spark": (
        "-- For Spark SQL with Delta Lake. The tables stay where they are; DROP TABLE removes a name only.",
    ),
    "duckdb": ("-- For DuckDB.", "INSTALL delta;", "LOAD delta;"),
    "trino": (
        "-- For Trino: run in a catalog of its Delta Lake connector (trino --catalog NAME) that has",
        "-- delta.register-table-procedure.enabled=true.",
    ),
}
_SCHEMAS: dict[str, Callable[[str], str]] = {
    "spark": lambda schema: f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)};",
    "duckdb": lambda schema: f"CREATE SCHEMA IF NOT EXISTS {double(schema)};",
    "trino": lambda schema: f"CREATE SCHEMA IF NOT EXISTS {double(schema)};",
}
_TABLES = {"spark": _spark, "duckdb": _duckdb, "trino": _trino}
