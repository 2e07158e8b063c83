"""The fold in Spark: one outcome per key, equal to `ingest.fold` by test.

Every change becomes one or two events of one key (a changed key is a delete and an insert at the same
place). A *reset* event (insert, read, full update, delete) says everything about its key; a partial
update says something about some columns.  The outcome of a key is its last event, and per column the
last value said since the last reset; a column about which nothing was said keeps the mirror's value.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.gold.cast import cast, key_is_exact
from ingest.gold.lane import ChangeKinds
from ingest.gold.staged import GONE, has_name
from ingest.lake.images import image
from ingest.lake.keys import cell
from ingest.lake.mirrors import Mirror

ORDER, PART, RESET = "_order", "_part", "_reset"
# next to a mirror's columns, whose names cannot contain a percent sign
UNFIT, LEFT_OUT = "%unfit", "%left_out"


def key_name(index: int) -> str:
    """The name of a key column's typed value among the events."""
    return f"_k{index}"


def value_name(index: int) -> str:
    """The name of a column's text among events, and of its typed value in outcomes."""
    return f"_v{index}"


def events(changes: DataFrame, mirror: Mirror, kinds: ChangeKinds, tolerant: bool) -> DataFrame:
    """Changes of one table as events: typed key, order, and every column's text.

    Parsing images is most of the work, so only the key is read from the image before a change, and only if the key may
    have changed or the row is deleted.

    Args:
        changes: rows of ``changes`` of this mirror, truncates left out.
        mirror: with its columns as decided for this batch.
        kinds: those of which there may be changes.
        tolerant: False fails on a key cell that does not fit; True leaves the change out.
    """
    gone = F.col("op") == "delete"
    parsed = changes.select(
        F.col("order_key").alias(ORDER),
        "op",
        F.col("partial") if kinds.partials else F.lit(False).alias("partial"),
        "after",
        "before",
        image(F.when(~gone, F.col("after")), [one.name for one in mirror.columns]).alias("a"),
        image("before" if kinds.key_changes else F.when(gone, F.col("before")), mirror.keys).alias("b"),
        (F.when(F.col("partial"), F.json_object_keys("after")) if kinds.partials else F.lit(None)).alias(
            "sent"
        ),
    )
    typed_new, typed_old = _typed_keys(mirror, tolerant, moves=kinds.key_changes)
    if tolerant:
        parsed = parsed.where(_allcell([*typed_new, *typed_old]))
    reset = gone | (F.col("op") != "update") | ~F.col("partial")
    values = [
        *[F.when(~gone, F.col("a")[one.name]).alias(value_name(i)) for i, one in enumerate(mirror.columns)],
        *(_sent_flags(mirror, reset) if kinds.partials else []),
    ]
    if not kinds.key_changes:
        keys = [
            F.when(gone, left).otherwise(right).alias(key_name(i))
            for i, (left, right) in enumerate(zip(typed_old, typed_new, strict=True))
        ]
        return parsed.select(
            *keys, ORDER, F.lit(1).alias(PART), gone.alias(GONE), reset.alias(RESET), *values
        )
    return _split(parsed, gone, reset, typed_old, typed_new, values)


def _split(
    parsed: DataFrame, gone: Column, reset: Column, old: list[Column], new: list[Column], values: list[Column]
) -> DataFrame:
    """Two events where the key changes: delete the old key, then insert the new one."""
    prepared = parsed.select(
        ORDER,
        gone.alias(GONE),
        reset.alias(RESET),
        F.struct(*[one.alias(key_name(i)) for i, one in enumerate(old)]).alias("old"),
        F.struct(*[one.alias(key_name(i)) for i, one in enumerate(new)]).alias("new"),
        *values,
    )
    moved = ~F.col(GONE) & ~F.col("old").eqNullSafe(F.col("new"))
    halves = F.when(
        moved,
        F.array(
            F.struct(F.col("old").alias("key"), F.lit(0).alias(PART), F.lit(True).alias("dropped")),
            F.struct(F.col("new").alias("key"), F.lit(1).alias(PART), F.lit(False).alias("dropped")),
        ),
    ).otherwise(
        F.array(
            F.struct(
                F.when(F.col(GONE), F.col("old")).otherwise(F.col("new")).alias("key"),
                F.lit(1).alias(PART),
                F.col(GONE).alias("dropped"),
            )
        )
    )
    # A delete carries no values: a partial update after it must not find the new row's values.
    said = {value_name(i) for i in range(len(values))}
    rest = [
        F.when(~F.col("half.dropped"), F.col(name)).alias(name) if name in said else F.col(name)
        for name in prepared.columns
        if name not in ("old", "new", GONE, RESET, ORDER)
    ]
    return prepared.withColumn("half", F.explode(halves)).select(
        *[F.col(f"half.key.{key_name(i)}").alias(key_name(i)) for i in range(len(new))],
        ORDER,
        F.col(f"half.{PART}").alias(PART),
        F.col("half.dropped").alias(GONE),
        (F.col(RESET) | F.col("half.dropped") | moved).alias(RESET),
        *rest,
    )


def _typed_keys(mirror: Mirror, tolerant: bool, *, moves: bool) -> tuple[list[Column], list[Column]]:
    """The key after and before a change, from images parsed as ``a`` and ``b``; the same key if it cannot change.

    An image that was not parsed, or lacks a key column, is read again, only for the rows that need it.
    """
    op, new, old = F.col("op"), [], []
    stays = op == "read" if moves else op != "delete"
    for one in mirror.key_columns:
        a, b = F.col("a")[one.name], F.col("b")[one.name]
        again = [image(name, mirror.keys)[one.name] for name in ("after", "before")]
        after = cell(one.name, "after", a, again[1])
        before = cell(one.name, "before", b, F.when(op == "delete", again[0]).otherwise(a))
        new.append(_typed_key(F.when(op == "delete", before).otherwise(after), one.type, tolerant))
        old.append(_typed_key(F.when(stays, after).otherwise(before), one.type, tolerant))
    return new, old


def _allcell(cells: list[Column]) -> Column:
    return reduce(lambda a, b: a & b, [one.isNotNull() for one in cells])


def key_cells(changes: DataFrame, mirror: Mirror) -> tuple[DataFrame, Column, Column]:
    """Changes with their keys parsed, whether the key fits, and the key's texts as JSON."""
    images = {short: image(name, mirror.keys) for short, name in (("a", "after"), ("b", "before"))}
    new, old = _typed_keys(mirror, tolerant=True, moves=True)
    texts = [
        cell(one.name, "after", F.col("a")[one.name], F.col("b")[one.name]).alias(one.name)
        for one in mirror.key_columns
    ]
    text = F.to_json(F.struct(*texts), {"ignoreNullFields": "false"})
    return changes.withColumns(images), _allcell([*new, *old]), text


def _typed_key(text: Column, logical: str, tolerant: bool) -> Column:
    value = cast(text, logical)
    exact = key_is_exact(text, logical)
    if exact is not None:
        value = F.when(exact, value)
    if tolerant:
        return value
    return F.when(value.isNull(), F.raise_error(F.lit(MISFIT))).otherwise(value)


MISFIT = "a cell does not fit its type"


def _sent_flags(mirror: Mirror, reset: Column) -> list[Column]:
    """Per column: does the event carry it? A full image carries all columns."""
    full = reset & F.col("sent").isNull()
    return [
        (full | F.coalesce(F.array_contains("sent", one.name), F.lit(False))).alias(has_name(i))
        for i, one in enumerate(mirror.columns)
    ]


def outcomes(happened: DataFrame, mirror: Mirror, kinds: ChangeKinds) -> DataFrame:
    """One row per key: the typed key, `GONE`, each column's text, and `has_name` flags if partial."""
    keys = [key_name(i) for i in range(len(mirror.keys))]
    if not kinds.partials:
        names = [value_name(i) for i in range(len(mirror.columns))]
        last = F.max(F.struct(ORDER, PART, GONE, *names)).alias("last")
        folded = happened.groupBy(*keys).agg(last)
        return folded.select(*keys, f"last.{GONE}", *[f"last.{name}" for name in names])
    return _overlaid(happened, mirror, keys, kinds)


def _overlaid(happened: DataFrame, mirror: Mirror, keys: list[str], kinds: ChangeKinds) -> DataFrame:
    place = [ORDER, PART]
    said = [
        F.max(F.when(F.col(has_name(i)), F.struct(*place, value_name(i)))).alias(value_name(i))
        for i in range(len(mirror.columns))
    ]
    folded = happened.groupBy(*keys).agg(
        F.max(F.struct(*place, GONE)).alias("last"),
        F.max(F.when(F.col(RESET), F.struct(*place))).alias("reset"),
        *said,
    )
    values: list[Column] = []
    for i in range(len(mirror.columns)):
        said_at = F.col(value_name(i))
        place_of = F.struct(said_at[ORDER].alias(ORDER), said_at[PART].alias(PART))
        stale = F.coalesce(F.col("reset") > place_of, F.lit(False))
        values.append(F.when(~stale, said_at[value_name(i)]).alias(value_name(i)))
        has = F.col("reset").isNotNull() | said_at.isNotNull()
        values.append((F.lit(True) if kinds.cleared else has).alias(has_name(i)))
    return folded.select(*keys, F.col("last")[GONE].alias(GONE), *values)
