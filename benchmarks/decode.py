"""Messages a second and core, format by format: ``python -m benchmarks.decode [--count N] [--write]``.

Four figures per format, all of processor time: the parser alone; the lift to all columns of ``changes`` with its
checks and books, of rows in which nothing needs converting (text, numbers) and of rows with moments too; and the
latter inside Spark (`mapInArrow`, scan and both ways between Spark and Python included, nothing written, the whole
process tree counted). Next to them what people would write without this product, over the same messages as one
format's, and the ratio to the fastest of those ways. Rows of six columns, about 600 bytes as Canal writes them.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import psutil

from benchmarks.tree import cpu
from ingest import formats
from ingest.change import Hints, Message, TableId
from ingest.config import Pipeline
from ingest.config.model import Source, TableRule
from tests.formats.one_history.debezium import registry
from tests.formats.one_history.history import KEYS, TYPES, Event, History
from tests.formats.one_history.test_one_history import DIALECTS

RESULTS = Path(__file__).with_name("results-decode.md")
MOMENTS = (*KEYS, "worth", "remark", "packed_at", "seen_at")
PLAIN = (*KEYS, "worth", "remark", "letter", "desk")
COMPARED = "dts-canal"  # the format whose messages the other ways read
BATCH = 500  # messages of an Arrow batch, as sessions are set
ROUNDS = 3
TIMES = 5  # how often Spark reads each message, so that starting a job does not count for much
_ROW = "struct<id: bigint, lane: string, worth: decimal(38,10), remark: string, packed_at: string, seen_at: string>"
_TYPED = f"""database string, table string, type string, es bigint, id bigint,
    data array<{_ROW}>, old array<{_ROW}>"""
_PATHS = ("database", "table", "type", "es", "id", "data[0].id", "data[0].worth", "data[0].remark")


@dataclass(slots=True)
class Figures:
    """One line of the table: bytes of a message, and messages a second."""

    name: str
    size: int
    parser: float | None = None
    plain: float | None = None
    lift: float | None = None
    spark: float | None = None


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="messages of each format")
    parser.add_argument("--only", nargs="*", default=list(formats.names()), help="these formats")
    parser.add_argument("--no-spark", action="store_true", help="without Spark")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name} too")
    options = parser.parse_args()
    if options.write and options.no_spark:
        parser.error(f"--write wants Spark: {RESULTS.name} would lose its figures")
    begun = machine()
    figures = measure(options.only, options.count, spark=not options.no_spark)
    print(text := f"{begun}\n\n{table(figures, options.count)}")
    if options.write:
        about = (__doc__ or "").partition("\n")[2].strip()
        RESULTS.write_text(f"# Decoding, measured\n\n{about}\n\n{text}\n", encoding="utf-8")


def machine() -> str:
    """What the figures were measured on, and when."""
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    return (
        f"{dt.datetime.now(dt.UTC):%Y-%m-%d}, {os.cpu_count()} cores of {platform.machine()}, "
        f"Python {platform.python_version()}, load before the run {load} (other work shares the machine)."
    )


def measure(names: list[str], count: int, *, spark: bool) -> list[Figures]:
    """All figures, format by format."""
    sent = {name: messages(name, count, MOMENTS) for name in dict.fromkeys([*names, COMPARED])}
    figures = []
    for name in names:
        found = Figures(name, size(sent[name]), alone(name, sent[name]))
        found.plain = lifted(pipeline(name, declared=False), name, messages(name, count, PLAIN))
        found.lift = lifted(pipeline(name), name, sent[name])
        figures.append(found)
    compared = sent[COMPARED]
    others = [Figures("orjson.loads alone", size(compared), _orjson(compared))]
    if spark:
        others += in_spark(figures, sent)
    return figures + others


def messages(name: str, count: int, columns: tuple[str, ...]) -> list[Message]:
    """Inserts, updates and deletes, as the format's plain dialect writes them."""
    random = Random(name)  # noqa: S311 - data, no secrets
    written = History(0, list(_events(count, random, columns)))
    return [each for each in DIALECTS[name].write(written) if each.value]


def _events(count: int, random: Random, wanted: tuple[str, ...]) -> Iterator[Event]:
    columns = tuple(name for name in TYPES if name in wanted)
    for number in range(1, count + 1):
        row = _row(number, random)
        after = {name: row[name] for name in columns}
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
        "letter": None if number % 3 else "the letter beside it",
        "desk": "beside the window",
    }


def size(sent: list[Message]) -> int:
    """Bytes of an average message."""
    return sum(len(each.value or b"") for each in sent) // len(sent)


# --- plain Python -------------------------------------------------------------------------------


def alone(name: str, sent: list[Message]) -> float:
    """Messages a second of a format's parser."""
    parse, hints = formats.load(name).parse, DIALECTS[name].hints

    def run() -> None:
        for each in sent:
            parse(each, hints)

    return _rate(run, len(sent), time.process_time)


def lifted(pipe: Pipeline, name: str, sent: list[Message]) -> float:
    """Messages a second from bronze's columns to those of ``changes``."""
    from ingest.silver.lift import lift

    lifting = _lifting(pipe, name)
    batches = landed(sent).to_batches(max_chunksize=BATCH)
    for page in lift(lifting)(iter(batches)):
        assert "reject" not in page["kind"].to_pylist()  # else refusing would be measured
    return _rate(lambda: list(lift(lifting)(iter(batches))), len(sent), time.process_time)


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


def landed(sent: list[Message]) -> Any:
    """The messages as bronze holds them."""
    import pyarrow as pa

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
    return pa.table(columns)


def pipeline(name: str, *, declared: bool = True) -> Pipeline:
    """A pipeline with the keys that the dialect needs; ``declared`` gives it the columns' types too."""
    hints: Hints = DIALECTS[name].hints
    hinted = hints.tables(TableId(None, None, None))
    rule = TableRule(keys=hinted.keys, columns=hinted.columns if declared else {})
    source = Source("s", "files", name, options=hints.options, path="/none")
    return Pipeline("b", Path("/none.yaml"), "/none", (source,), (rule,))


def _lifting(pipe: Pipeline, name: str) -> Any:
    from ingest.silver.lift import Lifting

    schemas = dict(registry()) if DIALECTS[name].hints.schema else {}
    return Lifting(pipe, schemas={"s": schemas})


# --- Spark --------------------------------------------------------------------------------------


def in_spark(figures: list[Figures], sent: dict[str, list[Message]]) -> list[Figures]:
    """Fill in the lift's figures; the other ways as lines of their own."""
    from ingest.spark import session

    spark = session.session("decode-benchmark", master="local[1]")
    try:
        with tempfile.TemporaryDirectory() as folder:
            others = _read(spark, folder, "others", sent[COMPARED])
            _other_ways(others, sent[COMPARED])  # a cold Spark spends its time on compiling
            for each in figures:
                frame = _read(spark, folder, each.name, sent[each.name])
                each.spark = _lifted(spark, frame, each.name, len(sent[each.name]))
            return _other_ways(others, sent[COMPARED])
    finally:
        session.stop(spark)


def _read(spark: Any, folder: str, name: str, sent: list[Message]) -> Any:
    """Messages in one Parquet file that is read again in each round."""
    import pyarrow.parquet as pq

    path = f"{folder}/{name}.parquet"
    pq.write_table(landed(sent), path)
    return spark.read.parquet(*[path] * TIMES)


def _lifted(spark: Any, frame: Any, name: str, count: int) -> float:
    from ingest.silver.lift import INPUT, lift
    from ingest.tables.schemas import CHANGES

    schema = spark.createDataFrame([], CHANGES.ddl).schema
    return _noop(frame.select(*INPUT).mapInArrow(lift(_lifting(pipeline(name), name)), schema), count)


def _noop(frame: Any, count: int) -> float:
    def run() -> None:
        frame.write.format("noop").mode("overwrite").save()

    return _rate(run, count * TIMES, lambda: cpu(psutil.Process()))


def _other_ways(frame: Any, sent: list[Message]) -> list[Figures]:
    from pyspark.sql import functions as functions_

    text = functions_.col("value").cast("string")
    eight = [functions_.get_json_object(text, f"$.{path}").alias(f"c{i}") for i, path in enumerate(_PATHS)]
    ways = {
        "from_json, typed": frame.select(functions_.from_json(text, _TYPED).alias("row")),
        "get_json_object, eight of them": frame.select(*eight),
        "mapInArrow, nothing done": frame.mapInArrow(_same, frame.schema),
    }
    return [Figures(name, size(sent), spark=_noop(way, len(sent))) for name, way in ways.items()]


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    return batches


# --- the table ----------------------------------------------------------------------------------


def table(figures: list[Figures], count: int) -> str:
    """The figures as Markdown."""
    typed = next((each.spark for each in figures if each.name == "from_json, typed"), None)
    lines = [
        "| format or way | bytes | parser alone | lift, nothing converted | lift | inside Spark | to typed from_json |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in figures:
        rates = " | ".join(map(_figure, (each.parser, each.plain, each.lift, each.spark)))
        ratio = f"{each.spark / typed:.2f}" if each.spark and typed else ""
        lines.append(f"| {each.name} | {each.size} | {rates} | {ratio} |")
    note = f"Messages a second of processor time; {count:,} messages of each format; the best of {ROUNDS} rounds."
    return "\n".join([*lines, "", note])


def _figure(rate: float | None) -> str:
    return "" if rate is None else f"{round(rate, -2):,.0f}"


if __name__ == "__main__":
    main()
