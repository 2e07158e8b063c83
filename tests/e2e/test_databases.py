"""From real databases through real Debezium and a real broker to mirrors: every cell of every table compared.

The histories are random; each test prints its seed, and ``INGEST_SEED`` repeats one.
"""

from __future__ import annotations

import re
import shlex
import time

import pytest
from typer.testing import CliRunner

from ingest.cli.app import app
from ingest.config import load
from ingest.run import run
from tests.e2e import cells, databases, typed_tables
from tests.e2e.debezium_engine import Capture, Engine, is_installed
from tests.e2e.feed import FOLD, Feed, write
from tests.e2e.histories import History
from tests.e2e.typed_tables import Column

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not is_installed(), reason="pip install -e '.[e2e]' brings Debezium"),
]
COMMON = {
    "database.hostname": "127.0.0.1",
    "database.user": databases.USER,
    "database.password": databases.PASSWORD,
    "time.precision.mode": "adaptive_time_microseconds",
    "converter.replace.null.with.default": "false",  # else a NULL arrives as its column's default
}
MARIADB = COMMON | {
    "connector.class": "io.debezium.connector.mysql.MySqlConnector",
    "database.include.list": "garden",
    "bigint.unsigned.handling.mode": "precise",  # else those past 2^63 arrive negative
    "snapshot.locking.mode": "none",
}
POSTGRES = COMMON | {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "database.dbname": "postgres",
    "plugin.name": "pgoutput",
    "publication.name": "garden",
    "publication.autocreate.mode": "disabled",
    "interval.handling.mode": "string",  # else months are counted as days
}


class Captured(Feed):
    """One database's captures, and the pipelines that read what they send."""

    def __init__(self, folder, topics, registry, history, captures, place):
        super().__init__(folder, history)
        self.topics = topics
        self.place = place
        self.names = [one.name for one in captures]
        self.engine = Engine(folder / "engine", topics.address, captures)
        history.create(self.marks)
        for capture in captures:
            topics.make(capture.name)
            for table in (*history.tables, self.marks):
                topics.make(f"{capture.name}.{place}.{table.name}", 1 if table is self.marks else 2)
            dialect = f"debezium-avro\n    registry: {registry.url}" if capture.avro else "debezium"
            pattern = f"    topic_pattern: '{capture.name}(\\..*)?'\n"
            self.add(capture.name, topics.address, f"{pattern}    format: {dialect}\n")

    def places(self):
        """The marks of every capture."""
        return [f"{name}.{self.place}.marks" for name in self.names]

    def has_come(self, place, mark):
        """Debezium sends a mark as its message's key, too."""
        return mark in self.topics.keys(place)

    def check(self):
        """Fail with the engine's own words."""
        self.engine.check()

    def settle(self):
        """Wait until the offsets of everything so far are kept.

        Debezium 3.6 reads too much of its schema history if DDL follows the kept offsets (dbz#1541).
        """
        self.catch_up()
        caught_up = time.time_ns()
        while not self.engine.has_kept_offsets(caught_up):
            self.catch_up()  # they are written with a row that comes later


@pytest.fixture
def mariadb(tmp_path, started, topics, registry, seed):
    """MariaDB with tables and rows from before the snapshot, and its capture."""
    node = started(databases.MariaDB(), "pymysql")
    history = History(node.connect(), typed_tables.mariadb(), seed, "`")
    for table in history.tables:
        history.create(table)
    history.transactions(100)
    prefix = f"maria{seed}"
    settings = MARIADB | {"database.port": str(node.port)}
    captures = [Capture(prefix, settings | {"database.server.id": "5501"}, files=str(tmp_path))]
    yield node, Captured(tmp_path, topics, registry, history, captures, "garden")
    history.connection.close()


def test_mariadb(spark, broker, mariadb):
    """After snapshot, DDL, kills and restarts, a cell that differs would be taken for the source's."""
    node, feed = mariadb
    (json,) = feed.names
    history = feed.history
    with feed.engine as engine:
        history.transactions(100)  # while the snapshot is read
        feed.catch_up()
        history.calm = False
        write(history, 1000, 6)
        feed.catch_up()
        feed.run(spark, json)
        write(history, 600, 3)
        feed.settle()
        history.transactions(200)
        engine.kill()
        write(history, 300, 3)
        node.stop()
        broker.stop()
        node.start()
        broker.start()
        history.connection = node.connect()
        engine.start()
        write(history, 500, 3)
        feed.catch_up()
        feed.run(spark, json)
        write(history, 700, 5)
        feed.catch_up()
    feed.run(spark, json)
    assert 3000 <= history.committed + history.rolled_back
    feed.compare(spark, json, "garden/")


@pytest.fixture
def postgres(tmp_path, started, topics, registry, seed):
    """PostgreSQL likewise, captured by each converter; tables without a key, and one of the large ones, send whole rows."""
    node = started(databases.PostgreSQL(), "psycopg")
    history = History(node.connect(), typed_tables.postgres(), seed, '"')
    cells.read_as_text(history.connection)
    history.execute("CREATE TYPE colour AS ENUM ('red', 'grün')")
    history.execute("CREATE PUBLICATION garden FOR ALL TABLES")
    for table in history.tables:
        history.create(table)
    for name in ("notes", "parcels"):
        history.execute(f"ALTER TABLE {name} REPLICA IDENTITY FULL")
    history.connection.commit()
    history.transactions(100)
    prefix = f"post{seed}"
    settings = POSTGRES | {"database.port": str(node.port)}
    captures = [
        Capture(prefix, settings | {"slot.name": "plain"}, files=str(tmp_path)),
        Capture(prefix + "avro", settings | {"slot.name": "avro"}, registry.url, files=str(tmp_path)),
    ]
    yield node, Captured(tmp_path, topics, registry, history, captures, "public")
    history.connection.close()


def test_postgres(spark, postgres):
    """Large values that were not sent again, keys that changed without them, and labels that no message renames must be as the
    source has them.
    """
    _, feed = postgres
    json, avro = feed.names
    history = feed.history
    with feed.engine as engine:
        history.transactions(100)
        feed.catch_up()
        history.transactions(400)
        feed.catch_up()
        feed.run(spark, json)
        feed.settle()  # a connector without kept offsets reads all tables a second time
        history.transactions(200)
        engine.stop()
        added = Column("varchar(20)", typed_tables.texts(20))
        history.execute('ALTER TABLE plants ADD COLUMN "später" varchar(20), DROP COLUMN ip')
        history.execute("ALTER TYPE colour RENAME VALUE 'red' TO 'crimson'")
        history.connection.commit()
        plants = history.tables[0].columns
        plants["später"] = added
        plants["e"] = Column("colour", typed_tables.one_of("crimson", "grün"))
        del plants["ip"]
        engine.start()
        history.truncate(history.tables[1])
        history.transactions(300)
        feed.catch_up()
    feed.run(spark, json)
    feed.compare(spark, json, "postgres/public.", surplus={"ip"})
    feed.run(spark, avro)
    feed.compare(spark, avro, "postgres/public.", surplus={"ip"}, nulls=False)


@pytest.mark.slow
def test_a_connector_that_has_lost_its_offsets(spark, postgres):
    """It reads all tables again: rows that changed meanwhile are right at once, and what is printed removes those that have gone."""
    _, feed = postgres
    json, _ = feed.names
    history = feed.history
    with feed.engine as engine:
        history.transactions(200)
        feed.settle()
        engine.stop()
        history.transactions(200)
        history.truncate(history.tables[1])
        history.transactions(50)
        engine.lose_offsets()
        engine.start()
        feed.catch_up()
        history.transactions(100)
        feed.catch_up()
    pipeline = load(feed.folder / f"{json}.yaml")
    said = run(spark, pipeline, (*FOLD, "quality"))
    assert not [failure for failure in said.failures if "was loaded again, and" not in failure], said.failures
    commands = dict.fromkeys(re.findall("`(ingest epoch [^`]*)`", "\n".join(said.failures)))
    assert commands
    for command in commands:
        done = CliRunner().invoke(app, shlex.split(command)[1:])
        assert 0 == done.exit_code, done.output
    assert [] == run(spark, pipeline, (*FOLD, "quality")).failures
    feed.compare(spark, json, "postgres/public.")
