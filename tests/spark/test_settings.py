"""What a session is set to, and what the user's own file and variables change of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ingest.spark import settings
from ingest.spark.java import Java

JAVA = Java(Path("/java"), "17.0.15", "PATH")
JARS = [Path("/jars/one.jar"), Path("/jars/two.jar")]


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("", True),
        ("local", True),
        ("local[4]", True),
        ("local[*]", True),
        ("local-cluster[2,1,1024]", False),
        ("yarn", False),
        ("spark://host:7077", False),
    ],
)
def test_is_local(master, local):
    """A cluster tuned like a laptop would shuffle everything through two partitions."""
    assert local == settings.is_local(master)


@pytest.mark.parametrize(("master", "cores"), [("local", "1"), ("local[3]", "3"), ("local[6,2]", "6")])
def test_one_shuffle_partition_per_core(master, cores):
    """Spark's 200 partitions cost more than a small batch itself."""
    made = settings.local_settings(master, {}, JAVA, JARS, "batch")
    assert cores == made["spark.sql.shuffle.partitions"]


def test_a_session_on_one_machine_asks_for_a_secret():
    """Spark makes one for itself only there; on a cluster the cluster's own settings hold."""
    assert "true" == settings.local_settings("local[2]", {}, JAVA, JARS, "tick")["spark.authenticate"]
    assert "spark.authenticate" not in settings.cluster_settings({}, JARS)


def test_the_users_settings_win():
    """A pipeline file that asks for more memory must get it."""
    conf = {"spark.driver.memory": "9g", "spark.sql.adaptive.enabled": "true"}
    made = settings.local_settings("", conf, JAVA, JARS, "tick")
    assert conf == {name: made[name] for name in conf}


def test_lists_are_joined():
    """A jar or an extension of the user's own must not push Delta Lake out."""
    conf = {"spark.sql.extensions": "x.Y", "spark.driver.extraClassPath": "/mine.jar"}
    made = settings.local_settings("", conf, JAVA, JARS, "tick")
    assert "io.delta.sql.DeltaSparkSessionExtension,x.Y" == made["spark.sql.extensions"]
    assert "/jars/one.jar:/jars/two.jar:/mine.jar" == made["spark.driver.extraClassPath"]


def test_the_users_java_options_come_last():
    """Java heeds the last of two equal options."""
    made = settings.local_settings("", {"spark.driver.extraJavaOptions": "-Da=b"}, JAVA, JARS, "tick")
    assert made["spark.driver.extraJavaOptions"].endswith(" -Da=b")


@pytest.mark.parametrize("umask", [0o077, 0o027, 0o002])
def test_spark_writes_by_the_umask(umask):
    """Hadoop's own, 022, lets every user of the machine read the mirrors, whatever the operator has set."""
    before = os.umask(umask)
    try:
        made = settings.local_settings("", {}, JAVA, JARS, "tick")
    finally:
        assert umask == os.umask(before)
    assert f"{umask:03o}" == made["spark.hadoop.fs.permissions.umask-mode"]


def test_memory_of_the_environment(monkeypatch):
    """SPARK_DRIVER_MEMORY is how Spark's users give memory; a default of ours must not override it."""
    monkeypatch.setenv("SPARK_DRIVER_MEMORY", "5g")
    assert "spark.driver.memory" not in settings.local_settings("", {}, JAVA, JARS, "tick")


def test_clusters_keep_their_own_settings():
    """On a cluster only what makes results right is set, and the jars travel."""
    made = settings.cluster_settings({}, JARS)
    assert "file:///jars/one.jar,file:///jars/two.jar" == made["spark.jars"]
    assert [] == [name for name in (*settings.LOCAL, "spark.sql.shuffle.partitions") if name in made]
    assert settings.EVERYWHERE.items() <= made.items()


def test_source_text_never_names_a_variable():
    """A column's comment could read the environment of the host into the lake: ``${env:PASSWORD}``."""
    assert "false" == settings.EVERYWHERE["spark.sql.variable.substitute"]


def test_the_report_of_a_crash_is_private(monkeypatch, tmp_path):
    """A predictable name in /tmp lets any user of the machine put a link there, or read what Java had in memory."""
    monkeypatch.setenv("INGEST_CACHE", str(tmp_path / "cache"))
    options = settings.local_settings("", {}, JAVA, JARS, "tick")["spark.driver.extraJavaOptions"]
    assert f"-XX:ErrorFile={tmp_path}/cache/crashes/hs_err_%p.log" in options
    assert 0o700 == (tmp_path / "cache" / "crashes").stat().st_mode & 0o777
