"""Row images with very long texts."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

from ingest.tables.images import image

pytestmark = pytest.mark.spark


def test_a_text_of_twenty_million_characters_keeps_its_row(spark):
    """Jackson refuses longer texts by default: key and cells would be NULL, and no cell reject would say so."""
    length = 20_000_001
    text = F.concat(F.lit('{"id":"7","word":"'), F.repeat(F.lit("x"), length), F.lit('"}'))
    found = spark.range(1).select(image(text, ["id", "word"]).alias("a")).selectExpr("a.id", "length(a.word)")
    assert ("7", length) == tuple(found.first())
