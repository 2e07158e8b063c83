"""Dagster: one run of the pipeline is one multi-asset materialisation, with a mirror as an asset each.

Needs Dagster 1.7 or newer, and ``ingest`` in the same Python. A mirror is materialised when a batch has changed it.
"""

from collections.abc import Iterator

import dagster as dg

import ingest

PIPELINE = "/etc/ingest/shop.yaml"
MIRRORS = ("shop.customers", "shop.orders", "shop.order_lines")


def key(mirror: str) -> dg.AssetKey:
    """The asset of a mirror."""
    return dg.AssetKey(mirror.split("."))


@dg.multi_asset(
    outs={mirror.replace(".", "_"): dg.AssetOut(key=key(mirror), is_required=False) for mirror in MIRRORS},
    can_subset=False,
)
def mirrors() -> Iterator[dg.Output[None]]:
    """Run the pipeline; each mirror that was merged is materialised, with its counts."""
    pipeline = ingest.load(PIPELINE)
    with ingest.session(pipeline) as spark:
        result = ingest.run_pipeline(pipeline, spark)
    for one in result.mirrors:
        if one.state == "done" and one.mirror in MIRRORS:
            yield dg.Output(None, one.mirror.replace(".", "_"), metadata=one.counts)
    if result.failures:
        raise dg.Failure("\n".join(result.failures))


schedule = dg.ScheduleDefinition(
    name="every_quarter", target=dg.AssetSelection.assets(*map(key, MIRRORS)), cron_schedule="*/15 * * * *"
)
definitions = dg.Definitions(assets=[mirrors], schedules=[schedule])
