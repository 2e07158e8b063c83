"""Whatever a file holds, reading it ends in a pipeline or in sentences."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingest.config import load
from ingest.errors import ConfigError

PIECES = st.sampled_from(
    [
        "pipeline", "lake", "sources", "tables", "name", "kind", "files", "kafka", "path", "format", "canal", "options",
        "table", "columns", "keys", "match", "into", "quality", "expect", "type", "start", "topics", ": ", ":\n", "\n",
        "\n  ", "\n  - ", "- ", "[", "]", "{", "}", ", ", "'", '"', "&a ", "*a", "<<: ", "!!int ", "#", "|", ">-\n  x",
        "${X}", "${file:}", "$", "~", "null", "true", "1", "1.5", "0x1F", ".inf", ".nan", "2024-01-01", "a.b", "*",
        "\u00e9", "\t", "? ", "%YAML 1.1\n---\n", "---\n", "{table}", "`",
    ]
)  # fmt: skip


@example(b"&a \n  - &a ")
@settings(max_examples=300, deadline=None)
@given(st.one_of(st.lists(PIECES, max_size=30).map("".join).map(str.encode), st.binary(max_size=60)))
def test_any_bytes_end_in_sentences(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """A traceback says nothing to the operator."""
    file = tmp_path_factory.getbasetemp() / "hostile.yaml"
    file.write_bytes(data)
    found = problems(file)
    assert [] != found
    assert all(problem.startswith(str(file)) for problem in found or ())


def problems(file: Path) -> list[str] | None:
    """The faults of a file, or None if it is sound."""
    try:
        load(file)
    except ConfigError as error:
        return error.problems
    return None


VALUES = st.recursive(
    st.sampled_from(["x", "1", "a.b", "true", "~", "'${X'", "''", "1.5", "'*'", "'{'"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.dictionaries(st.sampled_from(["a", "table", "name", "match", "type", "0"]), inner, max_size=3).map(
            lambda pairs: "{" + ", ".join(f"{key}: {value}" for key, value in pairs.items()) + "}"
        ),
    ),
    max_leaves=8,
)
KEYS = [
    "pipeline", "lake", "sources", "tables", "quality", "spark", "master", "sources/options", "sources/path",
    "sources/start", "sources/topics", "sources/kafka", "sources/kind", "sources/options/table", "tables/columns",
    "tables/into", "tables/keys", "quality/expect", "quality/thresholds", "sources/format", "sources/name",
]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(key=st.sampled_from(KEYS), value=VALUES, kafka=st.booleans())
def test_any_value_of_any_key_ends_in_sentences(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: str, kafka: bool
) -> None:
    """A value of the wrong kind reaches code that does not expect it."""
    file: Path = tmp_path_factory.getbasetemp() / "values.yaml"
    first = {"name": "a", "kind": "kafka", "bootstrap_servers": "b:1", "topics": "t", "format": "canal"}
    source = first if kafka else {"name": "a", "kind": "files", "path": "x", "format": "canal"}
    tree: dict[str, object] = {
        "pipeline": "p",
        "lake": "l",
        "sources": source,
        "tables": {},
        "quality": {"table": "a.b"},
    }
    inner, *rest = key.split("/")
    if not rest:
        tree[inner] = None
    elif len(rest) == 1:
        tree[inner] = {**tree[inner], rest[0]: None}  # type: ignore[dict-item]
    else:
        tree[inner] = {**tree[inner], rest[0]: {rest[1]: None}}  # type: ignore[dict-item]
    file.write_text(_yaml(tree, value), "utf-8")
    assert all(problem.startswith(f"{file}:") for problem in problems(file) or ())


def _yaml(tree: dict[str, object], value: str) -> str:
    lists = ("sources", "tables", "quality")
    return "\n".join(
        f"{k}: {f'[{_flow(v, value)}]' if k in lists and v is not None else _flow(v, value)}"
        for k, v in tree.items()
    )


def _flow(tree: object, value: str) -> str:
    if tree is None:
        return value
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{key}: {_flow(item, value)}" for key, item in tree.items()) + "}"
    return str(tree)
