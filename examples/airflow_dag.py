"""An Airflow DAG: one task lands, decodes, folds and checks; the next one writes the report, also after a failure.

Needs Airflow 3, and ``ingest`` in the workers' Python. A run with failures fails the task after its lake is already as
good as it can be; a retry begins where it stopped.
"""

from __future__ import annotations

import datetime as dt

from airflow.sdk import DAG, task

PIPELINE = "/etc/ingest/shop.yaml"


@task(retries=2, retry_delay=dt.timedelta(minutes=2))
def run() -> int | None:
    """Run the pipeline once, and give the number of the batch."""
    import ingest

    pipeline = ingest.load(PIPELINE)
    with ingest.session(pipeline) as spark:
        result = ingest.run_pipeline(pipeline, spark)
        ingest.send_alerts(pipeline, spark)  # to the targets under `alerts:`, if there are any
    if result.failures:
        raise RuntimeError("\n".join(result.failures))
    return result.batch


with DAG(
    "ingest_shop",
    description="change messages into mirrors",
    schedule=dt.timedelta(minutes=15),
    start_date=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    catchup=False,
    max_active_runs=1,  # a second run would wait for the lake's lock in vain
) as dag:

    @task.bash(trigger_rule="all_done")
    def report() -> str:
        """The page of the last batch."""
        return f"ingest report {PIPELINE}"

    run() >> report()
