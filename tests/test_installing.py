"""The first minutes of `make demo`: packages are installed, and whoever waits sees that something happens."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.timing import PATIENCE

MAKEFILE = Path(__file__).resolve().parent.parent / "Makefile"
PYTHON = """#!/bin/sh
case "$*" in
*"-m venv"*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
*--require-hashes*) cat "$(dirname "$0")/../../said"; exit "$(cat "$(dirname "$0")/../../code")" ;;
esac
"""
SAID = """Collecting small==1.0 (from -r requirements.lock (line 1))
  Downloading small-1.0-py3-none-any.whl (120 kB)
Collecting large==4.2.0 (from -r requirements.lock (line 2))
  Downloading large-4.2.0.tar.gz (434.1 MB)
  Preparing metadata (setup.py): finished with status 'done'
Building wheels for collected packages: large
  DEPRECATION: large is being installed using the legacy 'setup.py install' method
Installing collected packages: small, large
"""


def made(folder: Path, said: str, code: int) -> subprocess.CompletedProcess[str]:
    """What `make` shows while a pip that says this, and ends so, installs two packages."""
    shutil.copy(MAKEFILE, folder)
    (folder / "pyproject.toml").touch()
    (folder / "requirements.lock").write_text("small==1.0\nlarge==4.2.0\n", "utf-8")
    (folder / "said").write_text(said, "utf-8")
    (folder / "code").write_text(str(code), "utf-8")
    python = folder / "python"
    python.write_text(PYTHON, "utf-8")
    python.chmod(0o755)
    command = ["make", ".venv/.ready", f"PYTHON={python}"]
    alone = {
        name: value for name, value in os.environ.items() if not name.startswith("MAKE")
    }  # `make test` is no caller
    return subprocess.run(
        command, cwd=folder, env=alone, capture_output=True, text=True, check=False, timeout=PATIENCE
    )


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
def test_an_installation_says_how_far_it_is(tmp_path: Path) -> None:
    """Two minutes without a word look like a machine that hangs; pip's remark on a package's age helps nobody."""
    done = made(tmp_path, SAID, 0)
    assert 0 == done.returncode, done.stderr
    assert [
        "  Downloading large-4.2.0.tar.gz (434.1 MB)",
        "  building what is sent as source ...",
        "  unpacking ...",
    ] == done.stdout.splitlines()[1:4]
    assert "DEPRECATION" not in done.stdout + done.stderr


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
def test_an_installation_that_fails_says_why(tmp_path: Path) -> None:
    """A filter between pip and the terminal must hide neither its error nor its exit code."""
    done = made(tmp_path, SAID + "ERROR: Could not find a version that satisfies large==4.2.0\n", 1)
    assert 0 != done.returncode
    assert "ERROR: Could not find a version that satisfies large==4.2.0" in done.stdout
    assert not (tmp_path / ".venv" / ".ready").exists()
