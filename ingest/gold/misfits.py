"""Write what does not fit a mirror to `rejects`, before the merge that omits it.

A *cell* whose text is not a value of its column's type becomes NULL in the mirror; its text is kept here.
A *change* whose key has such a cell, or is missing, is omitted as a whole: a mirror never gets a NULL key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import reduce

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from ingest import types
from ingest.config import TableRule
from ingest.config.conditions import columns as columns_of
from ingest.gold.cast import cast, matches
from ingest.gold.gather import clearing, of_lane
from ingest.gold.lane import Lane, Steps
from ingest.gold.spark_fold import LEFT_OUT, MISFIT, key_cells, key_name, value_name
from ingest.gold.staged import GONE
from ingest.gold.unfit import COUNTED, STAGE
from ingest.lake import exact
from ingest.lake.images import image
from ingest.lake.keys import key_texts
from ingest.lake.lake import Lake
from ingest.lake.mirrors import Mirror
from ingest.lake.schemas import REJECTS
from ingest.values.typed_values import misfits

_TYPES = {"partition": "int", "offset": "bigint", "batch": "bigint"}
_PLACE = ("topic", "partition", "offset")
_SAME = ("kind", "source", "database", "schema", "table", "key", "column", "raw")


def cells(outcomes: DataFrame, table: DataFrame, mirror: Mirror, lane: Lane, batch: int) -> DataFrame | None:
    """Cells that do not fit, as rows of `rejects`; None if none can be.

    Args:
        outcomes: a lane's outcomes (`ingest.gold.shaped.judged`), or rows of texts for a mirror without a key. Of rows
            that are left out, only cells that the condition needs matter.
        table: ``changes``, in which each cell's own change is looked up.
        mirror: with its columns as decided.
        lane: where they come from.
        batch: the batch that is being folded; used for a cell that no change sent in this form.
    """
    asked = columns_of(mirror.where) if mirror.where else ()
    found = [
        F.when(
            F.col(value_name(i)).isNotNull()
            & cast(F.col(value_name(i)), one.type).isNull()
            & (~F.col(LEFT_OUT) if mirror.where and one.name not in asked else F.lit(True)),
            F.struct(
                F.lit(one.name).alias("column"),
                _why(F.col(value_name(i)), one.type).alias("why"),
                F.col(value_name(i)).alias("raw"),
            ),
        )
        for i, one in enumerate(mirror.columns)
        if one.name not in mirror.keys and can_misfit(one.type)
    ]
    if not found:
        return None
    key = exact.key_json(F.col(key_name(i)).alias(name) for i, name in enumerate(mirror.keys))
    rows = outcomes.where(~F.col(GONE)).select(
        (key if mirror.keys else F.lit(None)).alias("key"),
        F.explode(F.filter(F.array(*found), lambda cell: cell.isNotNull())).alias("cell"),
    )
    bad = rows.select("key", "cell.*").alias("bad")
    sent = _sent(of_lane(table, lane), mirror).alias("sent")
    same = [F.col(f"bad.{name}").eqNullSafe(F.col(f"sent.{name}")) for name in ("key", "column", "raw")]
    return _rejects(
        bad.join(sent, same, "left").select("bad.*", "sent.place.*"),
        mirror,
        {
            "kind": F.lit("cell"),
            "source": F.lit(lane.source),
            **{name: F.col(name) for name in (*_PLACE, "key", "column", "raw")},
            "batch": F.coalesce("batch", F.lit(batch)),
            "reason": F.lit("does-not-fit"),
            "detail": F.col("why"),
        },
    )


def _sent(changes: DataFrame, mirror: Mirror) -> DataFrame:
    """The place of the newest change that sent a cell's text, by the row's key."""
    names = [one.name for one in mirror.columns if one.name not in mirror.keys and can_misfit(one.type)]
    sending = changes.where(F.col("after").isNotNull() & (F.col("op") != "delete"))
    parsed = sending.select(
        *_PLACE, "batch", "order_key", "op", "after", "before",
        image("after", [*mirror.keys, *names]).alias("a"), image("before", mirror.keys).alias("b"),
    )  # fmt: skip
    own, _ = key_texts(mirror.keys)
    typed = (cast(text, one.type).alias(one.name) for text, one in zip(own, mirror.key_columns, strict=True))
    each = [F.struct(F.lit(name).alias("column"), F.col("a")[name].alias("raw")) for name in names]
    place = F.struct(*_PLACE, "batch")
    exploded = parsed.select(
        (exact.key_json(typed) if mirror.keys else F.lit(None).cast("string")).alias("key"),
        "order_key", place.alias("place"), F.explode(F.array(*each)).alias("cell"),
    ).select("key", "order_key", "place", "cell.*")  # fmt: skip
    return exploded.groupBy("key", "column", "raw").agg(F.max_by("place", "order_key").alias("place"))


def _why(text: Column, logical: str) -> Column:
    form, value = misfits(logical)
    return F.when(matches(text, logical), value).otherwise(form)


def can_misfit(logical: str) -> bool:
    """True if some texts are not values of the type."""
    return bool(types.family(logical)) and types.delta(logical) != "STRING"


def changes(table: DataFrame, mirror: Mirror, lane: Lane, steps: Steps) -> DataFrame:
    """A lane's new changes without a usable key, as rows of `rejects` with their messages' positions.

    Changes under an older key were folded by that key, and of rows that were all removed since nothing is missing.
    """
    mine = of_lane(table, lane)
    cleared, _ = clearing(mine, lane, steps)
    begins = max([cleared or "", *(one.place for one in lane.eras[-1:])])
    new = mine.where((F.col("batch") >= lane.first) & (F.col("op") != "truncate"))
    new = new.where(F.col("order_key") > begins)
    parsed, fits, raw = key_cells(new, mirror)
    bad = parsed.where(~F.coalesce(fits, F.lit(False)))
    names = ", ".join(f"{one.name} ({one.type})" for one in mirror.key_columns)
    return _rejects(
        bad,
        mirror,
        {
            **{name: F.col(name) for name in ("source", "topic", "partition", "offset", "batch")},
            "kind": F.lit("change"),
            "key": raw,
            "reason": F.lit("key-does-not-fit"),
            "detail": F.concat(
                F.lit(f"a cell of the key {names} is missing, NULL or no value of its type; row "),
                F.col("row"),
            ),
            "raw": F.coalesce("after", "before"),
        },
    )


class Outgrown(Exception):
    """Integers arrived that exceed the range of their column's declared type."""

    def __init__(self, mirror: Mirror) -> None:
        super().__init__("a column is too narrow for its values")
        self.mirror = mirror


def widen(table: DataFrame, mirror: Mirror, rule: TableRule, lanes: Iterable[Lane]) -> None:
    """Request wider columns if new integers exceed a declared range, or DECIMAL cells have a fraction: many sources send
    neither UNSIGNED nor the digits of a DECIMAL.

    A type from the pipeline file is binding, and a frozen mirror keeps its columns: there such cells are rejected.

    Raises:
        Outgrown: there are such numbers; it holds the wider mirror.
    """
    narrow = [
        one for one in mirror.sent if types.family(one.type) == "integer" and one.name not in rule.columns
    ]
    if not narrow or rule.freezes or rule.ignores:
        return
    wider = {one.name: one.type for one in narrow}
    for lane in lanes:
        new = of_lane(table, lane).where((F.col("batch") >= lane.first) & F.col("after").isNotNull())
        cells, kinds = image("after", list(wider)), image("types", list(wider))
        numbers = {
            name: F.when(cells[name].rlike(r"^-?[0-9]{1,38}\z"), cells[name].try_cast("decimal(38,0)"))
            for name in wider
        }
        ends = [
            end(value).cast("string").alias(f"{i}{end.__name__}")
            for i, value in enumerate(numbers.values())
            for end in (F.min, F.max)
        ]
        ends += [
            F.max((kinds[name] == "decimal") & cells[name].rlike(r"\.[0-9]*[1-9]")).alias(f"{i}fraction")
            for i, name in enumerate(numbers)
        ]
        row = new.agg(*ends).first()
        assert row is not None
        for i, name in enumerate(numbers):
            if row[f"{i}fraction"]:
                wider[name] = "decimal"
                continue
            for text in (row[f"{i}min"], row[f"{i}max"]):
                wider[name] = types.common(wider[name], types.integer(int(text or 0)))
    columns = tuple(replace(one, type=wider.get(one.name, one.type)) for one in mirror.columns)
    if [one.delta for one in columns] != [one.delta for one in mirror.columns]:
        raise Outgrown(replace(mirror, columns=columns))


def meeting(fold: Callable[[bool], None], keep_misfits: Callable[[], int]) -> dict[str, int]:
    """Fold as if every cell fitted; if one does not, write the misfits first and fold again.

    Args:
        fold: writes a mirror's new rows; True makes cells that do not fit NULL, instead of an error.
        keep_misfits: writes them to `rejects`, and says how many.

    Returns:
        their number, among the mirror's counts; empty if all fitted.
    """
    try:
        fold(False)
    except (PySparkException, Py4JJavaError) as error:  # the latter while rows are written
        if MISFIT not in str(error):
            raise
    else:
        return {}
    count = keep_misfits()
    fold(True)
    return {COUNTED: count} if count else {}


def keep(lake: Lake, mirror: Mirror, found: list[DataFrame], batch: int) -> int:
    """Append what does not fit to `rejects`, guarded.

    A change can be folded more than once: after a kill, or with later or older changes of its key. Its existing rejects
    are not written again.

    Args:
        lake: the lake, through the mirror's own session.
        mirror: with its columns as decided.
        found: rows of `rejects`.
        batch: the batch that is about to be folded.

    Returns:
        how many rows were written.
    """
    rows = reduce(DataFrame.unionByName, found)
    if lake.exists(REJECTS.name):
        known = F.broadcast(lake.read(REJECTS.name).where(F.col("stage") == STAGE)).alias("known")
        same = [F.col(f"found.{name}").eqNullSafe(F.col(f"known.{name}")) for name in _SAME]
        place = [F.col(f"found.{name}").eqNullSafe(F.col(f"known.{name}")) for name in _PLACE]
        older = F.col("known.offset").isNull()  # as an older version wrote it, without a place
        same.append(older | reduce(lambda a, b: a & b, place))
        rows = rows.alias("found").join(known, same, "left_anti")
    written = Observation()
    stage = f"{STAGE}/{mirror.path}/{mirror.generation}"
    appended = lake.append(rows.observe(written, F.count("*").alias("rows")), REJECTS, stage, batch)
    return int(written.get["rows"]) if appended else 0


def _rejects(rows: DataFrame, mirror: Mirror, given: Mapping[str, Column]) -> DataFrame:
    table = {name: F.lit(part) for name, part in mirror.table._asdict().items()}
    known = {"stage": F.lit(STAGE), **table, **given}
    names = REJECTS.columns.names
    return rows.select(
        *[known.get(name, F.lit(None)).cast(_TYPES.get(name, "string")).alias(name) for name in names]
    )
