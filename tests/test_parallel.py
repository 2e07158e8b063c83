"""The tests in two processes: each test once, and whatever fails, dies or was not run is reported."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import parallel
from tests.conftest import ROOT

PASS = "def test_a():\n    pass\n\ndef test_b():\n    pass\n"
FAIL = "def test_c():\n    assert 1 == 2\n"
DIE = "import os, time\n\ndef test_d():\n    time.sleep(1)\n    os._exit(9)\n"
SLEEP = "import time\n\ndef test_e():\n    time.sleep(60)\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the tests of a test are."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "pytest.ini").touch()
    return tmp_path


def run(
    folder: Path, arguments: list[str], capsys: pytest.CaptureFixture[str], **files: str
) -> tuple[int, str]:
    """The exit code and what is printed."""
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text, "utf-8")
    return parallel.main([*arguments, "-p", "no:cacheprovider"]), capsys.readouterr().out


def test_each_test_runs_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A test that neither process runs would pass for ever, and so would one that fails unseen."""
    code, text = run(folder, [], capsys, one=PASS, two=PASS, three=FAIL)
    last = text.splitlines()[-1]
    assert (1, True) == (code, " 1 failed, 4 passed in " in last), text
    assert 1 == text.count("FAILED test_three.py::test_c"), text
    assert [1, 1] == [text.count(f"test_{name}.py ..") for name in ("one", "two")]


def test_a_process_that_dies_is_a_failure(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A crash of the interpreter reports no failed test of its own."""
    code, text = run(folder, [], capsys, a=DIE, b=PASS, c=PASS)
    assert (3, True) == (code, "ended with 9 at test_a.py::test_d" in text), text
    assert " 4 passed, 1 files not run in " in text.splitlines()[-1]


def test_files_that_are_not_run_are_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A reader of the log must not believe that they passed."""
    code, text = run(folder, ["--minutes", "0"], capsys, a=PASS, b=FAIL)
    assert (0, True) == (code, "not run to its end: test_a.py\nnot run to its end: test_b.py" in text), text
    assert " no tests ran, 2 files not run in " in text.splitlines()[-1]


def ran(text: str) -> list[str]:
    """The tests in the order in which they ran."""
    return [line.partition(" ")[0] for line in text.splitlines() if line.endswith("PASSED")]


def test_a_seed_gives_an_order(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tests that pass only after others fail on another machine, where files are dealt otherwise."""
    many = "".join(f"def test_{n}():\n    pass\n\n" for n in range(8))
    words = ["--processes", "1", "-v", "-o", "console_output_style=classic"]
    texts = [
        run(folder, [*words, *order], capsys, a=many, b=many)[1]
        for order in ([], ["--order", "7"], ["--order", "7"], ["--order", "8"])
    ]
    usual, first, again, other = map(ran, texts)
    assert "order: the longest files first" == texts[0].splitlines()[0]
    assert "order: the random order of seed 7" == texts[1].splitlines()[0]
    assert usual == sorted(usual)
    assert first == again
    assert sorted(first) == sorted(other) == usual
    assert 3 == len({tuple(order) for order in (usual, first, other)})


WORK = """import time, pytest

def work():
    began = time.process_time()
    while time.process_time() - began < 0.3:
        pass

@pytest.fixture(scope="module")
def shared():
    work()

def test_f(shared):
    pass

def test_g():
    work()

@pytest.mark.costly("it counts to three")
def test_h():
    work()
"""


def test_a_costly_test_without_a_reason_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each session's tests make all of them a little slower, until nobody runs them before a commit."""
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = costly\n", "utf-8")
    (folder / "conftest.py").write_text("from tests import parallel\n\nparallel.COSTLY = 0.2\n", "utf-8")
    monkeypatch.setattr(parallel, "COSTLY", 0.2)
    code, text = run(folder, ["--processes", "1"], capsys, a=WORK)
    listed = text.partition("in processor time:\n")[2].splitlines()
    assert 0 == code
    assert {"test_a.py::test_g", "test_a.py::test_h", "the fixture shared of test_a.py"} == {
        line.partition(" s  ")[2] for line in listed[:3]
    }
    named = [line for line in listed if line.startswith("more than")]
    assert [True] == [line.endswith("with a reason: test_a.py::test_g") for line in named], text


ENDS_JAVA = """import subprocess, sys
from types import SimpleNamespace

def test_a():
    java = subprocess.Popen([sys.executable, "-c", "exit(3)"])
    java.wait()
    gateway = SimpleNamespace(proc=java)
    sys.modules["pyspark"] = SimpleNamespace(SparkContext=SimpleNamespace(_gateway=gateway))

def test_b():
    pass
"""


def test_the_test_during_which_java_ended_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that fail without it come later, some of them from other files."""
    code, text = run(folder, ["--processes", "1"], capsys, a=ENDS_JAVA)
    named = [line for line in text.splitlines() if line.startswith("Java ended")]
    assert (0, ["Java ended with exit code 3 during or before test_a.py::test_a"]) == (code, named)


def test_one_process_begins_with_the_files_that_need_spark() -> None:
    """Two sessions that get warm at the same time cost a minute more than one."""

    def item(file: str, *marks: str) -> Any:
        return SimpleNamespace(nodeid=f"{file}::test", get_closest_marker=lambda name: name in marks or None)

    items = [item("plain"), item("merges", "spark"), item("plain")]
    assert ["merges", "plain"] == list(parallel.grouped(items, number=0))
    assert ["plain", "merges"] == list(parallel.grouped(items, number=1))


@pytest.mark.slow
def test_a_test_without_an_end_is_interrupted(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One test that hangs would take the results of all others with it."""
    monkeypatch.setattr(parallel, "OVERTIME", 1)
    code, text = run(folder, ["--minutes", "0.4", "--processes", "1"], capsys, a=FAIL, b=SLEEP)
    assert (1, True) == (code, "interrupted, for the time was over: test_b.py::test_e" in text), text
    assert " 1 failed, 1 files not run in " in text.splitlines()[-1]
