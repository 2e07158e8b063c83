"""Avro schemas from a folder of files, found by their fingerprints.

GoldenGate's Avro formatter writes each schema to a file, and its generic wrapper names the schema of a record by the 64-bit
fingerprint of the schema's parsing canonical form (Avro specification 1.11, "Schema Fingerprints"; Java's
``SchemaNormalization.parsingFingerprint64``). A record is so read by the very schema by which it was written, though
the folder holds older and newer ones of its table.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

from ingest.decoding import avro
from ingest.errors import SetupError, Undecodable

MAX_BYTES = 16 * 1024 * 1024
MAX_FILES = 10_000
SUFFIX = ".avsc"


def is_folder(registry: str) -> bool:
    """True for a ``registry:`` that is a folder, not a URL."""
    return bool(registry) and "://" not in registry


def schemas(folder: str) -> dict[int, str]:
    """The JSON text of each schema in a folder and the folders below it, by its fingerprint as a signed number.

    `SetupError`: the folder or one of its files cannot be read, a file is no Avro schema, or two schemas that mean
    different things have one fingerprint, which leaves out logical types and defaults.
    """
    place = Path(folder)
    if not place.is_dir():
        raise SetupError(f"{folder} is no folder of Avro schemas (*{SUFFIX}); check the source's registry:")
    try:
        files = sorted(place.rglob(f"*{SUFFIX}"))
        if len(files) > MAX_FILES:
            raise SetupError(f"{folder} holds more than {MAX_FILES:,} Avro schemas (*{SUFFIX})")
        stats = [(file, file.stat()) for file in files]
        read = [_schema(file, stat.st_mtime_ns, stat.st_size) for file, stat in stats]
    except OSError as error:
        raise SetupError(f"{folder}: its schemas cannot be read ({error.strerror or error})") from None
    known: dict[int, tuple[Path, str]] = {}
    for file, (number, text) in zip(files, read, strict=True):
        other, same = known.setdefault(number, (file, text))
        if avro.load(same).root != avro.load(text).root:
            raise SetupError(
                f"{other} and {file} have one fingerprint and differ in logical types or defaults: move the one away that is not in use"
            )
    return {number: text for number, (_, text) in known.items()}


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
