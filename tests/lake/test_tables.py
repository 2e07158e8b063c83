"""Tables read without Spark: the same rows, versions and identifiers as Spark reads of the same folder."""

from __future__ import annotations

import datetime as dt
import json
import shlex
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sqlglot

from ingest.tables import delta, duck
from ingest.tables.delta import UnreadableError
from ingest.tables.lake import of_spark
from ingest.tables.schemas import ALL, BY_NAME
from ingest.tables.tables import LakeReader, duck_types, scan
from tests.lakes import change
from tests.serve.conftest import depot
from tests.written_lake import WrittenLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIMPLE = {"long": "BIGINT", "integer": "INT", "string": "STRING", "binary": "BINARY", "date": "DATE"}


def plain(value: Any) -> Any:
    """A value of either reader in one form."""
    if isinstance(value, float) and value != value:  # noqa: PLR0124 - NaN
        return "NaN"
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC).replace(tzinfo=None)
    if isinstance(value, list):
        return [plain(one) for one in value]
    if hasattr(value, "asDict"):
        return {name: plain(one) for name, one in value.asDict().items()}
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    return value


def read(folder: str, version: int | None = None) -> list[dict[str, Any]]:
    """All rows of a table, as this software reads them without Spark."""
    rows = duck.rows(f"SELECT * FROM {scan(folder, delta.snapshot(folder, version))}")
    return sorted(({name: plain(value) for name, value in row.items()} for row in rows), key=repr)


def read_by_spark(spark: SparkSession, folder: str, version: int | None = None) -> list[dict[str, Any]]:
    """The same through Spark."""
    reading = spark.read.format("delta")
    if version is not None:
        reading = reading.option("versionAsOf", version)
    rows = [row.asDict() for row in reading.load(folder).collect()]
    return sorted(({name: plain(value) for name, value in row.items()} for row in rows), key=repr)


@pytest.mark.e2e
@pytest.mark.spark
def test_a_history_of_many_kinds_of_commits_reads_as_with_spark_at_every_version(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Checkpoints, deletion vectors, new columns, partitions that are NULL or odd, and rewritten files."""
    folder = str(tmp_path / "a table's")
    name = f"delta.`{folder}`"
    spark.sql(
        f"""CREATE TABLE {name} (id BIGINT, exact DECIMAL(38,10), at TIMESTAMP, wall TIMESTAMP_NTZ, day DATE,
        bytes BINARY, f FLOAT, d DOUBLE, odd ARRAY<STRUCT<key: STRING, value: BINARY>>, part STRING) USING delta
        PARTITIONED BY (part) TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', 'delta.checkpointInterval' = '4')"""
    )
    values = """(1, 1234567890123456789012345678.0123456789, TIMESTAMP'2024-02-29 23:59:59.999999Z',
        TIMESTAMP_NTZ'0001-01-01 00:00:00.000001', DATE'9999-12-31', X'00FF', CAST('NaN' AS FLOAT), -0.0D,
        array(named_struct('key', 'k', 'value', X'01')), 'a=b/c d%20')"""
    spark.sql(f"INSERT INTO {name} VALUES {values}")
    spark.sql(f"INSERT INTO {name} SELECT id + 10, exact, at, wall, day, bytes, f, d, odd, NULL FROM {name}")
    spark.range(100, 300).selectExpr("id", "'a=b/c d%20' AS part").coalesce(1).write.format("delta").mode(
        "append"
    ).save(folder)
    spark.sql(f"DELETE FROM {name} WHERE id % 7 = 0 AND id >= 100")
    spark.sql(f"ALTER TABLE {name} ADD COLUMNS (`new one` STRING)".replace("`new one`", "newer"))
    spark.sql(f"UPDATE {name} SET newer = 'it''s' WHERE id BETWEEN 150 AND 160")
    spark.sql(f"DELETE FROM {name} WHERE id = 155")
    spark.sql(f"OPTIMIZE {name}")
    versions = delta.snapshot(folder).version
    assert versions >= 8
    assert list(Path(folder, "_delta_log").glob("*.checkpoint.parquet"))
    for version in range(versions + 1):
        assert read_by_spark(spark, folder, version) == read(folder, version)


def written(folder: Path, rows: int, **options: Any) -> str:
    """A table that another engine wrote, one commit for each row."""
    import pyarrow as pa
    from deltalake import write_deltalake

    for i in range(rows):
        table = pa.table(
            {"id": pa.array([i], pa.int64()), "price": pa.array([Decimal(i)], pa.decimal128(38, 2))}
        )
        write_deltalake(str(folder), table, mode="append", **options)
    return str(folder)


def test_no_folder_and_no_log_is_no_table(tmp_path: Path) -> None:
    """A lake that is not there yet is an answer, not a failure."""
    assert not delta.snapshot(str(tmp_path / "none")).exists
    (tmp_path / "_delta_log").mkdir()
    assert not delta.snapshot(str(tmp_path)).exists


def test_a_checkpoint_by_another_engine_and_its_cleaned_log(tmp_path: Path) -> None:
    """A log whose first commits are gone is read from its checkpoint; what came before is refused, not guessed."""
    from deltalake import DeltaTable

    folder = written(tmp_path / "t", 5)
    DeltaTable(folder).create_checkpoint()
    written(tmp_path / "t", 2)
    for number in range(4):
        (tmp_path / "t/_delta_log" / f"{number:020d}.json").unlink()
    assert 7 == len(read(folder)) == delta.snapshot(folder).rows
    assert 6 == delta.snapshot(folder).version
    with pytest.raises(UnreadableError, match="up to version 2"):
        delta.snapshot(folder, 2)


def test_a_missing_or_torn_commit_is_refused(tmp_path: Path) -> None:
    """A gap in the log would silently leave rows out."""
    folder = written(tmp_path / "t", 4)
    log_folder = tmp_path / "t/_delta_log"
    hole = log_folder / f"{2:020d}.json"
    text = hole.read_bytes()
    hole.unlink()
    with pytest.raises(UnreadableError, match="does not hold all commits"):
        delta.snapshot(folder)
    hole.write_bytes(text[:-20])
    with pytest.raises(UnreadableError, match="damaged"):
        delta.snapshot(folder)
    hole.write_bytes(text)
    assert 4 == len(read(folder))


def test_a_table_made_again_in_the_same_folder_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    """What is kept of a log holds only while its newest commit is the same file."""
    import shutil

    folder = written(tmp_path / "t", 2)
    first = delta.snapshot(folder)
    shutil.rmtree(folder)
    written(tmp_path / "t", 2)
    assert first.table_id != delta.snapshot(folder).table_id


@pytest.mark.parametrize("up", ["../", "%2e%2e/", "x/../../", "", "file://"])
@pytest.mark.parametrize("in_checkpoint", [False, True])
def test_a_data_file_outside_of_its_table_is_not_read(
    tmp_path: Path, up: str, *, in_checkpoint: bool
) -> None:
    """Whoever may write to a lake could show any Parquet file that the service can read, on its SQL page."""
    from deltalake import DeltaTable

    secret = Path(written(tmp_path / "secret", 1))
    file = next(secret.glob("*.parquet"))
    folder = written(tmp_path / "t", 1)
    log = tmp_path / "t/_delta_log" / f"{0:020d}.json"
    path = f"{up}secret/{file.name}" if up.endswith("../") or up == "%2e%2e/" else f"{up}{file}"
    name = next(Path(folder).glob("*.parquet")).name
    log.write_text(log.read_text().replace(name, path))
    if in_checkpoint:
        DeltaTable(folder).create_checkpoint()
    with pytest.raises(UnreadableError, match="outside of its table"):
        read(folder)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("../../secret/" + "0" * 20, "outside of its table"),
        ("%2e%2e/" + "0" * 20, "outside of its table"),
        ("~" * 20, "names no file of a deletion vector"),
        ("", "names no file of a deletion vector"),
    ],
)
def test_a_vector_that_a_log_places_wrongly_is_not_read(tmp_path: Path, place: str, said: str) -> None:
    """Any file that the service can read would be opened, and a damaged name is no fault of this program."""
    folder = written(tmp_path / "t", 1)
    log = tmp_path / "t/_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if added := action.get("add"):
            vector = {"storageType": "u", "pathOrInlineDv": place, "offset": 1}
            added["deletionVector"] = {**vector, "sizeInBytes": 34, "cardinality": 1}
    log.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    with pytest.raises(UnreadableError, match=said):
        delta.refuse_irregular(folder, delta.snapshot(folder).files)


def test_an_unknown_table_feature_is_refused(tmp_path: Path) -> None:
    """What a feature that is not known here means for the rows cannot be known either."""
    folder = written(tmp_path / "t", 1)
    commit = tmp_path / "t/_delta_log" / f"{0:020d}.json"
    text = commit.read_text()
    assert '"minReaderVersion":1' in text
    commit.write_text(
        text.replace('"minReaderVersion":1', '"minReaderVersion":3,"readerFeatures":["variantType"]')
    )
    with pytest.raises(UnreadableError, match="variantType"):
        delta.snapshot(folder)


def test_product_tables_have_the_types_that_their_sql_says() -> None:
    """A column whose type was not read from the text would be missing from every question."""
    for schema in ALL:
        assert schema.ddl.count(" COMMENT '") == len(duck_types(schema))
        duck.rows(f"SELECT {', '.join(f'NULL::{kind}' for kind in duck_types(schema).values())}")


def test_a_text_that_looks_like_a_table_stays_a_text(tmp_path: Path) -> None:
    """A source may be called ``{books}``, and a refused cell may hold any text."""
    from ingest.tables.tables import filled

    query = """SELECT "{ddl}", '{books}', 'it''s {runs}' FROM {books} AS b, {bronze.message} AS m"""
    expected = """SELECT "{ddl}", '{books}', 'it''s {runs}' FROM <books None> AS b, <bronze message> AS m"""
    assert expected == filled(query, lambda name, kind: f"<{name} {kind}>")


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("SELECT epoch_us(event_time) AS moment FROM t", "UNIX_MICROS(event_time)"),
        ("SELECT json_extract_string(after, '/id') AS id FROM t", "FROM_JSON(after"),
        ("SELECT regexp_replace(id, '^(a)', '\\1b') AS id FROM t", "'$1b'"),
        ("SELECT arg_max(k, place) AS k FROM t", "MAX_BY(k, place)"),
    ],
)
def test_what_duckdb_writes_otherwise_is_asked_in_spark_s_words(written: str, asked: str) -> None:
    """A store that only Hadoop reaches has no other engine, and a function that it lacks ends every check there."""
    assert asked in of_spark(sqlglot.parse_one(written, read="duckdb"))


def test_a_query_that_names_columns_gets_them_as_of_all(tmp_path: Path) -> None:
    """Only columns that a query names are looked up; one left out too many would be an error, or NULL."""
    lake = depot(tmp_path, batches=2).reader
    asked = {one.name: lake.ask(f"SELECT * FROM {{{one.name}}}") for one in ALL}
    assert {"changes", "books", "checks", "runs", "ddl", "rejects", "bronze"} <= {
        name for name, rows in asked.items() if rows
    }
    for name, rows in asked.items():
        assert [{"n": len(rows)}] == lake.ask(f"SELECT count(*) AS n FROM {{{name}}}")
        for column in duck_types(BY_NAME[name]):
            expected = sorted(repr(row[column]) for row in rows)
            for written in (duck.name(column), duck.name(column.upper())):
                found = lake.ask(f"SELECT {written} AS c FROM {{{name}}} AS t")
                assert expected == sorted(repr(row["c"]) for row in found), (name, written)
    messages = lake.ask("SELECT t.* FROM {bronze.message} AS t")
    assert sorted(duck_types(BY_NAME["bronze"])) == sorted(messages[0])


def test_an_answer_is_remembered_for_as_long_as_its_files_are_the_table(tmp_path: Path) -> None:
    """A page asks the same several times; after a commit it must not be given what was."""
    made = depot(tmp_path, batches=2)
    lake = made.reader
    query = "SELECT batch FROM {runs} ORDER BY batch"
    first = lake.ask(query)
    count = len(first)
    first[0]["batch"] = -1
    first.pop()
    again = lake.ask(query)
    assert (count, 1) == (len(again), again[0]["batch"])
    made.take([change("INSERT", "bins", 9500, {"id": "77", "word": "x"})])
    assert count < len(lake.ask(query))


def test_commands_are_led_to_the_file_in_sentences_alone(tmp_path: Path) -> None:
    """A cell of JSON was no JSON any more where the file's path has an apostrophe."""
    made = WrittenLake(tmp_path / "it's here")
    said = "see `ingest explain /app/p.yaml depot.bins 1`"
    cell = json.dumps([said, '"'])
    made.product("checks", [made.check("depot.bins", "rows", 1.0, "warn", said) | {"failing": cell}])
    reader = LakeReader(made.pipeline)
    [row] = reader.ask("SELECT * FROM {checks}")
    assert (cell, said.replace("/app/p.yaml", shlex.quote(str(made.file)))) == (row["failing"], row["detail"])
    [row] = reader.recorded("SELECT detail FROM {checks}")
    assert said == row["detail"]
