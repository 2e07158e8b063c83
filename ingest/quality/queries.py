"""SQL that reproduces a check's result; each query runs unchanged with ``ingest sql FILE "..."``."""

from __future__ import annotations

from collections.abc import Sequence

from ingest.change import TableId
from ingest.ledgers.books import NEWEST_SQL
from ingest.quality.catalogue import key_cells
from ingest.store.names import literal, of_table, quoted


def reproduces(
    check: str, table: TableId, source: TableId, keys: Sequence[tuple[str, str]], column: str | None = None
) -> str:
    """A query for one built-in check of a mirror; empty if there is none.

    Args:
        check: the check's name.
        table: the mirror.
        source: the table whose changes it holds; the same unless the file says ``into:``.
        keys: the key columns, each with its name in the source and in the mirror.
        column: the column that the check is about.
    """
    mirror = ".".join(quoted(part) for part in table if part is not None)
    names = ", ".join(quoted(name) for _, name in keys)
    condition = of_table(source)
    fixed = {
        "rows": f"SELECT count(*) FROM {mirror}",
        "row_count": f"SELECT count(*) FROM {mirror}",
        "freshness": f"SELECT {NEWEST_SQL} FROM books WHERE {condition}",
        "up_to_date": f"SELECT batch, changes FROM books WHERE {condition} ORDER BY batch DESC",
        "ddl_pending": f"SELECT batch, class, statement FROM ddl WHERE {condition} AND class = 'unknown'",
        "schema": f"SELECT * FROM {mirror} LIMIT 0",
        "cell_rejects": f"SELECT key, `column`, raw, detail FROM rejects WHERE kind = 'cell' AND {condition}"
        + (f" AND `column` = {literal(column)}" if column else ""),
        "refused_changes": f"SELECT key, raw, detail FROM rejects WHERE kind = 'change' AND {condition}",
    }
    if check in fixed:
        return fixed[check]
    if not keys:
        return ""
    key = _key_in_changes([name for name, _ in keys])
    history = f"SELECT {key} AS key, op, order_key FROM changes WHERE kind = 'change' AND {condition}"
    keys_in_mirror = f"SELECT {_key_in_mirror([name for _, name in keys])} FROM {mirror}"
    last = f"SELECT key, max_by(op, order_key) AS last FROM ({history}) GROUP BY key"
    return {
        "key_unique": f"SELECT {names}, count(*) FROM {mirror} GROUP BY {names} HAVING count(*) > 1",
        "key_not_null": f"SELECT * FROM {mirror} WHERE "
        + " OR ".join(f"{quoted(name)} IS NULL" for _, name in keys),
        "missing_rows": f"{last} HAVING last <> 'delete' AND key NOT IN ({keys_in_mirror})",
        "ghost_rows": f"{last} HAVING last = 'delete' AND key IN ({keys_in_mirror})",
        "ambiguities": f"SELECT key, sequence, count(*) FROM (SELECT {key} AS key, sequence FROM changes WHERE "
        f"kind = 'change' AND {condition}) GROUP BY key, sequence HAVING count(*) > 1",
    }.get(check, "")


def of_source(check: str, source: str) -> str:
    """A query for one built-in check of a source."""
    condition = f"source = {literal(source)}"
    return {
        "reject_rate": f"SELECT reason, detail, topic, `offset` FROM rejects WHERE kind = 'message' AND {condition}",
        "books_balance": f"SELECT * FROM books WHERE {condition} ORDER BY batch DESC",
        "losses": f"SELECT batch, reason, value FROM decisions WHERE kind = 'accept-gap' AND subject = {literal(source)}",
        "missing_parts": f"SELECT `transaction`, count(*) FROM changes WHERE kind = 'change' AND {condition} GROUP BY 1",
        "gaps": f"SELECT batch, CAST(value AS STRING) FROM bronze WHERE kind = 'receipt' AND {condition} ORDER BY batch",
    }.get(check, "")


def history(table: TableId, keys: Sequence[str], example: str = "") -> str:
    """A query for one row's history; ``example`` is a key as JSON, whose values are inserted."""
    if not keys:
        return ""
    values = key_cells(example)
    cells = " AND ".join(
        f"{_key_in_changes([name])} = {literal(str(values.get(name, '…')))}" for name in keys
    )
    return (
        f"SELECT batch, op, sequence, event_time, before, after, topic, `offset` FROM changes "
        f"WHERE kind = 'change' AND {of_table(table)} AND {cells} ORDER BY order_key"
    )


def _key_in_changes(names: Sequence[str]) -> str:
    paths = [literal(f"$.{name}" if name.isidentifier() else f"$['{name}']") for name in names]
    cells = [f"coalesce(get_json_object(after, {path}), get_json_object(before, {path}))" for path in paths]
    return cells[0] if len(cells) == 1 else f"concat_ws('|', {', '.join(cells)})"


def _key_in_mirror(names: Sequence[str]) -> str:
    cells = [f"CAST({quoted(name)} AS STRING)" for name in names]
    return cells[0] if len(cells) == 1 else f"concat_ws('|', {', '.join(cells)})"
