"""DDL statements of MySQL, Oracle and PostgreSQL dialects, read for what they do to a mirror.

`effects` is total: any text at all, in bounded time, gives a `Ddl` and never an exception.  What
cannot be read to its end is of kind ``unknown`` and has no effects, so that nothing is half applied.

Why the grammar is our own and sqlglot only its check (``tests/ddl/test_against_sqlglot.py`` holds
the two equal wherever sqlglot gives a tree): the ledger needs the type as the source wrote it, which
a syntax tree no longer has; sqlglot drops the inside of ``/*! ... */``, which MySQL executes; one
clause it does not know (``ALGORITHM=INPLACE``, a new type name) turns the whole statement into raw
text; and deep brackets end in a `RecursionError`.  A tokenizer and a column reader were needed for
those statements anyway, and with them the rest is small.

What is found and its kinds are in `model`, the lexer in `tokens`, the meaning of names in `scope`,
column definitions in `columns`, ALTER TABLE in `alter`, all other statements in `statements`.
"""

from __future__ import annotations

from ingest.ddl.model import ACTIONS, EXCHANGED, Column, Ddl, Effect, from_json, kind_of, to_json
from ingest.ddl.statements import effects
from ingest.ddl.structure import UNPLACED, of_change

__all__ = [
    "ACTIONS",
    "EXCHANGED",
    "UNPLACED",
    "Column",
    "Ddl",
    "Effect",
    "effects",
    "from_json",
    "kind_of",
    "of_change",
    "to_json",
]
