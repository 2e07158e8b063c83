"""The example pipelines: each ends with the shop's own rows, and a second run finds nothing to do."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ingest.run import Warm, run
from tests.lakes import ROOT, counted, doubled, expected_shop, shop, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.lakes import Example

pytestmark = pytest.mark.spark
NAMES = sorted(file.stem for file in (ROOT / "conf").glob("*.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_an_example_ends_with_the_shops_rows(shops: dict[str, Example], name: str) -> None:
    """The examples are what users try first."""
    one = shops[name]
    assert ([], 0) == (one.result.failures, one.result.exit_code)
    expected = expected_shop()
    found = shop(one.lake)
    for mirror, rows in expected.items():
        assert rows == found[mirror], mirror


@pytest.mark.parametrize("name", NAMES)
def test_an_examples_books_balance(shops: dict[str, Example], name: str) -> None:
    """A message that is nowhere, or twice, would show in no mirror."""
    lake = shops[name].lake
    assert {} == {table: count for table, count in doubled(lake).items() if count}
    found = counted(lake)
    parts = ("change_messages", "ddl", "control", "routed_out", "rejected")
    assert found["bronze"] == found["messages"] == sum(found[part] for part in parts)
    assert found["rejects"] == found["rejected"]


@pytest.mark.parametrize("name", NAMES)
def test_a_second_run_applies_nothing(spark: SparkSession, shops: dict[str, Example], name: str) -> None:
    """Every tick would rewrite mirrors that nothing has touched."""
    lake = shops[name].lake
    before = versions(lake)
    warm = Warm()
    result = run(spark, lake.pipeline, warm=warm)
    assert (None, 0, 0, []) == (result.batch, result.read, result.touched, result.failures)
    assert before == versions(lake)
    idle = run(spark, lake.pipeline, warm=warm)
    assert None is idle.batch
    assert before == versions(lake)


def test_the_demo_compares_all_examples(
    shops: dict[str, Example], capsys: pytest.CaptureFixture[str]
) -> None:
    """`make demo` would end with a traceback, or with a table that says nothing."""
    compare = runpy.run_path(str(ROOT / "samples" / "compare.py"))
    assert 0 == compare["main"]([one.file for one in shops.values()])
    shown = capsys.readouterr().out
    assert "differing cells" in shown
    assert all(one.lake.pipeline.name in shown for one in shops.values())


def test_the_readme_shows_what_the_demo_prints(shops: dict[str, Example]) -> None:
    """A newcomer who counts other checks than the first page wonders what has gone wrong."""
    readme = (ROOT / "README.md").read_text("utf-8")
    once = {
        name: one for name, one in shops.items() if one.result.batch == 1
    }  # else checks were counted twice
    assert len(once) >= 3
    for name, one in once.items():
        checks = ", ".join(f"{count} {state}" for state, count in sorted(one.result.checks.items()))
        [line] = re.findall(rf"^ {name} +1 .* done$", readme, re.MULTILINE)
        assert f"  {checks}  " in line
        assert str(one.result.read) == line.split()[2]


def test_no_lock_and_no_stray_file_is_left(shops: dict[str, Example]) -> None:
    """A backup of the tables would miss other files of a run, or restore them out of step."""
    for one in shops.values():
        for entry in Path(one.lake.pipeline.lake).iterdir():
            assert entry.name == "mirrors" or (entry / "_delta_log").is_dir(), entry
