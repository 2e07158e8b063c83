"""A Hive metastore of this process, on a free port of this machine, with a database in memory."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ingest.catalog.client import CatalogError, ForeignTableError, Mark
from ingest.catalog.hive import HiveCatalog
from ingest.catalog.registrations import remembered, wanted
from ingest.config import load
from ingest.config.entries import CatalogSettings
from ingest.result import Result
from ingest.run import Warm, run
from tests.catalog.shop import Shop

pytestmark = pytest.mark.spark
EVOLVE = "tables: [{match: '*', on_schema_change: evolve}]\n"


@pytest.fixture(scope="module")
def metastore(spark, tmp_path_factory) -> str:
    """The address of a metastore, which serves until the JVM ends."""
    jvm = spark.sparkContext._jvm
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    name = "org.apache.hadoop.hive.conf.HiveConf"
    conf = getattr(jvm, name)(hadoop, getattr(jvm, "java.lang.Class").forName(name))
    for key, value in {
        "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
        "datanucleus.schema.autoCreateAll": "true",
        "datanucleus.connectionPoolingType": "NONE",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": tmp_path_factory.mktemp("warehouse").as_uri(),
        "hive.metastore.uris": "",
    }.items():
        conf.set(key, value)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    bridge = getattr(jvm, "org.apache.hadoop.hive.shims.ShimLoader").getHadoopThriftAuthBridge()
    serving = getattr(jvm, "org.apache.hadoop.hive.metastore.HiveMetaStore")

    def serve() -> None:
        with contextlib.suppress(Exception):  # the JVM ends
            serving.startMetaStore(port, bridge, conf)

    threading.Thread(target=serve, daemon=True).start()
    for _ in range(600):
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return f"thrift://127.0.0.1:{port}"
        time.sleep(0.1)
    pytest.fail("the metastore does not answer")


def client(spark, shop: Shop) -> HiveCatalog:
    """The metastore as the shop's lake sees it."""
    return HiveCatalog(shop.lake.pipeline.catalog, Mark.of(shop.lake.pipeline), spark)


def ran(spark, shop: Shop) -> Result:
    """A run with Spark at hand."""
    return run(spark, load(shop.file), warm=Warm())


def columns(catalog: HiveCatalog, database: str, table: str) -> list[tuple[str, str]]:
    """The columns that the metastore has, with their types."""
    return [
        (column.getName(), column.getType())
        for column in catalog._client.getTable(database, table).getSd().getCols()
    ]


@pytest.mark.e2e
def test_entries_follow_their_mirrors(spark, metastore, tmp_path: Path):
    """A metastore refuses some changes of types, and a column would keep its former one."""
    shop = Shop(tmp_path, f"kind: hive, uri: '{metastore}'", EVOLVE)
    shop.send("people")
    assert [] == ran(spark, shop).warnings
    catalog = client(spark, shop)
    assert [("id", "bigint"), ("name", "string")] == columns(catalog, "d", "people")
    shop.send(
        "people",
        "ALTER TABLE people ADD COLUMN size INT",
        {"id": "bigint", "name": "varchar(9)", "size": "int"},
    )
    ran(spark, shop)
    assert ("size", "int") == columns(catalog, "d", "people")[-1]
    retyped = {"id": "bigint", "name": "varchar(9)", "size": "varchar(9)"}
    shop.send("people", "ALTER TABLE people MODIFY COLUMN size VARCHAR(9)", retyped)
    ran(spark, shop)
    assert ("size", "string") == columns(catalog, "d", "people")[-1]
    [table] = wanted(shop.lake, remembered(shop.lake)).tables
    fields = tuple(replace(field, delta="INT") for field in table.entry.fields)
    catalog.put(replace(table, entry=replace(table.entry, fields=fields)))
    refused = "the metastore refuses to alter a column so"
    assert {"int"} == {kind for _, kind in columns(catalog, "d", "people")}, refused
    shop.write("tables: [{match: d.people, exclude: true}]\n")
    ran(spark, shop)
    assert [] == catalog.registered({"d", "none"})
    assert (tmp_path / "lake/mirrors/d/people/_delta_log").is_dir()


@pytest.mark.e2e
def test_another_lakes_table_is_not_touched(spark, metastore, tmp_path: Path):
    """Two lakes would take each other's names in turn."""
    shop = Shop(tmp_path, f"kind: hive, uri: '{metastore}', database: theirs")
    shop.send("people")
    ran(spark, shop)
    [table] = wanted(shop.lake, remembered(shop.lake)).tables
    other = HiveCatalog(CatalogSettings("hive", metastore), Mark("other", "/elsewhere"), spark)
    with pytest.raises(ForeignTableError, match=r"theirs\.people is there already"):
        other.put(table)
    other.drop(table.name)
    assert [table.registration] == client(spark, shop).registered({"theirs"})


@pytest.mark.e2e
def test_a_metastore_that_is_away(spark, tmp_path: Path):
    """The run would wait for ten minutes, or end with a trace of Java's."""
    shop = Shop(tmp_path, "kind: hive, uri: 'thrift://127.0.0.1:9'")
    shop.send("people")
    started = time.monotonic()
    result = ran(spark, shop)
    assert 1 == result.touched
    [said] = [text for text in result.warnings if text.startswith("the catalog")]
    assert "the Hive metastore did not connect: " in said
    assert "\n" not in said
    assert time.monotonic() - started < 60
    with pytest.raises(CatalogError, match="did not connect"):
        client(spark, shop)


READ = """
import json, sys
from ingest.spark.session import session
conf = {"spark.sql.catalogImplementation": "hive", "spark.hadoop.hive.metastore.uris": sys.argv[1]}
spark = session("reader", master="local[1]", conf=conf)
print(json.dumps([row.asDict() for row in spark.table("read.people").collect()]))
"""


@pytest.mark.e2e
def test_spark_reads_a_mirror_by_its_name(spark, metastore, tmp_path: Path):
    """An entry that no engine understands is worth nothing."""
    shop = Shop(tmp_path, f"kind: hive, uri: '{metastore}', database: read")
    shop.send("people")
    ran(spark, shop)
    asked = [sys.executable, "-c", READ, metastore]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=300, check=True)
    assert [{"id": 1, "name": "1"}] == json.loads(done.stdout)
