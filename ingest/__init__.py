"""Database change messages in, exact Delta tables out.

The names below are what notebooks, schedulers and other programs may use (docs/python.md); all other modules may
change between versions.  Nothing is imported before it is used: Spark starts with `session`, not with this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ingest.api import alerts, decode, detect, fold_changes, read, run_pipeline, send_alerts, session
    from ingest.config import Pipeline, load
    from ingest.errors import ConfigError, HeldError, IngestError, LockedError, SetupError
    from ingest.result import Result

__all__ = [
    "ConfigError",
    "HeldError",
    "IngestError",
    "LockedError",
    "Pipeline",
    "Result",
    "SetupError",
    "alerts",
    "decode",
    "detect",
    "fold_changes",
    "load",
    "read",
    "run_pipeline",
    "send_alerts",
    "session",
]

_MODULES = {"Pipeline": "ingest.config", "load": "ingest.config", "Result": "ingest.result"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ingest' has no attribute {name!r}")
    from importlib import import_module

    module = "ingest.errors" if name.endswith("Error") else _MODULES.get(name, "ingest.api")
    return getattr(import_module(module), name)
