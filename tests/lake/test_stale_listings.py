"""A store, or a network's file system, that lists a log as it was a moment ago: nothing is doubled, and the next run goes on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from ingest.config.model import TableRule
from ingest.errors import IngestError
from ingest.run import Warm
from ingest.store import stores
from tests.gold.depot import Depot
from tests.unstarted import unstarted


def without_the_newest(
    names: Callable[[stores.Disk, str], list[str]], table: str
) -> Callable[..., list[str]]:
    """A listing in which the newest entry of a table's log is missing."""

    def listed(disk: stores.Disk, folder: str) -> list[str]:
        found = names(disk, folder)
        entries = sorted(name for name in found if name.endswith(".json"))
        return (
            [name for name in found if name != entries[-1]]
            if folder.endswith(f"{table}/_delta_log")
            else found
        )

    return listed


@pytest.mark.parametrize("table", ["bronze", "changes", "books", "mirrors/yard/depot"])
def test_an_old_listing_doubles_nothing(table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that takes what it does not see for undone lands, decodes or folds a batch twice."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.depot"))
    for n in ("1", "2"):
        assert ("done", "") == depot.row("INSERT" if n == "1" else "UPDATE", id="1", n=n).run()
    depot.warm = Warm()
    depot.row("UPDATE", id="1", n="3").row(id="2", n="3")
    with monkeypatch.context() as stale:
        stale.setattr(stores.Disk, "names", without_the_newest(stores.Disk.names, table))
        with suppress(IngestError):  # it may say that another run was faster
            depot.result()
    depot.warm = Warm()
    assert [] == depot.result().failures
    rows = depot.lake().ask_mirror("mirrors/yard/depot", "SELECT id, n FROM {mirror} ORDER BY id")
    assert [{"id": 1, "n": 3}, {"id": 2, "n": 3}] == rows
    landed, changed = (
        depot.lake().ask(f"SELECT count(*) AS n FROM {what}")[0]["n"]
        for what in ("{bronze} WHERE kind = 'message'", "{changes} WHERE kind = 'change'")
    )
    assert (4, 4) == (landed, changed)
