"""Read row images of ``changes`` as columns, with Arrow: JSON objects whose values are texts or null."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.json import ParseOptions, ReadOptions, read_json


def texts_of(images: pa.StringArray, names: Sequence[str]) -> list[pa.StringArray]:
    """The texts of some columns of each image; NULL where an image is NULL or lacks the column.

    Raises:
        pa.ArrowInvalid: an image that Arrow cannot read, for example with half a surrogate pair; or there is none.
    """
    filled = pc.fill_null(images, "{}")
    lines = pc.binary_join(pa.ListArray.from_arrays([0, len(filled)], filled), "\n")[0].as_buffer()
    parsed = read_json(
        pa.BufferReader(lines),
        ReadOptions(use_threads=False, block_size=len(lines) + 1),
        ParseOptions(
            explicit_schema=pa.schema([(name, pa.string()) for name in names]),
            unexpected_field_behavior="ignore",
        ),
    )
    return [parsed[name].combine_chunks() for name in names]
