"""Damaged Avro, read here and by the reference implementation in Java: both give one value, or a listed reason for not."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import fastavro
import pytest

from ingest.decoding import avro
from ingest.errors import Undecodable
from tests.decoding.test_avro import ROW, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FLAGS = {
    "type": "record",
    "name": "Flags",
    "fields": [
        {"name": "on", "type": "boolean"},
        {"name": "perhaps", "type": ["null", "boolean", "string"]},
        {"name": "all", "type": {"type": "array", "items": "boolean"}},
        {"name": "named", "type": {"type": "map", "values": ["null", "int"]}},
        {"name": "last", "type": "int"},
    ],
}
DATA = int(os.environ.get("AVRO_DATA", "10000"))
ODD_BOOLEAN = "Java takes every byte but 1 for false; the specification has 0 and 1 alone"
REFUSED_HERE = {
    "a boolean is not one byte": ODD_BOOLEAN,
    "does not fit the 32 bits": "Java drops the bits of an int above its 32",
    "a number does not fit 64 bits": "Java drops the bits of a long above its 64",
    "an Avro string holds byte": "Java keeps a text's bytes unread; one that is not UTF-8 has no exact text",
}
REFUSED_THERE = {
    "Invalid int encoding": "an int or an index in more than five bytes, whose value fits: both know the same value",
}


class Reading(NamedTuple):
    """What a reader makes of a datum: the value, or why it refuses the datum."""

    value: Any = None
    refusal: str = ""
    rewritten: bytes = b""  # by Java


class Java:
    """The reference, in the session's JVM, which has its jar."""

    def __init__(self, spark: SparkSession, schema: dict[str, Any]) -> None:
        assert spark._jvm is not None
        spark._jvm.java.lang.System.setProperty("org.apache.avro.limits.collectionItems.maxLength", "100000")
        self._avro, self._out = spark._jvm.org.apache.avro, spark._jvm.java.io.ByteArrayOutputStream
        parsed = self._avro.Schema.Parser().parse(json.dumps(schema))
        self._reader = self._avro.generic.GenericDatumReader(parsed)
        self._writer = self._avro.generic.GenericDatumWriter(parsed)

    def rewritten(self, data: bytes) -> bytes:
        """A datum as it is written once it has been read to its last byte."""
        decoder = self._avro.io.DecoderFactory.get().binaryDecoder(bytearray(data), None)
        datum = self._reader.read(None, decoder)
        if not decoder.isEnd():
            raise ValueError("bytes are left")
        out = self._out()
        encoder = self._avro.io.EncoderFactory.get().directBinaryEncoder(out, None)
        self._writer.write(datum, encoder)
        encoder.flush()
        return bytes(out.toByteArray())


def read_here(schema: avro.AvroSchema, data: bytes) -> Reading:
    try:
        return Reading(avro.read(schema, data))
    except Undecodable as error:
        return Reading(refusal=error.detail)


def read_there(java: Java, schema: avro.AvroSchema, data: bytes) -> Reading:
    """What Java reads, as this package reads what Java writes of it."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        sound = java.rewritten(data)
    except Py4JJavaError as error:
        return Reading(refusal=str(error.java_exception.toString()))
    except (PySparkException, ValueError) as error:  # PySpark knows some of Java's
        return Reading(refusal=str(error))
    return read_here(schema, sound)._replace(rewritten=sound)


def reason(here: Reading, there: Reading, data: bytes) -> str:
    """Why two readings differ; empty if nothing that is listed explains it."""
    if here.refusal:
        # an odd boolean at which the reading here went wrong, and failed later; Java may write a map in another order
        odd, plain = Counter(data) - Counter(there.rewritten), Counter(there.rewritten) - Counter(data)
        if there.rewritten and min(odd, default=0) > 1 and plain.keys() == {0} and odd.total() == plain[0]:
            return ODD_BOOLEAN
        return next((why for words, why in REFUSED_HERE.items() if words in here.refusal), "")
    if there.refusal:
        return next((why for words, why in REFUSED_THERE.items() if words in there.refusal), "")
    return ""


def mutated(data: bytes, random_: random.Random) -> bytes:
    """One to three bytes are exchanged, inserted or deleted."""
    torn = bytearray(data)
    for _ in range(random_.randint(1, 3)):
        place = random_.randrange(len(torn) + 1)
        added = bytes(
            random_.choice([0, 1, 2, 0x7F, 0x80, 0x81, 0xFF, random_.randrange(256)])
            for _ in range(random_.choice([0, 1, 1, 2, 5]))
        )
        torn[place : place + random_.choice([0, 1, 1])] = added
    return bytes(torn)


def row(random_: random.Random) -> dict[str, Any]:
    words = ["", "a", "Straße", "删除订单", "Ā"]
    number = random_.choice([0, -1, 1 << 40, -(1 << 63), (1 << 63) - 1])
    return {
        "id": number, "n": random_.randint(-(1 << 31), (1 << 31) - 1), "ok": random_.random() < 0.5,
        "f": 1.5, "d": random_.random(), "raw": random_.randbytes(3), "text": random_.choice([None, *words]),
        "kind": random_.choice("AB"), "again": random_.choice([None, "A", "B"]), "mark": b"abc",
        "many": [random_.choice([None, 7, "x"]) for _ in range(random_.randrange(4))],
        "tags": dict.fromkeys(random_.sample(words, 2), number),
    }  # fmt: skip


def flags(random_: random.Random) -> dict[str, Any]:
    def flag() -> bool:
        return random_.random() < 0.5

    return {
        "on": flag(), "perhaps": random_.choice([None, True, False, "Ā"]), "all": [flag() for _ in range(3)],
        "named": {"Ā": random_.choice([None, 5, -(1 << 31)])}, "last": random_.randrange(-99, 99),
    }  # fmt: skip


def test_damage_is_read_as_the_reference_reads_it(spark: SparkSession) -> None:
    """A damaged datum that only this package accepts becomes a wrong row, and one that only it refuses is lost."""
    random_ = random.Random(20260314)
    differences: Counter[str] = Counter()
    unexplained: list[tuple[str, str, Reading, Reading]] = []
    read_by_both = 0
    for schema, made in ((ROW, row), (FLAGS, flags)):
        plain = avro.load(json.dumps(schema))
        java = Java(spark, schema)
        sound = [written(fastavro.parse_schema(schema), made(random_)) for _ in range(50)]
        assert [read_here(plain, data).value for data in sound] == [
            read_there(java, plain, data).value for data in sound
        ]
        for _ in range(DATA // 2):
            data = mutated(random_.choice(sound), random_)
            here, there = read_here(plain, data), read_there(java, plain, data)
            # NaN equals nothing, and is written alike; a map has no order
            if bool(here.refusal) == bool(there.refusal) and (
                here.refusal
                or here.value == there.value
                or sorted(repr(here.value)) == sorted(repr(there.value))
            ):
                read_by_both += not here.refusal
            elif why := reason(here, there, data):
                differences[why] += 1
            else:
                unexplained.append((schema["name"], data.hex(), here, there))
    assert [] == unexplained, differences
    assert read_by_both > DATA // 50
