"""Commits into the product's own tables without Spark: one entry in the log, or none.

The log's writer records the identifier of a commit and does not enforce it: here it is read before each attempt, also
after another commit was faster, and no attempt is ever repeated by the library itself.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ingest.errors import IngestError
from ingest.lake.datafiles import Added

if TYPE_CHECKING:
    from deltalake import CommitProperties

_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_TRIES = 20
_CHECKPOINT = 10  # commits, as Spark has it


class TakenError(IngestError):
    """A batch was committed under the same identifier before."""


def within_reach(path: str) -> bool:
    """True for a table that is written here; on other stores Spark does it.

    The library reads %20 in a folder's name as a blank: such a lake is Spark's, too.
    """
    return "://" not in path and not _ESCAPE.search(path)


def create(
    path: str, schema: str, partition_by: Sequence[str], properties: Mapping[str, str], metadata: str
) -> None:
    """Make an empty table, if there is none. ``schema`` is the JSON that Spark writes of it."""
    from deltalake import DeltaTable, Schema
    from deltalake.exceptions import CommitFailedError

    with contextlib.suppress(CommitFailedError):  # another run was faster: the table is there
        DeltaTable.create(
            path,
            schema=Schema.from_json(schema),
            mode="ignore",
            partition_by=list(partition_by),
            configuration=dict(properties),
            commit_properties=_properties(metadata),
        )


def append(path: str, files: Sequence[Added], metadata: str, writer: str = "", batch: int = -1) -> None:
    """Add files to a table, under the writer's identifier if there is one.

    Raises:
        TakenError: the writer has committed this batch, or a later one, already.
        IngestError: other commits were faster each time.
    """
    from deltalake import DeltaTable, PostCommitHookProperties
    from deltalake.exceptions import CommitFailedError
    from deltalake.transaction import AddAction, RemoveAction

    actions: list[AddAction | RemoveAction] = [
        AddAction(one.path, one.size, one.partition, one.written_at, True, one.stats) for one in files
    ]
    for attempt in range(_TRIES):
        table = DeltaTable(path)
        if writer and (done := table.transaction_version(writer)) is not None and done >= batch:
            raise TakenError(f"{path} holds batch {batch} of {writer} already.")
        try:
            table.create_write_transaction(
                actions,
                "append",
                table.schema(),
                table.metadata().partition_columns,
                commit_properties=_properties(metadata, writer, batch),
                post_commithook_properties=PostCommitHookProperties(
                    create_checkpoint=False, cleanup_expired_logs=False
                ),
            )
        except CommitFailedError as error:
            if attempt == _TRIES - 1:
                raise IngestError(f"{path} takes no commit ({error}): run again.") from error
            time.sleep(0.01 * attempt)
            continue
        _checkpoint(path, table.version() + 1)
        return


def _properties(metadata: str, writer: str = "", batch: int = -1) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    identifier = [Transaction(writer, batch)] if writer else None
    return CommitProperties({"userMetadata": metadata}, max_commit_retries=0, app_transactions=identifier)


def _checkpoint(path: str, version: int) -> None:
    """As often as Spark does it; old entries of the log stay until `ingest maintain`, which keeps what is promised."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    if version % _CHECKPOINT == 0:
        with contextlib.suppress(DeltaError, OSError):  # the commit is there, and the next one tries again
            DeltaTable(path).create_checkpoint()


def clean(path: str) -> None:
    """Drop entries of the log that are older than its retention, but for those that a younger version needs."""
    from deltalake import DeltaTable

    DeltaTable(path).cleanup_metadata()
