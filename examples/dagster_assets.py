"""Dagster: one materialisation of a multi-asset is one run of the pipeline by spark-submit, with a mirror as an asset each.

Needs Dagster 1.7 or newer, ``spark-submit`` on its PATH, and ``ingest`` with its libraries on the cluster (docs/cluster.md). A
mirror is materialised when a batch has changed it.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg

PIPELINE = "/etc/ingest/shop.yaml"
MASTER = "spark://head:7077"
HOME = "/opt/ingest"  # a clone, in which `make dist` has written dist/ingest.zip
JARS = Path.home() / ".cache/ingest/jars"  # where `ingest jars fetch` puts them
DELTA = ("delta-spark_4.2_2.13-4.4.0.jar", "delta-storage-4.4.0.jar")
MIRRORS = ("shop.customers", "shop.orders", "shop.order_lines")


def key(mirror: str) -> dg.AssetKey:
    """The asset of a mirror."""
    return dg.AssetKey(mirror.split("."))


def submit(stage: str) -> dict[str, Any]:
    """The result of one job, which it prints as JSON; spark-submit prints the job's progress on stdout, too."""
    jars = ",".join(str(JARS / name) for name in DELTA)
    command = ["spark-submit", "--master", MASTER, "--jars", jars, "--py-files", f"{HOME}/dist/ingest.zip"]
    command += [f"{HOME}/jobs/{stage}.py", PIPELINE, "--output", "json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if "{\n" not in done.stdout:
        raise dg.Failure(f"{stage} could not start: its log says why")
    found: dict[str, Any] = json.JSONDecoder().raw_decode(done.stdout, done.stdout.index("{\n"))[0]
    return found


@dg.multi_asset(
    outs={mirror.replace(".", "_"): dg.AssetOut(key=key(mirror), is_required=False) for mirror in MIRRORS},
    can_subset=False,
)
def mirrors() -> Iterator[dg.Output[None]]:
    """Submit the four jobs; each mirror that was merged is materialised, with its counts."""
    results = {stage: submit(stage) for stage in ("bronze", "silver", "gold", "quality")}
    for one in results["gold"]["mirrors"]:
        if one["state"] == "done" and one["table"] in MIRRORS:
            yield dg.Output(None, one["table"].replace(".", "_"), metadata=one["counts"])
    if failures := [text for result in results.values() for text in result["failures"]]:
        raise dg.Failure("\n".join(failures))


schedule = dg.ScheduleDefinition(
    name="every_quarter", target=dg.AssetSelection.assets(*map(key, MIRRORS)), cron_schedule="*/15 * * * *"
)
definitions = dg.Definitions(assets=[mirrors], schedules=[schedule])
