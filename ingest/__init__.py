"""Database change messages in, exact Delta tables out.

The names below are what notebooks, schedulers and other programs may use (docs/python.md); all other modules may
change between versions.  Nothing is imported before it is used: Spark starts with `session`, not with this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ingest.api import (
        alerts,
        decode,
        detect,
        fold_changes,
        load,
        read,
        run_pipeline,
        send_alerts,
        session,
    )
    from ingest.config import Pipeline
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

_MODULES = {
    **dict.fromkeys(
        ["ConfigError", "HeldError", "IngestError", "LockedError", "SetupError"], "ingest.errors"
    ),
    "Pipeline": "ingest.config",
    "Result": "ingest.run",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ingest' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES.get(name, "ingest.api")), name)
