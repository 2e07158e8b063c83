"""ALTER TABLE, clause by clause, in the clauses' own order.

MySQL and PostgreSQL separate clauses by commas; Oracle writes them one after the other and puts
several columns into brackets.  A clause that begins with a word of `_OPTIONS` has no effect on a
mirror; a clause that begins with anything else not known makes the statement unread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile

from ingest.change import TableId
from ingest.ddl import as_stored, columns
from ingest.ddl.effect_model import (
    COMPUTED,
    EXCHANGED,
    LOGGED,
    NOT_LOGGED,
    ColumnDefinition,
    Effect,
    of_column,
)
from ingest.ddl.scope import Scope
from ingest.ddl.tokens import Cursor, Token, Unread, split

_OPTIONS = frozenset(
    "ENGINE COMMENT AUTO_INCREMENT ROW_FORMAT CHARSET CHARACTER DEFAULT COLLATE ALGORITHM LOCK FORCE ORDER "
    "ENABLE DISABLE PARTITION REMOVE STATS_PERSISTENT STATS_AUTO_RECALC STATS_SAMPLE_PAGES KEY_BLOCK_SIZE MAX_ROWS "
    "MIN_ROWS CHECKSUM COMPRESSION ENCRYPTION TABLESPACE UNION CONNECTION DATA INDEX INSERT_METHOD PACK_KEYS "
    "AVG_ROW_LENGTH DELAY_KEY_WRITE PASSWORD SECONDARY_ENGINE SECONDARY_LOAD SECONDARY_UNLOAD VALIDATE WITHOUT WITH "
    "WAIT NOWAIT REPLICA_NUM TABLEGROUP PROGRESSIVE_MERGE_NUM BLOCK_SIZE USE_BLOOM_FILTER LOCALITY PRIMARY_ZONE READ "
    "PARALLEL NOPARALLEL OWNER CLUSTER REPLICA NO RESET NOT OF LOGGING NOLOGGING CACHE NOCACHE MOVE SHRINK "
    "COMPRESS NOCOMPRESS STORAGE PCTFREE PCTUSED INITRANS ALLOCATE DEALLOCATE ROW MONITORING NOMONITORING RESULT_CACHE "
    "INMEMORY FLASHBACK REORGANIZE COALESCE REBUILD ANALYZE CHECK OPTIMIZE REPAIR SPLIT MERGE TABLET_SIZE "
    "PCTVERSION UPGRADE ILM PAGE_COMPRESSED PAGE_COMPRESSION_LEVEL PAGE_CHECKSUM TABLE_CHECKSUM TRANSACTIONAL ENCRYPTED "
    "ENCRYPTION_KEY_ID IETF_QUOTES AUTOEXTEND_SIZE ENGINE_ATTRIBUTE SECONDARY_ENGINE_ATTRIBUTE AUTO_INCREMENT_MODE TTL "
    "SKIP_INDEX ATTRIBUTES PLACEMENT COMPACT SHARD_ROW_ID_BITS PRE_SPLIT_REGIONS AUTO_ID_CACHE AUTO_RANDOM_BASE BROADCAST "
    "SINGLE VOLATILE APPEND".split()
)
_KEYS = frozenset("PRIMARY INDEX KEY UNIQUE FOREIGN CONSTRAINT CHECK FULLTEXT SPATIAL SUPPLEMENTAL".split())
_PARTITIONS = frozenset({"PARTITION", "SUBPARTITION", "PARTITIONS", "SUBPARTITIONS"})
_PARTS = _PARTITIONS | {"CONSTRAINT", "NESTED", "LOB", "VARRAY"}
"""What MODIFY changes besides columns."""
_RESERVED = {
    "mysql": _KEYS - {"SUPPLEMENTAL"} | {"PARTITION"},
    "postgres": frozenset("PRIMARY UNIQUE FOREIGN CONSTRAINT CHECK".split()),
    "db2": frozenset("PRIMARY UNIQUE FOREIGN CONSTRAINT CHECK PARTITION".split()),
}
"""Those of these words that are no names of columns there; the other databases ask for COLUMN or brackets before a name."""
_AFTER_A_COLUMN = {
    "ADD": frozenset[str](),
    "MODIFY": frozenset[str](),
    "CHANGE": frozenset[str](),
    "DROP": frozenset({"CASCADE", "RESTRICT"}),
    "RENAME": frozenset({"TO", "AS"}),
    "ALTER": frozenset("TYPE SET DROP ADD RESET RESTART".split()),
}
"""What follows the name of a column after these verbs, if it is no definition."""
_STARTS = {
    "oracle": frozenset({"ADD", "MODIFY", "DROP", "RENAME"}),
    "db2": frozenset({"ADD", "ALTER", "DROP", "RENAME", "ACTIVATE", "DEACTIVATE", "ATTACH", "DETACH"}),
}
"""What begins a clause in databases that write them one after the other."""

_Clause = Callable[[Cursor, Scope, TableId], Sequence[Effect]]


def alter_table(cursor: Cursor, scope: Scope, *, ignore: bool = False) -> tuple[Sequence[Effect], str]:
    """The effects of everything after ``ALTER TABLE``.

    With ``ignore`` whatever meets a unique key or a partition takes rows away; so does a new unique key in the copy that
    an online schema tool fills.
    """
    cursor.accept("IF", "EXISTS")
    only = scope.dialect == "postgres" and cursor.accept("ONLY")
    table = scope.table(cursor)
    cursor.symbol("*")
    cursor.patience()
    return altered(table, cursor, scope, ignore=ignore, only=only)


def altered(
    table: TableId, cursor: Cursor, scope: Scope, *, ignore: bool = False, only: bool = False
) -> tuple[Sequence[Effect], str]:
    """The effects of an ALTER TABLE's clauses on a table, which the statement or, where they come alone, the message names."""
    try:
        clauses = _clauses(cursor.rest(), scope)
        effects = _in_force([_clause(Cursor(clause), scope, table) for clause in clauses])
    except Unread as why:
        why.tables = (table,)
        raise
    if scope.dialect == "mysql":
        effects = _filled_by_key(_with_other_defaults(effects))
        effects += [effect for clause in clauses for effect in cascading_keys(clause, scope, table)]
    if ignore and (clause := next(filter(_removes_rows, clauses), None)):
        effects.append(Effect("truncate_partition", table, note=f"IGNORE {_text(clause)}"))
    elif _COPY.fullmatch(table.name) and any(map(_is_unique, clauses)):
        effects.append(Effect("truncate_partition", table, note="UNIQUE"))
    if scope.dialect == "postgres":
        effects = [replace(one, only=only) if one.column else one for one in effects]
    return effects, "alters a table" if effects else "keys, indexes, partitions or options of a table"


def _removes_rows(clause: Sequence[Token]) -> bool:
    """True if ALTER IGNORE may remove rows by a clause: rows that a key or a partition does not accept any more.

    Which column is in a unique key, nothing may have said; another type or character set may make two values equal.
    """
    word = clause[0].word
    if word in ("MODIFY", "CHANGE", "CONVERT", "PARTITION", "REORGANIZE", "COLLATE", "CHARACTER", "CHARSET"):
        return True
    words = {token.word for token in clause}
    return word == "ADD" and bool(
        words & {"UNIQUE", "PRIMARY", "FOREIGN", "REFERENCES", "CHECK", "PARTITION"}
    )


def _is_unique(clause: Sequence[Token]) -> bool:
    return clause[0].word in ("ADD", "MODIFY", "CHANGE") and any(token.word == "UNIQUE" for token in clause)


def _text(items: Sequence[Token]) -> str:
    return " ".join(token.text for token in items[:40])[:400]


_COPY = re.compile(r"_.*_(gho|new)", re.IGNORECASE | re.DOTALL)


def _in_force(clauses: list[Sequence[Effect]]) -> list[Effect]:
    """The effects in the order in which one statement's clauses come into force, whatever order they are written in.

    All clauses use the names from before the statement: what goes goes first, then what is changed under its old
    name, then come the renames, which apply at once, then all else, and last the table's own new name.
    """
    renames = [effect for clause in clauses for effect in clause if effect.action == "rename_column"]
    ranked: list[list[Effect]] = [[], [], [], [], []]
    for clause in clauses:
        renamed = any(effect.action == "rename_column" for effect in clause)
        for effect in clause:
            if effect.action != "rename_column":
                ranked[3 if renamed else _RANKS.get(effect.action, 3)].append(effect)
    gone_key, gone, changed, rest, renamed_table = ranked
    return [*gone_key, *gone, *changed, *one_by_one(renames), *rest, *renamed_table]


def _with_other_defaults(effects: list[Effect]) -> list[Effect]:
    """The effects, with what is not known where ``ALTER c SET DEFAULT`` follows the ADD of a column.

    MariaDB gives existing rows that default (measured with 10.11), MySQL refuses the statement, PostgreSQL gives them the first
    one.
    """
    altered = {
        effect.name.casefold()
        for effect in effects
        if effect.action == "modify_column" and effect.type is None
    }
    return [
        replace(effect, default=None, has_default=True, note="expression")
        if effect.action == "add_column" and effect.name.casefold() in altered
        else effect
        for effect in effects
    ]


def _filled_by_key(effects: list[Effect]) -> list[Effect]:
    """The effects, with what MySQL fills into a column that the statement adds to the table and to its primary key.

    The key makes it NOT NULL, so that existing rows get the zero of its type, in strict mode too (measured with MariaDB 10.11).
    """
    keys = {
        name.casefold() for effect in effects if effect.action == "add_primary_key" for name in effect.keys
    }
    return [
        columns.implicit(replace(effect, nullable=False))
        if effect.action == "add_column" and effect.name.casefold() in keys
        else effect
        for effect in effects
    ]


_RANKS = {
    "drop_primary_key": 0,
    "drop_column": 1,
    "default_charset": 1,
    "modify_column": 2,
    "rename_table": 4,
}


def one_by_one(renames: list[Effect]) -> list[Effect]:
    """Renames in an order in which each new name is free; those that exchange their names say so.

    MySQL takes ``RENAME COLUMN c TO c`` where the column is called ``C``, too.
    """
    effects: list[Effect] = []
    rings: list[Effect] = []
    waiting = {rename.name.casefold(): rename for rename in renames}
    for first in [*waiting]:
        row: dict[str, Effect] = {}  # each takes the name of the next one
        name = first
        while name in waiting:
            row[name] = waiting.pop(name)
            name = row[name].new_name.casefold()
        line = [*row.values()]
        before_ring = [*row].index(name) if name in row else len(line)
        ring = line[before_ring:]  # several that exchange their names, or one whose letter case changes
        if len(ring) > 1:
            rings += [replace(rename, note=EXCHANGED) for rename in ring]
        else:
            effects += ring
        effects += reversed(line[:before_ring])
    return [*effects, *rings]


def _clauses(items: Sequence[Token], scope: Scope) -> list[Sequence[Token]]:
    clause = Cursor(items)
    verb = clause.word()
    clause.accept(verb)
    if _is_about(_PARTITIONS, clause, scope) or (
        verb not in _AFTER_A_COLUMN and clause.word(1) in _PARTITIONS
    ):
        return [items]  # always alone; its commas separate partitions
    parts = _without_order(split(items))
    starts = _STARTS.get(scope.dialect)
    return parts if starts is None else [clause for part in parts for clause in _in_a_row(part, starts)]


def _without_order(parts: Sequence[Sequence[Token]]) -> list[Sequence[Token]]:
    """The clauses without the further columns of MySQL's ``ORDER BY a, b DESC``, whose commas separate no clauses."""
    clauses: list[Sequence[Token]] = []
    for part in parts:
        orders = bool(clauses) and clauses[-1][0].word == "ORDER"
        if not (orders and (len(part) == 1 or [token.word for token in part[1:]] in (["ASC"], ["DESC"]))):
            clauses.append(part)
    return clauses


def _in_a_row(items: Sequence[Token], starts: Collection[str]) -> list[Sequence[Token]]:
    clauses: list[Sequence[Token]] = []
    depth = start = 0
    for i, token in enumerate(items):
        if token.kind == "symbol":
            depth += (token.text == "(") - (token.text == ")")
        elif depth == 0 and i > start + 1 and token.word in starts and not _continues(items[start:i]):
            clauses.append(items[start:i])
            start = i
    return [*clauses, items[start:]]


def _continues(before: Sequence[Token]) -> bool:
    """True of ``ALTER COLUMN c``, which Db2's ``DROP NOT NULL`` and ``DROP DEFAULT`` continue, and of ``RESTRICT ON``."""
    column = 2 if before[1].word == "COLUMN" else 1
    of_column = before[0].word == "ALTER" and len(before) == column + 1
    return of_column or [token.word for token in before[1:]] == ["RESTRICT", "ON"]


def _clause(cursor: Cursor, scope: Scope, table: TableId) -> Sequence[Effect]:
    first = cursor.word()
    read = _CLAUSES.get(first)
    if read is None:
        if _loses_rows(first, [token.word for token in cursor.items]):
            return (Effect("truncate_partition", table, note=_text(cursor.rest())),)
        if first in _OPTIONS:
            # the character set of MySQL's new columns, and of those that are changed without naming one
            items = cursor.rest()
            charset = columns.charset_of_table(items) if scope.dialect == "mysql" else None
            return (Effect("default_charset", table, charset=charset),) if charset else ()
        raise Unread(f"the clause that begins with {cursor.peek().text[:40]!r} is not known here")
    cursor.next()
    return read(cursor, scope, table)


def _loses_rows(option: str, words: Sequence[str]) -> bool:
    """True of an option that takes rows away: MySQL's engine without a store, Oracle's ``MOVE ... INCLUDING ROWS WHERE``."""
    if option == "ENGINE":
        return "BLACKHOLE" in words
    return option in ("MOVE", "SPLIT", "MERGE") and ("INCLUDING", "ROWS") in pairwise(words)


# --- columns ------------------------------------------------------------------------------------


def _is_about(kinds: Collection[str], cursor: Cursor, scope: Scope) -> bool:
    """True if a clause is about a thing of some kinds, as DROP PARTITION p is, and not about a column of such a name.

    The cursor is after the clause's verb.  A word that is not reserved is a column's name where what follows a name comes next.
    """
    word, rest = cursor.word(), cursor.items[cursor.at + 1 :]
    if word not in kinds:
        return False
    verb = cursor.items[cursor.at - 1].word
    if verb not in _AFTER_A_COLUMN or word in _RESERVED.get(scope.dialect, kinds):
        return True
    if not _AFTER_A_COLUMN[verb]:  # the name of GaussDB's partition, and its bounds
        return any(token.word in ("VALUES", "START", "END") for token in rest[1:2])
    return bool(rest) and rest[0].text != "," and rest[0].word not in _AFTER_A_COLUMN[verb]


def added(cursor: Cursor, scope: Scope, table: TableId) -> Sequence[Effect]:
    if _is_about(_PARTITIONS, cursor, scope) or (cursor.word(), cursor.word(1)) in _ADDED:
        return ()
    explicit = cursor.accept("COLUMN") or (cursor.is_symbol("(", 1) and cursor.accept("COLUMNS"))
    guarded = cursor.accept("IF", "NOT", "EXISTS")
    if not explicit and columns.is_constraint(cursor.items[cursor.at :], scope.dialect):
        return _constraint(cursor.rest(), scope, table)
    alone = explicit and not cursor.is_symbol("(")  # brackets may hold keys, after ADD COLUMN too
    effects: list[Effect] = []
    for part in _definitions(cursor):
        read = _added_column if alone else added_element
        effects += read(part, scope, table, guarded=guarded)
    return effects


def added_element(
    items: Sequence[Token], scope: Scope, table: TableId, *, guarded: bool = False
) -> Sequence[Effect]:
    """The effects of one element of a list after ADD: a column, or a constraint."""
    if columns.is_constraint(items, scope.dialect):
        return _constraint(items, scope, table)
    return _added_column(items, scope, table, guarded=guarded)


def _added_column(items: Sequence[Token], scope: Scope, table: TableId, *, guarded: bool) -> Sequence[Effect]:
    made = columns.definition(items, scope.dialect, scope.source)
    if made.column.type is None:
        raise Unread(f"the added column {made.column.name[:40]!r} has no type")
    column = columns.implicit(made.column) if scope.dialect == "mysql" else made.column
    if _may_be_this_moment(column, scope):
        column = replace(column, has_default=True, note="expression")
    effects = [*_with_key(of_column("add_column", table, column), made), *references(items, scope, table)]
    own = None if scope.dialect == "mysql" else scope.dialect
    return [replace(effect, guarded=guarded, dialect=own) for effect in effects]


_ADDED = {
    ("COLUMN", "GROUP"), ("SYSTEM", "VERSIONING"), ("OVERFLOW", ""),
    ("VERSIONING", "USE"), ("DISTRIBUTE", "BY"), ("RESTRICT", "ON"), ("SECURITY", "POLICY"),
    ("MATERIALIZED", "QUERY"),
}  # fmt: skip


def _may_be_this_moment(column: ColumnDefinition, scope: Scope) -> bool:
    """True of a TIMESTAMP that says neither NULL nor a DEFAULT: with ``explicit_defaults_for_timestamp=OFF`` it is NOT NULL.

    Existing rows get the moment of the ALTER then, or a zero.  That is how MySQL 5.7 and MariaDB before 10.10 are set
    unless a statement says otherwise; TiDB and OceanBase are not.
    """
    bare = column.type == "timestamp" and column.nullable is None and not column.has_default
    return scope.dialect == "mysql" and not scope.own_server and bare


def _definitions(cursor: Cursor) -> list[Sequence[Token]]:
    """The definitions of a bracketed list, or the only one."""
    return split(cursor.group()) if cursor.is_symbol("(") else [cursor.rest()]


_FOREIGN = ("FOREIGN", "CONSTRAINT")  # what DROP says of a foreign key
_PROPERTIES = frozenset(
    {("SYSTEM", "VERSIONING"), ("COLUMNS", "CONTINUE"), ("UNUSED", "COLUMNS"), ("UNUSED", "COLUMN")}
)
_PROPERTIES_IN_DB2 = {
    ("VERSIONING", ""), ("DISTRIBUTION", ""), ("RESTRICT", "ON"), ("SECURITY", "POLICY"), ("MATERIALIZED", "QUERY"),
}  # fmt: skip
"""What DROP takes away that is neither a column nor a key."""


def _drops_property(cursor: Cursor, scope: Scope) -> bool:
    words = (cursor.word(), cursor.word(1))
    is_of_db2 = scope.dialect == "db2" and words in _PROPERTIES_IN_DB2
    is_identity = words[0] == "IDENTITY" and scope.dialect in ("oracle", "db2")
    is_group = words == ("COLUMN", "GROUP") and cursor.is_symbol("(", 2)  # of OceanBase's columns
    return is_identity or is_group or words in _PROPERTIES or is_of_db2


def _drop(cursor: Cursor, scope: Scope, table: TableId) -> Sequence[Effect]:
    if _is_about(_PARTITIONS, cursor, scope):
        return _emptied("DROP", cursor, scope, table)
    if _drops_property(cursor, scope):
        return ()
    if cursor.accept("COLUMN"):
        return _dropped_columns(cursor, scope, table)
    if _is_about(_KEYS, cursor, scope) or columns.is_period(cursor):
        return _dropped_key(cursor, scope, table)
    if scope.dialect == "oracle" and not cursor.is_symbol("("):
        raise Unread(f"DROP {cursor.peek().text[:40]!r} is not known here")
    return _dropped_columns(cursor, scope, table)


def _dropped_key(cursor: Cursor, scope: Scope, table: TableId) -> Sequence[Effect]:
    """The primary key that DROP takes away, by its words or by the name that the source gives it by itself."""
    if cursor.accept("PRIMARY", "KEY"):
        return (Effect("drop_primary_key", table),)
    of_mysql = scope.dialect == "mysql"
    foreign = (Effect("drop_foreign_key", table),) if of_mysql and cursor.word() in _FOREIGN else ()
    if not (cursor.accept("CONSTRAINT") or cursor.accept("INDEX") or cursor.accept("KEY")):
        return foreign
    cursor.accept("IF", "EXISTS")
    named = columns.name(cursor, scope.dialect)
    is_primary = named.upper() == "PRIMARY" if of_mysql else named == f"{table.table}_pkey"
    return (Effect("drop_primary_key", table),) if is_primary else foreign


def _dropped_columns(cursor: Cursor, scope: Scope, table: TableId) -> list[Effect]:
    cursor.accept("IF", "EXISTS")
    if cursor.is_symbol("("):
        return [Effect("drop_column", table, scope.column(Cursor(part))) for part in split(cursor.group())]
    dropped = Effect("drop_column", table, scope.column(cursor))
    return [replace(dropped, cascade=scope.dialect == "postgres" and cursor.word() == "CASCADE")]


def _modify(cursor: Cursor, scope: Scope, table: TableId) -> Sequence[Effect]:
    if _is_about(_PARTS, cursor, scope):
        return ()
    if cursor.word() in ("PRIMARY", "UNIQUE", "DEFAULT") and cursor.word(1) in ("KEY", "ATTRIBUTES"):
        return ()
    cursor.accept("COLUMN")
    cursor.accept("IF", "EXISTS")
    return [effect for part in _definitions(cursor) for effect in retyped(part, scope, table)]


def retyped(items: Sequence[Token], scope: Scope, table: TableId) -> Sequence[Effect]:
    if scope.dialect == "oracle" and [token.word for token in items[1:]] == ["DROP", "IDENTITY"]:
        return (Effect("modify_column", table, scope.column(Cursor(items))),)
    definition = columns.definition(items, scope.dialect, scope.source)
    effect = of_column("modify_column", table, definition.column)
    if scope.dialect == "mysql":
        solid = definition.column.nullable is False or _may_be_this_moment(definition.column, scope)
        return _with_key(replace(effect, solid=solid), definition)
    computed = bool(definition.using) and not _is_cast(definition.using, definition.column, scope)
    return _with_key(
        replace(effect, dialect=scope.dialect, note=COMPUTED if computed else effect.note), definition
    )


def _is_cast(items: Sequence[Token], column: ColumnDefinition, scope: Scope) -> bool:
    """True if a USING does no more than the statement does without one: ``USING v`` or ``USING v::TYPE``."""
    cursor = Cursor(items)
    if cursor.is_symbol("(") or columns.name(cursor, scope.dialect) != column.name:
        return False
    if cursor.done:
        return True
    rest = cursor.rest()
    cast = scope.source[rest[0].start : rest[-1].end].removeprefix("::")
    return "".join(cast.lower().split()) == "".join(column.written.lower().split())


def _change(cursor: Cursor, scope: Scope, table: TableId) -> Sequence[Effect]:
    cursor.accept("COLUMN")
    cursor.accept("IF", "EXISTS")
    old = scope.column(cursor)
    changed = retyped(cursor.rest(), scope, table)
    if old == changed[0].column:
        return changed
    return Effect("rename_column", table, old, to=changed[0].column), *changed


def _alter_column(cursor: Cursor, scope: Scope, table: TableId) -> Sequence[Effect]:
    if _is_about(_KEYS, cursor, scope):
        return ()
    cursor.accept("COLUMN")
    cursor.accept("IF", "EXISTS")
    column = scope.column(cursor)
    if cursor.accept("SET", "DATA", "TYPE") or cursor.accept("TYPE"):
        named = Token("name", column, 0, 0)
        return retyped([named, *cursor.rest()], scope, table)
    if cursor.accept("SET", "DEFAULT"):
        default, known, note = as_stored.default(cursor.rest(), None, None, scope.dialect)
        return (Effect("modify_column", table, column, default=default, has_default=known, note=note),)
    if cursor.accept("SET", "NOT", "NULL"):
        return (Effect("modify_column", table, column, nullable=False),)
    if cursor.accept("DROP", "NOT", "NULL"):
        return (Effect("modify_column", table, column, nullable=True),)
    if cursor.accept("SET", "EXPRESSION"):  # PostgreSQL writes the values of all rows again
        made_of = columns.names_in(cursor.rest())
        return (Effect("modify_column", table, column, note="generated", made_of=made_of),)
    if (cursor.word(), cursor.word(1)) in _OF_COLUMNS or cursor.word() in ("RESET", "RESTART"):
        return (Effect("modify_column", table, column),)
    if cursor.accept("SET") and cursor.is_symbol("("):
        return (Effect("modify_column", table, column),)
    raise Unread(f"ALTER COLUMN ... {cursor.peek().text[:40]!r} is not known here")


_OF_COLUMNS = {
    *((verb, word) for verb in ("SET", "DROP") for word in ("STATISTICS", "STORAGE", "COMPRESSION", "IDENTITY", "DEFAULT")),
    ("ADD", "GENERATED"), ("DROP", "EXPRESSION"), ("SET", "GENERATED"), ("SET", "CACHE"), ("SET", "INCREMENT"),
    ("SET", "MAXVALUE"), ("SET", "MINVALUE"), ("SET", "START"), ("SET", "CYCLE"), ("SET", "NO"), ("SET", "SEQUENCE"),
    ("SET", "VISIBLE"), ("SET", "INVISIBLE"), ("SET", "RESTART"), ("SET", "INLINE"), ("COMPRESS", "SYSTEM"), ("COMPRESS", "OFF"),
}  # fmt: skip
"""Storage, statistics, identity and visibility of a column."""


def _rename(cursor: Cursor, scope: Scope, table: TableId) -> Sequence[Effect]:
    if _is_about(_PARTITIONS | _KEYS, cursor, scope):
        return ()
    if cursor.accept("TO") or cursor.accept("AS") or cursor.symbol("="):
        return (_renamed_table(cursor, scope, table),)
    if not cursor.accept("COLUMN") and scope.dialect == "mysql":
        return (_renamed_table(cursor, scope, table),)
    cursor.accept("IF", "EXISTS")
    old = scope.column(cursor)
    if not cursor.accept("TO"):
        raise Unread("RENAME COLUMN without TO")
    return (Effect("rename_column", table, old, to=scope.column(cursor)),)


def _renamed_table(cursor: Cursor, scope: Scope, table: TableId) -> Effect:
    new = scope.table(
        cursor, like=table if scope.dialect != "mysql" or scope.message.database is None else None
    )
    return Effect("rename_table", table, to=new)


def _set(cursor: Cursor, scope: Scope, table: TableId) -> Sequence[Effect]:
    if cursor.accept("UNUSED"):
        cursor.accept("COLUMN")
        return _dropped_columns(cursor, scope, table)
    if cursor.accept("SCHEMA"):
        return (Effect("rename_table", table, to=TableId(table.database, scope.column(cursor), table.table)),)
    if scope.dialect == "postgres" and cursor.word() in ("LOGGED", "UNLOGGED"):
        return (Effect("truncate_partition", table, note=LOGGED if cursor.accept("LOGGED") else NOT_LOGGED),)
    if cursor.word() in _SETTINGS or cursor.is_symbol("("):
        return ()
    raise Unread(f"SET {cursor.peek().text[:40]!r} is not known here")


_SETTINGS = frozenset(
    "TABLESPACE LOGGED UNLOGGED WITH WITHOUT ACCESS TABLEGROUP COMMENT INTERVAL STORE SUBPARTITION LOCALITY PRIMARY_ZONE "
    "REPLICA_NUM BLOCK_SIZE COMPRESSION USE_BLOOM_FILTER PROGRESSIVE_MERGE_NUM TABLET_SIZE TIFLASH DUPLICATE_SCOPE "
    "PARTITION HYPOTHETICAL PCTFREE ENABLE_ROW_MOVEMENT TABLE_MODE".split()
)


def _inherit(cursor: Cursor, scope: Scope, table: TableId) -> Sequence[Effect]:
    """PostgreSQL's ``INHERIT parent``."""
    return (Effect("inherit", table, to=scope.table(cursor, like=table)),)


def _no(cursor: Cursor, scope: Scope, table: TableId) -> Sequence[Effect]:
    if cursor.accept("INHERIT"):
        return (Effect("disinherit", table, to=scope.table(cursor, like=table)),)
    return ()


# --- the primary key ----------------------------------------------------------------------------


def _with_key(effect: Effect, made: columns.Definition) -> Sequence[Effect]:
    """A column's effect, and the key that its own definition makes."""
    if not made.primary:
        return (effect,)
    return effect, Effect("add_primary_key", effect.table, keys=(made.column.name,))


def _constraint(items: Sequence[Token], scope: Scope, table: TableId) -> Sequence[Effect]:
    """The key that an added constraint makes; other constraints and indexes do nothing to a mirror."""
    keys = columns.primary_key(items, scope.dialect)
    if keys is None:
        return references(items, scope, table)
    note = None if keys else "using-index"
    return (Effect("add_primary_key", table, keys=keys, note=note, solid=scope.dialect == "mysql"),)


def references(items: Sequence[Token], scope: Scope, table: TableId) -> list[Effect]:
    """The tables of which a table's foreign keys speak; MySQL's need none, because its TRUNCATE has no CASCADE."""
    effects: list[Effect] = []
    if scope.dialect == "mysql":
        return effects
    for place, token in enumerate(items[:-1]):
        if token.word == "REFERENCES":
            rest = items[place + 1 :]
            end = next((at for at, later in enumerate(rest) if later.word == "REFERENCES"), len(rest))
            to = scope.table(Cursor(rest), like=table)
            effects.append(Effect("references", table, to=to, note=columns.cascades(rest[:end]) or None))
    return effects


def cascading_keys(items: Sequence[Token], scope: Scope, table: TableId) -> Iterator[Effect]:
    """The foreign keys by which MySQL changes rows of its own accord; those of a column alone are named without columns."""
    places = [at for at, token in enumerate(items) if token.word == "REFERENCES"]
    for start, end in pairwise([*places, len(items)]):
        does = columns.cascades(items[start:end])
        if not does:
            continue
        cursor = Cursor(items[start + 1 : end])
        to = scope.table(cursor, like=table)
        referred = _names(cursor.group(), scope) if cursor.is_symbol("(") else ()
        referring = _names(_last_group(items[:start]), scope)
        named = len(referring) == len(referred)
        yield Effect(
            "add_foreign_key",
            table,
            to=to,
            note=does,
            keys=referring if named else (),
            made_of=referred if named else (),
        )


def _names(items: Sequence[Token], scope: Scope) -> tuple[str, ...]:
    return tuple(columns.name(Cursor(part), scope.dialect) for part in split(items))


def _last_group(items: Sequence[Token]) -> Sequence[Token]:
    """The columns of ``FOREIGN KEY name (...)``, with which tokens end; nothing if they end otherwise."""
    opens = next((at for at in reversed(range(len(items))) if items[at].text == "("), len(items))
    before = takewhile(lambda token: token.kind != "symbol", reversed(items[:opens]))
    return items[opens + 1 : -1] if ("KEY", "FOREIGN") in pairwise(token.word for token in before) else ()


# --- partitions ---------------------------------------------------------------------------------


def _emptied(word: str, cursor: Cursor, scope: Scope, table: TableId) -> Sequence[Effect]:
    """Rows that vanish with a partition, or come with one, appear in no row message: only the operator can know them."""
    items = cursor.rest()
    note = f"{word} {_text(items)}"[:400]
    if word in ("ATTACH", "DETACH") and scope.dialect == "postgres":
        child = scope.table(Cursor(items[1:]), like=table)
        relation = "inherit" if word == "ATTACH" else "disinherit"
        emptied = Effect("truncate_partition", table, to=child if word == "ATTACH" else None, note=note)
        return [emptied, Effect(relation, child, to=table, note="partition-of")]
    effects = [Effect("truncate_partition", table, note=note)]
    before = _OTHER_TABLE.get(word)
    places = [place for place, token in enumerate(items[:-1]) if token.word == before]
    if not places:
        return effects
    named = Cursor(items[places[-1] + 1 :])  # Db2's STARTING FROM comes before the FROM of the table
    named.accept("TABLE")
    other = scope.table(named, like=table if scope.dialect != "mysql" else None)
    return [*effects, Effect("truncate_partition", other, note=note)]


_OTHER_TABLE = {"EXCHANGE": "TABLE", "CONVERT": "TABLE", "ATTACH": "FROM", "DETACH": "INTO"}
"""The word before the table that gets the rows of a partition, or gives them."""


def _convert(cursor: Cursor, scope: Scope, table: TableId) -> Sequence[Effect]:
    """MariaDB's CONVERT PARTITION ... TO TABLE and CONVERT TABLE ... TO PARTITION; else it is to a character set."""
    if cursor.word() in ("PARTITION", "TABLE"):
        return _emptied("CONVERT", cursor, scope, table)
    charset = columns.charset_of_table(cursor.rest()) if scope.dialect == "mysql" else None
    return (Effect("convert_charset", table, charset=charset),) if charset else ()


def _partition(word: str) -> _Clause:
    def read(cursor: Cursor, scope: Scope, table: TableId) -> Sequence[Effect]:
        if cursor.word() in _PARTITIONS:
            return _emptied(word, cursor, scope, table)
        raise Unread(f"{word} {cursor.peek().text[:40]!r} is not known here")

    return read


def _activate(cursor: Cursor, scope: Scope, table: TableId) -> Sequence[Effect]:
    """Db2's ``ACTIVATE NOT LOGGED INITIALLY``: no change of the transaction is in the log, and maybe the table is emptied."""
    if scope.dialect != "db2":
        raise Unread("ACTIVATE is not known here")
    if cursor.word() in ("VALUE", "ROW", "COLUMN"):  # compression, and who may see the rows
        return ()
    return _emptied("ACTIVATE", cursor, scope, table)


def _tablespace(word: str) -> _Clause:
    """MySQL's DISCARD and IMPORT TABLESPACE take a table's rows away and bring others, for which no messages are sent."""

    def read(cursor: Cursor, scope: Scope, table: TableId) -> Sequence[Effect]:
        if cursor.word() in _PARTITIONS or cursor.word() == "TABLESPACE":
            return _emptied(word, cursor, scope, table)
        raise Unread(f"{word} {cursor.peek().text[:40]!r} is not known here")

    return read


_CLAUSES: dict[str, _Clause] = {
    "ACTIVATE": _activate,
    "DEACTIVATE": _activate,
    "ADD": added,
    "DROP": _drop,
    "MODIFY": _modify,
    "CHANGE": _change,
    "ALTER": _alter_column,
    "RENAME": _rename,
    "SET": _set,
    "TRUNCATE": _partition("TRUNCATE"),
    "CONVERT": _convert,
    "EXCHANGE": _partition("EXCHANGE"),
    "DISCARD": _tablespace("DISCARD"),
    "IMPORT": _tablespace("IMPORT"),
    "INHERIT": _inherit,
    "NO": _no,
    "DETACH": _partition("DETACH"),
    "ATTACH": _partition("ATTACH"),
}
