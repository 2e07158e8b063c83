"""The wheel in an empty environment, as `pipx install` makes one: nothing but what it names and brings is there."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import urllib.request
import venv
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.lakes import FORMAT, ROOT, change, touch
from tests.serve.conftest import depot

PAGES = (
    "/",
    "/pipeline?pipeline=depot",
    "/table?pipeline=depot&table=depot.bins",
    "/style.css",
    "/live.js",
    "/api/status",
)
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [*PIP, "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT)], check=True, timeout=300
    )
    (built,) = folder.glob("ingest-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of commands of an environment with the wheel, its extra for pages, and what these name.

    What they name is linked from the environment of the tests, for PySpark alone would take minutes to install.
    """
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "environment", with_pip=False)
    python = folder / "environment" / "bin" / "python"
    subprocess.run(
        [*PIP, "--python", str(python), "install", "--no-deps", str(wheel)], check=True, timeout=300
    )
    (packages,) = (folder / "environment" / "lib").glob("python3*/site-packages")
    (ours,) = distributions(name="ingest", path=[str(packages)])
    for one in needed(ours, {"serve"}).values():
        for name in {Path(file).parts[0] for file in one.files or ()} - {"..", "__pycache__"}:
            if not (packages / name).exists():
                (packages / name).symlink_to(Path(str(one.locate_file(name))))
    return python.parent


def needed(
    one: Distribution, extras: set[str], found: dict[str, Distribution] | None = None
) -> dict[str, Distribution]:
    """What a distribution needs, and what that needs."""
    found = {} if found is None else found
    for text in one.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or any(
            requirement.marker.evaluate({"extra": each}) for each in extras | {""}
        ):
            name = canonicalize_name(requirement.name)
            if name not in found or requirement.extras:
                found[name] = distribution(requirement.name)
                needed(found[name], set(requirement.extras), found)
    return found


def run(installed: Path, *words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command of the environment, in a folder without the sources."""
    return subprocess.run(
        [str(installed / "ingest"), *map(str, words)],
        cwd=folder, env=_environment(), capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def test_the_command_is_there(installed: Path, tmp_path: Path) -> None:
    """A module, template or list that the wheel lacks is missed only by those who did not clone."""
    done = run(installed, "--help", folder=tmp_path)
    assert (0, True) == (done.returncode, "Land change messages" in done.stdout), done.stderr
    assert "ingest 0." in run(installed, "--version", folder=tmp_path).stdout
    for verb in ("run", "serve", "explain", "reconcile"):
        assert 0 == run(installed, verb, "--help", folder=tmp_path).returncode


def test_an_archive_of_the_sources_builds_the_same_bytes(tmp_path: Path) -> None:
    """Whoever builds a release again, elsewhere and later, could not tell whether it is the one that was published."""

    def built(sources: Path, folder: Path) -> dict[str, str]:
        words = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
        subprocess.run(words, cwd=sources, check=True, timeout=300, capture_output=True)
        return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}

    first = built(ROOT, tmp_path / "first")
    (archive,) = (tmp_path / "first").glob("*.tar.gz")
    shutil.unpack_archive(archive, tmp_path / "sources", filter="data")
    (sources,) = (tmp_path / "sources").iterdir()
    for file in sources.rglob("*"):
        os.utime(file, (1, 1_000_000_000))
    assert {".whl", ".gz"} == {Path(name).suffix for name in first}
    assert first == built(sources, tmp_path / "second")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("pipx"), reason="there is no pipx: `pip install pipx`")
def test_pipx_installs_all_that_it_needs(wheel: Path, tmp_path: Path) -> None:
    """Whoever does so has no sources and no other package: a pin that nobody can have would stop the first command."""
    places = {name: str(tmp_path / name) for name in ("PIPX_HOME", "PIPX_BIN_DIR", "PIPX_MAN_DIR")}
    words = ["pipx", "install", "--python", sys.executable, f"{wheel}[serve]"]
    done = subprocess.run(
        words, env=_environment() | places, capture_output=True, text=True, check=False, timeout=900
    )
    assert 0 == done.returncode, done.stderr
    commands = tmp_path / "PIPX_BIN_DIR"
    assert run(commands, "--version", folder=tmp_path).stdout.startswith("ingest 0.")
    made = depot(tmp_path / "depot")
    assert "problems need the operator" in run(commands, "status", made.file, folder=tmp_path).stdout


def test_a_pipeline_is_made_checked_and_foreseen(installed: Path, tmp_path: Path) -> None:
    """The first minutes of a new user, for which Java is not needed yet."""
    feed = tmp_path / "bins-1.jsonl"
    feed.write_text(change("INSERT", "bins", 1, {"id": "1", "word": "x"}) + "\n", "utf-8")
    touch(feed)
    done = run(installed, "init", "shop.yaml", "--source", "bins-*.jsonl", folder=tmp_path)
    assert (0, True) == (
        done.returncode,
        f"format: {FORMAT}" in (tmp_path / "shop.yaml").read_text("utf-8"),
    ), done.stderr
    assert 0 == (done := run(installed, "validate", "shop.yaml", folder=tmp_path)).returncode, done.stderr
    done = run(installed, "plan", "shop.yaml", "--output", "json", folder=tmp_path)
    assert 0 == done.returncode, done.stderr
    assert ["depot.bins"] == [one["table"] for one in json.loads(done.stdout)[0]["tables"]]


def test_the_pages_are_served(installed: Path, tmp_path: Path) -> None:
    """Templates and styles are files that a build may leave out."""
    made = depot(tmp_path)
    serving = subprocess.Popen(
        [str(installed / "ingest"), "serve", str(made.file), "--listen", "127.0.0.1:0", "-o", "json"],
        cwd=tmp_path, env=_environment(), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert serving.stdout is not None
        address = json.loads(serving.stdout.readline())["listening"]
        for page in PAGES:
            with urllib.request.urlopen(f"{address}{page}", timeout=60) as answer:
                assert (200, True) == (answer.status, bool(answer.read())), page
        done = run(installed, "status", made.file, folder=tmp_path)
        needs_somebody = (1, True, True)  # the lake is in trouble, and that is what a script asks for
        words = ("4 problems need the operator", "depot.bins")
        assert needs_somebody == (done.returncode, *(word in done.stdout for word in words)), done.stderr
        done = run(installed, "report", made.file, "--out", tmp_path / "report.html", folder=tmp_path)
        assert (0, True) == (done.returncode, (tmp_path / "report.html").exists()), done.stderr
    finally:
        serving.terminate()
        serving.communicate(timeout=60)
    assert 0 == serving.returncode
