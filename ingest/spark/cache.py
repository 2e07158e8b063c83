"""The cache folder, which keeps what is fetched or built once: jars, launchers, class archives."""

from __future__ import annotations

import os
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
    """A subfolder of the cache, created.

    Raises:
        SetupError: it cannot be created or written.
    """
    target = folder().joinpath(*parts)
    try:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(target, error) from error
    if not os.access(target, os.W_OK | os.X_OK):
        raise unwritable(target, PermissionError("permission denied"))
    return target


def unwritable(target: Path, error: OSError) -> SetupError:
    """The error for a cache that cannot be written."""
    reason = error.strerror or str(error)
    return SetupError(f"{target} cannot be written ({reason}): name another cache folder with {VARIABLE}.")
