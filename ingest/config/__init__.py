"""The pipeline file: YAML 1.2 read into checked, frozen dataclasses, every fault with its place.

``model`` holds the dataclasses, ``yaml_tree`` reads YAML with positions, ``scalars`` the small texts
(durations, sizes, table names), ``schema`` the keys that a file may hold, ``read`` puts them
together, ``lint`` looks at what several keys mean together.  The file's form and its meaning are two
sets of classes on purpose: a key of the file is read from text (``64MiB``), a dataclass holds what it
means (67108864) and is made without a file, too; and a worker unpickles dataclasses without importing
the validator.  Importing this package costs nothing: the YAML reader and the validator are imported by
the first `load`.
"""

from __future__ import annotations

from pathlib import Path

from ingest.config.entries import Expectation, QualityRule
from ingest.config.model import Pipeline, Source, TableRule, is_stored, target
from ingest.config.patterns import matches

__all__ = [
    "Expectation", "Pipeline", "QualityRule", "Source", "TableRule", "is_stored", "load", "matches", "target",
]  # fmt: skip


def load(path: str | Path, *, to_look: bool = False) -> Pipeline:
    """The pipeline of a file; a `ConfigError` with all its faults, each as ``file:line:col text``.

    ``to_look`` is for questions to the lake: what they do not need, such as a broker's password, is left out where its
    ``${...}`` does not resolve, and named in ``unresolved``.
    """
    from ingest.config.read import check

    return check(path, to_look=to_look).pipeline
