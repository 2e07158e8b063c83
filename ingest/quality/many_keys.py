"""Compare the keys of mirrors with those of the changes by DuckDB, for any number of changes and any type of key.

Rows and changes meet under the hash of their typed key; DuckDB writes to disk what does not fit into its memory. Mirrors
with the same key columns share one scan of ``changes``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest import types
from ingest.departures import NO_TRANSACTION
from ingest.fold import KeyCellError, typed
from ingest.ledgers.cleared import last_truncate
from ingest.order import place_sql
from ingest.quality.arrow_rows import key_text
from ingest.quality.catalogue import FAILING_KEYS
from ingest.quality.key_sides import Side, SideLane
from ingest.store import stores
from ingest.store.names import quoted
from ingest.tables import delta, duck
from ingest.tables.cell_values import of_column, of_text
from ingest.tables.json_cells import object_in
from ingest.tables.lake import Lake
from ingest.tables.schemas import CHANGES
from ingest.tables.tables import duck_types, filled, scan

MEMORY = "1GB"  # of DuckDB, before it writes to disk
LARGE_IMAGES = 16 << 10  # bytes of a change's images that are read one after another
SCANS = 3  # of `changes`; with more kinds of keys it is read once and kept
PAGE = 64 << 20  # bytes of a mirror that Spark hands over at once
PAGE_ROWS = 1_000_000  # the same of changes, in rows
_COLUMNS = (
    "source", "database", "schema", "table", "batch", "topic", "partition", "offset", "op", "order_key", "partial",
    "before", "after", "transaction",
)  # fmt: skip
_ALL_CAST = ("integer", "date")  # families whose well-formed texts DuckDB casts exactly, or to NULL
_ARROW = {
    "BOOLEAN": pa.bool_(), "FLOAT": pa.float32(), "DOUBLE": pa.float64(), "BINARY": pa.binary(),
    "TIMESTAMP": pa.timestamp("us"), "TIMESTAMP_NTZ": pa.timestamp("us"),
}  # fmt: skip
_FAULTS = {  # what each check counts of the keys of `_keys`
    "lacking": "alive AND n = 0",
    "ghost_rows": "n > 0 AND NOT alive",
    "incomplete_rows": "alive AND n > 0 AND whole IS NULL",
    "ambiguities": "ties > 0",
    "duplicates": "repeats > 0",
}
Numbers = dict[str, int]
_Filled = Callable[[str], str]


class KeyFunctions:
    """A database of DuckDB with the functions that texts of keys need; they end with the connection that defines them."""

    def __init__(self) -> None:
        self.base = duck.opened()
        self._functions: dict[str, str] = {}  # by logical type
        self.base.execute("SET preserve_insertion_order = false")
        self.base.create_function(  # type: ignore[call-overload]  # which knows no texts as names of options
            "cell_of_large", _cell_of_large, ["VARCHAR"] * 3, "VARCHAR", null_handling="special"
        )

    def exact(self, logical: str) -> str:
        """A function for texts that SQL casts in another way than the fold, or not at all."""
        if logical not in self._functions:
            name, kind = f"exact_{len(self._functions)}", duck.type_of(types.delta(logical))
            values = partial(_values, logical)
            self.base.create_function(  # type: ignore[call-overload]  # which knows no texts as names of options
                name, values, ["VARCHAR"], kind, type="arrow", null_handling="special"
            )
            self._functions[logical] = name
        return self._functions[logical]


class KeyDatabase:
    """The keys of some mirrors, in temporary tables of a database that no one else uses meanwhile."""

    def __init__(self, lake: Lake, database: KeyFunctions) -> None:
        self._lake = lake
        self._exact = database.exact
        self._base = database.base.cursor()

    def close(self) -> None:
        """Drop the tables."""
        self._base.close()

    def take(self, sides: Sequence[Side]) -> None:
        """Take in what the changes say of the mirrors' keys."""
        self._base.execute(_EVENTS)
        groups = _alike(sides)
        for lanes in groups.values():
            for side, i, _ in lanes:
                self._clear(side, i)
        for fill in self._changes(sides):
            for lanes in groups.values():
                self._base.execute(f"INSERT INTO events {fill(_events(self._cells(lanes), lanes[0][0]))}")
        cut = _begun_before(sides)
        self._base.register("cut", cut)
        self._base.execute(_SHARED)
        if not len(cut) and self._base.execute("FROM shared LIMIT 1").fetchone() is None:
            self._base.execute(_ALONE)
        else:
            self._base.execute(_STATES)
            while (
                any(side.since <= 0 for side in sides) and (self._base.execute(_MOVED).fetchone() or (0,))[0]
            ):
                pass  # once for each time that a row has moved
        self._base.execute("DROP TABLE events; DROP TABLE shared")

    def numbers(self, sides: Sequence[Side]) -> dict[int, Numbers]:
        """Every check's number for each of some mirrors, by its index, in one query: planning takes longer than small mirrors."""
        rows = [self._rows(sides[0])] if len(sides) == 1 else map(self._scanned, sides)
        query = self._base.execute(_counts(list(zip(sides, rows, strict=True))))
        names = [name for name, *_ in query.description or ()]
        by_index, counted = {side.index: side for side in sides}, {}
        for counts in query.fetchall():
            row = dict(zip(names, counts, strict=True))
            side = by_index[row.pop("m")]
            row[side.lacking] = row.pop("lacking")
            asked = {name: int(n or 0) for name, n in row.items() if name == "rows" or side.asks(name)}
            counted[side.index] = asked
        return counted

    def failing(self, side: Side, check: str) -> tuple[str, ...]:
        """Some of the keys that a check complains of, as JSON."""
        names, rows = ", ".join(_names(side)), self._rows(side)
        fault = _FAULTS.get("lacking" if check == side.lacking else check)
        hashes = f"{_keys([(side, rows)])} SELECT h FROM keys WHERE {fault}"
        if check == "key_not_null":
            return self._named(side, f"SELECT DISTINCT {names} FROM {rows} WHERE {_empty(side)}")
        if check == "key_unique":
            doubled = f"NOT ({_empty(side)}) GROUP BY {names} HAVING count(*) > 1"
            return self._named(side, f"SELECT {names} FROM {rows} WHERE {doubled}")
        if check == "ghost_rows":
            of_ghosts = f"NOT ({_empty(side)}) AND {_own(side)} IN ({hashes})"
            return self._named(side, f"SELECT DISTINCT {names} FROM {rows} WHERE {of_ghosts}")
        keys: tuple[str, ...] = ()
        for text in self._concerned(side, f"{_hash('k', side)} IN ({hashes})", "k"):
            keys = tuple(sorted({*keys, *self._named(side, text)}))[:FAILING_KEYS]
        return keys

    def changed(self, mirror_side: Side) -> pa.Table:
        """The keys that the changes concern, in the types of the mirror."""
        texts = [text for side in "kp" for text in self._concerned(mirror_side, "true", side)]
        tables = [self._base.execute(text).to_arrow_table() for text in texts]
        return pa.concat_tables(tables) if tables else pa.table({})

    def _concerned(self, mirror_side: Side, where: str, side: str) -> Iterator[str]:
        """Queries for the keys after the changes (``k``) or before them (``p``)."""
        cells = []
        for i, column in enumerate(mirror_side.columns):
            zone = " AT TIME ZONE 'UTC'" if column.delta == "TIMESTAMP" else ""
            cells.append(f"{side}{i}{zone} AS {duck.name(column.column)}")
        for fill in self._changes([mirror_side]):
            for lanes in _alike([mirror_side]).values():
                text = f"SELECT DISTINCT {', '.join(cells)} FROM ({self._cells(lanes)}) WHERE {_fits(mirror_side)} AND {where}"
                yield fill(text)

    def _named(self, side: Side, text: str) -> tuple[str, ...]:
        kinds = [column.delta for column in side.columns]
        rows = self._base.execute(f"{text} LIMIT {FAILING_KEYS}").to_arrow_table()
        cells = [of_column(column, kind) for column, kind in zip(rows.columns, kinds, strict=True)]
        names = [column.name for column in side.columns]
        return tuple(sorted(key_text(names, row, kinds) for row in zip(*cells, strict=True)))

    def _clear(self, side: Side, index: int) -> None:
        """Record where a lane was last emptied: no earlier row may be in its mirror."""
        lane = side.subject.lanes[index]
        if not (lane.truncates or (lane.truncates_ever and lane.floor)):
            return
        new = f"batch > {side.since}" + (f" OR order_key >= {duck.text(lane.floor)}" if lane.floor else "")
        truncated = last_truncate(self._lake, lane.id, side.subject.applied, new)
        if truncated is not None:
            side.clear(index, truncated)

    def _changes(self, sides: Sequence[Side]) -> Iterator[_Filled]:
        """Functions that put the new changes into a query, one for each part of them: their files, or pages of Spark."""
        lanes = [lane for side in sides for _, lane in side.lanes]
        if not lanes:
            return
        if files := self._files(sides, late=any(lane.floor for lane in lanes)):
            yield partial(filled, table=lambda _name, _kind: files)
            return
        new = F.col("batch") > sides[0].since
        if floors := [lane.floor for lane in lanes if lane.floor]:
            new |= F.col("order_key") >= min(floors)
        frame = self._lake.rows(CHANGES).where((F.col("kind") == "change") & new).select(*_COLUMNS)
        count = sum(lane.changes_ever if lane.floor else lane.changes for lane in lanes)
        for page in _pages(frame, ["offset"], 1 + count // PAGE_ROWS):
            self._base.register("page", page)
            yield partial(filled, table=lambda _name, _kind: "page")

    def _files(self, sides: Sequence[Side], *, late: bool) -> str:
        """The files with new changes as a subquery; empty if Spark must read them."""
        if not self._lake.is_local:
            return ""
        folder, since = self._lake.path(CHANGES.name), sides[0].since
        with suppress(Exception):  # Spark reports damage in words
            state = delta.snapshot(folder)
            files = tuple(
                file
                for file in state.files
                if file.partition.get("kind") == "change"
                and (late or file.may_hold("batch", since + 1, 1 << 62))
            )
            text = scan(folder, replace(state, files=files), duck_types(CHANGES), wanted=_COLUMNS)
            if len(_alike(sides)) <= SCANS:
                return text
            new = "true" if late else f"batch > {since}"
            self._base.execute(f"CREATE OR REPLACE TEMP TABLE read AS FROM {text} WHERE {new}")
            return "read"
        return ""

    def _rows(self, side: Side) -> str:
        """A mirror's rows as a subquery: its files, or a copy of the keys that Spark reads."""
        if self._lake.is_local:
            with suppress(Exception):
                return self._scanned(side)
        keys = [quoted(name) for name in _read(side)]
        pages = _pages(self._lake.read(side.subject.path).select(*keys), keys, 1 + side.subject.size // PAGE)
        for n, page in enumerate(pages):
            self._base.register("page", page)
            self._base.execute(
                "INSERT INTO copied FROM page" if n else "CREATE OR REPLACE TEMP TABLE copied AS FROM page"
            )
        return "copied"

    def _scanned(self, side: Side) -> str:
        """A mirror's files as a subquery."""
        folder = self._lake.path(side.subject.path)
        return scan(folder, delta.snapshot(folder), wanted=_read(side))

    def _cells(self, lanes: Sequence[SideLane]) -> str:
        """Each new change with the key of its row (``k0`` ...), and the one that its row had before (``p0`` ...)."""
        rows = []
        for side, i, lane in lanes:
            # above a floor older changes are read, too
            moves = lane.key_changes_ever if lane.floor else lane.key_changes
            above = side.above(i, lane), side.subject.applied
            sent = side.subject.decided.sent if side.asks("incomplete_rows") else ()
            names = [column.name for column in sent]
            others = [name for name in names if name not in side.subject.decided.keys]
            literals = _literals(side.index, lane.source, *lane.table, *above, moves, lane.floor)
            rows.append(f"({literals}, {duck.pointers(names)}, {duck.pointers(others)})")
        listed = ", ".join(rows)
        texts, keys, moved = [], [], "l.moves > 0 AND op IN ('insert', 'update')"
        for n, (name, logical) in enumerate(lanes[0][0].signature):
            after, before = _cell("after", "before", name), _cell("before", "after", name)
            texts.append(f"CASE WHEN op = 'delete' THEN {before} ELSE {after} END AS t{n}")
            texts.append(f"CASE WHEN {moved} THEN {before} END AS u{n}")
            keys.append(f"{self._typed(f't{n}', logical)} AS k{n}")
            keys.append(f"CASE WHEN moved THEN {self._typed(f'u{n}', logical)} ELSE k{n} END AS p{n}")
        kept = ", ".join(map(duck.name, _COLUMNS[4:]))
        return f"""SELECT m, {kept}, all_columns, other_columns, {", ".join(keys)}
            FROM (SELECT l.m, {kept}, l.all_columns, l.other_columns, {", ".join(texts)}, {moved} AS moved
            FROM {{changes.change}} AS c
            JOIN (VALUES {listed}) AS l(m, s, d, u, t, above, applied, moves, floor, all_columns, other_columns)
            ON c.source = l.s AND c."database" IS NOT DISTINCT FROM l.d AND c."schema" IS NOT DISTINCT FROM l.u
            AND c."table" IS NOT DISTINCT FROM l.t AND batch <= l.applied
            WHERE op <> 'truncate' AND order_key > l.above
            AND (batch > {lanes[0][0].since} OR order_key >= l.floor))"""

    def _typed(self, text: str, logical: str) -> str:
        """The value of a key's text; NULL for one that the fold rejects."""
        family, kind = types.family(logical), types.delta(logical)
        if family is None or kind == "STRING":
            return text
        form = _form(family, logical)
        odd = "NULL" if family in _ALL_CAST else f"{self._exact(logical)}({text})"
        cast = f"TRY_CAST({text} AS {duck.type_of(kind)})"
        return f"CASE WHEN regexp_full_match({text}, '{form}') THEN {cast} ELSE {odd} END" if form else odd


def _begun_before(sides: Sequence[Side]) -> pa.Table:
    """The transactions of mirrors that began in earlier batches; NULL where rows have met outside of transactions."""
    cut: list[tuple[int, str | None]] = []
    for side in sides:
        for lane in side.subject.cut.values():
            cut += [(side.index, name) for name in lane.begun]
            cut += [(side.index, None)] if lane.met else []
    rows = [{"m": index, "transaction": name} for index, name in cut]
    return pa.Table.from_pylist(rows, pa.schema([("m", pa.int32()), ("transaction", pa.string())]))


_idle: list[KeyFunctions] = []  # opening another one takes longer than the checks of a small lake


@contextmanager
def opened(lake: Lake) -> Iterator[KeyDatabase]:
    """An empty database; what it writes to disk is deleted at the end."""
    try:  # a database of earlier times cannot read the files of a store
        database = KeyFunctions() if stores.are_used() else _idle.pop()
    except IndexError:
        database = KeyFunctions()
    with tempfile.TemporaryDirectory() as folder:
        database.base.execute(f"SET memory_limit = '{MEMORY}'")
        database.base.execute(f"SET temp_directory = {duck.text(folder)}")
        try:
            with closing(KeyDatabase(lake, database)) as keys:
                yield keys
        finally:
            _leave(database)


def _leave(database: KeyFunctions) -> None:
    """Keep a database for the next check, unless it keeps parts of a store's files or has used its folder, which cannot be changed."""
    with suppress(Exception):
        database.base.execute("SET temp_directory = ''")
        if not stores.are_used():
            _idle.append(database)
            return
    database.base.close()


def _pages(frame: DataFrame, columns: Sequence[str], count: int) -> Iterator[pa.Table]:
    """What Spark reads, in parts of a size that the driver takes."""
    for i in range(count):
        part = F.pmod(F.xxhash64(*columns), F.lit(count)) == i
        yield (frame.where(part) if count > 1 else frame).toArrow()


def _alike(sides: Iterable[Side]) -> dict[tuple[tuple[str, str], ...], list[SideLane]]:
    """The lanes of mirrors by the names and types of their keys."""
    alike: dict[tuple[tuple[str, str], ...], list[SideLane]] = {}
    for side in sides:
        for i, lane in side.lanes:
            alike.setdefault(side.signature, []).append((side, i, lane))
    return alike


def _literals(*values: str | int | None) -> str:
    """The beginning of a row of VALUES, in which every NULL is one of texts."""
    return ", ".join("NULL::VARCHAR" if value is None else duck.value(value) for value in values)


def _cell(first: str, second: str, column: str) -> str:
    """The text of a key cell from the first image that has its column, even if it is NULL there."""
    cell = duck.sent_cell(column, first, second)
    size = f"coalesce(strlen({first}), 0) + coalesce(strlen({second}), 0)"
    return f"CASE WHEN {size} > {LARGE_IMAGES} THEN cell_of_large({first}, {second}, {duck.text(column)}) ELSE {cell} END"


def _cell_of_large(first: str | None, second: str | None, column: str) -> str | None:
    """The same for large images, of which DuckDB would keep five times the size of all that it reads together."""
    image: dict[str, str | None] = object_in(first)
    cell: str | None = image[column] if column in image else object_in(second).get(column)
    return cell


def _form(family: str, logical: str) -> str:
    """The form of the texts that DuckDB casts exactly; empty if there is none."""
    if family == "decimal" and (parts := types.decimal_parts(logical)):
        return rf"[+-]?[0-9]{{1,40}}([.][0-9]{{0,{parts[1]}}}0{{0,40}})?"
    if family == "datetime":
        return "[0-9]{4}-[0-9]{2}-[0-9]{2} ([01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?"
    return types.PATTERNS[family] if family in _ALL_CAST else ""


def _values(logical: str, texts: pa.ChunkedArray) -> pa.Array:
    """The values that a mirror holds for key texts; NULL for those that the fold rejects."""
    values: list[object] = []
    for text in texts.to_pylist():
        value = None
        if text is not None:
            with suppress(KeyCellError):
                typed(logical, text)
                value = of_text(text, logical)
        values.append(getattr(value, "number", value))  # of floats, of which the bits are compared elsewhere
    parts = types.decimal_parts(logical)
    return pa.array(values, pa.decimal128(*parts) if parts else _ARROW[types.delta(logical)])


# --- SQL ------------------------------------------------------------------------------------------


def _names(side: Side) -> list[str]:
    return [duck.name(column.column) for column in side.columns]


def _empty(side: Side) -> str:
    return " OR ".join(f"{name} IS NULL" for name in _names(side))


def _own(side: Side) -> str:
    """The hash of a mirror's key."""
    kinds = [duck.type_of(column.delta) for column in side.columns]
    cells = [f"TRY_CAST({name} AS {kind})" for name, kind in zip(_names(side), kinds, strict=True)]
    return _hash_of(cells, side)


def _hash(side: str, mirror_side: Side) -> str:
    """The hash of the key after the changes (``k``) or before them (``p``)."""
    return _hash_of([f"{side}{i}" for i in range(len(mirror_side.columns))], mirror_side)


def _hash_of(cells: Iterable[str], side: Side) -> str:
    """The hash of a key. Of decimals it is that of their texts: DuckDB's own is the same for 0 and -1."""
    pairs = zip(cells, side.columns, strict=True)
    return f"hash({', '.join(f'{cell}::VARCHAR' if key.delta.startswith('DECIMAL') else cell for cell, key in pairs)})"


def _fits(mirror_side: Side) -> str:
    """The condition that the fold has not rejected a change for its key."""
    return " AND ".join(f"{side}{i} IS NOT NULL" for i in range(len(mirror_side.columns)) for side in "kp")


_EVENTS = """CREATE TEMP TABLE events
(m INTEGER, h UBIGINT, was UBIGINT, order_key VARCHAR, gone BOOLEAN, whole BOOLEAN, place UBIGINT, message UBIGINT, content UBIGINT,
comes BOOLEAN, "transaction" VARCHAR, said UBIGINT, sent UBIGINT)"""


def _events(cells: str, side: Side) -> str:
    """Each change under the hash of its key and of the key that its row had before."""
    return f"""SELECT m, {_hash("k", side)} AS h, {_hash("p", side)} AS was, order_key, op = 'delete' AS gone,
        {_whole(side)} AS whole,
        hash(coalesce({place_sql("order_key")}, order_key)) AS place,
        hash(batch, topic, "partition", "offset") AS message, hash(op, hash(before), hash(after)) AS content,
        op = 'insert' AS comes, CASE WHEN "transaction" NOT IN {NO_TRANSACTION} THEN "transaction" END AS "transaction",
        hash(before) AS said, hash(after) AS sent
        FROM ({cells}) WHERE {_fits(side)}"""


def _whole(side: Side) -> str:
    """The condition that a change has set all columns of its row; an update's images are judged as in `ingest.quality.cell_diff`."""
    if not side.asks("incomplete_rows"):
        return duck.SENT_WHOLE
    size = "coalesce(strlen(before), 0) + coalesce(strlen(after), 0)"
    return f"""CASE WHEN {duck.SENT_WHOLE} THEN true WHEN before IS NULL OR after IS NULL OR {size} > {LARGE_IMAGES} THEN false
        ELSE len(list_filter(all_columns, lambda pointer: NOT json_exists(after, pointer))) = 0
        AND len(list_filter(other_columns, lambda pointer: json_exists(before, pointer))) > 0
        AND len(list_filter(other_columns, lambda pointer: coalesce(
            json_extract(before, pointer) IS DISTINCT FROM json_extract(after, pointer), false) AND json_exists(before, pointer)
        )) < len(other_columns) END"""


# The keys of several changes.
_SHARED = """CREATE TEMP TABLE shared AS
SELECT m, h FROM (SELECT m, h FROM events UNION ALL SELECT m, was FROM events WHERE was <> h) GROUP BY m, h HAVING count(*) > 1"""
_SEATS = """seats AS NOT MATERIALIZED (
    SELECT m, h, order_key || '1' || CAST(gone AS INTEGER) AS last, whole, place, message, content,
        comes OR was <> h AS comes, "transaction", said, sent FROM events
    UNION ALL SELECT m, was, order_key || '01', whole, place, message, content, false, "transaction", said, sent
        FROM events WHERE was <> h)"""
_OF_ONE = """SELECT m, h, right(last, 1) = '0' AS alive, CASE WHEN whole THEN last END AS whole, 0 AS ties, 0 AS repeats, false AS unsure
FROM seats"""
# What follows takes ten milliseconds to plan: most small batches need none of it.
_ALONE = f"CREATE TEMP TABLE states AS WITH {_SEATS} {_OF_ONE}"
# Which of two rows that met at a key has left it (`met`) is not in the last change: the check of cells judges these,
# and what leaves a key in a transaction that began in an earlier batch.
# A key that no row has left has none to ask for (`left_keys`): a first load sorts nothing. Nor does it put together the changes
# of a key that has only one (`several`): most of its keys.
# Changes of one place that all take the row away are no tie, such as the two messages of a changed key.
# Order keys are no prefixes of each other, so the order of these texts is that of (order key, half, deleted).
_STATES = f"""CREATE TEMP TABLE states AS
WITH {_SEATS},
cut_off AS MATERIALIZED (SELECT DISTINCT seats.m, h FROM seats
    JOIN cut ON seats.m = cut.m AND seats."transaction" IS NOT DISTINCT FROM cut."transaction" WHERE right(last, 1) = '1'),
several AS MATERIALIZED (FROM shared UNION FROM cut_off),
halves AS MATERIALIZED (FROM seats SEMI JOIN several USING (m, h)),
left_keys AS (SELECT DISTINCT m, h FROM halves WHERE right(last, 1) = '1'),
met AS (
    SELECT DISTINCT m, h FROM halves SEMI JOIN left_keys USING (m, h) WHERE "transaction" IS NOT NULL GROUP BY m, h, "transaction"
        HAVING min(last) FILTER (comes) < max(last) FILTER (right(last, 1) = '1')
    UNION SELECT m, h FROM (SELECT m, h, right(last, 1) = '1' AS leaves, said, lag(comes) OVER w AS came, lag(sent) OVER w AS sent
        FROM halves SEMI JOIN left_keys USING (m, h) WHERE "transaction" IS NULL WINDOW w AS (PARTITION BY m, h ORDER BY last))
        WHERE leaves AND came AND said IS DISTINCT FROM sent
    UNION FROM cut_off),
places AS (SELECT m, h, max(last) AS last, min(last) FILTER (whole) AS whole, min(message) <> max(message) AS again,
    min(content) = max(content) AS same, bool_or(right(last, 1) = '0') AS stays FROM halves GROUP BY m, h, place)
SELECT m, h, right(max(last), 1) = '0' AS alive, min(whole) AS whole,
    count(*) FILTER (again AND NOT same AND stays) AS ties, count(*) FILTER (again AND same) AS repeats,
    any_value(met.m) IS NOT NULL AS unsure
FROM places LEFT JOIN met USING (m, h) GROUP BY m, h
UNION ALL {_OF_ONE} ANTI JOIN several USING (m, h)"""
# A row that a partial update gives another key is as whole as it was under the old one.
_MOVED = """UPDATE states SET whole = moved.place FROM (
    SELECT e.m, e.h, min(e.order_key) AS place FROM events AS e JOIN states AS s ON s.m = e.m AND s.h = e.was
    WHERE e.was <> e.h AND NOT e.whole AND s.whole < e.order_key GROUP BY e.m, e.h) AS moved
WHERE states.m = moved.m AND states.h = moved.h AND coalesce(states.whole > moved.place, true)"""


def _keys(sides: Sequence[tuple[Side, str]]) -> str:
    """The keys of mirrors, each given with its rows, and of their changes, for a query."""
    parts = " UNION ALL ".join(_present(side, rows) for side, rows in sides)
    closed = ", ".join(str(side.index) for side, _ in sides if side.closed) or "NULL"
    return f"""WITH present AS MATERIALIZED (SELECT m, h, empty, count(*) AS n FROM ({parts}) GROUP BY ALL),
    keys AS (SELECT m, h, CASE WHEN unsure THEN NULL ELSE coalesce(alive, CASE WHEN m IN ({closed}) THEN false END) END AS alive, whole,
        coalesce(ties, 0) AS ties, coalesce(repeats, 0) AS repeats, coalesce(n, 0) AS n
        FROM (FROM states WHERE m IN ({_indexes(sides)})) AS s FULL JOIN (FROM present WHERE h IS NOT NULL) AS p USING (m, h))"""


def _present(side: Side, rows: str) -> str:
    """A mirror's rows with the hashes of their keys, as far as these are compared."""
    if not side.subject.keyed:
        return f"SELECT {side.index} AS m, false AS empty, NULL::UBIGINT AS h FROM {rows}"
    touched = (
        f"AND {_own(side)} IN (SELECT h FROM states WHERE m = {side.index})" if side.mostly_untouched else ""
    )
    return f"""SELECT {side.index} AS m, {_empty(side)} AS empty,
        CASE WHEN NOT ({_empty(side)}) {touched} THEN {_own(side)} END AS h FROM {rows}"""


def _counts(sides: Sequence[tuple[Side, str]]) -> str:
    """What each check counts of some mirrors; NULL is nothing."""
    faults = ", ".join(f"count(*) FILTER ({_FAULTS[name]}) AS {name}" for name in _COUNTED)
    return f"""{_keys(sides)} SELECT * FROM (SELECT unnest([{_indexes(sides)}]) AS m)
        LEFT JOIN (SELECT m, sum(n) AS rows, sum(n) FILTER (empty) AS key_not_null FROM present GROUP BY m) USING (m)
        LEFT JOIN (SELECT m, sum(n - 1) FILTER (n > 0) AS key_unique, sum(ties) AS ambiguities,
            sum(repeats) AS duplicates, {faults} FROM keys GROUP BY m) USING (m)"""


_COUNTED = ("lacking", "ghost_rows", "incomplete_rows")


def _indexes(sides: Iterable[tuple[Side, str]]) -> str:
    return ", ".join(str(side.index) for side, _ in sides)


def _read(side: Side) -> list[str]:
    """The columns to read of a mirror: those of its key, or any."""
    return [column.column for column in side.columns] or list(side.subject.types)[:1]
