"""A source table as a dict: what a mirror must hold once every message of its history has come.

It knows rows and statements and nothing of messages, orders or folds, so that it can judge them. Only one
thing is not the source's own: a row that stood before the capture began is known only as far as messages
have told it.
"""

from __future__ import annotations

from collections.abc import Mapping

Key = tuple[object, ...]
Row = dict[str, str | None]


class Database:
    """One table: its live rows by typed key, and which columns of each a message has told."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns = columns
        self.rows: dict[Key, Row] = {}
        self.told: dict[Key, set[str]] = {}
        self.dead: dict[Key, tuple[Row, int]] = {}  # keys without a row that had one, with its end by `clock`
        self.clock = 0  # the statement's time

    def _ends(self, key: Key) -> None:
        """A row that messages told of leaves its key."""
        if told := self.told.pop(key, None):
            row = self.rows[key]
            self.dead[key] = {one: row[one] if one in told else None for one in self.columns}, self.clock

    def stand(self, key: Key, row: Row) -> None:
        """A row from before the capture: it is there, and nobody has heard of it."""
        self.rows[key] = dict(row)

    def insert(self, key: Key, row: Row) -> None:
        """A new row."""
        assert key not in self.rows
        self.rows[key] = dict(row)
        self.told[key] = set(self.columns)
        self.dead.pop(key, None)

    def update(self, key: Key, changed: Mapping[str, str | None], *, whole: bool) -> Row:
        """Change some columns; ``whole`` says that the message shows the whole row."""
        self.rows[key].update(changed)
        self.told.setdefault(key, set()).update(self.columns if whole else changed)
        self.dead.pop(key, None)
        return self.rows[key]

    def move(self, old: Key, new: Key, changed: Mapping[str, str | None], *, whole: bool) -> Row:
        """Give a row another key, and change some columns."""
        assert new not in self.rows
        told = self.told.get(old, set())
        self._ends(old)
        self.rows[new], self.told[new] = self.rows.pop(old), told
        return self.update(new, changed, whole=whole)

    def delete(self, key: Key) -> Row:
        """Remove a row."""
        self._ends(key)
        return self.rows.pop(key)

    def truncate(self) -> None:
        """Remove all rows."""
        for key in self.rows:
            self._ends(key)
        self.rows.clear()

    def read(self) -> dict[Key, Row]:
        """A snapshot of all rows, after which all are known."""
        self.told = {key: set(self.columns) for key in self.rows}
        self.dead = {key: row for key, row in self.dead.items() if key not in self.rows}
        return self.rows

    def known(self) -> dict[Key, Row]:
        """The rows of which some message told, with NULL in what no message told."""
        return {
            key: {column: self.rows[key][column] if column in told else None for column in self.columns}
            for key, told in self.told.items()
        }
