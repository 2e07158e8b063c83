"""Messages a second and core, format by format: ``python benchmarks/decode.py [--count N] [--write]``.

Two figures per format: the bare parser in plain Python, and inside Spark the lift to all columns of
``changes`` with its checks and books (`mapInArrow`, one core, nothing written). Beside them what people
would write without this product, over the same messages as one format's. Rows of six columns, about 540
bytes as Canal writes them. Processor time of this process, or wall time of a warm Spark on one core.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from ingest import formats
from ingest.change import Hints, Message, TableId
from ingest.config import Pipeline
from ingest.config.model import Source, TableRule
from tests.formats.one_history.history import KEYS, TYPES, Event, History
from tests.formats.one_history.test_one_history import DIALECTS

RESULTS = Path(__file__).with_name("results-decode.md")
COLUMNS = (*KEYS, "worth", "remark", "packed_at", "seen_at")
BESIDE = "dts-canal"  # the format whose messages the other ways read
ROUNDS = 3
TIMES = 5  # how often Spark reads each message, so that starting a job does not count for much
_TYPED = """database string, table string, type string, es bigint, id bigint,
    data array<struct<id: bigint, lane: string, worth: decimal(38,10), remark: string, packed_at: string, seen_at: string>>,
    old array<struct<id: bigint, lane: string, worth: decimal(38,10), remark: string, packed_at: string, seen_at: string>>"""
_PATHS = ("database", "table", "type", "es", "id", "data[0].id", "data[0].worth", "data[0].remark")


@dataclass(slots=True)
class Figures:
    """One line of the table: bytes of a message, and messages a second."""

    name: str
    size: int
    bare: float | None = None
    spark: float | None = None


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="messages of each format")
    parser.add_argument("--only", nargs="*", default=list(formats.names()), help="these formats")
    parser.add_argument("--no-spark", action="store_true", help="the bare parsers alone")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name} too")
    options = parser.parse_args()
    figures = measure(options.only, options.count, spark=not options.no_spark)
    print(text := table(figures, options.count))
    if options.write:
        RESULTS.write_text(
            f"# Decoding, measured\n\n{(__doc__ or '').partition(chr(10))[2].strip()}\n\n{text}\n"
        )


def measure(names: list[str], count: int, *, spark: bool) -> list[Figures]:
    """All figures, format by format."""
    sent = {name: messages(name, count) for name in dict.fromkeys([*names, BESIDE])}
    figures = [Figures(name, size(sent[name]), bare(name, sent[name])) for name in names]
    figures.append(Figures("orjson.loads alone", size(sent[BESIDE]), _orjson(sent[BESIDE])))
    if spark:
        figures += in_spark(figures[:-1], sent)
    return figures


def messages(name: str, count: int) -> list[Message]:
    """Inserts, updates and deletes, as the format's plain dialect writes them."""
    random = Random(name)  # noqa: S311 - data, no secrets
    return [each for each in DIALECTS[name].write(History(0, list(_events(count, random)))) if each.value]


def _events(count: int, random: Random) -> Iterator[Event]:
    columns = tuple(name for name in TYPES if name in COLUMNS)
    for number in range(1, count + 1):
        after = _row(number, random)
        kind = random.choices(("insert", "update", "delete"), (25, 65, 10))[0]
        before = None if kind == "insert" else {**after, "remark": f"what it was called before {number}"}
        moment = 1_714_550_400_000 + number * 7_000
        yield Event(number, moment, 1, kind, before, None if kind == "delete" else after, columns)


def _row(number: int, random: Random) -> dict[str, str | None]:
    return {
        "id": str(number % 100_000),
        "lane": "northern lane",
        "worth": f"{random.randrange(10**9)}.{random.randrange(10**10):010d}",
        "remark": f"a parcel of the usual size, number {number}",
        "packed_at": "2024-05-01 08:20:17",
        "seen_at": f"2024-05-01T08:20:{number % 60:02d}Z",
    }


def size(sent: list[Message]) -> int:
    """Bytes of an average message."""
    return sum(len(each.value or b"") for each in sent) // len(sent)


# --- plain Python -------------------------------------------------------------------------------


def bare(name: str, sent: list[Message]) -> float:
    """Messages a second of a format's parser."""
    parse, hints = formats.load(name).parse, DIALECTS[name].hints

    def run() -> None:
        for each in sent:
            parse(each, hints)

    return _rate(run, len(sent), time.process_time)


def _orjson(sent: list[Message]) -> float:
    import orjson

    values = [each.value or b"" for each in sent]

    def run() -> None:
        for value in values:
            orjson.loads(value)

    return _rate(run, len(sent), time.process_time)


def _rate(run: Callable[[], object], count: int, clock: Callable[[], float]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        started = clock()
        run()
        best = min(best, clock() - started)
    return count / best


# --- Spark --------------------------------------------------------------------------------------


def in_spark(figures: list[Figures], sent: dict[str, list[Message]]) -> list[Figures]:
    """Fill in the lift's figures; the other ways as lines of their own."""
    from ingest.lake import session

    spark = session.session("decode-benchmark", master="local[1]")
    try:
        with tempfile.TemporaryDirectory() as folder:
            for each in figures:
                landed = _landed(spark, folder, each.name, sent[each.name])
                each.spark = _lifted(spark, landed, each.name, len(sent[each.name]))
            return _other_ways(_landed(spark, folder, "beside", sent[BESIDE]), sent[BESIDE])
    finally:
        session.stop(spark)


def _landed(spark: Any, folder: str, name: str, sent: list[Message]) -> Any:
    """The messages as bronze holds them, in one Parquet file that is read again in each round."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    count = len(sent)
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    columns = {
        "batch": pa.array([1] * count, pa.int64()),
        "source": pa.array(["s"] * count),
        "topic": pa.array(["t"] * count),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
        "key": pa.array([each.key for each in sent], pa.binary()),
        "value": pa.array([each.value for each in sent], pa.binary()),
        "headers": pa.array([None] * count, headers),
    }
    path = f"{folder}/{name}.parquet"
    pq.write_table(pa.table(columns), path)
    return spark.read.parquet(*[path] * TIMES)


def _lifted(spark: Any, landed: Any, name: str, count: int) -> float:
    from ingest.lake.schemas import CHANGES
    from ingest.silver.lift import INPUT, Lifting, lift

    lifting = Lifting(_pipeline(name), schemas={"s": _schemas(name)})
    schema = spark.createDataFrame([], CHANGES.ddl).schema
    lifted = landed.select(*INPUT).mapInArrow(lift(lifting), schema)
    assert not lifted.where("kind = 'reject'").count()  # else refusing would be measured
    return _noop(lifted, count)


def _noop(frame: Any, count: int) -> float:
    def run() -> None:
        frame.write.format("noop").mode("overwrite").save()

    return _rate(run, count * TIMES, time.perf_counter)


def _pipeline(name: str) -> Pipeline:
    """A pipeline with what the dialect's source must be told."""
    hints: Hints = DIALECTS[name].hints
    told = hints.tables(TableId(None, None, None))
    rule = TableRule(keys=told.keys, columns=told.columns)
    source = Source("s", "files", name, options=hints.options, path="/none")
    return Pipeline("b", Path("/none.yaml"), "/none", (source,), (rule,))


def _schemas(name: str) -> dict[int, str]:
    schema = DIALECTS[name].hints.schema
    return {number: schema(number) for number in range(1, 5)} if schema else {}


def _other_ways(landed: Any, sent: list[Message]) -> list[Figures]:
    from pyspark.sql import functions as functions_

    text = functions_.col("value").cast("string")
    ways = {
        "from_json, typed": [functions_.from_json(text, _TYPED).alias("row")],
        "get_json_object, eight of them": [
            functions_.get_json_object(text, f"$.{path}").alias(f"c{i}") for i, path in enumerate(_PATHS)
        ],
    }
    return [
        Figures(name, size(sent), None, _noop(landed.select(*columns), len(sent)))
        for name, columns in ways.items()
    ]


# --- the table ----------------------------------------------------------------------------------


def table(figures: list[Figures], count: int) -> str:
    """The figures as Markdown."""
    lines = [
        "| format or way | bytes | parser alone, messages/s | inside Spark, messages/s/core |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {each.name} | {each.size} | {_figure(each.bare)} | {_figure(each.spark)} |" for each in figures
    ]
    return "\n".join([*lines, "", f"{count:,} messages of each format; the best of {ROUNDS} rounds."])


def _figure(rate: float | None) -> str:
    return "" if rate is None else f"{round(rate, -2):,.0f}"


if __name__ == "__main__":
    main()
