"""The table of what `ingest detect` says of messages whose format is known."""

from __future__ import annotations

from collections import Counter

from benchmarks import detect


def test_the_corpus_holds_nothing_that_is_wrong_with_certainty():
    """The table would be a figure that nothing holds up; a failure prints it."""
    counts = detect.counted(100)
    table = detect.table(counts, Counter())
    assert [] == [where for where in counts if where[2] == detect.WRONG], table
    assert 300 < sum(counts[where] for where in counts if where[2] == detect.RIGHT), table
