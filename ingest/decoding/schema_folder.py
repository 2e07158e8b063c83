"""Avro schemas from a folder of files, found by their fingerprints.

GoldenGate's Avro formatter writes each schema to a file, and its generic wrapper names the schema of a record by the 64-bit
fingerprint of the schema's parsing canonical form (Avro specification 1.11, "Schema Fingerprints"; Java's
``SchemaNormalization.parsingFingerprint64``). A record is so read by the very schema by which it was written, though
the folder holds older and newer ones of its table. The form leaves out logical types and defaults, though: two schemas of one
fingerprint may read the same bytes as other amounts, and then no record that names it is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from ingest.decoding import avro, avro_reader
from ingest.decoding.connect_avro import NamedDatum
from ingest.errors import SetupError, Undecodable

MAX_BYTES = 16 * 1024 * 1024
MAX_FILES = 10_000
SUFFIX = ".avsc"


class Schemas(dict[int, str]):
    """The JSON text of each schema by its fingerprint as a signed number.

    To ask for a fingerprint that schemas of several meanings have raises `Undecodable`: ``unsure-schema``.

    Attributes:
        unsure: a sentence for each such fingerprint.
        faults: a sentence for each file that cannot be read, or for the whole folder; their schemas are missing.
    """

    def __init__(self, texts: Mapping[int, str], unsure: Mapping[int, str], faults: Iterable[str]) -> None:
        super().__init__(texts)
        self.unsure, self.faults = dict(unsure), tuple(faults)

    def __missing__(self, number: int) -> str:
        if number in self.unsure:
            raise Undecodable("unsure-schema", self.unsure[number])
        raise KeyError(number)


def is_folder(registry: str) -> bool:
    """True for a ``registry:`` that is a folder, not a URL."""
    return bool(registry) and "://" not in registry


def schemas(folder: str, stored: Mapping[int, str] | None = None) -> Schemas:
    """The schemas of a folder and the folders below it, and those that are ``stored``: older records were read by them."""
    by_number = {
        number: ("the schema that the lake has from before", text) for number, text in (stored or {}).items()
    }
    unsure: dict[int, str] = {}
    files, faults = _files(folder)
    for file in files:
        try:
            stat = file.stat()
            number, text = _schema(file, stat.st_mtime_ns, stat.st_size)
        except OSError as error:
            faults.append(f"{file} cannot be read ({error.strerror or error})")
        except SetupError as error:
            faults.append(str(error))
        else:
            other, same = by_number.setdefault(number, (str(file), text))
            if same != text and avro.load(same).root != avro.load(text).root:
                unsure[number] = _UNSURE.format(file=file, other=other, number=number)
    texts = {number: text for number, (_, text) in by_number.items() if number not in unsure}
    return Schemas(texts, unsure, faults)


_UNSURE = (
    "{file} and {other} have one fingerprint, {number}, and differ in logical types or defaults, so nothing shows by which of "
    "them the record was written: move the file away if no record is of it, then `ingest replay`; records that are of it need "
    "a source of another name, which begins with them and has schemas of its own"
)


def _files(folder: str) -> tuple[list[Path], list[str]]:
    """The files of a folder's schemas, and what is wrong with the folder."""
    place = Path(folder)
    try:
        if not place.is_dir():
            return [], [
                f"{folder} is no folder of Avro schemas (*{SUFFIX}); correct `registry:` of the source"
            ]
        files = sorted(place.rglob(f"*{SUFFIX}"))
    except OSError as error:
        return [], [f"{folder}: its schemas cannot be read ({error.strerror or error})"]
    if len(files) > MAX_FILES:
        return [], [f"{folder} holds more than {MAX_FILES:,} Avro schemas (*{SUFFIX})"]
    return files, []


def unwrapped(value: bytes) -> NamedDatum:
    """The parts of GoldenGate's generic wrapper: ``table_name``, ``schema_fingerprint`` and ``payload``.

    `Undecodable`: ``truncated``.
    """
    try:
        size, place = avro_reader.long(value, 0)
        number, place = avro_reader.long(value, place + size)
        length, place = avro_reader.long(value, place)
    except IndexError:
        size, length, number, place = 0, 0, 0, len(value) + 1
    if size < 0 or length != len(value) - place:
        raise Undecodable("truncated", "GoldenGate's generic wrapper does not end with its last byte")
    return NamedDatum(number, value[place:])


@lru_cache(maxsize=MAX_FILES)
def _schema(file: Path, _changed: int, size: int) -> tuple[int, str]:
    """A schema's fingerprint and text; the file's time and size make a changed file another one."""
    if size > MAX_BYTES:
        raise SetupError(f"{file} has more than {MAX_BYTES >> 20} MB, which no Avro schema has")
    try:
        text = file.read_bytes().decode("utf-8-sig")
        return fingerprint(text), text
    except (UnicodeDecodeError, Undecodable) as error:
        detail = error.detail if isinstance(error, Undecodable) else "it is not UTF-8"
        raise SetupError(f"{file} is no Avro schema: {detail}") from None


def fingerprint(text: str) -> int:
    """The 64-bit fingerprint of a schema's parsing canonical form, as Java's signed ``long``.

    `Undecodable`: ``bad-schema``.
    """
    from fastavro.schema import fingerprint as hexadecimal
    from fastavro.schema import to_parsing_canonical_form

    avro.load(text)  # refuses what fastavro would crash or hang on
    canonical = to_parsing_canonical_form(json.loads(text))
    return int.from_bytes(bytes.fromhex(hexadecimal(canonical, "CRC-64-AVRO")), "little", signed=True)
