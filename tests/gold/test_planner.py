"""How mirrors are folded and applied, as far as no table need be asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from ingest import ddl
from ingest.change import TableId
from ingest.config import Pipeline
from ingest.config.model import TableRule
from ingest.errors import HeldError
from ingest.fold import SchemaStep
from ingest.gold.apply.planner import (
    FoldPlan,
    _by_rules,
    _meets,
    late_from,
    marking,
    refolds,
    shared,
    too_large,
)
from ingest.gold.plan.lane import ChangeKinds, Lane, Steps
from ingest.gold.plan.ledger import Ledger
from ingest.gold.plan.mirror_schema import Plan
from ingest.gold.plan.ways import out_of_reach, refuse_files, unwritable, why_merge
from ingest.gold.plan.work import Books, Job
from ingest.ledgers.logged_statements import Statement
from ingest.ledgers.mirrors import Column, Era, Mirror
from ingest.tables import delta
from ingest.tables.delta import Snapshot

MIB = 1 << 20
MARKS, PASSES = "deletion vectors", "file by file"
PIPELINE = Pipeline("yard", Path("yard.yaml"), "/data/a b #ä", (), rewrite_budget=None)


@pytest.mark.parametrize("folder", ["/data/a%20b", "/data/a\\b", "s3a://bucket/lake", "/data/a\nb"])
def test_a_folder_that_delta_rs_takes_for_another_is_left_to_spark(folder: str) -> None:
    """To delta-rs `a%20b` is `a b`: where both hold a lake, one would be written with the other's rows."""
    assert out_of_reach(replace(PIPELINE, lake=folder))
    assert "" == out_of_reach(PIPELINE)


NEW, THERE = (
    Snapshot(-1, {}),
    Snapshot(
        5,
        {},
        protocol={"minReaderVersion": 1, "minWriterVersion": 2},
        meta={"schemaString": '{"fields": []}'},
    ),
)


@pytest.mark.parametrize(
    ("rule", "before", "large", "expected"),
    [
        (TableRule(), NEW, "", ""),
        (TableRule(), THERE, "too large", "too large"),
        (TableRule(apply="files"), THERE, "too large", ""),
        (TableRule(apply="merge"), NEW, "", "apply is merge"),
        (TableRule(change_feed=True), NEW, "", "it has a change feed"),
        (TableRule(), replace(THERE, partition_by=("w",)), "", "its table has a change feed or partitions"),
        (TableRule(), replace(THERE, protocol={}), "", "only Spark can read its log"),
    ],
)
def test_what_only_delta_may_write_is_merged(
    rule: TableRule, before: Snapshot, large: str, expected: str
) -> None:
    """A change feed is more than files that come and go, and a feature that nobody asks for is written wrong."""
    assert expected == why_merge(PIPELINE, rule, before, large)
    assert expected == why_merge(
        replace(PIPELINE, apply=rule.apply or "auto"), replace(rule, apply=""), before, large
    )


def test_files_that_cannot_be_are_refused() -> None:
    """Somebody who forbids a MERGE must hear that nothing else is possible, and what to write; silence would start Spark."""
    mirror = Mirror(
        TableId("yard", None, "depot"), "mirrors/yard/depot", ("id",), (Column("id", "id", "int64"),)
    )
    refuse_files(PIPELINE, TableRule(), mirror, "it has a change feed")
    refuse_files(PIPELINE, TableRule(apply="files"), mirror, "")
    with pytest.raises(HeldError) as refused:
        refuse_files(PIPELINE, TableRule(apply="files"), mirror, "it has a change feed")
    assert str(refused.value) == (
        "yard.depot can only be written by Delta's MERGE, because it has a change feed: write `apply: merge` or "
        "`apply: auto` for it instead of `apply: files`, then `ingest run yard.yaml`."
    )


def test_a_long_history_is_folded_in_shares_of_its_keys() -> None:
    """One process would hold all of it, for as long as that takes."""
    lane = Lane(
        "s", TableId("yard", None, "depot"), 2, 2, "1", "2", ChangeKinds(), ChangeKinds(), changes_ever=50_000
    )
    mirror = Mirror(
        TableId("yard", None, "depot"), "mirrors/yard/depot", ("id",), (Column("id", "id", "int64"),)
    )

    def shares(*lanes: Lane) -> int:
        return shared(mirror, tuple((one, Steps()) for one in lanes))

    long = replace(lane, changes_ever=50_001)
    assert 0 == shares(lane) == shares(long)
    for one in (replace(long, truncates=1), replace(long, inherits=1)):
        assert 50_001 == shares(one)
    new = replace(lane, order_low="3", changes_ever=50_001)
    assert 0 == shares(new)
    both = [replace(lane, merged=True, changes_ever=30_000)] * 2
    assert 60_000 == shares(*both)
    assert 0 == shares(replace(new, eras=(Era("1", ("id",)),)))
    assert 50_001 == shares(replace(new, eras=(Era("1", ("id",)),), folded_high=""))


def test_a_long_history_without_a_key_is_folded_in_shares_of_its_rows() -> None:
    """Each batch needs all of it."""
    lane = Lane("s", TableId("yard", None, "depot"), 2, 2, "3", "2", ChangeKinds(), ChangeKinds())
    mirror = Mirror(TableId("yard", None, "depot"), "mirrors/yard/depot", (), (Column("w", "w", "string"),))
    for count, shares in ((100_000, 0), (100_001, 100_001)):
        assert shares == shared(mirror, ((replace(lane, changes_ever=count), Steps()),))


def test_folded_changes_show_which_late_ones_count_but_for_statements_between() -> None:
    """A statement has changed the rows that a late change was made before; a part may need its row's whole history."""
    whole, step = ChangeKinds(partials=False, key_changes=False), SchemaStep("1", "drop_column", "w")
    lane = Lane("s", TableId("yard", None, "depot"), 2, 2, "2", "4", whole, whole)
    assert lane.order_low == late_from(lane, Steps()) == late_from(lane, Steps(ever=(step,)))
    assert "" == late_from(lane, Steps(ever=(step._replace(order="3"),)))
    assert "" == late_from(replace(lane, order_low="5"), Steps())
    parts = replace(lane, ever=ChangeKinds())
    assert ("", True) == (late_from(parts, Steps()), refolds(parts, Steps()))
    assert late_from(replace(parts, changes_ever=50_001), Steps())


def test_columns_of_tables_without_a_key_only_come() -> None:
    """A dropped column's values may be those of a renamed one: all rows are folded again then."""
    mirror = Mirror(TableId("yard", None, "depot"), "mirrors/yard/depot", (), (Column("w", "w", "string"),))
    rule = TableRule(no_key="append")
    assert _meets(rule, mirror, {"w": "string"}, stated=False)
    assert not _meets(rule, mirror, {"w": "string", "gone": "string"}, stated=False)


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        ("integer", "int64", True), ("long", "int32", False), ("long", "decimal(19,0)", True), ("float", "float64", True),
        ("decimal(5,2)", "decimal(9,2)", True), ("decimal(5,2)", "decimal(5,1)", False), ("date", "datetime", True),
        ("timestamp_ntz", "timestamp", False), ("string", "int64", False),
    ],
)  # fmt: skip
def test_columns_get_wider_types_with_a_new_file(old: str, new: str, kept: bool) -> None:
    """After any other change of a type all rows are folded again, from their texts."""
    mirror = Mirror(
        TableId("yard", None, "depot"), "m", ("id",), (Column("id", "id", "int64"), Column("v", "v", new))
    )
    there = {"id": "long", "v": old}
    assert kept == _meets(TableRule(), mirror, there, stated=False)
    assert kept == _meets(TableRule(shard_column="shard"), mirror, there, stated=True)
    assert _meets(TableRule(), mirror, there, stated=True)
    assert kept == _meets(TableRule(), replace(mirror, keys=("v",)), there, stated=True)


def _fold(before: Snapshot, changes: int) -> FoldPlan:
    columns = (Column("id", "id", "int64"), Column("w", "w", "string"))
    mirror = Mirror(TableId("yard", None, "depot"), "mirrors/yard/depot", ("id",), columns)
    before = replace(before, protocol=THERE.protocol, meta={**before.meta, **THERE.meta})
    plan = Plan(Job(mirror.table, mirror.path, TableRule()), mirror)
    lane = Lane("s", mirror.table, 2, 2, "3", "2", ChangeKinds(), ChangeKinds(), changes=changes)
    return FoldPlan(plan, Books(1, 2), before, "w", ((lane, Steps()),))


@pytest.mark.parametrize(
    ("budget", "size", "changes", "fits"),
    [
        (None, 4 * MIB, 1, True), (None, 4 * MIB + 1, 1, False), (None, 40 * MIB, 10_240, True),
        (None, 64 * MIB, 400_000, True), (None, 64 * MIB + 1, 400_000, False), (100 * MIB, 100 * MIB, 1, True), (0, 1, 1, False),
    ],
)  # fmt: skip
def test_what_may_be_rewritten_without_vectors_grows_with_the_changes(
    budget: int | None, size: int, changes: int, fits: bool
) -> None:
    """A whole file for each single change of a large mirror would fill the disk."""
    fold = _fold(Snapshot(5, {}, types={"id": "long"}, size=size), changes)
    assert fits == (not too_large(replace(PIPELINE, rewrite_budget=budget), fold))


@pytest.mark.parametrize(
    ("size", "deleted", "changes", "marked"),
    [
        (4 * MIB, 0, 99, False), (5 * MIB, 0, 99, True), (5 * MIB, 0, 100, False), (5 * MIB, 99, 0, True),
        (5 * MIB, 60, 40, False), (64 * MIB, 0, 100, False), (64 * MIB + 1, 0, 100, True), (5 * MIB, None, 100, True),
    ],
)  # fmt: skip
def test_files_are_written_again_when_one_row_in_eight_would_be_deleted(
    size: int, deleted: int | None, changes: int, marked: bool
) -> None:
    """Vectors cost half of new files, but every reader goes through the rows that they delete."""
    vector = {"cardinality": deleted} if deleted else {}
    stats = "" if deleted is None else '{"numRecords": 800}'
    meta = {"configuration": {"delta.enableDeletionVectors": "true"}}
    types = {"id": "long", "w": "string"}
    file = delta.DataFile("a.parquet", size, {}, stats, vector)
    before = Snapshot(5, {}, types=types, size=size, files=(file,), meta=meta)
    assert marked == marking(PIPELINE, _fold(before, changes)).marks


def test_files_of_too_many_cells_are_never_written_again() -> None:
    """They would be left to a MERGE by Spark, for each batch until `ingest maintain`."""
    meta = {"configuration": {"delta.enableDeletionVectors": "true"}}
    types = {"id": "long", "w": "string"}
    file = delta.DataFile("a.parquet", 60 * MIB, {}, '{"numRecords": 14000000}', {"cardinality": 2_000_000})
    fold = _fold(Snapshot(5, {}, types=types, size=60 * MIB, files=(file,), meta=meta), 10)
    made = marking(PIPELINE, fold)
    assert (True, "") == (made.marks, made.why_merge)


@pytest.mark.parametrize(
    ("kept", "why", "way"),
    [
        ({}, "", MARKS), ({"meta": {"configuration": {"delta.enableDeletionVectors": "false"}}}, "bytes", ""),
        ({"types": {"id": "integer"}}, "", PASSES), ({"types": {"id": "long", "gone": "string"}}, "", PASSES),
        ({"size": 4 * MIB}, "", ""),
    ],
    ids=["marked", "no vectors", "wider", "dropped", "small"],
)  # fmt: skip
def test_rows_of_a_large_mirror_are_marked(kept: dict[str, Any], why: str, way: str) -> None:
    """Vectors that its readers do not know, and older files with other columns, would change what the mirror holds."""
    known = {"types": {"id": "long"}, "meta": {"configuration": {"delta.enableDeletionVectors": "true"}}}
    before = Snapshot(5, {}, **{**known, "size": 4 * MIB + 1, **kept})
    fold = _fold(before, 1)
    ((lane, _),) = fold.work
    made = marking(PIPELINE, fold)
    assert (way == MARKS, way == PASSES) == (made.marks, made.passes)
    assert why in made.why_merge if why else made.why_merge == ""
    emptied = marking(PIPELINE, replace(made, work=((replace(lane, truncates=1), Steps()),)))
    assert not emptied.marks
    assert not emptied.passes


@pytest.mark.parametrize(
    ("nullable", "alter"),
    [
        (True, None),
        (True, lambda table: table.alter.add_constraint({"whole": "id > 'a'"})),
        (False, None),
    ],
)
def test_tables_with_constraints_are_left_to_spark(
    nullable: bool, alter: Callable[[DeltaTable], None] | None, tmp_path: Path
) -> None:
    """Users add them to mirrors: rows that do not meet one must fail, and a file is committed unseen."""
    schema = Schema([Field("id", PrimitiveType("string"), nullable=nullable)])
    table = DeltaTable.create(str(tmp_path), schema)
    if alter is not None:
        alter(table)
    assert (nullable and alter is None) == (not unwritable(delta.snapshot(str(tmp_path))))


@pytest.mark.parametrize(
    ("policy", "did", "filled"),
    [
        ("lenient", "applied", True), ("lenient", "logged", False), ("lenient", "", True), ("ignore", "applied", True),
        ("ignore", "logged", False), ("ignore", "", False),
    ],
)  # fmt: skip
def test_rows_are_not_folded_again_by_other_rules(policy: str, did: str, filled: bool) -> None:
    """Under another policy, the second statement would do to the rows what the first one did not, or take it back."""
    table = TableId("yard", None, "depot")
    found = ddl.effects("ALTER TABLE depot ADD COLUMN gate INT DEFAULT 1", "mysql", "yard", None, "depot")
    statement = Statement("a", "s", table, 1, "1", "", found.kind, found.effects)
    mirror = Mirror(table, "mirrors/yard/depot", ("id",), (Column("id", "id", "int64"),))
    plan = Plan(Job(table, mirror.path, TableRule(on_schema_change=policy), {("s", table): []}), mirror)
    lane = Lane("s", table, 2, 2, "2", "1", ChangeKinds(), ChangeKinds())
    ledger = Ledger([statement], done={(mirror.path, "a"): did} if did else {})
    _, steps = _by_rules(PIPELINE, ledger, plan, lane, 1)
    assert filled == any(step.column == "gate" for step in steps.ever)
    assert () == steps.new
    _, steps = _by_rules(PIPELINE, ledger, plan, replace(lane, first=1), 0)
    assert (policy == "lenient") == any(step.column == "gate" for step in steps.new)


def test_more_changes_than_a_process_holds_are_folded_in_parts() -> None:
    """By their outcomes if the last one of each key carries the whole row, else the changes of a key together."""
    whole = ChangeKinds(partials=False, key_changes=False)
    mirror = Mirror(
        TableId("yard", None, "depot"), "mirrors/yard/depot", ("id",), (Column("id", "id", "int64"),)
    )
    lane = Lane("s", TableId("yard", None, "depot"), 2, 2, "", "1", whole, whole, changes=500_001)
    for one, count in (
        (lane, 0),
        (replace(lane, new=ChangeKinds(), changes=500_000), 0),
        (replace(lane, new=ChangeKinds(key_changes=False)), 500_001),
        (replace(lane, new=ChangeKinds(partials=False)), 500_001),
    ):
        assert count == shared(mirror, ((one, Steps()),))
    assert shared(mirror, ((replace(lane, inherits=1, changes_ever=500_001), Steps()),))
