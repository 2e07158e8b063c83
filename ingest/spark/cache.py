"""The cache folder, which keeps what is fetched or built once: jars, launchers, class archives."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ingest.errors import SetupError

NAME = "ingest"
VARIABLE = "INGEST_CACHE"


def folder() -> Path:
    """The cache folder: ``INGEST_CACHE``, else this product's folder in the user's cache. It may not exist."""
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen).expanduser().absolute()
    if (user_cache := os.environ.get("XDG_CACHE_HOME")) and Path(user_cache).is_absolute():
        return Path(user_cache) / NAME
    try:
        return Path.home() / ".cache" / NAME
    except RuntimeError:  # no HOME and no entry in the user database, as in some containers
        raise SetupError(
            f"This user has no home folder: name a folder to keep jars in with {VARIABLE}."
        ) from None


def writable(*parts: str) -> Path:
    """A subfolder of the cache, created for this user alone.

    Raises:
        SetupError: it cannot be created or written, or anybody else may write it.
    """
    target = folder().joinpath(*parts)
    try:
        for each in reversed((target, *_above(target))):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        if loose := writable_by_others(target):
            raise SetupError(f"{loose}: correct that, or name another cache folder with {VARIABLE}.")
    except OSError as error:
        raise unwritable(target, error) from error
    if not os.access(target, os.W_OK | os.X_OK):
        raise unwritable(target, PermissionError("permission denied"))
    return target


def writable_by_others(path: Path) -> str:
    """Who else may change what is at this path of the cache, or put something else there; empty if no one may.

    Much of it is run, so it must belong to this user or to root, and others must not write to it; the operator may
    have given a group the right to. Others do not replace what is in a folder with the sticky bit.

    Raises:
        OSError: it does not exist, or this user may not look.
    """
    for each in (path, *_above(path)):
        status = each.stat()
        if status.st_uid not in (0, os.geteuid()):
            return f"{each} belongs to another user ({status.st_uid}), who could change what is run from it"
        if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            return f"Every user of this machine may write to {each}, from which files are run"
    return ""


def _above(path: Path) -> list[Path]:
    """The folders of the cache that lead to this path, the nearest first."""
    top = folder()
    return [each for each in path.parents if each.is_relative_to(top)]


def unwritable(target: Path, error: OSError) -> SetupError:
    """The error for a cache that cannot be written."""
    reason = error.strerror or str(error)
    return SetupError(f"{target} cannot be written ({reason}): name another cache folder with {VARIABLE}.")
