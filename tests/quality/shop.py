"""A lake with one table's changes and its mirror in files, written by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from deltalake import write_deltalake

from ingest.change import TableId
from ingest.config import Pipeline
from ingest.config.model import Source, TableRule
from ingest.fold import SchemaStep
from ingest.ledgers.mirrors import Column, Mirror
from ingest.order import Order, order_key
from ingest.quality.cells import Asked, Compared, compare
from ingest.quality.subjects import CheckedLane, CheckedMirror
from ingest.tables.lake import Lake

TABLE = TableId("shop", None, "t")
COLUMNS = (Column("id", "id", "int64"), Column("a", "a", "string"), Column("n", "n", "decimal(10,2)"))
MIRROR = Mirror(TABLE, "mirrors/shop/t", ("id",), COLUMNS)
CHANGES = pa.schema(
    [(name, pa.string()) for name in ("kind", "source", "database", "schema", "table", "op", "order_key")]
    + [("batch", pa.int64()), ("partial", pa.bool_())]
    + [(name, pa.string()) for name in ("before", "after", "types", "transaction")]
)
ROW = pa.schema([("id", pa.int64()), ("a", pa.string()), ("n", pa.decimal128(10, 2))])


def place(at: int) -> str:
    return order_key(Order(0, 1, (at,), 0, (1, 0, 0, at), 0))


@dataclass(slots=True)
class Shop:
    """A lake with one table's changes and its mirror, written by hand."""

    folder: Path
    rule: TableRule = field(default_factory=lambda: TableRule("shop.*"))
    changes: list[dict[str, Any]] = field(default_factory=list)
    steps: list[tuple[SchemaStep, int]] = field(default_factory=list)

    def say(
        self,
        batch: int,
        at: int,
        op: str,
        key: int | None,
        *,
        was: int | None = None,
        partial: bool = False,
        **cells: Any,
    ) -> Shop:
        """A change of a batch at a place."""
        after = None if op in ("delete", "truncate") else {"id": str(key), **cells}
        before = {"id": str(key if was is None else was)} if op == "delete" or was is not None else None
        images = {name: image and json.dumps(image) for name, image in (("before", before), ("after", after))}
        names = {
            "kind": "change",
            "source": "s",
            "database": "shop",
            "schema": None,
            "table": "t",
            "types": "{}",
        }
        self.changes.append(
            {**names, "batch": batch, "op": op, "order_key": place(at), "partial": partial, **images}
        )
        return self

    def check(
        self,
        rows: Sequence[tuple[Any, ...]],
        since: int = 0,
        *,
        deep: bool = False,
        mirror: Mirror = MIRROR,
        limit: int = 200,
        ever: int = 0,
        schema: pa.Schema = ROW,
        before: int | None = None,
    ) -> Compared:
        """What is found, with the mirror's rows as given; it had ``before`` of them when it was last checked."""
        source = Source("s", "files", "dts-canal", path="x")
        pipeline = Pipeline(
            "p", self.folder / "p.yaml", str(self.folder / "lake"), (source,), (self.rule,), engine="auto"
        )
        lake = Lake(cast("Any", None), pipeline)
        values = [
            {"id": key, "a": a, "n": None if n is None else Decimal(n)}
            | dict(zip(schema.names[3:], more, strict=True))
            for key, a, n, *more in rows
        ]
        write_deltalake(
            lake.path("changes"),
            pa.Table.from_pylist(self.changes, CHANGES),
            mode="overwrite",
            partition_by=["kind"],
        )
        write_deltalake(lake.path(mirror.path), pa.Table.from_pylist(values, schema), mode="overwrite")
        new = [one for one in self.changes if one["batch"] > since]
        old = [one["order_key"] for one in self.changes if one["batch"] <= since]
        places = sorted(one["order_key"] for one in new)
        count = {
            name: sum(one["op"] == name for one in new) for name in ("delete", "truncate", "read", "insert")
        }
        lane = CheckedLane(
            "s", TABLE, 9, len(new), count["read"], count["delete"], 0, count["truncate"], 0, ever or len(self.changes),
            places[0] if new else "", places[-1] if new else "", max(old, default=""), None, 1,
            inserts=count["insert"],
        )  # fmt: skip
        kinds = {one.column: one.delta for one in mirror.columns}
        subject = CheckedMirror(
            TABLE,
            mirror.path,
            mirror,
            9,
            exists=True,
            types=kinds,
            lanes=[lane],
            steps_of=lambda *_: self.steps,
        )
        stated = {"s": max((batch, str(step.order)) for step, batch in self.steps)} if self.steps else {}
        counted = {} if before is None else {str(TABLE): before}
        asked = Asked(lambda _: limit, lambda _: deep, stated, counted)
        [(_, found)] = compare(lake, [subject], since, asked)
        return found

    def texts(self, *args: Any, **given: Any) -> list[str]:
        """Check as `check` does, and give the differences as texts."""
        return [f"{one.key} {one.column} {one.text}" for one in self.check(*args, **given).wrong]
