"""Lakes in an S3-compatible store, asked without Spark: the same answers as of the same lake in a folder."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ingest.cli.app import app
from ingest.config import load
from ingest.operate import dry_run
from ingest.store import object_store, stores
from ingest.tables.tables import LakeReader
from tests.e2e.services import free_port
from tests.e2e.store import ACCESS, Store
from tests.lakes import change, touch
from tests.serve.conftest import client_of, depot
from tests.written_lake import WrittenLake

ODD = "a%2Fb c=é"
QUESTIONS = {
    "status": ["status", "{file}"],
    "tables": ["tables", "{file}", "--output", "json"],
    "rejects": ["rejects", "{file}"],
    "ddl": ["ddl", "{file}", "--output", "json"],
    "explain": ["explain", "{file}", "depot.bins", "2", "--output", "json"],
    "sql": ["sql", "{file}", "SELECT * FROM depot.bins ORDER BY id", "--output", "json"],
    "sql of the past": [
        "sql",
        "{file}",
        "SELECT * FROM depot.bins",
        "--as-of-batch",
        "2",
        "--output",
        "json",
    ],
    "sql of rows that are gone": ["sql", "{file}", "SELECT * FROM depot.shelf1", "--output", "json"],
    "sql of an odd name": ["sql", "{file}", f'SELECT * FROM depot."{ODD}"', "--output", "json"],
    "plan": ["plan", "{file}"],
    "plan as JSON": ["plan", "{file}", "--output", "json"],
    "validate": ["validate", "{file}"],
    "alerts": ["alerts", "{file}", "--output", "json"],
}
NEED_SOMEBODY = ("status", "alerts", "plan", "plan as JSON")
"""What ends with 1 as long as something of the lake needs somebody: a mirror without a row was written by others."""
PAGES = ("/", "/pipeline?pipeline=depot", "/table?pipeline=depot&table=depot.bins", "/rejects?pipeline=depot", "/ddl?pipeline=depot",
         "/row?pipeline=depot&table=depot.bins&key=2", "/sql?pipeline=depot&q=SELECT+*+FROM+depot.bins")  # fmt: skip


def without_row(lake: Path, mirror: str) -> None:
    """Take the first row out of a mirror's only file by a deletion vector, as Spark's MERGE does."""
    log = lake / "mirrors" / "depot" / mirror / "_delta_log"
    files = LakeReader.snapshot(_Anywhere(lake), f"mirrors/depot/{mirror}").files
    bitmap = struct.pack("<IIHHIH", 12346, 1, 0, 0, 16, 0)  # Roaring: one array of one value, 0
    data = struct.pack("<iqi", 1681511377, 1, 0) + bitmap
    vector = {"storageType": "i", "pathOrInlineDv": z85(data), "sizeInBytes": len(data), "cardinality": 1}
    (one,) = files
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"],
                "writerFeatures": ["deletionVectors"]}  # fmt: skip
    actions: list[dict[str, Any]] = [
        {"commitInfo": {}}, {"protocol": features}, {"remove": {"path": one.path, "dataChange": True, "deletionTimestamp": 0}},
        {"add": {"path": one.path, "partitionValues": {}, "size": one.size, "modificationTime": 0, "dataChange": True,
                 "stats": one.stats, "deletionVector": vector}},
    ]  # fmt: skip
    version = max(int(entry.stem) for entry in log.glob("*.json")) + 1
    (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)), "utf-8")


class _Anywhere(LakeReader):
    """A reader of a folder alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> str:
        return str(self.folder / name)


def z85(data: bytes) -> str:
    """Bytes as Delta writes them into its log: Python's alphabet has other letters."""
    python = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
    ours = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    padded = data + b"\0" * (-len(data) % 4)
    return base64.b85encode(padded).decode().translate(str.maketrans(python, ours))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> WrittenLake:
    """A lake in a folder."""
    made = depot(tmp_path_factory.mktemp("depot"))
    made.take([change("INSERT", ODD, 9100, {"id": "1", "word": "odd"})])
    without_row(made.lake, "shelf1")
    return made


@pytest.fixture(scope="module")
def stored(store: Store, lake: WrittenLake) -> Path:
    """The pipeline file of the same lake in the store."""
    files = store.files()
    files.mkdir("/read")
    files.put(str(lake.lake), "/read/depot", recursive=True)
    file = lake.file.with_name("stored.yaml")
    file.write_text(lake.file.read_text("utf-8").replace("./depot-lake", "s3a://read/depot"), "utf-8")
    return file


@pytest.fixture
def environment(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store's address and the user's keys, where every program looks for them."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS["key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ACCESS["secret"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)


def asked(question: str, file: Path, lake: str, code: int | None = None) -> str:
    """What a question answers, without what names the file and the lake, and without ages; it ends with a code."""
    words = [word.replace("{file}", str(file)) for word in QUESTIONS[question]]
    done = CliRunner().invoke(app, words)
    expected = int(question in NEED_SOMEBODY) if code is None else code
    assert expected == done.exit_code, done.output
    assert "Spark" not in done.output
    text = done.stdout.replace(str(file), "FILE").replace(lake, "LAKE")
    return "\n".join(line for line in text.splitlines() if "lag" not in line)


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_store_answers_as_a_folder_does(question: str, lake: WrittenLake, stored: Path) -> None:
    """A lake that is asked by starting Spark is not asked; one that is read otherwise may be read wrongly."""
    assert asked(question, lake.file, str(lake.lake)) == asked(question, stored, "s3a://read/depot")


@pytest.mark.usefixtures("environment")
def test_a_plan_says_what_would_be_read(lake: WrittenLake, stored: Path) -> None:
    """A store's lake knows its files and mirrors as well as a folder's: a new file is not taken for one that was read."""
    feed = lake.file.with_name("depot-9.jsonl")
    feed.write_text(change("INSERT", "bins", 9900, {"id": "9", "word": "x", "more": "7"}) + "\n", "utf-8")
    touch(feed)
    try:
        found, there = (
            json.loads(asked("plan as JSON", file, root, 0))[0]
            for file, root in ((stored, "s3a://read/depot"), (lake.file, str(lake.lake)))
        )
    finally:
        feed.unlink()
    assert there == found
    assert (lake.batch + 1, [feed.name]) == (
        found["next_batch"],
        [Path(one["file"]).name for one in found["sources"][0]["reads"]],
    )
    assert "depot.bins" in {one["table"] for one in found["tables"]}


@pytest.mark.usefixtures("environment")
def test_rows_taken_out_by_deletion_vectors_are_gone(lake: WrittenLake, stored: Path) -> None:
    """The comparison above says nothing if the vector takes nothing out."""
    assert "[]" == asked("sql of rows that are gone", stored, "s3a://read/depot").strip()
    assert '"word":"odd"' in asked("sql of an odd name", stored, "s3a://read/depot").replace('": "', '":"')


@pytest.mark.usefixtures("environment")
def test_large_files_are_read_in_parts(
    lake: WrittenLake, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of gigabytes must not be fetched for the three columns that a query names."""
    monkeypatch.setattr(object_store, "SMALL", 0)
    monkeypatch.setattr(object_store, "_contents", object_store._Contents())
    for question in ("sql", "sql of rows that are gone", "explain"):
        assert asked(question, lake.file, str(lake.lake)) == asked(question, stored, "s3a://read/depot")
    assert not object_store._contents._kept


def test_the_pages_show_it_as_well(lake: WrittenLake, stored: Path, store: Store) -> None:
    """The settings that Spark is given are enough, and are not shown."""
    settings = {"endpoint": store.url, "access.key": ACCESS["key"], "secret.key": "a-very-secret-word"}
    text = "".join(f'  spark.hadoop.fs.s3a.{name}: "{value}"\n' for name, value in settings.items())
    file = stored.with_name("settings.yaml")
    file.write_text(f"{stored.read_text('utf-8')}spark:\n{text}", "utf-8")
    client, plain = client_of(file), client_of(lake.file)
    for page in PAGES:
        answer = client.get(page)
        assert (200, 200) == (answer.code, plain.get(page).code), answer.text
        assert "a-very-secret-word" not in answer.text
    assert "depot.box has no key" in client.get("/").text


@pytest.mark.usefixtures("environment")
def test_a_lake_that_is_not_there_yet(stored: Path) -> None:
    """A store that holds nothing is not an empty lake."""
    file = stored.with_name("new.yaml")
    file.write_text(stored.read_text("utf-8").replace("s3a://read/depot", "s3a://read/other"), "utf-8")
    done = CliRunner().invoke(app, ["status", str(file)])
    assert (2, True) == (done.exit_code, "There is no lake at s3a://read/other yet" in done.output)
    done = CliRunner().invoke(app, ["plan", str(file)])
    assert (0, False) == (done.exit_code, "Spark" in done.output), done.output
    assert "the lake s3a://read/other, which does not exist yet" in done.stdout
    assert "Not run yet" in client_of(file).get("/").text


def test_a_store_that_does_not_answer(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page says so in one sentence, which does not contain the key."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA-not-shown")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "never-shown")
    monkeypatch.setattr(stores, "_PATIENCE", stores._PATIENCE | {"retry_timeout": "1s", "max_retries": "1"})
    file = stored.with_name("silent.yaml")
    file.write_text(stored.read_text("utf-8").replace("s3a://read/depot", "s3a://read/silent"), "utf-8")
    text = client_of(file).get("/").text
    assert "s3a://read/silent cannot be read (the store does not answer)" in text
    assert "s3a://read/silent cannot be read (the store does not answer)" in dry_run.why_spark(load(file))
    assert "shown" not in text


@pytest.mark.usefixtures("environment")
def test_a_bucket_that_is_not_there(stored: Path) -> None:
    """Its name is wrong more often than its lake is new."""
    file = stored.with_name("elsewhere.yaml")
    file.write_text(stored.read_text("utf-8").replace("s3a://read/depot", "s3a://nowhere/depot"), "utf-8")
    text = client_of(file).get("/").text
    assert "s3a://nowhere/depot cannot be read (404 Not Found: NoSuchBucket)" in text, text


def test_other_stores_are_named(lake: WrittenLake) -> None:
    """What cannot be read here has a sentence, not a traceback."""
    file = lake.file.with_name("azure.yaml")
    file.write_text(
        lake.file.read_text("utf-8").replace("./depot-lake", "abfss://c@a.example/depot"), "utf-8"
    )
    assert "abfss://c@a.example/depot is read by Spark alone" in client_of(file).get("/").text
