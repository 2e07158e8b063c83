"""Masked columns: what becomes of their values between a parser and the first table that keeps them.

A mask is applied to decoded changes, before anything of them is written or shown, so that every table but bronze
holds masked values alone.  Equal values get equal masks, whatever their spelling, so that keys and joins still work.
"""

from __future__ import annotations

import hmac
import re
import struct
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cache
from hashlib import sha256
from string import ascii_lowercase, ascii_uppercase, digits

import msgspec

from ingest import types, values
from ingest.change import Change, Image, Op, TableId
from ingest.config.model import MASK_SECRET, MASKED_TO_TEXT, Pipeline, TableRule
from ingest.ddl import COMPUTED, ColumnDefinition, Ddl, Effect
from ingest.ddl.tokens import Token, Unread, tokens
from ingest.errors import ConfigError, Undecodable
from ingest.values.charsets import keeps_all
from ingest.values.remembered import KEPT, LONG

HIDDEN = "***"
NOT_SHOWN = "not shown, for the pipeline file masks columns or seals bronze"
_BLOCK = 64  # bytes that SHA-256 takes at a time
LAST = 4  # characters that last4 leaves
_Mask = Callable[[str], str | None]
"""The mask of a text."""
_Method = Callable[[str], _Mask]
"""The mask for the texts of a logical type."""
_OFTEN = 50_000  # values whose masks are remembered
_SHORT = 2 * LAST  # a text shorter than this shows none of them
_QUOTED = re.compile(r"['\"`].*['\"`]", re.DOTALL)  # from the first quote to the last: a value may hold some
_PLAIN_DETAILS = frozenset(
    "bad-json bad-unicode bad-utf8 bad-container cut-record encrypted images-differ masked-key missing-member "
    "no-image no-rows no-table not-this-format record-too-large statement-binlog too-deep trailing-bytes "
    "truncated".split()
)
"""Codes whose details name no values, but for what is in quotes."""


class Masks:
    """The masks of a pipeline's tables."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        secret = pipeline.mask_secret.encode("utf-8", "surrogatepass")
        # Of another hash, so that no value in a table can be masked to this key.
        shape = hmac.digest(secret, b"ingest tokenize", "sha512")
        digest, letters = keyed(secret), keyed(shape)
        self._methods: dict[str, _Method] = {
            "hmac": _remembering(lambda text: digest(text).hex()),
            "tokenize": _remembering(lambda text: tokenized(letters, text)),
            "last4": lambda _logical: last4,
            "null": lambda _logical: _nothing,
        }
        self._rules: dict[TableId, _TableMasks | None] = {}

    def of(self, table: TableId) -> _TableMasks | None:
        """The masks of one table, if it has any; a `ConfigError` if their secret was left out of the pipeline file."""
        if table not in self._rules:
            rule = self._pipeline.masking(table)
            if rule.mask and (fault := self._pipeline.unresolved.get(MASK_SECRET)):
                raise ConfigError([fault])
            self._rules[table] = _TableMasks(rule, self._methods) if rule.mask else None
        return self._rules[table]

    def changes(self, found: Sequence[Change]) -> Sequence[Change]:
        """The changes with masked values; `Undecodable` if the mask of a key column gives different values one text."""
        if len(found) == 1:  # as most messages
            table = found[0].table
            mask = self._rules[table] if table in self._rules else self.of(table)
            return found if mask is None else [mask.change(found[0])]
        masks = [self.of(one.table) for one in found]
        if not any(masks):
            return found
        return [one if mask is None else mask.change(one) for one, mask in zip(found, masks, strict=True)]

    def statement(self, found: Ddl) -> Ddl:
        """The effects of a statement, with the defaults and the types that masked columns have."""
        effects = (
            one if (masks := self._in_any_case(one.table)) is None else masks.effect(one)
            for one in found.effects
        )
        clauses = ("truncate_partition",)  # whose note is the clause, which may name a value
        return replace(
            found,
            effects=tuple(replace(one, note=HIDDEN) if one.action in clauses else one for one in effects),
            reason=_QUOTED.sub(HIDDEN, found.reason),
        )

    def _in_any_case(self, table: TableId) -> _TableMasks | None:
        """The masks of a table as a statement names it: Oracle's are in capitals where messages may write them small."""
        for change in (str, str.lower, str.upper):
            named = TableId(*(part if part is None else change(part) for part in table))
            half = TableId(table.database, table.schema, named.table)
            if (found := self.of(named) or self.of(half)) is not None:
                return found
        return None


class _Plan:
    """The masks of the columns that messages with the same types have shown so far."""

    __slots__ = ("_mask_of", "_masks", "_names", "sent", "types")

    def __init__(self, table: _TableMasks, sent: Mapping[str, str]) -> None:
        self.sent = sent
        self.types = {name: table.type(name, logical) for name, logical in sent.items()}  # of masked values
        self._mask_of = table.mask
        self._names: set[str] = set()
        self._masks: list[tuple[str, _Mask]] = []

    def image(self, image: Image) -> Image:
        """A row image with masked values."""
        if not self._names.issuperset(image):
            self._extend(image)
        found = image.copy()
        for name, mask in self._masks:
            text = found.get(name)
            if text is not None:
                found[name] = mask(text)
        return found

    def _extend(self, columns: Iterable[str]) -> None:
        for name in columns:
            if name not in self._names:
                self._names.add(name)
                if mask := self._mask_of(name, self.sent):
                    self._masks.append((name, mask))


class _TableMasks:
    def __init__(self, rule: TableRule, methods: Mapping[str, _Method]) -> None:
        self._rule = rule
        self._methods = methods
        self._known: dict[str, str] = {}
        self._lossy: dict[
            tuple[str, ...], str
        ] = {}  # a key's column that has no mask of its own for each value
        self._plan = _Plan(self, {})

    def _method(self, column: str) -> str:
        how = self._known.get(column)
        if how is None:
            how = self._known[column] = self._rule.mask_of(column)
        return how

    def change(self, change: Change) -> Change:
        keys, before, after = change.keys, change.before, change.after
        if keys not in self._lossy:
            lossy = (name for name in keys if self._method(name) not in ("", "hmac"))
            self._lossy[keys] = next(lossy, "")
        if (name := self._lossy[keys]) and not before is after is None:
            raise Undecodable(
                "masked-key",
                f"the column {name} is part of the key of {change.table}, and {self._method(name)} gives "
                "different values one text: write hmac for it under mask:",
            )
        plan = self._plan if change.types is self._plan.sent else self._planned(change.types)
        return msgspec.structs.replace(
            change,
            before=None if before is None else plan.image(before),
            after=None if after is None else plan.image(after),
            types=plan.types,
        )

    def image(self, image: Image | None, sent: Mapping[str, str]) -> Image | None:
        """A row image with masked values; ``sent`` are the types of its message."""
        return None if image is None else self._planned(sent).image(image)

    def _planned(self, sent: Mapping[str, str]) -> _Plan:
        """What messages with these types need, which share the object."""
        if sent is not self._plan.sent:
            self._plan = _Plan(self, sent)
        return self._plan

    def mask(self, name: str, sent: Mapping[str, str]) -> _Mask | None:
        """The mask of a column, if it has one."""
        how = self._method(name)
        if not how:
            return None
        return self._methods[how](sent.get(name) or self._rule.columns.get(name) or "unknown")

    def _masked(self, name: str, text: str, sent: Mapping[str, str]) -> str | None:
        return (self.image({name: text}, sent) or {})[name]

    def type(self, name: str, logical: str) -> str:
        """The type of a column's masked values."""
        return "string" if self._method(name) in MASKED_TO_TEXT else logical

    def effect(self, effect: Effect) -> Effect:
        """An effect as it is for masked values; how the source converts these when their type changes is not known.

        Comments are left out, also those of other columns: they may quote a value.
        """
        effect = replace(effect, comment=None)
        if effect.columns:
            return replace(effect, columns=tuple(map(self._column, effect.columns)))
        if effect.action == "convert_charset" and not keeps_all(effect.charset or ""):
            return replace(effect, note=COMPUTED)
        if not effect.column or not self._method(effect.column):
            return effect
        found = replace(
            effect,
            type=effect.type and self.type(effect.column, effect.type),
            declared=None,
            default=self._default(effect.column, effect.default, effect.type),
        )
        if effect.action == "modify_column" and effect.type is not None:
            if self._method(effect.column) in MASKED_TO_TEXT:
                return replace(found, note=COMPUTED)
            return replace(found, type=None, solid=False)
        return found

    def _column(self, column: ColumnDefinition) -> ColumnDefinition:
        column = replace(column, comment=None)
        if not self._method(column.name):
            return column
        return replace(
            column,
            type=column.type and self.type(column.name, column.type),
            declared=None,
            default=self._default(column.name, column.default, column.type),
        )

    def _default(self, name: str, text: str | None, logical: str | None) -> str | None:
        return None if text is None else (self.image({name: text}, {name: logical or ""}) or {})[name]


def fingerprint(secret: str) -> str:
    """A name for a secret, from which it cannot be found."""
    return hmac.digest(secret.encode("utf-8", "surrogatepass"), b"ingest fingerprint", "sha512").hex()[:16]


# --- values ---------------------------------------------------------------------------------------


class _Remembered(dict[str, str]):
    """Masks of texts: a value comes before and after a change, and in rows that refer to it.

    As `ingest.values.remembered` for one text, whose known results cost one look into a dictionary.
    """

    def __init__(self, mask: Callable[[str], str]) -> None:
        super().__init__()
        self._mask = mask
        self._held = 0

    def __missing__(self, text: str) -> str:
        found = self._mask(text)
        if len(text) <= LONG:
            self._held += len(text)
            if len(self) >= _OFTEN or self._held > KEPT:
                self.clear()
                self._held = len(text)
            self[text] = found
        return found


def _remembering(mask: Callable[[str], str]) -> _Method:
    """A mask of canonical texts as a mask of all spellings of a type's values."""
    known: dict[str, _Remembered] = {}

    def method(logical: str) -> _Mask:
        kind = _kind(logical)
        if kind not in known:
            known[kind] = _Remembered(
                (lambda text: mask(canonical(text, logical))) if kind in _SPELT_IN_WAYS else mask
            )
        return known[kind].__getitem__

    return method


def _nothing(_text: str) -> None:
    return None


_SPELT_IN_WAYS = ("integer", "decimal", "float", "datetime", "time", "timestamp")
"""Types whose values have several spellings."""


def keyed(key: bytes) -> Callable[[str], bytes]:
    """HMAC-SHA256 (RFC 2104) under one key: a third of the time of `hmac.digest`, which sets the key up each time."""
    block = (sha256(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
    inner, outer = (sha256(bytes(one ^ pad for one in block)) for pad in (0x36, 0x5C))

    def digest(text: str) -> bytes:
        first, second = inner.copy(), outer.copy()
        first.update(text.encode("utf-8", "surrogatepass"))
        second.update(first.digest())
        return second.digest()

    return digest


@cache
def _kind(logical: str) -> str:
    return types.family(logical) or types.base(logical)


def canonical(text: str, logical: str) -> str:
    """One text for all spellings of a value: ``1`` of ``1.00`` and ``01``, moments in UTC, no closing zeros."""
    try:
        match _kind(logical):
            case "integer" | "decimal" | "float" if values.NUMBER.fullmatch(text):
                return _number(text)
            case "datetime" if len(text) == len("2024-01-31"):
                return f"{text} 00:00:00"
            case "datetime" | "time" if "." in text:
                return text.rstrip("0").rstrip(".")
            case "timestamp":
                moment = values.zoned_text(text, "UTC").removesuffix("Z")
                return f"{moment.rstrip('0').rstrip('.') if '.' in moment else moment}Z"
    except (ValueError, ArithmeticError):
        pass
    return text


def _number(text: str) -> str:
    number = Decimal(text) if len(text) <= values.MAX_NUMBER_LENGTH else Decimal("NaN")
    if not number.is_finite() or abs(number.adjusted()) > values.MAX_EXPONENT:
        return text
    plain = f"{number:f}".removeprefix("+")
    return (plain.rstrip("0").rstrip(".") if "." in plain else plain) if number else "0"


def last4(text: str) -> str:
    """Stars and the last four characters, of a text that is long enough not to be shown by them."""
    return HIDDEN + (text[-LAST:] if len(text) >= _SHORT else "")


def tokenized(digest: Callable[[str], bytes], text: str) -> str:
    """Another text of the same form: digits for digits, letters for letters, and the signs between them."""
    stream = b"".join(digest(f"{block}\0{text}") for block in range((2 * len(text) + 31) // 32))
    numbers = struct.unpack(f">{len(text)}H", stream[: 2 * len(text)])
    return "".join(map(_another, text, numbers))


def _another(sign: str, number: int) -> str:
    if sign.isascii() and not sign.isalnum():
        return sign
    if unicodedata.category(sign)[0] == "N":
        return digits[number % 10]
    return (ascii_uppercase if sign.isupper() else ascii_lowercase)[number % 26]


# --- texts that may quote values --------------------------------------------------------------------


def without_values(code: str, detail: str) -> str:
    """What a decoder complains of, without the message's values."""
    if code in _PLAIN_DETAILS:
        return _QUOTED.sub(HIDDEN, detail)
    kind = f"{detail.partition(':')[0]} " if code == "decoder-error" else ""
    return f"{kind}({NOT_SHOWN})"


def without_literals(change: Change) -> Change:
    """A statement without its texts, comments and numbers, but for the lengths of types."""
    if change.op is not Op.DDL or not change.ddl:
        return change
    dialect = change.dialect if change.dialect in ("oracle", "postgres") else "mysql"
    try:
        text = _told(change.ddl, tokens(change.ddl, dialect))
    except Unread:
        text = f"({NOT_SHOWN})"
    return msgspec.structs.replace(change, ddl=text)


def _told(statement: str, found: Sequence[Token]) -> str:
    parts: list[str] = []
    end = 0
    length = False  # inside the brackets after a word, which hold a type's length
    for i, token in enumerate(found):
        if token.text == "(" and token.kind == "symbol":
            word = found[i - 1].word.lower() if i else ""
            length = any(read(word) != "unknown" for read in (types.mysql, types.oracle, types.postgres))
        elif token.kind != "number" and token.text != ",":
            length = False
        shown = token.kind in ("word", "name", "symbol") or (token.kind == "number" and length)
        parts.append(" " * (token.start > end) + (statement[token.start : token.end] if shown else HIDDEN))
        end = token.end
    return "".join(parts).strip()
