"""Values planted in lakes of random dialects and masks are in no file, and a search that finds nothing can find something."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.formats.one_history.test_one_history import DIALECTS
from tests.properties.planted_lakes import PlantedLake, dialects, masked


@pytest.mark.parametrize("seed", [3, 14])
def test_no_planted_value_is_in_a_masked_lake(seed: int) -> None:
    """A reject, a statement, a decision or a temporary file would show what the mask hides."""
    found = masked(seed)
    assert [] == found.wrong
    assert found.values > 5
    assert found.rows


def test_a_value_that_no_mask_hides_is_found(tmp_path: Path) -> None:
    """A judge that looks for nothing finds nothing."""
    made = PlantedLake(3, tmp_path)
    made.pipeline = replace(
        made.pipeline, tables=tuple(replace(one, mask={}) for one in made.pipeline.tables)
    )
    assert any("mirrors/" in one for one in made.masked().wrong)


def test_all_dialects_that_files_hold_are_drawn(tmp_path: Path) -> None:
    """A dialect that is never drawn may leak for ever."""
    count = len(dialects())
    drawn = {PlantedLake(seed, tmp_path / str(seed)).name for seed in range(count)}
    assert {*dialects()} == drawn
    assert count > len(DIALECTS) * 0.8
