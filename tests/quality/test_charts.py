"""The charts of a mirror: what they draw is what their words say, and nothing of the data becomes markup."""

from __future__ import annotations

import datetime as dt
from xml.etree import ElementTree as ET

from ingest.quality.catalogue import duration, number
from ingest.quality.charts import Chart, charts, drawn, timeline
from ingest.quality.report_model import BatchFact, CheckFact, DdlFact, TableFact

NOW = dt.datetime(2026, 3, 2, tzinfo=dt.UTC)


def table(batches: int) -> TableFact:
    """A mirror after some batches."""
    levels = tuple(float(10 * one) for one in range(1, batches + 1))
    return TableFact(
        "depot.bins",
        checks=[
            CheckFact("rows", "pass", levels[-1], trend=levels),
            CheckFact("freshness", "pass", 0, trend=levels),
        ],
        batches=[BatchFact(one, "done", NOW, {"inserted": one}) for one in range(batches, 0, -1)],
    )


def test_charts_show_the_oldest_batch_first() -> None:
    """A trend that is drawn backwards says that a table shrinks while it grows."""
    shown = {one.label: one for one in charts(table(3), number, duration)}
    assert ((1, 2, 3), (10, 20, 30)) == (tuple(shown["Changes"].values), tuple(shown["Rows"].values))
    assert "Rows over the last 3 batches: from 10 to 30, now 30" == shown["Rows"].said
    heights = [float(one.get("height", 0)) for one in ET.fromstring(drawn(shown["Changes"]))]
    assert sorted(heights) == heights
    assert heights[0] < heights[-1]


def test_one_batch_is_no_trend() -> None:
    """A chart of one number is a dot that says nothing."""
    assert [] == list(charts(table(1), number, duration))


def test_values_that_are_all_equal_or_zero_are_drawn() -> None:
    """The scale of such a chart has no height, and the page would fail by a division."""
    for values in ((0.0, 0.0), (7.0, 7.0)):
        for bars in (True, False):
            assert "svg" in ET.fromstring(drawn(Chart("Rows", values, number, bars))).tag


def test_a_timeline_has_each_change_of_columns_and_says_which_wait() -> None:
    """A statement that waits looks like one that was applied; or a statement's text becomes a part of the page."""
    hostile = 'ALTER TABLE a COMMENT "<script>&'
    statements = [
        DdlFact(9, "ALTER TABLE a DROP b", "drop_column", pending=True),
        DdlFact(4, hostile, "add_column"),
        DdlFact(5, "ANALYZE", "none"),
    ]
    drawing = ET.fromstring(timeline(statements, 12))
    dots = [one for one in drawing if one.tag == "circle"]
    assert ["done", "waits"] == [one.get("class") for one in dots]
    assert f"batch 4: {hostile}" == dots[0][0].text
    assert "2 schema changes from batch 4 to batch 12, 1 of them wait for a decision" == drawing.get(
        "aria-label"
    )
    assert ["batch 4", "batch 12"] == [one.text for one in drawing if one.tag == "text"]
    assert "" == timeline(statements[2:], 12)
