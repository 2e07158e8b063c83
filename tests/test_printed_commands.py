"""Every command that a message names can be typed as it is: all arguments are there, and the verb takes them.

`ingest.errors.command` writes each of them; the calls are read from the code, with a word in place of what is only known
while it runs. A verb that a sentence only names, such as "as `ingest tables` prints it", is listed here.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from ingest.cli.app import app
from ingest.quality.catalogue import CHECKS, advice

ROOT = Path(__file__).resolve().parent.parent / "ingest"
_TEXT = re.compile(r"`ingest ([^`]*)`")
_VALUES = {"--from-batch": "1"}  # what an option wants that is not any text
_OF_THEIR_OWN = {"formats", "doctor", "jars fetch"}  # verbs that need no pipeline file
NAMED = {  # verbs that a sentence names, as a part of the product
    "cli/erase_verb.py": {"erase --verify", "maintain"},
    "cli/live_status.py": {"tables"},
    "cli/run_verbs.py": {"run"},
    "cli/serve_verb.py": {"serve"},
    "decoding/schema_folder.py": {"replay"},
    "erase/plan.py": {"erase"},
    "gold/fold/past_keys.py": {
        "epoch FILE {0} --from-batch BATCH --resnapshot {1} --complete"
    },  # of a load that is to come
    "gold/plan/policy.py": {"backfill", "reconcile"},  # kept in the lake, which may move
    "inspect/duck_query.py": {"sql"},
    "inspect/query.py": {"erase --now", "maintain", "sql"},
    "inspect/query_process.py": {"sql"},
    "ledgers/epochs.py": {"explain", "rejects"},
    "tables/query.py": {"tables FILE --output json"},
    "tables/schemas.py": {"erase", "rejects"},
    "ledgers/sealing.py": {"maintain"},
    "operate/starter.py": {"serve"},
    "serve/fleet.py": {"serve"},
    "serve/guard.py": {"serve"},
    "source/database.py": {"tables"},
    "source/range_search.py": {"snapshot"},
}
# texts of the reference, as of the vendors' pages: verbs, as parts of the product
OF_PAGES = {"config/schema.py", "config/entries.py", "config/model.py"}


def parsed(words: list[str]) -> None:
    """Parse a command line as the program does, and run nothing."""
    verb: Any = typer.main.get_command(app)
    context = typer.Context(verb)
    while hasattr(verb, "get_command") and words and words[0] in verb.list_commands(context):
        verb, words = verb.get_command(context, words[0]), words[1:]
    verb.make_context(words[0] if words else "", list(words))


def modules(word: str) -> Iterator[tuple[str, ast.Module]]:
    """The path and tree of each module that has the word; all others would take seconds."""
    for path in sorted(ROOT.rglob("*.py")):
        if word in (text := path.read_text("utf-8")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(text)


def calls() -> list[Any]:
    """The arguments of each call of `command`, with where it is."""
    found = []
    for path, tree in modules("command("):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "command":
                found.append(pytest.param(node.args, id=f"{path}:{node.lineno}"))
    return found


def lines(arguments: list[ast.expr]) -> list[list[str]]:
    """The command lines that a call may write: a part with a star may be empty or a word."""
    found: list[list[str]] = [[]]
    for one in arguments:
        before = found[0][-1] if found[0] else ""
        word = str(one.value) if isinstance(one, ast.Constant) else _VALUES.get(before, "word")
        longer = [[*words, word] for words in found]
        found = [*found, *longer] if isinstance(one, ast.Starred) else longer
    return found


@pytest.mark.parametrize("arguments", calls())
def test_a_command_of_the_code_has_all_its_arguments(arguments: list[ast.expr]) -> None:
    """An operator who types it at night is told that an option is missing, and that nothing was done."""
    if not isinstance(arguments[0], ast.Constant):
        return None  # the verb is another call's
    refused = []
    for words in lines(arguments):
        try:
            return parsed(words)
        except Exception as error:
            refused.append(f"{shlex.join(words)}: {error}")
    pytest.fail("; ".join(refused))


@pytest.mark.parametrize("check", CHECKS)
def test_the_advice_of_a_check_has_whole_commands(check: str) -> None:
    """`ingest backfill FILE --from-batch N` is not a command: whoever reads the page has to find out what N is."""
    for mirror in ("shop.orders", ""):
        text = advice(check, "/srv/my shop.yaml", mirror)
        assert not re.search(r"[{}]|\b(FILE|TABLE|SOURCE|N)\b", text), text
        for typed in _TEXT.findall(text):
            parsed(shlex.split(typed))
            assert "'/srv/my shop.yaml'" in typed


def test_no_command_is_printed_with_a_gap() -> None:
    """`--reason ...` is taken as it is typed, and the record of why a message was left out is three dots for ever."""
    printed = [*ROOT.rglob("*.py"), *ROOT.rglob("*.j2")]
    gaps = re.compile(r"--[a-z-]+[ =](\.\.\.|\u2026)|\"--[a-z-]+\", \"\.\.\.\"")
    assert [] == [str(path.relative_to(ROOT)) for path in printed if gaps.search(path.read_text("utf-8"))]


def _sentences(tree: ast.Module) -> Iterator[str]:
    """The texts of a module that are neither docstrings nor help."""
    left_out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            left_out.add(id(node.value))
        for keyword in getattr(node, "keywords", ()):
            if keyword.arg in ("help", "description"):
                left_out |= {id(part) for part in ast.walk(keyword.value)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            yield node.value


def test_a_sentence_has_its_commands_from_one_function() -> None:
    """A command that is part of a text lacks the pipeline file, or does not quote its path."""
    for path, tree in modules("`ingest "):
        if path in OF_PAGES or path.startswith("formats/"):
            continue
        named = {typed for text in _sentences(tree) for typed in _TEXT.findall(text)} - _OF_THEIR_OWN
        assert NAMED.get(path, set()) == named - {"validate {file}"}, path
