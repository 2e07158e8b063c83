"""Whatever a file holds, reading it ends in a pipeline or in sentences."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
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


_WHOLE = """\
pipeline: stock
lake: ./lake
every: 30s
sources:
  - name: bins
    kind: files
    path: ../in/*.jsonl
    format: canal
    options: {timezone: Asia/Shanghai, table: shop.bins}
    settle: 10s
tables:
  - match: shop.*
    keys: [id]
    columns: {price: "decimal(38,10)"}
    on_schema_change: lenient
quality:
  - table: shop.bins
    expect:
      - {type: expect_column_values_to_not_be_null, column: id}
"""
_HOSTILE = (
    "[" * 500, "{a: " * 500, "- " * 500, "? " * 500, "&a {<<: *a}", "&b [*b, *b]", "*b", "<<: [*b, *b]\n", "9" * 6000, "9" * 6000 + "d",
    "0x" + "f" * 6000, "1e999999999", "-.inf", "2024-99-99T99:99:99Z", "${file:/proc/kmsg}", "${file:/dev/zero}", "${X:-" + "x" * 9000 + "}",
    "!!python/object/apply:os.system [id]", "!!binary x", "\0", "\u2028", "\ud800", "|+9\n x", "%TAG ! tag:x\n", "--- ", "...\n", "\t", "`" * 50,
    "*" * 200, "(a*)*b" * 50, "{database}" * 300, "shop.[" * 50, "decimal(99999999999,1)", "99999999999999999999s", "../" * 500, "\\\\x" * 50, "'", '"', "#",
)  # fmt: skip


def hostile_files(seed: int, count: int) -> Iterator[bytes]:
    """Pipeline files with parts cut out, doubled, exchanged, or replaced by what readers of YAML stumble over."""
    dice = random.Random(seed)
    for _ in range(count):
        text = _WHOLE
        for _ in range(dice.randint(1, 6)):
            start = dice.randrange(len(text) + 1)
            end = min(len(text), start + dice.choice([0, 0, 1, 5, 40]))
            kind = dice.randrange(5)
            if kind == 0:
                piece = ""
            elif kind == 1:
                piece = text[start:end] * dice.choice([2, 50])
            elif kind == 2:
                piece = chr(dice.choice([0, 9, 10, 32, 58, 0x85, 0xFEFF, 0x1F600, dice.randrange(0xD7FF)]))
            else:
                piece = dice.choice(_HOSTILE).replace("\\\n", "\n")
                start = end = text.find(": ", start) + 2 if kind == 3 and ": " in text[start:] else start
            text = text[:start] + piece + text[end:]
        data = text.encode("utf-8", "surrogatepass")
        if dice.random() < 0.1:
            place = dice.randrange(len(data) + 1)
            data = data[:place] + dice.randbytes(3) + data[place:]
        yield data


@pytest.mark.parametrize(
    ("seed", "count"), [(1, 200), pytest.param(2, 10_000, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_hostile_files_end_in_sentences_soon(tmp_path: Path, seed: int, count: int) -> None:
    """One pipeline file that hangs or raises keeps `ingest serve` from starting with all others."""
    file = tmp_path / "hostile.yaml"
    slowest = 0.0
    for data in hostile_files(seed, count):
        file.write_bytes(data)
        began = time.process_time()
        assert all(problem.startswith(str(file)) for problem in problems(file) or ()), data
        slowest = max(slowest, time.process_time() - began)
        assert slowest < 2, data
