"""Describe a failure of a table's files in one sentence: a full disk, a refused access, a damaged file.

Spark and Delta report these in traces of hundreds of lines, of which the operator needs the path. No other module
decides by the words of a library's trace.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import sys
import traceback
from pathlib import Path
from typing import Protocol

from ingest.config import Pipeline
from ingest.config.regular_files import NOT_REGULAR
from ingest.errors import IngestError, command, fault_of
from ingest.store.envelope import SealError
from ingest.store.names import FEEDS, quoted

_FRAME = re.compile(
    r'^\s*File "[^"\n]*", line \d+, in .*', re.MULTILINE
)  # of a worker's trace, of which none is at fault
_WORD = re.compile(r"[^\s'\"(),;\[\]]+")
_QUOTED = re.compile(r"""(?<=['"])(?:file:)?/[^'"\n]+(?=['"])""")  # its words may have spaces between them
_FILES = (".parquet", ".json", ".crc", ".bin")
_CALLING = "An error occurred while calling"
_CAUSE = "Caused by: "

# Why a file could not be asked for: what is in it is not known.
_NO_ANSWER = re.compile(
    r"ConnectException|SocketTimeoutException|UnknownHostException|NoRouteToHostException"
    r"|[Cc]onnection (?:refused|reset|timed out)|Unable to execute HTTP request|error sending request"
)
_SILENT = "the store does not answer{at}: see whether it can be reached from here, then run again"

# What a caller meets whose connection to Java has ended with it, before the system says that the process has.
_HUNG_UP = (ConnectionError, EOFError)
_HUNG_UP_IN_PY4J = ("Py4JNetworkError", "Py4JError")
_OF_JAVA = ("py4j", "pyspark", "delta")  # packages that speak with Java
_MOMENT = 1.0  # seconds from the one to the other
_JAVA = (
    "Java, in which Spark runs, has ended {how}: see whether this machine was short of memory, then run again"
)

_LOG = "the table's log is damaged"
_FULL = "the disk is full{at}: free some space, then run again; what was half written is not counted"

# A pattern of the failure's text, its description, and whether the table's own files are at fault; the first match applies.
_KINDS = (
    (
        re.compile(r"No space left on device|ENOSPC|Disk quota exceeded|There is not enough space"),
        _FULL,
        False,
    ),
    (
        re.compile(r"Permission denied|AccessDeniedException|AccessControlException|Operation not permitted"),
        "access was refused{at}: let the user that runs ingest read and write there, then run again",
        False,
    ),
    (
        re.compile(
            r"DELTA_VIOLATE_CONSTRAINT\w*\] (?P<rule>CHECK constraint (?P<name>\S+) .*) violated by row"
        ),
        (
            "a row of this batch does not meet a {rule}, which somebody has set on the table: drop it by Spark, "
            "ALTER TABLE {table} DROP CONSTRAINT {name}, then run again"
        ),
        False,
    ),
    (
        re.compile("DELTA_CANNOT_MODIFY_APPEND_ONLY"),
        (
            "somebody has set delta.appendOnly on the table, which lets no row change or go: unset it by Spark, "
            "ALTER TABLE {table} UNSET TBLPROPERTIES (delta.appendOnly), then run again"
        ),
        False,
    ),
    (
        re.compile(
            r"Python worker (?:exited|failed)|reading the port number from pyspark|ExecutorLostFailure|Executor heartbeat timed out"
            r"|PythonWorkerFactory\.createWorker"  # one that is killed before it says its number; the text says EOFException
        ),
        "a process that worked for Spark has ended: see whether its machine was short of memory, then run again",
        False,
    ),
    (
        re.compile(
            rf"{NOT_REGULAR}|{os.strerror(errno.ELOOP)}|{os.strerror(errno.ENXIO)}|{os.strerror(errno.EISDIR)}"
        ),
        "a pipe, a device, a folder or a link is in the place of a file{at}",
        True,
    ),
    (
        re.compile(
            r"is not a Parquet file|Could not read footer|[Ee]xpected magic number|CANNOT_READ_FILE|FAILED_READ_FILE"
            r"|ParquetDecodingException|Corrupt(?:ed)? |can not read class org.apache.parquet|SNAPPY|ZstdIOException"
            r"|DELTA_DELETION_VECTOR_(?:CHECKSUM|SIZE)|DELTA_FILE_NOT_FOUND|FileNotFoundException|FAILED_TO_READ"
            r"|Parquet (?:magic bytes not found|file size is)|Couldn't deserialize thrift|decompression failed|decompression failure"
            r"|Failed to open local file|No magic bytes found|No files found that match"  # Arrow's and DuckDB's texts
            r"|too small to be a Parquet file|Footer length error in file|TProtocolException"
        ),
        "a data file is damaged or missing{at}",
        True,
    ),
    (
        re.compile(
            r"_delta_log|DELTA_(?:STATE_RECOVER|TRUNCATED|VERSIONS_NOT_CONTIGUOUS|INVALID_PROTOCOL|LOG)"
            r"|JsonEOFException|end-of-input"
        ),
        _LOG + "{at}",
        True,
    ),
)


class Folder(Protocol):
    """A lake's folder: the pipeline file that says where it is, and where in it a table is."""

    @property
    def pipeline(self) -> Pipeline: ...

    def path(self, name: str) -> str: ...


def fault(error: BaseException) -> str | None:
    """A failure of files as a sentence without its full stop; None for any other failure."""
    return _known(error)[0]


def is_full(error: BaseException) -> bool:
    """True if the system says that a disk, or a user's share of it, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _known(error: BaseException, table: str = "delta.`PATH`") -> tuple[str | None, bool]:
    """The sentence of `fault`, and whether the table's own files are at fault; SQL names the table as it is given."""
    text = _whole(error)
    if is_full(error):
        text = f"No space left on device\n{text}"
    if sealed := fault_of(text, SealError):
        return sealed.text.rstrip("."), False
    for pattern, sentence, is_damage in _KINDS:
        matches = [match for line in text.splitlines() if (match := pattern.search(line))]
        if matches:
            is_silent = is_damage and _NO_ANSWER.search(text) is not None
            path = _path(error, "\n".join(match.string for match in matches)) or _path(
                error, _FRAME.sub("", text)
            )
            if path.startswith(("file:", "/")):  # as a path for a shell
                path = "/" + path.removeprefix("file:").lstrip("/")
            shown = _SILENT if is_silent else sentence
            where = f" at {path}{_free(path) if sentence is _FULL else ''}" if path else ""
            return shown.format(at=where, table=table, **matches[0].groupdict()), is_damage and not is_silent
    return _java_ended(error), False


def _java_ended(error: BaseException) -> str | None:
    """The sentence of a failure while this process' Java has ended: all that asks it fails, each in its own words.

    A failure of code that has not asked Java has another cause, whatever has become of Java.
    """
    if "pyspark" not in sys.modules:
        return None
    from ingest.spark.session import how_java_ended

    causes = _causes(error)
    has_hung_up = any(
        isinstance(cause, _HUNG_UP) or type(cause).__name__ in _HUNG_UP_IN_PY4J for cause in causes
    )
    if not has_hung_up and not any(_has_asked_java(cause) for cause in causes):
        return None
    how = how_java_ended(_MOMENT if has_hung_up else 0)
    return _JAVA.format(how=how) if how else None


def _has_asked_java(error: BaseException) -> bool:
    """True if an error was raised within a package that speaks with Java."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_globals.get("__name__", "").partition(".")[0] in _OF_JAVA for frame, _ in frames)


def of_kafka(error: BaseException) -> str:
    """The last cause of a failed job of Spark's that Kafka has made fail; empty if it has not."""
    text = str(error)
    if "kafka" not in text:
        return ""
    lines = text.splitlines()
    causes = [line.removeprefix(_CAUSE) for line in lines if line.startswith(_CAUSE)]
    return (causes or lines)[-1]


def of_mirror(error: BaseException, lake: Folder, name: str, path: str, *, in_rebuild: bool = False) -> str:
    """What keeps a mirror, or its change feed, from being read or written, and the command to type.

    A rebuild replaces data files unread; a damaged log, as whatever else stops a rebuild, has to be moved away first.
    """
    file = lake.pipeline.file
    sentence, is_damage = _known(error, f"delta.{quoted(lake.path(path))}")
    if not is_damage:
        again = f", then `{command('retry', file)}`" if sentence else ""
        return f"{sentence or said(error)}{again}".replace(", then run again,", ",")
    text = said(error)
    if path.startswith(FEEDS):
        typed = command("retry", file)
        return f"{text}; move the folder {lake.path(path)} away, and `{typed}` begins the change feed again with all rows as inserts."
    is_in_place = not in_rebuild and "_delta_log" not in text and not text.startswith(_LOG)
    first = "" if is_in_place else f"move the folder {lake.path(path)} away, and "
    return f"{text}; {first}`{command('rebuild', file, name)}` makes the mirror again from its changes."


def damaged(error: BaseException) -> bool:
    """True if a table's own files are at fault, so that only a backup or a rebuild restores them."""
    return _known(error)[1]


def said(error: BaseException) -> str:
    """A failure in one line: its fault if known, else the library's message, without Java's stack frames."""
    if (sentence := fault(error)) is not None:
        return sentence
    lines = str(error).strip().splitlines() or [""]
    line_found = next((line for line in lines if not line.startswith(_CALLING)), lines[0]).removeprefix(": ")[
        :500
    ]
    return line_found if isinstance(error, IngestError) else f"{type(error).__name__}: {line_found}"


def _path(error: BaseException, text: str) -> str:
    """The first file that a text names, else the first path of another kind."""
    if isinstance(error, OSError) and error.filename:
        return str(error.filename)
    paths = _QUOTED.findall(text) + [word.rstrip(".:") for word in _WORD.findall(text) if "/" in word]
    named = [path for path in paths if path.endswith(_FILES)]
    return next(iter([*named, *(path for path in paths if path.startswith(("/", "file:")))]), "")


def _free(path: str) -> str:
    """How much space is left where a path of this machine is; an unwritten file's folder may be missing, too."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        place = next(
            place for place in (Path(path), *Path(path).parents) if place.is_absolute() and place.exists()
        )
        return f" ({shutil.disk_usage(place).free >> 20:,} MB free)"
    return ""


def _whole(error: BaseException) -> str:
    """The texts of a failure and its causes; an interrupted query names its cause only there."""
    texts: list[str] = []
    for cause in _causes(error):
        texts += [f"{type(cause).__name__}: {cause}", *getattr(cause, "__notes__", ())]
    return "\n".join(texts)[:200_000]


def _causes(error: BaseException) -> list[BaseException]:
    """A failure and what it followed."""
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    return causes
