"""Cells of the product's tables that hold JSON: NULL, as in rows of older versions, is an empty one."""

from __future__ import annotations

import json
from typing import Any


def object_in(text: str | None) -> dict[str, Any]:
    """The members of the object in a cell."""
    return json.loads(text) if text else {}


def list_in(text: str | None) -> list[Any]:
    """The elements of the list in a cell."""
    return json.loads(text) if text else []
