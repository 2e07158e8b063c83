"""Batches that were decoded with other settings than today's: of which sources and batches that is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ingest.change import TableId
from ingest.config import load
from ingest.config.model import TableRule
from ingest.formats import load as load_format
from ingest.ledgers import decoded_with, targets
from ingest.ledgers.books import Line
from ingest.tables.schemas import BOOKS, REJECTS
from ingest.tables.tables import LakeReader
from tests.lakes import FORMAT, change
from tests.written_lake import WrittenLake, book

ROW = {"id": "1", "word": "x", "tall": "1"}
MASKS = "mask: of its tables, or mask_secret:"


@pytest.fixture(scope="module")
def depot(tmp_path_factory: pytest.TempPathFactory) -> WrittenLake:
    """A lake whose second batch has another table than the first, and whose third has only what cannot be read."""
    made = WrittenLake(tmp_path_factory.mktemp("depot"))
    made.decide("decoding", "bins", decoded_with.settings_of(made.pipeline, made.pipeline.sources[0]))
    for messages in ([change("INSERT", "bins", 1, ROW)], [change("INSERT", "shelves", 2, ROW)], ["{\n"]):
        made.take(messages)
    return made


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("{match: depot.visits, exclude: true}", []),
        ("{match: depot.visits, mask: {word: 'null'}}", []),
        ("{match: other.*, keys: [id]}", []),
        ("{match: depot.bins, exclude: true}", []),
        ("{match: depot.bins, mask: {word: keep}}", []),
        ("{match: depot.*, keys: [id]}", []),
        ("{match: depot.bins, columns: {id: int32, word: string, unseen: date}}", []),
        ("{match: depot.shelves, columns: {tall: int64}}", [(2, 2, ("columns: of depot.shelves",))]),
        ("{match: depot.shelves, mask: {unseen: 'null'}}", [(2, 2, (MASKS,))]),
        (
            "{match: depot.*, columns: {id: string}}",
            [(1, 2, ("columns: of depot.bins", "columns: of depot.shelves"))],
        ),
    ],
)
def test_a_rule_counts_where_its_tables_have_messages(
    depot: WrittenLake, rules: str, expected: list[object]
) -> None:
    """Each source of the pipeline was said to be decoded otherwise when one table got another rule, and more with each batch."""
    assert expected == _outdated(depot, f"tables:\n  - {rules}\n")


def test_batches_of_tables_that_are_said_elsewhere_are_not_counted(depot: WrittenLake) -> None:
    """One more batch than needed was named, and decoded again, for each that only tables with other types have."""
    other = depot.file.with_name("typed.yaml")
    rules = (
        "  - {match: depot.bins, columns: {tall: int64}}\n  - {match: depot.shelves, mask: {tall: last4}}\n"
    )
    other.write_text(depot.file.read_text("utf-8") + f"tables:\n{rules}", "utf-8")
    [both] = decoded_with.outdated(LakeReader(load(other)), depot.batch)
    assert (1, 2) == (both.first, both.last)
    left = both.without_said({TableId("depot", None, "bins")})
    assert left is not None
    assert (2, 2) == (left.first, left.last)
    assert left.command.endswith("--from-batch 2")
    assert "batch 2 of" in left.sentence


READ = Line(
    1, "bins", "bins-1.jsonl", 0, "depot", None, "bins", 3, 3, changes=3, inserts=1, updates=1, deletes=1,
    columns={"id": "int64", "word": "string", "tall": "int32"},
)  # fmt: skip
KEYS, TYPES = "keys: of depot.bins", "columns: of depot.bins"
UNFIT = {
    "kind": "cell", "database": "depot", "table": "bins", "column": "tall", "batch": 1, "reason": "does-not-fit",
}  # fmt: skip


@pytest.mark.parametrize(
    ("form", "line", "rule", "expected"),
    [
        ("debezium", READ, "keys: [id]", []),
        (
            "debezium",
            READ,
            "keys: [__op]",
            [KEYS],
        ),  # a column of this name was taken for a member of the flattened row
        ("ogg", READ, "columns: {rowid: string}", [TYPES]),
        ("canal", READ, "columns: {rowid: string}", []),
        ("ticdc-canal", READ, "keys: [id]", [KEYS]),  # what leaves its key comes before what arrives
        ("ticdc-canal", replace(READ, updates=0), "keys: [id]", [KEYS]),  # the halves of an update
        ("ticdc-canal", replace(READ, updates=0, deletes=0), "keys: [id]", []),
        ("oms-debezium", READ, "keys: [id]", [KEYS]),
        ("obcloud-avro", READ, "keys: [id]", [KEYS]),
        ("debezium", READ, "columns: {id: uint64}", [TYPES]),
        ("dms", READ, "keys: [id]", [KEYS]),  # of a deleted row no more than the key is known
        ("dms", replace(READ, updates=0, deletes=0), "keys: [id]", []),
        ("debezium", replace(READ, columns={"tall": "datetime"}), "columns: {tall: datetime}", [TYPES]),
        ("canal", replace(READ, columns={"tall": "datetime"}), "columns: {tall: datetime}", []),
        ("canal", replace(READ, columns={"tall": "bit"}), "columns: {tall: int64}", [TYPES]),
        ("canal", READ, "columns: {tall: int64}", []),
        ("canal", READ, "columns: {tall: string}", [TYPES]),
    ],
)
def test_a_rule_counts_where_the_changes_would_be_others(
    tmp_path: Path, form: str, line: Line, rule: str, expected: list[str]
) -> None:
    """A key that a complaint had asked for was called another setting for ever, although it changed nothing that was decoded."""
    made, reader = _read_as(tmp_path, form, line, rule)
    assert expected == [word for each in decoded_with.outdated(reader, 1) for word in each.differences]
    made.product(REJECTS.name, [UNFIT])
    if "int64" in rule:  # a wider type brings the cells back that did not fit
        reader = LakeReader(reader.pipeline)
        assert [TYPES] == [word for each in decoded_with.outdated(reader, 1) for word in each.differences]


def _read_as(folder: Path, form: str, line: Line, rule: str) -> tuple[WrittenLake, LakeReader]:
    """A lake whose batch was decoded in a dialect without a rule for its table, looked at with one."""
    made = WrittenLake(folder)
    text = made.file.read_text("utf-8").replace(f"format: {FORMAT}", f"format: {form}")
    made.file.write_text(text, "utf-8")
    pipeline = load(made.file)
    made.decide("decoding", "bins", decoded_with.settings_of(pipeline, pipeline.sources[0]))
    made.product(BOOKS.name, [book(line)])
    made.file.write_text(f"{text}tables:\n  - {{match: depot.bins, {rule}}}\n", "utf-8")
    return made, LakeReader(load(made.file))


def test_an_option_counts_for_all_that_was_decoded(depot: WrittenLake) -> None:
    """A batch with nothing but rejects is decoded by a replay, with today's settings."""
    said = "timezone was UTC and is Asia/Shanghai"
    assert [(1, 2, (said,))] == _outdated(
        depot, "", ("settle: 1s", "settle: 1s, options: {timezone: Asia/Shanghai}")
    )


def test_rows_left_out_of_messages_of_other_tables_are_missing(tmp_path: Path) -> None:
    """Where one message holds events of several tables, those of an excluded one were in no book: when it was excluded no longer,
    nothing said that its mirror lacks them.
    """
    made = WrittenLake(tmp_path)
    then = replace(made.pipeline, tables=(TableRule("depot.drawers", exclude=True),))
    made.decide("decoding", "bins", decoded_with.settings_of(then, then.sources[0]))
    made.take([change("INSERT", "bins", 1, ROW)])
    beside = Line(1, "bins", "bins-1.jsonl", 0, "depot", None, "drawers", left_out=2)
    made.product(BOOKS.name, [book(beside)])
    [lacks] = decoded_with.outdated(LakeReader(made.pipeline), made.batch)
    assert (1, 1, "depot.drawers") == (lacks.first, lacks.last, str(lacks.left_out))


def _outdated(depot: WrittenLake, more: str, edit: tuple[str, str] = ("", "")) -> list[object]:
    other = depot.file.with_name("other.yaml")
    other.write_text(depot.file.read_text("utf-8").replace(*edit) + more, "utf-8")
    reader = LakeReader(load(other))
    return [(each.first, each.last, each.differences) for each in decoded_with.outdated(reader, depot.batch)]


def test_one_command_serves_for_all_that_was_decoded_with_several_settings(tmp_path: Path) -> None:
    """The command for the third batch was named first, and after it that for the first, which does both."""
    made = WrittenLake(tmp_path)
    now = decoded_with.settings_of(made.pipeline, made.pipeline.sources[0])
    for number in (1, 2, 3):
        made.take([change("INSERT", "bins", number, ROW)])
        rules = [{"match": f"depot.{number}*", "exclude": False, "keys": ["id"], "columns": {}}] * (
            number - 1
        )
        made.decide("decoding", "bins", now | {"format": f"canal{number}", "tables": rules})
    _, batches = targets.of_other_settings(LakeReader(load(made.file)))
    assert [1, 2, 3] == sorted(each.first for each in batches)
    assert 1 == len({each.command for each in batches})
    assert batches[0].command.endswith("--from-batch 1")
    assert all("--from-batch 1`" in each.sentence for each in batches)


def test_batches_without_rows_have_no_other_masks(tmp_path: Path) -> None:
    """Messages that a mask refused were replayed as it was corrected, and `status` asked for a rebuild of what had no row."""
    made = WrittenLake(tmp_path, more="tables:\n  - {match: depot.bins, mask: {word: last4}}\n")
    masked = decoded_with.settings_of(made.pipeline, made.pipeline.sources[0])
    made.decide("decoding", "bins", masked)
    made.take(["{\n"])
    made.file.write_text(made.file.read_text("utf-8").replace("last4", "'null'"), "utf-8")
    pipeline = load(made.file)
    made.take([change("INSERT", "bins", 2, ROW)])
    made.decide("decoding", "bins", decoded_with.settings_of(pipeline, pipeline.sources[0]))
    reader = LakeReader(pipeline)
    assert "" == decoded_with.mixed_masks(reader, 2)
    made.decide("decoding", "bins", masked)
    assert "word of depot.bins was masked with last4" in decoded_with.mixed_masks(LakeReader(pipeline), 2)


def test_a_key_that_is_removed_is_another_setting(tmp_path: Path) -> None:
    """The rows that the removed key had told apart were folded into others, and nothing said that decoded batches had it."""
    made = WrittenLake(tmp_path)
    then = replace(made.pipeline, tables=(TableRule("depot.bins", keys=("word",)),))
    made.decide("decoding", "bins", decoded_with.settings_of(then, then.sources[0]))
    made.take([change("INSERT", "bins", 1, ROW)])
    assert [(1, 1, (KEYS,))] == _outdated(made, "")


def test_cells_that_did_not_fit_in_another_table_do_not_count(tmp_path: Path) -> None:
    """A column of the same name in another table made a wider type another setting."""
    made, reader = _read_as(tmp_path, "canal", READ, "columns: {tall: int64}")

    made.product(REJECTS.name, [UNFIT | {"table": "shelves"}])
    assert [] == decoded_with.outdated(LakeReader(reader.pipeline), 1)


@pytest.mark.parametrize(("schema", "expected"), [(None, False), ("public", True)])
def test_a_first_key_of_debezium_counts_for_tables_with_a_schema(
    schema: str | None, *, expected: bool
) -> None:
    """An image before of PostgreSQL that holds no more than the key was taken for a whole one."""
    about, update = load_format("debezium").ABOUT, frozenset(["update"])
    batches = decoded_with._Batches((1, 1), None, {"id": frozenset(["int64"])}, update, frozenset())
    table = TableId("depot", schema, "bins")
    assert expected == decoded_with._is_other_key([], ["id"], about, table, batches)
