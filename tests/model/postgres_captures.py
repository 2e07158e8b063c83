"""The dialects of a PostgreSQL source in the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ingest.config.model import TableRule
from tests.formats.one_history.postgres import LOST, POSTGRES
from tests.formats.one_history.test_one_history import NONE
from tests.model import postgres_types
from tests.model.checks import Capture, policy_of
from tests.model.parts import Life
from tests.model.postgres import TOLD, PostgresWriter
from tests.model.rows import History

UNTOLD = {"key_grows", "rename_table", "rotate", "recreate", "drop_database", "set_schema"}
"""Statements that give a table other rows, or another key: without their text no message tells of them."""

UNSURE = {"add_generated", "label_added", "label_renamed"}
"""Statements of which the documents of captures other than `pgoutput` do not say whether they are sent, or what their rows have then."""

RENAMING = {"rename_table", "rotate", "set_schema"}
"""Statements that mostly hold a mirror, until somebody decides."""


@dataclass(frozen=True, slots=True)
class PostgresCapture(Capture):
    """A dialect of PostgreSQL."""

    KINDS: ClassVar[Mapping[str, Any]] = {
        "types": postgres_types.DECLARED,
        "keys": postgres_types.KEYS,
        "writer": PostgresWriter,
    }

    def life(self, steps: Mapping[str, int], **parts: Any) -> Life:
        """A life of those steps that the dialect can express."""
        unsaid = UNTOLD if self.loss.statements else UNSURE
        known = {name: weight for name, weight in steps.items() if name not in unsaid}
        return Life(known, **{**self.KINDS, "hurried": True, "shown": self.loss.statements, **parts})

    def told(self, steps: Mapping[str, int]) -> dict[str, int]:
        """The steps of which messages alone tell everything, without what the checks of a lake see in its books."""
        hidden = (
            set(TOLD) - {"truncate", "truncate_several", "nothing", "add_generated"}
            if self.loss.statements
            else set()
        )
        return {name: weight for name, weight in steps.items() if name not in hidden}

    def rules(self, made: Iterable[History]) -> list[TableRule]:
        """What the pipeline file says of the tables of histories: keys where a file of messages has none."""
        return [
            TableRule(
                f"{one.source.within}.h{one.number}.{table}",
                keys=() if self.keyed else keys,
                on_schema_change=policy_of(one.number),
            )
            for one in made
            for table, keys in one.keys.items()
        ]


CAPTURES = tuple(
    PostgresCapture(f"{name} of PostgreSQL", dialect, LOST.get(name, NONE), keyed=True, typed=True)
    for name, dialect in POSTGRES.items()
)
