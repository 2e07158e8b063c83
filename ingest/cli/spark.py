"""Opening a lake for a verb: the pipeline file, a session, and a clean end."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ingest.cli import output
from ingest.errors import ConfigError, IngestError, StoreError, command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ingest.config import Pipeline, Source
    from ingest.spark.settings import Profile
    from ingest.tables.lake import Lake
    from ingest.tables.tables import Tables

Taken = TypeVar("Taken")
PipelineFile = Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline file.")]
PipelineFiles = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Pipeline files.")]
MirrorName = Annotated[str, typer.Argument(help="The mirror's name, as `ingest tables` prints it.")]
SourceName = Annotated[str, typer.Argument(help="The source's name.")]
COST = "What it costs the source"
OfSource = Annotated[str, typer.Option(help="The source, where several have a `database:`.")]
Parallel = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=64,
        rich_help_panel=COST,
        help="The most connections that read at once; else `connections:`.",
    ),
]
Reason = Annotated[str, typer.Option(help="Why, for the record.")]


@contextlib.contextmanager
def session_for(
    pipelines: list[Pipeline],
    profile: Profile = "tick",
    *,
    begun: Callable[[], None] | None = None,
    deferred: bool = False,
) -> Iterator[SparkSession]:
    """One session for all the pipelines, with the first one's settings, stopped afterwards if it was started here.

    With ``begun``, which is called once the session has started, or ``deferred`` it starts on this machine when it is first
    needed, or in a thread of its own once that is certain (`ingest.spark.deferred.begin`); without either it starts at once.
    """
    os.environ["TZ"] = "UTC"  # Spark hands instants to Python in the process' own zone
    time.tzset()
    from pyspark import SparkContext

    from ingest.spark.deferred import Deferred
    from ingest.spark.session import can_wait, refuse_other_folders, session, stop
    from ingest.store import lock

    warm = SparkContext._active_spark_context is not None
    first = pipelines[0]
    kafka = any(source.kind == "kafka" for pipeline in pipelines for source in pipeline.sources)

    def start() -> SparkSession:
        started = session(
            f"ingest {first.name}", master=first.master, conf=first.spark, kafka=kafka, profile=profile
        )
        lock.name_jvm()
        if not all(pipeline.is_stored for pipeline in pipelines):
            refuse_other_folders(started)
        if begun is not None:
            begun()
        return started

    session_later: Any = Deferred(start, first.master)
    waits = (deferred or begun is not None) and can_wait(first.master)
    waits = waits and not any(map(_needs_spark, pipelines))
    spark = session_later if waits else session_later.now()
    try:
        yield spark
    finally:
        session_later.settle()
        if not warm:
            stop(spark)


def _needs_spark(pipeline: Pipeline) -> bool:
    """True for a lake whose lock only Spark's client can hold."""
    from ingest.store import stores
    from ingest.tables import commits

    stores.remember_store(pipeline)
    return pipeline.is_stored and bool(commits.why_no_commits(pipeline.lake))


@contextlib.contextmanager
def looked_at(file: Path) -> Iterator[Tables]:
    """The lake of a pipeline file, for questions that need no Spark.

    Raises:
        IngestError: it does not exist yet, or belongs to another pipeline.
    """
    faults: dict[Path, IngestError] = {}
    with all_looked_at([file], faults) as lakes:
        refuse(faults)
        yield lakes[file]


@contextlib.contextmanager
def all_looked_at(files: list[Path], faults: dict[Path, IngestError]) -> Iterator[dict[Path, Tables]]:
    """The lakes of those pipeline files that can be looked at, maybe none; one that only Spark reaches starts it.

    ``faults`` gets what is wrong with the others.
    """
    from ingest.store import stores
    from ingest.tables.tables import LakeReader

    why: list[str] = []

    def look(file: Path) -> tuple[Path, Tables]:
        [pipeline] = _with_lakes([file], to_look=True)
        for text in pipeline.unresolved.values():
            output.warning(f"{text}; only a run needs it")
        reader = LakeReader(pipeline)
        if not stores.is_readable(pipeline.lake):
            why.append(f"{pipeline.lake} is not read otherwise.")
            return file, reader
        try:
            _refuse_other(reader)
        except StoreError as error:  # Spark may know more of the store than the environment says
            why.append(str(error))
        return file, reader

    lakes: dict[Path, Tables] = dict(each_taken(files, look, faults))
    if not why:
        yield lakes
        return
    output.note(f"{why[0]} Spark is asked, which takes a while to start.")
    with all_opened([*lakes], to_look=True) as opened_lakes:
        yield dict(zip(lakes, opened_lakes, strict=True))


def each_usable(
    files: list[Path], take: Callable[[Path], Taken], faults: dict[Path, IngestError]
) -> list[Taken]:
    """What ``take`` makes of each pipeline file, so that one fault hides no other file; ``faults`` gets those of the others.

    Raises:
        IngestError: it can take none of them; that of the first file, those of the others are warnings.
    """
    usable = each_taken(files, take, faults)
    if not usable:
        refuse(faults)
    return usable


def each_taken(
    files: list[Path], take: Callable[[Path], Taken], faults: dict[Path, IngestError]
) -> list[Taken]:
    """As `each_usable`, maybe none."""
    usable = []
    for file in files:
        try:
            usable.append(take(file))
        except IngestError as error:
            faults[file] = error
    return usable


def refuse(faults: dict[Path, IngestError]) -> None:
    """End with the first fault that was found, after all else that is to be said.

    Raises:
        IngestError: that fault; the others are warnings.
    """
    first, *others = faults.values() or (None,)
    for fault in others:
        output.warning(str(fault))
    if first is not None:
        raise first


def source_named(pipeline: Pipeline, name: str, kind: str = "") -> Source:
    """A pipeline's source of a name, and of a kind if one is given; a `ConfigError` if there is none."""
    from ingest.config.scalars import nearest

    sources = {source.name: source for source in pipeline.sources if kind in ("", source.kind)}
    if name not in sources:
        of = f"{kind.capitalize()} source" if kind else "source"
        raise ConfigError([f"{pipeline.file} has no {of} {name!r}{nearest(name, sources)}"])
    return sources[name]


def _with_lakes(files: list[Path], *, to_look: bool = False) -> list[Pipeline]:
    from ingest.config import load

    pipelines = [load(file, to_look=to_look) for file in files]
    for pipeline in pipelines:
        if not pipeline.is_stored and not Path(pipeline.lake).is_dir():
            raise _no_lake(pipeline)
    return pipelines


def _refuse_other(lake: Tables) -> None:
    """Refuse a lake that belongs to another pipeline, and a store that holds none."""
    from ingest.tables import identity

    if not identity.look(lake).table_id and lake.pipeline.is_stored:
        raise _no_lake(lake.pipeline)


def _no_lake(pipeline: Pipeline) -> IngestError:
    typed = command("run", pipeline.file)
    return IngestError(f"There is no lake at {pipeline.lake} yet: run `{typed}` first.", typed)


@contextlib.contextmanager
def opened(file: Path, *, deferred: bool = False, to_look: bool = False) -> Iterator[Lake]:
    """The lake of a pipeline file; an `IngestError` if it does not exist yet.

    ``deferred`` starts Spark when something first needs it: a decision is a row that Arrow writes. ``to_look`` is that
    of `ingest.config.load`.
    """
    with all_opened([file], deferred=deferred, to_look=to_look) as lakes:
        yield lakes[0]


@contextlib.contextmanager
def locked(
    file: Path, purpose: str, *, deferred: bool = False, repairs: bool = False, deletes: bool = False
) -> Iterator[Lake]:
    """As `opened`, with the lake's lock held for a purpose that others who wait for it are shown.

    Only what ``repairs`` its own tables begins where others have taken rows out of them: else `maintain` would delete the
    files from which they come back. What ``deletes`` rows for good excludes `maintain`, which writes files again.
    """
    with opened(file, deferred=deferred) as lake:
        from ingest.store import lock
        from ingest.tables import removals

        with lock.held(lake.pipeline.lake, purpose):
            if not repairs:
                removals.refuse(lake)
            with lock.rewriting(lake.pipeline.lake, purpose) if deletes else contextlib.nullcontext():
                yield lake


@contextlib.contextmanager
def all_opened(files: list[Path], *, deferred: bool = False, to_look: bool = False) -> Iterator[list[Lake]]:
    """The lakes of several pipeline files, in one session; an `IngestError` if one of them does not exist yet."""
    pipelines = _with_lakes(files, to_look=to_look)
    with session_for(pipelines, deferred=deferred) as spark:
        from ingest.tables import identity
        from ingest.tables.lake import Lake

        lakes = [Lake(spark, pipeline) for pipeline in pipelines]
        for lake in lakes:
            identity.look(lake)
        yield lakes
