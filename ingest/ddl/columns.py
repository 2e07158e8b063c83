"""Column definitions: name, type, default, nullability, comment, position.

A definition is read as: the name, then type words up to the first word that begins an attribute,
then attributes in any order.  Storage clauses and options that say nothing of rows are skipped; a word that is
neither makes the statement unread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

from ingest import types
from ingest.ddl import as_stored, stored_sqlserver
from ingest.ddl.effect_model import ColumnDefinition, Dialect, Effect
from ingest.ddl.stored_mysql import padded, scaled
from ingest.ddl.tokens import Cursor, Token, Unread, split
from ingest.values.same_value import same_value

_ATTRIBUTES = frozenset(
    "NOT NULL DEFAULT COMMENT PRIMARY UNIQUE KEY AUTO_INCREMENT AUTOINCREMENT CHARSET COLLATE GENERATED AS ON "
    "FIRST AFTER BEFORE CHECK REFERENCES CONSTRAINT VISIBLE INVISIBLE ENABLE DISABLE SRID STORAGE COLUMN_FORMAT "
    "ENCRYPT DECRYPT USING VIRTUAL STORED PERSISTENT SORT COMPRESSED SKIP_INDEX DEFERRABLE INITIALLY RELY NORELY "
    "VALIDATE NOVALIDATE CASCADE RESTRICT IDENTITY ENCODE LOB COMPRESS".split()
)
_CONSTRAINTS: dict[Dialect, frozenset[str]] = {
    "mysql": frozenset(
        "PRIMARY KEY INDEX UNIQUE FULLTEXT SPATIAL CONSTRAINT FOREIGN CHECK VECTOR CLUSTERING".split()
    ),
    "oracle": frozenset("PRIMARY UNIQUE CONSTRAINT FOREIGN CHECK SUPPLEMENTAL SCOPE REF".split()),
    "postgres": frozenset("PRIMARY UNIQUE CONSTRAINT FOREIGN CHECK EXCLUDE LIKE".split()),
    "sqlserver": frozenset("PRIMARY UNIQUE CONSTRAINT FOREIGN CHECK INDEX DEFAULT".split()),
    "db2": frozenset("PRIMARY UNIQUE CONSTRAINT FOREIGN CHECK".split()),
}
_SOFT = frozenset("VECTOR CLUSTERING SCOPE REF EXCLUDE PERIOD".split())  # legal column names too


@dataclass(frozen=True, slots=True)
class Definition:
    """A column, whether its own definition makes it the primary key, and the expression of its values, if any."""

    column: ColumnDefinition
    primary: bool = False
    using: Sequence[Token] = ()


def names_in(items: Sequence[Token]) -> tuple[str, ...]:
    """The words and names of an expression: the columns of which it is made are among them."""
    return tuple(dict.fromkeys(token.text for token in items if token.kind in ("word", "name")))


def name(cursor: Cursor, dialect: Dialect) -> str:
    """An identifier: quoted as it is, unquoted folded as the dialect folds it."""
    token = cursor.next()
    if token.kind == "name" or (token.kind == "string" and dialect == "mysql"):  # ANSI_QUOTES
        return token.text
    if token.kind == "word":
        if dialect in ("oracle", "db2"):
            return token.text.upper()
        return token.text.lower() if dialect == "postgres" else token.text
    if token.kind in ("number", "hex", "bits"):  # MySQL names may begin with a digit
        return token.text
    raise Unread(f"{token.text[:40]!r} is where a name should be")


def is_constraint(items: Sequence[Token], dialect: Dialect) -> bool:
    """True if an element of a column list is a key, index or check and no column."""
    cursor = Cursor(items)
    word = cursor.word()
    if is_period(cursor):
        return True
    if word not in _CONSTRAINTS[dialect]:
        return False
    return word not in _SOFT or cursor.word(1) in ("INDEX", "KEY", "FOR", "USING") or cursor.is_symbol("(", 1)


def is_period(cursor: Cursor) -> bool:
    """True of ``PERIOD FOR SYSTEM_TIME``, in which Db2 may leave FOR out."""
    return cursor.word() == "PERIOD" and cursor.word(1) in ("FOR", "SYSTEM_TIME", "BUSINESS_TIME")


def primary_key(items: Sequence[Token], dialect: Dialect) -> tuple[str, ...] | None:
    """The columns of ``[CONSTRAINT x] PRIMARY KEY ... (a, b(10), c DESC)``; None for any other constraint."""
    cursor = Cursor(items)
    if cursor.accept("CONSTRAINT") and cursor.word() != "PRIMARY":
        cursor.accept("IF", "NOT", "EXISTS")
        cursor.next()
    if not cursor.accept("PRIMARY", "KEY"):
        return None
    if cursor.accept("IF", "NOT", "EXISTS"):
        raise Unread("a primary key that is added only where there is none")
    while not cursor.done and not cursor.is_symbol("("):
        cursor.next()
    if cursor.done:  # PostgreSQL: PRIMARY KEY USING INDEX
        return ()
    return tuple(name(Cursor(part), dialect) for part in split(cursor.group()))


def cascades(items: Sequence[Token]) -> str:
    """What a foreign key makes the server do to rows of its own accord, as it is written; empty if nothing."""
    words = [token.word for token in items]
    actions = []
    for place, word in enumerate(words):
        if word == "ON" and words[place + 1 : place + 2] in (["DELETE"], ["UPDATE"]):
            does = words[place + 2 : place + (3 if words[place + 2 : place + 3] == ["CASCADE"] else 4)]
            if does in (["CASCADE"], ["SET", "NULL"], ["SET", "DEFAULT"]):
                actions.append(" ".join(words[place : place + 2] + does))
    return ", ".join(dict.fromkeys(actions))


def definition(items: Sequence[Token], dialect: Dialect, source: str) -> Definition:
    """One column definition from its tokens; ``source`` is the whole statement, from which ``declared`` is cut."""
    cursor = Cursor(items)
    column = name(cursor, dialect)
    type_tokens = _type_tokens(cursor, dialect)
    attributes = _Attributes()
    while not cursor.done:
        if cursor.is_symbol("("):
            cursor.group()
        elif not _read_attribute(cursor, attributes, dialect):
            _skip(cursor, dialect)
    declared = logical = None
    if type_tokens:
        declared = " ".join(source[type_tokens[0].start : type_tokens[-1].end].split())
        if dialect == "sqlserver":  # scripts of its tools put every type into brackets
            declared = stored_sqlserver.system_type(as_stored.written(type_tokens))
        try:
            logical = logical_type(declared, dialect, attributes.charset or _implied_charset(declared))
        except ValueError:  # thousands of digits are not a precision
            raise Unread(f"the type {declared[:40]!r} cannot be read") from None
        attributes.serial = attributes.serial or type_tokens[0].word in _SERIALS
        attributes.serial |= dialect == "sqlserver" and declared.lower() in _VERSIONS
    if attributes.generated and logical is None:
        logical = "unknown"  # Oracle takes a virtual column's type from its expression
    charset = (attributes.charset or _implied_charset(declared or "")) if dialect == "mysql" else None
    default, has_default, note = _default(attributes, logical, declared, dialect, charset)
    made = ColumnDefinition(
        column,
        logical,
        declared,
        attributes.nullable,
        default,
        has_default,
        attributes.comment,
        attributes.position,
        note,
        charset,
        attributes.made_of,
    )
    return Definition(made, attributes.primary, attributes.using)


def charset_of_collation(name: str) -> str:
    """A collation is named after its character set."""
    return name.lower().partition("_")[0]


def charset_of_table(items: Sequence[Token]) -> str | None:
    """The character set that a table's options name, by itself or by its collation."""
    cursor, collation = Cursor(items), None
    while not cursor.done:
        if cursor.accept("CHARACTER", "SET") or cursor.accept("CHARSET"):
            cursor.symbol("=")
            return cursor.next().text.lower()
        if cursor.accept("COLLATE"):
            cursor.symbol("=")
            collation = charset_of_collation(cursor.next().text)
        else:
            cursor.next()
    return collation


def _implied_charset(declared: str) -> str | None:
    """The character set that the words of a type mean: ``CHAR(9) ASCII``, ``NVARCHAR(9)``."""
    name, _, rest = declared.lower().partition("(")
    words = f"{name} {rest.rpartition(')')[2]}".split()
    if words[:1] in (["national"], ["nchar"], ["nvarchar"]):
        return "utf8mb3"
    named = {"byte": "binary", "ascii": "latin1", "unicode": "ucs2"}
    return next((charset for word, charset in named.items() if word in words), None)


def _type_tokens(cursor: Cursor, dialect: Dialect) -> Sequence[Token]:
    """The type's words, and its brackets with what is in them."""
    start = cursor.at
    while not cursor.done and not _begins_attribute(cursor):
        word, is_first = cursor.word(), cursor.at == start
        if not is_first and word not in _TYPE_WORDS and word in _says_nothing(dialect):
            break
        if cursor.is_symbol("="):
            raise Unread("an equals sign is where a type should be")
        if cursor.is_symbol("("):
            cursor.group()
            continue
        if dialect == "db2" and any(cursor.accept("FOR", kind, "DATA") for kind in ("BIT", "SBCS", "MIXED")):
            continue
        if word and not is_first and cursor.items[cursor.at - 1].text != "." and word not in _TYPE_WORDS:
            raise Unread(f"{cursor.peek().text[:40]!r} is not known in a column's type or after it")
        cursor.next()
    return cursor.items[start : cursor.at]


def _begins_attribute(cursor: Cursor) -> bool:
    """True if the next word is an attribute's, whose second word may tell it from a type's."""
    word, second = cursor.word(), cursor.word(1)
    if word in _TWO_WAYS:
        return second not in _TWO_WAYS[word]
    return word in _ATTRIBUTES or (word, second) == ("CHARACTER", "SET")


_TYPE_WORDS = frozenset(
    "UNSIGNED SIGNED ZEROFILL BINARY ASCII UNICODE BYTE PRECISION VARYING CHAR CHARACTER VARCHAR VARCHARACTER VARCHAR2 "
    "TEXT VARBINARY LARGE OBJECT LONG RAW WITH WITHOUT LOCAL TIME ZONE DAY TO SECOND YEAR MONTH HOUR MINUTE ARRAY BIT".split()
)
"""Words that a type may have after its first."""
_TWO_WAYS = {
    "WITH": frozenset({"TIME", "LOCAL"}),
    "WITHOUT": frozenset({"TIME", "LOCAL"}),
}
"""Words of types that mean something else unless one of these follows: ``WITH SYSTEM VERSIONING``."""


def _skip(cursor: Cursor, dialect: Dialect) -> None:
    """Move past an attribute that says nothing of rows: storage, constraints, options; `Unread` if it is not known."""
    if cursor.accept("REFERENCES"):
        cursor.next()
        while cursor.symbol("."):
            cursor.next()
        return
    token = cursor.next()
    if token.word in _WITH_NAME and not cursor.done:
        cursor.symbol("=")
        cursor.next()
    elif token.word and token.word not in _ATTRIBUTES and token.word not in _says_nothing(dialect):
        raise Unread(f"{token.text[:40]!r} is not known in a column's definition")
    elif cursor.symbol("=") and not cursor.done:
        cursor.next()


_WITH_NAME = frozenset(
    "CONSTRAINT STORAGE COLUMN_FORMAT COMPRESSION TABLESPACE ENGINE_ATTRIBUTE SECONDARY_ENGINE_ATTRIBUTE "
    "REF_SYSTEM_ID SRID BY MATCH INDEX".split()
)
_SAYS_NOTHING = frozenset(
    "ENFORCED CLUSTERED NONCLUSTERED GLOBAL LOCAL AUTO_RANDOM NULLS DISTINCT DEFERRED IMMEDIATE INITIALLY EXCEPTIONS INTO "
    "WITH WITHOUT SYSTEM VERSIONING ROW START END ALWAYS SALT NO IDENTIFIED SCOPE IS STORE SECUREFILE BASICFILE CHUNK "
    "RETENTION CACHE NOCACHE LOGGING NOLOGGING COMPRESS NOCOMPRESS PCTFREE PCTVERSION INITRANS KEEP_DUPLICATES ACTION "
    "INCREMENT MINVALUE NOMINVALUE MAXVALUE NOMAXVALUE CYCLE NOCYCLE ORDER NOORDER USE RESERVABLE ANNOTATIONS DOMAIN "
    "SIGNED UNSIGNED BINARY INCLUDE ONLINE BTREE HASH COMPRESSED".split()
)
_SAYS_NOTHING_IN: dict[Dialect, frozenset[str]] = {
    "sqlserver": frozenset(
        "ROWGUIDCOL SPARSE FILESTREAM HIDDEN MASKED PERSISTED FOR REPLICATION ASC DESC FUNCTION".split()
    ),
    "db2": frozenset("INLINE LENGTH LOGGED COMPACT HIDDEN IMPLICITLY CCSID UNICODE SBCS MIXED".split()),
}


def _says_nothing(dialect: Dialect) -> frozenset[str]:
    """Words of attributes that say nothing of rows, in one database or in all."""
    return _SAYS_NOTHING | _SAYS_NOTHING_IN.get(dialect, frozenset())


# --- types --------------------------------------------------------------------------------------

_SERIALS = frozenset({"SERIAL", "BIGSERIAL", "SMALLSERIAL", "SERIAL4", "SERIAL8", "SERIAL2"})
_VERSIONS = frozenset({"timestamp", "rowversion"})  # SQL Server's counters of a row's changes
_MYSQL_SYNONYMS = {
    "int1": "tinyint", "int2": "smallint", "int3": "mediumint", "middleint": "mediumint", "int4": "int",
    "int8": "bigint",  # in a statement eight bytes; in a capture's type list eight bits
    "float4": "float", "float8": "double", "number": "decimal", "uuid": "char", "inet4": "char", "inet6": "char",
    "varchar2": "varchar", "clob": "longtext", "long": "mediumtext", "long varchar": "mediumtext",
    "raw": "varbinary", "long varbinary": "mediumblob",
}  # fmt: skip


def logical_type(declared: str, dialect: Dialect, charset: str | None = None) -> str:
    """The logical type that a statement's type makes, with what the dialect implies."""
    logical = _LOGICAL_TYPES[dialect](declared)
    is_bytes = dialect == "mysql" and charset == "binary" and logical == "string"
    return "binary" if is_bytes else logical


def _of_mysql(declared: str) -> str:
    lowered = declared.lower().removeprefix("national ")
    words = re.sub(r"\(.*", "", lowered).split()
    synonym = _MYSQL_SYNONYMS.get(" ".join(words[:2])) or _MYSQL_SYNONYMS.get(words[0] if words else "")
    logical = types.mysql(synonym + " " + lowered.partition(" ")[2] if synonym else lowered)
    return "decimal(10,0)" if logical == "decimal" else logical


def _of_oracle(declared: str) -> str:
    name, has_digits, _ = declared.lower().partition("(")
    bare = name.rstrip()
    if bare in ("decimal", "numeric", "dec") and not has_digits:
        return "decimal(38,0)"
    return types.oracle(_ORACLE_SYNONYMS.get(bare, declared))


def _of_sqlserver(declared: str) -> str:
    logical = types.sqlserver(declared)
    return "decimal(18,0)" if logical == "decimal" else logical


def _of_db2(declared: str) -> str:
    logical = types.db2(declared)
    has_scale = declared.lower().startswith("decfloat")
    return "decimal(5,0)" if logical == "decimal" and not has_scale else logical


_LOGICAL_TYPES: dict[Dialect, Callable[[str], str]] = {
    "mysql": _of_mysql,
    "postgres": types.postgres,
    "oracle": _of_oracle,
    "sqlserver": _of_sqlserver,
    "db2": _of_db2,
}


_ORACLE_SYNONYMS = {
    "double precision": "float", "real": "float", "character": "char", "character varying": "varchar2",
    "char varying": "varchar2", "national character": "nchar", "national character varying": "nvarchar2",
    "national char": "nchar", "national char varying": "nvarchar2", "nchar varying": "nvarchar2",
}  # fmt: skip


# --- attributes ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Attributes:
    nullable: bool | None = None
    default: Sequence[Token] = ()
    comment: str | None = None
    position: str | None = None
    charset: str | None = None
    primary: bool = False
    generated: bool = False
    serial: bool = False
    using: Sequence[Token] = ()
    made_of: tuple[str, ...] = ()
    fills: bool = False  # SQL Server: the DEFAULT is for existing rows, too
    of_type: bool = False  # Db2: the DEFAULT is the type's own value


_AFTER_EXPRESSION = frozenset("PERSISTED NOT CONSTRAINT UNIQUE PRIMARY CHECK FOREIGN REFERENCES".split())
"""Transact-SQL reference, ALTER TABLE: the words that may follow the expression of a computed column."""
_AttributeReader = Callable[[Cursor, _Attributes, Dialect], object]
"""Reads what follows an attribute's words."""


def _sets(**values: object) -> _AttributeReader:
    """An attribute whose words say everything."""

    def read(_cursor: Cursor, attributes: _Attributes, _dialect: Dialect) -> None:
        for field_name, value in values.items():
            setattr(attributes, field_name, value)

    return read


def _read_default(cursor: Cursor, attributes: _Attributes, dialect: Dialect) -> None:
    is_value = cursor.word() == "NULL" or cursor.word() not in _ATTRIBUTES
    if dialect == "db2" and (cursor.done or not is_value):
        attributes.of_type = True
        return
    cursor.accept("ON", "NULL")
    start = cursor.at
    cursor.group() if cursor.is_symbol("(") else cursor.next()
    while not cursor.done and cursor.word() not in _ATTRIBUTES and cursor.word(1) != "VALUES":
        cursor.group() if cursor.is_symbol("(") else cursor.next()
    attributes.default = cursor.items[start : cursor.at]


def _read_generated(cursor: Cursor, attributes: _Attributes, dialect: Dialect) -> None:
    attributes.generated = True
    if dialect == "sqlserver" and cursor.word() != "ROW":  # without brackets, too
        start = cursor.at
        cases = 0  # that are open: only their conditions contain NOT
        while not cursor.done and (cases or cursor.word() not in _AFTER_EXPRESSION):
            cases += {"CASE": 1, "END": -1}.get(cursor.word(), 0)
            cursor.group() if cursor.is_symbol("(") else cursor.next()
        attributes.made_of = names_in(cursor.items[start : cursor.at])
    elif cursor.is_symbol("("):
        attributes.made_of = names_in(cursor.group())


def _read_by_default(cursor: Cursor, attributes: _Attributes, _dialect: Dialect) -> None:
    attributes.serial = True
    cursor.accept("ON", "NULL")


def _read_comment(cursor: Cursor, attributes: _Attributes, _dialect: Dialect) -> None:
    attributes.comment = cursor.next().text


def _read_charset(cursor: Cursor, attributes: _Attributes, _dialect: Dialect) -> None:
    attributes.charset = cursor.next().text.lower()


def _read_collation(cursor: Cursor, attributes: _Attributes, _dialect: Dialect) -> None:
    collation = cursor.next().text
    attributes.charset = attributes.charset or charset_of_collation(collation)


def _read_position(cursor: Cursor, attributes: _Attributes, dialect: Dialect) -> None:
    attributes.position = "after " + name(cursor, dialect)


def _read_expression(cursor: Cursor, attributes: _Attributes, _dialect: Dialect) -> None:
    attributes.using = cursor.rest()


def _read_encryption(cursor: Cursor, _attributes: _Attributes, _dialect: Dialect) -> None:
    if cursor.accept("USING"):
        cursor.next()


def _skip_key_word(cursor: Cursor, _attributes: _Attributes, _dialect: Dialect) -> None:
    cursor.accept("KEY")


def _skip_referential_action(cursor: Cursor, _attributes: _Attributes, _dialect: Dialect) -> None:
    cursor.accept("SET") or cursor.accept("NO")
    cursor.next()


_ATTRIBUTE_READERS: dict[str, _AttributeReader] = {
    "DEFAULT": _read_default,
    "COMMENT": _read_comment,
    "CHARACTER SET": _read_charset,
    "CHARSET": _read_charset,
    "COLLATE": _read_collation,
    "GENERATED BY DEFAULT": _read_by_default,  # else DEFAULT would be taken for a value
    "ON UPDATE": _skip_referential_action,
    "ON DELETE": _skip_referential_action,
    "NOT NULL": _sets(nullable=False),
    "NULL": _sets(nullable=True),
    "PRIMARY KEY": _sets(primary=True, nullable=False),
    "WITH VALUES": _sets(fills=True),
    "AUTO_INCREMENT": _sets(serial=True),
    "AS IDENTITY": _sets(serial=True),
    "AS": _read_generated,
    "USING": _read_expression,
    "UNIQUE": _skip_key_word,
    "KEY": _sets(primary=True, nullable=False),  # MySQL: a bare KEY in a column definition is the primary key
}
"""What each attribute says, by its words; of two that begin alike, the longer one comes first."""
_ATTRIBUTE_READERS_OF: dict[Dialect, dict[str, _AttributeReader]] = {
    "mysql": {"FIRST": _sets(position="first"), "AFTER": _read_position},
    "oracle": {"ENCRYPT": _read_encryption},
    "sqlserver": {"IDENTITY": _sets(serial=True)},
    "db2": {
        "COMPRESS SYSTEM DEFAULT": _sets(),  # how values are stored
        "WITH": _sets(),  # ``WITH DEFAULT``
        "FOR EACH ROW ON UPDATE AS ROW CHANGE TIMESTAMP": _sets(generated=True),
    },
}
"""Those that only one database has; they come before the others."""


@cache
def _attribute_readers(dialect: Dialect) -> list[tuple[list[str], _AttributeReader]]:
    readers = _ATTRIBUTE_READERS_OF.get(dialect, {}) | _ATTRIBUTE_READERS
    return [(words.split(), read) for words, read in readers.items()]


def _read_attribute(cursor: Cursor, attributes: _Attributes, dialect: Dialect) -> bool:
    """Read an attribute that says something of the column's rows; False, and no move, if another thing comes next."""
    for words, read in _attribute_readers(dialect):
        if cursor.accept(*words):
            read(cursor, attributes, dialect)
            return True
    return False


# --- defaults -----------------------------------------------------------------------------------


def _default(
    attributes: _Attributes, logical: str | None, declared: str | None, dialect: Dialect, charset: str | None
) -> as_stored.Default:
    if attributes.serial:
        return as_stored.Default(None, True, "identity")
    if attributes.generated:
        return as_stored.Default(None, True, "generated")
    if attributes.of_type:
        return as_stored.default_of_type(logical, declared)
    if not attributes.default or (
        dialect == "sqlserver" and attributes.nullable is not False and not attributes.fills
    ):
        return as_stored.Default()
    return as_stored.default(attributes.default, logical, declared, dialect, charset)


_ZEROS = {"time": "00:00:00", "year": "0", "string": "", "set": "", "bit": "0"}
_ZERO_DATES = {"date": "0000-00-00", "datetime": "0000-00-00 00:00:00", "enum": ""}
_OWN_ZEROS = ("uuid", "inet4", "inet6")  # MariaDB's types, whose zero is not an empty text


def zero(effect: Effect, former: as_stored.Default) -> str | None:
    """What a NULL becomes in MySQL where a column becomes NOT NULL; None if that cannot be known.

    A server gives NULL in a TIMESTAMP this moment or a zero, as it is set.  MySQL copies the table and puts the
    type's zero there, whatever the DEFAULT; MariaDB, where it alters in place, puts the DEFAULT that the column had before
    (``former``; measured with 10.11).
    """
    kind = types.base(effect.type or "")
    if kind == "timestamp":
        return None
    found = _ZERO_DATES.get(kind)
    if found is None:
        found = implicit(ColumnDefinition("", kind, effect.declared, nullable=False)).default
    agree = not former.known or same_value(effect.type or kind, former.text, found)
    return found if agree else None


_Defined = TypeVar("_Defined", ColumnDefinition, Effect)


def implicit(column: _Defined) -> _Defined:
    """MySQL gives the existing rows of a new NOT NULL column without DEFAULT a zero of its type."""
    if column.nullable is not False or column.has_default or column.type is None:
        return column
    default = _ZEROS.get(column.type)
    if column.written.lower().startswith(_OWN_ZEROS):
        default = None
    elif column.type == "enum":
        default = next(iter(types.labels(column.written)), None)
    elif column.type == "binary":
        default = padded("", column.declared)
    elif types.family(column.type) in ("integer", "decimal", "float") and default is None:
        default = scaled("0", column.type)
    return replace(
        column, default=default, has_default=True, note="expression" if default is None else "implicit"
    )
