"""The shop's bundled messages: five dialects write one history, so five folds end with the same rows."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from ingest import ddl, formats, types
from ingest.change import ROW_OPS, Change, Image, Message, Op, TableId
from ingest.config import Pipeline, Source, load
from ingest.errors import Undecodable
from ingest.fold import Placed, SchemaStep, fold
from ingest.order import Order
from tests.timing import PATIENCE

ROOT = Path(__file__).resolve().parent.parent
PIPELINES = ("dataworks", "drs-json", "dts-canal", "obcloud-canal", "oms-default")
TABLES = ("customers", "orders", "order_lines")
LOOKS_ALIKE = {
    "drs-json": {"dts-canal"},  # without TIMESTAMP a message could be either's
    "obcloud-canal": {"dts-canal"},  # a statement carries no types, whose spelling distinguishes them
}
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
Cells = list[dict[str, object]]


class Seen:
    """All that the samples of one pipeline decode to."""

    def __init__(self, name: str, folder: Path = ROOT / "conf") -> None:
        self.events: dict[TableId, list[Placed | SchemaStep]] = defaultdict(list)
        self.types: dict[TableId, dict[str, str]] = defaultdict(dict)
        self.keys: dict[TableId, tuple[str, ...]] = {}
        self.ops: Counter[Op] = Counter()
        self.kinds: Counter[str] = Counter()
        self.rejects: list[str] = []
        self.newest = EPOCH
        pipeline = load(folder / f"{name}.yaml")
        for source in pipeline.sources:
            self._read(pipeline, source)

    def _read(self, pipeline: Pipeline, source: Source) -> None:
        parse, hints = formats.load(source.format).parse, pipeline.hints(source)
        for number, file in enumerate(sorted(Path(source.path).parent.glob(Path(source.path).name))):
            for line, value in enumerate(file.read_bytes().splitlines()):
                try:
                    for change in parse(Message(value, topic=str(file)), hints):
                        self._take(change, (number, line))
                except Undecodable as reject:
                    self.rejects.append(reject.code)

    def _take(self, change: Change, arrival: tuple[int, int]) -> None:
        order = Order(0, change.phase, change.sequence, change.half, arrival, change.row)
        self.ops[change.op] += 1
        if change.event_time:
            self.newest = max(self.newest, EPOCH + dt.timedelta(microseconds=change.event_time))
        if change.op is Op.DDL:
            self._statement(change, order)
        elif change.op in ROW_OPS:
            self.events[change.table].append(Placed(order, change))
            self.types[change.table] |= change.types
            self.keys[change.table] = change.keys

    def _statement(self, change: Change, order: Order) -> None:
        found = ddl.effects(change.ddl or "", change.dialect, *change.table)  # type: ignore[arg-type]
        self.kinds[found.kind] += 1
        for effect in found.effects:
            if effect.action == "add_column":
                step = SchemaStep(order, "add_column", effect.column or "", default=effect.default)
                self.events[effect.table].append(step)

    def rows(self, table: TableId) -> Cells:
        """The folded rows, each cell as its type's value, by key."""
        known = self.types[table]
        folded = fold(self.events[table], self.keys[table], known)
        return [_cells(known, row.values) for _key, row in sorted(folded.items(), key=lambda item: item[0])]


def _cells(known: dict[str, str], row: Image) -> dict[str, object]:
    return {column: _cell(logical, row.get(column)) for column, logical in known.items()}


def _cell(logical: str, value: str | None) -> object:
    return Decimal(value) if value is not None and types.decimal_parts(logical) else value


def expected(table: str, messages: Path = ROOT / "samples") -> dict[str, Any]:
    """What the generator says the table ends with."""
    found: dict[str, Any] = json.loads((messages / "expected" / f"{table}.json").read_text("utf-8"))
    return found


@pytest.fixture(scope="module", params=PIPELINES)
def seen(request: pytest.FixtureRequest) -> Seen:
    """One pipeline's samples, decoded."""
    return Seen(request.param)


@pytest.mark.parametrize("table", TABLES)
def test_rows(seen: Seen, table: str) -> None:
    """A dialect that ends with other rows than its sisters is misread, or its sample is wrong."""
    wanted = expected(table)
    rows = [_cells(wanted["types"], row) for row in wanted["rows"]]
    assert rows == seen.rows(TableId("shop", None, table))


@pytest.mark.parametrize("table", TABLES)
def test_types_and_keys(seen: Seen, table: str) -> None:
    """The five mirrors of a table must have one schema, so that they can be compared and joined."""
    wanted, of = expected(table), TableId("shop", None, table)
    assert tuple(wanted["keys"]) == seen.keys[of]
    assert {column: types.delta(logical) for column, logical in wanted["types"].items()} == {
        column: types.delta(logical) for column, logical in seen.types[of].items()
    }


def test_nothing_else(seen: Seen) -> None:
    """A sample that stopped holding a statement or a broken line would no longer show what becomes of it."""
    assert {TableId("shop", None, table) for table in TABLES} == set(seen.events)
    assert {"safe": 3} == dict(seen.kinds)
    assert 2 == len(seen.rejects)
    assert {Op.INSERT, Op.UPDATE, Op.DELETE, Op.DDL} <= set(seen.ops)


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("dts-canal", Op.READ),
        ("drs-json", Op.READ),
        ("oms-default", Op.READ),
        ("oms-default", Op.HEARTBEAT),
        ("dataworks", Op.HEARTBEAT),
    ],
)
def test_what_only_some_dialects_have(name: str, op: Op) -> None:
    """Full loads and heartbeats belong into the samples of every dialect that documents them."""
    assert Seen(name).ops[op] > 0


@pytest.mark.parametrize("name", PIPELINES)
def test_messages_are_recognised(name: str) -> None:
    """A sample that shows no mark of its own dialect, or one of another's, is written wrongly."""
    lines = (ROOT / "samples" / name / "shop-1.jsonl").read_bytes().splitlines()
    named = {other for other in formats.names() for line in lines if formats.evidence(other, line)}
    assert {name} | LOOKS_ALIKE.get(name, set()) == named


def test_files_are_what_the_generator_writes() -> None:
    """A sample edited by hand would no longer hold the common history."""
    command = [sys.executable, str(ROOT / "samples" / "make_shop.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (0, "") == (done.returncode, done.stdout)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples as `make demo` writes them."""
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, str(ROOT / "samples" / "make_shop.py"), "--demo", str(folder)]
    assert "" == subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout
    return folder


@pytest.mark.parametrize("name", PIPELINES)
def test_the_demo_is_of_today(demo: Path, name: str) -> None:
    """The first look at pages and `status` would show years of lag, as if something were broken."""
    seen = Seen(name, demo)
    assert dt.timedelta(0) <= dt.datetime.now(dt.UTC) - seen.newest < dt.timedelta(minutes=10)
    for table in TABLES:
        wanted = expected(table, demo / "messages")
        assert [_cells(wanted["types"], row) for row in wanted["rows"]] == seen.rows(
            TableId("shop", None, table)
        )
    assert 2 == len(seen.rejects)


def test_a_demo_is_not_written_again(demo: Path) -> None:
    """The second `make demo` would exchange files that were read: an alarm, or rows of two histories."""
    before = {path: path.read_bytes() for path in demo.rglob("*") if path.is_file()}
    command = [sys.executable, str(ROOT / "samples" / "make_shop.py"), "--demo", str(demo)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert "make clean demo" in done.stdout
    assert before == {path: path.read_bytes() for path in demo.rglob("*") if path.is_file()}
