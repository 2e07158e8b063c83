"""Sealed messages: what opens with the key and at its place opens as it was, and nothing else opens at all."""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

import pyarrow as pa
import pytest

from ingest.config.scalars import KEY_BYTES, master_key
from ingest.errors import SetupError
from ingest.store.envelope import COLUMNS, NOT_SEALED, Opener, Seal, SealError, unwrapped, wrapped
from ingest.tables.schemas import BRONZE

KEY, ID, DAY = os.urandom(32), b"\1" * 8, "2026-03-14"
SEAL = Seal(ID, KEY)
OPENER = Opener(((7, None),), {ID: KEY}, {ID: DAY})
SCHEMA = BRONZE.part("kind", "batch", "source", "topic", "partition", "offset", "key", "value", "headers")
MESSAGES: list[tuple[bytes | None, bytes | None, list[dict[str, Any]] | None]] = [
    (b"key one", b'{"name": "one"}', None),
    (b"deleted", None, []),
    (None, b"", [{"key": "ünicode", "value": b"\xff\x00"}, {"key": "none", "value": None}]),
    (None, b"ISB1" + b"x" * 200, None),
    (None, os.urandom(70_000), [{"key": "ingest.oversize", "value": b"99"}]),
]


def page(batch: int = 7, source: str = "orders") -> pa.RecordBatch:
    """The messages, and a receipt after them."""
    rows = [
        {"kind": "message", "batch": batch, "source": source, "topic": "shop", "partition": 1, "offset": n}
        | dict(zip(("key", "value", "headers"), parts, strict=True))
        for n, parts in enumerate(MESSAGES)
    ]
    receipt = {"kind": "receipt", "batch": batch, "source": source, "topic": "shop", "value": b'{"count": 5}'}
    return pa.RecordBatch.from_pylist([*rows, receipt], schema=SCHEMA)


def sealed(**given: Any) -> pa.RecordBatch:
    """The messages alone, sealed, as bronze holds them."""
    return SEAL.page(page(**given), 7).slice(0, len(MESSAGES))


def with_cell(rows: pa.RecordBatch, name: str, at: int, cell: object) -> pa.RecordBatch:
    """The rows with another cell."""
    found = rows.to_pylist()
    found[at][name] = cell
    return pa.RecordBatch.from_pylist(found, schema=rows.schema)


def test_what_was_sealed_opens_as_it_was() -> None:
    """Keys, headers, NULL and empty values, and bytes that look sealed are all the same afterwards; receipts are plain."""
    whole = SEAL.page(page(), 7)
    assert page().slice(len(MESSAGES)).equals(whole.slice(len(MESSAGES)))
    assert (
        [None] * len(MESSAGES) == sealed().column("key").to_pylist() == sealed().column("headers").to_pylist()
    )
    assert page().slice(0, len(MESSAGES)).equals(OPENER.opened(sealed()))
    # as it is sent to a worker
    assert page().slice(0, len(MESSAGES)).equals(pickle.loads(pickle.dumps(OPENER)).opened(sealed()))


def test_nothing_of_a_message_is_in_its_sealed_bytes() -> None:
    """Equal messages are sealed differently each time, and no part of them is to be seen."""
    texts = sealed().column("value").to_pylist()
    assert texts != sealed().column("value").to_pylist()
    for text in texts:
        assert not any(
            part in text[12:] for part in (b"one", b"deleted", b"nicode", b"ISB1", b"orders", b"shop")
        )
    assert len({text[:28] for text in texts}) == 1  # one page, one key
    assert len({text[28:36] for text in texts}) == len(texts)  # and a number for each message


def test_a_page_without_keys_or_a_source_is_sealed_too() -> None:
    """Rows of files have no key, and those of Kafka do not name their source."""
    rows = page().drop_columns(["key", "source"])
    found = SEAL.page(rows, 7, "orders").slice(0, len(MESSAGES))
    assert "key" not in found.schema.names
    place = ("orders", "shop", 1, 0)
    assert (None, MESSAGES[0][1], None) == OPENER.open(7, place, found.column("value")[0].as_py())


@pytest.mark.parametrize(
    ("name", "cell"),
    [("offset", 4), ("partition", 2), ("topic", "shops"), ("source", "other"), ("batch", 8)],
)
def test_a_message_at_another_place_does_not_open(name: str, cell: object) -> None:
    """Swapping two rows' bytes, or copying them into another batch, is noticed."""
    with pytest.raises(
        SealError, match=r"of batch [78] was changed or moved after it was sealed: .* backup\."
    ):
        OPENER.opened(with_cell(sealed(), name, 0, cell))


def test_swapped_cut_and_changed_bytes_do_not_open() -> None:
    """Each byte counts: those of the mark and the key's number, of the salt, of the text, and of the tag."""
    texts = sealed().column("value").to_pylist()
    with pytest.raises(SealError, match="changed or moved"):
        OPENER.opened(with_cell(sealed(), "value", 0, texts[1]))
    first = texts[0]
    for at in range(len(first)):
        broken = first[:at] + bytes([first[at] ^ 1]) + first[at + 1 :]
        with pytest.raises(SealError):
            OPENER.opened(with_cell(sealed(), "value", 0, broken))
    for length in range(len(first)):
        with pytest.raises(SealError):
            OPENER.opened(with_cell(sealed(), "value", 0, first[:length]))


def test_a_wrong_key_opens_nothing() -> None:
    """Another key under the same id, and no key of that id."""
    with pytest.raises(SealError, match="changed or moved"):
        Opener(((7, None),), {ID: os.urandom(32)}, {ID: DAY}).opened(sealed())
    lost = Opener(((7, None),), {}, {ID: DAY}, {DAY: "the day's key was dropped by ann."})
    with pytest.raises(
        SealError, match=r"shop/1/0 of batch 7 cannot be opened: the day's key was dropped by ann\."
    ):
        lost.opened(sealed())


def test_the_batch_says_whether_a_message_is_sealed() -> None:
    """A plain message of any bytes stays what it is; a plain one among sealed ones is another's work."""
    plain = sealed()  # bytes that look sealed, in a batch that is not
    assert plain is Opener(((3, 7),)).opened(plain)
    assert plain is NOT_SEALED.opened(plain)
    with pytest.raises(SealError, match=r"shop/1/0 of batch 7 is not sealed as its batch is: .* backup\."):
        OPENER.opened(page().slice(0, len(MESSAGES)))
    both = pa.Table.from_batches([page(batch=6).slice(0, 5), sealed()]).combine_chunks().to_batches()[0]
    assert [row[1] for row in MESSAGES] * 2 == OPENER.opened(both).column("value").to_pylist()


def test_the_columns_are_those_that_are_decoded() -> None:
    """What is opened is what silver reads."""
    from ingest.silver.lift import INPUT

    assert INPUT == COLUMNS


def test_a_data_key_is_wrapped_for_one_name() -> None:
    """Neither another master key nor another day's name unwraps it."""
    master = os.urandom(32)
    data = wrapped(master, KEY, "2026-03-14.01")
    assert KEY == unwrapped(master, data, "2026-03-14.01")
    assert (
        None is unwrapped(master, data, "2026-03-15.01") is unwrapped(os.urandom(32), data, "2026-03-14.01")
    )
    assert None is unwrapped(master, data[:-1], "2026-03-14.01") is unwrapped(master, b"", "2026-03-14.01")
    assert KEY not in data
    assert repr(KEY) not in repr(SEAL) + repr(OPENER)


@pytest.mark.parametrize(
    "text", ["", "short", "0" * 63, "0" * 62 + "xx", "A" * 43, "correct horse battery staple"]
)
def test_a_master_key_is_not_a_password(text: str) -> None:
    """Hex or base64 of 32 bytes alone."""
    with pytest.raises(
        ValueError, match=f"a master key is {KEY_BYTES} bytes in hex or base64; make one with"
    ):
        master_key(text)
    assert "0" * 64 == master_key("0" * 64)
    assert "A" * 43 + "=" == master_key("A" * 43 + "=")


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ImportError's trace names a module that the user does not know."""
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(
        SetupError, match=r"`bronze: seal:` needs the package cryptography: `pip install 'ingest\[seal\]'`"
    ):
        wrapped(os.urandom(32), KEY, "2026-03-14.01")
