"""decode, detect and formats: exact objects on stdout, exit codes, and honest verdicts."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from ingest import formats
from ingest.change import Change, Op, TableId, describe
from ingest.cli.app import app

SHARED = Path(__file__).parent.parent.parent.parent / "shared" / "vendor-samples"
MEMBERS = "op database schema table keys before after types partial order sequence event_time transaction ddl note".split()
INSERT = {
    "id": 7, "database": "w", "table": "bin", "pkNames": ["no"], "isDdl": False, "type": "INSERT",
    "es": 1714521600000, "ts": 1714521600001, "sql": "", "gtid": "g:1",
    "mysqlType": {"no": "bigint", "price": "decimal"}, "sqlType": {"no": -5, "price": 3},
    "data": [{"no": "12345678901234567890", "price": "1.10"}], "old": None,
}  # fmt: skip


def ran(*arguments: str, given: bytes | None = None) -> Result:
    """One run of the command."""
    return CliRunner().invoke(app, list(arguments), input=given)


def objects(done: Result) -> list[dict[str, Any]]:
    """The JSON lines of a run."""
    return [json.loads(line) for line in done.stdout.splitlines()]


def message(**changed: object) -> bytes:
    """The sample message with other members."""
    return json.dumps(INSERT | changed).encode()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of two messages and a blank line."""
    path = tmp_path / "bins.jsonl"
    path.write_bytes(message() + b"\n\n" + message(id=8) + b"\n")
    return path


# --- decode -------------------------------------------------------------------------------------


def test_a_change_is_printed_with_all_its_members(file: Path) -> None:
    """Scripts rely on names, order and exact text."""
    done = ran("decode", "dts-canal", str(file))
    assert 0 == done.exit_code
    first, second = objects(done)
    assert MEMBERS == list(first)
    assert ("insert", "w", None, "bin", ["no"]) == tuple(first[m] for m in MEMBERS[:5])
    assert {"no": "12345678901234567890", "price": "1.10"} == first["after"]
    assert [0, 1, [7], 0, 0] == first["order"]
    assert ("7", "2024-05-01T00:00:00Z", "g:1") == (
        first["sequence"],
        first["event_time"],
        first["transaction"],
    )
    assert [8] == second["order"][2]


def test_describe_writes_every_member() -> None:
    """A member that is forgotten is missing in every script."""
    change = Change(
        op=Op.UPDATE, table=TableId("d", "s", "t"), keys=("k",), before={"k": "1"}, after={"k": None},
        types={"k": "int64"}, partial=True, phase=0, sequence=(10**30, 2), half=1, row=3, position="p",
        event_time=-1_500_000, transaction="x", ddl="y", note="z",
    )  # fmt: skip
    expected = [
        "update", "d", "s", "t", ["k"], {"k": "1"}, {"k": None}, {"k": "int64"}, True,
        [0, 0, [10**30, 2], 1, 3], "p", "1969-12-31T23:59:58.5Z", "x", "y", "z",
    ]  # fmt: skip
    assert dict(zip(MEMBERS, expected, strict=True)) == describe(change)


@pytest.mark.parametrize(
    ("micros", "expected"),
    [(0, "1970-01-01T00:00:00Z"), (10, "1970-01-01T00:00:00.00001Z"), (10**19, None), (None, None)],
)
def test_event_times_are_canonical(micros: int | None, expected: str | None) -> None:
    """A time that no calendar has must not stop the printing."""
    assert expected == describe(Change(op=Op.HEARTBEAT, event_time=micros))["event_time"]


def test_rejects_are_objects_and_exit_1(tmp_path: Path) -> None:
    """A message that cannot be read must be seen, and must not stop the others."""
    path = tmp_path / "m.jsonl"
    path.write_bytes(message() + b"\n{}\n[1]\n42\n" + message(id=9) + b"\n")
    done = ran("decode", "dts-canal", str(path))
    assert 1 == done.exit_code
    found = objects(done)
    assert ["insert", "reject", "reject", "reject", "insert"] == [
        entry.get("op", "reject") for entry in found
    ]
    assert {"reject", "detail"} == set(found[1])


def test_stdin_is_read(file: Path) -> None:
    """A pipe is the shortest way from a broker's console client."""
    assert 2 == len(objects(ran("decode", "dts-canal", "-", given=file.read_bytes())))


@pytest.mark.parametrize(
    "text", [json.dumps(INSERT, indent=2), f"[{json.dumps(INSERT)}]", json.dumps([INSERT], indent=1)]
)
def test_documents_need_no_framing(tmp_path: Path, text: str) -> None:
    """A pretty-printed sample is the first thing that a newcomer tries."""
    path = tmp_path / "m.json"
    path.write_text(text, "utf-8")
    assert ["insert"] == [entry["op"] for entry in objects(ran("decode", "dts-canal", str(path)))]


def test_framing_overrides(tmp_path: Path) -> None:
    """A file that looks like something else can still be read."""
    path = tmp_path / "m.json"
    path.write_text(json.dumps(INSERT, indent=2), "utf-8")
    assert 1 == ran("decode", "dts-canal", str(path), "--framing", "lines").exit_code
    path.write_bytes(len(message()).to_bytes(4, "big") + message())
    assert 0 == ran("decode", "dts-canal", str(path), "--framing", "length").exit_code


def test_compressed_files_are_read_and_damage_is_a_reject(tmp_path: Path) -> None:
    """Archives are packed, and the cut one must not pass for a whole one."""
    path = tmp_path / "m.gz"
    packed = gzip.compress(b"\n".join(message(id=i, gtid=str(i * 7919)) for i in range(5000)))
    path.write_bytes(packed)
    assert 5000 == len(objects(ran("decode", "dts-canal", str(path))))
    path.write_bytes(packed[: len(packed) // 2])
    done = ran("decode", "dts-canal", str(path))
    assert 1 == done.exit_code
    assert "damaged-file" == objects(done)[-1]["reject"]


def test_hints_reach_the_parser(tmp_path: Path) -> None:
    """Tables, keys, types and options could not be tried."""
    path = tmp_path / "m.json"
    path.write_bytes(
        message(table=None, database=None, pkNames=None, data=[{"at": "2024-05-01 08:00:00"}], mysqlType=None)
    )
    (found,) = objects(
        ran("decode", "dts-canal", str(path), "--table", "a.b", "--key", "x", "--key", "y",
            "--option", "timezone=Asia/Shanghai", "--column", "at=timestamp")
    )  # fmt: skip
    assert ("a", "b", ["x", "y"]) == (found["database"], found["table"], found["keys"])
    assert {"at": "2024-05-01T00:00:00Z"} == found["after"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["cannal", "{file}"], "error: 'cannal' is not a format; did you mean "),
        (["dts-canal", "{file}.none"], "cannot be read: No such file or directory"),
        (["dts-canal", "{folder}"], "is a folder; name a file in it"),
        (
            ["dts-canal", "{file}", "--option", "timezon=UTC"],
            "option 'timezon' is unknown; did you mean timezone or time_units?",
        ),
        (["dts-canal", "{file}", "--option", "timezone=Mars"], "option timezone: 'Mars' is not a time zone"),
        (
            ["dts-canal", "{file}", "--option", "timezone"],
            "--option 'timezone' lacks a part; write name=value",
        ),
        (
            ["dts-canal", "{file}", "--column", "a=int"],
            "--column a: 'int' is not a type; did you mean int32?",
        ),
        (["dts-canal", "{file}", "--table", "bin"], "'bin' is not a table; write database.table"),
    ],
)
def test_what_cannot_start_is_exit_2_and_one_sentence(
    file: Path, arguments: list[str], expected: str
) -> None:
    """A wrong option that is passed over gives wrong values."""
    words = [word.replace("{file}", str(file)).replace("{folder}", str(file.parent)) for word in arguments]
    done = ran("decode", *words)
    assert (2, "", 1) == (done.exit_code, done.stdout, len(done.stderr.splitlines()))
    assert expected in done.stderr


def test_table_and_json_output(file: Path) -> None:
    """Tables are for operators; a JSON document is for tools that cannot read JSON lines."""
    assert 2 == len(json.loads(ran("decode", "dts-canal", str(file), "--output", "json").stdout))
    text = ran("decode", "dts-canal", str(file), "--output", "table").stdout
    assert "price=1.10" in text
    assert "w.bin" in text


# --- detect -------------------------------------------------------------------------------------


def test_a_format_is_named_with_evidence_and_a_block_that_validates(file: Path, tmp_path: Path) -> None:
    """What detect prints is meant to be pasted."""
    done = ran("detect", str(file), "--output", "json")
    verdict = json.loads(done.stdout)
    assert (0, "dts-canal", 2) == (done.exit_code, verdict["format"], verdict["messages"])
    assert 2 == verdict["evidence"][0]["messages"]
    assert "swap_old_data" in verdict["open"]
    pipeline = tmp_path / "p.yaml"
    pipeline.write_text("pipeline: p\nlake: l\nengine: auto\n" + verdict["sources"] + "\n", "utf-8")
    assert 0 == ran("validate", str(pipeline)).exit_code
    assert verdict["sources"] in ran("detect", str(file)).stdout


def test_mixtures_are_refused_with_their_places(tmp_path: Path) -> None:
    """A second format in a file would become rejects, or wrong rows."""
    path = tmp_path / "mixed.jsonl"
    other = {
        "op": "c",
        "before": None,
        "after": {"no": 1},
        "source": {"name": "OMS", "db": "w", "table": "bin"},
    }
    path.write_bytes(message() + b"\n" + json.dumps(other).encode() + b"\n" + message(id=9) + b"\nnonsense\n")
    done = ran("detect", str(path), "--output", "json")
    verdict = json.loads(done.stdout)
    assert (1, "dts-canal", None) == (done.exit_code, verdict["format"], verdict["sources"])
    assert [[2], [4]] == sorted(verdict["odd"].values())
    assert "number 2" in ran("detect", str(path)).stdout


@pytest.mark.parametrize("text", ["", "\n\n", "hello\nworld\n", "{}\n", "\x00\x01\x02"])
def test_what_is_no_known_format_is_said_so(tmp_path: Path, text: str) -> None:
    """A guess would be worse than none."""
    path = tmp_path / "x"
    path.write_text(text, "utf-8")
    done = ran("detect", str(path), "--output", "json")
    assert (1, None) == (done.exit_code, json.loads(done.stdout)["format"])


def test_damage_is_named(tmp_path: Path) -> None:
    """A broken file would pass for an empty one."""
    path = tmp_path / "x.avro"
    path.write_bytes(b"Obj\x01\x00nothing")
    done = ran("detect", str(path))
    assert 1 == done.exit_code
    assert "the schema cannot be used" in done.stdout


def test_a_long_message_that_was_cut_off_is_refused_at_once(tmp_path: Path) -> None:
    """JSON in a TEXT column, cut by a crash, would hold the commands for hours."""
    document = json.dumps({"text": 'a "quoted" word, // no comment', "path": "C:\\"})
    whole = json.dumps(INSERT | {"data": [{"no": "1", "doc": json.dumps([document] * 10_000)}]})
    assert len(whole) > 1_000_000
    path = tmp_path / "m.jsonl"
    path.write_bytes(whole[:1_000_000].encode() + b"\n" + message() + b"\n")
    started = time.process_time()
    done = ran("decode", "dts-canal", str(path))
    assert 1 == done.exit_code
    refused, change = objects(done)
    assert "bad-json" in str(refused)
    assert "insert" == change["op"]
    assert "dts-canal" in ran("detect", str(path)).stdout
    assert 20 > time.process_time() - started  # the square of its length takes minutes


def test_a_sample_is_enough(tmp_path: Path) -> None:
    """A large file would be read to its end."""
    path = tmp_path / "m.jsonl"
    path.write_bytes((message() + b"\n") * 50 + b"nonsense\n")
    assert 50 == json.loads(ran("detect", str(path), "--lines", "50", "--output", "json").stdout)["messages"]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the vendors' samples are not here")
def test_the_vendors_own_samples_are_distinguished() -> None:
    """A newcomer tries these first. (One sample is a bare row, which may be of any format.)"""
    wrong = {}
    for path in sorted(SHARED.glob("*/*.json")):
        verdict = json.loads(ran("detect", str(path), "--output", "json").stdout)
        if path.parent.name not in verdict["candidates"] and path.name != "01-row-only.json":
            wrong[f"{path.parent.name}/{path.name}"] = verdict["candidates"]
    assert {} == wrong


# --- formats ------------------------------------------------------------------------------------


def test_every_format_is_listed() -> None:
    """The support matrix is made of what is there."""
    found = json.loads(ran("formats", "--output", "json").stdout)
    assert list(formats.names()) == [entry["format"] for entry in found]
    short, full = ran("formats").stdout, ran("formats", "--verbose").stdout
    for name in formats.names():
        assert name in short
        assert f"{name}: {formats.load(name).ABOUT.title}" in full
