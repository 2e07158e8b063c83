"""Sealed messages: the bytes, key and headers of a message, encrypted together under the data key of its day.

Runs in Python workers and imports no Spark. A sealed value is a mark, the data key's id, the salt of the page that it
was written with, its number in the page, and AES-256-GCM's ciphertext with its tag. Each page has a key of its own,
derived from the data key and its salt, so that no nonce is ever used twice. The message's place is authenticated: a
value that is moved to another place, cut or changed does not open.
"""

from __future__ import annotations

import hmac
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import zstandard

from ingest.errors import FaultError, SetupError

if TYPE_CHECKING:
    import pyarrow as pa
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MARK = b"ISB1"
KEY_DROPPED = "ingest.key-dropped"  # the only header of a message that was given up before it was decoded
ID_BYTES = 8
_SALT_BYTES, _NUMBER_BYTES, _NONCE_BYTES = 16, 8, 12
_SALT_AT, _NUMBER_AT = len(MARK) + ID_BYTES, len(MARK) + ID_BYTES + _SALT_BYTES
_BODY_AT = _NUMBER_AT + _NUMBER_BYTES
_PLACE = ("source", "topic", "partition", "offset")
_PARTS = ("key", "value", "headers")
COLUMNS = ("batch", *_PLACE, *_PARTS)  # of bronze, that are needed to open messages


class SealError(FaultError, SetupError):
    """Sealed messages cannot be read or written; the text names the days and what to do."""

    def __init__(self, text: str) -> None:
        super().__init__(text, {})


class Parts(NamedTuple):
    """What of a message is sealed."""

    key: bytes | None
    value: bytes | None
    headers: list[dict[str, Any]] | None


def cipher(key: bytes) -> AESGCM:
    """AES-GCM with a key.

    Raises:
        SetupError: the library is not installed.
    """
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise SetupError(
            "`bronze: seal:` needs the package cryptography: `pip install 'ingest[seal]'` installs it."
        ) from None
    return AESGCM(key)


def wrapped(master: bytes, data_key: bytes, name: str) -> bytes:
    """A data key, encrypted under the master key for one name."""
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + cipher(master).encrypt(nonce, data_key, name.encode())


def unwrapped(master: bytes, data: bytes, name: str) -> bytes | None:
    """The data key; None if another master key wrapped it, or it was changed."""
    return _decrypted(cipher(master), data[:_NONCE_BYTES], data[_NONCE_BYTES:], name.encode())


def _decrypted(aes: AESGCM, nonce: bytes, body: bytes, place: bytes) -> bytes | None:
    from cryptography.exceptions import InvalidTag

    try:
        return aes.decrypt(nonce, body, place)
    except (InvalidTag, ValueError):
        return None


def _page_cipher(data_key: bytes, salt: bytes) -> AESGCM:
    return cipher(hmac.digest(data_key, b"ingest page" + salt, "sha256"))


def _place(batch: int, place: Sequence[Any]) -> bytes:
    return msgspec.msgpack.encode((batch, *place))


def _nonce(number: int) -> bytes:
    return number.to_bytes(_NONCE_BYTES, "big")


Spans = tuple[tuple[int, int | None], ...]
"""Runs of batches: the first, and the first one after them; None while there is none."""


# --- writing --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seal:
    """The data key that new messages are sealed with; it is sent to the workers, and never written."""

    id: bytes
    data_key: bytes = field(repr=False)

    def page(self, rows: pa.RecordBatch, batch: int, source: str = "") -> pa.RecordBatch:
        """Rows of bronze with their messages sealed; ``source`` is for rows that do not name it."""
        import pyarrow.compute as pc  # late: what only looks opens a message or two without Arrow

        is_message = pc.equal(rows.column("kind"), "message")
        if not is_message.true_count:
            return rows
        wanted = is_message.to_pylist()
        salt = os.urandom(_SALT_BYTES)
        aes, packer = _page_cipher(self.data_key, salt), zstandard.ZstdCompressor()
        head = MARK + self.id + salt
        columns = [_listed(rows, name, source) for name in (*_PLACE, *_PARTS)]
        values: list[bytes | None] = []
        for number, row in enumerate(zip(*columns, strict=True)):
            if wanted[number]:
                plain = packer.compress(msgspec.msgpack.encode(row[len(_PLACE) :]))
                body = aes.encrypt(_nonce(number), plain, _place(batch, row[: len(_PLACE)]))
                values.append(b"".join((head, number.to_bytes(_NUMBER_BYTES, "big"), body)))
            else:
                values.append(row[len(_PLACE) + 1])
        return _with_parts(rows, values)


def _listed(rows: pa.RecordBatch, name: str, source: str) -> list[Any]:
    if name in rows.schema.names:
        return rows.column(name).to_pylist()  # type: ignore[no-any-return]
    return [source or None if name == "source" else None] * rows.num_rows


def _with_parts(
    rows: pa.RecordBatch, values: list[Any], keys: list[Any] | None = None, headers: list[Any] | None = None
) -> pa.RecordBatch:
    """Rows with other values, keys and headers; keys and headers that are not given are NULL, as those of receipts."""
    import pyarrow as pa

    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    for name, cells in (("key", keys), ("value", values), ("headers", headers)):
        if name in columns:
            kind = rows.schema.field(name).type
            columns[name] = pa.nulls(rows.num_rows, kind) if cells is None else pa.array(cells, kind)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=rows.schema)


# --- reading --------------------------------------------------------------------------------------


def key_id(value: bytes | None) -> bytes:
    """The id of the data key that a message was sealed with."""
    return bytes(value or b"")[len(MARK) : _SALT_AT]


class Dropped(NamedTuple):
    """What dropping a day's key has made unreadable, and the text that says so."""

    text: str
    ids: frozenset[bytes]
    last: int | None = None  # the last batch sealed with it; None if it is all of the day

    def covers(self, batch: int) -> bool:
        """True if messages of the day that landed with a batch are unreadable."""
        return self.last is None or batch <= self.last


@dataclass(frozen=True, slots=True)
class Opener:
    """What opens sealed messages: the data keys, and the batches whose messages are sealed.

    A message of such a batch must be sealed, and one of any other batch is plain, whatever its bytes look like.
    """

    spans: Spans = ()
    keys: Mapping[bytes, bytes] = field(default_factory=dict, repr=False)  # data keys by id
    days: Mapping[bytes, str] = field(default_factory=dict)  # of all keys that were ever seen
    faults: Mapping[str, str] = field(default_factory=dict)  # day -> why its messages cannot be opened
    missing: str = ""  # the fault of days that have no key
    dropped: Mapping[str, Dropped] = field(default_factory=dict)  # days whose key was dropped on purpose

    def seals(self, batch: int) -> bool:
        """True if the messages of a batch are sealed."""
        return any(first <= batch and (end is None or batch < end) for first, end in self.spans)

    def opened(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Messages with the columns `INPUT` of bronze, as they were sent."""
        numbers = rows.column("batch").to_pylist() if self.spans else []
        sealed = {number for number in set(numbers) if self.seals(number)}
        if not sealed:
            return rows
        columns = [rows.column(name).to_pylist() for name in (*_PLACE, *_PARTS)]
        parts = [
            self._sent(number, row[:4], row[5]) if number in sealed else Parts(*row[4:])
            for number, row in zip(numbers, zip(*columns, strict=True), strict=True)
        ]
        keys, values, headers = (list(part) for part in zip(*parts, strict=True))
        return _with_parts(rows, values, keys, headers)

    def _sent(self, batch: int, place: Sequence[Any], value: bytes | None) -> Parts:
        """One message; of one whose key was dropped, a header that says so."""
        if self.is_lost(value):
            return Parts(None, None, [{"key": KEY_DROPPED, "value": None}])
        return self.open(batch, place, value)

    def open(self, batch: int, place: Sequence[Any], value: bytes | None) -> Parts:
        """One message.

        Args:
            batch: its batch.
            place: its source, topic, partition and offset.
            value: the sealed bytes.

        Raises:
            SealError: its key is not there, or it was changed or moved after it was sealed.
        """
        data = bytes(value or b"")
        where = f"The message at {place[1]}/{place[2]}/{place[3]} of batch {batch}"
        if len(data) <= _BODY_AT or not data.startswith(MARK):
            raise SealError(f"{where} is not sealed as its batch is: {_RESTORE}")
        number = key_id(data)
        if number not in self.keys:
            raise SealError(f"{where} cannot be opened: {self.fault(self.days.get(number, ''), batch)}")
        aes = _opening(self.keys[number], data[_SALT_AT:_NUMBER_AT])
        nonce = _nonce(int.from_bytes(data[_NUMBER_AT:_BODY_AT], "big"))
        plain = _decrypted(aes, nonce, data[_BODY_AT:], _place(batch, place))
        if plain is None:
            raise SealError(f"{where} was changed or moved after it was sealed: {_RESTORE}")
        return Parts(*msgspec.msgpack.decode(_unpacker(threading.get_ident()).decompress(plain)))

    def sealed_again(self, batch: int, place: Sequence[Any], value: bytes, parts: Parts) -> bytes:
        """Other contents of a message, sealed with the data key of its present ones, which have been opened."""
        import pyarrow as pa

        number = key_id(value)
        row = dict(zip((*_PLACE, *_PARTS), (*place, *parts), strict=True)) | {"kind": "message"}
        page = Seal(number, self.keys[number]).page(pa.RecordBatch.from_pylist([row]), batch)
        sealed: bytes = page.column("value")[0].as_py()
        return sealed

    def is_lost(self, value: bytes | None) -> bool:
        """True for a sealed message whose day's key was dropped on purpose: it can no longer be read."""
        number = key_id(value)
        gone = self.dropped.get(self.days.get(number, ""))
        return gone is not None and number in gone.ids

    def fault(self, day: str, batch: int) -> str:
        """Why messages of a day, landed with a batch, cannot be opened; empty if they can."""
        if (gone := self.dropped.get(day)) and gone.covers(batch):
            return gone.text
        if day in self.faults:
            return self.faults[day]
        readable = any(self.days.get(number) == day for number in self.keys)
        return "" if readable else self.missing


@lru_cache(maxsize=64)
def _unpacker(_thread: int) -> zstandard.ZstdDecompressor:
    """A decompressor of a thread's own: making one costs more than a message."""
    return zstandard.ZstdDecompressor()


_RESTORE = "something other than ingest has written to bronze, so restore its folder from a backup."
_opening = lru_cache(maxsize=64)(_page_cipher)
NOT_SEALED = Opener()
