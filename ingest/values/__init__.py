"""Exact JSON, and source values turned into canonical text (no value ever passes through a float).

The canonical text of each logical type is listed in `ingest.types`.  Functions named ``*_text``
take one source value and return that text; they raise `ValueError` when the value cannot be what
the type says, and the caller decides whether to keep the original text or to reject.
"""

from __future__ import annotations

from ingest.values.dates_and_times import (
    DATETIME,
    EPOCH,
    MICROS,
    clock_of,
    date_text,
    datetime_text,
    epoch_text,
    fraction,
    instant_micros,
    matched_text,
    micros_of,
    seconds_of,
    shortened,
    time_text,
    timestamp_text,
    wall_text,
    zone_of,
    zoned_text,
    zoneless_text,
)
from ingest.values.json_documents import (
    Number,
    Raw,
    bare_image,
    compacted,
    image,
    image_of,
    is_null,
    items,
    lenient,
    member_text,
    members,
    names,
    opened,
    optional_image,
    peeked,
    strict,
    string,
    text,
    usual_image,
)
from ingest.values.numbers_and_bytes import (
    INTEGER,
    MAX_EXPONENT,
    MAX_NUMBER_LENGTH,
    NUMBER,
    base64_text,
    bit_text,
    boolean_text,
    bytes_of,
    float32_text,
    float_text,
    hex_bytes,
    integer,
    number_text,
    unscaled_text,
)
