"""Whether the data files of mirrors are still those that were written: looked at once a day, by names and sizes.

A batch reads what it touches, so that files of a quiet mirror which somebody has deleted or overwritten would be noticed by whoever
queries it. A look costs the mirror's log and the listing of its folder; what it has found is in the ledger of decisions, and each
run looks again at the mirrors that lack files, until they are rebuilt or the files are back.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ingest.errors import command, counted
from ingest.lake import decisions, faults, histories, mirrors, stores
from ingest.lake.decisions import WHOLE_FILES, Decision
from ingest.lake.mirrors import Mirror
from ingest.lake.tables import Tables

if TYPE_CHECKING:
    from ingest.lake.lake import Lake

EVERY = dt.timedelta(hours=20)  # of a run at about the same time each day, one looks
_TORN = "torn"


class Torn(NamedTuple):
    """A mirror whose data files are not those that were written, and since when that is known (in UTC without a zone)."""

    mirror: Mirror
    said: str
    since: dt.datetime | None


def is_due(lake: Tables) -> bool:
    """True if nobody has looked for a day, or if the last look found something, which may be repaired by now."""
    return stores.is_readable(lake.pipeline.lake) and (_is_old(lake) or bool(_found(lake)))


def look(lake: Lake) -> None:
    """Look at the files of all mirrors if it is time, and keep what is wrong with them."""
    if not is_due(lake):
        return
    wrong = {
        mirror.path: [mirror.generation, said]
        for mirror in mirrors.known(lake).values()
        if (said := "; ".join(_lacking(lake, mirror)))
    }
    if wrong != _found(lake) or _is_old(lake):
        decisions.append(lake, [Decision(WHOLE_FILES, lake.pipeline.name, {_TORN: wrong})])


def _is_old(lake: Tables) -> bool:
    """True if the last look is a day old, or the first decision of a lake without one."""
    ledger = decisions.read(lake)
    looked = [*ledger.of(WHOLE_FILES)][-1:] or [*ledger.all[:1]]
    now = dt.datetime.now(dt.UTC).replace(tzinfo=None)
    return bool(looked and looked[0].decided_at and now - looked[0].decided_at > EVERY)


def _found(lake: Tables) -> dict[str, list[Any]]:
    """What the last look has found: by path the generation of a mirror and what is wrong."""
    looked = decisions.read(lake).newest(WHOLE_FILES).values()
    return next((look.value[_TORN] for look in looked), {})


def torn(lake: Tables) -> list[Torn]:
    """The mirrors whose files the last look found wrong, and that were not rebuilt since."""
    known, since = mirrors.known(lake), dict[str, dt.datetime | None]()
    wrong: Mapping[str, tuple[int, str]] = {}
    for each in decisions.read(lake).of(WHOLE_FILES):
        wrong = each.value[_TORN]
        since = {path: since.get(path, each.decided_at) for path in wrong}
    return [
        Torn(known[path], _sentence(lake, known[path], said), since[path])
        for path, (generation, said) in wrong.items()
        if path in known and known[path].generation == generation
    ]


def _sentence(lake: Tables, mirror: Mirror, said: str) -> str:
    typed = command("rebuild", lake.pipeline.file, mirror.name)
    return f"data files of {mirror.name} are not as they were written ({said}): put them back, or `{typed}`"


def _lacking(lake: Tables, mirror: Mirror) -> Iterator[str]:
    """What is wrong with the files of a mirror and of its old states, a few of them by name."""
    for table in (mirror, *([histories.table_of(mirror)] if mirror.history else ())):
        try:
            wrong = [*_wrong_files(lake, table.path)]
        except Exception as error:  # a log that cannot be read is found by whoever reads it
            if faults.fault(error) is None:
                raise
            continue
        if wrong:
            yield ", ".join(wrong[:3]) + (f" and {len(wrong) - 3:,} more" if wrong[3:] else "")


def _wrong_files(lake: Tables, name: str) -> Iterable[str]:
    folder = lake.path(name)
    store = stores.at(folder)
    there = {*store.names(folder)}
    for file in lake.snapshot(name).files:
        path = file.place
        if "/" in path:  # not written by this product, and in no listing of this folder
            continue
        if path not in there:
            yield f"{path} is gone"
        elif (size := store.stat(f"{folder}/{path}").st_size) != file.size:
            yield f"{path} has {counted(size, 'byte')} instead of {file.size:,}"
