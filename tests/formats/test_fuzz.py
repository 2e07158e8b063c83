"""A slice of the search for messages that kill, hang or pass wrongly; ``benchmarks/fuzz.py`` runs all of it."""

from __future__ import annotations

import pytest

from ingest import formats
from tests.formats.fuzzing import corpus, tried

SLICE = 20_000
SHARE = -(-SLICE // len(formats.names()))


@pytest.mark.parametrize("name", formats.names())
def test_damaged_messages_are_decoded_or_refused(name):
    """A message that raises anything else, or takes long, would stop a worker."""
    found = tried(name, 0, SHARE)
    assert [] == found.escapes
    assert found.decoded + found.refused == SHARE
    assert found.slowest < 3  # seconds of a busy machine, which takes three times those of a quiet one
    assert found.slowest_large < 8  # of up to 1 MB; the square of its length takes minutes
    assert found.decoded
    assert found.refused


@pytest.mark.parametrize("name", formats.names())
def test_the_corpus_decodes_before_it_is_damaged(name):
    """A search around messages that are refused anyway would find nothing."""
    assert len(corpus(name)) > 20
