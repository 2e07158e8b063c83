"""A Great Expectations suite, read from the JSON file that its own library writes.

Read as plain data, before anything else starts: a suite that is not there or not understood is a fault of
the pipeline file.  Both generations of the format are taken: ``type`` and ``expectation_type``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ingest.config import regular_files
from ingest.config.entries import Expectation
from ingest.config.scalars import expectation

_LARGEST = 16 << 20  # bytes
_SEVERITY = {"critical": "error", "error": "error", "warning": "warn", "warn": "warn", "info": "warn"}
_OF_THE_LIBRARY = ("batch_id", "result_format")  # how it runs, not what is expected


def read(file: Path) -> tuple[Expectation, ...]:
    """The expectations of a suite's file; a `ValueError` that says what is wrong with it."""
    try:
        document = json.loads(regular_files.data_of(file, _LARGEST).decode("utf-8"))
    except OSError as error:
        raise ValueError(f"the suite {file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the suite {file} is not JSON: {error}") from None
    listed = document.get("expectations") if isinstance(document, dict) else None
    if not isinstance(listed, list) or not listed:
        raise ValueError(f"the suite {file} holds no list `expectations` with something in it")
    return tuple(_expectations(file, listed))


def _expectations(file: Path, listed: list[Any]) -> Iterator[Expectation]:
    for i, entry in enumerate(listed, 1):
        given = entry if isinstance(entry, dict) else {}
        arguments = given.get("kwargs", {})
        severity = _SEVERITY.get(str(given.get("severity") or "error"))
        try:
            kind = expectation(str(given.get("type") or given.get("expectation_type") or ""))
        except ValueError as error:
            raise ValueError(f"expectation {i} of the suite {file}: {error}") from None
        if not isinstance(arguments, dict) or severity is None:
            raise ValueError(
                f"expectation {i} of the suite {file} needs `kwargs` with its arguments, and a severity of "
                "critical, warning or info if any"
            )
        kept = {name: value for name, value in arguments.items() if name not in _OF_THE_LIBRARY}
        yield Expectation(kind, kept, severity)
