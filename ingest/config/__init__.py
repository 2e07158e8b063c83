"""The pipeline file: YAML 1.2 read into checked, frozen dataclasses, every fault with its place.

``model`` and ``entries`` hold the dataclasses with the keys that fill them, ``yaml_tree`` reads YAML with positions, ``kinds``
and ``scalars`` its values (``64MiB``, ``5m``, table names), ``schema`` makes the keys that a file may hold, ``read`` puts them
together, ``lint`` looks at what several keys mean together.  The validator's models are made from the dataclasses, not the
dataclasses themselves: a dataclass is made without a file, too, and a worker unpickles it without importing the validator.
Importing this package costs nothing: the YAML reader and the validator are imported by the first `load`.
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
