"""JSON as the products write it: on one line, numbers digit for digit."""

from __future__ import annotations

import json
from typing import Any


class Bare(str):
    """A number's own digits."""

    __slots__ = ()


def dump(value: Any) -> str:
    """Compact JSON; no number passes through a float."""
    if isinstance(value, Bare):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{dump(name)}:{dump(member)}" for name, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dump, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
