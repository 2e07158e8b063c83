"""SQL that makes the mirrors known to an engine by name: printed, never run here.

Spark's own catalog and Trino take names of letters, digits and ``_`` only, and no two that differ in case
alone; what a source's name has beyond that becomes ``_x`` and its code point in hex, and a name that is
taken gets a short hash.  DuckDB takes every name in quotes, but folds case as well.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ingest.change import TableId
from ingest.cli.output import visible
from ingest.config import is_stored
from ingest.inspect import status
from ingest.lake import histories, mirrors
from ingest.lake.delta import type_of_log
from ingest.lake.duck import name as double
from ingest.lake.duck import text as single
from ingest.lake.mirrors import Mirror
from ingest.lake.names import folded, literal, quoted
from ingest.lake.tables import Tables

_MOST = 100  # characters of a name; catalogs that sit on a database allow 128


@dataclass(frozen=True, slots=True)
class RegisteredColumn:
    """One column as the Delta table has it, and the source's name and type."""

    name: str
    delta: str
    source: str
    source_type: str
    comment: str = ""  # as the Delta table has it


@dataclass(frozen=True, slots=True)
class Registered:
    """One mirror; without a path it is not there yet, and ``why`` says so."""

    table: TableId
    path: str = ""
    fields: tuple[RegisteredColumn, ...] = ()
    keys: tuple[str, ...] = ()
    states: bool = False  # it keeps every state of each row, so that a key occurs more than once
    why: str = ""


def registered(lake: Tables) -> list[Registered]:
    """Every mirror as an engine's catalog needs it, with the columns and comments that its table has."""
    known = mirrors.known(lake)
    runs = status.last_runs(lake)
    entries = [
        _registered(lake, history, {}) for history in status.histories_of(lake, known.values()).values()
    ]
    entries += [_registered(lake, mirror, runs.pop(mirror.name, {})) for mirror in known.values()]
    entries += [Registered(TableId(None, None, name), why=_absent(run)) for name, run in runs.items()]
    return sorted(entries, key=lambda one: str(one.table))


def _registered(lake: Tables, mirror: Mirror, run: dict[str, Any]) -> Registered:
    state = lake.snapshot(mirror.path)
    if not state.exists:
        return Registered(mirror.table, why=_absent(run))
    decided = {column.column: column for column in mirror.columns}
    fields = []
    for name, kind in state.types.items():
        column = decided.get(name)
        source = (column.name, column.type) if column else (name, "unknown")
        fields.append(
            RegisteredColumn(
                name,
                type_of_log(kind),
                *source,
                histories.MEANINGS.get(source[0]) or state.comments.get(name, ""),
            )
        )
    states = histories.is_history(mirror)
    return Registered(mirror.table, lake.path(mirror.path), tuple(fields), mirror.keys, states=states)


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
            free_name = f"{free_name}_{_hash(repr(whose))}"
            self.taken[(*inside, folded(free_name))] = whose
        return free_name


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:8]


def plain(name: str) -> str:
    """A name of ASCII letters, digits and ``_``."""
    plain_name = re.sub(r"[^A-Za-z0-9_]", lambda match: f"_x{ord(match[0]):02x}", name)
    if len(plain_name) > _MOST:
        plain_name = f"{plain_name[:80]}_{_hash(name)}"
    return plain_name or "_x"


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
    yield remark(_title(registered))
    yield f"CREATE TABLE IF NOT EXISTS {quoted(schema)}.{quoted(name)} ("
    for i, each in enumerate(registered.fields):
        comment = f" COMMENT {literal(visible(each.comment))}" if each.comment else ""
        comma = "," if i + 1 < len(registered.fields) else ""
        yield f"  {quoted(each.name)} {each.delta}{comment}{comma}  {remark(_source_of(each))}"
    yield f") USING delta LOCATION {literal(registered.path)};"


# --- DuckDB -------------------------------------------------------------------------------------


def _duckdb(registered: Registered, schema: str, name: str) -> Iterator[str]:
    view = f"{double(schema)}.{double(name)}"
    yield remark(_title(registered))
    yield f"CREATE OR REPLACE VIEW {view} AS SELECT * FROM delta_scan({single(registered.path)});"
    yield f"COMMENT ON VIEW {view} IS {single(_title(registered))};"
    for each in registered.fields:
        yield f"COMMENT ON COLUMN {view}.{double(each.name)} IS {single(_source_of(each))};"


# --- Trino --------------------------------------------------------------------------------------


def _trino(registered: Registered, schema: str, name: str) -> Iterator[str]:
    yield remark(_title(registered))
    yield "CALL system.register_table("
    yield f"  schema_name => {single(schema)}, table_name => {single(name)},"
    yield f"  table_location => {single(uri(registered.path))});"


def uri(path: str) -> str:
    """A location that names its file system."""
    return path if is_stored(path) else f"file://{path}"


# --- shared -------------------------------------------------------------------------------------


def _title(registered: Registered) -> str:
    keys = ", ".join(registered.keys)
    if registered.states:
        return f"history of {str(registered.table).removesuffix('__history')}: every state of each row, key ({keys}) and valid_from"
    return f"mirror of {registered.table}{f', key ({keys})' if keys else ', no key'}"


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
