"""The verb ``serve``: pages, a JSON API and metrics over several pipelines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ingest.cli import output
from ingest.cli.output import Output
from ingest.cli.spark import PipelineFiles
from ingest.errors import SetupError

app = typer.Typer()


@app.command(rich_help_panel="Look")
def serve(
    files: PipelineFiles,
    listen: Annotated[
        str, typer.Option(help="Where to listen, host:port; beyond this machine only with a token.")
    ] = "127.0.0.1:8765",
    token_file: Annotated[
        Path | None,
        typer.Option(help="A file with a token, or `name token` a line; INGEST_SERVE_TOKEN holds one, too."),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A further name under which browsers reach the service.")
    ] = None,
    no_run: Annotated[
        bool, typer.Option("--no-run", help="Only look: no schedules, and nothing can be decided.")
    ] = False,
    output_as: Output = "table",
) -> None:
    """Run pipelines on their schedules, and serve pages, a JSON API and metrics over them, until Ctrl-C."""
    try:
        import starlette  # noqa: F401 - the extra may be missing
        import uvicorn  # noqa: F401
    except ImportError:
        raise SetupError("`ingest serve` needs two more packages: pip install 'ingest[serve]'.") from None
    from ingest.ledgers.decisions import user
    from ingest.serve import guard, server
    from ingest.serve.app import Service
    from ingest.serve.background import JobRunner
    from ingest.serve.fleet import SOON, Fleet

    address = output.meant("--listen", listen, guard.Address.read)
    tokens = guard.tokens(token_file, user())
    if not address.is_loopback and not tokens:
        raise SetupError(
            f"--listen {listen} is reached from other machines: give a token with --token-file or {guard.TOKEN}."
        )
    made = guard.AccessGuard(address, user(), tokens, guard.names(allow_host or ()))

    def say(event: str, text: str) -> None:
        if output_as == "json":
            output.json_line({event: text})
            sys.stdout.flush()
        elif event == "listening":
            output.note(f"{text} shows them; stop with Ctrl-C")
        else:
            output.note(f"{event} {text}; Ctrl-C again ends it at once")

    fleet = Fleet(files, SOON)
    server.run(Service(fleet, made, None if no_run else JobRunner(fleet)), say)
