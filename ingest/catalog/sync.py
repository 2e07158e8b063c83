"""Keep a catalog in step with a lake: after each run what has changed, and all of it when asked.

Data never waits for a catalog, nor fails with it: what could not be registered is a warning of the run and a problem of the
lake, until an attempt succeeds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from ingest.catalog import registrations
from ingest.catalog.client import Catalog, CatalogError, ForeignTableError, Mark
from ingest.catalog.registrations import CatalogSteps, Registration, Wanted
from ingest.config.secrets import struck
from ingest.errors import command, first_line
from ingest.tables.lake import Lake
from ingest.tables.tables import Tables

_SHOWN = 5  # faults in one text


@dataclass(frozen=True, slots=True)
class Synced:
    """What an attempt has done, by name, and why not more."""

    put: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    fault: str = ""


def follow(lake: Lake, touched: Collection[str], *, try_again: bool = True) -> list[str]:
    """Register what a run has changed; gives the warning if something could not be.

    Args:
        lake: the lake, whose lock is held.
        touched: paths of mirrors that the run has folded.
        try_again: attempt again what failed last time.
    """
    if lake.pipeline.catalog is None:
        return []
    try:
        known_fault = registrations.fault(lake)
        if known_fault and not try_again:
            return [known_fault]
        remembered = registrations.remembered(lake)
        if not registrations.is_due(lake) and not registrations.is_behind(lake, remembered, touched):
            return []
        wanted = registrations.wanted(lake, remembered)
        synced = _done(lake, registrations.difference(wanted, remembered))
    except Exception as error:  # whatever it is, the data are in the mirrors
        return [_sentence(lake, f"{type(error).__name__}: {first_line(error)}")]
    return [synced.fault] if synced.fault else []


def sync(lake: Lake) -> Synced:
    """Ask the catalog what it has of this lake, and bring all of it in step."""
    remembered = registrations.remembered(lake)
    wanted = registrations.wanted(lake, remembered)
    try:
        with opened_catalog(lake) as catalog:
            registered = catalog.registered(_databases(wanted, remembered))
    except CatalogError as error:
        fault = _sentence(lake, str(error))
        registrations.remember(lake, (), (), fault)
        return Synced(fault=fault)
    named = {table.name for table in wanted.tables}
    gone = {entry for entry in remembered if entry.name not in named}.difference(registered)
    return _done(lake, registrations.difference(wanted, registered), gone)


def _databases(wanted: Wanted, remembered: Collection[Registration]) -> set[str]:
    names = {table.name for table in wanted.tables} | {registration.name for registration in remembered}
    return {name.database for name in names}


def _done(lake: Lake, steps: CatalogSteps, gone: Collection[Registration] = ()) -> Synced:
    """Take the steps, and record what became of them; a table that is another one's stops no other.

    ``gone`` is what is remembered, and neither wanted nor there any more.
    """
    put, dropped, faults = list[Registration](), list[Registration](), list[str]()
    try:
        if steps != CatalogSteps():
            with opened_catalog(lake) as catalog:
                for registration in steps.drops:
                    catalog.drop(registration.name)
                    dropped.append(registration)
                for table in steps.puts:
                    try:
                        catalog.put(table)
                        put.append(table.registration)
                    except ForeignTableError as error:
                        faults.append(str(error))
    except CatalogError as error:
        faults.append(str(error))
    fault = _sentence(lake, *faults) if faults else ""
    registrations.remember(lake, put, [*dropped, *gone], fault)
    return Synced(_names(put), _names(dropped), fault)


def _names(done: Collection[Registration]) -> tuple[str, ...]:
    return tuple(str(registration.name) for registration in done)


def _sentence(lake: Tables, *faults: str) -> str:
    """One sentence: which catalog is not in step, why, and what tries again."""
    settings = lake.pipeline.catalog
    assert settings is not None
    more = f"; and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
    said = struck("; ".join(faults[:_SHOWN]), lake.pipeline)
    typed = command("catalog", "sync", lake.pipeline.file)
    where = registrations.target(settings)
    return f"the catalog ({where}) is not in step: {said}{more}: `{typed}` tries again."


@contextmanager
def opened_catalog(lake: Lake) -> Iterator[Catalog]:
    """The catalog that a lake's pipeline file names, open.

    Raises:
        CatalogError: it cannot be reached.
    """
    settings = lake.pipeline.catalog
    assert settings is not None
    mark = Mark.of(lake.pipeline)
    if settings.kind == "glue":
        from ingest.catalog.glue import GlueCatalog

        yield GlueCatalog(settings, mark)
    elif settings.kind == "unity":
        from ingest.catalog.unity import UnityCatalog

        yield UnityCatalog(settings, mark)
    else:
        from ingest.catalog.hive import HiveCatalog

        metastore = HiveCatalog(settings, mark, lake.spark)
        try:
            yield metastore
        finally:
            with suppress(Exception):  # the connection may be gone already
                metastore.close()
