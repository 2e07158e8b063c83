"""The kinds of values that a pipeline file's keys take: how each is read, and what the JSON Schema says of it.

Values arrive as text (`ingest.config.document`); each reader turns it into what it means and raises
`ValueError` with the sentence that the user sees.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainValidator, WithJsonSchema

from ingest import formats, values
from ingest.config import words


def read(reader: Callable[[str], Any], schema: dict[str, Any]) -> tuple[PlainValidator, WithJsonSchema]:
    """A field read from one scalar's text by ``reader``."""

    def validate(value: Any) -> Any:
        if not isinstance(value, str):
            raise ValueError(f"a single value belongs here, not {_kind(value)}")
        return reader(value)

    return PlainValidator(validate), WithJsonSchema(schema)


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    return "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, list) else f"{value!r}"


def choice(*known: str) -> tuple[PlainValidator, WithJsonSchema]:
    """A field that holds one of some words."""
    return read(lambda text: words.one_of(text, known), {"type": "string", "enum": list(known)})


def _filled(text: str) -> str:
    if not text.strip():
        raise ValueError("a value belongs here; the text is empty")
    return str(text)


def _format(text: str) -> str:
    if text not in formats.names():
        hint = words.nearest(text, formats.names()) or "; `ingest formats` lists them"
        raise ValueError(f"{text!r} is not a format{hint}")
    return str(text)


def _texts(value: Any) -> Any:
    """A list of texts; a single text means a list of one."""
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(item, str) and item for item in found):
        raise ValueError(f"a list of texts belongs here, such as [a, b], not {_kind(value)}")
    if twice := [item for item in found if found.count(item) > 1]:
        raise ValueError(f"{twice[0]!r} is in the list twice")
    return tuple(map(str, found))


def _joined(value: Any) -> str:
    return ",".join(_texts(value))


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
    return words.tables(_settings(value) if isinstance(value, dict) else value)


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None
    return str(text)


def _match(text: str) -> str:
    if text != "*" and not (1 <= len(text.split(".")) <= 3 and all(text.split("."))):
        raise ValueError(f"{text!r} matches no table; write database.table, with * for any part")
    return str(text)


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


def _kafka_settings(value: Any) -> dict[str, str]:
    return {key.removeprefix("kafka."): item for key, item in _settings(value).items()}


TEXT = {"type": "string", "minLength": 1}
_LIST: dict[str, Any] = {"anyOf": [TEXT, {"type": "array", "items": TEXT}]}
_SCALAR = {"type": ["string", "number", "boolean"]}
_MAP = {"type": "object", "additionalProperties": _SCALAR}

Text = Annotated[str, *read(_filled, TEXT)]
Name = Annotated[str, *read(words.name, {"type": "string", "pattern": "^[A-Za-z0-9_.-]+$"})]
Format = Annotated[str, *read(_format, {"type": "string", "enum": list(formats.names())})]
Flag = Annotated[bool, *read(words.boolean, {"type": "boolean"})]
Count = Annotated[int, *read(words.count, {"type": "integer", "minimum": 1})]
Natural = Annotated[int, *read(words.natural, {"type": "integer", "minimum": 0})]
SizeOrNone = Annotated[
    int, *read(words.size_or_none, {"type": ["string", "integer"], "examples": ["4MiB", 0]})
]
Size = Annotated[int, *read(words.size, {"type": ["string", "integer"], "examples": ["64MiB"]})]
Duration = Annotated[
    float, *read(words.duration, {"type": ["string", "number"], "examples": ["60s", "5m", "1d"]})
]
Ratio = Annotated[float, *read(words.ratio, {"type": ["string", "number"], "examples": ["0.1%"]})]
Logical = Annotated[str, *read(words.logical, {"type": "string", "examples": ["decimal(10,2)", "int64"]})]
Zone = Annotated[str, *read(words.timezone, {"type": "string", "examples": ["UTC", "Asia/Shanghai"]})]
Template = Annotated[str, *read(words.template, {"type": "string", "examples": ["shop.{table}"]})]
Match = Annotated[str, *read(_match, {"type": "string", "examples": ["shop.*"]})]
Texts = Annotated[tuple[str, ...], BeforeValidator(_texts), WithJsonSchema(_LIST)]
Joined = Annotated[str, PlainValidator(_joined), WithJsonSchema(_LIST)]
Settings = Annotated[dict[str, str], PlainValidator(_settings), WithJsonSchema(_MAP)]
KafkaSettings = Annotated[dict[str, str], PlainValidator(_kafka_settings), WithJsonSchema(_MAP)]
Start = Annotated[
    Any,
    PlainValidator(_start),
    WithJsonSchema({"type": ["string", "object"], "examples": ["earliest", "latest"]}),
]
Tables = Annotated[
    tuple[Any, ...],
    BeforeValidator(_tables),
    WithJsonSchema({"anyOf": [TEXT, {"type": "object", "additionalProperties": TEXT}]}),
]
Pattern = Annotated[str, *read(_pattern, TEXT)]
