"""The training run of the class archive: a small batch of the work a tick does, so that Java loads its classes.

Run as ``python -m ingest.lake.practice ARCHIVE``; Java writes the archive when it ends, so this waits for that.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession

from ingest.lake.session import new_session, session

_MERGE = """
    MERGE INTO delta.`{target}` AS mirror USING folded ON mirror.id = folded.id
    WHEN MATCHED AND folded.gone THEN DELETE
    WHEN MATCHED THEN UPDATE SET price = folded.price, name = folded.name
    WHEN NOT MATCHED AND NOT folded.gone THEN INSERT (id, price, name) VALUES (id, price, name)
"""
_FOLDED = """
    SELECT image.id, image.price, image.name, gone FROM (
        SELECT *, row_number() OVER (PARTITION BY image.id ORDER BY place DESC) AS rank FROM (
            SELECT id % 7 = 0 AS gone, id AS place,
                   from_json(text, 'id BIGINT, price DECIMAL(38,10), name STRING') AS image
            FROM changes WHERE id >= 0)) WHERE rank = 1
"""


def practise(spark: SparkSession, folder: str) -> None:
    """Write text, carry it through Python, fold it and merge it into a Delta table, twice."""
    raw, changes, target = f"{folder}/raw", f"{folder}/changes", f"{folder}/mirror"
    spark.sql(
        f"CREATE TABLE delta.`{target}` (id BIGINT, price DECIMAL(38,10), name STRING) USING delta "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    for first in (0, 500):
        numbers = spark.range(first, first + 1000)
        text = 'concat(\'{"id": \', id, \', "price": "1.50", "name": "n"}\')'
        numbers.selectExpr("id", f"{text} AS text").write.format("delta").mode("append").save(raw)
        lines = spark.read.format("delta").load(raw).where(f"id >= {first}")
        lines.mapInArrow(_same, "id BIGINT, text STRING").sortWithinPartitions("id").write.format(
            "delta"
        ).mode("append").save(changes)
        beside = new_session(spark)
        beside.read.format("delta").load(changes).createTempView("changes")
        beside.sql(_FOLDED).createTempView("folded")
        beside.sql(_MERGE.format(target=target)).collect()
    spark.read.format("delta").load(target).groupBy("name").count().collect()
    spark.sql(f"DESCRIBE HISTORY delta.`{target}`").collect()
    spark.createDataFrame([(1, "one")], "id INT, name STRING").toPandas()


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def main(archive: str) -> None:
    """Practise once and end Java, which then writes the archive."""
    spark = session("practice", conf={"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={archive}"})
    with tempfile.TemporaryDirectory() as folder:
        practise(spark, folder)
    spark.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    main(sys.argv[1])
