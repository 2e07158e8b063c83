"""Lakes with sealed bronze: nothing planted is in its files, everything is decoded as before, and no key means no guess."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from ingest import run as runs
from ingest.bronze import land as bronze
from ingest.bronze import preview
from ingest.bronze.kafka import _counting
from ingest.bronze.land import land
from ingest.bronze.positions import Positions
from ingest.bronze.store import storing
from ingest.cli.app import app
from ingest.config import load
from ingest.config.secrets import struck
from ingest.errors import ConfigError, IngestError
from ingest.lake import decisions, sealing
from ingest.lake.datafiles import Added
from ingest.lake.envelope import SealError
from ingest.lake.lake import Lake
from ingest.lake.maintenance import Kept
from ingest.lake.raw import raw
from ingest.lake.schemas import BRONZE
from ingest.lake.tables import LakeReader
from ingest.result import Result
from ingest.silver import messages
from ingest.silver.decode import Decoded, decode
from ingest.silver.lift import INPUT, Lifting, lift
from ingest.silver.registry import FRAMED, framed
from tests.lakes import Depot
from tests.silver.test_without_spark import Tasks, everything

KEYS = {"one": "11" * 32, "two": "22" * 32}
SEALED = "bronze:\n  seal: {master_key: '${file:key}'}\n"
DAY = dt.datetime(2026, 3, 14, 9, 26, 53, tzinfo=dt.UTC)


class Sealed(Depot):
    """The depot with sealed bronze, and a day that the test chooses."""

    def __init__(self, folder: Path, more: str = SEALED) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.key("one", folder)
        super().__init__(folder, more)

    def key(self, name: str, folder: Path | None = None, file: str = "key") -> None:
        """Put a master key there."""
        ((folder or self.folder) / file).write_text(KEYS[name] + "\n", "utf-8")

    def says(self, more: str) -> None:
        """Another end of the pipeline file."""
        head = self.file.read_text("utf-8").partition("bronze:")[0]
        self.file.write_text(head + more, "utf-8")

    def lake(self, session: Any = None) -> Lake:
        """The lake as the pipeline file is now, for a process that knows nothing yet."""
        sealing._kept.clear()
        return Lake(session, self.pipeline)

    def land(self, session: Any = None) -> None:
        """Land what is new, as a process that knows nothing yet."""
        land(self.lake(session), Positions(), 2)

    def decode(self, session: Any = None) -> Decoded:
        """Decode what has landed."""
        return decode(self.lake(session), bronze.last_batch(self.lake()), 2)

    def work(self, session: Any = None) -> Decoded:
        """Both."""
        self.land(session)
        return self.decode(session)

    @property
    def key_files(self) -> list[str]:
        """The names of the data keys' files."""
        return sorted(one.name for one in (self.folder / "lake" / sealing.FOLDER).iterdir())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the day on which lakes are written."""

    def on(days: int) -> None:
        monkeypatch.setattr(Lake, "now", lambda _lake: DAY + dt.timedelta(days=days))

    on(0)
    return on


def held(folder: Path) -> bytes:
    """Every byte that a reader of a table's folder can get: files as they are, their values, and their statistics."""
    parts = []
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            parts.append(file.read_bytes())
        if file.suffix == ".parquet":
            parts.append(repr(pq.read_table(file, partitioning=None).to_pylist()).encode())
            parts.append(repr(pq.read_metadata(file).to_dict()).encode())
    return b"\n".join(parts)


def without_bytes(lake: Lake) -> dict[str, Counter[str]]:
    """All rows of all tables but the messages of bronze, and without what rejects quote of them."""
    found = everything(lake)
    found["bronze"] = Counter(one for one in found["bronze"].elements() if "'kind': 'receipt'" in one)
    found["rejects"] = Counter({"rejects": found["rejects"].total()})
    found["changes"] = Counter(one for one in found["changes"].elements() if "'kind': 'reject'" not in one)
    return found


@pytest.mark.parametrize("way", ["alone", "tasks"])
def test_a_sealed_lake_decodes_to_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Any, way: str
) -> None:
    """Seal and opener are the only difference, whichever process writes and reads, and across two days."""
    session = Tasks() if way == "tasks" else None
    if way == "tasks":
        monkeypatch.setattr(bronze, "LITTLE", -1)
        monkeypatch.setattr(messages, "FEW", -1)
    plain, depot = Depot(tmp_path / "plain", ""), Sealed(tmp_path / "sealed")
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
    rows = found.through(opener.batches, "")
    assert [tuple(one[name] for name in ("key", "value", "headers")) for one in sent] == [
        tuple(one[name] for name in ("key", "value", "headers")) for one in rows
    ]
    assert {"message"} == {row["kind"] for row in lake.ask("SELECT DISTINCT kind FROM {bronze}")}
    sampled = list(preview.landed(LakeReader(depot.pipeline), "bins", (1, 1), 10))
    assert sorted(str(one["value"]) for one in sent) == sorted(str(row[4]) for _, row in sampled)
    rejects = [
        row
        for page in lift(Lifting(lake.pipeline, opener=opener))(iter(_pages(lake)))
        for row in page.to_pylist()
    ]
    assert not any(one.decode() in str(row) for row in rejects if row["kind"] == "reject" for one in planted)


def _pages(lake: Lake) -> list[pa.RecordBatch]:
    wanted = pa.schema([BRONZE.arrow.field(name) for name in INPUT])
    return [
        batch
        for page in lake.pages(BRONZE, wanted, "message", (1, 1))
        for batch in page.combine_chunks().to_batches()
    ]


def test_a_missing_or_wrong_key_holds_and_names_the_days(tmp_path: Path, clock: Any) -> None:
    """Nothing is decoded in part, nothing is lost, and nothing new is sealed with a key that nobody keeps."""
    depot = Sealed(tmp_path)
    depot.grow()
    depot.work()
    clock(1)
    depot.grow()
    depot.land()
    before = everything(depot.lake())

    depot.key("two")
    wrong = r"another master key wrapped the day's key \(its fingerprint is [0-9a-f]{16}, that of `master_key:` [0-9a-f]{16}\)"
    with pytest.raises(
        SealError, match=rf"^Bronze's messages of 2026-03-15 \(batch 2\) cannot be opened: {wrong}"
    ):
        depot.decode()
    depot.grow()
    with pytest.raises(SealError, match=wrong):  # landing more
        depot.land()
    clock(2)
    with pytest.raises(SealError, match=wrong):  # nor on the next day, which has no key yet
        depot.land()
    rejected = depot.lake().ask("SELECT * FROM {rejects}")
    [shown] = raw(depot.lake(), rejected).values()
    assert "another master key wrapped" in shown.text

    depot.says("")
    with pytest.raises(
        SealError, match=r"2026-03-15 \(batch 2\) .* no `bronze: seal:` any more: put its `master_key:` back"
    ):
        depot.decode()
    depot.says("bronze:\n  seal: {command: [cat, key, no]}\n")
    with pytest.raises(
        SealError, match=r"2026-03-15 .*the command of `bronze: seal:` \(cat \.\.\.\) ended with exit code 1"
    ):
        depot.decode()

    depot.says(SEALED)
    depot.key("one")
    files = tmp_path / "lake" / sealing.FOLDER
    [name] = [name for name in depot.key_files if name.startswith("2026-03-15")]
    (files / name).rename(tmp_path / name)
    with pytest.raises(
        SealError, match=r"2026-03-15 \(batch 2\) .* the day's key is not in .*/_seal: put its file back"
    ):
        depot.decode()
    (files / name).write_bytes((tmp_path / name).read_bytes()[:-9])
    with pytest.raises(SealError, match=rf"{name} is damaged or missing: put it back from a backup"):
        depot.decode()
    shutil.copy(next(files.glob("2026-03-14*")), files / name)
    with pytest.raises(SealError, match=rf"{name} was changed: put it back from a backup"):
        depot.decode()
    assert before == everything(depot.lake())
    (tmp_path / name).replace(files / name)
    assert [] == depot.work().unbalanced
    assert depot.lines == depot.lake().ask("SELECT sum(messages) AS n FROM {books}")[0]["n"]


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


def test_a_dropped_day_is_gone_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Any
) -> None:
    """Only what is decoded and closed is dropped; whoever asks for the bytes is told who dropped the key and why."""
    depot = Sealed(tmp_path)
    depot.grow()
    depot.land()
    with pytest.raises(IngestError, match=r"The key of 2026-03-14 is still needed: the day is not over"):
        sealing.drop(depot.lake(), "2026-03-14")
    clock(1)
    with pytest.raises(
        IngestError,
        match=r"The key of 2026-03-14 is still needed: silver has yet to decode messages: `ingest run",
    ):
        sealing.drop(depot.lake(), "2026-03-14")
    depot.grow(broken=False)
    depot.work()
    with pytest.raises(
        IngestError,
        match=r"The key of 2026-03-14 is still needed: open rejects point at its messages, which `ingest replay .*dismiss",
    ):
        sealing.drop(depot.lake(), "2026-03-14")
    for text, words in (("yesterday", "is not a day"), ("2026-03-01", "There is no key of 2026-03-01")):
        with pytest.raises(IngestError, match=words):
            sealing.drop(depot.lake(), text)
    [reject] = depot.lake().ask("SELECT * FROM {rejects}")
    from ingest.lake import rejects

    rejects.dismiss(depot.lake(), [reject], "seen", "ann")
    with monkeypatch.context() as killed:
        killed.setattr(sealing._LocalFolder, "remove", lambda _folder, _name: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            sealing.drop(depot.lake(), "2026-03-14", "killed", "ann")
    assert () == sealing.opener(depot.lake()).dropped  # the key is still there
    sealing.drop(depot.lake(), "2026-03-14", "asked by the customer", "ann")
    assert ["2026-03-15"] == [name[:10] for name in depot.key_files]
    opener = sealing.opener(depot.lake())
    assert ("2026-03-14",) == opener.dropped
    gone = r"the day's key was dropped by ann \(asked by the customer\); what silver holds of these messages is kept"
    with pytest.raises(
        SealError, match=rf"^Bronze's messages of 2026-03-14 \(batch 1\) cannot be opened: {gone}"
    ):
        sealing.refuse_unreadable(depot.lake(), opener, (1, 2))
    sealing.refuse_unreadable(depot.lake(), opener, (2, 2))
    [shown] = raw(depot.lake(), [reject]).values()
    assert "dropped by ann" in shown.text
    with pytest.raises(IngestError, match="There is no key of 2026-03-14"):
        sealing.drop(depot.lake(), "2026-03-14")
    depot.grow()
    assert [] == depot.work().unbalanced  # goes on


def test_old_keys_are_dropped_once_nothing_needs_them(tmp_path: Path, clock: Any) -> None:
    """`keep_days` is a bound for what is done with, not a way to lose messages."""
    depot = Sealed(tmp_path, SEALED.replace("'}", "', keep_days: 2}"))
    for n in range(5):
        clock(n)
        depot.grow(broken=n == 1)
        depot.work()
    assert ["2026-03-14"] == sealing.drop_old(depot.lake())  # that of the 15th has an open reject
    assert ["2026-03-15", "2026-03-16", "2026-03-17", "2026-03-18"] == [name[:10] for name in depot.key_files]
    assert [] == sealing.drop_old(depot.lake())
    [one] = decisions.read(depot.lake()).of(decisions.KEY_DROPPED)
    assert ("2026-03-14", "keep_days: 2") == (one.subject, one.reason)


def test_the_master_key_is_rotated(tmp_path: Path, clock: Any) -> None:
    """Both keys read until all are wrapped by the new one; then the old one is not needed any more."""
    depot = Sealed(tmp_path)
    for n in range(2):
        clock(n)
        depot.grow()
        depot.work()
    depot.key("two")
    depot.key("one", file="former")
    with pytest.raises(SealError, match="another master key wrapped the day's key"):
        sealing.rewrap(depot.lake())
    depot.says(SEALED.replace("'}", "', previous_master_key: '${file:former}'}"))
    clock(2)
    depot.grow()
    assert [] == depot.work().unbalanced  # the new day's key is wrapped by the new one
    before = depot.lake().ask("SELECT hex(value) AS v FROM {bronze.message}")
    assert 2 == sealing.rewrap(depot.lake())
    assert 0 == sealing.rewrap(depot.lake())
    depot.says(SEALED)
    sealing.refuse_unreadable(depot.lake(), sealing.opener(depot.lake()), (1, 3))
    assert before == depot.lake().ask("SELECT hex(value) AS v FROM {bronze.message}")
    sealing.opener(depot.lake()).opened(_pages(depot.lake())[0])
    depot.key("one")
    with pytest.raises(SealError, match=r"3 days|2026-03-14, 2026-03-15, 2026-03-16 \(batch 1 to 3\)"):
        sealing.refuse_unreadable(depot.lake(), sealing.opener(depot.lake()), (1, 3))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{master_key: hunter2}", "the value does not resolve to a usable value of master_key"),
        ("{master_key: '${file:none}'}", "none of ${file:...} cannot be read"),
        ("{master_key: '${NO_SUCH_KEY}'}", "the environment variable NO_SUCH_KEY is not set"),
        ("{keep_days: 3}", "seal takes either master_key or command, one of the two"),
        ("{command: [cat, key], master_key: '${file:key}'}", "seal takes either master_key or command"),
        ("{master_kye: x, command: [x]}", "the key 'master_kye' is unknown here; did you mean master_key"),
        ("{command: [cat, key], keep_days: soon}", "'soon' is not a positive whole number"),
    ],
)
def test_faults_of_the_pipeline_file(tmp_path: Path, text: str, words: str) -> None:
    """With the line, and without the value of a key."""
    depot = Sealed(tmp_path)
    depot.says(f"bronze:\n  seal: {text}\n")
    with pytest.raises(ConfigError) as caught:
        load(depot.file)
    assert words in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert KEYS["one"] not in str(caught.value)


def test_a_command_prints_the_master_key(tmp_path: Path, clock: Any) -> None:
    """It is run without a shell; the key is struck out of texts, and shown by no verb."""
    depot = Sealed(tmp_path, f"bronze:\n  seal: {{command: [cat, {tmp_path}/key]}}\n")
    depot.grow()
    assert [] == depot.work().unbalanced
    depot.says(SEALED)  # the same key
    depot.grow()
    assert [] == depot.work().unbalanced
    assert "it is ***" == struck(f"it is {KEYS['one']}", depot.pipeline)
    found = CliRunner().invoke(app, ["rejects", str(depot.file), "-o", "json"])
    assert 0 == found.exit_code
    told = CliRunner().invoke(app, ["validate", str(depot.file), "-o", "json"])
    shown = CliRunner().invoke(app, ["rejects", "show", str(depot.file), "1"])
    assert '{"broken": ' in shown.stdout
    assert KEYS["one"] not in shown.output + found.output + told.output + repr(depot.pipeline)


def test_maintain_drops_and_rewraps_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Any) -> None:
    """The verb's options reach the keys, and its table and JSON count the days."""
    depot = Sealed(tmp_path, SEALED.replace("'}", "', keep_days: 3}"))
    for n in (0, 1, 2):
        clock(n)
        depot.grow(broken=False)
        depot.work()
    depot.key("two")
    depot.key("one", file="former")
    depot.says(SEALED.replace("'}", "', previous_master_key: '${file:former}', keep_days: 3}"))
    lake = depot.lake(SimpleNamespace())
    monkeypatch.setattr("ingest.cli.upkeep_verbs.locked", lambda *_given: nullcontext(lake))
    monkeypatch.setattr(
        "ingest.cli.progress.ProgressLine", lambda *_given: nullcontext(SimpleNamespace(tell=print))
    )
    monkeypatch.setattr("ingest.lake.maintenance.maintain", lambda *_given, **_named: [Kept("bronze")])
    monkeypatch.setattr("ingest.cli.upkeep_verbs._tables", lambda _lake: [])
    words = ["maintain", str(depot.file), "--rewrap-keys", "--drop-key", "2026-03-15", "--reason", "asked"]
    clock(4)
    found = CliRunner().invoke(app, [*words, "-o", "json"])
    assert 0 == found.exit_code, found.output
    assert "3 keys wrapped with the present master key" in found.output
    assert 2 == json.loads(found.stdout[found.stdout.index("[") :])[0]["keys"]
    assert ["2026-03-16"] == [name[:10] for name in depot.key_files]
    dropped = {one.subject: one.reason for one in decisions.read(lake).of(decisions.KEY_DROPPED)}
    assert {"2026-03-15": "asked", "2026-03-14": "keep_days: 3"} == dropped
    again = CliRunner().invoke(app, words)
    assert 2 == again.exit_code
    assert "There is no key of 2026-03-15" in again.output


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
