"""Random rules of a `tables:` entry, each with what it means in plain Python: the judge of the mirrors that follow them.

An expression is drawn with its SQL text and with a function of a row, so that no SQL engine judges another one.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any, ClassVar, NamedTuple

from tests.properties.histories import COLUMNS

SECRET = "a secret of sixteen characters"
Cells = Mapping[str, Any]
NUMBERS = ("n", "d")


class Expression(NamedTuple):
    """An expression in SQL, and its value for a row; None is NULL."""

    sql: str
    of: Callable[[Cells], Any]


# --- conditions -----------------------------------------------------------------------------------


def condition(random: Random, columns: list[str], depth: int = 2) -> Expression:
    """A condition on columns of a row, with SQL's three truth values."""
    dice = random.random() if depth else 1.0
    if dice < 0.35:
        left, right = (condition(random, columns, depth - 1) for _ in range(2))
        return Expression(f"({left.sql}) AND ({right.sql})", lambda row: _both(left.of(row), right.of(row)))
    if dice < 0.65:
        left, right = (condition(random, columns, depth - 1) for _ in range(2))
        return Expression(f"({left.sql}) OR ({right.sql})", lambda row: _either(left.of(row), right.of(row)))
    if dice < 0.75:
        one = condition(random, columns, depth - 1)
        return Expression(
            f"NOT ({one.sql})", lambda row: None if (found := one.of(row)) is None else not found
        )
    name = random.choice(columns)
    return _of_text(random, name) if name in ("s", "k0") else _of_number(random, name)


def _both(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def _either(left: bool | None, right: bool | None) -> bool | None:
    if left or right:
        return True
    return None if left is None or right is None else False


def _strict(name: str, sql: str, of: Callable[[Any], bool]) -> Expression:
    """A condition that is NULL where its column is."""
    return Expression(sql, lambda row: None if row[name] is None else of(row[name]))


def _of_number(random: Random, name: str) -> Expression:
    at = random.randrange(2, 20)
    if name == "d":  # 90071992547409930, a counter, and .10: a DOUBLE would round it
        least = Decimal(random.choice((900719925474099305, 9007199254740993015, 9007199254740993022)))
        found = random.choice(
            [
                _strict(name, f"d > {least}", lambda cell: cell > least),
                _strict(name, f"d - 0.10 <> {least} + 1", lambda cell: cell - Decimal("0.10") != least + 1),
            ]
        )
    else:
        found = random.choice(
            [
                _strict(name, f"{name} % 3 <> 1", lambda cell: cell % 3 != 1),
                _strict(name, f"{name} BETWEEN 3 AND {at + 9}", lambda cell: 3 <= cell <= at + 9),
                _strict(name, f"{name} IN (1, 2, 5, {at})", lambda cell: cell in (1, 2, 5, at)),
                _strict(name, f"{name} * 2 + 1 >= {at}", lambda cell: cell * 2 + 1 >= at),
                Expression(f"coalesce({name}, {at}) < {at} + 3", lambda row: (at if row[name] is None else row[name]) < at + 3),
            ]
        )  # fmt: skip
    return random.choice([found] * 4 + [_null(random, name)])


def _of_text(random: Random, name: str) -> Expression:
    at = str(random.randrange(1, 20))
    found = [
        _strict(name, f"{name} LIKE '_1%'", lambda cell: cell[1:2] == "1"),
        _strict(name, f"NOT ({name} LIKE '%{at}')", lambda cell: not cell.endswith(at)),
        _strict(name, f"length({name}) > 2", lambda cell: len(cell) > 2),
        _strict(name, f"{name} IN ('s{at}', 's3', 'a')", lambda cell: cell in (f"s{at}", "s3", "a")),
        Expression(f"{name} IS DISTINCT FROM 's{at}'", lambda row: row[name] != f"s{at}"),
        _strict(name, f"upper({name}) >= 'S{at}'", lambda cell: cell.upper() >= f"S{at}"),
        _null(random, name),
    ]
    return random.choice(found)


def _null(random: Random, name: str) -> Expression:
    if random.random() < 0.5:
        return Expression(f"{name} IS NULL", lambda row: row[name] is None)
    return Expression(f"{name} IS NOT NULL", lambda row: row[name] is not None)


# --- computed columns -----------------------------------------------------------------------------


def _null_if(cells: list[Any], of: Callable[..., Any]) -> Any:
    return None if None in cells else of(*cells)


COMPUTED: tuple[tuple[tuple[str, ...], Expression, str], ...] = (
    (("n",), Expression("n * 2 + 1", lambda row: _null_if([row["n"]], lambda n: n * 2 + 1)), ""),
    (("n",), Expression("coalesce(n, -1) % 7", lambda row: _rest(row["n"])), ""),
    (("n",), Expression("CASE WHEN n > 9 THEN 'many' WHEN n IS NULL THEN 'none' END", lambda row: _words(row["n"])), ""),
    (("s",), Expression("upper(s) || '!'", lambda row: _null_if([row["s"]], lambda s: s.upper() + "!")), ""),
    (("s",), Expression("coalesce(substring(s, 2, 2), '-')", lambda row: "-" if row["s"] is None else row["s"][1:3]), ""),
    (("n", "s"), Expression("s || n", lambda row: _null_if([row["s"], row["n"]], lambda s, n: f"{s}{n}")), ""),
    (("d",), Expression("d * 2", lambda row: _null_if([row["d"]], lambda d: d * 2)), "decimal(38,4)"),
    (("n", "d"), Expression("d + coalesce(n, 0)", lambda row: _null_if([row["d"]], lambda d: d + (row["n"] or 0))), "decimal(38,2)"),
)  # fmt: skip
"""The columns that each needs, the expression, and the type that its rule gives."""


def _rest(n: int | None) -> int:
    return -1 if n is None else n % 7  # SQL's remainder has the sign of the dividend


def _words(n: int | None) -> str | None:
    return "none" if n is None else "many" if n > 9 else None


# --- masks ----------------------------------------------------------------------------------------


class Tokenized:
    """What a masked text may be: of the same form, and the same wherever the value is."""

    seen: ClassVar[dict[str, str]] = {}

    def __init__(self, value: str) -> None:
        self.value = value

    def __eq__(self, found: object) -> bool:
        if not isinstance(found, str) or _form(found) != _form(self.value):
            return False
        return self.seen.setdefault(self.value, found) == found

    def __hash__(self) -> int:
        return hash(_form(self.value))

    def __repr__(self) -> str:
        return f"tokenized {self.value!r}"


def _form(text: str) -> str:
    return "".join(
        "9" if one.isdigit() else "A" if one.isupper() else "a" if one.isalpha() else one for one in text
    )


def canonical(value: Any) -> str:
    """One text of a value."""
    if isinstance(value, Decimal):
        return f"{value.normalize():f}" if value else "0"
    return str(value)


def masked(how: str, value: Any, text: str | None) -> Any:
    """A value's mask; ``text`` is how messages write it."""
    if value is None or text is None or how == "null":
        return None
    if how == "hmac":
        return hmac.digest(SECRET.encode(), canonical(value).encode(), "sha256").hex()
    if how == "tokenize":
        return Tokenized(canonical(value))
    return "***" + (text[-4:] if len(text) >= 8 else "")


# --- a rule ---------------------------------------------------------------------------------------

RETYPED: dict[str, dict[str, Callable[[str], Any]]] = {
    "n": {"int32": int, "decimal(24,3)": Decimal, "string": str, "float64": float, "": str},
    "d": {"decimal(32,4)": Decimal, "string": str, "": str},
}
"""Types for columns of which messages say none, with what becomes of a text; without a type it stays one."""
TYPED: dict[str, Callable[[str], Any]] = {"n": int, "s": str, "d": Decimal}


@dataclass(slots=True)
class Rule:
    """One entry: what the pipeline file says, and what that means for a row."""

    entry: dict[str, Any]
    untyped: str = ""  # the column of which messages say no type
    values: dict[str, Callable[[str], Any]] = field(default_factory=lambda: dict(TYPED))
    where: Expression | None = None
    without: str = ""
    names: dict[str, str] = field(default_factory=dict)
    computed: dict[str, Expression] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    table_column: str = ""  # has the source table's name
    masks: dict[str, str] = field(default_factory=dict)
    soft: bool = False
    feed: bool = False

    def row(self, key: dict[str, Any], texts: Mapping[str, str | None], table: str) -> dict[str, Any] | None:
        """A row of the source as the mirror must hold it; None if it must not."""
        cells = key | {
            name: None if text is None else self.values[name](text) for name, text in texts.items()
        }
        if self.where is not None and self.where.of(cells) is not True:
            return None
        made = {name: one.of(cells) for name, one in self.computed.items()} | self.constants
        written = dict(texts) | {name: str(cell) for name, cell in key.items()}
        for name, how in self.masks.items():
            cells[name] = masked(how, cells[name], written[name])
        cells.pop(self.without, None)
        found = {self.names.get(name, name): cell for name, cell in cells.items()} | made
        return found | ({self.table_column: table} if self.table_column else {})


def rule(random: Random, key_types: tuple[str, ...], *, soft_allowed: bool) -> Rule:
    """A random rule for a table with the key columns k0, k1 ... after h."""
    made = Rule({})
    columns: dict[str, Any] = {}
    free = list(COLUMNS)
    if random.random() < 0.3:
        made.untyped = random.choice(NUMBERS)
        kind = random.choice(list(RETYPED[made.untyped]))
        made.values[made.untyped] = RETYPED[made.untyped][kind]
        if kind:
            columns[made.untyped] = kind
        if made.values[made.untyped] in (str, float):
            free.remove(made.untyped)
    hidden = [name for name in COLUMNS if name not in columns]
    random.shuffle(hidden)
    if hidden and random.random() < 0.25:
        made.without = hidden.pop()
        columns[random.choice([made.without, made.without + "*"])] = "exclude"
    masks = {}
    for name in hidden[: random.choice((0, 0, 1, 2))]:
        if name != made.untyped:
            masks[name] = random.choice(["hmac", "last4", "tokenize", None])
    made.masks = {name: how or "null" for name, how in masks.items()}
    if random.random() < 0.2:
        made.masks["k0"] = masks["k0"] = "hmac"
    if masks:
        made.entry["mask"] = {random.choice([name, name.upper()]): how for name, how in masks.items()}
    free = [name for name in free if name not in masks and name != made.without]
    asked = ["h", *free] + (["k0"] if key_types[0] == "string" and "k0" not in masks else [])
    if soft_allowed and random.random() < 0.2:
        made.soft, made.entry["deletes"] = True, "soft"
    elif random.random() < 0.6:
        made.where = condition(random, random.choice([free or asked, asked]))
        made.entry["where"] = made.where.sql
    for number, (needed, computed, kind) in enumerate(COMPUTED):
        if random.random() < 0.15 and set(needed) <= set(free) - ({"n"} if made.untyped == "n" else set()):
            name = f"computed_{number}"
            made.computed[name] = computed
            columns[name] = {"compute": computed.sql} | ({"type": kind} if kind else {})
    if random.random() < 0.2:
        made.constants["origin"] = 'it\'s "ours"'
        columns["origin"] = {"constant": 'it\'s "ours"'}
    if random.random() < 0.2:
        made.table_column = "came_from"
        columns["came_from"] = {"meta": "table"}
    _rename(random, made, columns)
    if columns:
        made.entry["columns"] = columns
    if random.random() < 0.2:
        made.feed = made.entry["changes_of"] = True
    return made


def _rename(random: Random, made: Rule, columns: dict[str, Any]) -> None:
    there = [name for name in COLUMNS if name != made.without and not isinstance(columns.get(name), dict)]
    if random.random() < 0.2 and len(there) > 1:
        one, other = random.sample(there, 2)
        made.names = {one: other, other: one}
    elif random.random() < 0.4:
        made.names = {random.choice([*there, "k0"]): "another_Name"}
    for name, new in made.names.items():
        columns[name] = {"rename": new} | ({"type": columns[name]} if name in columns else {})
