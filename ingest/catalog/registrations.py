"""What is to be registered in a catalog, what is registered there, and what must be done: a pure comparison.

What was registered is remembered in the lake's `decisions`, so that a run that changes no table asks no catalog.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from ingest.catalog import names
from ingest.catalog.entries import Registered, entry, with_histories
from ingest.catalog.names import CatalogName
from ingest.change import TableId
from ingest.config import Pipeline, is_stored
from ingest.config.entries import CatalogSettings
from ingest.ledgers import decisions, mirrors
from ingest.ledgers.decisions import CATALOG, DROP, REGISTERED, SCHEMA, Decision
from ingest.ledgers.mirrors import Mirror
from ingest.store.names import mirror_path
from ingest.tables.tables import Tables

if TYPE_CHECKING:
    from ingest.tables.lake import Lake

_FORM = 1  # of what is registered: another number has every table registered again


@dataclass(frozen=True, slots=True)
class Registration:
    """A table that is registered: its mirror's path, its name, and a digest of all that is said of it."""

    path: str
    name: CatalogName
    definition: str


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table as it is to be registered."""

    path: str  # of its mirror under the lake
    name: CatalogName
    entry: Registered

    @property
    def location(self) -> str:
        """Its folder as a URI."""
        return self.entry.path if is_stored(self.entry.path) else f"file://{self.entry.path}"

    @property
    def registration(self) -> Registration:
        """What is remembered of it."""
        columns = [(column.name, column.delta, column.comment) for column in self.entry.fields]
        said = json.dumps([_FORM, self.location, self.entry.title, columns], ensure_ascii=False)
        digest = hashlib.sha256(said.encode("utf-8", "backslashreplace")).hexdigest()[:16]
        return Registration(self.path, self.name, digest)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be registered."""

    tables: tuple[CatalogTable, ...] = ()
    absent: tuple[tuple[str, CatalogName], ...] = ()  # mirrors whose table is not there: their entries stay


@dataclass(frozen=True, slots=True)
class CatalogSteps:
    """What brings a catalog in step; the drops come first, because a location may be registered once only."""

    drops: tuple[Registration, ...] = ()
    puts: tuple[CatalogTable, ...] = ()


def difference(wanted: Wanted, registered: Iterable[Registration]) -> CatalogSteps:
    """What must be dropped and put so that what is registered is what is wanted."""
    tables = {table.name: table for table in wanted.tables}
    kept_names = {name for _, name in wanted.absent}
    in_step, drops = set[CatalogName](), []
    for registration in registered:
        if (table := tables.get(registration.name)) is not None:
            if table.registration == registration:
                in_step.add(registration.name)
        elif registration.name not in kept_names:
            drops.append(registration)
    return CatalogSteps(tuple(drops), tuple(table for name, table in tables.items() if name not in in_step))


def wanted(lake: Tables, registered: Iterable[Registration]) -> Wanted:
    """Every mirror that the pipeline file fills, and their history tables, under their names.

    ``registered`` is what is remembered: its names stay.
    """
    by_path = _present(lake)
    named = _named(lake.pipeline, {path: mirror.table for path, mirror in by_path.items()}, registered)
    tables, absent = [], []
    for path in sorted(by_path):
        catalog_entry = entry(lake, by_path[path])
        if catalog_entry is None:
            absent.append((path, named[path]))
        else:
            tables.append(CatalogTable(path, named[path], catalog_entry))
    return Wanted(tuple(tables), tuple(absent))


def foreseen(lake: Tables, coming: Iterable[TableId]) -> dict[str, str]:
    """The names that mirrors will have after a run, by their own."""
    tables = {path: mirror.table for path, mirror in _present(lake).items()}
    tables |= {mirror_path(table): table for table in coming}
    named = _named(lake.pipeline, tables, remembered(lake))
    return {str(tables[path]): str(name) for path, name in sorted(named.items())}


def _present(lake: Tables) -> dict[str, Mirror]:
    """The mirrors that the pipeline file does not exclude, and the history tables that they may have, by path."""
    left = mirrors.unfed(lake)
    included = (mirror for path, mirror in mirrors.known(lake).items() if path not in left)
    return {mirror.path: mirror for mirror in with_histories(lake, included)}


def _named(
    pipeline: Pipeline, tables: Mapping[str, TableId], registered: Iterable[Registration]
) -> dict[str, CatalogName]:
    assert pipeline.catalog is not None
    before = {registration.path: registration.name for registration in registered}
    return names.assigned(tables, pipeline.catalog, before)


def is_behind(lake: Tables, registered: Iterable[Registration], paths: Iterable[str]) -> bool:
    """True if a table of these mirrors is not what is registered of it; no other table is looked at."""
    by_path = {registration.path: registration for registration in registered}
    newest = decisions.read(lake).newest(SCHEMA)
    looked_at = (Mirror.from_value(path, newest[path].value) for path in paths if path in newest)
    for mirror in with_histories(lake, looked_at):
        registration = by_path.get(mirror.path)
        catalog_entry = entry(lake, mirror)
        if catalog_entry is not None and (
            registration is None
            or CatalogTable(mirror.path, registration.name, catalog_entry).registration != registration
        ):
            return True
    return False


def listed(lake: Tables) -> list[dict[str, str]]:
    """Each mirror with its name, and what a run will do about its entry, as far as the lake remembers it."""
    registered_before = remembered(lake)
    asked = wanted(lake, registered_before)
    todo = difference(asked, registered_before)
    names_known = {registration.name for registration in registered_before}
    puts = {table.name for table in todo.puts}
    rows = [
        {
            "table": str(table.entry.table),
            "name": str(table.name),
            "state": ("to be changed" if table.name in names_known else "to be registered")
            if table.name in puts
            else "registered",
            "location": table.location,
        }
        for table in asked.tables
    ]
    rows += [
        {"table": registration.path, "name": str(registration.name), "state": "to be removed", "location": ""}
        for registration in todo.drops
    ]
    return sorted(rows, key=lambda row: row["name"])


# --- what is remembered -------------------------------------------------------------------------


def target(settings: CatalogSettings) -> str:
    """Which catalog it is, for its decisions and for messages: without user and password."""
    addresses = [_without_user(address) for address in settings.uri.split(",") if address]
    return " ".join(filter(None, (settings.kind, ",".join(addresses), settings.catalog, settings.region)))


def _without_user(address: str) -> str:
    parts = urlsplit(address)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


def remembered(lake: Tables) -> list[Registration]:
    """What this lake has registered in the catalog of its pipeline file."""
    settings = lake.pipeline.catalog
    if settings is None:
        return []
    newest = decisions.read(lake).newest(REGISTERED).values()
    return [
        Registration(
            decision.value["path"],
            CatalogName(decision.value["database"], decision.value["table"]),
            decision.value["definition"],
        )
        for decision in newest
        if decision.value["catalog"] == target(settings) and decision.value["definition"]
    ]


def remember(lake: Lake, puts: Iterable[Registration], drops: Iterable[Registration], fault: str) -> None:
    """Record what has been registered and dropped, and why the rest has not been; empty if all is in step."""
    settings = lake.pipeline.catalog
    assert settings is not None
    where = target(settings)
    said = [_said(where, registration, "") for registration in drops]
    said += [_said(where, registration, registration.definition) for registration in puts]
    ended = Decision(CATALOG, where, {"rules": _rules(lake.pipeline), "fault": fault})
    last = decisions.read(lake).newest(CATALOG).get(where)
    if said or not fault or last is None or last.value != ended.value:  # what lasts is said once
        decisions.append(lake, [*said, ended])


def _said(where: str, registration: Registration, definition: str) -> Decision:
    value = {
        "catalog": where,
        "path": registration.path,
        **registration.name._asdict(),
        "definition": definition,
    }
    return Decision(REGISTERED, f"{where} {registration.name}", value)


def last_attempt(lake: Tables) -> Decision | None:
    """How the last attempt to bring the catalog in step ended: its value's ``fault`` is empty if it is in step."""
    settings = lake.pipeline.catalog
    return None if settings is None else decisions.read(lake).newest(CATALOG).get(target(settings))


def fault(lake: Tables) -> str:
    """Why the catalog is not in step, as the last attempt found; empty if it is."""
    attempt = last_attempt(lake)
    return "" if attempt is None else str(attempt.value["fault"])


def is_due(lake: Tables) -> bool:
    """True if the last attempt failed, or if the rules or a mirror's columns were decided again after it."""
    settings = lake.pipeline.catalog
    if settings is None:
        return False
    where = target(settings)
    for decision in reversed(decisions.read(lake).all):
        if decision.kind == CATALOG and decision.subject == where:
            return bool(decision.value["fault"]) or decision.value["rules"] != _rules(lake.pipeline)
        if decision.kind in (SCHEMA, DROP):
            return True
    return False  # there is no mirror yet


def _rules(pipeline: Pipeline) -> str:
    """A digest of what the pipeline file says of which mirrors there are, and how they are named."""
    settings = pipeline.catalog
    assert settings is not None
    rules = [(rule.match, rule.exclude, rule.into, rule.history) for rule in pipeline.every_rule]
    said = json.dumps([_FORM, settings.database, settings.table, rules])
    return hashlib.sha256(said.encode()).hexdigest()[:16]
