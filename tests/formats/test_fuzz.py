"""A slice of the search for messages that kill, hang or pass wrongly; ``benchmarks/fuzz.py`` runs all of it."""

from __future__ import annotations

import functools
import gc
import re
from contextlib import suppress
from random import Random

import pytest

from ingest import formats
from ingest.errors import Undecodable
from ingest.values.remembered import LONG
from tests.formats.fuzzing import LARGE, corpus, tried

SLICE = 4_000  # of all formats together
SHARE = -(-SLICE // len(formats.names()))


@pytest.mark.parametrize("name", formats.names())
def test_damaged_messages_are_decoded_or_refused(name):
    """A message that raises anything else, or takes long, would stop a worker."""
    _try(name, 0, SHARE)


@pytest.mark.slow
@pytest.mark.parametrize("name", formats.names())
def test_many_damaged_messages_are_decoded_or_refused(name):
    """What the first ones do not find."""
    _try(name, 1, 50 * SHARE)


def _try(name, chunk, count):
    found = tried(name, chunk, count, 6 * LARGE)
    assert [] == found.escapes
    assert found.decoded + found.refused == count
    assert found.slowest < 3  # seconds of a busy machine, which takes three times those of a quiet one
    assert found.slowest_large < 8  # of up to 1 MB; the square of its length takes minutes
    assert found.decoded
    assert found.refused


@pytest.mark.parametrize("name", formats.names())
def test_the_corpus_decodes_before_it_is_damaged(name):
    """A search around messages that are refused anyway would find nothing."""
    assert len(corpus(name)) > 20


def test_no_cache_keeps_long_texts():
    """A thousand table names, types or keys of a megabyte each, remembered for the next message, are a gigabyte."""
    for name in formats.names():
        if not formats.load(name).ABOUT.binary:
            assert _decoded_with_long_texts(name), name
    gc.unfreeze()  # what the collection of the tests has put out of sight
    caches = [one for one in gc.get_objects() if isinstance(one, functools._lru_cache_wrapper)]
    kept = {
        one.__wrapped__.__qualname__: sum(
            _is_long(key) for held in gc.get_referents(one) if type(held) is dict for key in held
        )
        for one in caches
    }
    gc.freeze()  # again: searches for cycles would walk through thousands of tests from now on
    assert len(kept) > 20  # else they are out of sight
    # what is too long is forgotten with the next that is not known
    assert {} == {function: count for function, count in kept.items() if count > 1}


def _decoded_with_long_texts(name):
    """How many messages decode although a text of theirs is too long to remember."""
    module, random, decoded = formats.load(name), Random(name), 0
    for known in random.sample(corpus(name), 2):
        value = known.message.value or b""
        for number, found in enumerate(re.finditer(rb'"((?:[^"\\]++|\\.)*+)"', value)):
            long = b"%d" % number + b"x" * LONG
            with suppress(Undecodable):
                message = known.message._replace(value=value[: found.start(1)] + long + value[found.end(1) :])
                decoded += bool(list(module.parse(message, known.hints)))
    return decoded


def _is_long(key) -> bool:
    """True if the arguments that a cache remembers hold a long text."""
    if isinstance(key, str | bytes):
        return len(key) > LONG
    return isinstance(key, tuple | list) and any(map(_is_long, key))
