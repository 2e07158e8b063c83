"""A message that is a part of one that was too large to be sent."""

from __future__ import annotations

from typing import NamedTuple

SPLIT = "split-message"  # the reject code of a part that is not put together with the others


class MessagePart(NamedTuple):
    """One part: its number among all, counted from 0, how many there are, its bytes, and how many bytes its message has."""

    number: int
    total: int
    data: bytes
    size: int
