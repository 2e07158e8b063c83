"""How large a contest is, and how often each contestant runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Form:
    """The sizes that all parts of a contest follow from."""

    name: str
    rows: int  # of each table
    messages: int  # of a batch
    rounds: int
    tables: int  # that one batch brings, in the variant of so many


QUICK = Form("quick form", 100_000, 40_000, 1, 50)
FULL = Form("full form", 1_000_000, 200_000, 3, 1_000)
