"""Queries of other people: whatever they ask, the service lives, and shows the lake alone."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import psutil
import pytest

from ingest.inspect.query_process import NURSERY
from tests.lakes import ROOT
from tests.serve.conftest import Client
from tests.serve.hostile_queries import queries
from tests.serve.test_process import LONG, started
from tests.timing import PATIENCE, until
from tests.written_lake import WrittenLake

LIMIT = 10  # seconds of a query, as the pages have it
MEGABYTES = 400


def asked(client: Client, query: str) -> Any:
    """What the API answers."""
    return client.get(f"/api/sql?pipeline=depot&q={quote(query)}").json


@pytest.mark.parametrize(
    "function",
    ["pandas_scan(NULL)", "query('SELECT 1')", "query_table('_table_0_')", "duckdb_settings()", "enable_logging('x')",
     "read_text('/etc/passwd')", "sniff_csv('/etc/passwd')", "pragma_user_agent()", "json_execute_serialized_sql('{}')", "Duckdb_Views()"],
)  # fmt: skip
@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM {call}",
        "WITH {name} AS (SELECT 1) SELECT * FROM {call}",
        "SELECT * FROM depot.bins WHERE id IN (WITH {name} AS (SELECT 1) SELECT * FROM {call})",
        "SELECT * FROM depot.bins, LATERAL {call}",
        "SELECT * FROM depot.bins POSITIONAL JOIN {call}",
    ],
)
def test_no_function_of_tables_is_called(client: Client, function: str, query: str) -> None:
    """One of them takes a null pointer for a table, others show settings or run text as a query."""
    name = function.partition("(")[0]
    said = asked(client, query.format(call=function, name=name))["error"]
    assert f"the function {name.lower()} is refused" in said.lower()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT 1 AS n;", [{"n": 1}]),
        ("TABLE depot.bins;", None),
        ("SELECT '_table_999_' AS n", [{"n": "_table_999_"}]),
        (f"SELECT length('_table_{'9' * 5000}_') AS n", [{"n": 5008}]),
        ("SELECT sum(range) AS n FROM range(4)", [{"n": 6}]),
        ("WITH _table_0_ AS (SELECT 7 AS id) SELECT count(*) AS n FROM depot.bins, _table_0_", [{"n": 4}]),
        ("WITH q AS (SELECT 1 AS n), r AS (SELECT n + 1 AS n FROM q) SELECT n FROM (SELECT * FROM r)", [{"n": 2}]),
        ("WITH RECURSIVE q AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM q WHERE n < 3) SELECT max(n) AS n FROM q", [{"n": 3}]),
        ("SELECT {'at': TIMESTAMPTZ '2020-01-01 00:00:00+00'} AS n", [{"n": {"at": "2020-01-01T00:00:00"}}]),
        ("SELECT 1.10::DECIMAL(38,2) AS n, 1e17 AS m", [{"n": 1.10, "m": 1e17}]),
    ],
)  # fmt: skip
def test_what_users_type_is_run(client: Client, query: str, expected: object) -> None:
    """Everybody ends a query with a semicolon; a text that looks like a name of ours is still a text."""
    found = asked(client, query)
    assert (expected or asked(client, "SELECT * FROM depot.bins")) == found


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("PIVOT depot.bins ON id USING count(*)", "write SELECT ..., count(*) FILTER"),
        ("SELECT * FROM (WITH q AS (SELECT 1) SELECT 1) AS a, q", "There is no table q"),
        ("WITH a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a", "There is no table b"),
        ("SELECT repeat('x', 2000000000)", "more than 256 MB of memory"),
        ("SELECT list_sum(range(200000000))", "more than 256 MB of memory"),
        ("SELECT length(list_aggregate(range(100000000), 'string_agg', ','))", "more than 256 MB of memory"),
    ],
)
def test_what_is_refused_is_said_in_true_words(client: Client, query: str, said: str) -> None:
    """A complaint about a word that the user did not type sends him to look for it."""
    assert said in asked(client, query)["error"]


def has_crashed(nursery: psutil.Process) -> bool:
    """Let the query that runs crash; False if none has begun yet."""
    for child in nursery.children():
        with suppress(psutil.NoSuchProcess):
            if child.cpu_times().user > 0.3:
                child.send_signal(signal.SIGSEGV)
                return True
    return False


def test_a_crash_of_duckdb_is_a_sentence(client: Client) -> None:
    """It ended the service, with every pipeline's pages, schedules and metrics."""
    asked(client, "SELECT 1")
    assert NURSERY._running is not None
    nursery = psutil.Process(NURSERY._running.pid)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(asked, client, LONG)
        until(lambda: has_crashed(nursery))
        assert "The query ended its process: DuckDB failed on it" in answer.result()["error"]
    assert [{"n": 1}] == asked(client, "SELECT 1 AS n")
    nursery.kill()
    assert [{"n": 1}] == asked(client, "SELECT 1 AS n")


def test_a_question_outlives_what_starts_its_process(client: Client) -> None:
    """Whoever asks while the system ends that process is told that DuckDB failed on a good query."""
    asked(client, "SELECT 1")
    assert NURSERY._running is not None
    nursery = psutil.Process(NURSERY._running.pid)
    nursery.suspend()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(asked, client, "SELECT 1 AS n")
        time.sleep(0.5)  # the question waits for a process
        nursery.kill()
        assert [{"n": 1}] == answer.result()


_WALLS = """
import os, socket, subprocess, sys
from ingest.inspect import confinement
lake, other = sys.argv[1:]
confinement.limit(300, 64 << 20)
confinement.shut_in()
confinement.may_read_only([lake])
def refused(act):
    try:
        act()
    except (OSError, MemoryError):
        return True
    return False
print([
    refused(lambda: open(f"{lake}/file").read()),
    refused(lambda: open(f"{other}/file").read()),
    refused(lambda: open(f"{lake}/../other/file").read()),
    refused(lambda: os.listdir(other)),
    refused(lambda: open(f"/proc/{os.getppid()}/environ").read()),
    refused(lambda: open(f"{lake}/new", "w")),
    refused(lambda: os.remove(f"{lake}/file")),
    refused(lambda: socket.socket()),
    refused(lambda: subprocess.run(["/bin/true"])),
    refused(lambda: os.kill(os.getppid(), 0)),
    refused(lambda: bytearray(128 << 20)),
])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the walls are Linux's")
def test_the_system_denies_what_duckdb_may_forget(tmp_path: Path) -> None:
    """A fault in one of DuckDB's many functions would read the service's memory or another user's files."""
    for name in ("lake", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("x", "ascii")
    done = subprocess.run(
        [sys.executable, "-c", _WALLS, str(tmp_path / "lake"), str(tmp_path / "other")],
        capture_output=True, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert [False, *[True] * 10] == json.loads(done.stdout.lower() or "[]"), done.stderr


def test_a_process_is_killed_at_its_limit() -> None:
    """One call of one function is not interrupted by DuckDB, however long it takes."""
    code = "from ingest.inspect import confinement; confinement.limit(0.3, 1 << 30); sum(range(10**12))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert -signal.SIGALRM == done.returncode  # the sum takes hours


class Attack:
    """Asks a service that runs in a process of its own, and watches its memory."""

    def __init__(self, file: Path) -> None:
        self.running = started(str(file), "--listen", "127.0.0.1:0", "--no-run")
        assert self.running.stderr is not None
        self._url = urlsplit(self.running.stderr.readline().split()[0])
        self.memory = self.with_children = 0
        self.slowest = 0.0
        self._is_over = threading.Event()
        self._watching = threading.Thread(target=self._watch)
        self._watching.start()

    def _watch(self) -> None:
        service = psutil.Process(self.running.pid)
        while not self._is_over.wait(0.05):
            self.memory = max(self.memory, service.memory_info().rss)
            together = service.memory_info().rss
            for child in service.children(recursive=True):
                try:
                    together += child.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self.with_children = max(self.with_children, together)

    def ask(self, query: str) -> tuple[int, str]:
        """An answer's code and text."""
        asking = http.client.HTTPConnection(self._url.hostname or "", self._url.port, timeout=60)
        began = time.monotonic()
        asking.request("GET", f"/api/sql?{urlencode({'pipeline': 'depot', 'q': query})}")
        answer = asking.getresponse()
        text = answer.read().decode()
        self.slowest = max(self.slowest, time.monotonic() - began)
        asking.close()
        return answer.status, text

    def end(self) -> int | None:
        """Stop it; the exit code that it had before, None if it still ran."""
        self._is_over.set()
        self._watching.join()
        code = self.running.poll()
        self.running.terminate()
        self.running.communicate()
        return code


@pytest.mark.parametrize(
    "count",
    [pytest.param(40, marks=pytest.mark.e2e), pytest.param(800, marks=pytest.mark.slow)],
    ids=["few", "many"],
)
def test_hostile_queries_end_no_service(lake: WrittenLake, tmp_path: Path, count: int) -> None:
    """Any reader, and any web page on the way, could stop all pipelines, or read the machine's files."""
    secret = secrets.token_hex(16)
    path = tmp_path / "secret.csv"
    path.write_text(f"a,b\n{secret},1\n", "ascii")
    count = int(os.environ.get("HOSTILE_QUERIES", count))
    attack = Attack(lake.file)
    codes: dict[int, int] = {}
    wrong: list[tuple[str, int, str]] = []
    try:
        for query in queries(7, count, str(path), str(tmp_path)):
            code, text = attack.ask(query)
            codes[code] = codes.get(code, 0) + 1
            if secret in text or code not in (200, 400, 413, 431) or "something unexpected" in text:
                wrong.append((query[:300], code, text[:300]))
    finally:
        code = attack.end()
    sys.stdout.write(
        f"{codes}, slowest {attack.slowest:.1f} s, {attack.memory >> 20} MB, with its processes {attack.with_children >> 20} MB\n"
    )
    assert [] == wrong
    assert code is None
    assert attack.slowest < LIMIT + 2
    assert attack.memory < MEGABYTES << 20
