"""DDL statements of MySQL, Oracle and PostgreSQL dialects, read for what they do to a mirror.

`effects` is total: any text at all, in bounded time, gives a `Ddl` and never an exception. What
cannot be read to its end is of kind ``unknown`` and has no effects, so that nothing is half applied.

Why sqlglot does not read the statements: of the readable statements in ``tests/ddl/cases.py`` sqlglot 30
gives no syntax tree for two in five (Oracle's ``MODIFY`` and bracketed ``ADD``, several clauses in one
ALTER, ``RENAME TABLE`` with two tables, partitions); it drops the inside of ``/*! ... */``, which MySQL
executes; and a tree no longer has the type as the source wrote it, which the ledger needs.
``tests/ddl/test_against_sqlglot.py`` tests all of this, and that both agree wherever sqlglot gives a tree.

What is found and its kinds are in `effect_model`, the lexer in `tokens`, the meaning of names in `scope`,
column definitions in `columns`, ALTER TABLE in `alter`, all other statements in `statements`.
"""

from __future__ import annotations

from ingest.ddl.effect_model import (
    ACTIONS,
    COMPUTED,
    COPIED,
    EXCHANGED,
    MOVED,
    UNANNOUNCED,
    UNREAD,
    ColumnDefinition,
    Ddl,
    Effect,
    kind_of,
)
from ingest.ddl.scope import dialect_of
from ingest.ddl.statements import effects
from ingest.ddl.structure import UNPLACED, TableStructure, of_change
