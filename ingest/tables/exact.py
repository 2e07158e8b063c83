"""Values as texts that are equal only for equal values.

Neither ``to_json``, which cuts times to milliseconds, nor SQL's equality, for which 0.0 is -0.0, distinguishes all
values of a type.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F

FLOATING = ("FLOAT", "DOUBLE")
_MICROSECONDS = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_OPTIONS = {
    "ignoreNullFields": "false",
    "timestampFormat": f"{_MICROSECONDS}XXX",
    "timestampNTZFormat": _MICROSECONDS,
}


def text(value: Column, delta: str) -> Column:
    """The text of a value of a Delta type; NULL for NULL."""
    return F.hex(value) if delta == "BINARY" else value.cast("string")


def content(values: Iterable[tuple[Column, str]]) -> Column:
    """One text for a whole row, from its values with their Delta types."""
    cells = [text(value, delta).alias(f"c{i}") for i, (value, delta) in enumerate(values)]
    return F.to_json(F.struct(*cells), {"ignoreNullFields": "false"})


def key_json(cells: Iterable[Column]) -> Column:
    """Key cells as a JSON object for display, under the columns' names, with all digits of times."""
    return F.to_json(F.struct(*cells), _OPTIONS)
