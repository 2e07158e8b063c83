"""An Airflow DAG: one task per stage, so that a broken check does not land or fold anything twice.

Needs Airflow 3, and ``ingest`` on the workers' path. Exit code 1 (something failed or waits for a
person) fails the task after its lake is already as good as it can be; a retry begins where it stopped.
"""

from __future__ import annotations

import datetime as dt

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

PIPELINE = "/etc/ingest/shop.yaml"
STAGES = ("bronze", "silver", "gold", "quality")

with DAG(
    "ingest_shop",
    description="change messages into mirrors",
    schedule=dt.timedelta(minutes=15),
    start_date=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    catchup=False,
    max_active_runs=1,  # a second run would wait for the lake's lock in vain
    default_args={"retries": 2, "retry_delay": dt.timedelta(minutes=2)},
) as dag:
    before = None
    for stage in STAGES:
        task = BashOperator(
            task_id=stage, bash_command=f"ingest run {PIPELINE} --stage {stage} --output json"
        )
        if before is not None:
            before >> task
        before = task
    BashOperator(
        task_id="report", bash_command=f"ingest report {PIPELINE}", trigger_rule="all_done"
    ).set_upstream(before)
