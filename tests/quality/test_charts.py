"""The charts of a mirror: what they draw is what their words say, and nothing of the data becomes markup."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from xml.etree import ElementTree as ET

from ingest.quality.catalogue import duration, number
from ingest.quality.charts import Chart, charts, charts_of_lake, drawn, timeline
from ingest.quality.report_model import BatchFact, CheckFact, DdlFact, RunFact, TableFact
from ingest.quality.trends import BatchTrend, of_batches
from tests.serve.conftest import depot

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


def test_a_lake_has_as_many_rows_as_all_its_mirrors(tmp_path: Path) -> None:
    """A mirror that a batch leaves alone has its rows all the same: the chart would fall to those of one table."""
    made = depot(tmp_path)
    rows = []
    for batch, mirror, name, observed in (
        (1, "depot.a", "rows", 10.0), (1, "depot.b", "rows", 5.0), (1, "depot.a", "freshness", 7.0),
        (2, "depot.a", "rows", 12.0), (2, "depot.a", "cell_rejects", 3.0), (2, "depot.a", "freshness", 9.0),
        (3, "depot.b", "rows", 4.0), (3, "depot.b", "changes_proven", 2.0),
        (3, "depot.b", "changes_compared", 4.0), (2, "depot.a", "changes_proven", 5.0),
    ):  # fmt: skip
        rows.append(made.check(mirror, name, observed) | {"batch": batch})
    again = made.check("depot.a", "rows", 11.0) | {"batch": 2}
    again["checked_at"] += dt.timedelta(hours=1)  # the mirror was checked once more
    made.product("checks", [*rows, again])
    assert [
        BatchTrend(1, 15.0, 7.0, 0.0, None), BatchTrend(2, 16.0, 9.0, 3.0, None), BatchTrend(3, 15.0, None, 0.0, 0.5)
    ] == of_batches(made.reader)[:3]  # fmt: skip


def test_the_charts_of_a_lake_leave_out_what_was_not_measured() -> None:
    """An age that nobody measured, drawn as nothing, would say that the stream was never as fresh."""
    batches = [
        BatchTrend(1, 15.0, 7.0, 0.0, None), BatchTrend(2, 16.0, None, 3.0, None), BatchTrend(3, 15.0, 9.0, 0.0, 2.0)
    ]  # fmt: skip
    runs = [
        RunFact(str(one), NOW, batch, {"changes": one, "rejected": 0})
        for one, batch in ((3, 3), (2, None), (1, 1))
    ]
    shown = {one.label: list(one.values) for one in charts_of_lake(batches, runs, number, duration)}
    assert {
        "Rows in all mirrors": [15, 16, 15],
        "Changes": [1, 3],
        "Lag when checked": [7, 9],
        "Messages rejected": [0, 0],
        "Cells rejected": [0, 3, 0],
    } == shown


def test_the_share_of_proven_changes_is_of_those_that_were_compared() -> None:
    """A number of proven changes says nothing without the number that could be: 3 of 3 is proof, 3 of 300 an alarm."""
    proven = CheckFact("changes_proven", "pass", 3.0, trend=(9.0, 3.0, 0.0, 1999.0))
    compared = CheckFact("changes_compared", "pass", 4.0, trend=(4.0, 0.0, 2000.0))  # since the second batch
    [chart] = charts(TableFact("depot.a", checks=[proven, compared]), number, duration)
    assert ("Share of changes proven by the next one", [0.75, 0.9995]) == (chart.label, list(chart.values))
    assert "from 75% to 99.9%, now 99.9%" in chart.said, "not all of them"


def test_one_batch_is_no_trend() -> None:
    """A chart of one number is a dot that says nothing."""
    assert [] == list(charts(table(1), number, duration))


def test_values_that_are_all_equal_or_zero_are_drawn() -> None:
    """The scale of such a chart has no height, and the page would fail by a division."""
    for values in ((0.0, 0.0), (7.0, 7.0)):
        for bars in (True, False):
            assert "svg" in ET.fromstring(drawn(Chart("Rows", values, number, bars))).tag


def test_a_level_that_stays_is_not_drawn_as_none() -> None:
    """Every change proven, batch after batch, lay on the ground like none proven."""
    none, full = (
        float(ET.fromstring(drawn(Chart("Share", [value] * 3, number)))[1].get("cy", 0))
        for value in (0.0, 1.0)
    )
    assert full < 10
    assert none > 40


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
    assert "2 schema changes from batch 4 to batch 12, 1 of them waits for a decision" == drawing.get(
        "aria-label"
    )
    assert ["batch 4", "batch 12"] == [one.text for one in drawing if one.tag == "text"]
    assert "" == timeline(statements[2:], 12)
