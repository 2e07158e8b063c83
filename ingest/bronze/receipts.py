"""Receipts: what was read from each file, stored with the messages so that positions are never lost."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

FINGERPRINT = 4096  # bytes at the head, and before the position, that are compared on every visit


@dataclass(frozen=True, slots=True)
class Receipt:
    """One read range of one file; byte counts are of the content after decompression.

    ``fault`` is empty, or says why the range could not be read beyond ``end``.
    """

    file: str
    start: int = 0
    end: int = 0
    count: int = 0
    sha256: str = ""
    size: int = -1  # of the file as stored, when it was planned
    mtime: float = 0.0
    head: str = ""  # hash of the file's first bytes, up to FINGERPRINT or the position
    tail: str = ""  # hash of the last bytes before ``end``, up to FINGERPRINT
    fault: str = ""
    damage: bool = False  # the content is at fault: reading the same bytes again does not help
    rest: bool = False  # of a compressed file, whose plain length is unknown: it may contain more

    def to_json(self) -> bytes:
        """The receipt in the form of bronze's ``value``."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, text: bytes | bytearray) -> Receipt:
        """Read a receipt back; members of later versions are ignored."""
        members = json.loads(bytes(text))
        return cls(**{name: value for name, value in members.items() if name in cls.__slots__})


@dataclass(slots=True)
class FileState:
    """The state of one file according to all its receipts."""

    position: int = 0  # the end of what was read, apart from holes
    size: int = -1  # of the file when it was last planned
    mtime: float = 0.0
    head: str = ""
    tail: str = ""
    rest: bool = False
    damage: str = ""  # the fault of content that cannot be read further in its present state
    ranges: dict[int, tuple[int, str]] = field(default_factory=dict)  # start -> (end, sha256)

    def add(self, receipt: Receipt) -> None:
        """Add one receipt, in any order."""
        if receipt.end > receipt.start:
            self.ranges[receipt.start] = (receipt.end, receipt.sha256)
            if receipt.start == 0:
                self.head = receipt.head
            if receipt.end >= self.position:
                self.position, self.tail = receipt.end, receipt.tail
        if (receipt.mtime, receipt.size) >= (self.mtime, self.size):
            if (receipt.mtime, receipt.size) > (self.mtime, self.size):
                self.damage = ""
            self.mtime, self.size, self.rest = receipt.mtime, receipt.size, receipt.rest
            self.damage = receipt.fault if receipt.damage else self.damage

    def unread(self, compressed: bool) -> bool:
        """True if something after the position was left for later."""
        return self.rest if compressed else self.position < self.size

    def holes(self) -> list[tuple[int, int]]:
        """Ranges before the position that could not be read when their neighbours were."""
        ranges, reached = [], 0
        for start in sorted(self.ranges):
            if start > reached:
                ranges.append((reached, start))
            reached = max(reached, self.ranges[start][0])
        return ranges
