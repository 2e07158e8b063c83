"""The command itself: which module holds which verb, what every verb shares, and the exit codes.

0 is done, 1 is finished with failures, 2 is could not start; `wait` has 3 for not yet.  A module of verbs holds a `typer.Typer`
named ``app`` with its verbs as commands, and imports nothing heavy at its top: help imports them all.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import signal
import sys
import threading
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ingest.cli import output
from ingest.errors import IngestError, first_line

VERBS = {
    "init": "pipeline_verbs",
    "validate": "pipeline_verbs",
    "schema": "pipeline_verbs",
    "plan": "plan_verb",
    "run": "run_verbs",
    "snapshot": "snapshot_verb",
    "reconcile": "reconcile_verb",
    "tables": "look_verbs",
    "status": "problem_verbs",
    "wait": "look_verbs",
    "alerts": "problem_verbs",
    "serve": "serve_verb",
    "sql": "look_verbs",
    "explain": "look_verbs",
    "ddl": "ddl_verbs",
    "rejects": "reject_verbs",
    "replay": "reject_verbs",
    "retry": "repair_verbs",
    "rebuild": "repair_verbs",
    "backfill": "repair_verbs",
    "pause": "repair_verbs",
    "resume": "repair_verbs",
    "drop": "repair_verbs",
    "catalog": "catalog_verb",
    "epoch": "epoch_verb",
    "maintain": "maintain_verb",
    "erase": "erase_verb",
    "quality": "quality_verbs",
    "report": "quality_verbs",
    "accept-gap": "repair_verbs",
    "decode": "message_verbs",
    "detect": "message_verbs",
    "formats": "message_verbs",
    "infer": "infer_verb",
    "doctor": "setup",
    "jars": "setup",
}
"""Every verb with its module under ``ingest.cli``, in the order in which help lists them."""

UNCOLLECTED = 50_000
"""New objects between two searches for cycles; with Python's 700, a tenth of a short verb's time is spent on them."""
GRACE_SECONDS = 10.0
"""After SIGTERM, until a process ends by force: less than what supervisors give before SIGKILL."""
EVERYWHERE = ("--debug", "--quiet", "--jars-dir")  # accepted before and after the verb


class Verbs(TyperGroup):
    """The group of all verbs, each imported when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the library's signature
        """The verbs in the order of help."""
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The verb of that name, or None."""
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"ingest.cli.{VERBS[cmd_name]}")
        return typer.main.get_group(module.app).get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As always, but an unknown verb is answered with the nearest one."""
        if args[0] not in VERBS:
            from ingest.config.scalars import nearest

            ctx.fail(f"there is no verb {args[0]!r}{nearest(args[0], VERBS)}")
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the options that hold for every verb before the verb, wherever they are written."""
        end = args.index("--") if "--" in args else len(args)
        words: list[str] = []
        rest: list[str] = []
        given = iter(args[:end])
        for arg in given:
            (words if arg.partition("=")[0] in EVERYWHERE else rest).append(arg)
            if arg == "--jars-dir":
                words += islice(given, 1)  # its value
        return super().parse_args(ctx, words + rest + args[end:])

    def invoke(self, ctx: Any) -> Any:
        """Run a verb; a failure becomes one sentence and an exit code."""
        try:
            return super().invoke(ctx)
        except IngestError as error:
            output.error(str(error))
            raise typer.Exit(error.exit_code) from None
        except Exception as error:
            # exits, wrong usage and a closed pipe are the command-line library's own
            ours = type(error).__module__.split(".")[0] in ("typer", "click")
            if ours or isinstance(error, BrokenPipeError | EOFError) or ctx.params.get("debug"):
                raise
            output.error(_unexpected(error))
            raise typer.Exit(2) from None


def _unexpected(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "there is not enough memory: give the command more, or the batch less"
    from ingest.store.faults import fault

    if (sentence := fault(error)) is not None:
        return f"{sentence}."
    text = first_line(error)
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"something unexpected went wrong ({what}); add --debug for the traceback"


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError
        from importlib.metadata import version as installed

        from ingest.spark.jars import DELTA, SPARK

        try:
            output.line(f"ingest {installed('ingest')}")
        except PackageNotFoundError:
            output.line("ingest, not installed as a package")
        output.line(f"tested with Spark {SPARK} and Delta Lake {DELTA}")
        raise typer.Exit


app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=False)
def everywhere(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an unexpected failure.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print results and errors only.")] = False,
    jars_dir: Annotated[
        Path | None,
        typer.Option(envvar="INGEST_JARS_DIR", help="The folder of the jars, instead of the cache."),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Land change messages of many database replication products in exact Delta mirrors."""
    output.be_quiet(quiet)
    if jars_dir is not None:
        os.environ["INGEST_JARS_DIR"] = str(jars_dir)


def main() -> None:
    """The console script."""
    if sys.stdout is None or sys.stderr is None:  # started with a closed descriptor
        os._exit(2)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "true")  # a search through all installed packages
    gc.set_threshold(UNCOLLECTED)
    signal.signal(signal.SIGTERM, _end)  # verbs that finish something first have a handler of their own
    try:
        app(prog_name="ingest")
    except SystemExit as ending:
        with contextlib.suppress(OSError, ValueError):  # a closed pipe is reported as always
            _leave(ending.code)
        gc.freeze()  # else the interpreter's end looks for cycles in all that was imported: half a second
        raise


def _end(number: int, _frame: object) -> None:
    """End on SIGTERM as on an error, so that temporary folders, which may hold keys of rows, go with the process.

    A thread that waits for a database would hold it for minutes, and an exception within a destructor is lost: so it ends by
    force after `GRACE_SECONDS`.
    """
    signal.signal(number, signal.SIG_DFL)  # a second one ends it at once
    force = threading.Timer(GRACE_SECONDS, os._exit, (128 + number,))
    force.daemon = True
    force.start()
    raise SystemExit(128 + number)


def _leave(code: object) -> None:
    """End the process at once, where nothing but memory is left to give back: that takes a tenth of a short verb's time."""
    if not isinstance(code, int) or threading.active_count() > 1 or "pyspark" in sys.modules:
        return
    sys.stdout.flush()
    sys.stderr.flush()
    atexit._run_exitfuncs()
    sys.stdout.flush()  # what these have printed
    sys.stderr.flush()
    os._exit(code)
