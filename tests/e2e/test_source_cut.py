"""The network between here and the source is cut, and the source itself goes away, in the middle of reading."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pytest

from ingest.config import load
from ingest.errors import IngestError
from ingest.source import reconcile as comparing
from ingest.source import snapshot as reading
from ingest.source.database import named
from ingest.source.reconciled import Reconciled, ReconcileOptions
from ingest.source.snapshot import source_of
from ingest.tables.tables import LakeReader
from tests.e2e.databases import Database
from tests.e2e.test_source import Garden, node  # noqa: F401 - a fixture
from tests.source import made

ROWS = 4000
_RESET = struct.pack("ii", 1, 0)  # closing sends a reset, as a router does that forgot the connection


class Wire:
    """A proxy on loopback that cuts connections after so many bytes of answers, as its list ``cuts`` says."""

    def __init__(self, port: int) -> None:
        self.target_port = port
        self.cuts: list[int] = []  # bytes of the next connections
        self.made = self.broken = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, _ = self.listener.accept()
                self.made += 1
                try:
                    there = socket.create_connection(("127.0.0.1", self.target_port), 5)
                except OSError:
                    here.close()
                    continue
                most = self.cuts.pop(0) if self.cuts else None
                threading.Thread(target=self._forward, args=(here, there, None), daemon=True).start()
                threading.Thread(target=self._forward, args=(there, here, most), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, most: int | None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(4096):
                if most is not None and len(data) > most:
                    target.sendall(data[:most])
                    self.broken += 1
                    break
                target.sendall(data)
                most = None if most is None else most - len(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                one.shutdown(socket.SHUT_RDWR)
                one.close()


class Cut:
    """A table that is reached through such a wire."""

    def __init__(self, server: Database, folder: Path, wire: Wire) -> None:
        self.garden = Garden(server, folder)
        self.wire = wire
        text = self.garden.file.read_text("utf-8")
        self.garden.file.write_text(text.replace(f":{server.port}", f":{wire.port}"), "utf-8")
        with contextlib.closing(server.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("DROP TABLE IF EXISTS cut_off")
            cursor.execute("CREATE TABLE cut_off (id int primary key, word varchar(50))")
            cursor.executemany(
                "INSERT INTO cut_off VALUES (%s, %s)", [(n, f"word {n}" * 3) for n in range(ROWS)]
            )
            connection.commit()

    def read(self, **given: Any) -> reading.SnapshotProgress:
        """One snapshot."""
        return self.garden.read("cut_off", **{"size": 500, "parallel": 2, **given})

    def is_whole(self) -> bool:
        """True if each row is in the files once."""
        found = sorted(int(row["id"] or "") for row in self.garden.images("cut_off"))
        return found == list(range(ROWS))

    def compare(self) -> Reconciled:
        """Hold the table against its mirror."""
        pipeline = load(self.garden.file)
        source = source_of(pipeline)
        assert source.database
        table = named(source.database, f"{self.garden.database}.cut_off")
        cells = {"id": list(range(ROWS)), "word": [f"word {n}" * 3 for n in range(ROWS)]}
        cells["word"][77] = "other"
        rows = pa.table(cells, pa.schema([("id", pa.int32()), ("word", pa.string())]))
        made.mirror(Path(pipeline.lake), table, {"id": "int32", "word": "string"}, ["id"], rows)
        return comparing.reconcile(
            LakeReader(pipeline), source, table, ReconcileOptions(parallel=2, range_rows=500, settled=True),
            passed=lambda _mirror: None,
        )  # fmt: skip


@pytest.fixture
def cut(node: Database, tmp_path: Path) -> Iterator[Cut]:  # noqa: F811
    """A table of its own for each test."""
    with Wire(node.port) as wire:
        yield Cut(node, tmp_path, wire)


def test_a_cut_network_costs_time_and_no_row(cut: Cut) -> None:
    """A chunk that ended with the connection must not pass as a chunk that had no more rows."""
    cut.wire.cuts = [10**9, 9_000, 15_000, 300, 20_000, 12_000]  # the first describes the table
    done = cut.read()
    assert cut.wire.broken >= 3
    assert (ROWS, 9) == (done.rows, done.chunks)
    assert cut.is_whole()


def test_a_comparison_goes_on_after_cuts(cut: Cut) -> None:
    """Ranges of a connection that broke are neither equal nor different."""
    cut.wire.cuts = [3_000, 1_500, 1_500]
    done = cut.compare()
    assert cut.wire.broken
    assert [("77",)] == [one.key for one in done.differences]
    assert ROWS == done.rows


@pytest.mark.parametrize("returns", [True, False], ids=["it comes back", "it stays away"])
def test_a_server_that_vanishes(cut: Cut, returns: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is back in a moment or tomorrow: what was read is not read again, and no row is missing."""
    server, real, written = cut.garden.node, reading.write, []
    back: list[threading.Thread] = []

    def write(file: Path, lines: Iterator[bytes]) -> None:
        real(file, lines)
        written.append(file.name)
        if len([one for one in written if one.startswith("chunk")]) == 3 and not back:
            server.stop()
            back.append(threading.Thread(target=lambda: (time.sleep(1), server.start() if returns else None)))
            back[0].start()

    monkeypatch.setattr(reading, "write", write)
    if returns:
        assert cut.read(parallel=1).rows == ROWS
    else:
        with pytest.raises(
            IngestError, match="was read in part: run the same command again to go on"
        ) as caught:
            cut.read(parallel=1)
        assert "\n" not in str(caught.value)
        server.start()
        done = cut.read()
        assert (3, 9, ROWS - 1500) == (done.resumed, done.chunks, done.rows)
    back[0].join()
    assert cut.is_whole()
