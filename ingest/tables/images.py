"""Read row images of ``changes`` in Spark: JSON objects whose values are texts or null."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from ingest.store.names import literal, quoted

# Texts may have any length (Jackson's default limit is 20 million characters); an image that cannot be read
# fails the query: as NULL it would be a row without a key.
_OPTIONS = {"mode": "FAILFAST", "maxStringLen": str((1 << 31) - 1)}


def image(text: Column | str, names: Iterable[str]) -> Column:
    """The texts of some columns in a row image."""
    return F.from_json(text, StructType([StructField(name, StringType()) for name in names]), _OPTIONS)


def image_sql(text: str, names: Iterable[str]) -> str:
    """The same as SQL."""
    columns = literal(", ".join(f"{quoted(name)} STRING" for name in names))
    options = ", ".join(f"'{name}', '{value}'" for name, value in _OPTIONS.items())
    return f"from_json({text}, {columns}, map({options}))"
