"""Names of mirrors in a catalog: lower case, of letters, digits and ``_``, and no two mirrors with one name."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ingest.change import TableId
from ingest.config.entries import CatalogSettings

_MOST = 100  # characters of a name; catalogs that sit on a database allow 128


class CatalogName(NamedTuple):
    """A table's place in a catalog; Spark and AWS say database, Unity Catalog and Trino say schema."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


def plain(name: str) -> str:
    """A name of ASCII letters, digits and ``_``; what it has beyond these becomes ``_x`` and its code point in hex."""
    plain_name = re.sub(r"[^A-Za-z0-9_]", lambda match: f"_x{ord(match[0]):02x}", name)
    if len(plain_name) > _MOST:
        plain_name = f"{plain_name[:80]}_{short_hash(name)}"
    return plain_name or "_x"


def short_hash(text: str, length: int = 8) -> str:
    """So many hex digits of a text's hash, for a name that is taken or too long."""
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:length]


def assigned(
    tables: Mapping[str, TableId], settings: CatalogSettings, registered: Mapping[str, CatalogName]
) -> dict[str, CatalogName]:
    """The name of each mirror, by its path.

    A mirror keeps its name while the rule gives it: a new one whose name is taken gets a hash of its path as a suffix.

    Args:
        tables: the mirrors' names, by their paths under the lake.
        settings: the rule of names.
        registered: the names that mirrors have already, by path.
    """
    possible = {path: list(_possible(path, table, settings)) for path, table in tables.items()}
    keeping = {path: name for path, name in registered.items() if name in possible.get(path, ())}
    names: dict[str, CatalogName] = dict(keeping)
    taken = set(keeping.values())
    for path in sorted(tables.keys() - keeping.keys(), key=lambda path: (str(tables[path]), path)):
        names[path] = next(name for name in possible[path] if name not in taken)
        taken.add(names[path])
    return names


def _possible(path: str, table: TableId, settings: CatalogSettings) -> Iterator[CatalogName]:
    """The name by the rule, and what it becomes where it is taken."""
    parts = {name: part or "" for name, part in table._asdict().items()}
    joined = "_".join(part for part in table[:2] if part)
    database = _filled(settings.database, parts) if settings.database else joined
    name = CatalogName(
        plain(database or "default").lower(), plain(_filled(settings.table, parts) or "table").lower()
    )
    yield name
    for length in (8, 64):
        yield name._replace(table=f"{name.table}_{short_hash(path, length)}")


def _filled(template: str, parts: Mapping[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: parts[match[1]], template).strip("_")
