"""Patterns of table names: `*` for any part, or regular expressions with groups, part by part."""

from __future__ import annotations

import fnmatch
import re
from functools import cache

from ingest.change import TableId

_DOT = re.compile(r"\.(?![*+?{])")  # between two parts; one that is repeated is a regular expression's


def matches(pattern: str, table: TableId) -> bool:
    """True if ``database.table`` or ``database.schema.table`` fits the pattern, part by part.

    A pattern of one part without a dot fits any database's table of that name; ``*`` fits all.  One with groups in
    parentheses is a regular expression in each part.
    """
    return captured(pattern, table) is not None


def captured(pattern: str, table: TableId) -> tuple[str, ...] | None:
    """What the groups of a pattern hold of a table's name, in their order; None if it does not fit."""
    if pattern == "*":
        return ()
    names = [part for part in table if part is not None]
    wanted = parts(pattern)
    if len(wanted) == 1:
        names = names[-1:]
    if len(wanted) != len(names):
        return None
    if not is_regular(pattern):
        return () if all(map(fnmatch.fnmatchcase, names, wanted)) else None
    matches = [_compiled(part).fullmatch(name) for part, name in zip(wanted, names, strict=True)]
    if not all(matches):
        return None
    return tuple(text or "" for match in matches if match is not None for text in match.groups())


def meant(pattern: str, table: TableId) -> str:
    """The pattern that fits a table which this one misses by a schema, or by letter case alone; empty if it differs otherwise."""
    if is_regular(pattern):
        return ""
    names, wanted = [part for part in table if part is not None], parts(pattern)
    first, last = wanted[0], wanted[-1]
    if not set(first + last) - set("*?"):  # a schema that has not come yet, rather than one too many
        return ""
    if {len(names), len(wanted)} == {2, 3}:
        wanted = (first, last) if len(names) == 2 else (first, "*", last)
    if len(wanted) != len(names):
        return ""
    pairs = list(zip(names, wanted, strict=True))
    alike = [part if fnmatch.fnmatchcase(name, part) else name for name, part in pairs]
    folded = all(fnmatch.fnmatchcase(name.casefold(), part.casefold()) for name, part in pairs)
    return ".".join(alike) if folded and len(names) > 1 else ""


def is_regular(pattern: str) -> bool:
    """True for a pattern with groups."""
    return "(" in pattern


@cache
def parts(pattern: str) -> tuple[str, ...]:
    """The parts of a pattern: dots in parentheses or brackets, repeated or escaped ones, are none between parts."""
    if not is_regular(pattern):
        return tuple(pattern.split("."))
    split, begin, depth, start = [], 0, 0, 0
    while start < len(pattern):
        if pattern[start] == "\\":
            start += 1
        elif pattern[start] in "([":
            depth += 1
        elif pattern[start] in ")]":
            depth -= 1
        elif not depth and _DOT.match(pattern, start):
            split.append(pattern[begin:start])
            begin = start + 1
        start += 1
    return (*split, pattern[begin:])


def groups(pattern: str) -> int:
    """How many groups a pattern has."""
    return sum(_compiled(part).groups for part in parts(pattern)) if is_regular(pattern) else 0


@cache
def _compiled(part: str) -> re.Pattern[str]:
    """One part of a pattern with groups."""
    return re.compile(".*" if part == "*" else part)


def varying(pattern: str) -> dict[str, tuple[bool, frozenset[int]]]:
    """By ``database``, ``schema`` and ``table``: does the pattern fit several names there apart from its groups, which are these?"""
    names_by_part, number = {}, 0
    for part, part_pattern in _named(pattern).items():
        regular = is_regular(pattern) and part_pattern != "*"
        groups = _compiled(part_pattern).groups if regular else 0
        plain = re.sub(r"\((?!\?)[^()]*\)", "", part_pattern) if regular else part_pattern
        odd = set("*?[.+|\\{()^$") if regular else set("*?[")
        names_by_part[part] = bool(set(plain) & odd), frozenset(range(number + 1, number + groups + 1))
        number += groups
    return names_by_part


def shown(pattern: str, part: str) -> str:
    """What a pattern says of one part."""
    return _named(pattern)[part]


def _named(pattern: str) -> dict[str, str]:
    *databases, name = ("*", *parts(pattern)) if len(parts(pattern)) == 1 else parts(pattern)
    names = ("database", "schema") if len(databases) == 2 else ("database",)
    return {**dict(zip(names, databases, strict=True)), "table": name}
