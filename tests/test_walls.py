"""The walls between the layers: which module may import which, and who may spell a format's name."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.timing import PATIENCE

ROOT = Path(__file__).parent.parent
FORMATS = ROOT / "ingest" / "formats"
HEAVY = ("pyspark", "delta", "pyarrow", "great_expectations")


@pytest.fixture(scope="module")
def sources():
    """Every module of the product as Python reads it, by its path."""
    files = (ROOT / "ingest").rglob("*.py")
    return {str(file.relative_to(ROOT)): ast.parse(file.read_text()) for file in files}


def lint(root: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter with this project's contracts over a tree."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as main; main()"]
    command += ["--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(root), "NO_COLOR": "1"}
    return subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE
    )


def test_layers():
    """An import upwards or between stages makes the next change touch everything."""
    done = lint(ROOT)
    assert 0 == done.returncode, done.stdout + done.stderr


def bare(folder):
    """The product's modules without what is in them."""
    package = folder / "ingest"
    package.mkdir()
    for real in (ROOT / "ingest").glob("*.py"):
        (package / real.name).touch()
    for real in (ROOT / "ingest").glob("*/**/__init__.py"):
        empty = package / real.relative_to(ROOT / "ingest")
        empty.parent.mkdir(parents=True)
        empty.touch()
    return package


def test_modules_that_import_nothing_keep_the_contracts(tmp_path):
    """What the next test finds would be found without its line."""
    bare(tmp_path)
    assert 0 == lint(tmp_path).returncode


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("change", "from ingest import types"),
        ("fold", "def late():\n    import pyspark"),
        ("config", "def late():\n    from pyarrow import Table"),
        ("silver", "from ingest import gold"),
        ("ledgers", "from ingest import cli"),
        ("tables", "from ingest import ledgers"),
        ("store", "from ingest import tables"),
        ("ledgers", "def late():\n    import pyspark"),
        ("gold/plan", "from ingest.gold import fold"),
        ("gold/fold", "from ingest.gold import apply"),
        ("gold/fold", "def late():\n    import pyspark"),
        ("inspect", "def late():\n    import pyspark"),
        ("inspect", "from ingest import run"),
        ("unplaced", ""),
    ],
)
def test_contracts_bite(tmp_path, module, line):
    """A contract that lets everything pass looks just like one that is kept."""
    package = bare(tmp_path)
    folder = package / module
    file = folder / "__init__.py" if folder.is_dir() else package / f"{module}.py"
    file.write_text(f"{line}\n")
    assert 1 == lint(tmp_path).returncode


def test_decoding_loads_nothing_heavy():
    """A plug-in loaded by name passes import-linter and would still cost seconds and Java."""
    code = (
        "import importlib, pkgutil, sys, ingest.config, ingest.formats as formats\n"
        "for found in pkgutil.iter_modules(formats.__path__):\n"
        "    importlib.import_module(f'ingest.formats.{found.name}')\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert ("[]\n", "") == (done.stdout, done.stderr)


def test_only_a_format_spells_its_name(sources):
    """A second place that knows a format is a second place to forget when one is added."""
    names = {file.stem for file in FORMATS.glob("[a-z]*.py")}
    names |= {name.replace("_", "-") for name in names}
    others = {file: tree for file, tree in sources.items() if FORMATS not in (ROOT / file).parents}
    assert len(others) > 10
    found = [
        f"{file}:{node.lineno} {node.value}"
        for file, tree in others.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names
    ]
    assert [] == found


_READS = {
    "startswith",
    "endswith",
    "partition",
    "rpartition",
    "split",
    "splitlines",
    "removeprefix",
    "removesuffix",
    "find",
    "index",
}
_MATCHES = {"search", "match", "fullmatch", "findall", "finditer", "sub", "split"}
_SENTENCES = {
    "text",
    "detail",
    "message",
    "sentence",
    "why",
    "held",
    "failed",
    "refused",
    "alarm",
    "fault",
    "note",
    "problem",
}
_READERS = {
    "ingest/errors.py": "has the one record that comes back from a worker as text",
    "ingest/store/faults.py": "has the one table of what libraries' traces mean",
    "ingest/store/object_store.py": "knows its own client's answers, which have no fields",
    "ingest/decoding/documents.py": "reads the place that its decoder names, which has no field",
    "ingest/ledgers/conditions.py": "hides a column's number from what DuckDB says",
    "ingest/inspect/duck_query.py": "shows what DuckDB says without its own names",
    "ingest/operate/spark_query.py": "shows what Spark says without its own names",
    "ingest/config/masks.py": "hides values in texts that may quote them",
    "ingest/ddl/structure.py": "reads a change's note, which has fixed parts",
    "ingest/quality/catalogue.py": "has the words with which a fault that stays begins, and takes them off again",
    "ingest/quality/lasting.py": "finds the words that it has written into `checks` itself",
    "ingest/serve/pages.py": "shows the same words once",
}  # fmt: skip


def test_no_module_reads_another_ones_sentence(sources):
    """A sentence that is improved would change what the program does, and no type would say so."""
    found = {
        f"{file}:{node.lineno} {ast.unparse(node)[:100]}"
        for file, tree in sources.items()
        if file not in _READERS
        for node in _sentences_read(tree)
    }
    assert set() == found


@pytest.mark.parametrize(
    "line",
    [
        "if 'no such table' in str(error): pass",
        "reason = str(error).splitlines()[0]",
        "line = first_line(error).partition(': ')[2]",
        "typed = str(error).partition('`')[2].partition('`')[0]",
        "found = re.search('batch ([0-9]+)', str(error))",
        "told = any(alarm.startswith(name) for alarm in alarms)",
        "known = problem.text.startswith(mirror.name)",
        "held = FAILED in commit.held",
        "command = one.epoch().detail.removesuffix('`')",
    ],
)
def test_a_sentence_that_is_read_is_seen(line):
    """The search above must find what was there once."""
    tree = ast.parse(line)
    assert [] != _sentences_read(tree)


@pytest.mark.parametrize(
    "line", ["words = path.split('/')", "text = ' '.join(statement.text.split())", "x = str(error)"]
)
def test_other_texts_may_be_read(line):
    """A search that finds everything ends as a list of exceptions."""
    tree = ast.parse(line)
    assert [] == _sentences_read(tree)


def _sentences_read(tree: ast.AST) -> list[ast.expr]:
    """Where a module searches a text made for people, or takes it apart."""
    errors = _errors_of(tree)
    return [node for node in ast.walk(tree) if isinstance(node, ast.expr) and _reads_a_sentence(node, errors)]


def _errors_of(tree: ast.AST) -> set[str]:
    """The names that errors have in a module."""
    names = {"error"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
        if (
            isinstance(node, ast.arg)
            and node.annotation
            and ast.unparse(node.annotation).endswith(("Error", "Exception"))
        ):
            names.add(node.arg)
    return names


def _reads_a_sentence(node: ast.expr, errors: set[str]) -> bool:
    """Whether a text made for people is searched or taken apart here."""
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        return _is_a_sentence(node.comparators[0], errors)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    # without an argument `split` changes only the white space, and `partition` is Kafka's
    reads = node.func.attr in _READS and (node.args or node.func.attr == "splitlines")
    if reads and _is_a_sentence(node.func.value, errors):
        return True
    return node.func.attr in _MATCHES and any(_is_a_sentence(given, errors) for given in node.args)


def _is_a_sentence(node: ast.AST, errors: set[str]) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="str" | "repr" | "first_line"), args=[ast.Name(id=name)]):
            return name in errors
        case ast.Call(func=ast.Attribute(value=value)) | ast.Subscript(value=value):
            return _is_a_sentence(value, errors)
        case ast.Attribute(attr=name):
            return name in _SENTENCES
        case ast.Name(id=name):
            return name in ("alarm", "detail", "message", "sentence")
    return False


def test_nothing_loads_code_from_data(sources):
    """Messages come from strangers: a pickle or an eval among the parsers would run what they say."""
    banned = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
    found = [
        f"{file}:{getattr(node, 'lineno', 0)}"
        for file, tree in sources.items()
        for node in ast.walk(tree)
        if _imports(node) & banned or _calls(node) in {"eval", "exec"}
    ]
    assert [] == found


def _imports(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.split(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom) and node.module:
        return {node.module.split(".")[0]}
    return set()


def _calls(node: ast.AST) -> str:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def test_a_public_class_has_a_name_of_its_own(sources):
    """Two classes of one name make every search, import and traceback ambiguous."""
    found: dict[str, list[str]] = {}
    for file, tree in sources.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(file)
    assert {} == {name: files for name, files in found.items() if len(files) > 1}


def test_queries_start_spark_before_they_are_written(sources):
    """Spark starts when it is first asked for, and its functions make no column before: ``F.col`` would fail in the
    first batch that needs it, which no test with a running session sees.
    """
    starts = (
        "lake.read(",
        ".spark.",
        "(lake.spark",
        "still_open(lake)",
        "_frame(",
        "_of(lake",
        "kafka.frame(",
        "runner.frame(",
    )
    given = ("DataFrame", "Gathered", "SparkSession")
    late = []
    for file, tree in sources.items():
        lines = (ROOT / file).read_text().splitlines()
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef) or "lake" not in {one.arg for one in node.args.args}:
                continue
            names = (one for one in ast.walk(node) if isinstance(one, ast.Name))
            first = min((one.lineno for one in names if one.id in ("F", "Window")), default=0)
            before = "\n".join(lines[node.lineno : first])
            if first and not any(one in ast.unparse(node.args) for one in given):
                late += [] if any(one in before for one in starts) else [f"{file}:{first}"]
    assert [] == late


def test_numbers_agree_with_their_nouns(sources):
    """`1 rows` looks as if nobody had ever read it; `ingest.errors.counted` writes a number and its noun."""
    written = {(path, noun) for path, tree in sources.items() for noun in _nouns_of_numbers(tree)}
    assert set() == written - _ALWAYS_SEVERAL
    assert set() == _ALWAYS_SEVERAL - written, "exceptions that nothing needs any more"


_NOUNS = "rows|changes|messages|bytes|keys|mirrors|files|batches|statements|values|cells|columns|tables|checks|problems|offsets|ranges|chunks|partitions|topics"
_PLURAL = re.compile(rf" (?:(?:of its|landed|more|older|other|sampled) )?({_NOUNS})\b(?! no |/)")
_ALWAYS_SEVERAL = {
    ("ingest/cli/plan_verb.py", "messages"),  # the most that a sample has
    ("ingest/config/schema.py", "columns"),  # too many
    ("ingest/config/regular_files.py", "bytes"),
    ("ingest/gold/fold/past_keys.py", "rows"),  # with the same key
    ("ingest/gold/apply/planner.py", "bytes"),  # too many
    ("ingest/inspect/duck_query.py", "cells"),  # the most of an answer
    ("ingest/ledgers/targets.py", "rows"),  # after a place in the pipeline file
    ("ingest/operate/dry_run.py", "tables"),  # if there are others
    ("ingest/quality/counts.py", "partitions"),  # from two on
    ("ingest/quality/order_checks.py", "topics"),
    ("ingest/quality/report.py", "tables"),
    ("ingest/silver/lift.py", "bytes"),  # too many
    ("ingest/values/numbers_and_bytes.py", "bytes"),
}


def _nouns_of_numbers(tree: ast.AST) -> Iterator[str]:
    """The plural nouns in a module's texts that stand behind a value which is not that of ``counted``."""
    for node in ast.walk(tree):
        for value, text in pairwise(node.values) if isinstance(node, ast.JoinedStr) else ():
            if isinstance(value, ast.FormattedValue) and isinstance(text, ast.Constant):
                noun = _PLURAL.match(text.value)
                is_limit = isinstance(value.value, ast.Name) and value.value.id.isupper()
                if noun and not is_limit and _calls(value.value) != "counted":
                    yield noun[1]
