"""A source table as a dict: what a mirror must hold once every message of its history has come.

It knows rows and statements and nothing of messages, orders or folds, so that it can judge them. Only one
thing is not the source's own: a row that existed before the capture began is known only as far as messages
have sent it.
"""

from __future__ import annotations

from collections.abc import Mapping

Key = tuple[object, ...]
Row = dict[str, str | None]


class Database:
    """One table: its live rows by typed key, and the columns of each that a message has sent."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns = columns
        self.rows: dict[Key, Row] = {}
        self.sent: dict[Key, set[str]] = {}
        self.dead: dict[Key, tuple[Row, int]] = {}  # keys without a row that had one, with its end by `clock`
        self.clock = 0  # the statement's time

    def _ends(self, key: Key) -> None:
        """The row of a key ends or moves; remember what messages sent of it."""
        if sent := self.sent.pop(key, None):
            row = self.rows[key]
            self.dead[key] = {one: row[one] if one in sent else None for one in self.columns}, self.clock

    def add_unseen(self, key: Key, row: Row) -> None:
        """Add a row from before the capture, of which no message was sent."""
        self.rows[key] = dict(row)

    def insert(self, key: Key, row: Row) -> None:
        """A new row."""
        assert key not in self.rows
        self.rows[key] = dict(row)
        self.sent[key] = set(self.columns)
        self.dead.pop(key, None)

    def update(self, key: Key, changed: Mapping[str, str | None], *, whole: bool) -> Row:
        """Change some columns; ``whole`` says that the message shows the whole row."""
        self.rows[key].update(changed)
        self.sent.setdefault(key, set()).update(self.columns if whole else changed)
        self.dead.pop(key, None)
        return self.rows[key]

    def move(self, old: Key, new: Key, changed: Mapping[str, str | None], *, whole: bool) -> Row:
        """Give a row another key, and change some columns."""
        assert new not in self.rows
        sent = self.sent.get(old, set())
        self._ends(old)
        self.rows[new], self.sent[new] = self.rows.pop(old), sent
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
        self.sent = {key: set(self.columns) for key in self.rows}
        self.dead = {key: row for key, row in self.dead.items() if key not in self.rows}
        return self.rows

    def known(self) -> dict[Key, Row]:
        """The rows of which a message was sent, with NULL in the columns that no message sent."""
        return {
            key: {column: self.rows[key][column] if column in sent else None for column in self.columns}
            for key, sent in self.sent.items()
        }
