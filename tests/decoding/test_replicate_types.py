"""The types of Attunity's engine, as Qlik's and AWS's documents list them."""

from __future__ import annotations

import pytest

from ingest.decoding.replicate_types import logical

DOCUMENTED = {
    "BOOLEAN": "boolean",
    "BYTES": "hex",
    "BLOB": "hex",
    "DATE": "date",
    "TIME": "time",
    "DATETIME": "datetime",
    "INT1": "int8",
    "INT2": "int16",
    "INT4": "int32",
    "INT8": "int64",
    "UINT1": "uint8",
    "UINT2": "uint16",
    "UINT4": "uint32",
    "UINT8": "uint64",
    "REAL4": "float32",
    "REAL8": "float64",
    **dict.fromkeys(("STRING", "WSTRING", "CLOB", "NCLOB"), "string"),
}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_documented_type_has_a_meaning(name: str) -> None:
    """A column of a type that is not known stays text in the mirror, whose numbers then compare as texts."""
    assert DOCUMENTED[name] == logical({"type": name, "precision": 0, "scale": 0}, "hex")
