"""Columns that rows bring without a statement: what a message's own schema says of the rows before them counts."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import pytest

from ingest.change import Options, TableId
from ingest.config import Pipeline
from ingest.config.model import Source, TableRule
from ingest.gold import approval
from ingest.run import Warm, run
from ingest.store.names import mirror_path
from ingest.tables.lake import Lake
from tests.unstarted import unstarted

if TYPE_CHECKING:
    from pathlib import Path

    from ingest.result import Result

ALL = ("bronze", "silver", "gold", "quality")
GOLD = ALL[:3]
ID, V = ("id", "int64", False), ("v", "string", True)
Described = tuple[Any, ...]
"""A field: its name, Connect's type, whether it is optional, maybe its default and its semantic name, with labels if it has any."""


def described(fields: tuple[Described, ...]) -> list[dict[str, Any]]:
    """Fields as Connect's JSON converter writes their schemas."""
    found = []
    for name, kind, optional, *more in fields:
        default, semantic = [*more, None, None][:2]
        one = {"type": kind, "optional": optional, "field": name}
        found.append(
            one
            | ({} if default is None else {"default": default})
            | ({} if semantic is None else _meant(semantic, kind))
        )
    return found


def _meant(semantic: str, kind: str) -> dict[str, Any]:
    name, _, labels = semantic.partition(":")
    meant = {"name": name} | ({"parameters": {"allowed": labels}} if labels else {})
    return {"items": {"type": "string", "optional": True} | meant} if kind == "array" else meant


@dataclass(slots=True)
class Feed:
    """One table's messages with Connect's schema, in the shapes that converters and flattening give them."""

    folder: Path
    shape: str = "debezium"
    rule: TableRule = field(default_factory=lambda: TableRule("*", keys=("id",)))
    left_out: str | None = None
    number: int = 0
    lines: list[str] = field(default_factory=list)
    warm: Warm = field(default_factory=Warm)
    result: Result | None = None

    def row(self, fields: tuple[Described, ...], op: str = "c", /, **cells: Any) -> Self:
        """A row with its schema; `fields` are those of its columns."""
        self.number += 1
        schema, payload = getattr(self, f"_{self.shape.replace('-', '_')}")(described(fields), op, cells)
        wrapped = {"schema": schema, "payload": payload} if fields else payload
        self.lines.append(json.dumps(wrapped, separators=(",", ":")))
        return self

    def _debezium(self, fields: list[dict[str, Any]], op: str, cells: dict[str, Any]) -> tuple[Any, Any]:
        source = {
            "connector": "postgresql", "db": "db", "schema": "s", "table": "t", "snapshot": "false",
            "lsn": 100 + self.number, "ts_ms": 1718000000000 + self.number,
        }  # fmt: skip
        return _envelope(fields), {"op": op, "before": None, "after": cells, "source": source}

    def _flat(self, fields: list[dict[str, Any]], op: str, cells: dict[str, Any]) -> tuple[Any, Any]:
        meta = {"__op": op, "__deleted": "false", "__db": "db", "__schema": "s", "__table": "t"}
        place = {"__connector": "postgresql", "__lsn": 100 + self.number}
        names = [{"type": "string", "optional": True, "field": name} for name in meta | place]
        return {"type": "struct", "fields": [*fields, *names]}, cells | meta | place

    def _oms_debezium(self, fields: list[dict[str, Any]], op: str, cells: dict[str, Any]) -> tuple[Any, Any]:
        source = {
            "name": "OMS", "db": "db", "table": "t", "ts_ms": 1718000000000, "pos": f"{self.number}@1718000000"
        }  # fmt: skip
        return _envelope(fields), {"op": op, "before": None, "after": cells, "source": source}

    def _confluent_oracle(
        self, fields: list[dict[str, Any]], op: str, cells: dict[str, Any]
    ) -> tuple[Any, Any]:
        meta = {"table": "db.s.t", "op_type": "I", "scn": str(100 + self.number), "op_ts": "1718000000000"}
        meta |= {"row_id": "AAA", "username": "u", "current_ts": "1718000000000"}
        names = [{"type": "string", "optional": True, "field": name} for name in meta]
        return {"type": "struct", "fields": [*fields, *names]}, cells | meta

    def _maxwell(self, _fields: list[dict[str, Any]], _op: str, cells: dict[str, Any]) -> tuple[Any, Any]:
        place = {"ts": 1718000000 + self.number, "xid": self.number, "commit": True}
        return None, {"database": "db", "table": "t", "type": "insert", "data": cells} | place

    def _dms(self, _fields: list[dict[str, Any]], _op: str, cells: dict[str, Any]) -> tuple[Any, Any]:
        meta = {"record-type": "data", "operation": "insert", "schema-name": "db", "table-name": "t"}
        return None, {
            "data": cells,
            "metadata": meta | {"timestamp": f"2024-06-10T06:13:{self.number:02}.000000Z"},
        }

    def _ogg(self, _fields: list[dict[str, Any]], _op: str, cells: dict[str, Any]) -> tuple[Any, Any]:
        place = {"table": "db.t", "op_ts": "2024-06-10 06:14:02.000000", "pos": f"{self.number:020}"}
        return None, {**place, "op_type": "I", "after": cells}

    def _canal(self, _fields: list[dict[str, Any]], _op: str, cells: dict[str, Any]) -> tuple[Any, Any]:
        clock = 1718000000000 + self.number
        texts = {name: None if cell is None else str(cell) for name, cell in cells.items()}
        return None, {
            "database": "db", "table": "t", "type": "INSERT", "isDdl": False, "es": clock, "ts": clock, "id": self.number,
            "data": [texts], "old": None, "mysqlType": None, "pkNames": ["id"], "sql": "",
        }  # fmt: skip

    @property
    def table(self) -> TableId:
        """The one table."""
        return TableId("db", "s" if self.shape in ("debezium", "flat", "confluent-oracle") else None, "t")

    @property
    def pipeline(self) -> Pipeline:
        """Over the folder's files."""
        name = "debezium" if self.shape == "flat" else self.shape
        path = str(self.folder / "in-*.jsonl")
        options = Options(left_out=self.left_out)
        source = Source("s", "files", name, path=path, settle=0, options=options)
        return Pipeline(
            "x", self.folder / "x.yaml", str(self.folder / "lake"), (source,), (self.rule,), engine="auto"
        )

    def run(self, *stages: str) -> Self:
        """Land what was said as one batch."""
        (self.folder / f"in-{self.number}.jsonl").write_text("\n".join(self.lines) + "\n")
        self.lines.clear()
        self.result = run(unstarted(), self.pipeline, stages or GOLD, self.warm)
        return self

    @property
    def lake(self) -> Lake:
        """What was written."""
        return Lake(unstarted(), self.pipeline)

    def column(self, name: str) -> list[Any]:
        """A mirror's column, by the key."""
        query = f'SELECT "{name}" AS c FROM {{mirror}} ORDER BY id'
        return [row["c"] for row in self.lake.ask_mirror(mirror_path(self.table), query)]

    def states(self) -> list[str]:
        """The mirrors' states after the last run."""
        assert self.result is not None
        return [mirror.state for mirror in self.result.mirrors]

    def unknown(self) -> list[tuple[str | None, float]]:
        """Columns and rows whose values the last run says are not known."""
        assert self.result is not None
        found = self.lake.ask(
            "SELECT \"column\", observed FROM {checks} WHERE \"check\" = 'unknown_values' AND state = 'fail' "
            f"AND run = '{self.result.run}' ORDER BY ALL"
        )
        return [(row["column"], row["observed"]) for row in found]


def _envelope(fields: list[dict[str, Any]]) -> dict[str, Any]:
    images = [
        {"type": "struct", "fields": fields, "optional": True, "field": one} for one in ("before", "after")
    ]
    return {"type": "struct", "fields": images, "optional": False, "name": "s.Envelope"}


SHAPES = ("debezium", "flat", "oms-debezium", "confluent-oracle")


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_before_a_column_have_its_default(tmp_path: Path, shape: str) -> None:
    """PostgreSQL sends no other word of ADD COLUMN ... DEFAULT 7: with NULL each older row was wrong, and nothing said so."""
    feed = Feed(tmp_path, shape)
    feed.row((ID, V), id=1, v="a").row((ID, V), id=2, v="b").run()
    may_be_null, never_null = ("c", "int32", True, 7), ("d", "int32", False, 6)
    feed.row((ID, V, may_be_null, never_null), id=3, v="c", c=9, d=5).run(*ALL)
    assert [[7, 7, 9], [6, 6, 5]] == [[int(cell) for cell in feed.column(name)] for name in "cd"]
    assert feed.result is not None
    assert [] == feed.result.failures


def test_a_default_that_changes_later_is_that_of_new_rows(tmp_path: Path) -> None:
    """Rows from before the column have what its first default was."""
    feed = (
        Feed(tmp_path).row((ID, V), id=1, v="a").row((ID, V, ("c", "int32", True, 7)), id=2, v="b", c=9).run()
    )
    feed.row((ID, V, ("c", "int32", True, 8)), id=3, v="c", c=8).run()
    assert [7, 9, 8] == feed.column("c")


def test_in_one_batch(tmp_path: Path) -> None:
    """How messages are cut into batches decides nothing."""
    feed = Feed(tmp_path).row((ID, V), id=1, v="a")
    feed.row((ID, V, ("c", "int32", False, 7)), id=2, v="b", c=9).run()
    assert [7, 9] == feed.column("c")


def test_an_update_with_the_column_brings_it_too(tmp_path: Path) -> None:
    """The first message after the statement is as often an update."""
    feed = Feed(tmp_path).row((ID, V), id=1, v="a").row((ID, V), id=2, v="b").run()
    feed.row((ID, V, ("c", "int32", False, 7)), "u", id=2, v="b", c=7).run()
    assert [7, 7] == feed.column("c")


def test_a_default_from_the_first_row_on_fills_nothing(tmp_path: Path) -> None:
    """Rows with NULL in a column that was there have NULL, whatever its default is now."""
    c = ("c", "int32", True, 7)
    feed = Feed(tmp_path).row((ID, c), id=1, c=None).run()
    feed.row((ID, c), id=2, c=3).run()
    assert [None, 3] == feed.column("c")


DEFAULTS = [
    ("string", "x", None, "x"),
    ("boolean", True, None, "True"),
    ("double", 1.5, None, "1.5"),
    ("int32", 19889, "io.debezium.time.Date", "2024-06-15"),
    ("int64", 1718000000000000, "io.debezium.time.MicroTimestamp", "2024-06-10 06:13:20"),
    ("string", "7d444840-9dc0-11d1-b245-5ffdce74fad2", "io.debezium.data.Uuid", "7d444840-9dc0-11d1-b245-5ffdce74fad2"),
    ("int32", 0, None, "0"),
]  # fmt: skip


def test_a_default_is_read_as_the_columns_values(tmp_path: Path) -> None:
    """A day number or base64 in the cells of old rows would be no value of the column."""
    columns = [
        (f"c{number}", kind, False, default, semantic)
        for number, (kind, default, semantic, _) in enumerate(DEFAULTS)
    ]
    feed = Feed(tmp_path).row((ID, V), id=1, v="a")
    cells = {name: default for name, _, _, default, _ in columns}
    feed.row((ID, V, *columns), id=2, v="b", **cells).run()
    expected = [[stored, stored] for *_, stored in DEFAULTS]
    assert expected == [[str(cell) for cell in feed.column(name)] for name, *_ in columns]


PLACEHOLDERS = [
    ("int64", 0, "io.debezium.time.MicroTimestamp"),
    ("int32", 0, "io.debezium.time.Date"),
    ("string", "1970-01-01T00:00:00.000000Z", "io.debezium.time.ZonedTimestamp"),
    ("string", "00000000-0000-0000-0000-000000000000", "io.debezium.data.Uuid"),
    ("int32", None, None),  # NOT NULL without a default: MySQL's zero, or a table that was empty
]


def test_what_the_schema_does_not_tell_is_an_error(tmp_path: Path) -> None:
    """Debezium writes a placeholder for DEFAULT now(): 1970 in every old row would be wrong, and NULL is, too."""
    columns = [
        (f"c{number}", kind, False, default, semantic)
        for number, (kind, default, semantic) in enumerate(PLACEHOLDERS)
    ]
    values = {"int64": 1718000000000000, "int32": 5, "string": "2024-06-10T06:13:20Z"}
    cells = {name: values[kind] for name, kind, *_ in columns}
    feed = Feed(tmp_path).row((ID, V), id=1, v="a").row((ID, V), id=2, v="b").run()
    feed.row((ID, V, *columns), id=3, v="c", **cells).run(*ALL)
    assert [(name, 2.0) for name in cells] == feed.unknown()
    assert {(None, None)} == {tuple(feed.column(name)[:2]) for name in cells}
    for waits in approval.listed(feed.lake):
        approval.approve_or_dismiss(feed.lake, waits.statement.id, "approve", "compared")
    assert [] == feed.row((ID, V, *columns), id=4, v="d", **cells).run(*ALL).unknown()


def test_a_column_that_may_be_null_and_has_no_default_was_null(tmp_path: Path) -> None:
    """The most frequent change of a schema is no complaint: ADD COLUMN without a default gives NULL."""
    feed = Feed(tmp_path).row((ID, V), id=1, v="a").run()
    feed.row((ID, V, ("c", "int32", True)), id=2, v="b", c=9).run(*ALL)
    assert [None, 9] == feed.column("c")
    assert feed.result is not None
    assert [] == feed.result.failures


def test_a_masked_column_gets_its_masked_default(tmp_path: Path) -> None:
    """The default is a value like any other: in the clear it would show what a mask hides."""
    rule = TableRule("*", keys=("id",), mask={"c": "last4"})
    feed = Feed(tmp_path, rule=rule).row((ID, V), id=1, v="a")
    feed.row((ID, V, ("c", "string", False, "secret-1234")), id=2, v="b", c="secret-9876").run()
    hidden, other = feed.column("c")
    assert hidden.endswith("1234")
    assert "secret" not in hidden + other
    [books] = {row["announced"] for row in feed.lake.ask("SELECT announced FROM {books}")}
    assert "secret" not in books


@pytest.mark.one_of(3, "shape")
@pytest.mark.parametrize("shape", ["debezium", "flat", "canal", "maxwell", "dms", "ogg"])
def test_a_new_column_that_nothing_explains_is_an_error(tmp_path: Path, shape: str) -> None:
    """Without a schema and a statement, ADD COLUMN ... DEFAULT 7 cannot be told from one without a default."""
    feed = Feed(tmp_path, shape).row((), id=1, v="a").row((), id=2, v=None).row((), id=3, v="c").run(*ALL)
    assert [] == feed.unknown()
    feed.row((), id=3, v="d", c=9).run(*ALL)
    assert [("c", 2.0)] == feed.unknown()


def test_a_row_that_comes_again_or_a_decision_settles_a_new_column(tmp_path: Path) -> None:
    """The complaint names the rows that are left, and ends with them."""
    feed = Feed(tmp_path).row((), id=1, v="a").row((), id=2, v=None).row((), id=3, v="c").run()
    feed.row((), id=3, v="d", c=9).row((), id=1, v="a", c=7).run(*ALL)
    assert [("c", 1.0)] == feed.unknown()
    [one] = approval.listed(feed.lake)
    assert ("partly", True) == (one.state, one.pending)
    approval.approve_or_dismiss(feed.lake, one.statement.id, "approve", "compared")
    assert [] == feed.row((), id=4, v="e", c=1).run(*ALL).unknown()
    assert ["7", None, "9", "1"] == [one and str(one) for one in feed.column("c")]


NEVER_NULL = ["maxwell", "dms", "ogg"]


@pytest.mark.one_of(3, "shape")
@pytest.mark.parametrize("shape", NEVER_NULL)
def test_a_new_column_where_nulls_may_be_left_out(tmp_path: Path, shape: str) -> None:
    """No message tells a column that was added from one that was NULL before: what old rows have was taken for NULL."""
    feed = Feed(tmp_path, shape).row((), id=1, v="a").row((), id=2, v="b").run(*ALL)
    assert [] == feed.unknown()
    feed.row((), id=3, v="c", c=9).run(*ALL)
    assert [("c", 2.0)] == feed.unknown()
    assert feed.result is not None
    assert "`left_out: null`" in " ".join(feed.result.failures)


@pytest.mark.one_of(3, "shape")
@pytest.mark.parametrize("shape", NEVER_NULL)
def test_a_source_that_is_known_to_leave_nulls_out(tmp_path: Path, shape: str) -> None:
    """What such rows lack is NULL: a complaint about each column that is sometimes NULL would hide the others."""
    feed = Feed(tmp_path, shape, left_out="null").row((), id=1, v="a").run(*ALL)
    feed.row((), id=2, v="b", c=9).row((), id=3, c=4).run(*ALL)
    assert feed.result is not None
    assert ([], [], []) == (feed.unknown(), feed.result.failures, feed.result.warnings)


def test_a_column_that_comes_and_goes_is_left_out(tmp_path: Path) -> None:
    """Maxwell with output_nulls=false sends a column where it has a value: no statement has added it."""
    feed = Feed(tmp_path, "maxwell").row((), id=1, v="a").run(*ALL)
    feed.row((), id=2, v="b", c=9).row((), id=3, v="d").run(*ALL)
    assert feed.result is not None
    assert ([], [], []) == (feed.unknown(), feed.result.failures, feed.result.warnings)


def test_rows_of_an_older_schema_are_an_error(tmp_path: Path) -> None:
    """Of two producers one may still have the schema without the column: its rows have NULL where the source has none."""
    c = ("c", "int32", False, 7)
    feed = Feed(tmp_path).row((ID, V), id=1, v="a").row((ID, V, c), id=2, v="b", c=9)
    feed.row((ID, V), id=3, v="c").row((ID, V, c), id=4, v="d", c=9).run(*ALL)
    assert [7, 9, None, 9] == feed.column("c")
    assert [("c", 1.0)] == feed.unknown()


@pytest.mark.parametrize(("table", "default", "unknown"), [("u", None, [("c", 2.0)]), ("t", 7, [])])
def test_a_decision_on_another_statement_says_nothing_of_a_column_that_is_back(
    tmp_path: Path, table: str, default: int | None, unknown: list[tuple[str, float]]
) -> None:
    """A column of that name in another table, or one whose values were all known, was decided: the complaint never came."""
    c = ("c", "int32", False, default)
    feed = Feed(tmp_path).row((ID, V), id=1, v="a").row((ID, V, c), id=2, v="b", c=9)
    feed.lines = [line.replace('"table":"t"', f'"table":"{table}"') for line in feed.lines]
    feed.row((ID, V, c), id=8, v="h", c=9).run(*ALL)
    [decided] = approval.listed(feed.lake)
    approval.approve_or_dismiss(feed.lake, decided.statement.id, "approve", "compared")
    feed.row((ID, V), id=3, v="c").row((ID, V, c), id=4, v="d", c=9).run(*ALL)
    assert unknown == feed.unknown()
    if default:
        assert [7, 7, 7, 9, 7] == feed.column("c")


def test_a_column_that_a_rule_leaves_out_is_no_complaint(tmp_path: Path) -> None:
    """What the mirror does not have cannot be unknown in it."""
    rule = TableRule("*", keys=("id",), without=("c",))
    feed = Feed(tmp_path, rule=rule).row((), id=1, v="a").row((), id=2, v="b", c=9).run(*ALL)
    assert [] == feed.unknown()


def test_late_rows_before_the_column_are_filled_too(tmp_path: Path) -> None:
    """A row that is delivered after the column's first row, but stands before it, had the default as well."""
    feed = Feed(tmp_path).row((ID, V), id=1, v="a")
    feed.number += 10
    feed.row((ID, V, ("c", "int32", False, 7)), id=2, v="b", c=9).run()
    feed.number -= 8
    feed.row((ID, V), id=3, v="c").run()
    assert [7, 9, 7] == feed.column("c")


def test_the_ledger_lists_it(tmp_path: Path) -> None:
    """What changed old rows is among the statements, though no message has it."""
    feed = Feed(tmp_path).row((ID, V), id=1, v="a")
    feed.row((ID, V, ("c", "int32", False, 7)), id=2, v="b", c=9).run()
    [one] = approval.listed(feed.lake)
    assert ("applied", ("adds column c (INT); existing rows get '7'",)) == (one.state, one.verdict.does)


@pytest.mark.one_of(2, "batches")
@pytest.mark.parametrize("rule", [TableRule("*", keys=("id",)), TableRule("*", no_key="full_row")])
@pytest.mark.parametrize("batches", [1, 2])
def test_the_row_that_announces_a_column_had_its_default_before(
    tmp_path: Path, rule: TableRule, batches: int
) -> None:
    """Its image before raised a false alarm: with REPLICA IDENTITY FULL, at the first change after each ADD COLUMN with a default."""
    feed = Feed(tmp_path, rule=rule)
    for key in (1, 2):
        feed.row((ID, V), id=key, v="a")
    if batches == 2:
        feed.run(*ALL)
    more = ("more", "int32", True, 7)
    feed.row((ID, V, more), "u", id=1, v="b", more=8)
    message = json.loads(feed.lines.pop())
    message["payload"]["before"] = {"id": 1, "v": "a", "more": 7}
    feed.lines.append(json.dumps(message))
    result = feed.run(*ALL).result
    assert result is not None
    assert [] == [*result.failed, *result.warnings]
    assert (["b", "a"], [8, 7]) == (feed.column("v"), feed.column("more"))


NOT_OLDER_ROWS = [
    (("more", "int32", False, 0), 2, 8),  # serial: the connector writes zero for what a sequence gives
    (("more", "int32", True, 7), None, 8),  # ALTER ... SET DEFAULT after ADD
    (
        ("more", "array", True, None, "io.debezium.data.Enum:a,b"),
        ["a"],
        ["b"],
    ),  # arrays come without their default
    (("more", "bytes", True), "QUI=", "QUM="),  # so does bytea
]


@pytest.mark.one_of(2, "batches")
@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize(("more", "before", "after"), NOT_OLDER_ROWS)
def test_an_image_before_shows_that_older_rows_had_another_default(
    tmp_path: Path, more: Described, before: object, after: object, batches: int
) -> None:
    """The schema says the default of today, or none; with REPLICA IDENTITY FULL the next change of a row proves it wrong."""
    feed = Feed(tmp_path)
    for key in (1, 2):
        feed.row((ID, V), id=key, v="a")
    if batches == 2:
        feed.run(*ALL)
    feed.row((ID, V, more), id=3, v="c", more=after)
    feed.row((ID, V, more), "u", id=1, v="b", more=before)
    message = json.loads(feed.lines.pop())
    message["payload"]["before"] = {"id": 1, "v": "a", "more": before}
    feed.lines.append(json.dumps(message))
    feed.run(*ALL)
    assert any("images_before" in each or "a change says that more was" in each for each in said(feed))


@pytest.mark.parametrize("first", ["partial", "delete"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_row_that_is_not_sent_whole_announces_a_column(tmp_path: Path, first: str, whole: bool) -> None:
    """Older rows had NULL in place of the default, in silence where each later row lacked its unchanged large value."""
    feed = Feed(tmp_path)
    for key in (1, 2, 3):
        feed.row((ID, V), id=key, v="a")
    feed.run()
    fields = (ID, V, ("more", "int32", True, 7))
    if first == "partial":
        feed.row(fields, "u", id=1, v="__debezium_unavailable_value", more=8)
    else:
        message = json.loads(feed.row(fields, "d").lines.pop())
        message["payload"] |= {"before": {"id": 1, "v": "a", "more": 7}, "after": None}
        feed.lines.append(json.dumps(message))
    feed.run()
    feed.row(fields, "u", id=3, v="b" if whole else "__debezium_unavailable_value", more=9)
    result = feed.run(*ALL).result
    assert result is not None
    assert [] == [*result.failed, *result.warnings]
    assert [8, 7, 9][first == "delete" :] == feed.column("more")


# --- labels of enumerations ------------------------------------------------------------------------


def mood(*labels: str, kind: str = "string") -> Described:
    """The column ``v`` of an enumeration, or of an array of its labels."""
    return "v", kind, True, None, f"io.debezium.data.Enum:{','.join(labels)}"


OLD, NEW = (ID, mood("sad", "ok")), (ID, mood("unhappy", "ok"))


def said(feed: Feed) -> list[str]:
    """What the last run complains of."""
    assert feed.result is not None
    return [*feed.result.failures, *feed.result.warnings]


@pytest.mark.one_of(4, "shape", "batches")
@pytest.mark.parametrize("shape", ["debezium", "flat"])
@pytest.mark.parametrize("rule", [TableRule("*", keys=("id",)), TableRule("*", no_key="full_row")])
@pytest.mark.parametrize("batches", [1, 2])
def test_a_label_in_the_place_of_another_is_its_new_name(
    tmp_path: Path, shape: str, rule: TableRule, batches: int
) -> None:
    """PostgreSQL sends nothing of ALTER TYPE ... RENAME VALUE: older rows kept the old label, and nothing said so."""
    feed = Feed(tmp_path, shape, rule).row(OLD, id=1, v="sad").row(OLD, id=2, v="ok")
    if batches == 2:
        feed.run(*ALL)
    feed.row(NEW, id=3, v="unhappy").run(*ALL)
    assert ["unhappy", "ok", "unhappy"] == feed.column("v")
    assert [] == said(feed)
    [listed] = approval.listed(feed.lake)
    assert ("applied", ("gives rows with 'sad' in column v the value 'unhappy'",)) == (
        listed.state,
        listed.verdict.does,
    )


@pytest.mark.parametrize("more", [("sad", "ok", "new"), ("new", "sad", "ok"), ("sad", "new", "newer", "ok")])
def test_an_added_label_renames_nothing(tmp_path: Path, more: tuple[str, ...]) -> None:
    """ADD VALUE, the most frequent change of a type, is no complaint and no statement, wherever it puts the label."""
    feed = Feed(tmp_path).row(OLD, id=1, v="sad").row(OLD, id=2, v="new").run(*ALL)
    feed.row((ID, mood(*more)), id=3, v="new").run(*ALL)
    assert ["sad", "new", "new"] == feed.column("v")
    assert ([], []) == (said(feed), approval.listed(feed.lake))


def test_a_late_message_with_the_older_list(tmp_path: Path) -> None:
    """It renamed the labels back, or kept the old one itself."""
    feed = Feed(tmp_path).row(OLD, id=1, v="sad")
    feed.number += 10
    feed.row(NEW, id=2, v="unhappy").run()
    feed.number -= 8
    feed.row(OLD, id=3, v="sad").run(*ALL)
    assert ["unhappy", "unhappy", "unhappy"] == feed.column("v")
    assert [] == said(feed)


@pytest.mark.parametrize("arrive", ["as one batch", "as two"])
def test_where_arrival_alone_orders_rows_an_older_list_is_late(tmp_path: Path, arrive: str) -> None:
    """Of two partitions one is behind: its last messages with the older list set all rows back."""
    feed = Feed(tmp_path, "flat").row(OLD, id=1, v="sad").row(NEW, id=2, v="unhappy")
    lines, feed.lines = feed.lines, []
    feed.lines = [line.replace('"__deleted":"false",', "") for line in lines]
    if arrive == "as two":
        feed.run()
    feed.row(OLD, id=3, v="sad")
    feed.lines = [line.replace('"__deleted":"false",', "") for line in feed.lines]
    feed.run()
    assert ["unhappy", "unhappy", "unhappy"] == feed.column("v")


def test_older_rows_with_the_list_of_today(tmp_path: Path) -> None:
    """A connector that starts again reads the list as it is by then, and rows from before the statement come with it."""
    feed = Feed(tmp_path).row(OLD, id=1, v="sad").run()
    feed.row(NEW, id=2, v="sad").run()
    feed.row(NEW, id=3, v="sad").row(NEW, id=4, v="unhappy").run(*ALL)
    assert ["unhappy"] * 4 == feed.column("v")
    assert [] == said(feed)


def test_a_label_that_is_renamed_back(tmp_path: Path) -> None:
    """The older list at a later place is the newer one."""
    feed = Feed(tmp_path).row(OLD, id=1, v="sad").row(NEW, id=2, v="unhappy").run()
    feed.row(OLD, id=3, v="ok").run(*ALL)
    assert ["sad", "sad", "ok"] == feed.column("v")
    assert [] == said(feed)


def test_labels_that_are_renamed_one_after_the_other(tmp_path: Path) -> None:
    """The old name of one is that of another by now: only the rows from before have the first."""
    feed = Feed(tmp_path).row(OLD, id=1, v="sad").row(OLD, id=2, v="ok").run()
    feed.row(NEW, id=3, v="unhappy").row((ID, mood("unhappy", "sad")), id=4, v="sad").run(*ALL)
    assert ["unhappy", "sad", "unhappy", "sad"] == feed.column("v")
    assert [] == said(feed)


def test_a_renamed_label_in_arrays(tmp_path: Path) -> None:
    """An array of labels has the new one in place of each old one."""
    old, new = mood("sad", "ok", kind="array"), mood('"low"', "ok", kind="array")
    feed = Feed(tmp_path).row((ID, old), id=1, v=["sad", "ok", "sad"]).row((ID, old), id=2, v=[]).run()
    feed.row((ID, new), id=3, v=["ok"]).run(*ALL)
    assert [[*'"low"'.split(), "ok", '"low"'], [], ["ok"]] == [json.loads(cell) for cell in feed.column("v")]
    assert [] == said(feed)


@pytest.mark.parametrize(
    ("now", "rows"),
    [
        (("ok",), 1),
        (("low", "lower", "ok"), 1),
        (("ok", "sad", "new"), 2),
        (("sad",), 1),
        (("low", "high"), 2),
    ],
)
def test_labels_that_are_gone_or_elsewhere(tmp_path: Path, now: tuple[str, ...], rows: int) -> None:
    """The type was dropped and made again: what rows have whose label is gone, only the source knows; a guess would be silent."""
    feed = Feed(tmp_path).row(OLD, id=1, v="sad").row(OLD, id=2, v="ok").row(OLD, id=3, v=None).run(*ALL)
    feed.row((ID, mood(*now)), id=4, v=now[0]).run(*ALL)
    assert (["sad", "ok", None, now[0]], [("v", rows)]) == (feed.column("v"), feed.unknown())
    assert "only the source knows" in str(approval.listed(feed.lake)[0].verdict.does)
    feed.row((ID, mood(*now)), id=1, v=now[0]).row((ID, mood(*now)), id=2, v=now[0]).run(*ALL)
    assert [] == feed.unknown()


def test_a_column_that_the_mirror_holds_as_a_number(tmp_path: Path) -> None:
    """The check compared numbers with texts, and failed with all others of the stage."""
    rule = TableRule("*", keys=("id",), columns={"v": "int32"})
    feed = (
        Feed(tmp_path, rule=rule)
        .row((ID, mood("1", "2")), id=1, v="1")
        .row((ID, mood("1", "2")), id=2, v="2")
    )
    feed.run(*ALL)
    assert [("v", 1)] == feed.row((ID, mood("2")), id=3, v="2").run(*ALL).unknown()


def test_labels_with_commas(tmp_path: Path) -> None:
    """Lists that are cut within labels stopped each later run of the whole lake."""
    feed = Feed(tmp_path).row((ID, mood("a", "b", "a", "b")), id=1, v="a,b")
    feed.row((ID, mood("x", "b", "a", "b")), id=2, v="x,b").run(*ALL)
    assert ["a,b", "x,b"] == feed.column("v")


@pytest.mark.one_of(4, "kind", "batches")
@pytest.mark.parametrize(
    ("now", "expected", "unknown"),
    [
        (("ok", "d", "low"), "d", []),
        (("ok", "b, c", "low"), "b,c", [("v", 1)]),  # it becomes two parts, like labels of another type
        (("ok", "b,c", "more", "low"), "b,c", []),
        (("new", "ok", "b,c", "low"), "b,c", []),
        (("fine", "b,c", "low"), "b,c", []),
        (("ok", "low"), "b,c", [("v", 1)]),
    ],
)
@pytest.mark.parametrize("kind", ["string", "array"])
@pytest.mark.parametrize("batches", [1, 2])
def test_a_label_with_a_comma(
    tmp_path: Path, now: tuple[str, ...], expected: str, unknown: list[Any], kind: str, batches: int
) -> None:
    """The list is cut at the comma, too, so that a row's label was in neither list, and it kept that without a word."""
    old, new = mood("ok", "b,c", "low", kind=kind), mood(*now, kind=kind)

    def cell(label: str) -> Any:
        return [label] if kind == "array" else label

    feed = Feed(tmp_path).row((ID, old), id=1, v=cell("b,c"))
    if batches == 2:
        feed.run(*ALL)
    feed.row((ID, new), id=2, v=cell("low")).run(*ALL)
    held = [json.loads(v)[0] if kind == "array" else v for v in feed.column("v")]
    assert ([expected, "low"], unknown) == (held, feed.unknown())
    assert bool(unknown) == bool(said(feed))


def test_a_label_with_a_comma_that_comes_back(tmp_path: Path) -> None:
    """A row that rightly has the label was taken for an older one, and got the new name of the label before."""
    feed = Feed(tmp_path).row((ID, mood("ok", "b,c", "low")), id=1, v="b,c")
    feed.row((ID, mood("ok", "d", "low")), id=2, v="d")
    feed.row((ID, mood("ok", "d", "low", "b,c")), id=3, v="b,c").run(*ALL)
    assert (["d", "d", "b,c"], []) == (feed.column("v"), feed.unknown())


def test_labels_that_begin_as_a_list(tmp_path: Path) -> None:
    """No list of texts is read from them, and they keep their spaces."""
    old, new = mood("sad", "[", "[1; 2]", "[1]"), mood("unhappy", "[", "[1; 2]", "[ 1]")
    feed = Feed(tmp_path).row((ID, old), id=1, v="sad").row((ID, old), id=2, v="[")
    feed.row((ID, old), id=3, v="[1; 2]").row((ID, new), id=4, v="[1]").run()
    feed.row((ID, new), id=5, v="unhappy").run(*ALL)
    assert ["unhappy", "[", "[1; 2]", "[ 1]", "unhappy"] == feed.column("v")
    assert [] == said(feed)


def test_older_rows_with_the_list_of_today_in_arrays(tmp_path: Path) -> None:
    """An old row that comes with the new list shows by its own labels that it is from before."""
    old, new = mood("sad", "ok", kind="array"), mood("unhappy", "ok", kind="array")
    feed = Feed(tmp_path).row((ID, old), id=1, v=["sad"]).row((ID, new), id=2, v=["ok", "sad"])
    feed.row((ID, new), id=3, v=["unhappy", None]).run(*ALL)
    assert [["unhappy"], ["ok", "unhappy"], ["unhappy", None]] == [json.loads(v) for v in feed.column("v")]
    assert [] == said(feed)


def test_a_masked_array(tmp_path: Path) -> None:
    """Its mask is one of the whole list: no label is in it."""
    old, new = mood("secret-sad1", kind="array"), mood("secret-low3", kind="array")
    feed = Feed(tmp_path, rule=TableRule("*", keys=("id",), mask={"v": "last4"}))
    feed.row((ID, old), id=1, v=["secret-sad1"]).row((ID, new), id=2, v=["secret-low3"]).run(*ALL)
    assert ([], []) == (said(feed), approval.listed(feed.lake))


@pytest.mark.parametrize("place", ["__lsn", "__ts"])
def test_flattened_rows_that_do_not_name_their_connector(tmp_path: Path, place: str) -> None:
    """Those of MySQL, whose statements say what becomes of labels, failed the check after a MODIFY; ``lsn`` is PostgreSQL's."""
    feed = Feed(tmp_path, "flat").row(OLD, id=1, v="sad").row((ID, mood("ok", "sad", "new")), id=2, v="ok")
    feed.lines = [line.replace("__connector", "__other").replace("__lsn", place) for line in feed.lines]
    assert ([("v", 1)] if place == "__lsn" else []) == feed.run(*ALL).unknown()


def test_the_same_labels_in_another_order(tmp_path: Path) -> None:
    """A type that was made again to sort otherwise: its rows have kept their labels."""
    feed = Feed(tmp_path).row(OLD, id=1, v="sad").row((ID, mood("ok", "sad")), id=2, v="ok").run(*ALL)
    assert (["sad", "ok"], [], []) == (feed.column("v"), said(feed), approval.listed(feed.lake))


def test_a_lost_label_that_no_row_has(tmp_path: Path) -> None:
    """Who makes a type again without a label that was never used has a right mirror."""
    feed = Feed(tmp_path).row(OLD, id=1, v="ok").run(*ALL)
    feed.row((ID, mood("ok")), id=2, v="ok").run(*ALL)
    assert [] == said(feed)


def test_a_decision_accepts_lost_labels(tmp_path: Path) -> None:
    """The command that the sentence gives ends the complaint."""
    feed = Feed(tmp_path).row(OLD, id=1, v="sad").row((ID, mood("ok")), id=2, v="ok").run(*ALL)
    [waits] = approval.listed(feed.lake)
    assert (["partly"], True) == (
        [waits.state],
        f"ddl approve {feed.pipeline.file} {waits.statement.id}" in said(feed)[0],
    )
    approval.approve_or_dismiss(feed.lake, waits.statement.id, "approve", "compared")
    assert [] == feed.row((ID, mood("ok")), id=3, v="ok").run(*ALL).unknown()


def test_labels_of_mysql_are_its_statements(tmp_path: Path) -> None:
    """MySQL converts the rows by a statement, which is sent by itself: a list in another order is nothing more."""
    feed = Feed(tmp_path)
    for fields, number, label in ((OLD, 1, "sad"), (NEW, 2, "unhappy"), ((ID, mood("ok")), 3, "ok")):
        feed.row(fields, id=number, v=label)
    feed.lines = [
        line.replace("postgresql", "mysql").replace('"lsn":', '"file":"f.1","pos":') for line in feed.lines
    ]
    feed.run(*ALL)
    assert ([], []) == (said(feed), approval.listed(feed.lake))


def test_labels_of_a_table_whose_statements_are_sent(tmp_path: Path) -> None:
    """Flattened rows may be of MySQL without a word of it: what its statement does to them would count twice."""
    feed = Feed(tmp_path, "flat").row(OLD, id=1, v="sad").row((ID, mood("ok", "sad")), id=2, v="ok")
    first, last = (line.replace("postgresql", "").replace("__lsn", "__pos") for line in feed.lines)
    source = {"connector": "mysql", "db": "db", "table": "t", "file": "f.1", "pos": 102}
    text = "ALTER TABLE t MODIFY v ENUM('ok', 'sad')"
    change = {
        "type": "ALTER",
        "id": '"db"."s"."t"',
        "table": {"primaryKeyColumnNames": ["id"], "columns": []},
    }
    event = {"source": source, "databaseName": "db", "ddl": text, "tableChanges": [change]}
    feed.lines = [first, json.dumps(event), last]
    feed.run(*ALL)
    assert [text] == [entry.statement.text for entry in approval.listed(feed.lake)]


def test_labels_of_a_masked_column(tmp_path: Path) -> None:
    """The lists would show what the mask hides."""
    feed = Feed(tmp_path, rule=TableRule("*", keys=("id",), mask={"v": "last4"}))
    feed.row((ID, mood("secret-sad1", "secret-ok22")), id=1, v="secret-sad1")
    feed.row((ID, mood("secret-low3", "secret-ok22")), id=2, v="secret-low3").run(*ALL)
    assert ["low3", "low3"] == [cell[-4:] for cell in feed.column("v")]
    [books] = {row["announced"] for row in feed.lake.ask("SELECT announced FROM {books}")}
    assert "secret" not in books + str(approval.listed(feed.lake)) + str(feed.column("v"))
    assert [] == said(feed)


# --- columns by another name or at another place -----------------------------------------------------

N = ("n", "int32", True)
W = ("w", "string", True)
LARGE = "__debezium_unavailable_value"


@pytest.mark.one_of(4, "shape", "policy")
@pytest.mark.parametrize("shape", ["debezium", "flat"])
@pytest.mark.parametrize("w", ["short", LARGE])
@pytest.mark.parametrize("policy", ["lenient", "evolve"])
def test_a_name_at_the_place_of_another_is_its_new_name(
    tmp_path: Path, shape: str, w: str, policy: Any
) -> None:
    """PostgreSQL sends nothing of RENAME COLUMN: the new column was NULL in older rows, and missing if its value was large."""
    feed = Feed(tmp_path, shape, rule=TableRule("*", keys=("id",), on_schema_change=policy))
    feed.row((ID, V, N), id=1, v="a", n=1).row((ID, V, N), id=2, v="b", n=2).run(*ALL)
    feed.row((ID, W, N), "u", id=2, w=w, n=3).run(*ALL)
    assert ["a", "b" if w == LARGE else w] == feed.column("w")
    assert [1, 3] == feed.column("n")
    assert [] == said(feed)
    feed.row((ID, W, N), "u", id=1, w="new", n=3).run(*ALL)
    assert ["new", "b" if w == LARGE else w] == feed.column("w")
    assert [] == said(feed)


def test_the_last_column_with_another_name(tmp_path: Path) -> None:
    """A row that leaves a column unchanged that no row had before shows that it is an older one."""
    feed = Feed(tmp_path).row((ID, N, V), id=1, n=1, v="a").row((ID, N, V), id=2, n=2, v="b").run(*ALL)
    feed.row((ID, N, W), "u", id=2, n=3, w=LARGE).run(*ALL)
    assert ["a", "b"] == feed.column("w")
    assert [] == said(feed)
    feed.row((ID, N, W), "u", id=1, n=3, w="new").run(*ALL)
    assert ["new", "b"] == feed.column("w")
    assert [] == said(feed)


def test_columns_that_exchange_their_names(tmp_path: Path) -> None:
    """Or their table was made again with its columns in another order, and all its rows: which, no message tells."""
    feed = Feed(tmp_path).row((ID, V, W, N), id=1, v="v", w="w", n=1).run(*ALL)
    feed.row((ID, W, V, N), id=2, w="ww", v="vv", n=1).run(*ALL)
    assert {("v", 1.0), ("w", 1.0)} <= {*feed.unknown()}
    feed.row((ID, W, V, N), "u", id=1, w="ww", v="vv", n=1).run(*ALL)
    assert [] == said(feed)


@pytest.mark.one_of(2, "policy")
@pytest.mark.parametrize("policy", ["lenient", "evolve"])
def test_a_column_that_takes_over_the_name_of_another(tmp_path: Path, policy: Any) -> None:
    """RENAME v TO v_old, w TO v: only columns that exchange their names may be those of another table."""
    feed = Feed(tmp_path, rule=TableRule("*", keys=("id",), on_schema_change=policy))
    feed.row((ID, V, W, N), id=1, v="v1", w="w1", n=1).row((ID, V, W, N), id=2, v="v2", w="w2", n=1).run(*ALL)
    old = ("v_old", "string", True)
    feed.row((ID, old, V, N), "u", id=2, v_old="v2", v="w2", n=2).run(*ALL)
    assert [["v1", "v2"], ["w1", "w2"]] == [feed.column(name) for name in ("v_old", "v")]
    assert [] == said(feed)
    feed.row((ID, old, V, N), "u", id=1, v_old="v1", v="new", n=2).run(*ALL)
    assert [["v1", "v2"], ["new", "w2"]] == [feed.column(name) for name in ("v_old", "v")]
    assert [] == said(feed)


def test_a_key_column_with_another_name(tmp_path: Path) -> None:
    """Rows under the former name of the key stayed as they were."""
    feed = Feed(tmp_path, rule=TableRule("*", keys=("pk",)))
    feed.row((("id", "int64", False), V), id=1, v="a").row((("id", "int64", False), V), id=2, v="b").run()
    feed.row((("pk", "int64", False), V), "u", pk=2, v="c").run(*ALL)
    query = "SELECT pk, v FROM {mirror} ORDER BY pk"
    rows = feed.lake.ask_mirror(mirror_path(feed.table), query)
    assert [(1, "a"), (2, "c")] == [(int(row["pk"]), row["v"]) for row in rows]


@pytest.mark.one_of(2, "batches")
@pytest.mark.parametrize("batches", [1, 2])
def test_a_column_that_moved_to_the_end(tmp_path: Path, batches: int) -> None:
    """It was dropped and made again: older rows kept the values of the former one, and nothing said so."""
    feed = Feed(tmp_path).row((ID, V, N), id=1, v="a", n=1).row((ID, V, N), id=2, v="b", n=2)
    if batches == 2:
        feed.run(*ALL)
    feed.row((ID, N, V), id=3, n=3, v="c").run(*ALL)
    assert ("v", 2.0) in feed.unknown()
    feed.row((ID, N, V), "u", id=1, n=3, v="c").row((ID, N, V), "u", id=2, n=3, v="c").run(*ALL)
    assert [] == said(feed)


@pytest.mark.parametrize("now", [(ID, V, N, W), (ID, N), (ID, N, W), (ID, V), (ID,), (ID, W, V, N)])
def test_columns_that_come_and_go_are_not_renamed(tmp_path: Path, now: tuple[Described, ...]) -> None:
    """ADD and DROP COLUMN, and a column that the connector has left out until now, ask nothing."""
    feed = Feed(tmp_path).row((ID, V, N), id=1, v="a", n=1).run(*ALL)
    cells = {"id": 2, "v": "b", "n": 2, "w": "c"}
    feed.row(now, **{name: cells[name] for name, *_ in now}).run(*ALL)
    assert [] == approval.listed(feed.lake)
    assert [] == feed.unknown()


@pytest.mark.one_of(2, "policy")
@pytest.mark.parametrize("policy", ["lenient", "evolve"])
@pytest.mark.parametrize("default", [6, None])
def test_a_column_that_comes_back_is_another_one(tmp_path: Path, default: int | None, policy: Any) -> None:
    """Rows kept the values of the one that was dropped, although the new one has its default there."""
    c, again = ("c", "int32", True, 5), ("c", "int32", True, default)
    feed = Feed(tmp_path, rule=TableRule("*", keys=("id",), on_schema_change=policy))
    feed.row((ID, V), id=1, v="a").row((ID, V), id=2, v="b").run(*ALL)
    feed.row((ID, V, c), "u", id=1, v="a", c=5).run(*ALL)
    feed.row((ID, V), "u", id=1, v="b").run(*ALL)
    feed.row((ID, V, again, N), "u", id=1, v="c", c=7, n=1).run(*ALL)
    assert ([7, default], []) == (feed.column("c"), said(feed))
    feed.row((ID, V, again, N), "u", id=2, v="c", c=8, n=1).run(*ALL)
    assert ([7, 8], []) == (feed.column("c"), said(feed))


@pytest.mark.parametrize("again", [("c", "int32", False), ("c", "int32", True, 0, "io.debezium.time.Date")])
def test_a_column_that_comes_back_with_values_that_nothing_tells(tmp_path: Path, again: Described) -> None:
    """The former column's values hid that the new one must not be NULL: only rows with NULL were complained of."""
    c = ("c", "int32", True)
    feed = Feed(tmp_path).row((ID, V, c), id=1, v="a", c=5).row((ID, V, c), id=2, v="b", c=5).run(*ALL)
    feed.row((ID, V), "u", id=1, v="b").run(*ALL)
    feed.row((ID, V, again), "u", id=1, v="c", c=7).run(*ALL)
    assert [("c", 1.0)] == feed.unknown()
    feed.row((ID, V, again), "u", id=2, v="c", c=7).run(*ALL)
    assert [] == feed.unknown()


def test_a_default_that_changes_after_a_column_came_back(tmp_path: Path) -> None:
    """Rows from before the column have what its first default was."""
    c, later = ("c", "int32", True, 5), ("c", "int32", True, 8)
    feed = Feed(tmp_path).row((ID, V, c), id=1, v="a", c=1).run(*ALL)
    feed.row((ID, V), id=2, v="b").run(*ALL)
    feed.row((ID, V, c), id=3, v="c", c=7).row((ID, V, later), id=4, v="c", c=9).run(*ALL)
    assert [5, 5, 7, 9] == feed.column("c")


def test_a_column_that_is_dropped_and_comes_back_in_one_batch(tmp_path: Path) -> None:
    """The books have the default of the batch's first row with the name, which is that of the dropped column."""
    c, again = ("c", "int32", True, 5), ("c", "int32", True, 6)
    feed = Feed(tmp_path).row((ID, c, V), id=1, c=1, v="a").row((ID, V), id=2, v="b")
    feed.row((ID, V, again), id=3, v="c", c=7).run(*ALL)
    assert ([None, None, 7], [("c", 2.0)]) == (feed.column("c"), feed.unknown())


def test_a_column_that_comes_back_in_front_of_others(tmp_path: Path) -> None:
    """PostgreSQL puts no new column there: the connector left it out meanwhile, and older rows kept what they had."""
    c = ("c", "int32", True)
    feed = Feed(tmp_path).row((ID, c, V), id=1, c=5, v="a").row((ID, c, V), id=2, c=6, v="b").run(*ALL)
    feed.row((ID, V), "u", id=1, v="b").run(*ALL)
    feed.row((ID, c, V), id=3, c=7, v="c").run(*ALL)
    assert ([None, 6, 7], [("c", 2.0)]) == (feed.column("c"), feed.unknown())


def test_a_new_column_without_a_value_in_older_rows_after_others_of_its_name(tmp_path: Path) -> None:
    """Rows that rightly had NULL were counted."""
    c = ("c", "int32", True)
    feed = Feed(tmp_path).row((ID, V), id=1, v="a").row((ID, V), id=2, v="b").run(*ALL)
    feed.row((ID, V, c), id=3, v="b", c=5).run(*ALL)
    feed.row((ID, V), id=4, v="b").run(*ALL)
    feed.row((ID, V, c), id=5, v="c", c=7).run(*ALL)
    assert ([None, None, None, None, 7], []) == (feed.column("c"), said(feed))


@pytest.mark.one_of(2, "policy")
@pytest.mark.parametrize("default", [6, None])
@pytest.mark.parametrize("policy", ["lenient", "evolve"])
def test_a_new_column_by_the_former_name_of_another(tmp_path: Path, policy: Any, default: int | None) -> None:
    """Rows kept the renamed column's values under its former name, or were asked about, as if it had been dropped."""
    c, c2, new = ("c", "int32", True), ("c2", "int32", True), ("c", "int32", True, default)
    feed = Feed(tmp_path, rule=TableRule("*", keys=("id",), on_schema_change=policy))
    feed.row((ID, c, V), id=1, c=5, v="a").row((ID, c, V), id=2, c=6, v="b").run(*ALL)
    feed.row((ID, c2, V), "u", id=1, c2=5, v="b").run(*ALL)
    feed.row((ID, c2, V, new), id=3, c2=1, v="c", c=7).run(*ALL)
    assert [[5, 6, 1], [default, default, 7]] == [feed.column(name) for name in ("c2", "c")]
    assert [] == said(feed)


C = ("c", "int32", True, 7)
HELD: dict[str, tuple[list[tuple[tuple[Described, ...], dict[str, Any]]], set[tuple[str, bool]]]] = {  # the columns of some rows, a batch each, and the policies under which mirrors are held, each with a key or without one
    "renamed": (
        [((ID, V, N), {"v": "a", "n": 1}), ((ID, W, N), {"w": "b", "n": 1})],
        {("freeze", True), ("freeze", False), ("ignore", False)},
    ),
    "renamed to the name of another": (
        [((ID, V, W, N), {"v": "a", "w": "x", "n": 1}), ((ID, ("o", "string", True), V, N), {"o": "b", "v": "y", "n": 1})],
        {("freeze", True), ("freeze", False), ("ignore", False)},
    ),
    "dropped and added again": (
        [((ID, C, V), {"c": 1, "v": "a"}), ((ID, V), {"v": "b"}), ((ID, V, C), {"v": "c", "c": 3})],
        {("freeze", True), ("freeze", False), ("ignore", False)},
    ),
    "added": ([((ID, V), {"v": "a"}), ((ID, V, C), {"v": "b", "c": 3})], {("freeze", True), ("freeze", False)}),
    "added without a default": (
        [((ID, V), {"v": "a"}), ((ID, V, ("c", "int32", False)), {"v": "b", "c": 3})], {("freeze", True), ("freeze", False)},
    ),
    "given other labels": ([((ID, mood("sad", "ok")), {"v": "sad"}), ((ID, mood("low", "ok")), {"v": "low"})], set()),
}  # fmt: skip


@pytest.mark.one_of(4, "policy", "has_key")
@pytest.mark.parametrize("policy", ["lenient", "evolve", "freeze", "ignore"])
@pytest.mark.parametrize("has_key", [True, False])
@pytest.mark.parametrize("name", HELD)
def test_what_rows_announce_holds_where_the_ledger_says_so(
    tmp_path: Path, name: str, has_key: bool, policy: Any
) -> None:
    """The ledger said held, and the run had folded it: deleted rows stayed, or the values of another column did."""
    rows, holding = HELD[name]
    rule = TableRule(
        "*", **({"keys": ("id",)} if has_key else {"no_key": "full_row"}), on_schema_change=policy
    )
    feed = Feed(tmp_path, rule=rule)
    for number, (fields, cells) in enumerate(rows):
        feed.row(fields, id=number, **cells).run(*ALL)
    holds = (policy, has_key) in holding
    [listed] = approval.listed(feed.lake)
    assert (holds, holds) == (listed.state == "held", feed.states() == ["held"])
    if not holds:
        return
    assert feed.result is not None
    assert f"statement {listed.statement.id} of batch {len(rows)} waits" in feed.result.mirrors[0].message
    assert len(rows) - 1 == len(feed.column("id"))
    approval.approve_or_dismiss(feed.lake, listed.statement.id, "approve", "so be it")
    feed.row(fields, id=len(rows), **cells).run(*ALL)
    assert (["done"], ["applied"]) == (
        feed.states(),
        [entry.state for entry in approval.listed(feed.lake)],
    )


def test_what_is_dismissed_still_has_to_be_let_into_a_frozen_mirror(tmp_path: Path) -> None:
    """The columns of rows are another matter than what became of older rows."""
    feed = Feed(tmp_path, rule=TableRule("*", keys=("id",), on_schema_change="freeze"))
    feed.row((ID, V, N), id=1, v="a", n=1).run(*ALL)
    feed.row((ID, W, N), id=2, w="b", n=1).run(*ALL)
    [listed] = approval.listed(feed.lake)
    approval.approve_or_dismiss(feed.lake, listed.statement.id, "dismiss", "it is a new column")
    feed.row((ID, W, N), id=2, w="b", n=1).run(*ALL)
    assert feed.result is not None
    assert "show new columns w and db.s.t is frozen" in feed.result.mirrors[0].message
    feed.rule, feed.warm = replace(feed.rule, columns={"w": "string"}), Warm()
    feed.row((ID, W, N), id=3, w="c", n=1).run(*ALL)
    assert [[None, "b", "c"], ["a", None, None]] == [feed.column("w"), feed.column("v")]


def test_key_columns_that_exchange_their_names(tmp_path: Path) -> None:
    """Rows stayed under the former key without a word."""
    a, b = ("a", "int64", False), ("b", "int64", False)
    feed = Feed(tmp_path, rule=TableRule("*", keys=("a", "b")))
    feed.row((a, b, V), a=1, b=10, v="x").row((a, b, V), a=2, b=20, v="y").run(*ALL)
    feed.row((b, a, V), "u", a=20, b=2, v="z").run(*ALL)
    assert {"a", "b"} == {column for column, _ in feed.unknown()}


def test_a_late_row_with_the_former_columns(tmp_path: Path) -> None:
    """It renamed the column back."""
    feed = Feed(tmp_path).row((ID, V, N), id=1, v="a", n=1)
    feed.number += 10
    feed.row((ID, W, N), id=2, w="b", n=2).run()
    feed.number -= 8
    feed.row((ID, V, N), id=3, v="c", n=3).run(*ALL)
    assert ["a", "b", "c"] == feed.column("w")
    assert [] == said(feed)


MICROS = "io.debezium.time.MicroTimestamp"
ZONED = "io.debezium.time.ZonedTimestamp"


@pytest.mark.one_of(3, "batches")
@pytest.mark.parametrize("batches", [1, 2, 3])
def test_a_type_that_changed_with_or_after_the_name(tmp_path: Path, batches: int) -> None:
    """The other name was taken for a statement that says what became of the values: no check asked about them."""
    was, is_now = ("v", "int64", True, None, MICROS), ("w", "string", True, None, ZONED)
    feed = Feed(tmp_path)
    feed.row((ID, was, N), id=1, v=1718000000000000, n=1).row((ID, was, N), id=2, v=1718000000000000, n=1)
    if batches > 1:
        feed.run(*ALL)
    if batches > 2:
        feed.row((ID, ("w", *was[1:]), N), "u", id=2, w=1718000000000000, n=2).run(*ALL)
    feed.row((ID, is_now, N), "u", id=2, w="2024-06-10T06:13:20Z", n=3).run(*ALL)
    [complaint] = [each for each in said(feed) if "the source has converted them" in each]
    assert "1 row from before" in complaint
    assert 'such as {"id":"1"}' in complaint
    feed.row((ID, is_now, N), "u", id=1, w="2024-06-10T06:13:20Z", n=3).run(*ALL)
    assert not any("the source has converted them" in each for each in said(feed))


@pytest.mark.parametrize(
    ("v", "w", "kind", "is_converted"), [("abc", 1, "int64", False), ("5", "x", "string", True)]
)
def test_a_type_that_changed_as_a_column_took_over_the_name_of_another(
    tmp_path: Path, v: str, w: int | str, kind: str, is_converted: bool
) -> None:
    """In older rows the name is that of the other column, whose texts were taken for the values that were converted."""
    before, now, old = ("w", kind, True), ("v", "int32", True), ("v_old", "string", True)
    feed = Feed(tmp_path).row((ID, V, before, N), id=1, v=v, w=w, n=1)
    feed.row((ID, V, before, N), id=2, v="x", w=w, n=1).run(*ALL)
    feed.row((ID, old, now, N), "u", id=2, v_old="x", v=2, n=2).run(*ALL)
    complaints = [each for each in said(feed) if "the source has converted them" in each]
    assert ['such as {"id":"1"}' in each for each in complaints] == [True] * is_converted


def test_a_wider_type_with_another_name(tmp_path: Path) -> None:
    """Every value of the old type is one of the new type."""
    feed = Feed(tmp_path).row((ID, ("v", "int32", True), N), id=1, v=5, n=1).run(*ALL)
    feed.row((ID, ("w", "int64", True), N), id=2, w=5_000_000_000, n=1).run(*ALL)
    assert ["5", "5000000000"] == [str(cell) for cell in feed.column("w")]
    assert [] == said(feed)


@pytest.mark.one_of(2, "shape")
@pytest.mark.parametrize("shape", ["debezium", "flat"])
def test_a_column_that_is_added_and_dropped_in_one_batch(tmp_path: Path, shape: str) -> None:
    """Each row's schema says which columns there are: none was left out of a row."""
    feed = Feed(tmp_path, shape).row((ID, V), id=1, v="a").row((ID, V, N), "u", id=1, v="a", n=1)
    feed.row((ID, V), "u", id=1, v="b").run(*ALL)
    assert feed.result is not None
    assert [] == feed.result.failures
    assert ["came without n, which earlier rows have" in text for text in feed.result.warnings] == [True]
