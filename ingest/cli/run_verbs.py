"""The main verb: ``run``, once or every so often, for one or several pipeline files in one session."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli import output
from ingest.cli.output import Output
from ingest.cli.spark import PipelineFiles, each_usable, session_for
from ingest.cli.stopping import StopRequest
from ingest.errors import ConfigError, IngestError, LockedError, unexpected
from ingest.result import STAGES
from ingest.spark.deferred import is_usable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ingest.config import Pipeline
    from ingest.operate.alerts import AlertSender
    from ingest.result import Result
    from ingest.run import Warm
    from ingest.spark.settings import Profile

app = typer.Typer()
_SHORTEST = 0.1  # seconds between two beginnings


@app.command(rich_help_panel="Run")
def run(
    files: PipelineFiles,
    stage: Annotated[
        str, typer.Option(help="Only these stages, by commas: bronze,silver,gold,quality.")
    ] = ",".join(STAGES),
    every: Annotated[
        str, typer.Option(help="Run again every so often (30s, 5m) until stopped, in one session.")
    ] = "",
    select: Annotated[str, typer.Option(help="Fold only mirrors that fit this pattern, e.g. 'shop.*'.")] = "",
    engine: Annotated[str, typer.Option(help="spark or auto, instead of the pipeline file's engine:.")] = "",
    output_as: Output = "table",
) -> None:
    """Land what is new, decode it, fold it into the mirrors, check them; of several files one that cannot be used stops no other."""
    from ingest.config.model import AUTO, SPARK
    from ingest.config.scalars import one_of
    from ingest.spark.deferred import begin
    from ingest.tables import identity

    stages = _stages(stage)
    pause = output.seconds("--every", every) if every else None
    if pause is not None and pause < _SHORTEST:
        raise ConfigError([f"--every: {every!r} leaves no pause; write at least 100ms"])
    if engine:
        output.meant("--engine", engine, lambda text: one_of(text, (SPARK, AUTO)))
    faults: dict[Path, IngestError] = {}
    pipelines = each_usable(files, lambda file: _loaded(file, engine), faults)
    for fault in faults.values():  # the others run
        output.error(str(fault))
    identity.refuse_shared(pipelines)
    _look_before(pipelines, patient=pause is not None)
    busy: list[Pipeline] = []
    if pause is None and (idle := _idle_all(pipelines, stages, busy)) is not None:
        _show(idle, output_as, repeated=False, several=len(files) > 1)
        _complain(idle, {})
        output.exit_with(max(bool(faults), *(result.exit_code for result in idle)))
        return
    stop = StopRequest()
    _listen(stop)
    profile: Profile = "tick" if pause is None else "batch"

    def listen() -> None:  # Spark's start has taken Ctrl-C for itself
        if threading.current_thread() is threading.main_thread():
            _listen(stop)

    with session_for(pipelines, profile, begun=listen) as spark:
        if any(pipeline.engine == SPARK for pipeline in busy):
            begin(spark)  # while what the stages need is imported
        several = len(files) > 1
        code = Ticks(spark, pipelines, stages, select, pause, stop, output_as, engine, several, faults).run()
    output.exit_with(code)


def _stages(text: str) -> list[str]:
    from ingest.config.scalars import nearest

    wanted = [stage.strip() for stage in text.split(",") if stage.strip()]
    for stage in wanted:
        if stage not in STAGES:
            raise ConfigError([f"there is no stage {stage!r}{nearest(stage, STAGES)}"])
    return wanted


def _loaded(file: Path, engine: str) -> Pipeline:
    """A pipeline file as it is now, with another engine if one was asked for."""
    from ingest.config import load

    pipeline = load(file)
    return replace(pipeline, engine=engine) if engine else pipeline


def _look_before(pipelines: list[Pipeline], *, patient: bool) -> None:
    """Find a lake in use, or one that cannot be written, before Spark is started for nothing."""
    from ingest.store import lock, stores

    for pipeline in pipelines:
        stores.remember_store(pipeline)
        try:
            lock.check(pipeline.lake)
        except LockedError:
            if not patient and len(pipelines) == 1:
                raise


def _idle_all(pipelines: list[Pipeline], stages: list[str], busy: list[Pipeline]) -> list[Result] | None:
    """The results of runs that find nothing to do; None if one of them needs Spark to know.

    ``busy`` gets a pipeline that certainly has something to do.
    """
    from ingest.inspect.idle import idle

    results = []
    for pipeline in pipelines:
        try:
            result = idle(pipeline, stages, partial(busy.append, pipeline))
        except Exception:  # the run itself meets it, too, and reports it as it always does
            return None
        if result is None:
            return None
        results.append(result)
    return results


def _listen(stop: StopRequest) -> None:
    """Ctrl-C and SIGTERM: the commit in flight is finished, then the run ends; Ctrl-C again ends it at once."""

    def ask(number: int, _frame: object) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not stop.is_set() and not output.is_quiet():
            with contextlib.suppress(OSError):  # a print here could meet another that is under way
                os.write(2, b"\nstopping after the commit under way; Ctrl-C again stops at once\n")
        stop.set()

    signal.signal(signal.SIGINT, ask)
    signal.signal(signal.SIGTERM, ask)
    sys.unraisablehook = _ask_again


def _ask_again(lost: sys.UnraisableHookArgs) -> None:
    """A second Ctrl-C that met the clearing up of an object, where Python drops it: send it once more."""
    if lost.exc_type is KeyboardInterrupt:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(lost)


def _alert_sender() -> AlertSender:
    from ingest.operate.alerts import AlertSender

    return AlertSender(output.warning)


@dataclass(slots=True)
class Ticks:
    """Runs of pipelines in one session: once, or every ``pause`` seconds until ``stop``."""

    spark: SparkSession
    pipelines: list[Pipeline]
    stages: list[str]
    select: str
    pause: float | None
    stop: StopRequest
    output_as: str
    engine: str = ""  # instead of the pipeline files'
    several: bool = False  # files were given
    unusable: dict[Path, IngestError] = field(
        default_factory=dict
    )  # what is wrong with files that were given
    code: int = 0
    any_ran: bool = False
    warm: dict[Path, Warm] = field(default_factory=dict)
    _alerts: AlertSender = field(default_factory=_alert_sender)
    _printed: dict[str, list[str]] = field(default_factory=dict)  # by pipeline

    def run(self) -> int:
        """Tick until it is over; gives the exit code."""
        again = False
        while True:
            started = time.monotonic()
            ran = [self._run_one(place, again=again) for place in range(len(self.pipelines))]
            results = [result for result in ran if result is not None]
            self.code = max([self.code, *(result.exit_code for result in results)])
            self.any_ran |= bool(results)
            if self.pause is None and any(result.stopped for result in results):
                self.code = max(self.code, 1)
            _show(results, self.output_as, repeated=self.pause is not None, several=self.several)
            _complain(results, self._printed)
            if self.pause is not None and not self.stop.is_set():
                self.stop.wait(max(0.0, self.pause - (time.monotonic() - started)))
            if self.pause is None or self.stop.is_set():
                code = max(self.code, int(bool(self.unusable)))
                return min(code, 1) if self.any_ran else code  # 2: nothing could start
            again = True
            self._take_in()

    def _take_in(self) -> None:
        """Read files again that could not be used: one that is corrected joins the others."""
        from ingest.tables import identity

        for file, said in [*self.unusable.items()]:
            try:
                pipeline = _loaded(file, self.engine)
                identity.refuse_shared([*self.pipelines, pipeline])
            except IngestError as error:
                if str(error) != str(said):
                    output.error(str(error))
                    self.unusable[file] = error
            else:
                del self.unusable[file]
                self.pipelines.append(pipeline)

    def _run_one(self, place: int, *, again: bool) -> Result | None:
        """A pipeline's run in this tick; None if it was not run, or met an error."""
        pipeline = self.pipelines[place]
        if self.stop.is_set():
            if self.pause is None:
                output.warning(f"{pipeline.name}: it was not run.")
                self.code = max(self.code, 1)
            return None
        try:
            if again and (current := _reread(pipeline, self.engine)) != pipeline:
                self.pipelines[place] = pipeline = current
                self._restart(pipeline)
            result = self.tick(pipeline)
            self._alerts.ran(self.spark, pipeline, result.batch)
        except Exception as error:  # what one pipeline meets must not end the others, nor the next tick
            self._meet(pipeline, error)
            return None
        if len(self.pipelines) > 1 and (self.pause is None or result.batch is not None):
            output.note(f"{_clock()} {pipeline.name}: {_verdict(result)}")
        return result

    def tick(self, pipeline: Pipeline) -> Result:
        """One pipeline once, with its progress shown."""
        from ingest import run as running
        from ingest.cli.progress import ProgressLine

        warm = self.warm.setdefault(pipeline.file, running.Warm())
        with ProgressLine(self.spark, pipeline.name) as progress:
            return running.run(
                self.spark,
                pipeline,
                self.stages,
                warm,
                progress.tell,
                select=self.select,
                stop=self.stop.is_set,
            )

    def _restart(self, pipeline: Pipeline) -> None:
        if pipeline.file in self.warm:
            self.warm[pipeline.file] = self.warm[pipeline.file].restarted()

    def _meet(self, pipeline: Pipeline, error: Exception) -> None:
        """Print what ended one pipeline's run; raise it if nothing further can be run."""
        if self.stop.is_set() and not is_usable(self.spark):
            output.error(
                f"{pipeline.name}: Java was stopped, too, before the step in flight was done: run again."
            )
            raise typer.Exit(1) from None
        self._alerts.stopped(self.spark, pipeline, error)
        if (self.pause is None and len(self.pipelines) == 1) or not is_usable(self.spark):
            raise error
        self._restart(pipeline)
        self.code = max(self.code, _failed(pipeline, error, patient=self.pause is not None))


def _reread(pipeline: Pipeline, engine: str = "") -> Pipeline:
    """The pipeline file as it is now; an unusable one ends the tick, not the loop.

    Raises:
        IngestError: the file has faults, or a setting that only a new process can take changed.
    """
    current = _loaded(pipeline.file, engine)
    for name, was, now in (
        ("pipeline:", pipeline.name, current.name),
        ("lake:", pipeline.lake, current.lake),
        ("master:", pipeline.master, current.master),
        ("spark:", pipeline.spark, current.spark),
    ):
        if was != now:
            raise ConfigError([f"{pipeline.file}: {name} was changed: stop `ingest run` and start it again"])
    return current


def _failed(pipeline: Pipeline, error: Exception, *, patient: bool) -> int:
    """Print what ended one pipeline's run; between ticks a lake in use is passed over, not an error."""
    if isinstance(error, LockedError) and patient:
        output.warning(f"{pipeline.name}: {error}")
        return 0
    if isinstance(error, IngestError):
        output.error(f"{pipeline.name}: {error}")
        return error.exit_code
    output.error(f"{pipeline.name}: {unexpected(error)}")
    return 2


def _show(results: list[Result], output_as: str, *, repeated: bool, several: bool) -> None:
    """Print the results, of several files as a list; of repeated runs, each on a line of JSON, or those that read something."""
    if output_as == "json" and repeated:
        for result in results:
            output.json_line(describe(result))
    elif output_as == "json":
        documents = [describe(result) for result in results]
        output.json(documents if several or not documents else documents[0])
    elif results and not (repeated and all(result.batch is None for result in results)):
        from ingest.spark.jobs import said

        columns = "pipeline batch read changes DDL rejects mirrors checks seconds result".split()
        rows = [_closing_row(result) for result in results]
        if repeated:
            columns, rows = ["time", *columns], [(_clock(), *row) for row in rows]
        output.table(columns, rows)
        for result in results:
            if result.ran:
                output.line(f"{result.pipeline}: {said(result.ran)}")
        if files := [result.file for result in results if result.file]:
            output.follow("status", files[0])


def _complain(results: list[Result], printed: dict[str, list[str]]) -> None:
    """Print warnings and failures, if they are not those of the run before, by pipeline in ``printed``."""
    for result in results:
        texts = [*result.warnings, *result.failures]
        if printed.get(result.pipeline) == texts:
            continue
        printed[result.pipeline] = texts
        for text in result.warnings:
            output.warning(f"{result.pipeline}: {text}")
        for text in result.failures:
            output.error(f"{result.pipeline}: {text}")


def _closing_row(result: Result) -> tuple[object, ...]:
    checks = ", ".join(f"{count} {state}" for state, count in sorted(result.checks.items()))
    batch = "-" if result.batch is None else result.batch
    return (
        result.pipeline, batch, result.read, result.changes, result.ddl, result.rejected + result.unfit,
        result.touched, checks or "-", f"{result.seconds:.1f}", _verdict(result),
    )  # fmt: skip


def _verdict(result: Result) -> str:
    if result.failures:
        return "failed"
    return "stopped" if result.stopped else "nothing new" if result.batch is None else "done"


def _clock() -> str:
    return time.strftime("%H:%M:%S")


def end(result: Result | None) -> None:
    """Print the failures of a run that another verb has started, and exit with its code."""
    if result is not None:
        for text in result.failures:
            output.error(text)
        output.exit_with(result.exit_code)


def describe(result: Result) -> dict[str, Any]:
    """A run's result as the JSON that scripts read."""
    return {
        "pipeline": result.pipeline,
        "run": result.run,
        "batch": result.batch,
        "state": "failed" if result.failures else "stopped" if result.stopped else "done",
        "read": result.read,
        "changes": result.changes,
        "ddl": result.ddl,
        "control": result.control,
        "routed_out": result.routed_out,
        "rejected": result.rejected,
        "mirrors": [
            {
                "table": mirror.mirror,
                "state": mirror.state,
                "version": mirror.version,
                "seconds": round(mirror.seconds, 3),
                "counts": mirror.counts,
                "why_merge": mirror.why_merge,
                "why_folded_again": mirror.why_folded,
                "message": mirror.message,
            }
            for mirror in result.mirrors
        ],
        "checks": result.checks,
        "stages": {stage: round(seconds, 3) for stage, seconds in result.stages.items()},
        "ran": {stage: place.document() for stage, place in result.ran.items()},
        "warnings": result.warnings,
        "failures": result.failures,
        "complete_until": result.complete_until and f"{result.complete_until.isoformat()}Z",
    }
