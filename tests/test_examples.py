"""The examples: loaded by the real orchestrators where these are installed, and their commands taken by the real verbs."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from ruamel.yaml import YAML

from ingest.cli.app import app
from ingest.config import load
from ingest.spark import jars

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
MANIFESTS = sorted((EXAMPLES / "kubernetes").glob("*.yaml"))
UNITS = sorted((EXAMPLES / "systemd").glob("*.service"))
REASON = "not installed: pip install 'ingest[orchestrators]'"


def loaded(name: str) -> ModuleType:
    """An example as its orchestrator would import it."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_airflow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A DAG that does not load would be missing from the list without notice."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    pytest.importorskip("airflow.sdk", reason=REASON)
    pytest.importorskip("airflow.providers.apache.spark", reason=REASON)
    dag = loaded("airflow_dag").dag
    before = {
        "bronze": [],
        "silver": ["bronze"],
        "gold": ["silver"],
        "quality": ["gold"],
        "report": ["quality"],
    }
    assert before == {task.task_id: sorted(task.upstream_task_ids) for task in dag.tasks}


@pytest.mark.parametrize("name", ["airflow_dag.py", "dagster_assets.py"])
def test_orchestrators_submit_the_jars_that_are_fetched(name: str) -> None:
    """With another version's name spark-submit would end before the job begins."""
    delta = [jar.file for jar in jars.PINNED if jar.kind == "delta"]
    assert f"DELTA = {tuple(delta)}".replace("'", '"') in (EXAMPLES / name).read_text("utf-8")


def test_dagster() -> None:
    """Definitions that do not load stop every other asset of their code location too."""
    dagster = pytest.importorskip("dagster", reason=REASON)
    found = loaded("dagster_assets").definitions.resolve_all_asset_specs()
    assert {dagster.AssetKey(["shop", name]) for name in ("customers", "orders", "order_lines")} == {
        one.key for one in found
    }


def understood(words: list[str]) -> None:
    """The verb takes these words; nothing is run."""
    group: Any = typer.main.get_command(app)
    verb = group.get_command(None, words[0])
    assert verb is not None, words
    verb.make_context(words[0], words[1:])


def containers(found: Any) -> Iterator[dict[str, Any]]:
    """Every container of a manifest."""
    if isinstance(found, dict):
        yield from found.get("containers", ())
        for value in found.values():
            yield from containers(value)


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.name)
def test_manifests_call_verbs_that_there_are(file: Path) -> None:
    """A container that ends with `no such option` is seen in a cluster and nowhere else."""
    (found, *more) = YAML(typ="safe").load_all(file.read_text("utf-8"))
    assert [] == [one for each in more for one in containers(each)]
    for container in containers(found):
        understood(container["args"])
        limits = container["resources"]
        assert limits["limits"]["memory"] >= limits["requests"]["memory"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert {"/tmp", "/home/ingest"} <= {one["mountPath"] for one in container["volumeMounts"]}
    if file.name == "kustomization.yaml":
        listed = {*found["resources"], *found["configMapGenerator"][0]["files"], file.name}
        assert listed == {one.name for one in MANIFESTS}


def test_the_pipeline_of_the_manifests_is_valid(tmp_path: Path) -> None:
    """The container would end at its first line."""
    (tmp_path / "jaas").write_text("none", "utf-8")
    text = (EXAMPLES / "kubernetes" / "shop.yaml").read_text("utf-8")
    (tmp_path / "shop.yaml").write_text(text.replace("/secrets/jaas", str(tmp_path / "jaas")), "utf-8")
    assert "shop" == load(tmp_path / "shop.yaml").name


@pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl on PATH")
def test_the_manifests_are_put_together() -> None:
    """What kustomize refuses is never applied."""
    done = subprocess.run(
        ["kubectl", "kustomize", str(EXAMPLES / "kubernetes")], capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode, done.stderr
    assert 3 == done.stdout.count("image: registry.example.com/ingest:0.1.0")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_unit_calls_a_verb_that_there_is(unit: Path) -> None:
    """A service that fails every 30 seconds fills a journal."""
    words = shlex.split(re.findall(r"^ExecStart=(.+)$", unit.read_text("utf-8"), re.MULTILINE)[0])
    if words[:2] == ["/bin/sh", "-c"]:  # systemd replaces no * itself
        words = shlex.split(words[2])[1:]
    assert "/opt/ingest/bin/ingest" == words[0]
    understood(words[1:])


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze on PATH")
@pytest.mark.parametrize("name", [unit.name for unit in UNITS])
def test_systemd_takes_the_unit(name: str, tmp_path: Path) -> None:
    """A directive that systemd does not know is silently ignored when the service starts."""
    unit = tmp_path / name
    text = (EXAMPLES / "systemd" / name).read_text("utf-8")
    unit.write_text(text.replace("/opt/ingest/bin/ingest", sys.executable), "utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    about = [line for line in done.stderr.splitlines() if "ingest" in line]
    assert (0, []) == (done.returncode, about), done.stderr


def test_the_image_copies_what_there_is_and_starts_the_command() -> None:
    """`docker build` would end at the first line that names a file of yesterday."""
    text = (EXAMPLES / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    root = EXAMPLES.parent
    copied = [shlex.split(words) for words in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE)]
    assert copied
    assert [] == [name for *names, _ in copied for name in names if not (root / name).exists()]
    named = set(re.findall(r"-r (\S+)", text))
    assert named <= {name for *names, _ in copied for name in names}
    assert ["ingest"] == json.loads(re.findall(r"^ENTRYPOINT (.+)$", text, re.MULTILINE)[0])
    for words in re.findall(r"bin/ingest (.+?)(?: &&|$)", text, re.MULTILINE):
        understood(shlex.split(words))
