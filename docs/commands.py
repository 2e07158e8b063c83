"""Write the reference of all verbs, docs/commands.md, from their own help: ``python -m docs.commands``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from ingest.cli.app import VERBS, app

PAGE = Path(__file__).parent / "commands.md"
_HEAD = """\
# Commands

Written by `python -m docs.commands` from the commands' own help. `--debug`, `--quiet` and `--jars-dir` (the folder
of the jars) may be anywhere. With `--output json` stdout holds nothing but JSON. Exit codes: 0 done, 1 finished, but
something failed or waits for the operator, 2 could not start.
"""
_USUAL = "How results are printed."  # the help of --output with most verbs, which take table or json


def page() -> str:
    """The whole page."""
    group: Any = typer.main.get_command(app)
    verbs = {name: group.get_command(typer.Context(group), name) for name in VERBS}
    rows = [f"| [`{name}`](#{name}) | {_help(verb)} |" for name, verb in verbs.items()]
    parts = [_HEAD, "| verb | does |\n|---|---|\n" + "\n".join(rows) + "\n"]
    return "\n".join([*parts, *(_section(name, verb) for name, verb in verbs.items())])


def _help(verb: Any) -> str:
    return " ".join((verb.help or "").split())


def _section(name: str, verb: Any) -> str:
    below = getattr(verb, "commands", {})
    shown = {f"{name} {inner}": one for inner, one in below.items() if not one.hidden}
    listing = next((one for one in below.values() if one.hidden), None)  # what the bare call does
    calls = ({name: listing} if listing else {}) | shown if below else {name: verb}
    lines = [f"## {name}", "", _help(verb), ""]
    for call, one in calls.items():
        lines += [f"`ingest {' '.join([call, *_arguments(one)])}`" + _own(verb, one), ""]
        if options := list(_options(one)):
            lines += ["| option | |", "|---|---|", *options, ""]
    return "\n".join(lines)


def _own(verb: Any, one: Any) -> str:
    return "" if one is verb else f": {_help(one)}"


def _arguments(verb: Any) -> Iterator[str]:
    for one in verb.params:
        if one.param_type_name == "argument":
            name = one.metavar or one.name.upper()
            yield name if one.required or name.startswith("[") else f"[{name}]"


def _options(verb: Any) -> Iterator[str]:
    for one in verb.params:
        if one.param_type_name != "option" or one.opts[0] == "--help":
            continue
        shown = " ".join((one.help or "").split())
        if shown and shown != _USUAL:
            names = ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))
            yield f"| {names} | {shown.replace('|', chr(92) + '|')} |"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
