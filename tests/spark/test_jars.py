"""The pinned jars, with a stand-in for Ivy: no network is needed."""

from __future__ import annotations

import hashlib
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ingest.errors import SetupError
from ingest.spark import jars
from ingest.spark.jars import Jar

PINNED = jars.PINNED
CONTENT = b"not really a jar"
GOOD = Jar("delta", "a.group", "thing", "1.0", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
OTHER = Jar("kafka", "a.group", "other", "2.0", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture(autouse=True)
def two_jars(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two small jars instead of the real ones, in a cache of their own."""
    monkeypatch.setattr(jars, "PINNED", (GOOD, OTHER))
    monkeypatch.setenv("INGEST_CACHE", str(tmp_path))
    monkeypatch.delenv("INGEST_JARS_DIR", raising=False)
    monkeypatch.delenv("INGEST_IVY_SETTINGS", raising=False)


def answering(monkeypatch: pytest.MonkeyPatch, content: bytes | None) -> list[str]:
    """Let the repository answer with these bytes, or not at all; the list holds what was asked for."""
    asked: list[str] = []

    def ivy(jar: Jar, work: Path, settings: str) -> str:
        asked.append(f"{jar.file} {settings}".strip())
        if content is not None:
            (work / jar.file).write_bytes(content)
        return ""

    monkeypatch.setattr(jars, "_ivy", ivy)
    return asked


def test_fetch_then_require(monkeypatch, tmp_path):
    """What was fetched must be what a session then finds."""
    answering(monkeypatch, CONTENT)
    assert [tmp_path / "jars" / "thing-1.0.jar", tmp_path / "jars" / "other-2.0.jar"] == jars.fetch()
    assert [tmp_path / "jars" / "thing-1.0.jar"] == jars.require("delta")
    assert ["other-2.0.jar", "thing-1.0.jar"] == sorted(path.name for path in (tmp_path / "jars").iterdir())


def test_present_jars_are_not_fetched_again(monkeypatch):
    """Every start of `make demo` would need the network."""
    answering(monkeypatch, CONTENT)
    jars.fetch()
    asked = answering(monkeypatch, None)
    jars.fetch()
    assert [] == asked


def test_damaged_jar_is_fetched_again(monkeypatch, tmp_path):
    """A jar cut off by a full disk would stay for ever, as `jars fetch` is what the message advises."""
    answering(monkeypatch, CONTENT)
    found = jars.fetch()[0]
    found.write_bytes(CONTENT[:-1])
    jars.fetch()
    assert CONTENT == found.read_bytes()


def test_wrong_checksum(monkeypatch, tmp_path):
    """A jar that was changed on its way would run with all rights of the user."""
    answering(monkeypatch, b"something else!!")
    with pytest.raises(SetupError, match=r"thing-1\.0\.jar came with SHA-256 .* and was thrown away"):
        jars.fetch()
    assert [] == list((tmp_path / "jars").iterdir())


def test_no_answer(monkeypatch, tmp_path):
    """Without network people must learn their three ways out, and no half file may stay."""
    answering(monkeypatch, None)
    with pytest.raises(
        SetupError, match=r"thing-1\.0\.jar could not be fetched: .*--settings.*INGEST_JARS_DIR"
    ):
        jars.fetch()
    assert [] == list((tmp_path / "jars").iterdir())


def test_unwritable_folder(monkeypatch, tmp_path):
    """A read-only home would end in a traceback."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("INGEST_JARS_DIR", str(tmp_path / "file" / "jars"))
    answering(monkeypatch, CONTENT)
    with pytest.raises(SetupError, match=r"cannot be written .*INGEST_JARS_DIR"):
        jars.fetch()


def test_settings(monkeypatch):
    """On a closed network only the settings file leads to a repository; the option wins over the variable."""
    asked = answering(monkeypatch, CONTENT)
    monkeypatch.setenv("INGEST_IVY_SETTINGS", "variable.xml")
    jars.fetch(["delta"])
    jars.fetch(["kafka"], settings="option.xml")
    assert ["thing-1.0.jar variable.xml", "other-2.0.jar option.xml"] == asked


def test_two_fetches_at_once(monkeypatch, tmp_path):
    """Two runs that start on a fresh machine would step on each other's files."""
    answering(monkeypatch, CONTENT)
    with ThreadPoolExecutor(4) as pool:
        done = [future.result() for future in [pool.submit(jars.fetch) for _ in range(8)]]
    assert [jars.require("delta", "kafka")] * 8 == done


@pytest.mark.parametrize(
    ("content", "said"), [(None, "is missing: type"), (b"short", "is not the pinned file: delete it")]
)
def test_require_names_the_command(tmp_path, content, said):
    """Spark's own message for a missing or cut-off jar is a class name."""
    (tmp_path / "jars").mkdir()
    if content is not None:
        (tmp_path / "jars" / GOOD.file).write_bytes(content)
    with pytest.raises(SetupError, match=f"{said}.*`ingest jars fetch`"):
        jars.require("delta")


def test_folder_of_the_users_own(monkeypatch, tmp_path):
    """A closed network brings the jars in by hand."""
    monkeypatch.setenv("INGEST_JARS_DIR", str(tmp_path / "ours"))
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / GOOD.file).write_bytes(CONTENT)
    assert [tmp_path / "ours" / GOOD.file] == jars.require("delta")


def test_proxy(monkeypatch):
    """Behind a proxy that the shell knows, Java would wait for a time-out."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    assert ["-Dhttps.proxyHost=proxy.example", "-Dhttps.proxyPort=3128"] == jars._proxy_options()


def test_pins_are_whole():
    """A pin with a typing error would refuse every download."""
    assert [] == [jar.file for jar in PINNED if not re.fullmatch("[0-9a-f]{64}", jar.sha256)]
    assert 6 == len({jar.file for jar in PINNED})
    assert {"delta", "kafka"} == {jar.kind for jar in PINNED}


def test_a_jar_that_was_changed_is_not_loaded(tmp_path):
    """One byte changed, at the same size, would run with all our rights."""
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / GOOD.file).write_bytes(CONTENT[:-1] + b"?")
    with pytest.raises(SetupError, match="is not the pinned file"):
        jars.require("delta")
