"""Open regular files alone: a pipe would wait for a writer, and a device would never end.

What a path in a pipeline file or on the command line names is the user's; in a source's folder, or in a lake, others may
have put it there.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

NOT_REGULAR = "it is not a regular file"


def opened(path: str | Path, flags: int = 0, folder: int | None = None) -> BinaryIO:
    """A regular file for reading, without a buffer.

    Args:
        path: the file.
        flags: further ones of ``open(2)``, such as ``O_NOFOLLOW``.
        folder: the open folder that a relative path is in.

    Raises:
        OSError: it cannot be opened, or is not a regular file.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags, dir_fd=folder)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise (
            OSError(errno.EISDIR, os.strerror(errno.EISDIR), path) if stat.S_ISDIR(mode) else _irregular(path)
        )
    file: BinaryIO = open(handle, "rb", buffering=0)  # noqa: SIM115 - the caller closes it
    return file


def refuse_irregular(paths: Iterable[str]) -> None:
    """Refuse what is no regular file, links among them, before a library opens it by its name; a missing one is for the library.

    Raises:
        OSError: the first such path.
    """
    for path in paths:
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(os.lstat(path).st_mode):
                raise _irregular(path)


def _irregular(path: str | Path) -> OSError:
    return OSError(errno.EINVAL, NOT_REGULAR, str(path))


def data_of(path: Path, most: int) -> bytes:
    """The bytes of a regular file; what the kernel makes up under ``/proc`` may wait for ever, or never end.

    Raises:
        OSError: it cannot be read, is not a regular file, or has more than ``most`` bytes.
    """
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"it has more than {most} bytes")
        data, part = bytearray(), file.read(most)
        while part and len(data) < most:
            data += part
            part = file.read(most - len(data))
    if not size and (data or part is None):
        raise OSError(errno.EINVAL, "it is not a file on a disk")
    return bytes(data)
