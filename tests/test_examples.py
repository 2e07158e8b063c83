"""The examples for orchestrators, loaded by the real ones where they are installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
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
    """A DAG that does not load is one that nobody notices is missing."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    pytest.importorskip("airflow.sdk", reason=REASON)
    dag = loaded("airflow_dag").dag
    order = {task.task_id: sorted(task.upstream_task_ids) for task in dag.tasks}
    assert {
        "bronze": [],
        "silver": ["bronze"],
        "gold": ["silver"],
        "quality": ["gold"],
        "report": ["quality"],
    } == order


def test_dagster() -> None:
    """Definitions that do not load stop every other asset of their code location too."""
    dagster = pytest.importorskip("dagster", reason=REASON)
    found = loaded("dagster_assets").definitions.resolve_all_asset_specs()
    assert {dagster.AssetKey(["shop", name]) for name in ("customers", "orders", "order_lines")} == {
        one.key for one in found
    }
