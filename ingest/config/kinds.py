"""The kinds of values that a pipeline file may hold: each reads a key's text as what it means.

Values arrive as text (`ingest.config.yaml_tree`); each reader turns it into what it means, or raises `ValueError` with
the sentence that the user sees.  The fields of the records name their kinds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, PlainValidator, WithJsonSchema

from ingest import formats, values
from ingest.config import conditions, patterns, scalars
from ingest.config.model import METADATA
from ingest.fold import DELETED, DELETED_AT
from ingest.values.typed_values import value_of


def read(reader: Callable[[str], Any], schema: dict[str, Any]) -> tuple[PlainValidator, WithJsonSchema]:
    """A field read from one scalar's text by ``reader``."""

    def validate(value: Any) -> Any:
        if not isinstance(value, str):
            raise ValueError(f"a single value belongs here, not {_kind(value)}")
        return reader(str(value))  # without what YAML takes it for: encoders take `str` itself only

    return tree(validate, schema)


def tree(reader: Callable[[Any], Any], schema: dict[str, Any]) -> tuple[PlainValidator, WithJsonSchema]:
    """A field read from a list, a mapping or a scalar by ``reader``."""
    return PlainValidator(reader), WithJsonSchema(schema)


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    return "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, list) else f"{value!r}"


def choice(*words: str) -> tuple[PlainValidator, WithJsonSchema]:
    """A field that holds one of some words."""
    return read(lambda text: scalars.one_of(text, words), {"type": "string", "enum": list(words)})


def _filled(text: str) -> str:
    if not text.strip():
        raise ValueError("a value belongs here; the text is empty")
    return text


def _format(text: str) -> str:
    if text not in formats.names():
        hint = scalars.nearest(text, formats.names()) or "; `ingest formats` lists them"
        raise ValueError(f"{text!r} is not a format{hint}")
    return text


def _texts(value: Any) -> Any:
    """A list of texts; a single text means a list of one."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(item, str) and item for item in texts):
        raise ValueError(f"a list of texts belongs here, such as [a, b], not {_kind(value)}")
    if twice := [item for item in texts if texts.count(item) > 1]:
        raise ValueError(f"{twice[0]!r} is in the list twice")
    return tuple(map(str, texts))


def _settings(value: Any) -> dict[str, str]:
    """A map of settings that are passed on as they are written."""
    if not isinstance(value, dict):
        raise ValueError(f"a map of settings belongs here, such as {{key: value}}, not {_kind(value)}")
    if odd := [key for key, item in value.items() if not isinstance(item, str)]:
        raise ValueError(f"the setting {odd[0]!r} must hold a single value, not {_kind(value[odd[0]])}")
    return {str(key): str(item) for key, item in value.items()}


def _tables(value: Any) -> Any:
    if not isinstance(value, str | dict) or not value:
        raise ValueError(f"write database.table, or a map of topic patterns to tables, not {_kind(value)}")
    return scalars.tables(_settings(value) if isinstance(value, dict) else value)


def _mask(value: Any) -> Any:
    """Methods by column; a method may be the word null, which YAML reads as nothing."""
    if not isinstance(value, dict) or not value:
        raise ValueError(
            f"a map of columns to masks belongs here, such as {{email: hmac}}, not {_kind(value)}"
        )
    return {str(name): scalars.mask(str(name), "null" if how is None else how) for name, how in value.items()}


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None
    return text


def _match(text: str) -> str:
    parts = patterns.parts(text)
    if patterns.is_regular(text):
        if not 2 <= len(parts) <= 3 or not all(parts):
            raise ValueError(
                f"{text!r} matches no table; with groups, write a regular expression for each part of database.table, (.*) for any"
            )
        for part in parts:
            if part != "*":
                _pattern(part)
    elif text != "*" and not (len(parts) <= 3 and all(parts)):
        raise ValueError(f"{text!r} matches no table; write database.table, with * for any part")
    return text


def _start(value: Any) -> Any:
    """``earliest``, ``latest``, an instant, or ``{topic: {partition: offset}}``."""
    if isinstance(value, dict):
        return {str(topic): _offsets(topic, offsets) for topic, offsets in value.items()}
    if not isinstance(value, str):
        raise ValueError(f"write earliest, latest, a timestamp, or offsets per topic, not {_kind(value)}")
    if value in ("earliest", "latest"):
        return str(value)
    try:
        return values.zoned_text(value, "UTC")
    except ValueError:
        raise ValueError(
            f"{value!r} is not a start; write earliest, latest, a time such as 2024-05-01T00:00:00Z, "
            "or {topic: {0: 1234}}"
        ) from None


def _offsets(topic: str, offsets: Any) -> dict[int, int]:
    if not isinstance(offsets, dict):
        raise ValueError(f"the start of topic {topic!r} must be a map of partition to offset")
    numbers = [*offsets.keys(), *offsets.values()]
    if not numbers or not all(isinstance(n, str) and re.fullmatch("[0-9]{1,18}", n) for n in numbers):
        raise ValueError(f"the start of topic {topic!r} must be a map of partition to offset, whole numbers")
    return {int(partition): int(offset) for partition, offset in offsets.items()}


def _column(value: Any) -> dict[str, str]:
    """What becomes of one column, as a map: ``type``, ``rename``, ``exclude`` or ``include`` alone, or what makes it."""
    if isinstance(value, str):
        return (
            {str(value): ""} if value in ("exclude", "include") else {"type": scalars.of_column(str(value))}
        )
    if not isinstance(value, dict) or not value:
        raise ValueError(f"write a type, exclude, include, or {{type: ..., rename: ...}}, not {_kind(value)}")
    readers: dict[str, Callable[[str], str]] = {
        "type": scalars.logical,
        "rename": scalars.column,
        "compute": conditions.expression,
        "constant": str,
        "meta": lambda text: scalars.one_of(text, tuple(METADATA)),
    }
    if odd := [name for name in value if name not in readers]:
        raise ValueError(f"the key {odd[0]!r} is unknown here{scalars.nearest(odd[0], readers)}")
    rules = {name: readers[name](text) for name, text in _settings(value).items()}
    making = [name for name in rules if name in MAKING]
    if making and (lost := [name for name in rules if name != making[0] and (name, making[0]) not in _TYPED]):
        raise ValueError(f"{making[0]} and {lost[0]} cannot be in one rule")
    if "constant" in rules:
        try:
            value_of(rules.get("type", "string"), rules["constant"])
        except (ValueError, ArithmeticError):
            text = f"{rules['constant']!r} is not a value of {rules['type']}, in the form of messages"
            raise ValueError(text) from None
    return rules


MAKING = ("compute", "constant", "meta", "deletes")
SOFT = {DELETED: {"deletes": "soft", "type": "boolean"}, DELETED_AT: {"deletes": "soft", "type": "timestamp"}}
"""The columns of a mirror that keeps deleted rows, as rules."""
_TYPED = {("type", "compute"), ("type", "constant")}  # metadata has its own types


TEXT = {"type": "string", "minLength": 1}
_LIST: dict[str, Any] = {"anyOf": [TEXT, {"type": "array", "items": TEXT}]}
_SCALAR = {"type": ["string", "number", "boolean"]}
_MAP = {"type": "object", "additionalProperties": _SCALAR}


def _rule(*needed: str, **properties: Any) -> dict[str, Any]:
    """The JSON Schema of a mapping with these keys alone."""
    required = {"required": list(needed)} if needed else {}
    return {"type": "object", "properties": properties, **required, "additionalProperties": False}


Text = Annotated[str, *read(_filled, TEXT)]
PathOrUri = Annotated[str, *read(lambda text: scalars.place(_filled(text)), TEXT)]
Name = Annotated[str, *read(scalars.name, {"type": "string", "pattern": "^[A-Za-z0-9_.-]+$"})]
Format = Annotated[str, *read(_format, {"type": "string", "enum": list(formats.names())})]
Flag = Annotated[bool, *read(scalars.boolean, {"type": "boolean"})]
Count = Annotated[int, *read(scalars.count, {"type": "integer", "minimum": 1})]
Natural = Annotated[int, *read(scalars.natural, {"type": "integer", "minimum": 0})]
SizeOrNone = Annotated[
    int, *read(scalars.size_or_none, {"type": ["string", "integer"], "examples": ["4MiB", 0]})
]
Size = Annotated[int, *read(scalars.size, {"type": ["string", "integer"], "examples": ["64MiB"]})]
Duration = Annotated[
    float, *read(scalars.duration, {"type": ["string", "number"], "examples": ["60s", "5m", "1d"]})
]
Ratio = Annotated[float, *read(scalars.ratio, {"type": ["string", "number"], "examples": ["0.1%"]})]
Zone = Annotated[str, *read(scalars.timezone, {"type": "string", "examples": ["UTC", "Asia/Shanghai"]})]
Template = Annotated[str, *read(scalars.template, {"type": "string", "examples": ["shop.{table}"]})]
CatalogName = Annotated[
    str, *read(scalars.catalog_name, {"type": "string", "examples": ["lake_{database}", "{table}"]})
]
Match = Annotated[str, *read(_match, {"type": "string", "examples": ["shop.*"]})]
_MASKS: dict[str, Any] = {
    "type": "object",
    "additionalProperties": {"enum": [*scalars.MASKS, None]},
    "examples": [{"email": "hmac", "*phone*": "last4"}],
}
Mask = Annotated[dict[str, str], *tree(_mask, _MASKS)]
Condition = Annotated[str, *read(conditions.condition, {"type": "string", "examples": ["region = 'EU'"]})]
Secret = Annotated[str, *read(scalars.mask_secret, {"type": "string", "minLength": scalars.LEAST_SECRET})]
MasterKey = Annotated[str, *read(scalars.master_key, TEXT)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_texts), WithJsonSchema(_LIST)]
Joined = Annotated[str, *tree(lambda value: ",".join(_texts(value)), _LIST)]
Settings = Annotated[dict[str, str], *tree(_settings, _MAP)]
KafkaSettings = Annotated[
    dict[str, str],
    *tree(lambda value: {key.removeprefix("kafka."): item for key, item in _settings(value).items()}, _MAP),
]
Start = Annotated[Any, *tree(_start, {"type": ["string", "object"], "examples": ["earliest", "latest"]})]
Tables = Annotated[
    tuple[Any, ...],
    BeforeValidator(_tables),
    WithJsonSchema({"anyOf": [TEXT, {"type": "object", "additionalProperties": TEXT}]}),
]
Pattern = Annotated[str, *read(_pattern, TEXT)]
_COLUMN: list[dict[str, Any]] = [
    {"type": "string", "examples": ["decimal(10,2)", "exclude", "include"]},
    _rule(type=TEXT, rename=TEXT),
    _rule("compute", compute={**TEXT, "examples": ["price * quantity"]}, type=TEXT),
    _rule("constant", constant=_SCALAR, type=TEXT),
    _rule("meta", meta={"enum": list(METADATA)}),
]
ColumnRule = Annotated[dict[str, str], *tree(_column, {"anyOf": _COLUMN})]
DatabaseUrl = Annotated[
    str,
    *read(scalars.database, {"type": "string", "pattern": "^(mysql|mariadb|postgresql|oracle|sqlserver)://"}),
]
WebAddress = Annotated[str, *read(scalars.web_address, {"type": "string", "pattern": "^https?://"})]
MailServer = Annotated[str, *read(scalars.mail_server, {"type": "string", "pattern": "^smtps?://"})]
Limits = Annotated[dict[str, Ratio], AfterValidator(scalars.limits)]
Pause = Annotated[Duration, AfterValidator(scalars.pause)]
