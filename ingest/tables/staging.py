"""Staging area of a rebuild (the shadow): a folder in the lake, compared before anything is replaced."""

from __future__ import annotations

import contextlib
import shutil
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ingest.store import stores
from ingest.tables.lake import Lake

_FOLDER = "_rebuild"  # the underscore hides it from readers of the lake
# Mirrors are folded at once: one that ends must not delete the folder of all while another one makes its own in it.
_COMING_OR_GOING = threading.Lock()


@contextlib.contextmanager
def shadow_of(lake: Lake, *shadowed: str) -> Iterator[Lake]:
    """The same lake, except that tables with these names or prefixes are in a folder that is deleted afterwards."""
    folder = f"{lake.path(_FOLDER)}/{uuid.uuid4().hex}"  # a new one each time: Delta caches tables by path
    if lake.is_folder:
        with _COMING_OR_GOING:
            Path(folder).mkdir(parents=True)
    try:
        yield Lake(lake.spark, lake.pipeline, lake.run, shadow=folder, shadowed=shadowed)
    finally:
        _remove(lake, folder)


def clean(lake: Lake) -> int:
    """Delete what rebuilds that were killed have left in a lake on this machine, and say how many files that were.

    The caller holds the lake's lock, so no other rebuild runs.
    """
    folder = Path(lake.path(_FOLDER))
    if not lake.is_folder or not folder.is_dir():
        return 0
    files = sum(path.is_file() for path in folder.rglob("*"))
    shutil.rmtree(folder, ignore_errors=True)
    return files


def _remove(lake: Lake, folder: str) -> None:
    if lake.is_folder or lake.takes_commits:
        stores.at(folder).remove_folder(folder)
        # Another table is rebuilt there, or a store has no folders.
        with contextlib.suppress(OSError), _COMING_OR_GOING:
            Path(folder).parent.rmdir()
        return
    jvm: Any = lake.spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(folder)
    files = path.getFileSystem(lake.spark._jsparkSession.sessionState().newHadoopConf())
    files.delete(path, True)
    parent = path.getParent()
    if files.exists(parent) and not len(files.listStatus(parent)):
        files.delete(parent, False)
