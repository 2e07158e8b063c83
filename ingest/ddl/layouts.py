"""What became of a table's columns between two messages whose fields are in the order of its columns.

PostgreSQL gives a new column the last place, and a column keeps its place among the others whatever its name becomes
(documentation, pg_attribute, attnum). So the order of the fields tells a column with a new name from a new column.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from ingest.ddl.pg_types import between


class Rearranged(NamedTuple):
    """What became of columns: the new name by the old one, and the names under which the rows from before have values that the
    order does not tell.
    """

    renamed: dict[str, str]
    unknown: list[str]


def rearranged(old: Sequence[str], new: Sequence[str], unchanged: Collection[str]) -> Rearranged:
    """What became of the columns ``old`` that are now those of ``new``.

    Of the ``unchanged`` ones the first row with the new columns has a value from before it. Columns that are added at the end, or
    dropped, are nothing; so is a column of which only the connector's settings can have kept the rows free until now.
    """
    names_before, tail = {*old}, new[len(old) :]
    if len(new) >= len(old) and new[len(old) - 1] == old[-1] and names_before.isdisjoint(tail):
        renamed = {was: name for was, name in zip(old, new, strict=False) if was != name}
        # names that exchanged their places may also be those of a table that was made again with the same rows
        return Rearranged({}, [*renamed.values()]) if _exchange_names(renamed) else Rearranged(renamed, [])
    kept = [name for name in old if name in new]
    stay = [name for name in new if name in names_before]
    if kept != stay:
        return Rearranged({}, list(_moved(old, new)))
    return _between_kept(old, new, kept, unchanged)


def _exchange_names(renamed: Mapping[str, str]) -> bool:
    """True if some columns have each other's names; not if each name that is taken over was given up for a new one."""
    for first in renamed:
        name = renamed[first]
        while name in renamed and name != first:
            name = renamed[name]
        if name == first:
            return True
    return False


def _between_kept(
    old: Sequence[str], new: Sequence[str], kept: Sequence[str], unchanged: Collection[str]
) -> Rearranged:
    """The same where the columns that were ``kept`` have their order: by the other ones between them."""
    renamed, unknown = dict[str, str](), list[str]()
    *inner, last = zip(between(old, kept), between(new, kept), strict=True)
    for gone, came in inner:
        if len(gone) == len(came):
            renamed |= zip(gone, came, strict=True)
        else:
            unknown += came
    gone, came = last
    if len(gone) == len(came) and {*came} <= {*unchanged}:
        renamed |= zip(gone, came, strict=True)
    if unknown and len(new) == len(old):  # each name may have moved on to the next column
        return Rearranged({}, [name for was, name in zip(old, new, strict=True) if was != name])
    return Rearranged(renamed, unknown if {*old} - {*new} - {*renamed} else [])


def _moved(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """The names after one that came later than they did, and new ones before the last of the others."""
    differ = [name for was, name in zip(old, new, strict=False) if was != name]
    if len(old) == len(new) and len(differ) == 2:  # or they exchanged their names
        yield from differ
        return
    highest, last = -1, max(number for number, name in enumerate(new) if name in old)
    for number, name in enumerate(new):
        place = old.index(name) if name in old else None
        if number < last if place is None else place < highest:
            yield name
        highest = max(highest, -1 if place is None else place)
