"""Transactions of which changes are missing, in messages that are sealed or not; without Spark."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, cast

import pytest

from ingest.config import Pipeline
from ingest.config.entries import Sealing
from ingest.config.model import Source, TableRule
from ingest.run import run
from ingest.tables.lake import Lake
from tests.unstarted import unstarted

SEALED = Sealing(base64.b64encode(bytes(range(32))).decode())
FACT = {"version": "2.7.0.Final", "connector": "mysql", "name": "bus", "server_id": 7, "file": "log.000003"}


def row(key: int, transaction: str | None) -> dict[str, Any]:
    """A row that Debezium saw inserted."""
    place = {"db": "depot", "table": "parcels", "pos": 100 + key, "row": 0, "ts_ms": 1714521600000 + key}
    member = {"id": transaction, "total_order": key, "data_collection_order": key} if transaction else None
    return {
        "op": "c", "before": None, "after": {"id": key, "label": f"row {key}"}, "source": FACT | place,
        "ts_ms": 1714521600000 + key, "transaction": member,
    }  # fmt: skip


def end(transaction: str, **shares: int) -> dict[str, Any]:
    """The mark that ends a transaction, with the number of changes of each table."""
    listed = [{"data_collection": f"depot.{table}", "event_count": n} for table, n in shares.items()]
    return {"status": "END", "id": transaction, "event_count": sum(shares.values()), "data_collections": listed,
            "ts_ms": 1714521600500}  # fmt: skip


def part(transaction: int, idx: str, seq: int) -> dict[str, Any]:
    """A change of SharePlex, which is one of several of its set."""
    about = {
        "op": "ins", "table": "DEPOT.BOXES", "trans": transaction, "scn": 10 + transaction, "idx": idx,
        "seq": seq, "time": "2024-05-01T00:00:00",
    }  # fmt: skip
    return {"meta": about, "data": {"ID": str(seq)}}


BUS = [
    row(1, "tx1"), row(2, "tx1"), row(3, "tx2"), row(4, None), row(5, "tx4"),
    end("tx1", parcels=3, elsewhere=9), end("tx2", parcels=1), end("tx4", parcels=1, elsewhere=1),
    {"status": "BEGIN", "id": "tx5", "ts_ms": 1714521600500},
]  # fmt: skip
PLEX = [part(7, "1/3", 1), part(7, "2/3", 2), part(8, "1/1", 3), part(9, "2/2", 4), part(9, "1/2", 5)]
BROKEN = b'{"event_count": \xff\xfe, "idx": 1}\n{"event_count": "idx"\n'


def checked(folder: Path, seal: Sealing | None, **sent: list[dict[str, Any]]) -> dict[str, str]:
    """What the check of a whole run says of each source; broken messages are in its files, too."""
    formats = {"bus": "debezium", "plex": "dts-shareplex"}
    for name, messages in sent.items():
        lines = "".join(json.dumps(one) + "\n" for one in messages).encode()
        (folder / f"{name}.jsonl").write_bytes(lines + BROKEN)
    sources = tuple(
        Source(name, "files", formats[name], path=str(folder / f"{name}.jsonl"), settle=0) for name in sent
    )
    rules = (TableRule("depot.parcels", keys=("id",)), TableRule("DEPOT.BOXES", keys=("ID",)))
    lake = str(folder / "lake")
    pipeline = Pipeline("depot", folder / "x.yaml", lake, sources, rules, seal=seal, engine="auto")
    result = run(unstarted(), pipeline)
    assert not result.failures, result.failures
    rows = Lake(cast("Any", None), pipeline).ask(
        "SELECT source, state, detail FROM {checks} WHERE \"check\" = 'missing_parts'"
    )
    return {row["source"]: f"{row['state']} {row['detail']}".strip() for row in rows}


@pytest.mark.parametrize("seal", [None, SEALED], ids=["plain", "sealed"])
def test_parts_that_did_not_come_are_reported(tmp_path: Path, seal: Sealing | None) -> None:
    """Of tables that were left out nothing is expected; what cannot be read is a reject, and no end of the check."""
    assert {
        "bus": "warn 1 transaction lacks changes: tx1 has 2 of 3",
        "plex": "warn 1 transaction lacks changes: 7 has 2 of 3",
    } == checked(tmp_path, seal, bus=BUS, plex=PLEX)


def test_whole_transactions_pass(tmp_path: Path) -> None:
    """A mark without shares counts all changes of its transaction."""
    whole = [one for one in BUS if one.get("id") != "tx1"]
    bare = {name: value for name, value in end("tx1", parcels=2).items() if name != "data_collections"}
    assert {"bus": "pass", "plex": "pass"} == checked(tmp_path, None, bus=[*whole, bare], plex=PLEX[2:])
    (tmp_path / "more").mkdir()
    short = bare | {"event_count": 5}
    assert {"bus": "warn 1 transaction lacks changes: tx1 has 2 of 5"} == checked(
        tmp_path / "more", None, bus=[*whole, short]
    )
