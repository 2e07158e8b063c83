"""AWS Glue's data catalog: tables as Athena, Trino and Spark read native Delta tables there.

Document: AWS Glue API, `CreateTable` and `TableInput`; Athena's manual, "Query Linux Foundation Delta Lake tables": the
location is all that it takes of the entry, the columns come from Delta's log; `table_type` DELTA is how it knows the table.
Credentials are those that AWS' own clients find.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from ingest.catalog.client import INPUT, OUTPUT, SECONDS, SERDE, CatalogError, Mark, comment, hive_columns
from ingest.catalog.names import CatalogName
from ingest.catalog.registrations import CatalogTable, Registration
from ingest.config.entries import CatalogSettings
from ingest.errors import first_line

_SCHEMES = ("s3a://", "s3n://")  # Hadoop's names of s3://, which Athena does not know


class GlueCatalog:
    """Glue's catalog of one account and region."""

    def __init__(self, settings: CatalogSettings, mark: Mark) -> None:
        self._mark = mark
        self._glue = _client(settings)
        self._account = {"CatalogId": settings.catalog} if settings.catalog else {}

    def registered(self, databases: Collection[str]) -> list[Registration]:
        """As `Catalog.registered`."""
        marked = []
        with _said("GetTables"):
            for database in sorted(databases):
                for table in self._tables(database):
                    properties = table.get("Parameters", {})
                    if self._mark.owns(properties):
                        name = CatalogName(database, table["Name"])
                        marked.append(self._mark.registration(name, properties))
        return marked

    def _tables(self, database: str) -> Iterator[dict[str, Any]]:
        try:
            for page in self._glue.get_paginator("get_tables").paginate(
                DatabaseName=database, **self._account
            ):
                yield from page["TableList"]
        except self._glue.exceptions.EntityNotFoundException:
            return

    def put(self, table: CatalogTable) -> None:
        """As `Catalog.put`."""
        given: dict[str, Any] = {
            "DatabaseName": table.name.database,
            "TableInput": self._input(table),
            **self._account,
        }
        with _said("CreateTable"):
            properties = self._properties(table.name)
            if properties is not None:
                self._mark.refuse_foreign(table, properties)
                given["TableInput"]["Parameters"] = properties | given["TableInput"]["Parameters"]
                self._glue.update_table(**given)
                return
            try:
                self._glue.create_table(**given)
            except self._glue.exceptions.EntityNotFoundException:
                database = {
                    "Name": table.name.database,
                    "Description": f"mirrors of pipeline {self._mark.pipeline}",
                }
                self._glue.create_database(DatabaseInput=database, **self._account)
                self._glue.create_table(**given)

    def drop(self, name: CatalogName) -> None:
        """As `Catalog.drop`."""
        with _said("DeleteTable"):
            properties = self._properties(name)
            if self._mark.owns(properties):
                self._glue.delete_table(DatabaseName=name.database, Name=name.table, **self._account)

    def _properties(self, name: CatalogName) -> dict[str, str] | None:
        """The properties of a table; None if there is none."""
        try:
            answer = self._glue.get_table(DatabaseName=name.database, Name=name.table, **self._account)
        except self._glue.exceptions.EntityNotFoundException:
            return None
        properties: dict[str, str] = answer["Table"].get("Parameters", {})
        return properties

    def _input(self, table: CatalogTable) -> dict[str, Any]:
        location = table.location
        for scheme in _SCHEMES:
            if location.startswith(scheme):
                location = f"s3://{location.removeprefix(scheme)}"
        return {
            "Name": table.name.table,
            "Description": comment(table.entry.title),
            "TableType": "EXTERNAL_TABLE",
            "Parameters": {"EXTERNAL": "TRUE", "table_type": "DELTA", **self._mark.properties(table)},
            "StorageDescriptor": {
                "Columns": [
                    {"Name": name, "Type": kind, "Comment": said} for name, kind, said in hive_columns(table)
                ],
                "Location": location,
                "InputFormat": INPUT,
                "OutputFormat": OUTPUT,
                "SerdeInfo": {
                    "SerializationLibrary": SERDE,
                    "Parameters": {"serialization.format": "1", "path": location},
                },
            },
        }


def reach(settings: CatalogSettings) -> None:
    """Raise a `CatalogError` if Glue does not answer, or refuses."""
    glue = _client(settings)
    account = {"CatalogId": settings.catalog} if settings.catalog else {}
    with _said("GetDatabases"):
        glue.get_databases(MaxResults=1, **account)


def _client(settings: CatalogSettings) -> Any:
    try:
        import boto3
        from botocore.config import Config  # type: ignore[import-untyped]
        from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]
    except ImportError:
        raise CatalogError("the package boto3 is missing: type `pip install 'ingest[glue]'`") from None
    patience = Config(connect_timeout=SECONDS, read_timeout=SECONDS, retries={"total_max_attempts": 2})
    try:
        return boto3.client(
            "glue",
            region_name=settings.region or None,
            endpoint_url=settings.uri or None,
            config=patience,
        )
    except (BotoCoreError, ValueError) as error:  # no region; an address that is none
        raise CatalogError(f"Glue cannot be asked: {first_line(error)}") from None


@contextmanager
def _said(asked: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise CatalogError(f"Glue did not do what it was asked ({asked}): {first_line(error)}") from None
