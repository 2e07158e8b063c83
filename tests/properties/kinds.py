"""The kinds of random histories of one table: what each may hold."""

from __future__ import annotations

from dataclasses import dataclass

SEQUENCE, TRANSACTION, ARRIVAL = "sequence", "transaction", "arrival"


@dataclass(frozen=True, slots=True)
class Kind:
    """What a history may hold. ``order`` says what places its messages.

    ``sequence``: each message has a number of its own, and may come in any order. ``transaction``: messages
    share numbers, ``arrival``: they have none; both must come in order and may be sent again from any point.
    """

    name: str
    key_types: tuple[str, ...]
    partials: bool = False
    moves: bool = False
    inherits: bool = False  # key changes that leave out what did not change
    truncates: bool = False
    epochs: bool = True
    order: str = SEQUENCE
    steps: int = 14
    lawless: bool = False  # changes that no database makes, one after the other
    truncate_at: tuple[int, ...] = ()  # steps at which every history of the kind truncates

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the key columns."""
        return tuple(f"k{i}" for i in range(len(self.key_types)))

    @property
    def any_order(self) -> bool:
        """True if the messages may come in any order."""
        return self.order == SEQUENCE


ONE_OF_EACH = (("int64",), ("string",), ("decimal(10,2)",), ("int64", "string"), ("decimal(10,2)", "string"))
KINDS = tuple(
    Kind(
        f"{name}_{'_'.join(one.partition('(')[0] for one in key_types)}_{order}",
        key_types,
        order=order,
        **flags,
    )
    for key_types in ONE_OF_EACH
    for order in (SEQUENCE, TRANSACTION, ARRIVAL)
    for name, flags in {
        "full": {},
        "partial": {"partials": True},
        "moving": {"moves": True},
        "everything": {"partials": True, "moves": True, "truncates": True},
        "inheriting": {"partials": True, "moves": True, "truncates": True, "inherits": order == SEQUENCE},
    }.items()
)
"""Every combination; key changes that inherit only where the sequence is strong."""
