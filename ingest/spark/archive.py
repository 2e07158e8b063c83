"""The class-data sharing archive (AppCDS): Spark's loaded classes on disk, which saves seconds at every start.

A training run writes it once, at its exit. It is valid for one Java, one garbage collector and one class path, which
are its name; without a matching archive Java starts more slowly, nothing else.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ingest.spark import cache
from ingest.spark.java import Java

_PRACTICE_SECONDS = 300


def options(file: Path) -> list[str]:
    """The Java options that use this archive, none if it does not exist or if others may have written it."""
    with suppress(OSError):
        return (
            [f"-XX:SharedArchiveFile={file}"] if file.is_file() and not cache.writable_by_others(file) else []
        )
    return []


def path(java: Java, class_path: Sequence[Path], flags: Sequence[str]) -> Path:
    """The archive's path, whether or not it exists."""
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

    Nothing depends on it, so a failure here is not an error.

    Raises:
        SetupError: the cache cannot be written.
    """
    partial = cache.writable("classes") / f"{file.name}.{os.getpid()}"
    command = [sys.executable, "-m", "ingest.practice", str(partial)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PRACTICE_SECONDS, check=False)
        if done.returncode == 0 and partial.is_file():
            partial.chmod(0o600)  # it holds code
            partial.replace(file)
            return True
    except (OSError, subprocess.TimeoutExpired):
        pass
    discard(partial)
    return False
