"""Keys of which one value comes in several spellings: ``1`` and ``1.0``, ``a`` and ``a  ``, a UUID in two letter cases.

Keys are compared as values of their type. What has no such type in a Delta table is kept as the text that was sent, and two
spellings of one value are two keys. Then one row of the source is two in the mirror, or a delete does not find its row.

A number whose precision no message names (Oracle's NUMBER, PostgreSQL's NUMERIC) is one value in all its spellings. Of a text,
or of a column without a type, this is not known: ``1`` and ``1.0`` may be two versions, ``a`` and ``a  `` two rows. There the
messages must prove it: an update or a delete by a spelling of which no row ever came, while a row by another one was there; or
each spelling came as a bare number of JSON, which is no text.  A row that was read from the source is newer than its place:
it proves nothing of a change before it was read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from ingest.errors import command, counted
from ingest.ledgers.mirrors import Column
from ingest.ledgers.raw import NOTHING, raw
from ingest.ledgers.rejects import PLACE
from ingest.quality.catalogue import FAILING_KEYS, KEY_SPELLINGS, Metric
from ingest.quality.ordered_lane import OrderedLane
from ingest.tables import duck
from ingest.tables.live_rows import IMAGES, live_rows
from ingest.tables.snapshots import read_sql
from ingest.tables.tables import Row

_ODD = r"\.[0-9]*0$|\.$|[eE]|^[+.]|^-?0[0-9]|^-0|^-\."
"""Spellings of a number other than its shortest one."""
_SHORTENED = (
    (r"^\+", ""), (r"(\.[0-9]*?)0+$", r"\1"), (r"\.$", ""), (r"^(-?)0+([0-9])", r"\1\2"), (r"^(-?)\.", r"\10."), ("^-0$", "0")
)  # fmt: skip
_NUMBER = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"
_BARE_NUMBER = re.compile(r'"([^"\\]*)"\s*:\s*([-+0-9.eE]+)\s*[,}]')  # a member of JSON
_MOMENT = r"([0-9]{4}-[0-9]{2}-[0-9]{2}[T ])?[0-9]{2}:[0-9]{2}:[0-9]{2}"
_ZEROS_OF_FRACTION = ((r"0+(Z?)$", r"\1"), (r"\.(Z?)$", r"\1"))
_UUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_HOSTS = r"([0-9.]+/32|[0-9a-fA-F]*:[0-9a-fA-F:.]+/128)"  # PostgreSQL's inet, with a mask that covers the whole address
_BOOLEANS = {"t": "1", "true": "1", "f": "0", "false": "0"}

_NUMBERS = frozenset({"decimal"})
_TEXTS = frozenset({"unknown", "string", "time"})


def key_spellings(ordered: OrderedLane) -> Iterator[Metric]:
    """The values of which the mirror has a row by another spelling than that of the newest change, or two rows."""
    mirror = ordered.subject.decided
    if not ordered.subject.keyed or not ordered.subject.exists:
        return
    was_in_doubt = False
    for types, must_be_proven in ((_NUMBERS, False), (_NUMBERS | _TEXTS, True)):
        doubtful = {column.name: column for column in mirror.key_columns if column.type in types}
        if not doubtful or (must_be_proven and doubtful.keys() <= _named(mirror.key_columns, _NUMBERS)):
            continue
        if not _is_in_doubt(ordered, doubtful):
            continue
        was_in_doubt = True
        if keys := _spelt_twice(ordered, doubtful, must_be_proven=must_be_proven):
            yield _complaint(ordered, doubtful, keys)
            return
    if was_in_doubt:
        yield ordered.metric(KEY_SPELLINGS, 0, "")


def _named(columns: Sequence[Column], types: frozenset[str]) -> set[str]:
    return {column.name for column in columns if column.type in types}


def _spelt_twice(ordered: OrderedLane, doubtful: Mapping[str, Column], *, must_be_proven: bool) -> list[Row]:
    """The keys, each with all its spellings; ``must_be_proven`` by an update or a delete of a spelling that never came."""
    names = ordered.subject.decided.keys
    key, left_key = (f"[{ordered.cells(*images)}]" for images in (("after", "before"), ("before", "after")))
    changes = f"""SELECT CASE WHEN op = 'update' AND {key} <> {left_key} THEN 'insert' ELSE op END AS op, order_key AS place, {IMAGES},
        {key} AS k, {left_key} AS left_key, event_time, {read_sql()} AS is_read
        FROM {{changes.change}} WHERE op <> 'truncate' AND {ordered.where} AND order_key > {duck.text(max(ordered.emptied(), _reformed(ordered)))}"""
    is_whole = " AND ".join(f"k[{i}] IS NOT NULL" for i in range(1, len(names) + 1))
    spelt = ordered.lake.ask(
        f"""WITH {live_rows(changes, "event_time", "is_read")},
        begun AS (SELECT k, min(place) AS first, arg_min(op, place) AS first_op, min(event_time) AS first_time,
            min(event_time) FILTER (is_read) AS read_time FROM written GROUP BY k),
        spelt AS (SELECT [{_in_one_spelling(names, doubtful)}] AS value, k, last, last.op <> 'delete' AS lives, begun.* EXCLUDE (k)
            FROM newest JOIN begun USING (k) WHERE {is_whole})
        SELECT arg_max(k, last) AS k, list(k) AS spellings, list(first) AS places,
            coalesce(max(first) FILTER (first_op IN ('update', 'delete')) > min(first) FILTER (first_op IN ('insert', 'read')), false)
                AND coalesce(max(first_time) FILTER (first_op IN ('update', 'delete')) > min(read_time) FILTER (first_op = 'read'), true) AS is_proven
        FROM spelt GROUP BY value
        HAVING count(*) > 1 AND count(*) FILTER (lives) > CASE WHEN arg_max(lives, last) THEN 1 ELSE 0 END
        ORDER BY k"""
    )
    if not must_be_proven:
        return spelt
    proven = [row for row in spelt if row["is_proven"]]
    return proven or _bare_numbers(ordered, doubtful, spelt)


def _reformed(ordered: OrderedLane) -> str:
    """The last place where the same key got other spellings by a statement; empty if there is none."""
    lane_eras = ordered.subject.decided.eras_of(*ordered.lane.id)
    return max(
        (era.place for before, era in pairwise(lane_eras) if {*before.keys} == {*era.keys}), default=""
    )


def _bare_numbers(ordered: OrderedLane, doubtful: Mapping[str, Column], spelt: Sequence[Row]) -> list[Row]:
    """The keys, of those that may be numbers, of which each spelling came as a number in its message, not as a text."""
    names = [column.name for column in ordered.subject.decided.key_columns]
    untyped = [i for i, name in enumerate(names) if name in doubtful and doubtful[name].type == "unknown"]
    numbers = [
        row
        for row in spelt
        if untyped and all(re.fullmatch(_NUMBER, key[i]) for key in row["spellings"] for i in untyped)
    ][:FAILING_KEYS]
    if not numbers:
        return []
    listed = ", ".join(duck.text(place) for row in numbers for place in row["places"])
    sent = ordered.lake.ask(
        f"""SELECT DISTINCT order_key, {", ".join(map(duck.name, PLACE))} FROM {{changes.change}}
        WHERE {ordered.where} AND order_key IN ({listed})"""
    )
    messages = raw(ordered.lake, sent, ordered.lane.table)
    json_of = {
        row["order_key"]: messages.get(tuple(row[name] for name in PLACE), NOTHING).text for row in sent
    }

    def is_bare(key: Sequence[str], place: str) -> bool:
        bare = _BARE_NUMBER.findall(json_of.get(place, ""))
        return all((names[i], key[i]) in bare for i in untyped)

    return [row for row in numbers if all(map(is_bare, row["spellings"], row["places"]))]


def _complaint(ordered: OrderedLane, doubtful: Mapping[str, Column], keys: Sequence[Row]) -> Metric:
    names = ordered.subject.decided.keys
    failing = ordered.named(row["k"] for row in keys)
    spellings: list[list[str]] = sorted(keys[0]["spellings"])
    said = " and ".join(", ".join(map(_quoted, cells)) for cells in spellings)
    types = {
        name: _type_of([cells[i] for cells in spellings]) for i, name in enumerate(names) if name in doubtful
    }
    return ordered.metric(
        KEY_SPELLINGS,
        len(keys),
        f"{counted(len(keys), 'key')} of {ordered.lane.table} came in several spellings, such as {said}, and no message names the "
        f"digits or the type of {', '.join(doubtful)}, so each spelling is a key of its own: {_way_out(ordered, types)}",
        failing,
    )


def _quoted(text: str) -> str:
    """A text as it is, in quotes if a reader would not see where it ends."""
    return f"'{text}'" if text != text.strip() else text


def _way_out(ordered: OrderedLane, types: Mapping[str, str]) -> str:
    file, subject = ordered.lake.pipeline.file, ordered.subject.name
    drop = command("drop", file, subject, "--reason", "keys in several spellings")
    if not all(types.values()):
        return (
            "no type makes them one, so the source must send one spelling: when it does, exclude the table, remove its mirror with "
            f"`{drop}`, include the table again and load it from the source"
        )
    entries = ", ".join(f'{name}: "{logical}"' for name, logical in types.items())
    return (
        f"exclude the table, remove its mirror with `{drop}`, and include it again with `columns: {{{entries}}}` (of a decimal, as "
        "many digits as the source has): with its next message the table is folded by values"
    )


def _type_of(spellings: Sequence[str]) -> str:
    """The type by which some spellings of one cell are one value; empty if there is none."""
    if all(re.fullmatch(_NUMBER, text) for text in spellings):
        return "decimal(38,10)"
    if all(text.lower() in _BOOLEANS or text in _BOOLEANS.values() for text in spellings):
        return "boolean"
    is_datetime = all(re.match(_MOMENT, text) and "-" in text for text in spellings)
    return "datetime" if is_datetime and not any(text.endswith("Z") for text in spellings) else ""


def _is_in_doubt(ordered: OrderedLane, doubtful: Mapping[str, Column]) -> bool:
    """True if a key in the mirror or in the new changes has not the spelling of `_usual`.

    Where each key is padded or has capital letters, as a source writes all of its CHARs and UUIDs, the history need not be read.
    """
    in_mirror = [(duck.name(column.column), column.type) for column in doubtful.values()]
    in_changes = [
        (duck.cells([name], *images), column.type)
        for name, column in doubtful.items()
        for images in (("after", "before"), ("before", "after"))
    ]
    seen = ordered.lake.ask_mirror(ordered.subject.path, f"SELECT {_spellings(in_mirror)} FROM {{mirror}}")
    seen += ordered.lake.ask(
        f"""SELECT {_spellings(in_changes)} FROM {{changes.change}}
        WHERE {ordered.where} AND batch > {ordered.since} AND op <> 'truncate'"""
    )
    return any(row["odd"] for row in seen) and any(row["differs"] for row in seen)


def _spellings(cells: Sequence[tuple[str, str]]) -> str:
    """Columns in SQL: whether some of the cells, each with its type, have not their usual spelling, and whether some are neither
    padded nor a UUID in capital letters.
    """
    odd = " OR ".join(_is_odd(cell, logical) for cell, logical in cells)
    alike = [
        f"({cell} LIKE '% ' OR ({_is_whole(cell, _UUID)} AND {cell} <> lower({cell})))" for cell, _ in cells
    ]
    return f"bool_or({odd}) AS odd, bool_or(NOT ({' AND '.join(alike)})) AS differs"


def is_odd(text: str) -> str:
    """The condition in SQL that a number has not its shortest spelling."""
    return f"regexp_matches({text}, {duck.text(_ODD)})"


def _is_odd(cell: str, logical: str) -> str:
    """The condition in SQL that a cell of a type has not the spelling that `_usual` gives it."""
    return is_odd(cell) if logical in _NUMBERS else f"({cell} <> {_usual(cell, logical)})"


def _in_one_spelling(names: Sequence[str], doubtful: Mapping[str, Column]) -> str:
    """The cells of a key ``k`` in SQL, each doubtful one in the spelling that is common to all of its value."""
    cells = [f"k[{i}]" for i in range(1, len(names) + 1)]
    return ", ".join(
        _usual(cell, doubtful[name].type) if name in doubtful else cell
        for name, cell in zip(names, cells, strict=True)
    )


def _usual(cell: str, logical: str) -> str:
    """A cell in SQL in one spelling for all texts that a column of its type may have for one value.

    CHAR is padded with spaces, a UUID may have capital letters, an address the mask of a single host, a time zeros at the end of its fraction of a second; only of a column without a
    type a text may be a number or a boolean.
    """
    if logical in _NUMBERS:
        return shortest_number(cell)
    without_zeros = cell
    for longer, shorter in _ZEROS_OF_FRACTION:
        without_zeros = f"regexp_replace({without_zeros}, {duck.text(longer)}, {duck.text(shorter)})"
    texts = [
        (_is_whole(cell, _UUID), f"lower({cell})"),
        (_is_whole(cell, _HOSTS), f"regexp_replace({cell}, '/.*', '')"),
        (_is_whole(cell, rf"{_MOMENT}\.[0-9]+Z?"), without_zeros),
    ]
    if logical == "unknown":
        texts.insert(0, (_is_whole(cell, "[1-9][0-9]*"), cell))  # most keys, and a fifth of the time
        texts += [(_is_whole(cell, _NUMBER), shortest_number(cell))]
        texts += [
            (f"lower({cell}) = {duck.text(word)}", duck.text(digit)) for word, digit in _BOOLEANS.items()
        ]
    cases = " ".join(f"WHEN {condition} THEN {usual}" for condition, usual in texts)
    return f"CASE {cases} ELSE rtrim({cell}, ' ') END"


def _is_whole(cell: str, pattern: str) -> str:
    # Spark has no function for whole texts
    return f"regexp_matches({cell}, {duck.text(f'^({pattern})$')})"


def shortest_number(cell: str) -> str:
    """The shortest spelling in SQL of a number's text, which is that of no other number."""
    has_exponent = f"regexp_matches({cell}, '[eE]')"
    spelt = f"CASE WHEN {has_exponent} THEN coalesce(TRY_CAST({cell} AS DECIMAL(38,10))::VARCHAR, {cell}) ELSE {cell} END"
    for longer, shorter in _SHORTENED:
        spelt = f"regexp_replace({spelt}, {duck.text(longer)}, {duck.text(shorter)})"
    return spelt
