"""How large a contest is, how often each contestant runs, and how long all of it may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Form:
    """The sizes that all parts of a contest follow from."""

    name: str
    rows: int  # of each table
    messages: int  # of a batch
    rounds: int  # of the product; others run less often
    tables: int  # that one batch brings, in the variant of so many
    minutes: int  # after which no further section begins, and the last one ends


QUICK = Form("quick form", 100_000, 40_000, 1, 50, 60)
FULL = Form("full form", 1_000_000, 200_000, 3, 1_000, 65)
