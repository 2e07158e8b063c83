"""Types of Attunity's replication engine, of which AWS DMS and Qlik Replicate are made."""

from __future__ import annotations

from collections.abc import Mapping

from ingest import types, values

HEX = "hex"
"""How the engine writes bytes unless a setting says otherwise: digits, with or without ``0x``."""
_BYTES = {"base64": "binary", "hex": "hex", "base16": "hex"}

_LOGICAL = {
    "BOOLEAN": "boolean",
    **{f"INT{size}": f"int{size * 8}" for size in (1, 2, 4, 8)},
    **{f"INT{size}": f"int{size}" for size in (16, 32, 64)},
    **{f"UINT{size}": f"uint{size * 8}" for size in (1, 2, 4, 8)},  # bytes, as those of INT8
    **{f"UINT{size}": f"uint{size}" for size in (16, 32, 64)},
    "REAL4": "float32",
    "REAL8": "float64",
    **dict.fromkeys(("STRING", "WSTRING", "CLOB", "NCLOB"), "string"),
    "DATE": "date",
    "TIME": "time",
    **dict.fromkeys(("DATETIME", "TIMESTAMP"), "datetime"),
}


def logical(column: Mapping[str, object], encoding: str) -> str:
    """The logical type of a column that a message describes; its bytes are in ``encoding``."""
    kind = str(column.get("type", "")).upper()
    if kind == "NUMERIC":
        precision, scale = (values.integer(str(column.get(name))) for name in ("precision", "scale"))
        return types.decimal(precision, scale)
    if kind in ("BYTES", "BLOB"):
        return _BYTES.get(encoding, "unknown")
    return _LOGICAL.get(kind, "unknown")
