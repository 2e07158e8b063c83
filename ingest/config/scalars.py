"""The small texts of a pipeline file: durations, sizes, table names, logical types and the like.

Each function takes the text as written and returns what it means, or raises `ValueError` with one
sentence that says what to write instead.  The command line reads its options with the same functions.
"""

from __future__ import annotations

import difflib
import importlib.util
import re
import zoneinfo
from base64 import b64decode
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from ingest import types, values
from ingest.change import TableId

BINARY = ("base64", "hex", "base16", "iso8859-1", "int-list", "utf8")
TIME_UNITS = ("millis", "micros", "nanos", "adaptive")
DATABASE_KINDS = ("mysql", "oracle", "postgres", "sqlserver", "db2")
INSERTS = ("insert", "upsert")
LEFT_OUT = ("null", "unchanged")
ORDER_BY = ("sequence", "arrival", "event_time")
PLACEHOLDERS = ("database", "schema", "table")
MASKS = ("hmac", "tokenize", "last4", "null", "keep")
LEAST_SECRET = 16  # characters
KEY_BYTES = 32  # of a master key

CHECKS = (
    "rows readable key_unique key_not_null missing_rows rows_left_out columns_left_out columns_masked "
    "cells_cut changes_erased ghost_rows cascaded_rows converted_cells key_spellings wrong_cells images_before rows_never_sent changes_compared changes_proven insert_of_a_live_key "
    "rows_read_again rows_not_loaded rows_not_loaded_again cells_checked row_count reconcile up_to_date schema freshness "
    "ambiguities cell_rejects bytes_misread types_misread nulls_left_out refused_changes unknown_values rows_left_behind ddl_pending "
    "order_strength event_order unplaced_changes re_reads_ignored old_positions positions_started_again "
    "repeated_moves rows_set_back partial_rows vanished_columns mixed_topics lost_deletes incomplete_rows "
    "duplicates books_balance gaps losses missing_parts reject_rate"
).split()

_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_CENTURY = 36_500 * 86_400  # seconds
_LARGEST_SIZE = 1 << 62  # bytes
_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,200}", re.ASCII)
_TABLE_PART = re.compile(r"`([^`]+)`|([^.`]+)")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://|file:/")
_SHORT_FILE_URI = re.compile(r"^file:/(?!/)")

_BASE = re.compile(r"^class Expect\w{1,100}\(\s?(\w{1,60})", re.ASCII | re.MULTILINE)
_FIELD = re.compile(r"^    ([a-z]\w{0,60}): (?!ClassVar)", re.ASCII | re.MULTILINE)
_BASES = {  # of Great Expectations' classes, with the arguments of each
    "BatchExpectation": "",
    "ColumnAggregateExpectation": "column row_condition condition_parser",
    "ColumnMapExpectation": "column mostly row_condition condition_parser",
    "ColumnPairMapExpectation": "column_A column_B mostly row_condition condition_parser",
    "MulticolumnMapExpectation": "column_list mostly row_condition condition_parser ignore_row_if",
}
_OF_ALL = frozenset(("type severity id meta notes result_format description windows batch_id catch_exceptions "
                     "rendered_content library_metadata").split())  # fmt: skip
_NEEDED = frozenset(("column", "column_A", "column_B", "column_list"))


def expectation(text: str) -> str:
    """The name of a Great Expectations type."""
    if not re.fullmatch("expect_[a-z0-9_]+", text):
        raise ValueError(
            f"{text!r} is not an expectation; write a name such as expect_column_values_to_be_unique"
        )
    if (names := _expectations()) and text not in names:
        raise ValueError(f"Great Expectations has no {text}{nearest(text, names)}")
    return text


def refuse_arguments(kind: str, given: Iterable[str]) -> None:
    """Raise a `ValueError` if an expectation takes no argument of one of these names, or lacks its column."""
    if (file := _expectations().get(kind)) is None or (takes := _arguments(file)) is None:
        return
    for name in given:
        if name not in takes and name not in _OF_ALL:
            raise ValueError(f"{kind} takes no {name}{nearest(name, takes)}")
    if lacking := [name for name in takes if name in _NEEDED and name not in given]:
        raise ValueError(f"{kind} needs {listed(lacking)}")


def _arguments(file: Path) -> list[str] | None:
    """What an expectation's module says that it takes; None where its base class is not known here."""
    text = file.read_text("utf-8")
    base = _BASE.search(text)
    if base is None or base[1] not in _BASES:
        return None
    return [*_BASES[base[1]].split(), *_FIELD.findall(text, base.end())]


@lru_cache(maxsize=1)
def _expectations() -> dict[str, Path]:
    """Those of the installed release, whose modules bear their names: importing them takes seconds."""
    package = importlib.util.find_spec("great_expectations")
    if package is None or package.origin is None:
        return {}
    folder = Path(package.origin).parent / "expectations" / "core"
    return {file.stem: file for file in folder.glob("expect_*.py")}


def nearest(word: str, words: Iterable[str]) -> str:
    """``; did you mean x?``, or nothing where no known word is near."""
    by_folded = {name.lower().replace("-", "_"): name for name in words}
    near = difflib.get_close_matches(word.lower().replace("-", "_"), by_folded, 2, 0.55)
    return f"; did you mean {' or '.join(by_folded[name] for name in near)}?" if near else ""


def listed(words: Iterable[str]) -> str:
    """``a, b or c``."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def duration(text: str) -> float:
    """Seconds of ``60s``, ``5m``, ``2h``, ``1d``, ``500ms``; a bare number counts seconds."""
    match = _AMOUNT.fullmatch(text.strip())
    if match is None or (match[2] or "s") not in _MILLISECONDS:
        raise ValueError(f"{text!r} is not a duration; write for example 60s, 5m, 2h or 1d")
    seconds = Decimal(match[1]) * _MILLISECONDS[match[2] or "s"] / 1000
    if seconds > _CENTURY:
        raise ValueError(f"{_short(text)} is longer than 36500d; write a shorter time")
    return float(seconds)


def _short(text: str) -> str:
    """What was written, if it is not too long to show."""
    return repr(text) if len(text) <= 40 else repr(text[:40])[:-1] + "...'"


def pause(seconds: float) -> float:
    """A `duration` between two runs, at least a second."""
    if seconds < 1:
        raise ValueError("runs follow each other by at least 1s; write for example 30s or 5m")
    return seconds


def size(text: str) -> int:
    """Bytes of ``64MiB``, ``10MB``, ``1GiB``; a bare number counts bytes."""
    match = _AMOUNT.fullmatch(text.strip())
    if match is None or match[2].lower() not in _BYTES:
        raise ValueError(f"{text!r} is not a size; write for example 64MiB, 500KB or 1GiB")
    amount = Decimal(match[1]) * _BYTES[match[2].lower()]
    if amount >= _LARGEST_SIZE:
        raise ValueError(f"{_short(text)} is more than any file has; write for example 64MiB, 500KB or 1GiB")
    count = int(amount)
    if count < 1:
        raise ValueError(f"{text!r} is not a size; it must be at least one byte")
    return count


def size_or_none(text: str) -> int:
    """A `size`, or 0."""
    return 0 if text.strip() == "0" else size(text)


def count(text: str) -> int:
    """A positive whole number; ``1_000_000`` is accepted."""
    digits = text.strip().replace("_", "")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19 and int(digits) > 0):
        raise ValueError(f"{text!r} is not a positive whole number")
    return int(digits)


def natural(text: str) -> int:
    return 0 if text.strip() == "0" else count(text)


def limits(given: dict[str, float]) -> dict[str, float]:
    """The limits themselves if each is of a built-in check."""
    for name in given:
        if name not in CHECKS:
            raise ValueError(
                f"there is no check {name!r}{nearest(name, CHECKS) or '; there are ' + listed(CHECKS)}"
            )
    return given


def ratio(text: str) -> float:
    """A threshold: ``0.1%`` is 0.001, a bare number is itself."""
    bare = text.strip()
    try:
        number = Decimal(bare.removesuffix("%"))
    except InvalidOperation:
        number = Decimal(-1)
    if not number.is_finite() or number < 0:
        raise ValueError(f"{text!r} is not a threshold; write for example 0.1% or 5")
    return float(number / 100 if bare.endswith("%") else number)


def boolean(text: str) -> bool:
    """``true`` or ``false``, and nothing else."""
    if text.strip().lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.strip().lower() == "true"


def name(text: str) -> str:
    """A pipeline's or source's name: letters, digits and ``_ - .``."""
    if not _NAME.fullmatch(text) or set(text) == {"."}:
        raise ValueError(f"{text!r} is not a name; use letters, digits, _, - and . only")
    return text


def plain_name(name: str) -> str:
    """A name of letters, digits, ``_`` and ``-`` made of any text."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in name) or "source"


def one_of(text: str, words: Iterable[str]) -> str:
    """The text itself if it is one of the known words."""
    if text not in (words := tuple(words)):
        raise ValueError(f"{text!r} is not one of {listed(words)}{nearest(text, words)}")
    return text


def mask(column: str, method: object) -> str:
    """How a column is masked."""
    if method not in MASKS:
        hint = nearest(str(method), MASKS) or f"; there are {listed(MASKS)}"
        raise ValueError(f"{column}: {method!r} is not a mask{hint}")
    return str(method)


def mask_secret(text: str) -> str:
    """The secret of masks: so long that it cannot be guessed."""
    if len(text.strip()) < LEAST_SECRET:
        raise ValueError(
            f"the secret is shorter than {LEAST_SECRET} characters and could be guessed; "
            "make one with `openssl rand -hex 32`"
        )
    return text


def master_key(text: str) -> str:
    """The key that wraps others: 32 bytes, in hex or base64."""
    master_key_bytes(text)
    return text


def master_key_bytes(text: str) -> bytes:
    """The bytes of a master key."""
    given = text.strip()
    try:
        data = bytes.fromhex(given) if len(given) == 2 * KEY_BYTES else b64decode(given, validate=True)
    except ValueError:
        data = b""
    if len(data) != KEY_BYTES:
        raise ValueError(
            f"a master key is {KEY_BYTES} bytes in hex or base64; make one with `openssl rand -hex {KEY_BYTES}`"
        )
    return data


def table(text: str) -> TableId:
    """``db.t`` or ``db.schema.t``; a part that holds a dot is in backquotes."""
    parts = [quoted or plain for quoted, plain in _TABLE_PART.findall(text)]
    if not 2 <= len(parts) <= 3 or not re.fullmatch(r"(`[^`]+`|[^.`]+)(\.(`[^`]+`|[^.`]+)){1,2}", text):
        raise ValueError(f"{text!r} is not a table; write database.table or database.schema.table")
    return TableId(parts[0], parts[1] if len(parts) == 3 else None, parts[-1])


def tables(value: str | Mapping[str, str]) -> tuple[tuple[str, TableId], ...]:
    """The ``table`` option: one table for all topics, or a map of topic (file) patterns to tables."""
    if isinstance(value, Mapping):
        return tuple((pattern, table(target)) for pattern, target in value.items())
    return (("*", table(value)),)


def timezone(text: str) -> str:
    """An IANA time zone's name, checked."""
    try:
        values.zone_of(text)
    except ValueError:
        hint = nearest(text, zoneinfo.available_timezones()) or "; write an IANA name such as Asia/Shanghai"
        raise ValueError(f"{text!r} is not a time zone{hint}") from None
    return text


_SPARK = {"timestamp_ntz": "datetime", "timestamp_ltz": "timestamp"}
"""Spark's names that no database has."""


_NO_COMMA = re.compile(r"(?<=[0-9])\s*[;.:/|\s]\s*(?=[0-9])")
"""What stands for the comma between two numbers."""


def logical(text: str) -> str:
    """A logical type of `ingest.types`."""
    if types.is_logical(text):
        return text
    if text.count("(") > text.count(")"):
        raise ValueError(f"{text!r} breaks off at a comma; put the whole type in quotes")
    with_comma = _NO_COMMA.sub(",", text.strip().lower())
    if types.is_logical(with_comma):
        raise ValueError(f"{text!r} is not a type; did you mean {with_comma}?")
    readers = (_SPARK.get, types.mysql, types.oracle, types.postgres, types.sqlserver)
    meanings = (read(text.strip().lower()) for read in readers)
    meant = next((meaning for meaning in meanings if meaning not in (None, "unknown")), "unknown")
    hint = f"; did you mean {meant}?" if meant != "unknown" else nearest(text, types.LOGICAL)
    raise ValueError(f"{text!r} is not a type{hint or '; the types are ' + listed(types.LOGICAL)}")


def of_column(text: str) -> str:
    """A column's logical type, where it might be another word for what becomes of it."""
    if hint := nearest(text, ("exclude", "include")):
        raise ValueError(f"{text!r} is not a type{hint}")
    return logical(text)


def column(text: str) -> str:
    """A column's name in a mirror, which every reader takes as it is written."""
    if not re.fullmatch(r"[^\s,;{}()=%.`\"']{1,200}", text):
        raise ValueError(f"{text!r} is not a name of a column; write letters, digits and _")
    return text


def template(text: str) -> str:
    """A mirror's name, ``database.table``, with ``{database}``, ``{schema}`` and ``{table}`` in it, or groups of ``match`` as ``{1}``."""
    _check_placeholders(text, groups=True)
    table(re.sub(r"\{[^{}]*\}", "x", text))
    return text


CATALOGS = {
    "hive": (("uri",), ("catalog", "region", "token")),
    "glue": ((), ("token",)),
    "unity": (("uri", "catalog"), ("region",)),
}
"""The kinds of catalogs: the keys that each needs, and those that have no meaning for it."""


def catalog_name(text: str) -> str:
    """A template of a name in a catalog."""
    _check_placeholders(text)
    if not text.strip():
        raise ValueError("a name belongs here, such as lake_{database}")
    return text


def catalog_address(kind: str, text: str) -> None:
    """Refuse the address of another kind of catalog."""
    scheme = urlsplit(text).scheme
    if kind == "hive" and any(urlsplit(address).scheme != "thrift" for address in text.split(",") if text):
        raise ValueError("uri: of a Hive metastore is written thrift://host:9083, several with commas")
    if kind != "hive" and text and scheme not in ("http", "https"):
        raise ValueError(f"uri: of a catalog of kind {kind} is written http://host:port or https://host")


def _check_placeholders(text: str, *, groups: bool = False) -> None:
    """Refuse a template with an unknown placeholder, or a brace without its partner; ``groups`` allows {1}."""
    names = re.findall(r"\{([^{}]*)\}", text)
    if bad := [name for name in names if name not in PLACEHOLDERS and not (groups and name.isdigit())]:
        raise ValueError(
            f"{{{bad[0]}}} is not a placeholder{nearest(bad[0], PLACEHOLDERS)}; there are "
            + listed(f"{{{word}}}" for word in PLACEHOLDERS)
        )
    if set("{}") & set(re.sub(r"\{[^{}]*\}", "x", text)):
        raise ValueError(f"{text!r} has a brace without its partner")


def database(text: str) -> str:
    scheme = text.partition("//")[0].lower()  # the rest may hold a password
    if "oceanbase" in scheme:
        what = "in its Oracle mode cannot be read (docs/reading-the-source.md): leave `database:` out"
        raise ValueError(
            f"OceanBase {what}" if "oracle" in scheme else "write OceanBase's address as mysql://host:2881"
        )
    if scheme.startswith("jdbc:"):
        raise ValueError(
            "write the address without `jdbc:`, such as mysql://host:3306, oracle://host:1521/service or "
            "sqlserver://host:1433/database"
        )
    if not _DATABASE.fullmatch(text):
        raise ValueError(
            "this is not the URL of a database that can be read; write mysql://host:3306, mariadb://host:3306, "
            "postgresql://host:5432/database, oracle://host:1521/service or sqlserver://host:1433/database"
        )
    return text


_DATABASE = re.compile(
    r"(mysql|mariadb|postgresql)://[^/\s]+(/[^/\s]*)?|(oracle|sqlserver)://[^/\s]+/[^/?\s]+(\?\S*)?"
)


def replicated(url: str, primary: str) -> None:
    """Refuse a primary of another kind than its replica, or of one whose place in the log is not asked for.

    PostgreSQL shows the open transactions of one database alone, so both name the same one.
    """
    if not primary:
        return
    kinds = {address.partition(":")[0].replace("mariadb", "mysql") for address in (url, primary)}
    if kinds not in ({"mysql"}, {"postgresql"}):
        raise ValueError("primary: and url: are both addresses of MySQL or MariaDB, or both of PostgreSQL")
    names = {urlsplit(address).path.strip("/") for address in (url, primary)}
    if kinds == {"postgresql"} and len(names) > 1:
        raise ValueError(
            "primary: and url: of PostgreSQL end in the same name of a database: write url:'s under primary: too"
        )


def web_address(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("write an address such as https://hooks.example.com/...")  # it may be a secret
    return text


def mail_server(text: str) -> str:
    """A mail server with its port, and with a login where it asks for one."""
    parts = urlsplit(text)
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname:
        raise ValueError("write the mail server as smtp://host:25 or smtps://user:password@host:465")
    return text


def whole_uri(text: str) -> str:
    """A URI with its ``://``, which distinguishes it from a path; a file's may lack it."""
    return _SHORT_FILE_URI.sub("file:///", text, count=1)


def place(text: str) -> str:
    """A folder's or file's path, or its URI in a store; a ``file:`` URI is the path that it names."""
    if not is_file_uri(text):
        return text
    host, _, path = whole_uri(text).removeprefix("file://").partition("/")
    if host not in ("", "localhost") or "%" in path:
        raise ValueError(f"{text!r} is not the URI of a local path; write the path itself, such as /srv/lake")
    return f"/{path}"


def is_file_uri(text: str) -> bool:
    """True for ``file:/x``, ``file:///x`` and the like."""
    return text.startswith("file:/")


def is_uri(text: str) -> bool:
    """True for ``s3a://bucket/x`` and its like; a plain path is none."""
    return bool(_URI.match(text))
