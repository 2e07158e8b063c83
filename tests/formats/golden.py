"""Golden pairs: ``<format>/<case>.json`` is a message as sent, ``<case>.expected.json`` what it decodes to.

- An empty case file stands for a null value. One newline at the end of the file is not the message's.
- ``<case>.hints.json`` may give ``options``, ``keys``, ``columns``, ``topic``, ``key`` and ``headers``.
- For a binary format the case describes the message; ``avro_cases.encode`` or ``protobuf_cases.encode`` makes its bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ingest import formats
from ingest.change import Change, Hints, Message, Options, TableHints, TableId, describe
from ingest.errors import Undecodable

HERE = Path(__file__).parent
VENDOR = HERE.parents[2] / "shared" / "vendor-samples"


def samples(name: str) -> list[bytes]:
    """Every golden message of a format, and the vendor's own where they are at hand."""
    files = [case for case in cases() if case.parent.name == name] + sorted((VENDOR / name).glob("*.json"))
    return [file.read_bytes() for file in files if file.stat().st_size]


def read(name: str, value: bytes | None, hints: Hints | None = None) -> list[Change]:
    """The changes of one message."""
    return _parsed(name, Message(value, topic="t"), hints or Hints())


def _parsed(name: str, sent: Message, hints: Hints) -> list[Change]:
    """What a format's own ``parse`` says; of a message without a value, what its reader says."""
    parse = formats.reader(name) if sent.value is None else formats.load(name).parse
    return list(parse(sent, hints))


def cases() -> list[Path]:
    """Every case file, of every format's folder."""
    return [path for path in sorted(HERE.glob("*/*.json")) if path.suffixes == [".json"]]


def expected_of(case: Path) -> Path:
    """The file of a case's expected changes."""
    return case.with_suffix(".expected.json")


def decode(case: Path) -> list[dict[str, Any]]:
    """What ``ingest decode`` prints of a case, read back as JSON."""
    sent, hints = message(case)
    try:
        printed: list[dict[str, Any]] = [
            describe(change) for change in _parsed(case.parent.name, sent, hints)
        ]
    except Undecodable as error:
        printed = [{"reject": error.code, "detail": error.detail}]
    return json.loads(json.dumps(printed))


def message(case: Path) -> tuple[Message, Hints]:
    """A case as received, and what its source says."""
    hints = case.with_suffix(".hints.json")
    given = json.loads(hints.read_bytes()) if hints.exists() else {}
    sent, schema = _message(case, given)
    return sent, _hints(given, schema)


def text(printed: list[dict[str, Any]]) -> str:
    """Changes as the text of an expected file."""
    return json.dumps(printed, ensure_ascii=False, indent=2) + "\n"


Registry = Callable[[int], str] | None


def _message(case: Path, given: dict[str, Any]) -> tuple[Message, Registry]:
    """The case as received, and the registry that holds its schemas, where it has one."""
    raw = case.read_bytes().removesuffix(b"\n")
    key = given["key"].encode() if given.get("key") is not None else None
    topic = given.get("topic", "")
    headers = tuple((name, value.encode()) for name, value in given.get("headers", []))
    if not formats.load(case.parent.name).ABOUT.binary:
        return Message(raw or None, key, topic, headers), None
    from tests.formats import avro_cases, protobuf_cases

    described = json.loads(raw)
    if case.parent.name in protobuf_cases.ROOTS:
        return Message(protobuf_cases.encode(case.parent.name, described), key, topic, headers), None
    value = avro_cases.encode(case.parent.name, described)
    return Message(value, avro_cases.encode_key(described), topic, headers), avro_cases.lookup(described)


def _hints(given: dict[str, Any], schema: Registry) -> Hints:
    options = dict(given.get("options", {}))
    table = options.pop("table", {})
    patterns = {"*": table} if isinstance(table, str) else table
    names = tuple((pattern, _table(name)) for pattern, name in patterns.items())
    declared = TableHints(tuple(given.get("keys", ())), given.get("columns", {}))
    return Hints(Options(table=names, **options), lambda _table: declared, schema)


def _table(name: str) -> TableId:
    database, *schema, table = name.split(".")
    return TableId(database, schema[0] if schema else None, table)
