"""Masked columns: what becomes of their values between a parser and the first table that keeps them.

A mask is applied to decoded changes, before anything of them is written or shown, so that every table but bronze
holds masked values alone.  Equal values get equal masks, whatever their spelling, so that keys and joins still work.
"""

from __future__ import annotations

import hmac
import re
import struct
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cache, lru_cache
from hashlib import sha256
from operator import getitem
from string import ascii_lowercase, ascii_uppercase, digits

import msgspec

from ingest import types, values
from ingest.change import Change, ColumnSchema, Image, Op, TableId
from ingest.config.model import MASK_SECRET, MASKED_BY_SECRET, MASKED_TO_TEXT, Pipeline, TableRule
from ingest.ddl import COMPUTED, ColumnDefinition, Ddl, Effect
from ingest.ddl.tokens import Token, Unread, grammar_of, tokens
from ingest.errors import ConfigError, Undecodable
from ingest.values.charsets import keeps_all
from ingest.values.remembered import KEPT, LONG, Bounded

HIDDEN = "***"
NOT_SHOWN = "not shown, because the pipeline file masks columns or seals bronze"
_BLOCK = 64  # bytes that SHA-256 takes at a time
LAST = 4  # characters that last4 leaves
_Mask = Callable[[str | None], str | None]
"""The mask of a text; NULL stays NULL."""
_Method = Callable[[str], _Mask]
"""The mask for the texts of a logical type."""
_FORMS = 100  # forms of a table's messages that are remembered
_NUMBERS = 1 << 16  # that two bytes of a digest may be
_OFTEN = 50_000  # values whose masks are remembered
_SHORT = 2 * LAST  # a text shorter than this shows none of them
_QUOTED = re.compile(r"['\"`].*['\"`]", re.DOTALL)  # from the first quote to the last: a value may hold some
_PLAIN_DETAILS = frozenset(
    "bad-json bad-unicode bad-utf8 bad-container cut-record encrypted images-differ key-dropped masked-key other-masks "
    "missing-member no-image no-rows no-table not-this-format record-too-large split-message statement-binlog too-deep trailing-bytes "
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
        digest, letters, ends = keyed(secret), keyed(shape), _Remembered(last4)
        self._methods: dict[str, _Method] = {
            "hmac": _remembering(lambda text: digest(text).hex()),
            "tokenize": _remembering(lambda text: tokenized(letters, text)),
            "last4": lambda _logical: ends.__getitem__,
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

    def changes(self, sent: Sequence[Change]) -> Sequence[Change]:
        """The same changes, their values masked where they are; `Undecodable` if a key's mask gives different values one text.

        Give it many at a time: it looks at a masked column once for all changes whose messages have the same types.
        """
        alike: dict[_Plan, list[Change]] = {}
        table: object = None
        types: object = None
        masked: list[Change] = []
        for change in sent:
            # most often both are the very objects of the change before
            if change.types is not types or change.table is not table:
                table, types = change.table, change.types
                masks = self._rules[table] if table in self._rules else self.of(table)
                masked = [] if masks is None else alike.setdefault(masks.plan(types), [])
            masked.append(change)
        for plan, masked in alike.items():
            plan.check(masked)
        for plan, masked in alike.items():
            plan.mask(masked)
        return sent

    def statement(self, described: Ddl) -> Ddl:
        """The effects of a statement, with the defaults and the types that masked columns have."""
        effects = (
            effect if (masks := self._masks_in_any_case(effect.table)) is None else masks.effect(effect)
            for effect in described.effects
        )
        clauses = ("truncate_partition",)  # whose note is the clause, which may name a value
        return replace(
            described,
            effects=tuple(
                replace(effect, note=HIDDEN) if effect.action in clauses else effect for effect in effects
            ),
            reason=_QUOTED.sub(HIDDEN, described.reason),
        )

    def _masks_in_any_case(self, table: TableId) -> _TableMasks | None:
        """The masks of a table as a statement names it: Oracle's are in capitals where messages may write them small."""
        for change in (str, str.lower, str.upper):
            named = TableId(*(part if part is None else change(part) for part in table))
            half = TableId(table.database, table.schema, named.table)
            if (masks := self.of(named) or self.of(half)) is not None:
                return masks
        return None


class _Plan:
    """The masks of the columns that changes of one table with the same types have shown so far."""

    def __init__(self, table: _TableMasks, sent: Mapping[str, str]) -> None:
        self.sent = sent
        self._table = table
        self._types = {name: table.type(name, logical) for name, logical in sent.items()}  # of masked values
        self._forms = Bounded[tuple[str, ...], list[tuple[str, _Mask]]](_FORMS)  # by the columns of an image
        # by identity
        self._schemas = Bounded[int, tuple[Mapping[str, ColumnSchema], Mapping[str, ColumnSchema]]](_FORMS)

    def check(self, sent: Sequence[Change]) -> None:
        """Refuse a key that has a column without a mask of its own for each value."""
        for keys in {change.keys for change in sent}:
            name = next((name for name in keys if self._table.method(name) not in ("", "hmac")), None)
            if name is not None:
                for change in sent:
                    if change.keys == keys and not change.before is change.after is None:
                        raise Undecodable(
                            "masked-key",
                            f"the column {name} is part of the key of {change.table}, and {self._table.method(name)} gives "
                            "different values one text: write hmac for it under mask:",
                        )

    def mask(self, sent: Sequence[Change]) -> None:
        """Mask the values of changes."""
        images = [image for change in sent for image in (change.before, change.after) if image is not None]
        if len(set(map(id, images))) < len(images):  # an image before and after, which is masked once
            images = list({id(image): image for image in images}.values())
        self.images(images)
        if self._types != self.sent:
            for change in sent:
                msgspec.structs.force_setattr(change, "types", self._types)
        for change in sent:
            if change.schema:
                msgspec.structs.force_setattr(change, "schema", self._schema(change.schema))

    def _schema(self, schema: Mapping[str, ColumnSchema]) -> Mapping[str, ColumnSchema]:
        """What a message's schema says, its defaults masked as values are."""
        kept = self._schemas.get(id(schema))
        if kept is None:
            defaults: Image = {name: column.default for name, column in schema.items()}
            self.images([defaults])
            masked = {
                name: column._replace(default=defaults[name], labels=self._labels(name, column.labels))
                for name, column in schema.items()
            }
            # the schema is kept: as long as it lives, no other has its identity
            kept = self._schemas[id(schema)] = schema, masked
        return kept[1]

    def _labels(self, name: str, labels: tuple[str, ...]) -> tuple[str, ...]:
        """An enumeration's labels masked as values are; none if the mask gives several one text, or masks arrays of them whole."""
        if types.base(self.sent.get(name, "")) == "json":
            return ()
        images: list[Image] = [{name: label} for label in labels]
        self.images(images)
        masked = tuple(str(image[name]) for image in images)
        return masked if len(set(masked)) == len(labels) else ()

    def images(self, images: Sequence[Image]) -> None:
        """Mask the values of row images."""
        for image in images:
            names = tuple(image)
            masks = self._forms[names] if names in self._forms else self._form(names)
            for name, mask in masks:
                image[name] = mask(image[name])

    def _form(self, names: tuple[str, ...]) -> list[tuple[str, _Mask]]:
        """The masks of the columns of an image."""
        masks = ((name, self._table.mask(name, self.sent)) for name in names)
        form = self._forms[names] = [(name, mask) for name, mask in masks if mask]
        return form


class _TableMasks:
    def __init__(self, rule: TableRule, methods: Mapping[str, _Method]) -> None:
        self._rule = rule
        self._methods = methods
        self._known: dict[str, str] = {}
        self._plans = Bounded[tuple[tuple[str, str], ...], _Plan](_FORMS)
        self._plan = _Plan(self, {})  # the last one

    def method(self, column: str) -> str:
        """The name of a column's mask; empty if it has none."""
        how = self._known.get(column)
        if how is None:
            how = self._known[column] = self._rule.mask_of(column)
        return how

    def image(self, image: Image | None, sent: Mapping[str, str]) -> Image | None:
        """Another row image, with masked values; ``sent`` are the types of its message."""
        if image is None:
            return None
        self.plan(sent).images([masked := image.copy()])
        return masked

    def plan(self, sent: Mapping[str, str]) -> _Plan:
        """What changes with these types need; most messages have those of the one before, if not the same object."""
        if sent is not self._plan.sent and sent != self._plan.sent:
            types = tuple(sent.items())
            if types not in self._plans:
                self._plans[types] = _Plan(self, sent)
            self._plan = self._plans[types]
        return self._plan

    def mask(self, name: str, sent: Mapping[str, str]) -> _Mask | None:
        """The mask of a column, if it has one."""
        how = self.method(name)
        if not how:
            return None
        return self._methods[how](sent.get(name) or self._rule.columns.get(name) or "unknown")

    def type(self, name: str, logical: str) -> str:
        """The type of a column's masked values."""
        return "string" if self.method(name) in MASKED_TO_TEXT else logical

    def effect(self, effect: Effect) -> Effect:
        """An effect as it is for masked values; how the source converts these when their type changes is not known.

        Comments are left out, also those of other columns: they may quote a value.
        """
        effect = replace(effect, comment=None)
        if effect.columns:
            return replace(effect, columns=tuple(map(self._column, effect.columns)))
        if effect.action == "convert_charset" and not keeps_all(effect.charset or ""):
            return replace(effect, note=COMPUTED)
        if not effect.column or not self.method(effect.column):
            return effect
        masked = replace(
            effect,
            type=effect.type and self.type(effect.column, effect.type),
            declared=None,
            default=self._default(effect.column, effect.default, effect.type),
        )
        if effect.action == "modify_column" and effect.type is not None:
            if self.method(effect.column) in MASKED_TO_TEXT:
                return replace(masked, note=COMPUTED)
            return replace(masked, type=None, solid=False)
        return masked

    def _column(self, column: ColumnDefinition) -> ColumnDefinition:
        column = replace(column, comment=None)
        if not self.method(column.name):
            return column
        return replace(
            column,
            type=column.type and self.type(column.name, column.type),
            declared=None,
            default=self._default(column.name, column.default, column.type),
        )

    def _default(self, name: str, text: str | None, logical: str | None) -> str | None:
        return None if text is None else (self.image({name: text}, {name: logical or ""}) or {})[name]


def masked_with(pipeline: Pipeline, table: TableId) -> str:
    """A name for the masks of a table and the secret that they use, which others do not share; empty without masks."""
    masks = list(pipeline.masking(table).mask.items())
    if not masks:
        return ""
    used = any(how in MASKED_BY_SECRET for _, how in masks)
    written = repr((masks, fingerprint(pipeline.mask_secret) if used else ""))
    return sha256(written.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def fingerprint(secret: str) -> str:
    """A name for a secret, from which it cannot be found."""
    return hmac.digest(secret.encode("utf-8", "surrogatepass"), b"ingest fingerprint", "sha512").hex()[:16]


# --- values ---------------------------------------------------------------------------------------


class _Remembered(dict[str | None, str | None]):
    """Masks of texts: a value comes before and after a change, and in rows that refer to it.

    As `ingest.values.remembered` for one text, whose known results cost one look into a dictionary.
    """

    def __init__(self, mask: Callable[[str], str]) -> None:
        super().__init__()
        self._mask = mask
        self._held = 0

    def __missing__(self, text: str | None) -> str | None:
        if text is None:
            self[text] = None
            return None
        masked = self._mask(text)
        if len(text) <= LONG:
            self._held += len(text)
            if len(self) >= _OFTEN or self._held > KEPT:
                self.clear()
                self._held = len(text)
            self[text] = masked
        return masked


def _remembering(mask: Callable[[str], str]) -> _Method:
    """A mask of canonical texts as a mask of all spellings of a type's values."""
    remembered: dict[str, _Remembered] = {}

    def method(logical: str) -> _Mask:
        kind = _kind(logical)
        if kind not in remembered:
            remembered[kind] = _Remembered(
                (lambda text: mask(canonical(text, logical))) if kind in _SPELT_IN_WAYS else mask
            )
        return remembered[kind].__getitem__

    return method


def _nothing(_text: str | None) -> None:
    return None


_SPELT_IN_WAYS = ("integer", "decimal", "float", "datetime", "time", "timestamp")
"""Types whose values have several spellings."""


def keyed(key: bytes) -> Callable[[str], bytes]:
    """HMAC-SHA256 (RFC 2104) under one key: a third of the time of `hmac.digest`, which sets the key up each time."""
    block = (sha256(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
    inner, outer = (sha256(bytes(byte ^ pad for byte in block)) for pad in (0x36, 0x5C))

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
    stream = b"".join([digest(f"{block}\0{text}") for block in range((2 * len(text) + 31) // 32)])
    numbers = struct.unpack(f">{len(text)}H", stream[: 2 * len(text)])
    return "".join(map(getitem, map(_others, text), numbers))


_LOWER, _UPPER, _DIGITS = (
    (signs * (_NUMBERS // len(signs) + 1))[:_NUMBERS] for signs in (ascii_lowercase, ascii_uppercase, digits)
)


@lru_cache(1_000)
def _others(sign: str) -> str:
    """The signs that each number puts in place of one."""
    if sign.isascii() and not sign.isalnum():
        return sign * _NUMBERS
    if unicodedata.category(sign)[0] == "N":
        return _DIGITS
    return _UPPER if sign.isupper() else _LOWER


# --- texts that may quote values --------------------------------------------------------------------


def detail_without_values(code: str, detail: str) -> str:
    """What a decoder complains of, without the message's values."""
    if code in _PLAIN_DETAILS:
        return _QUOTED.sub(HIDDEN, detail)
    kind = f"{detail.partition(':')[0]} " if code == "decoder-error" else ""
    return f"{kind}({NOT_SHOWN})"


def without_literals(change: Change) -> Change:
    """A statement without its texts, comments and numbers, but for the lengths of types."""
    if change.op is not Op.DDL or not change.ddl:
        return change
    try:
        text = _without_literals(change.ddl, tokens(change.ddl, grammar_of(change.dialect)))
    except Unread:
        text = f"({NOT_SHOWN})"
    return msgspec.structs.replace(change, ddl=text)


_TYPE_NAMES = (types.mysql, types.oracle, types.postgres, types.sqlserver, types.db2)


def _without_literals(statement: str, tokens: Sequence[Token]) -> str:
    parts: list[str] = []
    end = 0
    length = False  # inside the brackets after a word, which hold a type's length
    for i, token in enumerate(tokens):
        if token.text == "(" and token.kind == "symbol":
            word = tokens[i - 1].word.lower() if i else ""
            length = any(read(word) != "unknown" for read in _TYPE_NAMES)
        elif token.kind != "number" and token.text != ",":
            length = False
        shown = token.kind in ("word", "name", "symbol") or (token.kind == "number" and length)
        parts.append(" " * (token.start > end) + (statement[token.start : token.end] if shown else HIDDEN))
        end = token.end
    return "".join(parts).strip()
