"""Real databases for tests, from the system's packages: one node on loopback, in a folder of its own.

Both refuse to run as root, so root starts them as the package's own user, or as ``nobody``; for the same
reason the folder is not pytest's, which other users may not enter.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from abc import abstractmethod
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import pytest

from tests.e2e import unstable
from tests.e2e.services import Missing, Service

USER, PASSWORD = "capture", "capture"
_SERVER = """\
datadir={home}/data
socket={home}/socket
pid-file={home}/pid
port={port}
bind-address=127.0.0.1
server-id={server}
log-bin=bin
character-set-server=utf8mb4
collation-server=utf8mb4_bin
default-time-zone=+08:00
innodb_buffer_pool_size=64M
innodb_flush_log_at_trx_commit=0
sync_binlog=0
performance_schema=OFF
"""
_MARIADB = f"""\
[mariadbd]
{_SERVER}\
version=5.7.19-log
binlog-format=ROW
binlog-row-image=FULL
binlog_row_metadata=MINIMAL
binlog_annotate_row_events=OFF
sql-mode=STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION
init-file={{home}}/init.sql
"""
_MARIADB_USER = f"""\
CREATE DATABASE IF NOT EXISTS garden;
CREATE USER IF NOT EXISTS '{USER}'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';
GRANT ALL ON *.* TO '{USER}'@'127.0.0.1' WITH GRANT OPTION;
CREATE USER IF NOT EXISTS '{USER}'@'localhost' IDENTIFIED BY '{PASSWORD}';
GRANT ALL ON *.* TO '{USER}'@'localhost' WITH GRANT OPTION;
"""
_MYSQL = f"""\
[mysqld]
{_SERVER}\
mysqlx=OFF
secure-file-priv=NULL
gtid-mode=ON
enforce-gtid-consistency=ON
lc-messages-dir={{root}}/usr/share/mysql
character-sets-dir={{root}}/usr/share/mysql/charsets
plugin-dir={{root}}/usr/lib/mysql/plugin
innodb_redo_log_capacity=64M
"""
_MYSQL_PARTS = """\
INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so';
INSTALL PLUGIN rpl_semi_sync_replica SONAME 'semisync_replica.so';
INSTALL COMPONENT 'file://component_classic_hashing';
"""
_POSTGRES = """\
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
wal_level = logical
max_wal_senders = 8
max_replication_slots = 8
max_prepared_transactions = 8
fsync = off
timezone = 'Asia/Shanghai'
shared_buffers = '32MB'
"""


class Database(Service):
    """A node in a folder of its own: ``with MariaDB() as node: node.connect()``."""

    user = "nobody"  # the system's user, where root starts it

    def __init__(self) -> None:
        super().__init__(Path())

    @abstractmethod
    def prepare(self) -> None:
        """Make the data folder."""

    @abstractmethod
    def command(self) -> list[str]:
        """What runs the node in the foreground."""

    @abstractmethod
    def connect(self) -> Any:
        """A connection by the client library."""

    def __enter__(self) -> Self:
        self.command()  # before anything is made: the packages may be missing
        self.home = Path(tempfile.mkdtemp(prefix="ingest-e2e-"))
        if self._as():
            shutil.chown(self.home, self._as()["user"])
        try:
            self.prepare()
            self.start()
        except BaseException:
            shutil.rmtree(self.home, ignore_errors=True)
            raise
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        shutil.rmtree(self.home, ignore_errors=True)

    def start(self) -> None:
        """Start the node, also again after a stop, and wait until it accepts a connection."""
        self.launch(self.command(), lambda: self.connect().close(), **self._as())

    def _as(self) -> dict[str, Any]:
        """The user that a node of root's runs as."""
        if os.geteuid():
            return {}
        known = {one.pw_name: one for one in pwd.getpwall()}
        one = known.get(self.user) or known["nobody"]
        return {"user": one.pw_uid, "group": one.pw_gid, "extra_groups": []}

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=False, cwd=self.home, **self._as()
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]}: {(done.stdout + done.stderr)[-2000:]}")

    def _write(self, name: str, text: str) -> None:
        (self.home / name).write_text(text)
        if self._as():
            shutil.chown(self.home / name, self._as()["user"])


def _found(package: str, name: str, *folders: str) -> str:
    known = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *folders]))
    if known is None:
        raise Missing(f"{name} is not installed: apt-get install {package}")
    return known


class MariaDB(Database):
    """MariaDB that calls itself MySQL 5.7, as Debezium's MySQL connector wants it."""

    user = "mysql"
    server = 7
    primary_role, replica_role = "master", "slave"  # as the server's statements call them

    def prepare(self) -> None:
        """A server without a root password and with the capture's user."""
        self._write("my.cnf", _MARIADB.format(home=self.home, port=self.port, server=self.server))
        self._write("init.sql", _MARIADB_USER)
        install = _found("mariadb-server", "mariadb-install-db")
        settings = f"--defaults-file={self.home}/my.cnf"
        self._run(install, settings, "--auth-root-authentication-method=normal", "--skip-test-db")

    def command(self) -> list[str]:
        """The server alone, without its watchdog script."""
        server = _found("mariadb-server", "mariadbd", "/usr/sbin", "/usr/local/sbin")
        return [server, f"--defaults-file={self.home}/my.cnf"]

    def connect(self) -> Any:
        """A connection that sees TIMESTAMP in UTC."""
        import pymysql

        return pymysql.connect(
            host="127.0.0.1", port=self.port, user=USER, password=PASSWORD, database="garden",
            charset="utf8mb4", init_command="SET time_zone = '+00:00'",
        )  # fmt: skip


class MySQL(MariaDB):
    """MySQL itself, of Debian's unstable distribution: 9.7 in 2026."""

    user = "nobody"
    primary_role, replica_role = "source", "replica"

    def prepare(self) -> None:
        """A server with the capture's user, and what semi-synchronous replication needs."""
        settings = _MYSQL.format(home=self.home, port=self.port, server=self.server, root=self._root())
        self._write("my.cnf", settings)
        self._write("init.sql", f"{_MYSQL_PARTS}{_MARIADB_USER}")
        self._run(*self.command()[:2], "--initialize-insecure")

    def command(self) -> list[str]:
        """The server in the foreground."""
        server = unstable.program(self._root(), "usr/sbin/mysqld")
        return [server, f"--defaults-file={self.home}/my.cnf", f"--init-file={self.home}/init.sql"]

    @staticmethod
    def _root() -> Path:
        return unstable.unpacked("mysql-server-core")


class Replica(MariaDB):
    """A MariaDB that follows another one."""

    server = 8

    def __init__(self, primary: Database) -> None:
        super().__init__()
        self.primary = primary

    def __enter__(self) -> Self:
        super().__enter__()
        self.execute(self._follow(), "SET GLOBAL read_only = ON", f"START {self.replica_role}")
        return self

    def _follow(self) -> str:
        return (
            f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {self.primary.port}, MASTER_USER = '{USER}', "
            f"MASTER_PASSWORD = '{PASSWORD}', MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1"
        )

    def execute(self, *statements: str) -> None:
        """Statements of its operator."""
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def acknowledge(self, whether: str) -> None:
        """Whether the primary's commits may go on as soon as they are received here: ON or OFF."""
        role = self.replica_role
        self.execute(
            f"SET GLOBAL rpl_semi_sync_{role}_enabled = {whether}",
            f"STOP {role} IO_THREAD",
            f"START {role} IO_THREAD",
        )

    def pause(self) -> None:
        """Receive what the primary commits, and apply nothing of it."""
        self.execute(f"STOP {self.replica_role} SQL_THREAD")

    def resume(self) -> None:
        """Apply what has been received."""
        self.execute(f"START {self.replica_role} SQL_THREAD")


class MySQLReplica(Replica, MySQL):
    """A MySQL that follows another one."""

    def _follow(self) -> str:
        return (
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {self.primary.port}, SOURCE_USER = '{USER}', "
            f"SOURCE_PASSWORD = '{PASSWORD}', SOURCE_AUTO_POSITION = 1, SOURCE_CONNECT_RETRY = 1, GET_SOURCE_PUBLIC_KEY = 1"
        )


class PostgreSQL(Database):
    """PostgreSQL with logical decoding switched on."""

    user = "postgres"
    stopping = signal.SIGINT  # its fast shutdown; SIGTERM waits for clients

    def prepare(self) -> None:
        """A cluster that trusts loopback."""
        self._run(
            self._binary("initdb"), "-D", f"{self.home}/data", "-U", USER, "-A", "trust", "-E", "UTF8",
            "--locale=C", "--no-sync",
        )  # fmt: skip
        with (self.home / "data" / "postgresql.conf").open("a") as settings:
            settings.write(_POSTGRES.format(port=self.port))

    def command(self) -> list[str]:
        """The server in the foreground."""
        return [self._binary("postgres"), "-D", f"{self.home}/data"]

    def connect(self) -> Any:
        """A connection that sees TIMESTAMPTZ in UTC."""
        import psycopg

        return psycopg.connect(
            f"host=127.0.0.1 port={self.port} user={USER} dbname=postgres",
            options="-c timezone=UTC -c intervalstyle=iso_8601",
        )

    def _binary(self, name: str) -> str:
        installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda each: -int(each.parent.name))
        return _found("postgresql", name, *map(str, installed))


class Standby(PostgreSQL):
    """A physical standby of another PostgreSQL, which its queries see as far as it has replayed the log."""

    def __init__(self, primary: PostgreSQL) -> None:
        super().__init__()
        self.primary = primary

    def prepare(self) -> None:
        """A copy of the primary as it is."""
        address = f"host=127.0.0.1 port={self.primary.port} user={USER}"
        self._run(
            self._binary("pg_basebackup"), "-D", f"{self.home}/data", "-d", address, "-R", "-c", "fast", "--no-sync"
        )  # fmt: skip
        with (self.home / "data" / "postgresql.conf").open("a") as settings:
            settings.write(f"port = {self.port}\n")

    def pause(self) -> None:
        """Receive the log, and replay nothing of it."""
        with self.connect() as connection:
            connection.execute("SELECT pg_wal_replay_pause()")

    def resume(self) -> None:
        """Replay what has been received."""
        with self.connect() as connection:
            connection.execute("SELECT pg_wal_replay_resume()")


class NewestPostgreSQL(PostgreSQL):
    """PostgreSQL of Debian's unstable distribution: 18 in 2026."""

    def _binary(self, name: str) -> str:
        root = unstable.unpacked("postgresql-18", "postgresql-client-18")
        for needed in ("postgres", "initdb", "pg_basebackup"):
            unstable.program(root, f"usr/lib/postgresql/18/bin/{needed}")
        return str(root / "usr/lib/postgresql/18/bin" / name)


class NewestStandby(Standby, NewestPostgreSQL):
    """A physical standby of it, which may decode the log itself."""

    def prepare(self) -> None:
        """A copy of the primary, which keeps for it what its slots need of the catalog."""
        super().prepare()
        with (self.home / "data" / "postgresql.conf").open("a") as settings:
            settings.write("hot_standby_feedback = on\n")


_Node = TypeVar("_Node", bound=Database)
_PRIMARIES: dict[type[Database], type[Database]] = {
    Replica: MariaDB, MySQLReplica: MySQL, Standby: PostgreSQL, NewestStandby: NewestPostgreSQL
}  # fmt: skip


class Nodes(ExitStack):
    """The databases that run while a block does: one of each kind that is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self._running: dict[type[Database], Database] = {}

    def of(self, kind: type[_Node]) -> _Node:
        """The one of a kind, a replica beside the one that it follows; a test for which its packages are missing is skipped."""
        if kind not in self._running:
            primary = _PRIMARIES.get(kind)
            try:
                node = kind(self.of(primary)) if primary else kind()  # type: ignore[call-arg]  # a replica's
                self._running[kind] = self.enter_context(node)
            except Missing as error:
                pytest.skip(str(error))
        return cast("_Node", self._running[kind])
