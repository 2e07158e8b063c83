"""Notice that others have taken rows out of a lake's own tables: RESTORE, DELETE, UPDATE, an overwrite.

Such a commit keeps the identifiers of the batches whose rows it takes, so nothing would ever write these again. It is
looked for between the newest version and the pipeline's last batch, whose run has looked at what was before: usually that is
one log entry of each table. Every writer looks before it writes, so that only a repair follows such a commit: the batches
decoded again, or the older commit undone. OPTIMIZE, REORG and VACUUM take no rows, and rows that others append are not looked for.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from ingest.errors import HeldError, IngestError, command, counted
from ingest.store.names import quoted
from ingest.tables import delta
from ingest.tables.schemas import BOOKS, BRONZE, CHANGES, DDL, DECISIONS
from ingest.tables.tables import RESTORE, Tables

AGAIN = "again"  # the mark of a commit whose rows replace those of all batches after a number
_DECODED = (CHANGES.name, DDL.name, BOOKS.name)  # can be made from bronze
_WATCHED = (BRONZE.name, *_DECODED, DECISIONS.name)
_MESSAGES = "kind=message/"  # of bronze: old ones may go, and decoding notices those that it lacks


class _Removal(NamedTuple):
    """What others have taken out of a table.

    Attributes:
        table: its name under the lake.
        version: that of the first commit that took rows.
        operation: how that commit calls itself.
        files: the data files that are gone, by `delta.DataFile.content`.
    """

    table: str
    version: int
    operation: str
    files: frozenset[tuple[str, str]]


def refuse(lake: Tables) -> None:
    """Refuse a lake of whose own tables others have taken rows.

    Raises:
        HeldError: with the command that makes them again, or the statement that brings them back.
    """
    for name in _WATCHED:
        state = lake.snapshot(name)
        if not state.exists:
            continue
        mark = f"looked at {name}"  # in `Tables.kept`, whose other names are paths
        table_id, version = lake.kept.get(mark, ("", -1))
        seen = version if table_id == state.table_id and isinstance(version, int) else -1
        commits, done = _since(lake, name, state.version, seen)
        removal = _removal(name, commits)
        if removal is not None:
            first = _first_batch(lake, removal)
            if done is None or first <= done:
                raise _refusal(lake, removal, first)
        lake.kept[mark] = state.table_id, state.version


_Commit = tuple[int, list[dict[str, Any]]]
"""A version with its actions."""


def _since(lake: Tables, name: str, newest: int, seen: int) -> tuple[list[_Commit], int | None]:
    """The commits to look at, oldest first, and after which batch a repair that follows them has made all rows again."""
    commits: list[_Commit] = []
    done: int | None = None
    for version in range(newest, seen, -1):
        actions = lake.actions(name, version)
        if not actions:  # older than the log
            break
        metadata = delta.metadata_of(actions)
        if "run" in metadata and ("batch" in metadata or name == DECISIONS.name):
            again = metadata.get(AGAIN)
            if again == 0 or (again is None and seen < 0):
                break
            if again is not None and not any(delta.foreign_operation(later) for _, later in commits):
                done = again if done is None else min(done, again)
        commits.append((version, actions))
    return commits[::-1], done


def _removal(name: str, commits: Collection[_Commit]) -> _Removal | None:
    """What others have taken in these commits and not brought back; None if it is nothing."""
    taking = {version: operation for version, actions in commits if (operation := _takes(name, actions))}
    if not taking:
        return None
    first = min(taking)
    last = max(version for version, actions in commits if delta.foreign_operation(actions))
    gone: set[tuple[str, str]] = set()
    new: set[tuple[str, str]] = set()
    for version, actions in commits:
        if first <= version <= last:
            for file in delta.removed(actions):
                (new.discard if file in new else gone.add)(file)
            for file in delta.added(actions):
                (gone.discard if file in gone else new.add)(file)
    files = frozenset(file for file in gone if _matters(name, file))
    return _Removal(name, first, taking[first], files) if files else None


def _takes(name: str, actions: list[dict[str, Any]]) -> str:
    """The operation of a commit of others that takes rows; empty for others."""
    operation = delta.foreign_operation(actions)
    return operation if operation and any(_matters(name, file) for file in delta.removed(actions)) else ""


def _matters(name: str, file: tuple[str, str]) -> bool:
    return name != BRONZE.name or _MESSAGES not in file[0]


def _first_batch(lake: Tables, removal: _Removal) -> int:
    """The first batch that may have lost rows, by the statistics of the files that are gone."""
    try:
        before = delta.snapshot(lake.path(removal.table), removal.version - 1)
    except (IngestError, FileNotFoundError):
        return 1
    least = [file.least("batch") for file in before.files if file.content in removal.files]
    return min((number if isinstance(number, int) else 1 for number in least), default=1)


def _refusal(lake: Tables, removal: _Removal, first: int) -> HeldError:
    name, version, last = removal.table, removal.version, lake.decoded()
    since = delta.committed_at(lake.actions(name, version))
    back = f"in Spark, RESTORE TABLE delta.{quoted(lake.path(name))} TO VERSION AS OF {version - 1}"
    said = f"version {version} of `{name}` was not written by this pipeline ({removal.operation}) and took rows out of it"
    if name not in _DECODED:
        return HeldError(
            f"{said}, which cannot be made again: {back} brings them back; if their files are gone, {RESTORE}; "
            "until then nothing is read.",
            since=since,
        )
    count = max(1, last - first + 1)
    typed = command("backfill", lake.pipeline.file, "--from-batch", min(first, max(last, 1)))
    return HeldError(
        f"{said}, from batch {first} on: `{typed}` decodes {counted(count, 'batch', 'batches')} again, or, if bronze "
        f"no longer has their messages: {back} brings the rows back; until then nothing is read.",
        typed,
        since,
    )
