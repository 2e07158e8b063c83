"""Named points of a run or a verb, each of which can be made to end it as a kill would."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.gold.fold.outcomes import GONE
from ingest.tables.commits import Staged
from tests.lakes import Depot, change, statement, touch

BEFORE, WRITTEN, AFTER = "before", "written", "after"


class KilledError(BaseException):
    """Ends a run as a kill does: nothing that catches errors catches it."""


class Call(NamedTuple):
    """A function that commits or changes something, and what its arguments say it is about."""

    owner: str  # module, or module:class
    name: str
    subject: Callable[..., str]
    frame: Callable[..., Any] | None = None  # the rows that it writes


class Point(NamedTuple):
    """Where a run ends: before or after a call, or with its data files written and no commit that names them."""

    layer: str
    call: str
    subject: str
    when: str

    def __str__(self) -> str:
        return f"{self.layer}: {self.when} {self.call} {self.subject}"


def _last_part(table: str) -> str:
    return table.rstrip("`").rpartition("/")[2]


_LAKE = "ingest.tables.lake:Lake"
CALLS = {
    "append": Call(
        _LAKE,
        "append",
        lambda _lake, _frame, schema, stage, _batch: f"{stage.partition('/')[0]} {schema.name}",
        lambda lake, frame, schema, _stage, _batch: (frame, lake.path(schema.name), schema.partition_by),
    ),
    "note": Call(
        _LAKE,
        "append_unguarded",
        lambda _lake, rows, schema, *_marks: schema.name if rows else "",  # no rows, no commit
    ),
    "publish": Call(
        _LAKE,
        "publish",
        lambda _lake, _frame, name, *_rest, **_named: name,
        lambda lake, frame, name, *_rest, **_named: (frame, lake.path(name), ()),
    ),
    "load": Call(
        "ingest.gold.apply.mirror_table",
        "load",
        lambda *_given: "mirror",
        lambda lake, mirror, source, _made: (
            source.where(~source[GONE]),
            lake.path(mirror.path),
            (),
        ),
    ),
    "merge": Call("ingest.gold.apply.merge", "merge", lambda *_given, **_named: "mirror"),
    # its file is written
    "commit": Call("ingest.gold.apply.file_commits", "committed", lambda *_given, **_named: "mirror"),
    "alter": Call(
        "ingest.gold.apply.mirror_table",
        "add_columns",
        lambda _lake, mirror, present: (
            mirror.name if {one.column for one in mirror.columns} - set(present) else ""
        ),
    ),
    "rewrite": Call(
        "ingest.gold.apply.mirror_table", "_rewrite", lambda *_given: sys._getframe(2).f_code.co_name
    ),
    "fold": Call("ingest.gold.apply.history", "fold", lambda *_given, **_named: "history"),
    "create": Call("ingest.store.lock", "_sign", lambda *_given: "lock"),
    "take over": Call("ingest.store.lock", "_wait_for_orphan", lambda *_given: "lock"),
    "remove": Call("ingest.store.lock", "_forget", lambda *_given: "lock"),
    "drop": Call("ingest.ledgers.maintenance", "_drop", lambda *_given: "messages"),
    "join": Call("ingest.ledgers.maintenance", "_join", lambda _session, table, _done: _last_part(table)),
    "delete": Call("ingest.ledgers.maintenance", "_vacuum", lambda _session, table: _last_part(table)),
}


@contextmanager
def killed_at(point: Point, lake: str) -> Iterator[None]:
    """The body ends at the point, the first time that it comes there; fails if it never does.

    A lock that is left is edited to name a dead process, because this process lives on.
    """
    call = CALLS[point.call]
    module, _, name = call.owner.partition(":")
    owner: Any = importlib.import_module(module)
    owner = getattr(owner, name) if name else owner
    original = getattr(owner, call.name)
    hits: list[str] = []

    def wrapped(*given: Any, **named: Any) -> Any:
        wanted = (point.subject, f"{point.layer} {point.subject}")
        if hits or call.subject(*given, **named) not in wanted:
            return original(*given, **named)
        done = original(*given, **named) if point.when == AFTER else None  # an error of its own is no kill
        if hits:  # another mirror was faster
            return done
        hits.append(point.subject)
        if point.when == WRITTEN:
            assert call.frame is not None
            _leave_files(*call.frame(*given, **named))
        raise KilledError(str(point))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, call.name, wrapped)
        with pytest.raises(KilledError):
            yield
    assert [point.subject] == hits
    _bury(Path(lake, "_ingest.lock"))


def _leave_files(frame: Any, path: str, partition_by: tuple[str, ...]) -> None:
    """Data files in a table's folder of which its log says nothing; those that tasks wrote are there already."""
    if isinstance(frame, Staged):
        frame.link(path)
        return
    if isinstance(frame, list):
        assert frame
        assert all(Path(path, one.path).is_file() for one in frame)
        return
    if isinstance(frame, pa.Table):
        Path(path).mkdir(parents=True, exist_ok=True)
        pq.write_table(frame, Path(path, "part-left.parquet"))
        return
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, "rows")
        frame.write.partitionBy(*partition_by).parquet(str(written))
        assert [*written.rglob("part-*.parquet")]
        shutil.copytree(written, path, dirs_exist_ok=True)


def _bury(lock: Path) -> None:
    if lock.exists() and lock.read_text():
        lock.write_text(json.dumps(json.loads(lock.read_text()) | {"jvm": None}))


class Stores(Depot):
    """The depot, and what else a run can write: columns that come, widen and go, misfits, old states."""

    def __init__(self, folder: Path, *, more: str = "apply: merge\n") -> None:
        rules = ("{match: depot.bins, history: true}", "{match: depot.crates, on_schema_change: evolve}")
        tables = "tables:\n" + "".join(f"  - {rule}\n" for rule in rules)
        super().__init__(folder, tables + more)

    def grow(self, *, broken: bool = True) -> None:
        """Append a slice: the depot's own, a column's whole life in the crates, a cask that does not fit."""
        n = self.slices
        super().grow(broken=broken)
        lines = [*self._crates(n), *self._casks(n)]
        with self.feed.open("a", encoding="utf-8") as file:
            file.writelines(lines)
        touch(self.feed, 3600 - n)
        self.lines += len(lines)

    def _crates(self, n: int) -> list[str]:
        """Column ``cN`` comes with slice N, is widened by the next one and dropped by the one after that."""
        steps = [f"ADD COLUMN c{n} int"]
        steps += [f"MODIFY COLUMN c{n - 1} bigint"] if n > 0 else []
        steps += [f"DROP COLUMN c{n - 2}"] if n > 1 else []
        serial = 100 * n + 10
        statements = [
            statement("crates", serial + i, f"ALTER TABLE crates {one}") for i, one in enumerate(steps)
        ]
        row: dict[str, str | None] = {"id": str(n), f"c{n}": "1"} | ({f"c{n - 1}": "2"} if n else {})
        types = {"id": "bigint", f"c{n}": "int"} | ({f"c{n - 1}": "bigint"} if n else {})
        return [*statements, change("INSERT", "crates", serial + 5, row, mysqlType=types)]

    def _casks(self, n: int) -> list[str]:
        row: dict[str, str | None] = {"id": str(n), "litres": "many"}
        return [change("INSERT", "casks", 100 * n + 20, row, mysqlType={"id": "bigint", "litres": "int"})]

    @property
    def statements(self) -> int:
        """How many DDL statements the feed holds."""
        return self.slices + sum(1 + (n > 0) + (n > 1) for n in range(self.slices))

    def crates(self) -> list[dict[str, int | None]]:
        """The rows of the crates: only the two newest slices gave values."""
        last = self.slices - 1
        rows = []
        for n in range(self.slices):
            row: dict[str, int | None] = {"id": n, f"c{last - 1}": None, f"c{last}": None}
            if n == last - 1:
                row[f"c{n}"] = 1
            if n == last:
                row |= {f"c{n}": 1, f"c{n - 1}": 2}
            rows.append(row)
        return rows

    def states(self) -> list[tuple[int, str, bool]]:
        """Every state that a bin ever had, and whether it is the current one."""
        last = self.slices - 1
        states = [(n, f"new {n}", n == last) for n in range(self.slices)]
        states += [(n, f"old {n + 1}", True) for n in range(last)]
        return sorted(states + [(-n - 1, "soon gone", False) for n in range(self.slices)])
