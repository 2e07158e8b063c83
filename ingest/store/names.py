"""Make source names safe: paths, column names and SQL never contain a source's raw name."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection

from ingest.change import TableId

_SAFE = re.compile(r"[a-z0-9_-]")
_MAX_BYTES = 100
_HASHED_HEAD = 60
MIRRORS = "mirrors/"
FEEDS = "feeds/"


def path_part(name: str | None) -> str:
    """One path segment for one source name: injective, safe on case-blind file systems, bounded.

    Lower-case ASCII letters, digits, ``_`` and ``-`` are kept; a capital ASCII letter becomes ``~`` and the small one;
    every other UTF-8 byte ``~~`` and two hex digits; a missing name is ``~``. A result longer than 100 bytes is cut and
    ends with ``~~~`` and a hash of the whole name.
    """
    if name is None:
        return "~"
    if not name:
        return "~~~empty"
    # A leading "_" hides a folder from Hadoop, a leading "-" confuses shell commands.
    encoded = "".join(_encode(char, i == 0) for i, char in enumerate(name))
    if len(encoded) <= _MAX_BYTES:
        return encoded
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return encoded[:_HASHED_HEAD] + "~~~" + digest


def _encode(char: str, first: bool) -> str:
    if _SAFE.match(char) and not (first and char in "_-"):
        return char
    if "A" <= char <= "Z":
        return "~" + char.lower()
    return "".join(f"~~{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))


def mirror_path(table: TableId) -> str:
    """A mirror's path under the lake: ``mirrors/<database>/<table>`` or ``.../<schema>.<table>``."""
    last = path_part(table.table)
    if table.schema is not None:
        last = path_part(table.schema) + "." + last
    return f"{MIRRORS}{path_part(table.database)}/{last}"


def quoted(name: str) -> str:
    """A name as a Spark SQL identifier; the one place where names meet SQL text."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def of_table(table: TableId) -> str:
    """The condition in Spark's SQL that a row of a product table is of one source table, in whatever source."""
    return " AND ".join(
        f"{quoted(name)} {'IS NULL' if part is None else f'= {literal(part)}'}"
        for name, part in table._asdict().items()
    )


_REFUSED_BY_DELTA = re.compile(r"[ ,;{}()\n\t=%/\\`]|[\x00-\x1f\x7f]")

# Column names that Delta uses itself while it merges, that its change feed adds, or that DuckDB gives the numbers of rows.
_RESERVED = frozenset(
    "_metadata _change_type _commit_version _commit_timestamp _file_name_ _row_id_ _row_commit_version_ "
    "_source_row_present_ _target_row_present_ _row_dropped_ _condition_ file_row_number".split()
)


def column_name(name: str, taken: set[str]) -> str:
    """A name that plain Delta tables and every reader accept, unique regardless of case.

    A safe name is kept. Refused characters become ``_x`` and their code point in hex; a name that differs from a used
    one only in case, or that Delta or DuckDB uses itself, gets a short hash as suffix. ``taken`` are the names already used in this
    table, `folded`; the new one is added.
    """
    encoded = _REFUSED_BY_DELTA.sub(lambda match: f"_x{ord(match[0]):02x}", name) or "_x"
    if len(encoded) > 200 or folded(encoded) in taken or folded(encoded) in _RESERVED:
        encoded = f"{encoded[:150]}_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
    while folded(encoded) in taken:
        encoded += "_"
    taken.add(folded(encoded))
    return encoded


def as_spelt(name: str, names: Collection[str]) -> str:
    """A name as it is among some; letter case is ignored if only one of them is so."""
    if name in names:
        return name
    alike = [other for other in names if other.casefold() == name.casefold()]
    return alike[0] if len(alike) == 1 else name


def folded(name: str) -> str:
    """A name for comparison regardless of case, by the broadest rule of any reader (for Java ``ı`` equals ``I``)."""
    return name.upper().lower()
