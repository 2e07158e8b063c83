"""The support matrix: one module per documented format, found by its name.

A format module (``dts_canal`` for the format ``dts-canal``) holds

- ``ABOUT``: an `About`, from which help, the support matrix and ``detect`` are made;
- ``parse(message, hints)``: the changes of one message, in the message's own order.  It raises
  `ingest.errors.Undecodable` for a message that it cannot read, and `ingest.errors.NoValueError` for one without a value
  that means no more than a tombstone, as `Message.sent` does; and nothing else;
- ``parse_many(values, hints)``, if it can be read faster so: the changes of the first messages as columns, up to one
  that is not as usual (`ingest.change.ChangeColumns`).  It gives what ``parse`` gives, and raises nothing;
- ``part(value)`` and ``joined(parts)``, if a message may be a part of one: `ingest.decoding.split.MessagePart` or None,
  and the whole message of the data of all parts; ``parse`` refuses a part as ``split-message``;
- ``recognise(sample)``: the evidence that one message is of this format, or None; `SharedEvidence` if sister dialects
  may show it as well.  It may raise `ingest.errors.Undecodable` where the sample cannot be read: `evidence` asks it.

Adding a format is adding its module here; nothing else under ``ingest`` names it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Protocol, cast

from msgspec.structs import replace

from ingest.change import Change, Hints, Message
from ingest.decoding import documents, rows, unread
from ingest.errors import ConfigError, NoValueError, Undecodable
from ingest.images_before import WHOLE, ImagesBefore


class SharedEvidence(str):
    """Evidence that is not this format's alone: one mark of a sister outweighs any number of it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class About:
    """What the support matrix says of one format; every text is for readers.

    Args:
        title: the format in a few words, with its vendor.
        document: the source document and its section.
        operations: what it can say: ``insert update delete read truncate ddl heartbeat ...``.
        order: the documented position that orders changes, in words.
        strength: ``strong`` (any arrival order gives the same mirror) or ``weak`` (arrival decides).
        keys: where the key columns come from.
        types: where column types come from.
        images: ``full``, ``partial`` or ``full (updates may be partial)``.
        ddl: where the DDL text or structure is, or ``none``.
        losses: what the dialect loses by its own documentation, one sentence each.
        options: the ``options:`` that have a meaning here, with the default in words.
        framing: ``lines`` for JSON, ``length`` for bare Avro; what a source uses by default.
        binary: True where a message is not JSON text.
        by_registry: True where a message names its schema, which a schema registry has.
        schema_files: True where it may name it by a fingerprint, and a folder of files has it.
        to_decide: what no message shows and has to be written before the first run, as a sentence; empty where there is nothing.
        event_marks: texts in lower case of which a table event without a position holds one.
        order_by: what orders changes where the source does not say: ``sequence`` or ``arrival``.
        null_deletes: True where a delete may be nothing but a null value.
        numbers_parts: True where a change says which part of how many in its transaction it is.
        bytes_as: how texts stand for bytes where the option ``binary`` says nothing; empty where bytes are bytes.
        leaves_out_nulls: ``by default`` or ``by a setting`` where a row may lack a column because it is NULL there, which no
            message tells from an unchanged one; ``in inserts`` where updates name the columns that became NULL, ``with the key
            alone`` where those writers do that the option ``key_is_full`` tells from others.
        nulls_for_large: True where a row notes its NULLs that may stand for a large value which did not change (`UNSURE_NULLS`).
        counts_rows: True where a position of a log's file ends with a count of rows, which may start again inside one position.
        before: how images before are written.
        split_moves: True where a changed key comes as a delete and an insert, which may lack unchanged values.
        load_ends: what says that a full load has come to its end: ``marks`` before and after its rows (`LOAD_BEGUN`, `LOAD_ENDED`),
            its ``last row`` (`LOAD_ENDS`), unless it runs while the table changes (`READ_MEANWHILE`), or nothing.
        placed_loads: True where rows of a full load come before all changes although they name a position.
        sets_as_lists: True where a SET comes as a list of its labels, as does a list in a JSON column.
        by_keys: operations that are decoded otherwise by another key of the pipeline file, beyond the names of its columns.
        by_keys_in_schemas: further ones, of tables that have a schema.
        members: names of members that are no columns of a row: one that the pipeline file names as a column is one.
        shared_reads: True where rows of a snapshot carry the log's position when it was taken, which they all share.
    """

    title: str
    document: str
    operations: tuple[str, ...]
    order: str
    strength: str
    keys: str
    types: str
    images: str
    ddl: str
    losses: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    framing: str = "lines"
    binary: bool = False
    by_registry: bool = False
    schema_files: bool = False
    to_decide: str = ""
    order_by: str = "sequence"
    event_marks: tuple[str, ...] = ()
    null_deletes: bool = False
    numbers_parts: bool = False
    split_moves: bool = False
    bytes_as: str = ""
    leaves_out_nulls: str = ""
    nulls_for_large: bool = False
    counts_rows: bool = False
    load_ends: str = ""
    placed_loads: bool = False
    sets_as_lists: bool = False
    by_keys: tuple[str, ...] = ()
    by_keys_in_schemas: tuple[str, ...] = ()
    members: frozenset[str] = frozenset()
    shared_reads: bool = False
    before: ImagesBefore = WHOLE

    @property
    def by_arrival(self) -> bool:
        """True if arrival orders all of its messages, or some of them."""
        return self.strength != "strong" or self.order_by == "arrival"


UNKNOWN = About("", "", ("insert",), "", "", "", "", "", "")
"""Of a format that is not known: nothing odd."""


class Format(Protocol):
    """The shape of a format module."""

    ABOUT: About

    @staticmethod
    def parse(message: Message, hints: Hints) -> Iterable[Change]:
        """The changes of one message."""

    @staticmethod
    def recognise(sample: bytes) -> str | None:
        """Evidence that the sample is of this format."""


Parse = Callable[[Message, Hints], Iterable[Change]]


@cache
def reader(name: str) -> Parse:
    """A format's ``parse``, which also reads tombstones, messages of several documents, and documents in a frame or an envelope.

    A message that it cannot read is refused by what it is, if that is known.
    """
    module = load(name)
    return partial(_named, partial(_read_records if module.ABOUT.binary else _read, module.parse))


def _named(parse: Parse, message: Message, hints: Hints) -> Iterable[Change]:
    try:
        return parse(message, hints)
    except NoValueError:
        return rows.TOMBSTONE
    except Undecodable as error:
        kind = None
        if error.code in _UNLIKE and message.value:
            kind = unread.named(message.value, framed=hints.framed)
        if kind is None:
            raise
        raise Undecodable(kind.code, kind.words) from None


def _read_records(parse: Parse, message: Message, hints: Hints) -> Iterable[Change]:
    try:
        return parse(message, hints)
    except Undecodable as error:
        records = documents.measured(message.value or b"") if error.code in _UNLIKE else []
        if not records:
            raise
    return _of_documents(parse, message, hints, records)


_UNLIKE = frozenset(
    {
        "not-this-format",
        "bad-json",
        "bad-avro",
        "bad-protobuf",
        "bad-utf8",
        "truncated",
        "trailing-bytes",
        "no-frame",
        "no-table",
        "no-rows",
        "unknown-operation",
    }
)
"""The codes of messages that may be of another format."""


def _read(parse: Parse, message: Message, hints: Hints) -> Iterable[Change]:
    value = message.value
    if value is None:
        return parse(message, hints)
    if documents.is_enclosed(value):
        return _of_documents(parse, message, hints, documents.inside(value))
    try:
        return list(parse(message, hints))
    except Undecodable as error:
        parts = documents.inside(value) if error.code in ("bad-json", "not-this-format") else [value]
        if parts == [value]:
            raise
    return _of_documents(parse, message, hints, parts)


def _of_documents(parse: Parse, message: Message, hints: Hints, parts: list[bytes]) -> list[Change]:
    """The changes of a message's documents, numbered through; one document that cannot be read refuses all."""
    key = message.key and documents.unframed(message.key)
    changes = [change for part in parts for change in parse(message._replace(value=part, key=key), hints)]
    if len(parts) == 1:
        return changes
    return [replace(change, row=row) for row, change in enumerate(changes)]


def evidence(name: str, sample: bytes) -> str | None:
    """What a format says of one message; nothing where it stumbles over it."""
    try:
        return load(name).recognise(sample)
    except (Undecodable, ValueError, RecursionError):
        return None


@cache
def names() -> tuple[str, ...]:
    """Every format's name, sorted."""
    return tuple(sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__)))


@cache
def load(name: str) -> Format:
    """The module of a format by its name; a `ConfigError` with the nearest names if there is none."""
    if name not in names():
        import difflib

        near = difflib.get_close_matches(name, names(), 3, 0.3)
        raise ConfigError([f"{name!r} is not a format; did you mean {' or '.join(near or names())}?"])
    return cast("Format", importlib.import_module(f"{__name__}.{name.replace('-', '_')}"))
