"""A made-up pipeline for the report, with any number of tables in every state; and checks without Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ingest.change import TableId
from ingest.quality import queries
from ingest.quality import report_model as f
from ingest.quality.catalogue import CHECKS
from ingest.tables.lake import Lake

NOW = dt.datetime(2026, 3, 14, 9, 26, 53, tzinfo=dt.UTC)
WORDS = "parcel depot courier route scan pallet invoice customer vehicle shift claim tariff zone lane".split()


@pytest.fixture
def made() -> Callable[[int], f.Facts]:
    """Facts of a parcel service with so many tables."""
    return facts


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask the folder, not Spark, whether a table is there."""
    monkeypatch.setattr(Lake, "exists", lambda lake, name: Path(lake.path(name), "_delta_log").exists())


def facts(tables: int) -> f.Facts:
    """One failing, one warning and one held table among good ones."""
    made = f.Facts("parcels", "conf/parcels.yaml", "/srv/lake/parcels", NOW)
    made.tables = [_table(i) for i in range(tables)]
    if tables > 4:
        _spoil(made.tables)
    checks = [_check(one.name, 0.0) for one in CHECKS.values() if one.subject == "source"]
    checks[-1] = _check("reject_rate", 0.0021, "warn", "12 of 5,714 messages could not be decoded")
    made.sources = [f.SourceFact("hub", "some-format", checks, NOW - dt.timedelta(minutes=4))]
    made.runs = [_run(i) for i in range(30)]
    made.books = [f.BookFact(57 - i, "hub", 5714 - i * 31, 5600 - i * 31, 2, 100, 0, 12) for i in range(30)]
    made.rejects = [
        f.RejectFact(
            "message", "bad-json", "hub", "", 12, "the text ends inside an object", "scans/part-7.jsonl:80212"
        )
    ]
    return made


def _name(i: int) -> str:
    return f"{WORDS[i % len(WORDS)]}_{i // len(WORDS)}" if i >= len(WORDS) else WORDS[i]


# most tables have no such rule, or column
OF_FEW = {
    "rows_left_out",
    "columns_left_out",
    "columns_masked",
    "cells_cut",
    "changes_erased",
    "bytes_misread",
    "types_misread",
    "nulls_left_out",
}


def _table(i: int) -> f.TableFact:
    identity = TableId("hub", None, _name(i))
    columns = [
        f.ColumnFact(f"column_{n}", f"column_{n}", "text", "STRING", "declared by the source")
        for n in range(10)
    ]
    columns = [
        f.ColumnFact("id", "id", "int64", "BIGINT", "declared by the source", key=True),
        f.ColumnFact("weight", "weight", "decimal(12,3)", "DECIMAL(12,3)", "declared in the pipeline file"),
        *columns,
    ]
    rows = tuple(float(40_000 + i * 911 + n * (n % 5) * 40) for n in range(30))
    checks = [
        _check(one.name, rows[-1] if one.name == "rows" else 140.0 if one.unit == "seconds" else 0.0)
        for one in CHECKS.values()
        if one.subject == "mirror" and one.name not in OF_FEW
    ]
    checks[0].trend = rows
    for check in checks:
        check.asked = partial(queries.reproduces, check.check, identity, identity, [("id", "id")])
    batches = [
        f.BatchFact(
            57 - n, "done", NOW - dt.timedelta(minutes=4 + 30 * n),
            {"inserted": 40 + (n * 37 + i) % 90, "updated": 12, "deleted": 3}, 1.4, 80 - n,
        )
        for n in range(30)
    ]  # fmt: skip
    return f.TableFact(
        f"hub.{_name(i)}", f"mirrors/hub/{_name(i)}", identity, [("hub", identity)], ("id",), columns, checks,
        NOW - dt.timedelta(minutes=4), [], batches, NOW - dt.timedelta(seconds=140 + i * 13), (),
        queries.history(identity, ["id"], '{"id": 81}'),
    )  # fmt: skip


def _check(name: str, observed: float, state: str = "pass", detail: str = "") -> f.CheckFact:
    known = CHECKS[name]
    since = None if state == "pass" else NOW - dt.timedelta(hours=7)
    return f.CheckFact(
        name, state, observed, known.severity, known.limit, None, detail, (), (0.0,) * 29 + (observed,), since
    )


def _spoil(tables: list[f.TableFact]) -> None:
    for table in tables:
        table.losses = ("A NULL and an empty text look the same in old values.",)
    missing = tables[1].check("missing_rows")
    assert missing is not None
    missing.state, missing.observed, missing.failing = "fail", 2.0, ('{"id":81}', '{"id":4077}')
    missing.bad_since = NOW - dt.timedelta(hours=7)
    cells = tables[3].check("cell_rejects")
    assert cells is not None
    cells.state, cells.observed, cells.column = "warn", 3.0, "weight"
    cells.detail, cells.bad_since = (
        "3 cells do not fit: not a number, for example '12,50 kg'",
        NOW - dt.timedelta(hours=3),
    )
    cells.failing = ('{"id":12}',)
    tables[3].columns[1].misfits = 3
    tables[4].ddl = [
        f.DdlFact(
            56,
            "ALTER TABLE scan ADD COLUMN lane VARCHAR(20) DEFAULT 'A'",
            "safe",
            "",
            NOW - dt.timedelta(hours=9),
        ),
        f.DdlFact(
            57,
            "ALTER TABLE scan DROP COLUMN old_code",
            "lossy",
            "the mirror keeps the column",
            NOW,
            pending=True,
        ),
    ]
    waits = tables[4].check("ddl_pending")
    assert waits is not None
    waits.state, waits.observed, waits.bad_since = "warn", 1.0, NOW
    waits.detail = "1 statement waits for a decision, the last: 'ALTER TABLE scan DROP COLUMN old_code'"
    held = tables[2]
    held.batches[0].state, held.batches[0].version = "held", None
    held.batches[
        0
    ].message = "hub.courier has no key: write `keys: [...]` or `no_key: full_row` into its tables: entry."
    held.checks = []


def _run(i: int) -> f.RunFact:
    counts = {
        "read": 5714 - i * 31,
        "changes": 5600 - (i * 17) % 400,
        "rejected": 12 if i % 9 == 0 else 0,
        "ddl": i % 2,
    }
    seconds = {"bronze": 1.1, "silver": 2.4, "gold": 6.0 + i % 3, "quality": 1.9}
    alarms = [f.AlarmFact("hub.courier held: hub.courier has no key", "hub.courier")] if i == 0 else []
    return f.RunFact(f"run-{i}", NOW - dt.timedelta(minutes=4 + 30 * i), 57 - i, counts, seconds, alarms)
