"""Deletion vectors: the deleted rows of a data file, in a file next to it, as Delta's protocol describes it.

A file of vectors is one byte, its version, and for each data file the size of its vector, the vector, and its CRC-32. A
vector is a magic number and a 64-bit portable roaring bitmap (https://github.com/RoaringBitmap/RoaringFormatSpec).
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ingest.store import stores
from ingest.tables import delta

Rows = np.ndarray[tuple[int], np.dtype[np.int64]]
"""Numbers of a file's rows, from 0, increasing."""
_VERSION, _MAGIC, _NO_RUNS = b"\x01", 1681511377, 12346
_LISTED = 4096  # with more rows, a container has a bit for each of its 65,536


def write(folder: str, gone: Mapping[str, Rows]) -> dict[str, dict[str, Any]]:
    """Write the vectors of some files of a table, in a new file in its folder; returns each as the log names it.

    Nothing is written if no file has one.
    """
    if not gone:
        return {}
    name, vectors, parts, position = uuid.uuid4(), dict[str, dict[str, Any]](), [_VERSION], len(_VERSION)
    for file, rows in gone.items():
        vector = serialized(rows)
        vectors[file] = {
            "storageType": "u",
            "pathOrInlineDv": delta.named_by(name),
            "offset": position,
            "sizeInBytes": len(vector),
            "cardinality": len(rows),
        }
        whole = [len(vector).to_bytes(4, "big"), vector, zlib.crc32(vector).to_bytes(4, "big")]
        parts += whole
        position += sum(map(len, whole))
    stores.at(folder).write(f"{folder}/{delta.vector_file(name)}", b"".join(parts))
    return vectors


def serialized(rows: Rows) -> bytes:
    """A vector's bytes."""
    heads, starts = np.unique(rows >> 32, return_index=True)
    parts = [struct.pack("<IQ", _MAGIC, len(heads))]
    for head, low in zip(heads.tolist(), np.split(rows & 0xFFFFFFFF, starts[1:]), strict=True):
        parts += [struct.pack("<I", head), _bitmap(low)]
    return b"".join(parts)


def _bitmap(rows: Rows) -> bytes:
    """A 32-bit roaring bitmap."""
    heads, starts = np.unique(rows >> 16, return_index=True)
    lows = np.split((rows & 0xFFFF).astype("<u2"), starts[1:])
    bodies = [low.tobytes() if len(low) <= _LISTED else _bits(low) for low in lows]
    sizes = np.column_stack([heads, [len(low) - 1 for low in lows]]).astype("<u2").tobytes()
    head = struct.pack("<II", _NO_RUNS, len(lows)) + sizes
    offsets = len(head) + 4 * len(lows) + np.cumsum([0, *map(len, bodies[:-1])])
    return head + offsets.astype("<u4").tobytes() + b"".join(bodies)


def _bits(low: np.ndarray[tuple[int], np.dtype[np.uint16]]) -> bytes:
    mask = np.zeros(1 << 16, np.bool_)
    mask[low] = True
    return np.packbits(mask, bitorder="little").tobytes()
