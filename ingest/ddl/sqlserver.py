"""SQL Server's statements where no other database's are like them (Transact-SQL reference: ALTER TABLE, ALTER SCHEMA, sp_rename).

- One ADD or DROP has a list of columns and constraints; ALTER COLUMN changes one column alone.
- A new column that may be NULL is NULL in existing rows whatever its DEFAULT, unless ``WITH VALUES`` follows it.
- The procedure ``sp_rename`` renames tables and columns: its first text is a name with its parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ingest.change import TableId
from ingest.ddl import alter, columns
from ingest.ddl.effect_model import COMPUTED, Effect
from ingest.ddl.scope import Scope
from ingest.ddl.tokens import Cursor, Token, Unread, split, tokens

WITHOUT_EFFECT = frozenset({("UPDATE", "STATISTICS"), ("ENABLE", "TRIGGER"), ("DISABLE", "TRIGGER")})
"""How statements begin that change no rows and no columns."""
_OPTIONS = frozenset({"SET", "REBUILD", "CHECK", "NOCHECK", "ENABLE", "DISABLE"})
"""First words of clauses of ALTER TABLE: options, storage, constraints and triggers that are switched on or off."""
_OF_COLUMNS = frozenset({"ADD", "DROP"})  # a property of a column, after its name: SPARSE, HIDDEN, a mask
_ROUNDS = re.compile(r"(datetime|smalldatetime|money|smallmoney)\b", re.IGNORECASE)
"""Types that round by rules of their own: to a three-hundredth of a second, to a minute, to four digits."""
_PRIMARY = re.compile(r"PK_", re.IGNORECASE)  # how SQL Server itself, and everybody, names primary keys
_SYSTEM = frozenset({"SYS", "DBO", "MASTER"})  # where a procedure of the system may be called from
_MAINTAINS = re.compile(
    r"SP_(CDC_\w+|\w*EXTENDEDPROPERTY|UPDATESTATS|RECOMPILE|REFRESHVIEW|TABLEOPTION)", re.IGNORECASE
)
"""Procedures of the system that change no rows and no columns."""
_NO_TABLE = frozenset({"INDEX", "STATISTICS", "USERDATATYPE"})
"""What sp_rename may rename besides tables and columns."""
_ARGUMENTS = ("objname", "newname", "objtype")  # of sp_rename, in their order


_VERBS = frozenset({"ALTER", "CREATE", "DROP", "TRUNCATE"})
_CHANGED = frozenset({"TABLE", "SCHEMA", "DATABASE"})
_HAVE_BODIES = frozenset({"PROC", "PROCEDURE", "FUNCTION", "TRIGGER", "VIEW"})
"""Objects whose statement ends with the text: what follows is theirs and is not executed yet."""
_OF_PERMISSIONS = frozenset({"TO", "FROM", "ON", "AS"})
"""What follows a verb that begins nothing: ``GRANT CREATE TABLE TO``, ``REVOKE EXECUTE ON``, ``WITH EXECUTE AS``."""


def refuse_several(items: Sequence[Token], scope: Scope) -> None:
    """Raise `Unread` for several statements without semicolons, of which the readers here would read the first alone.

    The verbs, TABLE, SCHEMA, DATABASE and EXEC are reserved words, so that none of them is a name.
    """
    head = Cursor(items)
    makes = head.accept("CREATE", "OR", "ALTER") or head.accept("CREATE") or head.accept("ALTER")
    if makes and head.word() in _HAVE_BODIES:
        return
    places = [place for place in range(len(items)) if _begins(items[place : place + 3])]
    if not any(places):  # none, or the first word alone
        return
    why = Unread("several statements without semicolons between them")
    changed = {items[place + 1].word for place in places}
    if changed == {"TABLE"} and not items[0].word.startswith("SP_"):  # any other may change every table
        why.tables = tuple(table for place in places for table in _tables(items, place + 2, scope))
    raise why


def _begins(items: Sequence[Token]) -> bool:
    """True of the first tokens of a statement that may change tables."""
    cursor = Cursor(items)
    if cursor.accept("EXEC") or cursor.accept("EXECUTE"):
        return not (cursor.done or cursor.word() in _OF_PERMISSIONS or cursor.is_symbol(","))
    begins = cursor.word() in _VERBS and cursor.word(1) in _CHANGED
    return begins and not (cursor.word(2) in _OF_PERMISSIONS or cursor.is_symbol(",", 2))


def _tables(items: Sequence[Token], start: int, scope: Scope) -> Iterator[TableId]:
    cursor = Cursor(items)
    cursor.at = start
    cursor.accept("IF", "EXISTS")
    yield scope.table(cursor)
    while cursor.symbol(","):
        yield scope.table(cursor)


def alter_table(cursor: Cursor, scope: Scope) -> tuple[Sequence[Effect], str]:
    """The effects of everything after ``ALTER TABLE``."""
    return altered(scope.table(cursor), cursor, scope)


def altered(table: TableId, cursor: Cursor, scope: Scope) -> tuple[Sequence[Effect], str]:
    """The effects of the one clause that an ALTER TABLE has."""
    try:
        effects = _clause(cursor, scope, table)
    except Unread as why:
        why.tables = (table,)
        raise
    return effects, "alters a table" if effects else "keys, indexes, partitions or options of a table"


def _clause(cursor: Cursor, scope: Scope, table: TableId) -> Sequence[Effect]:
    if cursor.accept("WITH"):  # CHECK or NOCHECK, before ADD CONSTRAINT
        cursor.next()
    if cursor.accept("ALTER", "COLUMN"):
        return _altered_column(cursor, scope, table)
    if cursor.accept("ADD"):
        return _added(cursor, scope, table)
    if cursor.accept("DROP"):
        return list(_dropped(cursor, scope, table))
    if cursor.word() == "SWITCH":
        return _switched(cursor.rest(), scope, table)
    if cursor.word() in _OPTIONS:
        return ()
    raise Unread(f"the clause that begins with {cursor.peek().text[:40]!r} is not known here")


def _added(cursor: Cursor, scope: Scope, table: TableId) -> Sequence[Effect]:
    """The columns and constraints of a list without brackets."""
    cursor.accept("COLUMN")
    if cursor.done:
        raise Unread("ADD without a column or a constraint")
    elements = split(cursor.rest())
    defaults = dict(filter(None, (_default_of(items, scope) for items in elements)))
    effects: list[Effect] = []
    for items in elements:
        default = defaults.get(scope.column(Cursor(items)).casefold(), ())
        effects += alter.added_element([*items, *default], scope, table)
    return effects


def _default_of(items: Sequence[Token], scope: Scope) -> tuple[str, Sequence[Token]] | None:
    """A column and its default from a constraint ``DEFAULT ... FOR column [WITH VALUES]``, as the column itself would have it."""
    cursor = Cursor(items)
    if cursor.accept("CONSTRAINT"):
        scope.column(cursor)
    places = [place for place, token in enumerate(items) if token.word == "FOR"]
    if cursor.word() != "DEFAULT" or not places:
        return None
    ends = places[-1]  # a value may have the word, too: NEXT VALUE FOR a sequence
    column = Cursor(items[ends + 1 :])
    return scope.column(column).casefold(), [*items[cursor.at : ends], *column.rest()]


def _altered_column(cursor: Cursor, scope: Scope, table: TableId) -> Sequence[Effect]:
    column = scope.column(cursor)
    if cursor.word() in _OF_COLUMNS:
        return (Effect("modify_column", table, column),)
    effects = alter.retyped([Token("name", column, 0, 0), *cursor.rest()], scope, table)
    return [replace(effect, note=COMPUTED) if _ROUNDS.match(effect.written) else effect for effect in effects]


def _dropped(cursor: Cursor, scope: Scope, table: TableId) -> Iterator[Effect]:
    """Columns and constraints; a word says of which kind it and all after it are, and without one they are constraints."""
    kind = "CONSTRAINT"
    for part in split(cursor.rest()):
        item = Cursor(part)
        if columns.is_period(item):
            continue
        if item.word() in ("COLUMN", "CONSTRAINT"):
            kind = item.next().word
        item.accept("IF", "EXISTS")
        name = scope.column(item)
        if not item.done and item.word() != "WITH":  # options of a clustered index
            raise Unread(f"{item.peek().text[:40]!r} follows the name of what is dropped")
        if kind == "COLUMN":
            yield Effect("drop_column", table, name)
        elif _PRIMARY.match(name):
            yield Effect("drop_primary_key", table)


def _switched(items: Sequence[Token], scope: Scope, table: TableId) -> Sequence[Effect]:
    """Rows that move from table to table with their partition appear in no message for each row."""
    note = " ".join(token.text for token in items)[:400]
    at = next((place for place, token in enumerate(items) if token.word == "TO"), len(items))
    other = scope.table(Cursor(items[at + 1 :]), like=table)
    return [Effect("truncate_partition", table, note=note), Effect("truncate_partition", other, note=note)]


def transfer(cursor: Cursor, scope: Scope) -> Sequence[Effect]:
    """``ALTER SCHEMA new TRANSFER [OBJECT::] old.table``."""
    schema = scope.column(cursor)
    if not cursor.accept("TRANSFER"):
        raise Unread("ALTER SCHEMA without TRANSFER")
    if cursor.accept("XML", "SCHEMA", "COLLECTION"):
        return ()
    if cursor.is_symbol("::", 1):
        kind = cursor.next().word
        cursor.symbol("::")
        if kind != "OBJECT":
            return ()
    table = scope.table(cursor)
    return (Effect("rename_table", table, to=TableId(table.database, schema, table.table)),)


def procedure(cursor: Cursor, scope: Scope) -> tuple[Sequence[Effect], str]:
    """A procedure of the system, after EXEC or without it; one of another name may do anything."""
    words = [cursor.next()]
    while cursor.symbol("."):
        cursor.symbol(".")  # master..sp_rename
        words.append(cursor.next())
    name = words[-1].text
    if any(word.text.upper() not in _SYSTEM for word in words[:-1]):
        raise Unread(f"the procedure {name[:40]!r} is not known here")
    if _MAINTAINS.fullmatch(name):
        return (), f"{name} changes no table's rows or columns"
    if name.lower() != "sp_rename":
        raise Unread(f"the procedure {name[:40]!r} is not known here")
    return _renamed(_arguments(cursor.rest()), scope)


def _arguments(items: Sequence[Token]) -> dict[str, str]:
    """The texts of sp_rename's arguments by their names, which the call leaves out or writes: ``@newname = N'w'``."""
    arguments: dict[str, str] = {}
    for place, part in enumerate(split(items)):
        cursor = Cursor(part)
        name = _ARGUMENTS[place] if place < len(_ARGUMENTS) else ""
        if cursor.symbol("@"):
            name = cursor.next().text.lower()
            if not cursor.symbol("="):
                raise Unread("the value of a variable is not known")
        value = cursor.next()
        is_text = value.kind in ("string", "name", "word") and cursor.done
        if name not in _ARGUMENTS or name in arguments or not is_text:
            raise Unread("the arguments of sp_rename cannot be read")
        arguments[name] = value.text
    return arguments


def _renamed(arguments: Mapping[str, str], scope: Scope) -> tuple[Sequence[Effect], str]:
    if not {"objname", "newname"} <= arguments.keys():
        raise Unread("sp_rename needs an old and a new name")
    kind, new = arguments.get("objtype", "OBJECT").upper(), arguments["newname"]
    if kind in _NO_TABLE:
        return (), f"renames an object of the kind {kind}"
    if kind not in ("COLUMN", "OBJECT"):
        raise Unread(f"sp_rename of the kind {kind[:40]!r} is not known here")
    old = Cursor(tokens(arguments["objname"], scope.dialect))
    parts = scope.parts(old)
    if not old.done:
        raise Unread(f"{old.peek().text[:40]!r} follows the old name")
    if kind == "OBJECT":
        table = scope.identity(parts)
        return (Effect("rename_table", table, to=table._replace(table=new)),), "renames a table"
    if len(parts) == 1:
        raise Unread("sp_rename of a column does not name its table")
    table = scope.identity(parts[:-1])
    return (Effect("rename_column", table, parts[-1], to=new),), "renames a column"
