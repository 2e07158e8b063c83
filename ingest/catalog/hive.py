"""A Hive metastore, by the client that Spark brings with it: the session's own catalog is left as it is.

With `spark.sql.catalogImplementation: hive` each table that Spark opens would ask the metastore, and none would be read while
it is away. Spark and Trino know a Delta table there by `spark.sql.sources.provider`, and its folder by the serde's `path`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from ingest.catalog.client import INPUT, OUTPUT, SECONDS, SERDE, CatalogError, Mark, comment, hive_columns
from ingest.catalog.names import CatalogName
from ingest.catalog.registrations import CatalogTable, Registration
from ingest.config.entries import CatalogSettings
from ingest.errors import first_line

_CONF = "org.apache.hadoop.hive.conf.HiveConf"
_API = "org.apache.hadoop.hive.metastore.api"
_SETTINGS = {
    "hive.metastore.client.socket.timeout": f"{SECONDS:.0f}s",
    "hive.metastore.connect.retries": "1",
    "hive.metastore.failure.retries": "0",
    "hive.metastore.client.connect.retry.delay": "1s",
}
_MISSING = "NoSuchObjectException"
_TOO_DIFFERENT = (
    "InvalidOperationException"  # of a column's type that the metastore does not let become another
)


class HiveCatalog:
    """A metastore that is asked by Thrift, with Hadoop's settings of the session (`spark.hadoop.*`)."""

    def __init__(self, settings: CatalogSettings, mark: Mark, spark: SparkSession) -> None:
        self._mark = mark
        self._jvm: Any = spark.sparkContext._jvm
        hadoop = spark.sparkContext._jsc.hadoopConfiguration()
        conf = self._made(_CONF, hadoop, getattr(self._jvm, "java.lang.Class").forName(_CONF))
        for name, value in {**_SETTINGS, "hive.metastore.uris": settings.uri}.items():
            conf.set(name, value)
        with _said("connect"):
            self._client = self._made("org.apache.hadoop.hive.metastore.HiveMetaStoreClient", conf)

    def registered(self, databases: Collection[str]) -> list[Registration]:
        """As `Catalog.registered`."""
        marked = []
        with _said("list tables"):
            there = set(self._client.getAllDatabases())
            for database in sorted(there.intersection(databases)):
                names = self._client.getAllTables(database)
                for table in self._client.getTableObjectsByName(database, names):
                    properties = dict(table.getParameters() or {})
                    if self._mark.owns(properties):
                        name = CatalogName(database, table.getTableName())
                        marked.append(self._mark.registration(name, properties))
        return marked

    def put(self, table: CatalogTable) -> None:
        """As `Catalog.put`."""
        with _said(f"register {table.name}"):
            entry = self._table(table.name)
            if entry is None:
                self._ensure_database(table.name.database)
                self._client.createTable(self._described(table))
                return
            self._mark.refuse_foreign(table, dict(entry.getParameters() or {}))
            try:
                self._client.alter_table(*table.name, self._described(table))
            except Py4JJavaError as error:
                if not _is_of(error, _TOO_DIFFERENT):
                    raise
                self._client.dropTable(*table.name, False, True)
                self._client.createTable(self._described(table))

    def drop(self, name: CatalogName) -> None:
        """As `Catalog.drop`."""
        with _said(f"remove {name}"):
            entry = self._table(name)
            if entry is not None and self._mark.owns(dict(entry.getParameters() or {})):
                self._client.dropTable(*name, False, True)  # keeps the files, minds no table

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def _table(self, name: CatalogName) -> Any:
        """A table; None if there is none."""
        try:
            return self._client.getTable(*name)
        except Py4JJavaError as error:
            if _is_of(error, _MISSING):
                return None
            raise

    def _ensure_database(self, name: str) -> None:
        try:
            self._client.getDatabase(name)
        except Py4JJavaError as error:
            if not _is_of(error, _MISSING):
                raise
            database = self._made(_API + ".Database")
            database.setName(name)
            database.setDescription(f"mirrors of pipeline {self._mark.pipeline}")
            database.setParameters(self._made("java.util.HashMap"))
            self._client.createDatabase(database)

    def _described(self, table: CatalogTable) -> Any:
        serde = self._made(_API + ".SerDeInfo")
        serde.setSerializationLib(SERDE)
        serde.setParameters(self._map({"serialization.format": "1", "path": table.location}))
        storage = self._made(_API + ".StorageDescriptor")
        storage.setLocation(table.location)
        storage.setInputFormat(INPUT)
        storage.setOutputFormat(OUTPUT)
        storage.setSerdeInfo(serde)
        storage.setNumBuckets(-1)
        storage.setBucketCols(self._made("java.util.ArrayList"))
        storage.setSortCols(self._made("java.util.ArrayList"))
        storage.setParameters(self._map({}))
        columns = self._made("java.util.ArrayList")
        for name, kind, said in hive_columns(table):
            columns.add(self._made(_API + ".FieldSchema", name, kind, said))
        storage.setCols(columns)
        described = self._made(_API + ".Table")
        described.setDbName(table.name.database)
        described.setTableName(table.name.table)
        described.setTableType("EXTERNAL_TABLE")
        described.setSd(storage)
        described.setPartitionKeys(self._made("java.util.ArrayList"))
        properties = {
            "EXTERNAL": "TRUE",
            **self._mark.properties(table),
            "comment": comment(table.entry.title),
        }
        described.setParameters(self._map(properties))
        return described

    def _made(self, kind: str, *given: object) -> Any:
        """A Java object, its class by full name: with chained access py4j would search every jar for each package."""
        return getattr(self._jvm, kind)(*given)

    def _map(self, values: dict[str, str]) -> Any:
        made = self._made("java.util.HashMap")
        for name, value in values.items():
            made.put(name, value)
        return made


def _is_of(error: Py4JJavaError, kind: str) -> bool:
    return bool(error.java_exception.getClass().getSimpleName() == kind)


@contextmanager
def _said(asked: str) -> Iterator[None]:
    try:
        yield
    except Py4JError as error:
        said = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
        raise CatalogError(f"the Hive metastore did not {asked}: {first_line(said)}") from None
