"""What a question to a lake does without: keys of the pipeline file whose ``${...}`` does not resolve where it is asked."""

from __future__ import annotations

from typing import Any

from ingest.config.model import is_stored
from ingest.config.scalars import is_file_uri
from ingest.config.yaml_tree import Document, Where

_NOT_NEEDED: tuple[tuple[object, ...], ...] = (
    ("alerts",),
    ("bronze", "seal"),
    ("catalog",),
    ("mask_secret",),
    ("openlineage",),
    ("sources", int, "database"),
    ("sources", int, "kafka", str),
    ("sources", int, "registry"),
    ("sources", int, "start"),
    ("sources", int, "storage", str),
)
_AS_WRITTEN = ("bootstrap_servers", "path", "topic_pattern", "topics")  # required of a source


def leave_out(document: Document) -> dict[str, str]:
    """Take what does not resolve and is not needed out of a document; gives why, by the path with dots of each part."""
    left_out: dict[str, str] = {}
    for where, text in document.unresolved:
        if (part := _part(document, where)) is None:
            continue
        fault = document.place(where), text
        document.faults = [other for other in document.faults if other != fault]
        line, column = document.place(where)
        left_out.setdefault(".".join(map(str, part)), f"{document.file}:{line}:{column} {text}")
        if part == where and _is_source(where, *_AS_WRITTEN):
            _parent(document.tree, part)[part[-1]] = document.references[where]
        else:
            _parent(document.tree, part).pop(part[-1], None)
    return left_out


def _part(document: Document, where: Where) -> Where | None:
    """The part of the file to leave out for a value in it; None if questions need the value."""
    if _is_source(where, *_AS_WRITTEN):
        return where
    lake = str(document.tree.get("lake", ""))
    if where[:1] == ("spark",) and len(where) == 2 and (is_file_uri(lake) or not is_stored(lake)):
        return where  # a store's credentials
    for pattern in _NOT_NEEDED:
        if len(where) >= len(pattern) and all(map(_fits, where, pattern)):
            return where[: len(pattern)]
    return None


def _fits(step: str | int, wanted: object) -> bool:
    return isinstance(step, wanted) if isinstance(wanted, type) else step == wanted


def _is_source(where: Where, *keys: str) -> bool:
    return len(where) > 2 and where[0] == "sources" and where[2] in keys


def _parent(tree: Any, where: Where) -> Any:
    for step in where[:-1]:
        tree = tree.get(step, {}) if isinstance(tree, dict) else tree[step]
    return tree
