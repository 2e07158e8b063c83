"""Lakes with sealed bronze: nothing planted is in its files, everything is decoded as before, and no key means no guess."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from ingest import run as runs
from ingest.bronze import land as bronze
from ingest.bronze import preview
from ingest.bronze.kafka import _counting
from ingest.bronze.land import land
from ingest.bronze.positions import Positions
from ingest.bronze.store import storing
from ingest.ledgers import decisions, sealing
from ingest.ledgers.raw import raw
from ingest.result import Result
from ingest.silver import messages
from ingest.silver.decode import decode
from ingest.silver.lift import Lifting, lift
from ingest.silver.registry import FRAMED, framed
from ingest.tables.datafiles import Added
from ingest.tables.lake import Lake
from ingest.tables.schemas import BRONZE
from ingest.tables.tables import LakeReader
from tests.lake.sealed import DAY, KEYS, SEALED, Sealed, batches_of, held, without_bytes
from tests.lakes import Depot
from tests.silver.test_without_spark import Tasks


@pytest.mark.parametrize("way", ["alone", "tasks"])
def test_a_sealed_lake_decodes_to_the_same_rows(tmp_path: Path, clock: Any, way: str) -> None:
    """Seal and opener are the only difference, whichever process writes and reads, and across two days."""
    session = Tasks() if way == "tasks" else None
    engine = f"engine: {'spark' if way == 'tasks' else 'auto'}\n"
    plain, depot = Depot(tmp_path / "plain", engine), Sealed(tmp_path / "sealed", engine + SEALED)
    for n in range(2):
        clock(n)
        for one in (plain, depot):
            one.grow()
        land(Lake(session, plain.pipeline), Positions(), 2)
        decode(Lake(session, plain.pipeline), n + 1, 2)
        assert [] == depot.work(session).unbalanced
    other = json.dumps(str(plain.folder))[1:-1], json.dumps(str(depot.folder))[1:-1]
    expected = {
        name: Counter({key.replace(*other): n for key, n in rows.items()})
        for name, rows in without_bytes(Lake(None, plain.pipeline)).items()
    }
    assert expected.keys() == without_bytes(depot.lake()).keys()
    for name, rows in without_bytes(depot.lake()).items():
        assert expected[name].total() == rows.total()
        if name not in ("bronze", "books"):  # which hold times and hashes of the files
            assert expected[name] == rows
    assert ["2026-03-14", "2026-03-15"] == [name[:10] for name in depot.key_files]
    assert ((1, None),) == sealing.spans(depot.lake())
    folder = depot.folder / "lake"
    assert b"new 0" in held(folder / "changes")
    assert not any(word in held(folder / "bronze") for word in (b"new 0", b"soon gone", b"broken", b"shelf0"))
    assert b"new 0" in held(plain.folder / "lake" / "bronze")
    assert b"broken" in held(plain.folder / "lake" / "rejects") or b"bad-json" in held(folder / "rejects")
    rejected = depot.lake().ask("SELECT * FROM {rejects} ORDER BY batch")
    shown = raw(LakeReader(depot.pipeline), rejected)
    assert ['{"broken": '] * 2 == [one.text for one in shown.values()]
    assert [11] * 2 == [one.length for one in shown.values()]


def message(kind: str, n: int, value: bytes | None, **given: Any) -> dict[str, Any]:
    """One row as Kafka's connector gives it."""
    row = {"topic": "t", "partition": 0, "offset": n, "timestamp": DAY, "key": None, "value": value}
    return row | {"headers": None} | given


def test_nothing_planted_is_in_the_files_of_bronze(tmp_path: Path, clock: Any) -> None:
    """JSON, framed Avro, keys, headers and a record too large: as a task of a Kafka source writes them."""
    depot = Sealed(tmp_path)
    lake = depot.lake()
    planted = [
        b"jo@example.org",
        b"DE89370400440532013000",
        b"Ann Planted",
        b"4930123456",
        b"badly@broken.org",
    ]
    frame = b"\x00\x00\x00\x00\x07"
    sent = [
        message("json", 0, b'{"data": [{"email": "jo@example.org"}]}', key=b'{"id": "4930123456"}'),
        message("avro", 1, frame + b"\x02\x16Ann Planted", key=frame + b"DE89370400440532013000"),
        message(
            "tombstone", 2, None, key=b"jo@example.org", headers=[{"key": "trace", "value": b"Ann Planted"}]
        ),
        message("broken", 3, b'{"email": "badly@broken.org'),
        message("again", 4, b'{"data": [{"email": "jo@example.org"}]}' * 50),
    ]
    schema = pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ]
    )
    seal = sealing.begin(lake, 1, DAY.date())
    assert seal is not None
    store = storing(lake.layout(BRONZE), 1, DAY, source="bins", read=_counting("c", {"t": "id"}), seal=seal)
    pages = [one.to_pylist() for one in store(iter([pa.RecordBatch.from_pylist(sent, schema=schema)]))]
    [receipt], [written] = pages
    assert (5, "file") == (json.loads(receipt["value"])["count"], written["kind"])
    lake.append([Added.from_json(written["value"])], BRONZE, "bronze", 1)
    bytes_of = held(tmp_path / "lake")
    assert [] == [one for one in planted if one in bytes_of]
    assert KEYS["one"].encode() not in bytes_of
    assert bytes.fromhex(KEYS["one"]) not in bytes_of
    # as silver reads them
    found = messages.of_batches(lake, (1, 1), 1)
    opener = sealing.opener(lake)
    counted = found.through(framed(["bins"], opener), FRAMED)
    assert [("bins", b"\x00\x00\x00\x07", 2)] == [tuple(one.values()) for one in counted]
    rows = found.through(lambda pages: map(opener.opened, pages), "")
    assert [tuple(one[name] for name in ("key", "value", "headers")) for one in sent] == [
        tuple(one[name] for name in ("key", "value", "headers")) for one in rows
    ]
    assert {"message"} == {row["kind"] for row in lake.ask("SELECT DISTINCT kind FROM {bronze}")}
    sampled = list(preview.landed(LakeReader(depot.pipeline), "bins", (1, 1), 10))
    assert sorted(str(one["value"]) for one in sent) == sorted(str(row[4]) for _, row in sampled)
    rejects = [
        row
        for page in lift(Lifting(lake.pipeline, opener=opener))(iter(batches_of(lake)))
        for row in page.to_pylist()
    ]
    assert not any(one.decode() in str(row) for row in rejects if row["kind"] == "reject" for one in planted)


def test_sealing_begins_and_ends_with_a_batch(tmp_path: Path, clock: Any) -> None:
    """Older batches stay readable without a key; a kill before the commit leaves the batch to what comes then."""
    depot = Sealed(tmp_path, "")
    depot.grow()
    depot.work()
    assert () == sealing.spans(depot.lake())
    assert not (tmp_path / "lake" / sealing.FOLDER).exists()
    depot.says(SEALED)
    depot.grow()
    depot.work()
    depot.says("")
    depot.grow()
    depot.land()  # plain again
    assert ((2, 3),) == sealing.spans(depot.lake())
    assert 3 == depot.decode().batches[-1]
    assert 3 == decisions.read(depot.lake()).all[-1].batch
    depot.says(SEALED)
    sealing.begin(depot.lake(), 4, DAY.date())  # and killed
    depot.says("")
    assert None is sealing.begin(depot.lake(), 4, DAY.date())
    assert ((2, 3),) == sealing.spans(depot.lake())
    depot.says(SEALED)
    depot.grow()
    depot.work()
    assert ((2, 3), (4, None)) == sealing.spans(depot.lake())
    first, sealed, plain, again = (
        depot.lake().ask(f"SELECT value FROM {{bronze.message}} WHERE batch = {n}")[0]["value"][:4]
        for n in range(1, 5)
    )
    assert b'{"da' == first == plain
    assert b"ISB1" == sealed == again
    assert {"2026-03-14"} == {name[:10] for name in depot.key_files}
    assert 1 == len(depot.key_files)


def test_a_run_without_the_key_reports_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Any
) -> None:
    """No stage ends the run with a trace, and nothing counts as read or checked."""
    depot = Sealed(tmp_path)
    depot.grow()
    depot.work()
    depot.grow()
    depot.key("two")

    def check(lake: Lake, *_given: Any, **_named: Any) -> None:
        sealing.refuse_unreadable(lake, sealing.opener(lake), (1, 1))

    monkeypatch.setattr("ingest.run.quality.check", check)
    monkeypatch.setattr(runs, "paced", lambda *_given: nullcontext())
    monkeypatch.setattr(runs, "steps_of", lambda _lake: None)
    result, warm = Result("depot", "r", "depot.yaml"), runs.Warm(checked=0)
    lake = depot.lake(SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1)))
    runs._bronze(lake, warm, result, print)
    runs._quality(lake, warm, result, print)
    assert ["nothing was read", "nothing was checked"] == [one.partition(",")[0] for one in result.failures]
    assert all("because " in one and "another master key wrapped" in one for one in result.failures)
    assert (0, 1) == (warm.checked, bronze.last_batch(depot.lake()))
