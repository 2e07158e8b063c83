"""AWS Glue, which moto plays in this process: entries as Athena, Trino and Spark read native Delta tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.catalog.client import CatalogError, ForeignTableError, Mark
from ingest.catalog.entries import Registered, RegisteredColumn
from ingest.catalog.glue import GlueCatalog, reach
from ingest.catalog.names import CatalogName
from ingest.catalog.registrations import CatalogTable
from ingest.change import TableId
from ingest.config.entries import CatalogSettings
from ingest.config.lint import warnings
from ingest.config.read import check
from tests.catalog.shop import Shop

SETTINGS = CatalogSettings("glue", region="eu-west-1")
MARK = Mark("shop", "s3a://bucket/lake")
FIELDS = (
    RegisteredColumn("Id", "BIGINT", "Id", "int64", "the\nkey"),
    RegisteredColumn("price", "DECIMAL(10,2)", "price", "decimal(10,2)", "x" * 300),
    RegisteredColumn("at", "TIMESTAMP_NTZ", "at", "datetime"),
)
ORDERS = CatalogTable(
    "mirrors/shop/orders",
    CatalogName("shop", "orders"),
    Registered(TableId("shop", None, "orders"), "s3a://bucket/lake/mirrors/shop/orders", FIELDS, ("Id",)),
)


@pytest.fixture(autouse=True, scope="module")
def amazon():
    """Its client, and what answers in its place; their imports take a second, which the tests' second process saves."""
    return pytest.importorskip("boto3"), pytest.importorskip("moto")


@pytest.fixture
def glue(monkeypatch, amazon):
    """Glue without a table."""
    boto3, moto = amazon
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with moto.mock_aws():
        yield boto3.client("glue", region_name="eu-west-1")


def told(glue, name: CatalogName) -> dict:
    """A table as Glue has it."""
    return glue.get_table(DatabaseName=name.database, Name=name.table)["Table"]


def test_an_entry_has_what_readers_look_for(glue):
    """Athena looks at table_type and the location, Trino and Spark at the provider and the serde's path."""
    GlueCatalog(SETTINGS, MARK).put(ORDERS)
    table = told(glue, ORDERS.name)
    storage, properties = table["StorageDescriptor"], table["Parameters"]
    assert "EXTERNAL_TABLE" == table["TableType"]
    assert ("DELTA", "delta", "TRUE") == (
        properties["table_type"],
        properties["spark.sql.sources.provider"],
        properties["EXTERNAL"],
    )
    place = "s3://bucket/lake/mirrors/shop/orders"
    assert (place, place) == (storage["Location"], storage["SerdeInfo"]["Parameters"]["path"])
    assert [("id", "bigint"), ("price", "decimal(10,2)"), ("at", "timestamp")] == [
        (column["Name"], column["Type"]) for column in storage["Columns"]
    ]
    comments = [column["Comment"] for column in storage["Columns"]]
    assert ("the key", 255) == (comments[0], len(comments[1]))


def test_a_change_keeps_what_others_have_added(glue):
    """Properties of other tools would be lost with each new column."""
    catalog = GlueCatalog(SETTINGS, MARK)
    catalog.put(ORDERS)
    entry = told(glue, ORDERS.name)
    given = {name: entry[name] for name in ("Name", "TableType", "StorageDescriptor", "Parameters")}
    glue.update_table(
        DatabaseName="shop", TableInput={**given, "Parameters": {**given["Parameters"], "team": "blue"}}
    )
    wider = Registered(ORDERS.entry.table, ORDERS.entry.path, FIELDS[:2], ("Id",))
    catalog.put(CatalogTable(ORDERS.path, ORDERS.name, wider))
    table = told(glue, ORDERS.name)
    assert ("blue", 2) == (table["Parameters"]["team"], len(table["StorageDescriptor"]["Columns"]))
    assert [CatalogTable(ORDERS.path, ORDERS.name, wider).registration] == catalog.registered(
        {"shop", "none"}
    )


def test_another_lakes_table_is_not_touched(glue):
    """Two lakes would take each other's names in turn."""
    GlueCatalog(SETTINGS, Mark("shop", "s3a://bucket/copy")).put(ORDERS)
    catalog = GlueCatalog(SETTINGS, MARK)
    with pytest.raises(
        ForeignTableError, match=r"shop\.orders is there already, registered by lake s3a://bucket/copy"
    ):
        catalog.put(ORDERS)
    catalog.drop(ORDERS.name)
    assert [] == catalog.registered({"shop"})
    assert "s3a://bucket/copy" == told(glue, ORDERS.name)["Parameters"]["ingest.lake"]


def test_a_drop_removes_the_entry_once(glue):
    """A table that somebody has removed already would stop the rest."""
    catalog = GlueCatalog(SETTINGS, MARK)
    catalog.put(ORDERS)
    catalog.drop(ORDERS.name)
    catalog.drop(ORDERS.name)
    assert [] == glue.get_tables(DatabaseName="shop")["TableList"]


def test_what_cannot_be_reached_is_said(monkeypatch):
    """The operator would read a traceback of a library."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    away = CatalogSettings("glue", "http://127.0.0.1:9", region="eu-west-1")
    with pytest.raises(CatalogError, match="Glue did not do what it was asked"):
        GlueCatalog(away, MARK).put(ORDERS)
    with pytest.raises(CatalogError, match="Glue did not do what it was asked"):
        reach(away)


def test_a_region_is_asked_for(monkeypatch):
    """Without one there is nowhere to ask."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    with pytest.raises(CatalogError, match="region"):
        reach(CatalogSettings("glue"))


def test_a_run_registers_in_glue(glue, tmp_path: Path):
    """The pipeline file's kind would lead to another client."""
    shop = Shop(tmp_path, "kind: glue, region: eu-west-1")
    shop.send("people")
    assert [] == shop.run().warnings
    reach(shop.lake.pipeline.catalog)
    assert "mirrors/d/people" == told(glue, CatalogName("d", "people"))["Parameters"]["ingest.mirror"]


def test_a_lake_that_is_not_in_s3_is_pointed_out(tmp_path: Path):
    """Athena would find names without a table behind them."""
    shop = Shop(tmp_path, "kind: glue")
    said = "what reads Glue's tables looks for them in S3, and the lake is"
    assert [f"{shop.file}:6:11 {said} {tmp_path}/lake"] == [
        text for text in warnings(check(shop.file)) if said in text
    ]
    shop.file.write_text(shop.file.read_text("utf-8").replace("./lake", "s3a://bucket/lake"), "utf-8")
    assert [] == [text for text in warnings(check(shop.file)) if said in text]
