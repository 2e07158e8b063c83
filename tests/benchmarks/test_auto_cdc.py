"""The contestant that is Spark's own AUTO CDC: the check that is taken from it, and the histories that it is given."""

from __future__ import annotations

import json
import zipfile
from itertools import takewhile
from pathlib import Path

import pyspark
import pytest

from benchmarks.contest import auto_cdc, semantics


@pytest.fixture(scope="module")
def original() -> bytes:
    """The class as PySpark brings it."""
    jar = next(Path(pyspark.__file__).parent.glob("jars/spark-pipelines_*.jar"))
    with zipfile.ZipFile(jar) as classes:
        return classes.read(auto_cdc.CLASS)


def alike(some: bytes, other: bytes) -> int:
    """With how many equal bytes both begin."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(some, other, strict=False)))


def test_only_the_check_is_taken_away(original: bytes) -> None:
    """Another method would be emptied, and the peer's figures would be those of something else."""
    changed = auto_cdc.without(original, auto_cdc.GATE)
    before = alike(original, changed)
    after = alike(original[before:][::-1], changed[before:][::-1])
    assert before + after > 0.95 * len(original)
    code = changed[before : len(changed) - after]
    assert len(code) <= len(auto_cdc.EMPTY) + 4
    assert auto_cdc.RETURN in code
    assert changed == auto_cdc.without(changed, auto_cdc.GATE)


def test_a_class_without_the_check_is_refused(original: bytes) -> None:
    """A newer PySpark would run with the gate on, and its refusal would look like a slow start."""
    with pytest.raises(ValueError, match="no method requireNothing"):
        auto_cdc.without(original, "requireNothing")


def test_a_copied_checkpoint_reads_where_the_copy_lies(tmp_path: Path) -> None:
    """Spark refuses a copied stream whose last batch lies elsewhere, and the contestant has no figure."""
    log = tmp_path / "storage" / "_checkpoints" / "orders" / "0" / "sources" / "0"
    log.mkdir(parents=True)
    entry = {"path": "file:///start/auto/landing/base-1.jsonl", "timestamp": 7, "batchId": 0}
    (log / "0").write_text(f"v1\n{json.dumps(entry)}\n{json.dumps(entry)}", "utf-8")
    (log / ".0.crc").write_bytes(b"checksum")
    auto_cdc.move_sources(tmp_path)
    version, *lines = (log / "0").read_text("utf-8").splitlines()
    here = entry | {"path": f"{tmp_path.as_uri()}/landing/base-1.jsonl"}
    assert ("v1", [here, here]) == (version, [json.loads(line) for line in lines])
    assert ["0"] == [file.name for file in log.iterdir()]


@pytest.mark.parametrize("case", semantics.CASES, ids=lambda case: case.name)
def test_a_history_is_told_as_its_source_has_it(case: semantics.Case) -> None:
    """A case whose messages contradict its truth would blame whoever reads them."""
    rows: dict[str, dict[str, str | None]] = {}
    told = [line for text in semantics.messages(case) for line in text.splitlines()]
    whole = [json.loads(line) for line in told if line.endswith("}")]
    assert len(told) - len(whole) == sum(change.broken for batch in case.batches for change in batch)
    for message in sorted(whole, key=lambda message: message["id"]):
        if message["type"] == "TRUNCATE":
            rows.clear()
        for image in message["data"] or ():
            before = image | (message["old"] or [{}])[0]
            row = {**rows.pop(before["id"], {}), **image}
            if message["type"] != "DELETE" and image["id"] is not None:
                rows[image["id"]] = row
    names = {name for row in rows.values() for name in row}
    expected = [
        {name: value if value is None else str(value) for name, value in row.items() if name in names}
        for row in case.truth
    ]
    found = [{name: row[name] for name in names if name in row} for row in rows.values()]
    if (
        "DEFAULT" in case.name or "renamed" in case.name
    ):  # what a statement does to rows that stand is no message's word
        assert [row["id"] for row in expected] == [row["id"] for row in found]
    else:
        assert expected == found
