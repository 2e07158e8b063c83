"""How a store is reached: by the environment, or by the pipeline file's settings for Spark; the store itself is in tests/e2e."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from ingest.config import Pipeline
from ingest.errors import StoreError
from ingest.store import object_store, stores
from ingest.store.object_store import ObjectStore
from ingest.store.stores import options_of

HEAD = "spark.hadoop.fs.s3a."
KEYS = {f"{HEAD}access.key": "a", f"{HEAD}secret.key": "s"}
GIVEN = {"aws_access_key_id": "a", "aws_secret_access_key": "s"}


@pytest.mark.parametrize(
    ("settings", "environment", "options"),
    [
        ({}, {}, {}),
        ({}, {"AWS_REGION": "eu-west-1"}, {}),  # delta-rs reads it itself
        (KEYS, {}, GIVEN),
        (
            {**KEYS, f"{HEAD}session.token": "t", f"{HEAD}endpoint.region": "eu-west-1"},
            {},
            {**GIVEN, "aws_session_token": "t", "aws_region": "eu-west-1"},
        ),
        ({f"{HEAD}endpoint": "minio:9000"}, {}, {"aws_endpoint_url": "https://minio:9000", "aws_region": "us-east-1"}),
        (
            {f"{HEAD}endpoint": "minio:9000", f"{HEAD}connection.ssl.enabled": "false"},
            {"AWS_REGION": "eu-west-1"},
            {"aws_endpoint_url": "http://minio:9000", "aws_allow_http": "true"},
        ),
        (
            {},
            {"AWS_ENDPOINT_URL": "http://minio:9000"},
            {"aws_endpoint_url": "http://minio:9000", "aws_allow_http": "true", "aws_region": "us-east-1"},
        ),
        (
            {f"{HEAD}aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"},
            {},
            {"aws_skip_signature": "true"},
        ),
    ],
)  # fmt: skip
def test_a_store_is_reached_as_spark_reaches_it(
    settings: dict[str, str], environment: dict[str, str], options: dict[str, str]
) -> None:
    """Credentials that must be written a second time are written where they can be read."""
    found = options_of(settings, environment)
    assert options == {name: value for name, value in found.items() if name not in stores._PATIENCE}


@pytest.mark.parametrize(
    ("lake", "readable"),
    [
        ("/lake", True),
        ("s3://b/lake", True),
        ("s3a://b/lake", True),
        ("abfss://c@a/lake", False),
        ("gs://b/lake", False),
        ("hdfs://n/lake", False),
    ],
)
def test_what_is_not_tried_is_sparks(lake: str, readable: bool) -> None:
    """Spark reads every store that is not known to be readable without it, even if that is slower."""
    assert readable == stores.is_readable(lake)


def test_a_path_outside_every_lake_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """The credentials of one lake must not open the folders next to it."""
    monkeypatch.setattr(stores, "_stores", {})
    pipeline = Pipeline("p", Path("/p.yaml"), "s3a://bucket/lake", ())
    stores.remember_store(pipeline)
    assert stores._stores["s3a://bucket/lake"] is stores.at("s3a://bucket/lake/runs/_delta_log")
    for path in ("s3a://bucket/lake2/runs", "s3a://bucket/secret", "s3a://other/lake/runs"):
        with pytest.raises(StoreError, match="read with Spark alone"):
            stores.at(path)
    stores.remember_store(replace(pipeline, lake="s3a://bucket/lake/inner"))
    assert stores._stores["s3a://bucket/lake/inner"] is stores.at("s3a://bucket/lake/inner/runs")


def test_what_a_client_says_is_not_shown() -> None:
    """Stores answer with the name of the key that they refuse."""
    said = "Generic S3 error: Server returned non-2xx status code: 403 Forbidden: <AWSAccessKeyId>AKIA1</AWSAccessKeyId>"
    with (
        pytest.raises(StoreError, match=r"cannot be read \(403 Forbidden\)") as caught,
        object_store.said("s3a://b/l"),
    ):
        raise OSError(said)
    assert "AKIA1" not in str(caught.value)


def test_a_listing_counts_from_its_end_and_sizes_come_of_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of 20,000 objects was old when its listing was complete, and each question about a file of it listed it again."""
    now, listings = [100.0], list[str]()

    def listed(_store: ObjectStore, folder: str) -> dict[str, os.stat_result]:
        listings.append(folder)
        now[0] += 2 * object_store.MOMENT
        return {"a.parquet": os.stat_result((0, 0, 0, 1, 0, 0, 7, 0, 0, 0))}

    monkeypatch.setattr(object_store, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(ObjectStore, "_look", listed)
    store = ObjectStore("s3://b/lake", {})
    for _ in range(3):
        assert 7 == store.stat("s3://b/lake/t/a.parquet").st_size
    assert 1 == len(listings)
    assert {"a.parquet": 7} == store.sizes("s3://b/lake/t")
    assert 2 == len(listings)


def test_a_folder_of_this_machine_says_its_sizes(tmp_path: Path) -> None:
    """A file that goes while its folder is listed, or the folder itself, would end the look at all the others."""
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    store = stores.at(str(tmp_path))
    assert {"a": 3} == store.sizes(str(tmp_path))
    assert {} == store.sizes(str(tmp_path / "nowhere"))


def test_a_table_that_stays_open_is_the_newest_one(tmp_path: Path) -> None:
    """What was open before is brought up to date; it is not taken for a table that has come in its place."""
    place = str(tmp_path / "t")

    def found() -> tuple[int, int]:
        now = DeltaTable(place)
        kept = stores.newest(place, str(now.metadata().id), now.version())
        return kept.version(), kept.count()

    def write(rows: int) -> None:
        write_deltalake(place, pa.table({"id": list(range(rows))}), mode="append")

    write(1)
    assert (0, 1) == found()
    shutil.copytree(place, tmp_path / "copy")
    write(2)
    write(3)
    assert (2, 6) == found()
    assert stores.newest(place, str(DeltaTable(place).metadata().id), 2) is stores.newest(
        place, str(DeltaTable(place).metadata().id), 2
    )
    shutil.rmtree(place)
    shutil.copytree(tmp_path / "copy", place)  # the same table, put back
    assert (0, 1) == found()
    shutil.rmtree(place)
    for rows in (5, 6, 7):
        write(rows)
    assert (2, 18) == found()
