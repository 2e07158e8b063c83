"""The benchmark of memory folds what it says it folds."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.memory import Mirror, folded, written


@pytest.mark.parametrize("partial", [False, True])
def test_a_mirror_is_folded(tmp_path: Path, partial: bool) -> None:
    """A column more that the fold reads would end the benchmark after an hour of its other sections."""
    mirror = Mirror("small", 500, 8, False, 50, partial)
    written(mirror, str(tmp_path))
    size, _, _, refused = folded(mirror, str(tmp_path))
    assert size > 0
    assert not refused
