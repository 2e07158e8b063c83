"""What happened to one mirror in a batch."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class Folded:
    """What happened to one mirror."""

    mirror: str
    path: str
    state: str  # done | failed | held | skipped | paused
    version: int = -1
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    message: str = ""
    size: int = 0  # bytes of its table
    began: dt.datetime | None = None  # None if nothing was begun
    waits: bool = False  # held for a decision: no message can change that
    why_spark: str | None = None  # why Spark folded it; empty if Arrow did, None if nothing was folded
    whole: bool = False  # folded again from its first change


@dataclass(frozen=True, slots=True)
class MirrorCommit:
    """A mirror's commit by Arrow, or why there is none."""

    refused: str = ""
    held: str = ""  # Spark could not fold it either
    failed: str = ""  # the same, but without a decision of the operator: the next run tries again
    version: int = -1
    size: int = 0
    seconds: float = 0.0
    counts: Mapping[str, int] = field(default_factory=dict)
