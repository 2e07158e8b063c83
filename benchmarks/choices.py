"""What a user's choices cost or save, in processor time: masks at decode, a filter in gold, the check of cells.

    python -m benchmarks.choices masks      # decoding to files with and without masks, in turn
    python -m benchmarks.choices filter     # gold without a filter, and with one that keeps a hundredth of the rows
    python -m benchmarks.choices cells      # batches with and without `cells_checked`

Both sides do the same work in turn, in one process and without Spark; of each the least time counts, for all that
others do on the machine can only add to it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from benchmarks.decode import BATCH, MOMENTS, landed, machine, messages, pipeline
from ingest.config import Pipeline, load
from ingest.errors import StoppedError
from ingest.gold.apply import planner
from ingest.run import Warm, run
from ingest.silver import change_rows
from ingest.silver.lift import Lifting, lift_to_files
from ingest.spark import tasks
from ingest.tables.datafiles import Layout
from ingest.tables.schemas import CHANGES
from tests.formats.one_history.test_one_history import DIALECTS
from tests.timing import seconds
from tests.unstarted import unstarted

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = ("dts-canal", "debezium", "maxwell", "oms-default", "dts-avro")
MASK = {"remark": "hmac", "worth": "last4", "seen_at": "null"}  # remark is another text in each row
SECRET = "a secret of sixteen characters"  # noqa: S105 - a benchmark's
ROWS, CHANGED, SLICE = 1_000_000, 200_000, 30_000


def main() -> int:
    """Measure what the command line asks for; 1 if the target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choices", description=__doc__.splitlines()[0])
    parser.add_argument("choice", choices=("masks", "filter", "cells"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--count", type=int, default=3_000, help="messages of a round (masks, cells)")
    parser.add_argument(
        "--messages", type=int, default=100_000, help="messages of a whole silver stage (masks)"
    )
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the mirror (filter, cells)")
    parser.add_argument("--changed", type=int, default=CHANGED, help="changes of a batch (filter)")
    given = parser.parse_args()
    print(machine(), flush=True)
    return {"masks": masks, "filter": filtered, "cells": cells}[given.choice](given)


# --- masks ----------------------------------------------------------------------------------------


def masks(given: argparse.Namespace) -> int:
    """Messages to files of `changes`, with three of six columns masked and without; then the whole silver stage."""
    print("| format | without, CPU-s | with, CPU-s | more | median of the rounds |\n|---|---|---|---|---|")
    for name in FORMATS:
        batches = landed(messages(name, given.count, MOMENTS)).to_batches(max_chunksize=BATCH)
        plain = pipeline(name)
        rule = replace(plain.tables[0], mask=MASK)
        both = [plain, replace(plain, tables=(rule,), mask_secret=SECRET)]
        schema = DIALECTS[name].hints.schema
        schemas = {"s": {number: schema(number) for number in range(1, 5)} if schema else {}}
        found: list[tuple[float, float]] = []
        with tempfile.TemporaryDirectory() as folder:
            layout = Layout(
                folder, change_rows.SCHEMA, CHANGES.partition_by, ("batch",), (), ("database", "table")
            )
            works = [partial(_decoded, Lifting(one, schemas=schemas), layout, batches) for one in both]
            for _ in range(given.rounds + 1):  # the first warms up
                without, masked = map(seconds, works)
                found.append((without, masked))
        least = [min(times) for times in zip(*found[1:], strict=True)]
        more = least[1] / least[0] - 1
        middle = statistics.median(masked / without for without, masked in found[1:]) - 1
        print(f"| {name} | {least[0]:.2f} | {least[1]:.2f} | {more:.1%} | {middle:.1%} |", flush=True)
    return _masked_silver(given)


def _masked_silver(given: argparse.Namespace) -> int:
    """The whole silver stage over customers, with four of ten columns masked and without."""
    random, found = Random("masks"), list[tuple[float, float]]()  # noqa: S311 - data, no secrets
    rule = "{match: shop.customers, mask: {email: hmac, phone: last4, name: 'null', iban: tokenize}}"
    with tempfile.TemporaryDirectory(prefix="choices-") as folder:
        base = Path(folder) / "base"
        base.mkdir()
        within_this_process()
        sent = customers(random, given.messages)
        for number, start in enumerate(range(0, len(sent), SLICE), 1):
            pour(base, number, sent[start : start + SLICE])
        stage(write(base, ""), "bronze")
        shutil.copytree(base / "lake", Path(folder) / "lake")
        for _ in range(given.rounds + 1):
            times = []
            for more in ("", f"mask_secret: {SECRET}\ntables: [{rule}]\n"):
                shutil.rmtree(base / "lake")
                shutil.copytree(Path(folder) / "lake", base / "lake")
                times.append(seconds(partial(stage, write(base, more), "silver", warm=Warm())))
            found.append((times[0], times[1]))
    alone, masked = (min(times) for times in zip(*found[1:], strict=True))
    middle = statistics.median(one / other for other, one in found[1:]) - 1
    print(
        f"silver of {given.messages:,} messages: {alone:.2f} CPU-s without masks, {masked:.2f} with; "
        f"{masked / alone - 1:.1%} more by the least, {middle:.1%} by the median of the rounds"
    )
    return int(masked >= 1.1 * alone)


def customers(random: Random, count: int) -> list[str]:
    """Changes of a fifth as many customers, in a random order."""
    types = {
        "id": "bigint", "email": "varchar", "phone": "varchar", "name": "varchar", "iban": "char", "city": "varchar",
        "points": "int", "balance": "decimal(12,2)", "created_at": "datetime", "updated_at": "datetime",
    }  # fmt: skip
    known = dict[int, dict[str, str]]()
    found = []
    for at in range(1, count + 1):
        key = random.randrange(count // 5)
        old = known.get(key)
        row = old or {
            "id": str(key), "email": f"customer.{key}@example.org", "phone": f"+86 138 {10**7 + key}",
            "name": f"a name of the usual length {key}", "iban": f"DE{89 * 10**18 + key * 7919:020d}", "city": "Hangzhou",
            "created_at": "2024-05-01 08:20:17",
        }  # fmt: skip
        row = {
            **row, "points": str(random.randrange(10**4)), "balance": f"{random.randrange(10**6)}.25",
            "updated_at": f"2024-06-01 08:{at // 60 % 60:02}:{at % 60:02}",
        }  # fmt: skip
        if old and not random.randrange(10):
            row["email"] = f"customer.{key}.{at}@example.org"
        known[key] = row
        changed = {name: text for name, text in (old or {}).items() if row[name] != text}
        moment = 1_714_521_600_000 + at
        found.append(json.dumps({
            "data": [row], "database": "shop", "table": "customers", "type": "UPDATE" if old else "INSERT", "es": moment,
            "ts": moment, "id": at, "isDdl": False, "mysqlType": types, "old": [changed] if old else None,
            "pkNames": ["id"], "sql": "",
        }, separators=(",", ":")))  # fmt: skip
    return found


def _decoded(how: Lifting, layout: Layout, batches: list[pa.RecordBatch]) -> None:
    """All messages in files of `changes`, none of them refused: refusing would be cheaper."""
    [row] = [page.to_pylist() for page in lift_to_files(how, layout)(iter(batches))]
    if any('"kind": "reject"' in str(one) or "kind=reject" in str(one) for one in row):
        raise StoppedError("messages were refused")


# --- lakes ----------------------------------------------------------------------------------------


def stage(given: Pipeline, *stages: str, warm: Warm | None = None) -> None:
    """Run some stages of a pipeline without Spark."""
    result = run(unstarted(), given, stages, warm)
    if result.failures:
        raise StoppedError("; ".join(result.failures))


def lines(random: Random, keys: range | list[int], kind: str, first: int) -> list[str]:
    """Changes of rows with six columns; ``region`` is EU in a hundredth of them."""
    types = {
        "id": "bigint",
        "region": "varchar",
        "price": "decimal(12,2)",
        "name": "varchar",
        "note": "varchar",
        "seen": "datetime",
    }
    found = []
    for at, key in enumerate(keys, first):
        row = {
            "id": str(key), "region": "EU" if key % 100 == 0 else "US", "price": f"{random.randrange(10**6)}.25",
            "name": f"a name of the usual length {random.randrange(10**6)}", "note": f"a note {at}", "seen": "2024-05-01 08:20:17",
        }  # fmt: skip
        moment = 1_714_521_600_000 + at
        found.append(json.dumps({
            "data": [row], "database": "shop", "table": "orders", "type": kind, "es": moment, "ts": moment, "id": at,
            "isDdl": False, "mysqlType": types, "old": [{"note": "?"}] if kind == "UPDATE" else None, "pkNames": ["id"], "sql": "",
        }))  # fmt: skip
    return found


def pour(folder: Path, number: int, found: list[str]) -> None:
    """The next file of the source."""
    path = folder / f"in-{number:04}.jsonl"
    path.write_text("\n".join(found) + "\n", "utf-8")
    os.utime(path, (time.time() - 36_000 + number,) * 2)


def write(folder: Path, more: str) -> Pipeline:
    """The pipeline."""
    file = folder / "choice.yaml"
    source = "{name: s, kind: files, path: ./in-*.jsonl, format: dts-canal, settle: 1s}"
    file.write_text(
        f"pipeline: choice\nlake: ./lake\nengine: auto\nrewrite_budget: 512MiB\nsources: [{source}]\n{more}",
        "utf-8",
    )
    return load(file)


def within_this_process() -> None:
    """From here on Spark is never needed: this process does it all, and is measured."""
    tasks.LIMITS = dict.fromkeys(tasks.LIMITS, tasks.Limit(tasks.ANY, tasks.ANY))
    planner.CHANGES_AT_MOST = 1 << 40


def based(folder: Path, rows: int, random: Random) -> None:
    """A lake with so many rows in silver, none of them in a mirror yet."""
    within_this_process()
    file = write(folder, "")
    for number, start in enumerate(range(0, rows, SLICE), 1):
        pour(folder, number, lines(random, range(start, min(rows, start + SLICE)), "INSERT", start + 1))
        stage(file, "bronze", "silver")


# --- a filter -------------------------------------------------------------------------------------


def filtered(given: argparse.Namespace) -> int:
    """Gold of a batch of updates, on a mirror of all rows and on one of a hundredth of them."""
    random, found = Random("filter"), list[tuple[float, float, float, float]]()  # noqa: S311 - data, no secrets
    with tempfile.TemporaryDirectory(prefix="choices-") as folder:
        base = Path(folder) / "base"
        base.mkdir()
        based(base, given.rows, random)
        keys = random.sample(range(given.rows), min(given.changed, given.rows))
        shutil.copytree(
            base / "lake", Path(folder) / "lake"
        )  # to begin again; the source's files have one place
        for _ in range(given.rounds):
            times = []
            for more in ("", "tables: [{match: shop.orders, where: \"region = 'EU'\"}]\n"):
                shutil.rmtree(base / "lake")
                shutil.copytree(Path(folder) / "lake", base / "lake")
                (base / "in-9000.jsonl").unlink(missing_ok=True)
                file, warm = write(base, more), Warm()
                times.append(seconds(partial(stage, file, "gold", warm=warm)))
                pour(base, 9_000, lines(random, keys, "UPDATE", given.rows + 1))
                stage(file, "bronze", "silver", warm=warm)
                times.append(seconds(partial(stage, file, "gold", warm=warm)))
            found.append((times[0], times[1], times[2], times[3]))
            print(*(f"{one:.2f}" for one in times), flush=True)
    load_all, batch_all, load_few, batch_few = (min(times) for times in zip(*found, strict=True))
    print(
        f"first load of {given.rows:,} rows: {load_all:.2f} and {load_few:.2f} CPU-s, {load_all / load_few:.1f} times"
    )
    print(
        f"{len(keys):,} updates: {batch_all:.2f} and {batch_few:.2f} CPU-s, {batch_all / batch_few:.1f} times"
    )
    return int(batch_all < 5 * batch_few)


# --- the check of cells ---------------------------------------------------------------------------


def cells(given: argparse.Namespace) -> int:
    """Whole batches of updates, with the check of 200 keys' cells and without it."""
    random, found = Random("cells"), list[tuple[float, float]]()  # noqa: S311 - data, no secrets
    with tempfile.TemporaryDirectory(prefix="choices-") as folder:
        lakes = []
        for number, more in enumerate(("", "quality: [{table: '*', cells_checked: 0}]\n")):
            own = Path(folder) / str(number)
            own.mkdir()
            based(own, given.rows, random)
            lakes.append((own, write(own, more), Warm()))
            stage(lakes[-1][1], "gold", "quality", warm=lakes[-1][2])
        for turn in range(given.rounds + 1):
            keys = random.sample(range(given.rows), given.count)
            first = given.rows + 1 + turn * given.count
            times = []
            for own, file, warm in lakes:
                pour(own, 9_000 + turn, lines(random, keys, "UPDATE", first))
                times.append(seconds(partial(stage, file, "bronze", "silver", "gold", "quality", warm=warm)))
            found.append((times[0], times[1]))
            print(*(f"{one:.2f}" for one in times), flush=True)
    checked, alone = (min(times) for times in zip(*found[1:], strict=True))
    middle = statistics.median(one - other for one, other in found[1:]) / alone
    print(
        f"a batch of {given.count:,} updates, {given.rows:,} rows: {checked:.2f} CPU-s with the check, {alone:.2f} without; "
        f"{checked / alone - 1:.1%} more by the least, {middle:.1%} by the median difference"
    )
    return int(checked >= 1.1 * alone)


if __name__ == "__main__":
    sys.exit(main())
