"""Whole statements: `effects` finds what one text of SQL does to tables and columns.

Read from the documents of MySQL 8, MariaDB, OceanBase, Oracle 19 and PostgreSQL 16.  Each statement
is one function named after its first words; ALTER TABLE is in `ingest.ddl.alter`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingest.change import TableId
from ingest.ddl import columns
from ingest.ddl.alter import alter_table
from ingest.ddl.effect_model import ColumnDefinition, Ddl, Dialect, Effect, kind_of
from ingest.ddl.scope import LOGS_CASCADES, Scope
from ingest.ddl.tokens import Cursor, Token, Unread, split, tokens

_WITHOUT_EFFECT = frozenset(
    "GRANT REVOKE ANALYZE OPTIMIZE REPAIR CHECK CHECKSUM FLUSH SET USE BEGIN START COMMIT ROLLBACK SAVEPOINT "
    "RELEASE XA LOCK UNLOCK KILL EXPLAIN SHOW DESCRIBE DESC AUDIT NOAUDIT VACUUM REINDEX CLUSTER SECURITY PURGE "
    "REFRESH REASSIGN LISTEN NOTIFY CACHE ASSOCIATE DISASSOCIATE END".split()
)
_OBJECTS = frozenset(
    "INDEX VIEW PROCEDURE FUNCTION TRIGGER EVENT USER ROLE SEQUENCE SYNONYM TYPE PACKAGE TABLESPACE TABLEGROUP "
    "OUTLINE TENANT RESOURCE SERVER LOGFILE EXTENSION DOMAIN AGGREGATE CAST COLLATION CONVERSION OPERATOR POLICY "
    "PUBLICATION SUBSCRIPTION RULE STATISTICS LANGUAGE TEXT ACCESS DIRECTORY LIBRARY PROFILE CONTEXT "
    "DIMENSION CLUSTER JAVA LINK EDITION OWNED SYSTEM SESSION INSTANCE RESTORE TRANSFORM".split()
)
_DATABASES = frozenset({"DATABASE", "SCHEMA"})
_BODIES = frozenset({"PROCEDURE", "FUNCTION", "TRIGGER", "EVENT", "PACKAGE", "TYPE"})


def effects(
    statement: str,
    dialect: str,
    database: str | None,
    schema: str | None = None,
    table: str | None = None,
) -> Ddl:
    """What a text of one or several statements does.

    ``dialect`` is a `Dialect`, or a server of `LOGS_CASCADES`.  ``database`` (or owner), ``schema`` and ``table`` are the message's; a name in the statement has precedence.
    """
    logged = dialect in LOGS_CASCADES
    grammar: Dialect = "mysql" if logged else dialect  # type: ignore[assignment]
    scope = Scope(grammar, TableId(database, schema, table), statement)
    try:
        found, reasons = _statements(scope)
    except Unread as why:
        return Ddl((), "unknown", str(why))
    if logged:
        found = [one for one in found if one.action != "add_foreign_key"]
    return Ddl(tuple(found), kind_of(found), "; ".join(dict.fromkeys(reasons)) or "no statement")


def _statements(scope: Scope) -> tuple[list[Effect], list[str]]:
    found: list[Effect] = []
    reasons: list[str] = []
    for items in split(tokens(scope.source, scope.dialect), ";"):
        cursor = Cursor(items)
        made, reason = _statement(cursor, scope)
        found += made
        reasons.append(reason)
        head = [token.word for token in items[:24]]
        if head[0] in ("CREATE", "ALTER") and _BODIES.intersection(head) and "TABLE" not in head[:4]:
            break  # what follows the next semicolon is code of a procedure
    return found, reasons


_Found = tuple[Sequence[Effect], str]


def _statement(cursor: Cursor, scope: Scope) -> _Found:
    first = cursor.word()
    read = _READERS.get(first)
    if read is not None:
        cursor.next()
        return read(cursor, scope)
    if first in _WITHOUT_EFFECT:
        return (), f"{first} changes no table's rows or columns"
    raise Unread(f"no DDL that is known here: it begins with {cursor.peek().text[:40]!r}")


# --- CREATE -------------------------------------------------------------------------------------


def _create(cursor: Cursor, scope: Scope) -> _Found:
    replace = cursor.accept("OR", "REPLACE")
    kind, modifiers = _object(cursor)
    if kind != "TABLE":
        return (), f"CREATE {kind} changes no table's rows or columns"
    if modifiers & {"TEMPORARY", "TEMP", "EXTERNAL", "FOREIGN"}:
        return (), "a temporary or external table has no mirror"
    guarded = cursor.accept("IF", "NOT", "EXISTS")
    table = scope.table(cursor)
    body = cursor.rest()
    found = [_table_body(Cursor(body), scope, table, "if-not-exists" if guarded else None)]
    if scope.dialect == "mysql" and (does := columns.cascades(body)):
        found.append(Effect("add_foreign_key", table, note=does))
    if replace:
        return [Effect("drop_table", table), *found], "replaces a table"
    return found, "creates a table"


def _object(cursor: Cursor) -> tuple[str, set[str]]:
    """The kind of object of a CREATE, ALTER or DROP, and the words before it."""
    before: set[str] = set()
    while not cursor.done and not cursor.is_symbol("("):
        word = cursor.next().word
        if word in ("TABLE", "TABLES"):
            return "TABLE", before
        if word in _DATABASES or word in _OBJECTS:
            return word, before
        before.add(word)
    raise Unread("what the statement makes, changes or drops is not known here")


def _table_body(cursor: Cursor, scope: Scope, table: TableId, note: str | None) -> Effect:
    if cursor.accept("LIKE"):
        return Effect("create_table", table, note=note or "like", to=scope.table(cursor))
    if cursor.accept("PARTITION", "OF"):
        return Effect("create_table", table, note=note or "partition-of", to=scope.table(cursor))
    if cursor.accept("OF"):
        raise Unread("the columns of an object table are in its type")
    if not cursor.is_symbol("("):
        return Effect("create_table", table, note=note or "as-select")
    inside = cursor.group()
    first = Cursor(inside)
    if first.accept("LIKE") and scope.dialect == "mysql":
        return Effect("create_table", table, note=note or "like", to=scope.table(first))
    if first.word() in ("SELECT", "WITH"):
        return Effect("create_table", table, note=note or "as-select")
    made, keys = _elements(inside, scope)
    options = cursor.rest()
    if any(token.word == "SELECT" for token in options):
        note = note or "as-select"  # its further columns are known to the source only
    elif any(column.type is None for column in made):
        raise Unread("a column of the new table has no type")
    charset = columns.charset_of_table(options) if scope.dialect == "mysql" else None
    return Effect("create_table", table, columns=tuple(made), keys=keys, note=note, charset=charset)


def _elements(inside: Sequence[Token], scope: Scope) -> tuple[list[ColumnDefinition], tuple[str, ...]]:
    made: list[ColumnDefinition] = []
    keys: tuple[str, ...] = ()
    for part in split(inside):
        if columns.is_constraint(part, scope.dialect):
            keys = columns.primary_key(part, scope.dialect) or keys
            continue
        found = columns.definition(part, scope.dialect, scope.source)
        made.append(found.column)
        if found.primary:
            keys = (found.column.name,)
    return made, keys


# --- ALTER, DROP, RENAME, TRUNCATE, COMMENT -------------------------------------------------------


def _alter(cursor: Cursor, scope: Scope) -> _Found:
    kind, words = _object(cursor)
    if kind == "TABLE":
        return alter_table(cursor, scope, ignore="IGNORE" in words)
    return (), f"ALTER {kind} changes no table's rows or columns"


def _drop(cursor: Cursor, scope: Scope) -> _Found:
    kind, modifiers = _object(cursor)
    if kind in _DATABASES or (kind == "USER" and scope.dialect == "oracle"):
        return _drop_databases(cursor, scope, kind), "drops every table of a database"
    if kind == "INDEX" and scope.dialect == "mysql":
        cursor.accept("IF", "EXISTS")
        if columns.name(cursor, scope.dialect).upper() == "PRIMARY" and cursor.accept("ON"):
            return (Effect("drop_primary_key", scope.table(cursor)),), "drops the primary key"
    if kind != "TABLE":
        return (), f"DROP {kind} changes no table's rows or columns"
    cursor.accept("IF", "EXISTS")
    if modifiers & {"TEMPORARY", "EXTERNAL", "FOREIGN"}:
        return (), "a temporary or external table has no mirror"
    return [Effect("drop_table", table) for table in _tables(cursor, scope)], "drops a table"


def _drop_databases(cursor: Cursor, scope: Scope, kind: str) -> list[Effect]:
    """In MySQL a schema is a database; in the others it is a part of one."""
    cursor.accept("IF", "EXISTS")
    found = []
    while True:
        parts = scope.parts(cursor)
        inside = kind == "SCHEMA" and scope.dialect != "mysql" and scope.message.schema is not None
        named = TableId(scope.message.database, parts[-1], None) if inside else TableId(parts[-1], None, None)
        found.append(Effect("drop_database", named))
        if not cursor.symbol(","):
            return found


def _tables(cursor: Cursor, scope: Scope) -> list[TableId]:
    found = [scope.table(cursor)]
    cursor.symbol("*")
    while cursor.symbol(","):
        found.append(scope.table(cursor))
        cursor.symbol("*")
    return found


def _rename(cursor: Cursor, scope: Scope) -> _Found:
    if cursor.word() in ("USER", "INDEX") and cursor.word(1) != "TO":
        return (), f"RENAME {cursor.word()} changes no table's rows or columns"
    if cursor.word(1) != "TO":
        cursor.accept("TABLE") or cursor.accept("TABLES")
    cursor.accept("IF", "EXISTS")
    return [_renamed(Cursor(part), scope) for part in split(cursor.rest())], "renames a table"


def _renamed(cursor: Cursor, scope: Scope) -> Effect:
    old = scope.table(cursor)
    if not cursor.accept("TO"):
        raise Unread("RENAME without TO")
    new = scope.table(cursor, like=old if scope.dialect != "mysql" else None)
    if not cursor.done:
        raise Unread(f"{cursor.peek().text[:40]!r} follows the new name")
    return Effect("rename_table", old, to=new)


def _truncate(cursor: Cursor, scope: Scope) -> _Found:
    if cursor.accept("CLUSTER"):
        raise Unread("the tables of a truncated cluster are not named")
    if cursor.word(1) or cursor.peek(1).kind == "name":
        cursor.accept("TABLE")
    cursor.accept("ONLY")
    tables = _tables(cursor, scope)
    if cursor.word() == "PARTITION":
        return [Effect("truncate_partition", table) for table in tables], "empties a partition"
    return [Effect("truncate", table) for table in tables], "empties a table"


def _comment(cursor: Cursor, scope: Scope) -> _Found:
    if not cursor.accept("ON", "COLUMN"):
        return (), "a comment on no column"
    parts = scope.parts(cursor)
    if not cursor.accept("IS"):
        raise Unread("COMMENT without IS")
    text = None if cursor.word() == "NULL" else cursor.next().text
    table = scope.identity(parts[:-1])
    return (Effect("comment_column", table, parts[-1], comment=text or ""),), "comments a column"


_READERS: dict[str, Callable[[Cursor, Scope], _Found]] = {
    "CREATE": _create,
    "ALTER": _alter,
    "DROP": _drop,
    "RENAME": _rename,
    "TRUNCATE": _truncate,
    "COMMENT": _comment,
}
