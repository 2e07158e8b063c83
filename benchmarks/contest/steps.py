"""What a contestant's process does: open a pass, take the files of each step, say where each step begins and ends.

The process that measures reads the marks from this one's standard output and answers each on its standard input, so
nothing of a step runs before it has looked at the clocks.  Whatever else is printed goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

Fold = Callable[[list[Path]], Any]
"""Takes the message files of one step into the tables; what it returns goes into the step's mark."""


@dataclass(frozen=True, slots=True)
class Script:
    """What to do, as the measuring process wrote it down."""

    passes: list[dict[str, Any]]  # folder, idle, steps: [[name, [files]]], own columns and options
    columns: dict[str, dict[str, str]]  # table -> column -> type
    options: dict[str, Any]
    forgiving: bool = False  # a step that fails is noted, and the next one begins


Opener = Callable[[Path, Script, bool], AbstractContextManager[Fold]]


def perform(opened: Opener) -> None:
    """Do what the script says that the command line names."""
    with open(sys.argv[1], encoding="utf-8") as file:
        script = Script(**json.load(file))
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for one in script.passes:
        own = replace(
            script,
            columns=one.get("columns", script.columns),
            options=script.options | one.get("options", {}),
        )
        with opened(Path(one["folder"]), own, one.get("idle", False)) as fold:
            for name, files in one["steps"]:
                with _marked(channel, name) as mark:
                    mark.update(_done(fold, [Path(file) for file in files], forgiving=script.forgiving))


def _done(fold: Fold, files: list[Path], *, forgiving: bool) -> dict[str, Any]:
    try:
        result = fold(files)
    except Exception as error:
        if not forgiving:
            raise
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    return {"result": result} if result is not None else {}


@contextmanager
def _marked(channel: Any, name: str) -> Iterator[dict[str, Any]]:
    mark: dict[str, Any] = {}
    _say(channel, {"begin": name})
    yield mark
    _say(channel, {"end": name, **mark})


def _say(channel: Any, mark: dict[str, Any]) -> None:
    channel.write(json.dumps(mark) + "\n")
    channel.flush()
    if not sys.stdin.readline():
        sys.exit("the measuring process is gone")
