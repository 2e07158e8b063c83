"""Messages from a file that is named on the command line, or from stdin."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from ingest import framing as cut
from ingest.errors import IngestError, Undecodable
from ingest.framing import Record


def messages(
    file: str, framing: str | None, binary: bool | None
) -> tuple[str, Iterator[Record | Undecodable]]:
    """The framing and the messages of a file or stdin (``-``); damage that ends the reading comes last, as what it is.

    Without a framing it is found from the content, and whether messages are ``binary`` from the first byte.
    """
    stream = opened(file)
    try:
        plain = cut.decompressed(stream)
        if framing == "lines":
            name, records = framing, cut.lines(plain)
        elif framing is not None:
            name, records = framing, cut.records(plain.read(), framing)
        else:
            if binary is None:
                head: bytes = plain.peek(4096)[:4096] if hasattr(plain, "peek") else b""
                binary = head.removeprefix(cut.BOM).lstrip()[:1] not in (b"{", b"[", b"")
            name, records = cut.sniffed(plain, binary)
    except cut.DAMAGE as error:
        stream.close()
        return framing or "raw", iter((_damage(file, error),))
    return name, _until_damage(file, stream, records)


def _until_damage(file: str, stream: BinaryIO, records: Iterable[Record]) -> Iterator[Record | Undecodable]:
    try:
        yield from records
    except Undecodable as error:
        yield error
    except cut.DAMAGE as error:
        yield _damage(file, error)
    finally:
        stream.close()


def _damage(file: str, error: Exception) -> Undecodable:
    if isinstance(error, OSError) and error.errno:
        raise IngestError(f"{file} cannot be read: {error.strerror}") from None
    return Undecodable("damaged-file", f"the compressed file breaks off or is damaged: {error}")


def opened(file: str) -> BinaryIO:
    """The bytes of a file as they are; an `IngestError` if it cannot be read."""
    if file == "-":
        return sys.stdin.buffer
    if Path(file).is_dir():
        raise IngestError(f"{file} is a folder; name a file in it")
    try:
        return Path(file).open("rb")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise IngestError(f"{file} cannot be read: {reason}") from None
