"""Texts that a MODIFY to JSON leaves as they are: JSON of MariaDB is a text, whereas MySQL prints each document in its own form.

The statement is the same in both; the rows after it have a text's type, or JSON's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ingest import types
from ingest.fold import SchemaStep
from ingest.ledgers.stamps import types_of
from ingest.tables import duck
from ingest.tables.tables import Tables

_JSON = "json"


class _Span(NamedTuple):
    """Between which places of history a column has a name; it has no end where ``until`` is empty."""

    name: str
    after: str
    until: str = ""


def stays_text(lake: Tables, changes: str, steps: Sequence[SchemaStep], step: SchemaStep) -> bool:
    """True if the rows that came after a step which makes JSON of a column have texts there.

    Args:
        lake: where the changes are.
        changes: the condition in SQL for the changes of the step's lane.
        steps: all schema steps of the lane, in order.
        step: one of them.
    """
    if types.base(step.type) != _JSON or step.solid or step.dialect != "mysql":
        return False
    sent = {logical for span in _spans(steps, step) for logical in _sent(lake, changes, span)}
    return sent == {"string"}


def takes_json_away(step: SchemaStep) -> bool:
    """True if a JSON column gets another type: what rows have there from then on does not say what JSON was."""
    return step.dialect == "mysql" and types.base(step.old) == _JSON != types.base(step.type)


def _spans(steps: Sequence[SchemaStep], step: SchemaStep) -> Iterator[_Span]:
    """The column's names from a step on, until it gets another type or ends."""
    name, after = step.column, str(step.order)
    for later in steps[steps.index(step) + 1 :]:
        place = str(later.order)
        if later.column == name and _ends(later):
            yield _Span(name, after, place)
            return
        if later.action == "rename_column" and later.column == name and not later.since:
            yield _Span(name, after, place)
            name, after = later.to, place
    yield _Span(name, after)


def _ends(step: SchemaStep) -> bool:
    """True if a column has no type of before any more; a repeated statement changed it at its first place."""
    if step.since:
        return False
    changes_type = step.retypes and types.base(step.type) not in (_JSON, "unknown", "")
    return changes_type or step.action == "drop_column"


def _sent(lake: Tables, changes: str, span: _Span) -> set[str]:
    """The types that the messages in a span name of the column."""
    until = f" AND order_key < {duck.text(span.until)}" if span.until else ""
    rows = lake.ask(
        f"""SELECT DISTINCT types FROM {{changes.change}}
            WHERE {changes} AND op <> 'truncate' AND order_key > {duck.text(span.after)}{until}"""
    )
    return {types.base(types_of(row["types"]).get(span.name, "")) for row in rows}
