"""The process of the service: how it begins, what it refuses, and how it ends."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import psutil
import pytest

from tests.lakes import ROOT
from tests.serve.conftest import client_of
from tests.serve.test_guard import SECRET
from tests.timing import PATIENCE, until
from tests.written_lake import WrittenLake

PATIENT = f"""
from ingest.inspect.duck_query import Bounds
from ingest.serve import pages
pages.BOUNDS = Bounds({PATIENCE}, pages.BOUNDS.memory)
from ingest.cli.app import main
main()
"""  # the command line; its queries may take longer: a busy machine takes their ten seconds before they have begun


def started(
    *words: str, command: Sequence[str] = ("-m", "ingest"), **environment: str
) -> subprocess.Popen[str]:
    """The verb in a process of its own."""
    return subprocess.Popen(
        [sys.executable, *command, "serve", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(lake: WrittenLake, number: signal.Signals) -> None:
    """A service manager kills a process that is slow to stop, and counts every exit code but 0 as a failure."""
    running = started(str(lake.file), "--listen", "127.0.0.1:0")
    assert running.stderr is not None
    assert "shows them" in running.stderr.readline()
    running.send_signal(number)
    _, said = running.communicate(timeout=PATIENCE)
    assert (0, False) == (running.returncode, "Traceback" in said)


_MANY = "(SELECT unnest(generate_series(1, 1000000)) AS x FROM depot.bins)"
LONG = f"SELECT count(*) FROM {_MANY} AS a, {_MANY} AS b WHERE a.x * b.x % 7 = 3"  # takes hours


@pytest.mark.parametrize("address", ["/api/sql", "/sql"])
def test_the_end_does_not_wait_for_a_long_answer(lake: WrittenLake, address: str) -> None:
    """A stop that waits ten seconds for a query, and then logs a trace, would look like a fault."""
    running = started(str(lake.file), "--listen", "127.0.0.1:0", command=("-c", PATIENT))
    assert running.stderr is not None
    url = urlsplit(running.stderr.readline().split()[0])
    asking = http.client.HTTPConnection(url.hostname or "", url.port, timeout=PATIENCE)
    server = psutil.Process(running.pid)

    asking.request("GET", f"{address}?{urlencode({'pipeline': 'depot', 'q': LONG})}")
    asleep = socket.create_connection((url.hostname, url.port))  # reads nothing of its answers
    asleep.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    asleep.sendall(b"GET /table?pipeline=depot&table=depot.bins HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
    until(lambda: any(nursery.children() for nursery in server.children()))  # it counts
    running.send_signal(signal.SIGTERM)
    answer = asking.getresponse()
    said = answer.read().decode()
    assert (503, True) == (answer.status, "The service was stopped before this was answered" in said)
    _, err = running.communicate(timeout=PATIENCE)
    asleep.close()
    assert (0, "") == (running.returncode, err)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--listen", "127.0.0.1:{taken}"], 2, "another process listens there"),
        (["--listen", "0.0.0.0:0"], 2, "give a token with --token-file"),
        (["--listen", "here"], 2, "is not an address"),
        (["--listen", "203.0.113.7:1", "--token-file", "{tokens}"], 2, "cannot be listened at"),
    ],
)
def test_what_cannot_be_served_is_one_sentence(
    lake: WrittenLake, tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    """A trace of forty lines hides the port."""
    tokens = tmp_path / "tokens"
    tokens.write_text(SECRET, "utf-8")
    tokens.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = [word.format(taken=taken.getsockname()[1], tokens=tokens) for word in words]
        running = started(str(lake.file), *given)
        out, err = running.communicate(timeout=PATIENCE)
    assert (code, "") == (running.returncode, out)
    assert said in err
    assert 1 == len(err.splitlines())


def test_two_files_of_one_name_or_lake_are_refused(lake: WrittenLake, tmp_path: Path) -> None:
    """An action on one of them would fall on the other."""
    twin = tmp_path / "twin.yaml"
    twin.write_text(lake.file.read_text("utf-8"), "utf-8")
    with pytest.raises(Exception, match="both called depot"):
        client_of(lake.file, twin)
    twin.write_text(
        twin.read_text("utf-8")
        .replace("pipeline: depot", "pipeline: other")
        .replace("./depot-lake", str(lake.lake)),
        "utf-8",
    )
    with pytest.raises(Exception, match="name the same lake"):
        client_of(lake.file, twin)
