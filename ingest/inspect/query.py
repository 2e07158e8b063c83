"""Run queries by name with DuckDB, over the files of the lake and nothing else.

With bounds, for the users of a service, a process of its own runs the query (`ingest.inspect.query_process`).
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ingest.change import TableId
from ingest.config import is_stored
from ingest.errors import IngestError, command
from ingest.inspect import asof, duck_query, query_process
from ingest.inspect.duck_query import Bounds, Question, Scans
from ingest.inspect.status import histories_of
from ingest.ledgers import feeds, histories, whole_files
from ingest.ledgers import mirrors as known_mirrors
from ingest.store import faults, stores
from ingest.tables import delta
from ingest.tables.schemas import ALL, BRONZE
from ingest.tables.tables import Tables, scan


@dataclass(frozen=True, slots=True)
class Named:
    """A table that a query may name: its path, and the version to read."""

    folder: str
    version: int | None = None


class QueryAnswer(NamedTuple):
    """What a query gives: its columns, its rows, and the mirrors that lack some of the batch that it asks for."""

    columns: list[str]
    rows: list[list[Any]]
    lagging: list[str]

    @property
    def records(self) -> list[dict[str, Any]]:
        """The rows, each with its cells by the columns' names."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def query(
    lake: Tables, text: str, limit: int = 0, batch: int | None = None, bounds: Bounds | None = None
) -> QueryAnswer:
    """Run one query by names; every cell comes back as a JSON value without loss.

    With a batch the mirrors are as they were after it, and the last list names those that lack some of it.

    Raises:
        IngestError: it is not a query, names no table, DuckDB refuses it, the log no longer holds a version, or it
            takes too long.
    """
    mirrors, lagging = places(lake, batch)
    products = {schema.name: Named(lake.path(schema.name)) for schema in ALL if lake.exists(schema.name)}
    places_of = [*mirrors.values(), *products.values()]
    views = {place: f"main._table_{number}_" for number, place in enumerate(places_of)}
    tables = {view: place for place, view in views.items()}
    question = Question(
        text,
        [(table, views[place]) for table, place in mirrors.items()],
        {name: views[place] for name, place in products.items()},
        lake.pipeline.lake,
        limit,
        bounds,
    )

    folders = set[str]()

    def scans_of(used: list[str]) -> Scans:
        places_used = {view: tables[view] for view in used}
        folders.update(place.folder for place in places_used.values())
        if bounds and lake.pipeline.masks:
            _refuse(products.get(BRONZE.name), places_used)
        return _scans(places_used)

    answer = query_process.answer if bounds else duck_query.answer
    try:
        result = answer(question, scans_of)
    except IngestError as error:
        if batch is None and faults.damaged(error):
            _refuse_damaged(lake, error, folders, notes=bounds is None)
        raise IngestError(" ".join([str(error), *lagging])) from None
    return QueryAnswer(result.columns, result.rows, lagging)


def _refuse_damaged(lake: Tables, error: IngestError, folders: Collection[str], *, notes: bool) -> None:
    """Name the mirror whose file a query of some folders has met damaged, and the command that repairs it; ``notes`` has `status`
    say it, too.

    Raises:
        IngestError: it is a mirror's, or its old states'.
    """
    asked = []
    for mirror in known_mirrors.known(lake).values():
        paths = (mirror.path, *([histories.table_of(mirror).path] if mirror.history else ()))
        if not {lake.path(path) for path in paths}.isdisjoint(folders):
            asked.append(mirror)
    if asked[1:]:
        asked = [mirror for mirror in asked if whole_files.lacking(lake, mirror)]
    for mirror in asked[:1]:
        if notes:
            with suppress(Exception):  # who may only read is told all the same
                whole_files.note(lake, mirror)
        typed = command("rebuild", lake.pipeline.file, mirror.name)
        said = faults.of_mirror(error, lake, mirror.name, mirror.path)
        raise IngestError(f"{mirror.name} cannot be read: {said}", typed) from None


def _refuse(bronze: Named | None, used: dict[str, Named]) -> None:
    """Refuse masked data to users who can only query, and cannot read the lake's files themselves."""
    if bronze in used.values():
        raise IngestError(
            "bronze holds what `mask:` hides, so it is not shown here: `ingest sql` reads it where the lake is."
        )


def _scans(tables: dict[str, Named]) -> Scans:
    views, files = {}, []
    for view, place in tables.items():
        state = _state(place)
        if not state.exists:
            raise IngestError(f"There is no table at {place.folder} yet.")
        views[view] = scan(place.folder, state, zones=True)
        files += [f"{place.folder}/{file.place}" for file in state.files]
    return Scans(views, files, [place.folder for place in tables.values()], stores.known())


def places(lake: Tables, batch: int | None) -> tuple[dict[TableId, Named], list[str]]:
    """Every mirror and history table, now or after a batch, and the mirrors that lack a part of the batch.

    Later names win: a mirror keeps its name even if a history table has it, too.
    """
    if batch is None:
        mirror_list = known_mirrors.known(lake).values()
        readable = [
            *histories_of(lake, mirror_list).values(),
            *feeds.existing(lake, mirror_list),
            *mirror_list,
        ]
        return {mirror.table: Named(lake.path(mirror.path)) for mirror in readable}, []
    pinned = asof.mirrors(lake, batch)
    histories = histories_of(lake, [pin.mirror for pin in pinned.values()])
    pins = asof.accompanying(lake, batch, pinned.values(), histories) | pinned
    newest = lake.decoded()
    ahead = [f"There is no batch {batch} yet: the newest is {newest}."] if batch > newest else []
    return {
        table: Named(lake.path(pin.mirror.path), pin.version)
        for table, pin in pins.items()
        if pin.version is not None
    }, [*ahead, *asof.complaints(pinned, batch)]


def _state(place: Named) -> delta.Snapshot:
    """A table's state; an `IngestError` if what an old version needs was deleted."""
    try:
        state = delta.snapshot(place.folder, place.version)
        # a store would be asked for each file
        here = place.version is not None and not is_stored(place.folder)
        is_readable = not here or all(Path(place.folder, file.place).exists() for file in state.files)
    except delta.UnreadableError:
        if place.version is None:
            raise
        is_readable = False
    if not is_readable:
        raise IngestError(
            f"Version {place.version} of {place.folder}, which that batch needs, can no longer be read: `ingest maintain` "
            "deletes files after horizon_days:, and `ingest erase --now` at once."
        )
    return state
