"""Rows of one position that are ordered against their arrival: the count of a compressed transaction was cut.

`ingest.silver.restarts` goes on counting where a counter starts again inside one position, as far as it sees the rows
before. Where a batch or a task begins inside a transaction it does not, and an older row may be ordered after a newer one.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingest.errors import command, counted
from ingest.quality.catalogue import Metric
from ingest.quality.ordered_lane import OrderedLane


def turned_rows(ordered: OrderedLane) -> Iterator[Metric]:
    """The number of new rows that sort before the row of their position which arrived before them, and are no repeats."""
    if not ordered.source.about.counts_rows or not ordered.lane.changes:
        return
    # a file that ends inside a transaction goes on in the next one
    stream = f"PARTITION BY {', '.join(ordered.stream_columns)}" if ordered.stream_columns else ""
    [turned] = ordered.lake.ask(
        f"""WITH rows AS (SELECT topic, "partition", batch, "offset", order_key, sequence,
            concat_ws('\n', op, before, after) AS said, regexp_replace(sequence, ':[0-9]+$', '') AS place
            FROM {{changes.change}} WHERE op IN ('insert', 'update', 'delete') AND sequence LIKE '%:%:%' AND {ordered.where}
            AND batch >= (SELECT coalesce(max(batch), 0) FROM {{changes.change}} WHERE batch <= {ordered.since} AND {ordered.where})),
        pairs AS (SELECT *, lag(order_key) OVER arrived AS prev_key, lag(place) OVER arrived AS prev_place FROM rows
            WINDOW arrived AS ({stream} ORDER BY batch, topic, "offset")),
        turned AS (SELECT * FROM pairs WHERE batch > {ordered.since} AND place = prev_place AND order_key < prev_key)
        SELECT count(*) AS n, min(sequence) AS place FROM turned AS t
        WHERE NOT EXISTS (SELECT 1 FROM rows AS o WHERE o.sequence = t.sequence AND o.said = t.said
            AND (o.batch, o.topic, o."offset") < (t.batch, t.topic, t."offset"))"""
    )
    if turned["n"]:
        compare = command("reconcile", ordered.lake.pipeline.file, ordered.lane.table)
        way = f" (`{compare}`)" if ordered.source.database else ""
        detail = (
            f"{counted(turned['n'], 'row')} of {ordered.lane.table} arrived after rows of the same position, such as {turned['place']}, "
            "and are ordered before them: the source compresses its transactions, and this one was cut between two batches. "
            f"Compare these rows with the source{way}, or load the table again"
        )
        yield ordered.metric("event_order", turned["n"], detail)
