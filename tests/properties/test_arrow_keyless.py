"""Tables without a key folded by Arrow, batch by batch and without Spark, against a table that counts its rows."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.change import TableId
from ingest.fold import SchemaStep
from ingest.gold.fold import arrow_files, arrow_parts, arrow_shares
from ingest.gold.fold.arrow_work import ColumnWork, LaneWork, MirrorWork
from ingest.gold.fold.key_shares import Shares
from ingest.order import Order, order_key

TABLE = TableId("yard", None, "log")
COLUMNS = {"word": "string", "n": "int32", "near": "float64", "late": "string"}
Row = dict[str, str | None]
Cells = tuple[str | None, ...]


@dataclass
class Source:
    """A table without a key, and the changes that it sends."""

    random: Random
    rows: list[Row] = field(default_factory=list)
    sent: list[dict[str, object]] = field(default_factory=list)
    steps: list[SchemaStep] = field(default_factory=list)
    inserted: list[Cells] = field(default_factory=list)
    number: int = 0
    shared_reads: bool = False

    def snapshot(self) -> None:
        """Rows are read that the table has, many of them equal: each has the log's place, or one of its own."""
        place = self.place()
        for _ in range(12):
            self.rows.append(self.row())
            self.inserted.append(cells(self.rows[-1]))
            self.send("read", None, self.rows[-1])
            if self.shared_reads:
                self.sent[-1]["place"] = place

    def place(self) -> int:
        """The next place in history."""
        self.number += 1
        return self.number

    def row(self) -> Row:
        """A row that there may be more than once."""
        pick = self.random.choice
        row: Row = {"word": pick(["x", "", None]), "n": pick(["0", "1"]), "near": pick(["0", "-0", "NaN"])}
        return row | ({"late": pick(["7", None])} if self.steps else {})

    def live(self) -> None:
        """One thing happens."""
        kind = self.random.choice(
            ["insert"] * 7 + ["update", "update", "delete", "delete", "truncate", "step"]
        )
        if kind == "step":
            if not self.steps:
                self.add_column()
        elif kind == "truncate":
            if self.random.random() < 0.05:
                self.rows, self.inserted = [], []
                self.send("truncate", None, None)
        elif kind == "insert":
            self.rows.append(self.row())
            self.inserted.append(cells(self.rows[-1]))
            self.send("insert", None, self.rows[-1])
        elif self.rows:
            old = self.rows.pop(self.random.randrange(len(self.rows)))
            new = self.row() if kind == "update" else None
            self.rows += [new] if new else []
            if new and self.random.random() < 0.5:
                self.send("delete", old, None)
                self.send("update", None, new)
                self.sent[-1] |= {"place": self.sent[-2]["place"], "half": 1}
            else:
                self.send(kind, old, new)

    def add_column(self) -> None:
        """A statement fills a new column of all rows."""
        order = order_key(Order(0, 0, (self.place(),), 0, (0,), 0))
        self.steps.append(SchemaStep(order, "add_column", "late", default="7"))  # type: ignore[arg-type]
        self.rows = [row | {"late": "7"} for row in self.rows]

    def send(self, op: str, before: Row | None, after: Row | None) -> None:
        """A message."""
        images = [None if one is None else json.dumps(one) for one in (before, after)]
        self.sent.append({"place": self.place(), "op": op, "before": images[0], "after": images[1]})


def cells(row: Row) -> Cells:
    """A row's cells as texts that differ for -0.0."""
    return tuple(row.get(name) for name in COLUMNS)


def shown(work: MirrorWork) -> Counter[Cells]:
    """The mirror's rows."""
    found: Counter[Cells] = Counter()
    for row in arrow_files.there(work).to_pylist():
        near = {"nan": "NaN", "0.0": "0", "-0.0": "-0"}[str(row["near"])]
        found[row["word"], str(row["n"]), near, row["late"]] += 1
    return found


def deliver(source: Source, random: Random, folder: Path) -> list[list[str]]:
    """The messages in batches, some late, some again; the files of each batch, with all before it."""
    batches: list[list[dict[str, object]]] = [[] for _ in range(5)]
    for at, one in enumerate(source.sent):
        usual = at * len(batches) // len(source.sent)
        repeats = one["op"] != "read" or not source.shared_reads  # such a row delivered twice is two rows
        for _ in range(random.choice([1, 1, 1, 2]) if repeats else 1):
            batches[min(len(batches) - 1, usual + random.choice([0, 0, 0, 1, 2]))].append(one)
    files: list[str] = []
    found = []
    for number, batch in enumerate(batches, 1):
        random.shuffle(batch)
        rows = [
            {
                "source": "s", "database": "yard", "schema": None, "table": "log", "batch": number, "op": one["op"],
                "order_key": order_key(Order(0, 0, (one["place"],), one.get("half", 0), (number, at), 0)),  # type: ignore[arg-type]
                "partial": False, "before": one["before"], "after": one["after"], "types": None,
                "topic": "log", "partition": 0, "offset": at, "row": 0, "transaction": None,
            }
            for at, one in enumerate(batch)
        ]  # fmt: skip
        if rows:
            kinds = {name: pa.string() for name in rows[0]} | {
                "batch": pa.int64(),
                "partial": pa.bool_(),
                "partition": pa.int32(),
                "offset": pa.int64(),
                "row": pa.int32(),
            }
            pq.write_table(pa.Table.from_pylist(rows, pa.schema(kinds)), folder / f"{number}.parquet")
            files.append(str(folder / f"{number}.parquet"))
        found.append(list(files))
    return found


def in_shares(work: MirrorWork, files: list[str], count: int) -> list[arrow_files.Written]:
    """What the shares write to which three tasks have dealt the changes, a few at a time."""
    work = replace(work, shared=1)
    pieces, by_path = arrow_parts.pieces(files, work.lanes), {work.path: Shares(count)}
    dealt = [one for at in range(3) for one in arrow_shares.deal([work], pieces[at::3], "shares", by_path)]
    return [arrow_shares.merged(work, dealt, share, by_path[work.path]) for share in range(count)]


@pytest.mark.one_of(4)
@pytest.mark.parametrize("shared_reads", [False, True], ids=["own places", "one place"])
@pytest.mark.parametrize("appends", [False, True], ids=["full_row", "append"])
@pytest.mark.parametrize("shares", [0, 4], ids=["whole", "shares"])
@pytest.mark.parametrize("seed", range(10, 18))
def test_no_history_without_a_key_is_wrong(
    seed: int, shares: int, appends: bool, shared_reads: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a key, one row too many or too few is hard to notice; in shares it may be counted in none, or in two."""
    monkeypatch.setattr(arrow_parts, "READ_AT_ONCE", 7)
    monkeypatch.setattr(arrow_parts, "WAITING_ROWS", 20)
    random = Random(seed)
    source = Source(random, shared_reads=shared_reads)
    source.snapshot()
    for _ in range(120):
        source.live()
    columns = tuple(ColumnWork(name, name, one) for name, one in COLUMNS.items())
    work = MirrorWork("mirror", str(tmp_path / "mirror"), (), columns, (), appends=appends)
    has_steps = False
    for number, files in enumerate(deliver(source, random, tmp_path), 1):
        since = "" if has_steps or not source.steps else str(source.steps[0].order)
        has_steps = has_steps or bool(source.steps)
        lane = LaneWork(
            "s",
            TABLE,
            number,
            number,
            whole=True,
            steps=tuple(source.steps),
            since=since,
            shared_reads=shared_reads,
        )
        work = replace(work, lanes=(lane,))
        made = (
            in_shares(work, files, shares)
            if shares
            else [arrow_files.make(work, arrow_files.read(files, [lane]))]
        )
        assert {("", "")} == {(one.refused, one.held) for one in made}
        new = tuple((one.file, None) for one in made if one.file)
        kept = () if any(one.replaces for one in made) else work.files
        work = replace(work, files=kept + new, size=work.size + sum(one.size for one in made))
    expected = Counter(source.inserted) if appends else Counter(map(cells, source.rows))
    assert expected == shown(work)
    assert max(expected.values()) > 1


def test_a_table_of_which_nothing_changes_is_not_written(tmp_path: Path) -> None:
    """A message that is delivered again would cost a new file of all rows each time."""
    source = Source(Random(1))
    for _ in range(20):
        source.live()
    columns = tuple(ColumnWork(name, name, one) for name, one in COLUMNS.items())
    files = deliver(source, Random(1), tmp_path)[-1]
    for appends in (False, True):
        lane = LaneWork("s", TABLE, 1, 5, whole=True)
        work = MirrorWork("mirror", str(tmp_path / f"m{appends}"), (), columns, (lane,), appends=appends)
        made = arrow_files.make(work, arrow_files.read(files, [lane]))
        lane = replace(lane, first=5)
        again = replace(work, lanes=(lane,), files=((made.file, None),), size=made.size)
        pq.write_table(pq.read_table(files[-1]).slice(0, 0), tmp_path / "none.parquet")
        rows = arrow_files.read([*files[:-1], str(tmp_path / "none.parquet")], [lane])
        found = arrow_files.make(again, rows)
        assert ("", "", False) == (found.refused, found.file, found.replaces)
