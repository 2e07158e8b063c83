"""A lake's health as metrics, in the text format for the textfile collector of Prometheus' node exporter.

Meant for its textfile collector: write it to a file outside the collector's folder, then move it in.
(https://prometheus.io/docs/instrumenting/exposition_formats, "Text-based format")
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ingest.inspect.problem_kinds import STATES
from ingest.inspect.problems import FAILING

Labels = Mapping[str, str]
Sample = tuple[Labels, float | None]


def text(*statuses: Mapping[str, Any]) -> str:
    """The status of pipelines as gauges, family by family; families without samples are left out."""
    families: dict[str, tuple[str, list[Sample]]] = {}
    for status in statuses:
        for name, (help_text, samples) in (_mirrors(status) | _lake(status)).items():
            families.setdefault(name, (help_text, []))[1].extend(samples)
    return "".join(
        _family(f"ingest_{name}", help_text, samples) for name, (help_text, samples) in families.items()
    )


def _mirrors(status: Mapping[str, Any]) -> dict[str, tuple[str, list[Sample]]]:
    rows = [({"pipeline": status["pipeline"], "mirror": row["table"]}, row) for row in status["tables"]]
    states: list[Sample] = [
        ({**labels, "state": state}, float(row["state"] == state))
        for labels, row in rows
        for state in (STATES if row["state"] in STATES else (*STATES, row["state"]))
    ]
    return {
        "mirror_lag_seconds": (
            "Age of the newest source commit among the mirror's changes.",
            [(labels, row["lag_seconds"]) for labels, row in rows],
        ),
        "mirror_complete_until_timestamp_seconds": (
            "The source time before which no change is expected any more.",
            [(labels, _moment(row["complete_until"])) for labels, row in rows],
        ),
        "mirror_rows": ("Rows in the mirror.", [(labels, row["rows"]) for labels, row in rows]),
        "mirror_batch": (
            "The last batch that was folded into the mirror.",
            [(labels, row["batch"]) for labels, row in rows],
        ),
        "mirror_state": ("1 for the state that the mirror is in, 0 for the others.", states),
    }


def _moment(text: str | None) -> float | None:
    return None if text is None else dt.datetime.fromisoformat(text).timestamp()


def _lake(status: Mapping[str, Any]) -> dict[str, tuple[str, list[Sample]]]:
    labels = {"pipeline": status["pipeline"]}
    rejects = status["open_rejects"]  # None of a lake that cannot be looked at
    kinds = {} if rejects is None else {"message": 0, "cell": 0, "change": 0, **rejects}
    last = status["last_run"] or {}
    return {
        "rejects_open": (
            "Rejects that were neither replayed nor dismissed.",
            [({**labels, "kind": kind}, count) for kind, count in kinds.items()],
        ),
        "problems": (
            "Open problems that nobody has acknowledged.",
            _counted(status, ("severity", "kind", "mirror"), lambda _one: True),
        ),
        "checks_failing": (
            "Checks that complain, by the last check of each mirror and source.",
            _counted(status, ("severity", "check", "mirror"), lambda check: check["kind"] in FAILING),
        ),
        "statements_pending": (
            "DDL statements that wait for a decision.",
            [(labels, status["pending_statements"])],
        ),
        "last_run_timestamp_seconds": (
            "When the last run ended that had anything to do.",
            [(labels, _moment(last.get("ended")))],
        ),
        "last_run_duration_seconds": ("How long its stages took.", [(labels, last.get("seconds"))]),
        "last_run_failed": (
            "1 if something failed, was held or raised an alarm in it.",
            [(labels, float(last["failed"]))] if last else [],
        ),
    }


def _counted(
    status: Mapping[str, Any], names: Sequence[str], wanted: Callable[[Mapping[str, Any]], bool]
) -> list[Sample]:
    """The number of problems by some of their fields; ``check`` is the kind of one that a check has found."""
    counts: Counter[tuple[str, ...]] = Counter()
    for cause in status["causes"]:
        if wanted(cause) and not cause["acknowledged"]:
            fields = cause | {"check": cause["kind"]}
            counts[tuple(fields[name] or "" for name in names)] += 1
    pipeline = {"pipeline": status["pipeline"]}
    return [(pipeline | dict(zip(names, key, strict=True)), n) for key, n in sorted(counts.items())]


def _family(name: str, help_text: str, samples: Iterable[Sample]) -> str:
    lines = [f"{name}{_labels(labels)} {_number(value)}\n" for labels, value in samples if value is not None]
    return f"# HELP {name} {help_text}\n# TYPE {name} gauge\n{''.join(lines)}" if lines else ""


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items()) + "}"


def escaped(value: str) -> str:
    """A label's value with backslash, quote and line break escaped."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
