"""The cache folder holds what is run at each start: no other user may change it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ingest.errors import SetupError
from ingest.operate import doctor
from ingest.spark import archive, cache, java, session, trust
from ingest.spark.java import Java

FOUND = Java(Path("/java"), "17.0.15", "PATH")


@pytest.fixture(autouse=True)
def top(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache of its own, which does not exist yet."""
    monkeypatch.setenv("INGEST_CACHE", str(tmp_path / "a" / "cache"))
    return tmp_path / "a" / "cache"


@pytest.fixture
def archived(top: Path) -> Path:
    """A class archive as a training run leaves it."""
    file = cache.writable("classes") / "one.jsa"
    file.write_bytes(b"classes")
    file.chmod(0o600)
    return file


def given_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the path belong to another user than the one who runs."""
    if os.geteuid() == 0:
        os.chown(path, 4242, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4242)


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_what_is_made_is_this_users_alone(top: Path, umask: int) -> None:
    """A folder that every user may write lets each of them choose what the others run."""
    before = os.umask(umask)
    try:
        script = java.launcher(FOUND) / "bin" / "java"
    finally:
        os.umask(before)
    assert {0o700} == {each.stat().st_mode & 0o777 for each in (top, top / "java", script.parent.parent)}
    assert "" == cache.writable_by_others(script)


@pytest.mark.parametrize("part", [".", "java"])
def test_a_cache_that_every_user_may_write_is_refused(top: Path, part: str) -> None:
    """The launcher is compared and then run: in between another user could replace it."""
    java.launcher(FOUND)
    (top / part).chmod(0o777)
    with pytest.raises(SetupError) as caught:
        java.launcher(FOUND)
    assert (
        f"Every user of this machine may write to {top / part}, from which files are run: correct that, or name "
        "another cache folder with INGEST_CACHE."
    ) == str(caught.value)
    (top / part).chmod(0o755)
    assert java.launcher(FOUND).is_dir()


@pytest.mark.parametrize("part", [".", "java"])
def test_a_cache_of_another_user_is_refused(top: Path, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user who created the folder first, in /tmp for example, would choose what is run."""
    java.launcher(FOUND)
    given_away(top / part, monkeypatch)
    with pytest.raises(SetupError, match=r"belongs to another user \(\d+\), who could .*INGEST_CACHE"):
        java.launcher(FOUND)


def test_a_launcher_that_every_user_may_write_is_replaced(top: Path) -> None:
    """Its text is right now, but a user who may write it could change it before the next start."""
    script = java.launcher(FOUND) / "bin" / "java"
    script.chmod(0o777)
    assert 0o755 == (java.launcher(FOUND) / "bin" / "java").stat().st_mode & 0o777


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o2775, 0o1777])
def test_a_group_of_the_operators_and_a_sticky_folder_are_accepted(top: Path, mode: int) -> None:
    """A volume that a cluster gives to a group is written by all processes of that group, on purpose."""
    top.mkdir(parents=True)
    top.chmod(mode)
    assert top / "jars" == cache.writable("jars")


def test_the_doctor_says_who_may_write(top: Path) -> None:
    """`ingest doctor` must explain why a start is refused."""
    assert "ok" == doctor._cache().state
    top.chmod(0o777)
    found = doctor._cache()
    assert ("wrong", True) == (found.state, "Every user of this machine may write" in found.found)


def test_an_archive_is_used(archived: Path) -> None:
    """Each start would take seconds longer."""
    assert [f"-XX:SharedArchiveFile={archived}"] == archive.options(archived)


@pytest.mark.parametrize("part", ["one.jsa", ".", ".."])
def test_an_archive_that_every_user_may_write_is_passed_over(archived: Path, part: str) -> None:
    """It holds the code of classes, which Java takes without comparing it with the jars."""
    exposed = archived if part == archived.name else archived.parent / part
    exposed.chmod(0o777)
    assert [] == archive.options(archived)


def test_an_archive_of_another_user_is_passed_over(archived: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As above: the user who wrote it would choose what runs."""
    given_away(archived, monkeypatch)
    assert [] == archive.options(archived)


def test_an_archive_that_is_passed_over_is_built_again(
    archived: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every start would stay slow, although `ingest jars fetch` reports no fault."""
    monkeypatch.setattr(session, "find", lambda: FOUND)
    monkeypatch.setattr(session, "_class_path", lambda kafka: [])
    monkeypatch.setattr(session, "class_archive", lambda *given: archived)
    built = []
    monkeypatch.setattr(archive, "build", lambda file: built.append(file) or True)
    assert session.prepare()
    assert [] == built
    archived.chmod(0o666)
    assert session.prepare()
    assert [archived] == built


def test_an_archive_is_written_for_this_user_alone(
    top: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Java writes it by the `umask`; one that every user may write would never be used."""
    practice = tmp_path / "practice"
    practice.write_text('#!/bin/sh\necho classes > "$3"\nchmod 666 "$3"\n')
    practice.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(practice))
    file = top / "classes" / "one.jsa"
    assert archive.build(file)
    assert [f"-XX:SharedArchiveFile={file}"] == archive.options(file)


@pytest.mark.parametrize("variable", trust.VARIABLES)
def test_the_doctor_names_a_file_of_certificates_that_is_not_there(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java would trust only what is left, and the first download would fail with a fault that names no file."""
    for name in trust.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    bundle = tmp_path / "company.pem"
    monkeypatch.setenv(variable, str(bundle))
    found = doctor._certificates()
    assert ("wrong", f"unset {variable}") == (found.state, found.repair)
    assert str(bundle) in found.found
    bundle.write_text("-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n", "utf-8")
    found = doctor._certificates()
    assert ("ok", str(bundle)) == (found.state, found.found)
