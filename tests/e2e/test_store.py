"""Messages and whole lakes in an S3-compatible store, each command a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.bronze.files import listing
from ingest.config import Source, load
from ingest.tables.lake import Lake
from tests.e2e.faulty_store import CARELESS, Fault, Faulty
from tests.e2e.services import Missing
from tests.e2e.store import Store
from tests.e2e.topics import Sent
from tests.lakes import ROOT, expected_shop, shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.e2e.broker import Broker
    from tests.e2e.topics import Topics

pytestmark = pytest.mark.spark
NAME = "obcloud-canal"

_RACE = """
import json, sys, threading
from concurrent.futures import ThreadPoolExecutor
from ingest.cli.spark import session_for
from ingest.config import load
from ingest.store.hadoop import HadoopStore, admits_two, small_files

winners = []
with session_for([load(sys.argv[1])]), ThreadPoolExecutor(2) as pool:
    for n in range(20):
        lake = f"s3a://race/{n}"
        clients = [HadoopStore(lake), HadoopStore(lake) if n % 2 else small_files(lake)]
        start = threading.Barrier(2)
        took = [
            pool.submit(lambda client=one: (start.wait(), client.put_new(f"{lake}/_ingest.lock", b"{}"))[1])
            for one in clients
        ]
        winners.append(sum(one.result() for one in took))
    for lake in ("s3a://race/strict", "s3a://race/careless"):
        store, path = HadoopStore(lake), f"{lake}/_ingest.lock"
        winners.append((store.put_new(path, b"{}"), store.admits_one(path, b"{}"), admits_two(lake)))
print(json.dumps(winners))
"""


def _block(settings: Mapping[str, str], indent: str) -> str:
    return "".join(f'{indent}{name}: "{value}"\n' for name, value in settings.items())


def _pipeline(store: Store, folder: Path, bucket: str, lake: str, spark: Mapping[str, str]) -> Path:
    """The example pipeline, its samples in a bucket of their own."""
    files = store.files()
    files.mkdir(f"/{bucket}")
    files.put(str(ROOT / "samples" / NAME), f"/{bucket}/samples", recursive=True)
    source = f"path: s3://{bucket}/samples/shop-*.jsonl\n    settle: 0s\n    storage:\n{_block(store.storage, ' ' * 6)}"
    text = (ROOT / "conf" / f"{NAME}.yaml").read_text("utf-8")
    text = text.replace(f"path: ../samples/{NAME}/shop-*.jsonl\n", source).replace(f"./lake/{NAME}", lake)
    if spark:
        text += f"spark:\n{_block(spark, '  ')}"
    file = folder / "shop.yaml"
    file.write_text(text, "utf-8")
    return file


def _ingest(folder: Path, *words: str, code: int = 0) -> str:
    command = [sys.executable, "-m", "ingest", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=580)
    assert code == done.returncode, done.stderr[-4000:]
    return done.stdout or done.stderr


def _json(folder: Path, *words: str) -> Any:
    return json.loads(_ingest(folder, *words, "--output", "json"))


def test_files_that_come_between_two_looks(store: Store) -> None:
    """A listing that the client remembers would hide new files from `run --every` for ever."""
    store.files().mkdir("/ticks")
    source = Source("s", "files", NAME, path="s3://ticks/in/*.jsonl", storage=store.storage)
    found = []
    for name in ("a", "b"):
        store.files().pipe_file(f"/ticks/in/{name}.jsonl", b"{}\n")
        found.append([(file.path, file.size) for file in listing(source)[0]])
    store.files().pipe_file("/ticks/in/b.jsonl", b"{}\n{}\n")
    found.append([(file.path, file.size) for file in listing(source)[0]])
    a, b = "s3://ticks/in/a.jsonl", "s3://ticks/in/b.jsonl"
    assert [[(a, 3)], [(a, 3), (b, 3)], [(a, 3), (b, 6)]] == found


def test_messages_in_a_store(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    """Files that need `storage:` options must be listed by the driver and read by the workers."""
    file = _pipeline(store, tmp_path, "messages", "./lake", {})
    result = _json(tmp_path, "run", str(file))
    assert ([], 202) == (result["failures"], result["read"])
    assert expected_shop() == shop(Lake(spark, load(file)))
    again = _json(tmp_path, "run", str(file))
    assert (None, 0) == (again["batch"], again["read"])


def _verbs(file: str, *verbs: list[str]) -> list[str]:
    """What the verbs print, in one session."""
    command = [sys.executable, "-m", "tests.e2e.one_session", file, json.dumps(verbs)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=580)
    assert 0 == done.returncode, done.stderr[-4000:]
    return list(json.loads(done.stdout))


def test_a_lake_in_a_store(store: Store, tmp_path: Path) -> None:
    """Whatever takes a lake for a local folder breaks here: lock, logs, listings, shadows, upkeep, keys of messages."""
    try:
        settings = store.hadoop
    except Missing as missing:
        pytest.skip(str(missing))
    place = _pipeline(store, tmp_path, "lake", "s3a://lake/shop", settings)
    place.write_text(place.read_text("utf-8").replace("apply: merge", "apply: auto"), "utf-8")
    with place.open("a", encoding="utf-8") as more:
        more.write(f"bronze: {{seal: {{master_key: '{'0f' * 32}'}}}}\n")
    file = str(place)
    page = tmp_path / "page.html"
    as_json = ["--output", "json"]
    first, again, tables, status, _, compared, upkeep, life, earlier, mirrors = _verbs(
        file,
        ["run", file, *as_json],
        ["run", file, *as_json],
        ["tables", file, *as_json],
        ["status", file, *as_json],
        ["report", file, "--out", str(page)],
        ["rebuild", file, "shop.orders", "--dry-run", *as_json],
        ["maintain", file, *as_json],
        ["explain", file, "shop.orders", str(expected_shop()["orders"][0]["id"]), *as_json],
        ["sql", file, "--as-of-batch", "1", "SELECT count(*) AS n FROM shop.orders", *as_json],
        ["mirrors"],
    )
    result = json.loads(first)
    assert ({"done"}, []) == ({one["state"] for one in result["mirrors"]}, result["failures"])
    assert [] == [text for text in result["warnings"] if "Arrow" in text]
    assert {""} == {one["why_merge"] for one in result["mirrors"]}
    assert (None, 0, []) == tuple(json.loads(again)[name] for name in ("batch", "read", "failures"))
    paths = {one["path"] for one in json.loads(tables)}
    assert {f"s3a://lake/shop/mirrors/shop/{name}" for name in expected_shop()} == paths
    assert "shop.orders" in status
    assert "shop.orders" in page.read_text("utf-8")
    assert json.loads(compared)
    assert json.loads(upkeep)
    assert json.loads(life)
    assert [{"n": len(expected_shop()["orders"])}] == json.loads(earlier)
    assert expected_shop() == json.loads(mirrors)
    assert not store.files().exists("/lake/shop/_ingest.lock")
    assert 1 == len(store.files().ls("/lake/shop/_seal"))
    assert "mysqlType" in life
    assert "cannot be opened" not in life
    sealed = [one for one in store.files().find("/lake/shop/bronze") if "kind=message" in one]
    assert sealed
    assert not [
        one
        for one in sealed
        if b'"database"'
        in pq.read_table(pa.BufferReader(store.files().cat(one))).column("value").to_pylist()[0]
    ]


def test_a_second_run_in_a_store_is_refused(store: Store, tmp_path: Path) -> None:
    """Two drivers on one lake are what Delta's log store for S3 cannot bear; the second one starts no Spark to see it."""
    try:
        file = _pipeline(store, tmp_path, "held", "s3a://held/shop", store.hadoop)
    except Missing as missing:
        pytest.skip(str(missing))
    holder = {"host": "elsewhere", "pid": 1, "what": "run of shop", "token": "t", "beat": time.time() + 3600}
    store.files().pipe_file("/held/shop/_ingest.lock", json.dumps(holder).encode())
    errors = _ingest(tmp_path, "run", str(file), code=2)
    assert "The lake s3a://held/shop is in use by run of shop (process 1 on elsewhere)" in errors
    assert {"held/shop/_ingest.lock", "held/shop/_ingest.probe"} >= set(store.files().find("/held/shop"))


def test_of_two_runs_at_once_the_store_takes_one(store: Store, tmp_path: Path) -> None:
    """Between looking for a lock and writing one there is always a moment for another run; some stores take both."""
    with Faulty(tmp_path, store.url) as faulty:
        try:
            settings = store.hadoop | {"spark.hadoop.fs.s3a.endpoint": faulty.url}
            file = _pipeline(store, tmp_path, "race", "s3a://race/shop", settings)
        except Missing as missing:
            pytest.skip(str(missing))
        faulty.does(Fault(CARELESS, "PUT", "/careless/"))
        command = [sys.executable, "-c", _RACE, str(file)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert 0 == done.returncode, done.stderr[-4000:]
    assert [1] * 20 + [[True, True, False], [True, False, True]] == json.loads(done.stdout)


def test_from_topics_into_a_store(store: Store, tmp_path: Path, broker: Broker, topics: Topics) -> None:
    """Spark reads the broker and Arrow writes the lake: no file, receipt or offset may need a folder of this machine."""
    try:
        settings = store.hadoop
    except Missing as missing:
        pytest.skip(str(missing))
    store.files().mkdir("/topics")
    topic = topics.make(f"store-{uuid.uuid4().hex[:8]}", 2)
    for number in (1, 2):
        lines = (ROOT / "samples" / NAME / f"shop-{number}.jsonl").read_bytes().splitlines()
        topics.send(topic, [Sent(line, partition=number - 1) for line in lines])
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"pipeline: shop\nlake: s3a://topics/shop\nsources:\n  - name: shop\n    format: {NAME}\n"
        f"    bootstrap_servers: {broker.address}\n    topics: [{topic}]\n    start: earliest\n"
        f"    options: {{timezone: UTC}}\nspark:\n{_block(settings, '  ')}",
        "utf-8",
    )
    words = ["run", str(file), "--output", "json"]
    first, again, mirrors = _verbs(str(file), words, words, ["mirrors"])
    result = json.loads(first)
    assert ([], 202) == (result["failures"], result["read"])
    assert [f"2 messages were rejected: see `ingest rejects {file}`."] == result["warnings"]
    assert {""} == {one["why_merge"] for one in result["mirrors"]}
    assert (None, 0, []) == tuple(json.loads(again)[name] for name in ("batch", "read", "failures"))
    assert expected_shop() == json.loads(mirrors)
