"""Whole statements: `effects` finds what one text of SQL does to tables and columns.

Read from the documents of MySQL 8, MariaDB, OceanBase, Oracle 19, PostgreSQL 16, SQL Server 2022 and Db2 11.5.  Each statement
is one function named after its first words; ALTER TABLE is in `ingest.ddl.alter`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise, starmap

from ingest.change import TableId
from ingest.ddl import columns, pg_types, sqlserver
from ingest.ddl.alter import alter_table, altered, cascading_keys, references
from ingest.ddl.effect_model import ColumnDefinition, Ddl, Dialect, Effect, kind_of
from ingest.ddl.scope import LOGS_CASCADES, Scope
from ingest.ddl.tokens import Cursor, Token, Unread, grammar_of, split, tokens

_WITHOUT_EFFECT = frozenset(
    "GRANT REVOKE ANALYZE OPTIMIZE REPAIR CHECK CHECKSUM FLUSH SET USE START COMMIT ROLLBACK SAVEPOINT ABORT "
    "RELEASE XA LOCK UNLOCK KILL SHOW DESCRIBE DESC AUDIT NOAUDIT VACUUM REINDEX CLUSTER SECURITY PURGE "
    "REFRESH LISTEN UNLISTEN NOTIFY CACHE ASSOCIATE DISASSOCIATE END INSTALL UNINSTALL CHANGE STOP RESET SHUTDOWN "
    "RESTART HELP CHECKPOINT DISCARD DEALLOCATE BACKUP".split()
)
_OBJECTS = frozenset(
    "INDEX VIEW PROC PROCEDURE FUNCTION TRIGGER EVENT USER ROLE SEQUENCE SYNONYM TYPE PACKAGE TABLESPACE TABLEGROUP "
    "OUTLINE TENANT RESOURCE SERVER LOGFILE EXTENSION DOMAIN AGGREGATE CAST COLLATION CONVERSION OPERATOR POLICY "
    "PUBLICATION SUBSCRIPTION RULE STATISTICS LANGUAGE TEXT ACCESS DIRECTORY LIBRARY PROFILE CONTEXT "
    "DIMENSION CLUSTER JAVA LINK EDITION OWNED SYSTEM SESSION INSTANCE RESTORE TRANSFORM".split()
)
_MODIFIERS = frozenset(
    "TEMPORARY TEMP EXTERNAL FOREIGN GLOBAL LOCAL PRIVATE UNLOGGED SHARDED DUPLICATED IMMUTABLE BLOCKCHAIN "
    "ONLINE OFFLINE IGNORE".split()
)
"""Words between CREATE, ALTER or DROP and TABLE; ``IGNORE`` is looked at by `alter_table`."""
_WITHOUT_MIRROR = frozenset({"TEMPORARY", "TEMP", "EXTERNAL", "FOREIGN"})
_DROPS_MORE = frozenset({"OWNED", "TABLESPACE", "CLUSTER", "TENANT"})
"""Objects whose DROP takes tables along that it does not name."""
_COLUMNS_MADE_OF = frozenset(
    {"TYPE", "DOMAIN", "EXTENSION", "FUNCTION", "AGGREGATE", "OPERATOR", "LANGUAGE", "TRANSFORM"}
)
"""Objects of PostgreSQL whose DROP ... CASCADE drops the columns that are made of them."""
_DATABASES = frozenset({"DATABASE", "SCHEMA"})
_BODIES = frozenset({"PROC", "PROCEDURE", "FUNCTION", "AGGREGATE", "TRIGGER", "EVENT", "PACKAGE"})
_KINDS = _OBJECTS | _DATABASES | {"TABLE"}


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
    grammar: Dialect = grammar_of(dialect)  # type: ignore[assignment]
    scope = Scope(grammar, TableId(database, schema, table), statement, logged)
    try:
        meant, reasons = _statements(scope)
    except Unread as why:
        return Ddl(tuple(Effect("unread", table_named) for table_named in why.tables), "unknown", str(why))
    if logged:
        meant = [effect for effect in meant if effect.action != "add_foreign_key"]
    return Ddl(tuple(meant), kind_of(meant), "; ".join(dict.fromkeys(reasons)) or "no statement")


def _statements(scope: Scope) -> tuple[list[Effect], list[str]]:
    effects_so_far: list[Effect] = []
    reasons: list[str] = []
    for items in split(tokens(scope.source, scope.dialect), ";"):
        cursor = Cursor(items)
        made, reason = _statement(cursor, scope)
        effects_so_far += made
        reasons.append(reason)
        if _holds_code(items, scope.dialect):
            break  # what follows the next semicolon is code, which is not executed yet
    return effects_so_far, reasons


def _holds_code(items: Sequence[Token], dialect: Dialect) -> bool:
    """True of a statement that makes an object with a body, in which semicolons separate statements."""
    words = [token.word for token in items]
    if words[0] not in ("CREATE", "ALTER") or words[1:2] == ["PARTITION"]:
        return False
    kind = next((word for word in words[1:] if word in _KINDS), "")
    if kind == "TYPE":
        return dialect == "oracle"
    if dialect == "postgres" and any(starmap(_is_code_elsewhere, pairwise(items))):
        return False
    return kind in _BODIES


def _is_code_elsewhere(token: Token, following: Token) -> bool:
    """True of PostgreSQL's ``AS $$text$$`` and ``EXECUTE FUNCTION``: the code is in a text, or in a function of its own."""
    if token.word == "AS":
        return following.kind == "string"
    return token.word == "EXECUTE" and following.word in ("FUNCTION", "PROCEDURE")


_Found = tuple[Sequence[Effect], str]


def _statement(cursor: Cursor, scope: Scope) -> _Found:
    """The effects of one statement by the reader of its first words, or why it has none; `Unread` if no reader knows it."""
    if scope.dialect == "mysql":
        _skip_settings(cursor)
    elif scope.dialect == "sqlserver":
        sqlserver.refuse_several(cursor.items, scope)
    first = cursor.word()
    if scope.message.table is not None and _is_fragment(cursor):
        read_clauses = sqlserver.altered if scope.dialect == "sqlserver" else altered
        return read_clauses(scope.message, cursor, scope)
    if scope.dialect == "sqlserver":
        if (first, cursor.word(1)) in sqlserver.WITHOUT_EFFECT:
            return (), f"{first} {cursor.word(1)} changes no table's rows or columns"
        if first in ("EXEC", "EXECUTE") or first.startswith("SP_"):
            cursor.accept("EXEC") or cursor.accept("EXECUTE")
            return sqlserver.procedure(cursor, scope)
    read = _READERS.get(first)
    if read is not None:
        cursor.next()
        return read(cursor, scope)
    if first in _WITHOUT_EFFECT or _is_plain(cursor):
        return (), f"{first} changes no table's rows or columns"
    raise Unread(f"no DDL that is known here: it begins with {cursor.peek().text[:40]!r}")


def _is_fragment(cursor: Cursor) -> bool:
    """True of the clauses of an ALTER TABLE alone, as some messages have them that name the table: ``ADD COLUMN c INT``."""
    if cursor.word() == "CHANGE" and cursor.word(1) in ("MASTER", "REPLICATION"):
        return False
    return cursor.word() in ("ADD", "MODIFY", "CHANGE") or (cursor.word(), cursor.word(1)) in _FRAGMENTS


_FRAGMENTS = {("DROP", "COLUMN"), ("RENAME", "COLUMN"), ("ALTER", "COLUMN")}


def _skip_settings(cursor: Cursor) -> None:
    """Move past MariaDB's ``SET STATEMENT a = 1, b = 2 FOR``, which sets variables for the statement after it alone."""
    while cursor.accept("SET", "STATEMENT"):
        while not cursor.accept("FOR"):
            cursor.group() if cursor.is_symbol("(") else cursor.next()


def _is_plain(cursor: Cursor) -> bool:
    """True of BEGIN that begins a transaction and no block of code, and of EXPLAIN that executes nothing."""
    if cursor.word() == "BEGIN":
        return len(cursor.items) == 1 or cursor.word(1) in _TRANSACTIONS
    if cursor.word() == "REASSIGN":
        return cursor.word(1) == "OWNED"
    return cursor.word() == "EXPLAIN" and not any(token.word == "ANALYZE" for token in cursor.items)


_TRANSACTIONS = frozenset("WORK TRANSACTION TRAN ISOLATION READ DEFERRABLE IMMEDIATE".split())


# --- CREATE -------------------------------------------------------------------------------------


def _create(cursor: Cursor, scope: Scope) -> _Found:
    replaces = cursor.accept("OR", "REPLACE")
    kind, modifiers = _object(cursor)
    if kind in ("TYPE", "DOMAIN") and scope.dialect == "postgres":
        return pg_types.create(kind, cursor, scope), f"CREATE {kind} changes no table's rows or columns"
    if kind in _DATABASES and replaces:  # MariaDB's
        return _drop_databases(cursor, scope, kind), "replaces a database"
    if kind != "TABLE":
        return (), f"CREATE {kind} changes no table's rows or columns"
    if modifiers & _WITHOUT_MIRROR:
        return (), "a temporary or external table has no mirror"
    guarded = cursor.accept("IF", "NOT", "EXISTS")
    table = scope.table(cursor)
    body = cursor.rest()
    made = _table_body(Cursor(body), scope, table, "if-not-exists" if guarded else None)
    effects_of = [made if scope.dialect == "mysql" else replace(made, dialect=scope.dialect)]
    if scope.dialect == "mysql":
        effects_of += cascading_keys(body, scope, table)
    effects_of += _relations(body, scope, table)
    if replaces:
        return [Effect("drop_table", table), *effects_of], "replaces a table"
    return effects_of, "creates a table"


def _relations(body: Sequence[Token], scope: Scope, table: TableId) -> list[Effect]:
    """On which tables a new one depends: its foreign keys, its parents, the table of which it is a partition."""
    if scope.dialect == "mysql":
        return []  # no statement of MySQL's reaches further than the tables that it names
    head = Cursor(body)
    if head.accept("PARTITION", "OF"):
        return [Effect("inherit", table, to=scope.table(head), note="partition-of")]
    relations = references(body, scope, table)
    if head.is_symbol("("):
        head.group()
        if head.accept("INHERITS"):
            relations += [
                Effect("inherit", table, to=scope.table(Cursor(part))) for part in split(head.group())
            ]
    return relations


def _object(cursor: Cursor) -> tuple[str, set[str]]:
    """The kind of object of a CREATE, ALTER or DROP, and the words before it."""
    before: set[str] = set()
    while not cursor.done and not cursor.is_symbol("("):
        word = cursor.next().word
        if word in ("TABLE", "TABLES"):
            if strange := before - _MODIFIERS:
                raise Unread(f"{min(strange)[:40]!r} before TABLE is not known here")
            return "TABLE", before
        if word in _DATABASES or word in _OBJECTS:
            return word, before
        before.add(word)
    raise Unread("what the statement makes, changes or drops is not known here")


def _table_body(cursor: Cursor, scope: Scope, table: TableId, note: str | None) -> Effect:
    """The new table: like another one, of a query, or of the columns in brackets; a ``note`` of the statement's head comes first."""
    created = Effect("create_table", table, note=note)
    if cursor.accept("PARTITION", "OF"):
        return replace(created, note=note or "partition-of", to=scope.table(cursor))
    if cursor.accept("OF"):
        raise Unread("the columns of an object table are in its type")
    has_brackets = cursor.is_symbol("(")
    inside = cursor.group() if has_brackets else ()
    options = cursor.rest() if has_brackets else ()
    first = Cursor(inside) if has_brackets else cursor
    inherits = any(token.word == "INHERITS" for token in options)
    if not inherits and (of_other := _body_of_other(first, scope, created, in_brackets=has_brackets)):
        return of_other
    made, keys = _elements(inside, scope)
    if _has_unnamed_columns(inside, options, scope):
        created = _filled(created)
    elif any(column.type is None for column in made):
        raise Unread("a column of the new table has no type")
    charset = columns.charset_of_table(options) if scope.dialect == "mysql" else None
    return replace(created, columns=tuple(made), keys=keys, charset=charset)


def _filled(created: Effect) -> Effect:
    """The new table with rows, or columns, that the statement does not name."""
    return replace(created, note=created.note or "as-select", filled=created.note is not None)


def _body_of_other(body: Cursor, scope: Scope, created: Effect, *, in_brackets: bool) -> Effect | None:
    """The new table if it is like another one or of a query; None if its columns are listed, in brackets."""
    is_whole = scope.dialect == "mysql" or not in_brackets or len(split(body.items)) == 1
    if is_whole and body.accept("LIKE"):
        other = scope.table(body)
        # elsewhere keys, defaults and expressions are not copied, unless the statement says otherwise
        is_copy = scope.dialect == "mysql" or (body.accept("INCLUDING", "ALL") and body.done)
        return replace(created, note=created.note or "like", to=other if is_copy else None)
    if not in_brackets or body.word() in ("SELECT", "WITH"):
        return _filled(created)
    return None


def _has_unnamed_columns(inside: Sequence[Token], options: Sequence[Token], scope: Scope) -> bool:
    """True if the new table has further columns, which are known to the source only."""
    copies = scope.dialect == "postgres" and any(part[0].word == "LIKE" for part in split(inside))
    return copies or any(token.word in ("SELECT", "INHERITS") for token in options)


def _elements(inside: Sequence[Token], scope: Scope) -> tuple[list[ColumnDefinition], tuple[str, ...]]:
    made: list[ColumnDefinition] = []
    keys: tuple[str, ...] = ()
    for part in split(inside):
        if columns.is_constraint(part, scope.dialect):
            keys = columns.primary_key(part, scope.dialect) or keys
            continue
        defined = columns.definition(part, scope.dialect, scope.source)
        made.append(defined.column)
        if defined.primary:
            keys = (defined.column.name,)
    return made, keys


# --- ALTER, DROP, RENAME, TRUNCATE, COMMENT -------------------------------------------------------


def _alter(cursor: Cursor, scope: Scope) -> _Found:
    kind, words = _object(cursor)
    if kind == "TABLE":
        if words & _WITHOUT_MIRROR or cursor.accept("ALL", "IN", "TABLESPACE"):
            return (), "an external table has no mirror; a tablespace is where tables lie"
        if scope.dialect == "sqlserver":
            return sqlserver.alter_table(cursor, scope)
        return alter_table(cursor, scope, ignore="IGNORE" in words)
    altered = _alter_object(kind, cursor, scope)
    what = "changes a type, a domain or a schema" if altered else "changes no table's rows or columns"
    return altered, f"ALTER {kind} {what}"


def _alter_object(kind: str, cursor: Cursor, scope: Scope) -> Sequence[Effect]:
    """What changes with an object that is no table."""
    match scope.dialect, kind:
        case "postgres", "TYPE" | "DOMAIN":
            return pg_types.alter(kind, cursor, scope)
        case "postgres", ("DATABASE" | "SCHEMA"):
            return pg_types.rename_schema(cursor, scope, kind)
        case "sqlserver", "SCHEMA":
            return sqlserver.transfer(cursor, scope)
    words = {token.word for token in cursor.items}
    if kind == "TYPE" and not words & {"COMPILE", "EDITIONABLE"}:
        raise Unread("the columns of an object type are in tables that the statement does not name")
    if kind in _DATABASES and "UPGRADE" in words:
        raise Unread("every table of the database gets another name")
    return ()


def _drop(cursor: Cursor, scope: Scope) -> _Found:
    kind, modifiers = _object(cursor)
    if kind in _DATABASES or (kind == "USER" and scope.dialect == "oracle"):
        return _drop_databases(cursor, scope, kind), "drops every table of a database"
    if kind == "INDEX" and scope.dialect == "mysql":
        cursor.accept("IF", "EXISTS")
        if columns.name(cursor, scope.dialect).upper() == "PRIMARY" and cursor.accept("ON"):
            return (Effect("drop_primary_key", scope.table(cursor)),), "drops the primary key"
    if kind != "TABLE":
        return _drop_object(kind, cursor, scope), f"DROP {kind} changes no table's rows or columns"
    cursor.accept("IF", "EXISTS")
    if modifiers & _WITHOUT_MIRROR:
        return (), "a temporary or external table has no mirror"
    tables = _tables(cursor, scope)
    cascade = scope.dialect == "postgres" and cursor.word() == "CASCADE"
    return [Effect("drop_table", table, cascade=cascade) for table in tables], "drops a table"


def _drop_object(kind: str, cursor: Cursor, scope: Scope) -> Sequence[Effect]:
    """What goes with an object that is no table."""
    words = {token.word for token in cursor.items}
    keeps_tables = kind == "TABLESPACE" and scope.dialect != "db2" and "INCLUDING" not in words
    if kind in _DROPS_MORE and not keeps_tables:
        raise Unread(f"DROP {kind} drops tables that it does not name")
    if scope.dialect != "postgres" or "CASCADE" not in words or kind not in _COLUMNS_MADE_OF:
        return ()
    if kind in ("TYPE", "DOMAIN"):
        return pg_types.dropped(cursor, scope)
    raise Unread(f"DROP {kind} ... CASCADE drops columns that it does not name")


def _drop_databases(cursor: Cursor, scope: Scope, kind: str) -> list[Effect]:
    """In MySQL a schema is a database; in the others it is a part of one."""
    cursor.accept("IF", "EXISTS")
    dropped = []
    while True:
        parts = scope.parts(cursor)
        inside = kind == "SCHEMA" and scope.dialect != "mysql" and scope.message.schema is not None
        named = TableId(scope.message.database, parts[-1], None) if inside else TableId(parts[-1], None, None)
        dropped.append(Effect("drop_database", named))
        if not cursor.symbol(","):
            return dropped


def _tables(cursor: Cursor, scope: Scope) -> list[TableId]:
    tables = [scope.table(cursor)]
    cursor.symbol("*")
    while cursor.symbol(","):
        tables.append(scope.table(cursor))
        cursor.symbol("*")
    return tables


def _rename(cursor: Cursor, scope: Scope) -> _Found:
    if cursor.word() in ("USER", "INDEX") and cursor.word(1) != "TO":
        return (), f"RENAME {cursor.word()} changes no table's rows or columns"
    if cursor.word(1) != "TO":
        cursor.accept("TABLE") or cursor.accept("TABLES")
    cursor.accept("IF", "EXISTS")
    return [_renamed(Cursor(part), scope) for part in split(cursor.rest())], "renames a table"


def _renamed(cursor: Cursor, scope: Scope) -> Effect:
    cursor.accept("IF", "EXISTS")
    old = scope.table(cursor)
    cursor.patience()
    if not cursor.accept("TO"):
        raise Unread("RENAME without TO")
    new = scope.table(cursor, like=old if scope.dialect != "mysql" else None)
    if not cursor.done:
        raise Unread(f"{cursor.peek().text[:40]!r} follows the new name")
    return Effect("rename_table", old, to=new)


def _truncate(cursor: Cursor, scope: Scope) -> _Found:
    if scope.dialect == "oracle" and cursor.accept("CLUSTER"):
        raise Unread("the tables of a truncated cluster are not named")
    if cursor.word(1) or cursor.peek(1).kind == "name":
        cursor.accept("TABLE")
    cursor.accept("IF", "EXISTS")
    emptied, names = list[Effect](), split(cursor.rest())
    for place, part in enumerate(names):
        named = Cursor(part)
        only = scope.dialect == "postgres" and named.accept("ONLY") and not named.done
        if only and named.is_symbol("("):
            named = Cursor(named.group())
        table = scope.table(named)
        named.symbol("*")
        if named.word() in ("PARTITION", "SUBPARTITION") or (
            scope.dialect == "sqlserver" and named.word() == "WITH"
        ):
            return [Effect("truncate_partition", table)], "empties a partition"
        if not named.done and place < len(names) - 1:
            raise Unread(f"{named.peek().text[:40]!r} follows a table's name")
        emptied.append(Effect("truncate", table, only=only))
        cursor = named
    cascade = _truncate_options(cursor, scope)
    return [replace(effect, cascade=cascade) for effect in emptied], "empties a table"


def _truncate_options(cursor: Cursor, scope: Scope) -> bool:
    """Read what follows the last table; True if it says CASCADE, which MySQL ignores."""
    cascade = False
    while not cursor.done:
        if cursor.word() in ("CASCADE", "RESTRICT") and cursor.word(1) != "WHEN":
            cascade = cursor.next().word == "CASCADE" and scope.dialect != "mysql"
        elif not any(cursor.accept(*words) for words in _TRUNCATE_OPTIONS) and not cursor.patience():
            raise Unread(f"TRUNCATE ... {cursor.peek().text[:40]!r} is not known here")
    return cascade


_TRUNCATE_OPTIONS = tuple(
    tuple(words.split())
    for words in (
        "RESTART IDENTITY", "CONTINUE IDENTITY", "PRESERVE MATERIALIZED VIEW LOG", "PURGE MATERIALIZED VIEW LOG",
        "PRESERVE SNAPSHOT LOG", "PURGE SNAPSHOT LOG", "DROP STORAGE", "DROP ALL STORAGE", "REUSE STORAGE",
        "UPDATE GLOBAL INDEXES", "IGNORE DELETE TRIGGERS", "RESTRICT WHEN DELETE TRIGGERS", "IMMEDIATE",
    )
)  # fmt: skip


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
