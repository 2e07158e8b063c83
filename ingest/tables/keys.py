"""The keys that a change concerns, for rows of ``changes`` in Spark: the rule of `ingest.fold.key_of_change`."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from ingest.store.names import quoted

Texts = list[Column]


def cell(name: str, text: Column | str, parsed: Column, otherwise: Column) -> Column:
    """A key cell from an image that has the column, even if it is NULL there; else from another image.

    ``text`` is the image's JSON, and ``parsed`` the cell parsed from it: NULL also if the image lacks the column.
    """
    has = F.coalesce(F.array_contains(F.json_object_keys(text), name), F.lit(False))
    return F.when(parsed.isNotNull() | has, parsed).otherwise(otherwise)


def key_texts(keys: Sequence[str]) -> tuple[Texts, Texts]:
    """The key texts of a change's new row and of its old row: equal unless the key changes.

    For rows of ``changes`` with the images after and before parsed as ``a`` and ``b`` (`ingest.tables.images`).
    A NULL text means that the change has no usable key.
    """
    new, left = [], []
    for name in keys:
        a, b = (F.col(f"{side}.{quoted(name)}") for side in ("a", "b"))
        after, before = cell(name, "after", a, b), cell(name, "before", b, a)
        new.append(F.when(F.col("op") == "delete", before).otherwise(after))
        left.append(F.when(F.col("op") == "read", after).otherwise(before))
    return new, left


def moves(new: Texts, left: Texts) -> Column:
    """True if a change's old key differs from its new one, compared as texts."""
    differ = F.lit(False)
    for text, other in zip(new, left, strict=True):
        differ |= ~text.eqNullSafe(other)
    return differ
