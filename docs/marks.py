"""What the scripts share that write parts of documents."""

from __future__ import annotations

import re


def inserted(text: str, begin: str, made: str, end: str) -> str:
    """A document with what is made between its two marks.

    Raises:
        ValueError: the marks are not there once, in their order.
    """
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"the document must hold {begin} and {end} once, in this order")
    return pattern.sub(lambda _: begin + made + end, text)


def cell(text: str) -> str:
    """A text in a table's cell, which a bar or a new line would end."""
    return text.replace("|", "\\|").replace("\n", " ")
