"""Golden cases of the Avro formats: kept as readable JSON, encoded here for the test.

In a case's JSON ``{"$hex": "00ff"}`` and ``{"$text": "abc"}`` are bytes, and an object with one member that
names a branch of a union (``{"Decimal": {...}}``) is that branch. A case of a framed format holds its
``schema`` (and ``key_schema``) next to the ``datum`` (and ``key``), or ``bytes`` that are no frame.
"""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import fastavro

SCHEMAS = Path(__file__).parents[2] / "ingest" / "decoding" / "avro_schemas"
BARE = {"dts-avro": ("dts", "Record"), "obcloud-avro": ("oceanbase", "AvroRecord")}
VALUE_ID, KEY_ID = 1, 2

DTS_DEFAULTS: dict[str, Any] = {
    "version": 1,
    "safeSourcePosition": "",
    "sourceTxid": "",
    "objectName": None,
    "processTimestamps": None,
    "tags": {},
    "fields": None,
    "beforeImages": None,
    "afterImages": None,
}
OCEANBASE_DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(["xid", "txind", "position", "source", "schemaName", "tableName", "fields", "pkIndexes"]),
    **dict.fromkeys(["ukIndexes", "beforeImages", "afterImages", "sql", "tags"]),
    "version": 1,
    "total": -1,
    "index": -1,
    "beforeImageBytes": b"",
    "afterImageBytes": b"",
}
DEFAULTS = {"dts-avro": DTS_DEFAULTS, "obcloud-avro": OCEANBASE_DEFAULTS}


def encode(format_name: str, case: dict[str, Any]) -> bytes:
    """One message's value."""
    if "bytes" in case:
        return bytes(plain(case["bytes"]))
    if "fingerprint" in case:
        return _wrapped(case)
    if format_name not in BARE:
        return _framed(VALUE_ID, case["schema"], case["datum"])
    datum = {**DEFAULTS[format_name], **case}
    born = datum.pop("bornTimestamp", None)
    data = written(bare_schema(format_name), plain(datum))
    return data if born is None else data + written("long", born)


def encode_key(case: dict[str, Any]) -> bytes | None:
    """The key of a framed case, or None."""
    return _framed(KEY_ID, case["key_schema"], case["key"]) if "key" in case else None


def lookup(case: dict[str, Any]) -> Any:
    """The registry of a framed case: `ingest.change.Hints.schema`."""
    known = {VALUE_ID: case.get("schema"), KEY_ID: case.get("key_schema")}
    if "fingerprint" in case:
        known = {case["fingerprint"]: case["schema"]}
    return lambda number: json.dumps(known[number])


@cache
def bare_schema(format_name: str) -> Any:
    """The vendor's schema as the independent library reads it."""
    file, name = BARE[format_name]
    types = json.loads((SCHEMAS / f"{file}.avsc").read_text())
    named: dict[str, Any] = {}
    parsed = [fastavro.parse_schema(each, named_schemas=named) for each in types]
    return next(each for each in parsed if isinstance(each, dict) and each["name"] == name)


def written(schema: Any, datum: Any) -> bytes:
    """One datum in the independent library's encoding."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, datum)
    return out.getvalue()


def plain(value: Any) -> Any:
    """A case's JSON as the library wants it: bytes and chosen branches."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"$hex"}:
        return bytes.fromhex(value["$hex"])
    if value.keys() == {"$text"}:
        return value["$text"].encode()
    if len(value) == 1 and (name := next(iter(value))) in BRANCHES:
        return name, plain(value[name])
    return {name: plain(member) for name, member in value.items()}


BRANCHES = frozenset(
    "Integer Character Decimal Float Timestamp DateTime TimestampWithTimeZone BinaryGeometry TextGeometry "
    "BinaryObject TextObject EmptyObject StringObject DecimalObject DateObject TimeObject DateTimeObject "
    "TimestampObject BitObject EnumSetValue GeometryValue boolean int long float double bytes string".split()
)


def _framed(number: int, schema: Any, datum: Any) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + written(fastavro.parse_schema(schema), plain(datum))


WRAPPER = {
    "type": "record",
    "name": "generic_wrapper",
    "namespace": "oracle.goldengate",
    "fields": [
        {"name": "table_name", "type": "string"},
        {"name": "schema_fingerprint", "type": "long"},
        {"name": "payload", "type": "bytes"},
    ],
}
"""GoldenGate's generic wrapper ("Using the Avro Formatter", Generic Wrapper Functionality)."""


def _wrapped(case: dict[str, Any]) -> bytes:
    return wrapped(
        case["datum"]["table"],
        case["fingerprint"],
        written(fastavro.parse_schema(case["schema"]), plain(case["datum"])),
    )


def wrapped(table: str, fingerprint: int, payload: bytes) -> bytes:
    """A record in GoldenGate's generic wrapper."""
    datum = {"table_name": table, "schema_fingerprint": fingerprint, "payload": payload}
    return written(fastavro.parse_schema(WRAPPER), datum)
