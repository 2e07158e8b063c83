"""Open rejects: neither decoded later by a replay nor dismissed by the operator."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from ingest import types
from ingest.change import TableId
from ingest.errors import IngestError, command
from ingest.fold import Key, typed
from ingest.ledgers import decisions
from ingest.ledgers.decisions import DISMISS_REJECT, Decision
from ingest.ledgers.mirrors import Mirror
from ingest.tables import duck
from ingest.tables.schemas import REJECTS
from ingest.tables.tables import Row, Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ingest.config import Pipeline
    from ingest.tables.lake import Lake

VALUES_NOT_KNOWN = "values-not-known"  # the reason of a column whose conversion no message shows
A_DEFAULT = (
    "existing rows have the default "  # how the detail of one begins whose default is no value of its type
)
CONVERTED_SQL = f"(reason IS NOT DISTINCT FROM '{VALUES_NOT_KNOWN}' AND NOT starts_with(coalesce(detail, ''), '{A_DEFAULT}'))"
"""The condition of rejects of which `ingest.quality.unknown_values` says what they leave open, and when nothing is any more."""
REPLAY = "replay"  # bronze's kind of a row that means: decode these old bytes in this batch
PLACE = ("source", "topic", "partition", "offset")
_CELL = ("database", "schema", "table", "key", "column")
_NAME = ("kind", "batch", *PLACE, *_CELL, "raw")
_ORDER = ("batch", *PLACE, *_CELL, "raw")  # of the list, whose numbers identify rejects
_MANY = "rejects"  # of a dismissal of many: the digests of all that it closes, with blanks between them
_DIGITS, _SEPARATOR = 16, "\x1f"  # of a digest; of its cells
COLUMNS = (
    "number", *PLACE, "batch", "stage", "kind", *_CELL, "reason", "detail", "raw", "decoder",
)  # fmt: skip
"""The columns of a reject that are shown."""


def key_of(mirror: Mirror, text: str | None) -> Key | None:
    """The key that a reject names in JSON, in the fold's form; None if it is not one of the mirror's."""
    try:
        cells = json.loads(text or "{}", parse_int=str, parse_float=str)
        return tuple(
            typed(types.of_cell(key_column.type), _canonical(key_column.type, cells[key_column.name]))
            for key_column in mirror.key_columns
        )
    except (KeyError, TypeError, ValueError):
        return None


def _canonical(logical: str, cell: object) -> str:
    text = str(cell).lower() if isinstance(cell, bool) else str(cell)
    return text.replace("T", " ", 1) if types.family(logical) == "datetime" else text


def still_open(lake: Lake) -> DataFrame | None:
    """The open rows of ``rejects`` for Spark; None if the table does not exist."""
    return lake.frame(open_sql(lake)) if lake.exists(REJECTS.name) else None


def open_sql(lake: Tables, of: str = "{rejects}") -> str:
    """The open rows of ``rejects``, or of a query over it, as a query for `Tables.ask`.

    Bronze itself records a replayed message, so that the mark and the replay are one commit. A dismissal of many has their
    digests: a mirror that is folded again, or that has waited, may refuse changes of earlier batches later.
    """
    same_place = " AND ".join(f"p.{duck.name(column)} = r.{duck.name(column)}" for column in PLACE)
    still_open = f"""SELECT r.* FROM {of} AS r WHERE NOT (r.kind = 'message' AND EXISTS (
        SELECT 1 FROM {{bronze.{REPLAY}}} AS p WHERE {same_place}
        AND CAST(json_extract_string(decode(p.value), '$.batch') AS BIGINT) = r.batch))"""
    dismissed = [*decisions.read(lake).of(DISMISS_REJECT)]
    if digests := _digests(dismissed):
        still_open = (
            f"SELECT o.* FROM ({still_open}) AS o WHERE {_digest_sql('o')} NOT IN "
            f"(SELECT unnest(string_split('{' '.join(sorted(digests))}', ' ')))"
        )
    names = [json.loads(decision.subject) for decision in dismissed if _MANY not in decision.value]
    if not names:
        return still_open
    values = duck.listed([name.get(column) for column in _NAME] for name in names)
    return (
        f"SELECT o.* FROM ({still_open}) AS o WHERE NOT EXISTS "
        f"(SELECT 1 FROM (VALUES {values}) AS d({', '.join(map(duck.name, _NAME))}) "
        f"WHERE {duck.same(_NAME, 'o', 'd')})"
    )


def columns_unfit(lake: Tables, mirror: Mirror) -> frozenset[str]:
    """The columns of a mirror with cells that did not fit when they were folded, dismissed or not."""
    return columns_unfit_by_table(lake).get(mirror.table, frozenset())


def columns_unfit_by_table(lake: Tables) -> dict[TableId, frozenset[str]]:
    """The columns of each source table with cells that did not fit when they were folded, dismissed or not."""
    if not lake.exists(REJECTS.name):
        return {}
    rows = lake.ask(
        """SELECT "database", "schema", "table", list(DISTINCT "column") AS names
        FROM {rejects} WHERE kind = 'cell' GROUP BY ALL"""
    )
    return {TableId.of(row): frozenset(row["names"]) for row in rows}


def refused_sql(lake: Tables) -> str:
    """The open rejects of changes that were not applied, to follow a SELECT; more conditions may follow."""
    return f"FROM ({open_sql(lake)}) AS o WHERE kind = 'change'"


def name_of(row: Mapping[str, Any]) -> str:
    """The name of a reject in decisions: its batch, its bytes' place, its table, key and column, and the text.

    The batch distinguishes a topic or a file from an older one of the same name, which had the same places.
    """
    named = {column: row[column] for column in _NAME if row[column] is not None}
    return json.dumps(named, ensure_ascii=False, separators=(",", ":"))


def waiting(
    lake: Tables, group: Sequence[str] = (), limit: int = 50, offset: int = 0, number: int | None = None
) -> list[Row]:
    """Some of the open rejects, read with a limit: of a kind, reason and column, or the one of a number."""
    order = ", ".join(f"{duck.name(column)} NULLS FIRST" for column in _ORDER)
    numbered = f"(SELECT *, row_number() OVER (ORDER BY {order}) AS number FROM {{rejects}})"
    named = zip(("kind", "reason", "column"), group, strict=False)
    wanted = " AND ".join(f"coalesce(o.{duck.name(name)}, '') = {duck.text(given)}" for name, given in named)
    if number is not None:
        wanted = f"o.number = {number}"
    return lake.ask(
        f"SELECT o.* FROM ({open_sql(lake, numbered)}) AS o WHERE {wanted or 'true'} "
        f"ORDER BY o.number LIMIT {limit} OFFSET {offset}"
    )


def groups(lake: Tables) -> list[Row]:
    """The number of open rejects by kind, reason and column, with an example of each, the most frequent first."""
    return lake.ask(
        f"""SELECT kind, coalesce(reason, '') AS reason, coalesce("column", '') AS "column", count(*) AS n,
        min(detail) AS detail, max(batch) AS batch FROM ({open_sql(lake)}) AS o GROUP BY ALL ORDER BY n DESC, kind, reason"""
    )


def counted(lake: Tables) -> list[Row]:
    """The number of open rejects by kind and source that say what no check does, with the first batch that has one."""
    return lake.ask(
        f"""SELECT kind, source, count(*) AS n, min(batch) AS batch FROM ({open_sql(lake)}) AS o WHERE NOT {CONVERTED_SQL}
        GROUP BY ALL ORDER BY kind, source"""
    )


def listed(lake: Tables, *, every: bool = True) -> list[Row]:
    """All rejects or the ``open`` ones, numbered by their place among all, so that numbers do not change."""
    order = ", ".join(f"{duck.name(column)} NULLS FIRST" for column in _ORDER)
    names = {name_of(row) for row in lake.ask(open_sql(lake))}
    rows = lake.ask(f"SELECT * FROM {{rejects}} ORDER BY {order}")
    numbered = [row | {"number": i, "open": name_of(row) in names} for i, row in enumerate(rows, 1)]
    return [row for row in numbered if every or row["open"]]


def described(row: Row) -> dict[str, Any]:
    """A reject of the list, for JSON output."""
    return {name: row[name] for name in COLUMNS}


def grouped(rows: Iterable[Row]) -> dict[tuple[str, str, str, str], list[Row]]:
    """Rejects by kind, reason, table (empty for a message whose table is not known) and column."""
    groups: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        group = (row["kind"], row["reason"], str(TableId.of(row)), row["column"] or "")
        groups.setdefault(group, []).append(row)
    return dict(sorted(groups.items()))


def chosen(rows: Iterable[Row], which: str, pipeline: Pipeline) -> Row:
    """The reject of a number in the list, or at a place as it is listed or in full.

    Raises:
        IngestError: there is none.
    """
    reject = next(
        (row for row in rows if which in (str(row["number"]), place_of(row), pipeline.shown(place_of(row)))),
        None,
    )
    if reject is None:
        raise IngestError(
            f"There is no reject {which}: `{command('rejects', pipeline.file, '--all')}` numbers them."
        )
    return reject


def place_of(row: Row) -> str:
    """The origin of a reject: its message, or its table, key and column."""
    if row["topic"] is None:
        return f"{TableId.of(row)} {row['key'] or ''} {row['column'] or ''}".strip()
    return f"{row['topic']}/{row['partition']}/{row['offset']}"


def dismissed(lake: Tables) -> Callable[[Mapping[str, Any]], bool]:
    """Whether a reject was dismissed, by itself or with others."""
    said = [*decisions.read(lake).of(DISMISS_REJECT)]
    names, digests = {decision.subject for decision in said}, _digests(said)
    return lambda row: name_of(row) in names or _digest(row) in digests


def _digests(said: Iterable[Decision]) -> set[str]:
    """The digests of the rejects that dismissals of many have closed."""
    return {digest for decision in said for digest in decision.value.get(_MANY, "").split()}


def _digest(row: Mapping[str, Any]) -> str:
    """A short form of `name_of`, for a decision on a hundred thousand."""
    text = _SEPARATOR.join("" if row[column] is None else f"={row[column]}" for column in _NAME)
    return sha256(text.encode()).hexdigest()[:_DIGITS]


def _digest_sql(alias: str) -> str:
    """`_digest` of a query's rows."""
    cells = ", ".join(
        f"coalesce('=' || CAST({alias}.{duck.name(column)} AS VARCHAR), '')" for column in _NAME
    )
    return f"left(sha256(concat_ws({duck.text(_SEPARATOR)}, {cells})), {_DIGITS})"


def alike(rows: Iterable[Row], wanted: Mapping[str, object]) -> list[Row]:
    """The open ones of some rejects that have certain values as they are listed; ``table`` is a whole name."""

    def fits(row: Row) -> bool:
        of_row = {**row, "table": str(TableId.of(row))}
        return row["open"] and all(of_row[name] == value for name, value in wanted.items())

    return [row for row in rows if fits(row)]


def dismiss_alike(
    lake: Lake, rows: Sequence[Row], wanted: Mapping[str, object], reason: str, by: str
) -> None:
    """Dismiss all that `alike` gives, by one decision: what comes later stays open, whichever batch it is of."""
    subject = json.dumps(wanted, ensure_ascii=False, separators=(",", ":"))
    value = {"count": len(rows), _MANY: " ".join(sorted(map(_digest, rows)))}
    decisions.append(lake, [Decision(DISMISS_REJECT, subject, value, reason=reason, by=by)])


def dismiss(lake: Lake, rows: Sequence[dict[str, Any]], reason: str, by: str = "") -> None:
    said = [(name_of(row), {"reason": row["reason"]}, row["batch"], reason, by) for row in rows]
    decisions.append(lake, [Decision(DISMISS_REJECT, *dismissed) for dismissed in said])
