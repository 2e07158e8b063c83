"""Whether the data files of mirrors are still those that were written: looked at once a day, by names and sizes.

A batch reads what it touches, so that files of a quiet mirror which somebody has deleted or overwritten would be noticed by whoever
queries it. A look costs the mirror's log and the listings of its folders; what it has found is in the ledger of decisions, and each
run looks again at the mirrors that lack files, and at no others, until they are rebuilt or the files are back. Of files of deletion
vectors a log has no sizes, so that only their names are compared.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ingest.errors import IngestError, command, counted
from ingest.ledgers import decisions, histories, mirrors
from ingest.ledgers.decisions import WHOLE_FILES, Decision
from ingest.ledgers.mirrors import Mirror
from ingest.store import faults, stores
from ingest.tables.tables import Tables

if TYPE_CHECKING:
    from ingest.tables.delta import DataFile
    from ingest.tables.lake import Lake

EVERY = dt.timedelta(hours=20)  # of a run at about the same time each day, one looks
_TORN = "torn"
_MET = "met"  # of what was found by a query, and not by a look at all mirrors


class Torn(NamedTuple):
    """A mirror whose data files are not those that were written, and since when that is known (in UTC without a zone)."""

    mirror: Mirror
    said: str
    since: dt.datetime | None


def is_due(lake: Tables) -> bool:
    """True if the last look is a day old, or if what the last look has found is not so any more."""
    if not stores.is_readable(lake.pipeline.lake):
        return False
    before = _found(lake)
    return _is_old(lake) or _wrong(lake, before, before) != before


def look(lake: Lake) -> None:
    """Look at the files of all mirrors once a day, else of those that lacked some, and keep what is wrong with them.

    What cannot be looked at, as in a store that does not answer, is as it was found last.
    """
    if not stores.is_readable(lake.pipeline.lake):
        return
    is_old, before = _is_old(lake), _found(lake)
    wrong = _wrong(lake, mirrors.known(lake) if is_old else before, before)
    if is_old or wrong != before:
        decisions.append(lake, [Decision(WHOLE_FILES, lake.pipeline.name, {_TORN: wrong})])


def note(lake: Tables, mirror: Mirror) -> None:
    """Keep what is wrong with the files of a mirror that somebody has met; the others are looked at when they would have been."""
    if said := lacking(lake, mirror):
        wrong = {**_found(lake), mirror.path: [mirror.generation, said]}
        if wrong != _found(lake):
            decisions.append_alone(
                lake, Decision(WHOLE_FILES, lake.pipeline.name, {_TORN: wrong, _MET: True})
            )


def _wrong(lake: Tables, paths: Collection[str], before: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """By path the generation of each mirror whose files are wrong now, and what is wrong; ``before`` is the same by the last look."""
    by_path = mirrors.known(lake) if paths else {}
    wrong = {}
    for mirror in (by_path[path] for path in paths if path in by_path):
        generation, before_said = before.get(mirror.path, (mirror.generation, ""))
        if said := lacking(lake, mirror, before_said if generation == mirror.generation else ""):
            wrong[mirror.path] = [mirror.generation, said]
    return wrong


def _is_old(lake: Tables) -> bool:
    """True if the last look is a day old, or the first decision of a lake without one."""
    ledger = decisions.read(lake)
    looked = [look for look in ledger.of(WHOLE_FILES) if _MET not in look.value][-1:] or [*ledger.all[:1]]
    now = dt.datetime.now(dt.UTC).replace(tzinfo=None)
    return bool(looked and looked[0].decided_at and now - looked[0].decided_at > EVERY)


def _found(lake: Tables) -> dict[str, list[Any]]:
    """What the last look has found: by path the generation of a mirror and what is wrong."""
    looked = decisions.read(lake).newest(WHOLE_FILES).values()
    return next((look.value[_TORN] for look in looked), {})


def torn(lake: Tables) -> list[Torn]:
    """The mirrors whose files the last look found wrong, and that were not rebuilt since."""
    by_path, since = mirrors.known(lake), dict[str, dt.datetime | None]()
    wrong: Mapping[str, tuple[int, str]] = {}
    for each in decisions.read(lake).of(WHOLE_FILES):
        wrong = each.value[_TORN]
        since = {path: since.get(path, each.decided_at) for path in wrong}
    return [
        Torn(by_path[path], _sentence(lake, by_path[path], said), since[path])
        for path, (generation, said) in wrong.items()
        if path in by_path and by_path[path].generation == generation
    ]


def _sentence(lake: Tables, mirror: Mirror, said: str) -> str:
    typed = command("rebuild", lake.pipeline.file, mirror.name)
    return f"data files of {mirror.name} are not as they were written ({said}): put them back, or `{typed}`"


def lacking(lake: Tables, mirror: Mirror, before: str = "") -> str:
    """What is wrong with the files of a mirror and of its old states, a few of them by name; what was found ``before`` if a
    table cannot be looked at.
    """
    wrong_tables, unseen = list[str](), ""
    for table in (mirror, *([histories.table_of(mirror)] if mirror.history else ())):
        try:
            wrong = [*_wrong_files(lake, table.path)]
        except Exception as error:  # a log that cannot be read is found by whoever reads it
            if not isinstance(error, OSError | IngestError) and faults.fault(error) is None:
                raise
            unseen = before
            continue
        if wrong:
            more = f" and {len(wrong) - 3:,} more" if wrong[3:] else ""
            wrong_tables.append(", ".join(wrong[:3]) + more)
    return "; ".join(wrong_tables) or unseen


def _wrong_files(lake: Tables, name: str) -> Iterator[str]:
    folder = lake.path(name)
    written = _written(
        lake.snapshot(name).files
    )  # before the listings: these have what others write meanwhile
    present = dict[str, int]()
    for within in {place[: place.rfind("/") + 1] for place in written}:
        listed = stores.at(folder).sizes(f"{folder}/{within}".rstrip("/"))
        present |= {f"{within}{file}": size for file, size in listed.items()}
    for place, size in written.items():
        if place not in present:
            yield f"{place} is gone"
        elif size not in (None, present[place]):
            yield f"{place} has {counted(present[place], 'byte')} instead of {size:,}"


def _written(files: Iterable[DataFile]) -> dict[str, int | None]:
    """The files of a table, by their paths under its folder, with their sizes in bytes; None for one of deletion vectors."""
    written: dict[str, int | None] = {}
    for file in files:
        written[file.place] = file.size
        written |= dict.fromkeys(file.places[1:])
    return written
