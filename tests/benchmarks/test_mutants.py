"""The planted faults: each has a place to be planted at, as the code is now."""

from __future__ import annotations

import pytest

from benchmarks.mutants import MUTANTS, ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name)
def test_the_place_of_each_fault_is_found_once(mutant: Mutant) -> None:
    """A fault that cannot be planted is found out months later, and until then nothing looks for its like."""
    assert 1 == (ROOT / mutant.file).read_text("utf-8").count(mutant.text)
    assert mutant.text != mutant.fault
    assert all((ROOT / name).exists() for name in mutant.tests if name.startswith("tests"))
