"""Numbers in keys that come in several spellings: ``1`` and ``1.0``, ``100`` and ``1E+2``.

Keys are compared as values of their type. A number whose precision no message names (Oracle's NUMBER, PostgreSQL's NUMERIC)
has no such type in a Delta table: it is kept as the text that was sent, and two spellings of one number are two keys. Then
one row of the source is two in the mirror, or a delete does not find its row.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingest.errors import command, counted
from ingest.lake import duck
from ingest.quality.catalogue import FAILING_KEYS, KEY_SPELLINGS, Metric, key_json
from ingest.quality.live_rows import live_rows
from ingest.quality.ordered_lane import OrderedLane

_ODD = r"\.[0-9]*0$|\.$|[eE]|^[+.]|^-?0[0-9]|^-0|^-\."
"""Spellings of a number other than its shortest one."""
_SHORTENED = (
    (r"^\+", ""), (r"(\.[0-9]*?)0+$", r"\1"), (r"\.$", ""), (r"^(-?)0+([0-9])", r"\1\2"), (r"^(-?)\.", r"\10."), ("^-0$", "0")
)  # fmt: skip


def key_spellings(one: OrderedLane) -> Iterator[Metric]:
    """The numbers of which the mirror has a row by another spelling than that of the newest change, or two rows."""
    mirror = one.subject.mirror
    if mirror is None or not one.subject.keyed or not one.subject.exists:
        return
    numbers = [column for column in mirror.key_columns if column.type == "decimal"]
    if not numbers or not _is_in_doubt(one, [column.name for column in numbers]):
        return
    names = [column.name for column in mirror.key_columns]
    number_names = {column.name for column in numbers}
    changes = f"""SELECT op, order_key AS place, [{one.cells("after", "before")}] AS k, [{one.cells("before", "after")}] AS left_key
        FROM {{changes.change}} WHERE op <> 'truncate' AND {one.where} AND order_key > {duck.text(one.emptied())}"""
    keys = one.lake.ask(
        f"""WITH {live_rows(changes)},
        numbers AS (SELECT [{_shortest(names, number_names)}] AS number, k, last, last.op <> 'delete' AS lives
            FROM newest WHERE list_aggregate(k, 'count') = {len(names)})
        SELECT arg_max(k, last) AS k, string_agg(array_to_string(k, ', '), ' and ' ORDER BY k) AS spelt FROM numbers GROUP BY number
        HAVING count(*) > 1 AND count(*) FILTER (lives) > CASE WHEN arg_max(lives, last) THEN 1 ELSE 0 END ORDER BY k"""
    )
    detail = ""
    failing = tuple(key_json(names, row["k"]) for row in keys[:FAILING_KEYS])
    if keys:
        entries = ", ".join(f'{column.name}: "decimal(38,10)"' for column in numbers)
        drop = command(
            "drop", one.lake.pipeline.file, one.subject.name, "--reason", "numbers in several spellings"
        )
        detail = (
            f"{counted(len(keys), 'key')} of {one.lane.table} came in several spellings, such as {keys[0]['spelt']}, and no message "
            f"names the digits of {', '.join(column.name for column in numbers)}, so each spelling is a key of its own: exclude the "
            f"table, remove its mirror with `{drop}`, and include it again with `columns: {{{entries}}}` and as many digits as the "
            "source has: with its next message the table is folded by values"
        )
    yield one.metric(KEY_SPELLINGS, len(keys), detail, failing)


def _is_in_doubt(one: OrderedLane, names: list[str]) -> bool:
    """True if a number in the mirror's keys or in those of the new changes has not its shortest spelling."""
    columns = {column.name: column.column for column in one.subject.decided.columns}
    in_mirror = " OR ".join(is_odd(duck.name(columns[name])) for name in names)
    if one.lake.ask_mirror(one.subject.path, f"SELECT 1 AS n FROM {{mirror}} WHERE {in_mirror} LIMIT 1"):
        return True
    sent = [
        duck.cells([name], *images) for name in names for images in (("after", "before"), ("before", "after"))
    ]
    in_changes = " OR ".join(map(is_odd, sent))
    return bool(
        one.lake.ask(
            f"""SELECT 1 AS n FROM {{changes.change}} WHERE {one.where} AND batch > {one.since} AND op <> 'truncate'
            AND ({in_changes}) LIMIT 1"""
        )
    )


def is_odd(text: str) -> str:
    """The condition in SQL that a number has not its shortest spelling."""
    return f"regexp_matches({text}, {duck.text(_ODD)})"


def _shortest(names: list[str], numbers: set[str]) -> str:
    """The cells of a key ``k`` in SQL, each number in its shortest spelling."""
    cells = (f"k[{i}]" for i in range(1, len(names) + 1))
    return ", ".join(
        shortest_number(cell) if name in numbers else cell for name, cell in zip(names, cells, strict=True)
    )


def shortest_number(cell: str) -> str:
    """The shortest spelling in SQL of a number's text, which is that of no other number."""
    has_exponent = f"regexp_matches({cell}, '[eE]')"
    spelt = f"CASE WHEN {has_exponent} THEN coalesce(TRY_CAST({cell} AS DECIMAL(38,10))::VARCHAR, {cell}) ELSE {cell} END"
    for longer, shorter in _SHORTENED:
        spelt = f"regexp_replace({spelt}, {duck.text(longer)}, {duck.text(shorter)})"
    return spelt
