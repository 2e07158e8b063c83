"""Read a small file that a path in a pipeline file or on the command line names."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def data_of(path: Path, most: int) -> bytes:
    """The bytes of a regular file.

    A pipe would wait for a writer, a device would never end, and what the kernel makes up under ``/proc`` may do either.

    Raises:
        OSError: it cannot be read, is not a regular file, or has more than ``most`` bytes.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if status.st_size > most:
            raise OSError(errno.EFBIG, f"it has more than {most} bytes")
        data, part = bytearray(), file.read(most)
        while part and len(data) < most:
            data += part
            part = file.read(most - len(data))
    if not status.st_size and (data or part is None):
        raise OSError(errno.EINVAL, "it is not a file on a disk")
    return bytes(data)
