"""An Airflow DAG: the four jobs by spark-submit, one after another; the last task writes the report, also after a failure.

Needs Airflow 3 with the provider ``apache-airflow-providers-apache-spark``, a connection ``spark_default`` that names the
master, and ``ingest`` with its libraries on the cluster (docs/cluster.md). A job with failures fails its task after the lake is
already as good as it can be; a retry begins where it stopped.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, task

PIPELINE = "/etc/ingest/shop.yaml"
HOME = "/opt/ingest"  # a clone, in which `make dist` has written dist/ingest.zip
JARS = Path.home() / ".cache/ingest/jars"  # where `ingest jars fetch` puts them
DELTA = ("delta-spark_4.2_2.13-4.4.0.jar", "delta-storage-4.4.0.jar")

with DAG(
    "ingest_shop",
    description="change messages into mirrors",
    schedule=dt.timedelta(minutes=15),
    start_date=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    catchup=False,
    max_active_runs=1,  # a second run would wait for the lake's lock in vain
) as dag:
    bronze, silver, gold, quality = (
        SparkSubmitOperator(
            task_id=stage,
            application=f"{HOME}/jobs/{stage}.py",
            application_args=[PIPELINE],
            jars=",".join(str(JARS / name) for name in DELTA),
            py_files=f"{HOME}/dist/ingest.zip",
            name=f"ingest shop {stage}",
            retries=2,
            retry_delay=dt.timedelta(minutes=2),
        )
        for stage in ("bronze", "silver", "gold", "quality")
    )

    @task.bash(trigger_rule="all_done")
    def report() -> str:
        """The page of the last batch."""
        return f"ingest report {PIPELINE}"

    bronze >> silver >> gold >> quality >> report()
