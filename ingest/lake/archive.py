"""The class-data archive: Spark's loaded classes on disk, which takes seconds off every start.

A training run writes it once, at its exit. It fits one Java, one garbage collector and one class path, which
are its name; anything else, or no archive, is a slower start and nothing more.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ingest.lake import cache
from ingest.lake.java import Java

_PRACTICE_SECONDS = 300


def options(file: Path) -> list[str]:
    """The Java options that use this archive, none if it does not exist."""
    return [f"-XX:SharedArchiveFile={file}"] if file.is_file() else []


def path(java: Java, class_path: Sequence[Path], flags: Sequence[str]) -> Path:
    """Where the archive for these lies, or would lie."""
    import pyspark

    parts = [
        str(java.home),
        java.version,
        pyspark.__file__,
        pyspark.__version__,
        *map(str, class_path),
        *flags,
    ]
    name = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return cache.folder() / "classes" / f"{name}.jsa"


def discard(file: Path) -> bool:
    """Delete an archive with which Java did not start; False if there was none."""
    with suppress(OSError):
        file.unlink()
        return True
    return False


def build(file: Path) -> bool:
    """Write the archive by a training run in a process of its own; False if this Java cannot.

    Nothing depends on it, so whatever goes wrong here is no error.

    Raises:
        SetupError: the cache cannot be written.
    """
    partial = cache.writable("classes") / f"{file.name}.{os.getpid()}"
    command = [sys.executable, "-m", "ingest.practice", str(partial)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PRACTICE_SECONDS, check=False)
        if done.returncode == 0 and partial.is_file():
            partial.replace(file)
            return True
    except (OSError, subprocess.TimeoutExpired):
        pass
    discard(partial)
    return False
