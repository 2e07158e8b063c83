"""What is interpreted and what compiled, and by how many tasks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ingest.spark import pace, settings


class Settings:
    """A session's settings, without a session."""

    def __init__(self) -> None:
        self.kept = {settings.PACED: "true"}
        self.conf = self
        self.get, self.set = self.kept.get, self.kept.__setitem__


@pytest.mark.parametrize(
    ("rows", "size", "compiled"),
    [
        (10, 0, "false"),
        (10, 4_800_000, "true"),
        (pace.FEW + 1, 0, "true"),
        (pace.FEW, pace.SMALL, "false"),
    ],
)
def test_few_rows_are_interpreted_only_for_a_small_table(rows, size, compiled):
    """An interpreted MERGE of a thousand rows into 200,000 takes three times as long as a compiled one."""
    spark = Settings()
    pace.pace(spark, rows, size)
    assert compiled == spark.kept["spark.sql.codegen.wholeStage"]


@pytest.mark.parametrize("before", [settings.COMPILED, settings.INTERPRETED], ids=["compiled", "interpreted"])
def test_a_query_is_paced_for_itself(before):
    """A large query among small ones must not have these compiled, too; nor a small one slow down large ones."""
    spark = Settings()
    spark.kept |= before
    with pace.paced(spark, pace.FEW + 1):
        assert "true" == spark.kept["spark.sql.codegen.wholeStage"]
    assert before.items() <= spark.kept.items()


@pytest.mark.parametrize("before", [settings.COMPILED, settings.INTERPRETED], ids=["compiled", "interpreted"])
def test_the_users_own_pace_is_kept(before):
    """A user who turns the compiler off to look for a fault must find it off."""
    spark = Settings()
    spark.kept |= settings.joined(settings.LOCAL, before)
    pace.pace(spark, 1)
    pace.pace(spark, pace.FEW + 1)
    with pace.paced(spark, 1):
        assert before.items() <= spark.kept.items()
    assert before.items() <= spark.kept.items()


@pytest.mark.parametrize(
    ("rows", "size", "before", "after"),
    [
        (10, 0, "4", "1"),
        (pace.FEW + 1, 0, "4", "4"),
        (10, pace.SMALL + 1, "4", "4"),
        (10, 0, "7", "7"),
    ],
    ids=["few", "many", "in a large table", "the user's own"],
)
def test_few_rows_are_exchanged_by_one_task(rows, size, before, after):
    """A mirror of a hundred rows would be two files, and each of its queries twice the tasks."""
    spark: Any = Settings()
    spark.sparkContext = SimpleNamespace(defaultParallelism=4)
    spark.conf.set("spark.sql.shuffle.partitions", before)
    pace.narrow(spark, rows, size)
    assert after == spark.kept["spark.sql.shuffle.partitions"]
