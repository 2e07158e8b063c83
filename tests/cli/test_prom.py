"""Metrics as text: names, types and labels that a scraper takes."""

from __future__ import annotations

import re

from ingest.inspect import prom

FOUND = {
    "pipeline": 'the "shop"',
    "tables": [
        {
            "table": 'a\\b"c\nd',
            "state": "held",
            "batch": None,
            "rows": None,
            "lag_seconds": None,
            "complete_until": None,
        },
        {
            "table": "shop.orders",
            "state": "ok",
            "batch": 7,
            "rows": 12,
            "lag_seconds": 61,
            "complete_until": "2024-05-01T00:00:01Z",
        },
    ],
    "open_rejects": {"message": 2, "late": 1},
    "causes": [],
    "pending_statements": 3,
    "last_run": {"ended": "2024-05-01T00:00:00.5Z", "seconds": 1.25, "failed": True},
}
_LINE = re.compile(
    r'ingest_[a-z_]+\{[a-z]+="(?:[^"\\\n]|\\[\\"n])*"(?:,[a-z]+="(?:[^"\\\n]|\\[\\"n])*")*\} -?[0-9.]+'
)


def samples(found=FOUND) -> list[str]:
    """The lines that are not comments."""
    return [line for line in prom.text(found).splitlines() if not line.startswith("#")]


def test_every_line_has_the_form_that_scrapers_read():
    """One bad line, and the collector drops the whole file."""
    assert [] == [line for line in samples() if not _LINE.fullmatch(line)]
    assert prom.text(FOUND).endswith("\n")


def test_labels_are_escaped():
    """A table's name would end its label, and the line."""
    assert r'ingest_mirror_state{pipeline="the \"shop\"",mirror="a\\b\"c\nd",state="held"} 1' in samples()


def test_each_family_is_declared_once_before_its_samples():
    """A second HELP of one name is an error to the scraper."""
    lines = prom.text(FOUND).splitlines()
    declared = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(set(declared)) == len(declared)
    assert declared == list(dict.fromkeys(line.partition("{")[0] for line in samples()))


def test_what_is_not_known_has_no_sample():
    """A lag of zero would look healthy."""
    assert ['ingest_mirror_lag_seconds{pipeline="the \\"shop\\"",mirror="shop.orders"} 61'] == [
        line for line in samples() if line.startswith("ingest_mirror_lag")
    ]


def test_values_are_exact():
    """Alerts compare them."""
    found = dict(line.rsplit(" ", 1) for line in samples())
    label = r'{pipeline="the \"shop\""}'
    assert "1714521600.5" == found["ingest_last_run_timestamp_seconds" + label]
    assert ("1.25", "1", "3") == tuple(
        found[f"ingest_{name}{label}"]
        for name in ("last_run_duration_seconds", "last_run_failed", "statements_pending")
    )
    assert (
        "1714521601"
        == found[
            r'ingest_mirror_complete_until_timestamp_seconds{pipeline="the \"shop\"",mirror="shop.orders"}'
        ]
    )
    assert "0" == found[r'ingest_rejects_open{pipeline="the \"shop\"",kind="cell"}']
    assert "1" == found[r'ingest_rejects_open{pipeline="the \"shop\"",kind="late"}']


def test_a_lake_without_runs_has_no_run_metrics():
    """The first scrape may come before the first run."""
    assert not [line for line in samples(FOUND | {"last_run": None}) if "last_run" in line]
