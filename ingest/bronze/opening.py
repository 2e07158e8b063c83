"""Open a source's file as it was listed.

Whoever may write to a source's folder may exchange a file for a link, or for another file, between the look and the
reading, and so bring any file that this user can read into the lake. So no link is followed below the source's folder,
nothing but a regular file is opened, and it must be the one that was listed. See openat(2), O_NOFOLLOW.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ingest.config import regular_files

_WILD = re.compile(r"[*?\[]")
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Identity:
    """What a file was when it was listed."""

    device: int = 0
    inode: int = 0
    mtime: float = 0.0

    @classmethod
    def of(cls, status: os.stat_result) -> Identity:
        """A file's, by its status."""
        return cls(status.st_dev, status.st_ino, status.st_mtime)

    def is_of(self, status: os.stat_result) -> bool:
        """True for the file itself; some network file systems number a file again, but keep its time."""
        other = Identity.of(status)
        return (self.device, self.inode) == (other.device, other.inode) or self.mtime == other.mtime


def root_of(pattern: str) -> str:
    """The folder below which no link is followed: that of the pattern's part without wildcards; empty without any."""
    # without wildcards the pattern names one file: a link there is the operator's own
    return os.path.realpath(folder_of(pattern)) if _WILD.search(pattern) else ""


def folder_of(pattern: str) -> str:
    """The folder of a pattern's part without wildcards."""
    return os.path.dirname(_WILD.split(pattern, maxsplit=1)[0])  # noqa: PTH120


def opened(path: str, root: str = "", listed: Identity | None = None) -> BinaryIO:
    """A file for reading, without a buffer.

    Args:
        path: the file; below ``root`` it may have been listed through links that lead to a place in ``root``.
        root: as `root_of` gives it.
        listed: what the file was when it was listed.

    Raises:
        OSError: it is not a regular file, leads out of the root, or is not the file that was listed.
    """
    file = _within(os.path.realpath(path), root) if root else regular_files.opened(path)
    if listed is not None and not listed.is_of(os.fstat(file.fileno())):
        file.close()
        raise OSError(errno.ESTALE, "another file took its place while it was being read", path)
    return file


def _within(real: str, root: str) -> BinaryIO:
    """A file below the root without a link on the way; the path was resolved a moment ago."""
    above = root.rstrip(os.sep) + os.sep
    if not real.startswith(above):
        raise OSError(errno.EXDEV, "it leads out of the source's folder", real)
    *folders, name = Path(real.removeprefix(above)).parts
    folder = os.open(root, _FOLDER)
    try:
        for below in folders:
            inner = os.open(below, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        return regular_files.opened(name, os.O_NOFOLLOW, folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise OSError(errno.EXDEV, "a link took its place while it was being read", real) from None
        raise
    finally:
        os.close(folder)
