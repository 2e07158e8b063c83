"""What a catalog must be able to do, and what its three kinds share: the marks of our tables, and types of columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from ingest.catalog.names import CatalogName
from ingest.catalog.registrations import CatalogTable, Registration
from ingest.config import Pipeline
from ingest.errors import IngestError

SECONDS = 10.0  # that a catalog may take to answer
_COMMENT = 255  # characters of a comment: Glue's limit, and one less than a Hive metastore's
_PIPELINE, _LAKE, _MIRROR, _DEFINITION = (
    "ingest.pipeline",
    "ingest.lake",
    "ingest.mirror",
    "ingest.definition",
)


class CatalogError(IngestError):
    """A catalog that cannot be reached, or that refuses what it is asked."""

    exit_code = 1


class ForeignTableError(CatalogError):
    """A table of a wanted name is there, and this lake has not registered it."""


class Catalog(Protocol):
    """A catalog as one lake sees it: only tables with the lake's mark are changed or dropped."""

    def registered(self, databases: Collection[str]) -> list[Registration]:
        """The tables in some databases that carry the lake's mark."""

    def put(self, table: CatalogTable) -> None:
        """Create a table with its database, or make it what it is to be; a `ForeignTableError` if it is not the lake's."""

    def drop(self, name: CatalogName) -> None:
        """Remove a table of the lake's from the catalog, whose files stay; nothing if it is gone, or not the lake's."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The properties by which a table is known as this lake's."""

    pipeline: str
    lake: str

    @classmethod
    def of(cls, pipeline: Pipeline) -> Mark:
        """The mark of a pipeline's lake."""
        return cls(pipeline.name, pipeline.lake.rstrip("/"))

    def properties(self, table: CatalogTable) -> dict[str, str]:
        """What a table of the lake carries; readers of Delta know it by the provider."""
        return {
            "spark.sql.sources.provider": "delta",
            "comment": table.entry.title,
            _PIPELINE: self.pipeline,
            _LAKE: self.lake,
            _MIRROR: table.path,
            _DEFINITION: table.registration.definition,
        }

    def owns(self, properties: Mapping[str, str] | None) -> bool:
        """True if a table with these properties was registered by this lake; False for no table."""
        if properties is None:
            return False
        return (properties.get(_PIPELINE), properties.get(_LAKE)) == (self.pipeline, self.lake)

    def registration(self, name: CatalogName, properties: Mapping[str, str]) -> Registration:
        """What is registered, by the properties of a table of the lake."""
        return Registration(properties.get(_MIRROR, ""), name, properties.get(_DEFINITION, ""))

    def refuse_foreign(self, table: CatalogTable, properties: Mapping[str, str]) -> None:
        """Raise a `ForeignTableError` if a table of that name is another one's."""
        if self.owns(properties):
            return
        whose = f"lake {properties[_LAKE]}" if _LAKE in properties else "somebody else"
        raise ForeignTableError(
            f"{table.name} is there already, registered by {whose}, so {table.entry.table} is not: drop or rename that "
            "table, or give the mirrors other names with database: or table: under catalog:"
        )


def comment(text: str) -> str:
    """A comment of one line that every catalog takes."""
    line = "".join(char if char.isprintable() else " " for char in text)
    return line if len(line) <= _COMMENT else f"{line[: _COMMENT - 1]}…"


def hive_columns(table: CatalogTable) -> Iterator[tuple[str, str, str]]:
    """Name, type and comment of each column, as a Hive metastore and Glue write them."""
    for column in table.entry.fields:
        kind = column.delta.lower()
        yield column.name.lower(), "timestamp" if kind == "timestamp_ntz" else kind, comment(column.comment)


INPUT = "org.apache.hadoop.mapred.SequenceFileInputFormat"
OUTPUT = "org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat"
SERDE = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
"""What Spark and Trino themselves write for a Delta table, whose readers look at its log instead."""
