"""Logged DDL statements by name, and what the operator decided of them: gold acts on it, the checks report it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ingest.lake import decisions
from ingest.lake.decisions import APPROVE, DISMISS
from ingest.lake.lake import Lake

_POSITION = ("source", "topic", "partition", "offset", "row")
Decided = Mapping[tuple[str, int | None], str]
"""The last decision on each statement, by its name and batch."""


def statement_id(row: Mapping[str, Any]) -> str:
    """A short name for a row of `ddl` from its message's batch and position, the same after every rebuild.

    The batch tells a topic or a file from an older one of the same name, whose positions were the same.
    """
    return _short([row["batch"], *_position(row)])


def decided(lake: Lake) -> Decided:
    """What was decided of statements."""
    return {
        (one.value["statement"], one.batch): one.kind
        for one in decisions.read(lake).of(APPROVE, DISMISS)
        if one.value.get("statement")
    }


def decision_on(row: Mapping[str, Any], said: Decided) -> str:
    """What was decided of a row of `ddl`; an older version named it by its position alone."""
    names = (statement_id(row), _short(_position(row)))
    return next((said[name, row["batch"]] for name in names if (name, row["batch"]) in said), "")


def _position(row: Mapping[str, Any]) -> list[Any]:
    return [row.get(name) for name in _POSITION]


def _short(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]
