"""Kinds of problems that checks find, brought about by what sources send and others do to a lake, in one night of one pipeline."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from ingest.change import TableId
from ingest.config import load
from ingest.inspect.problem_kinds import OF_CHECKS, OF_THRESHOLDS
from ingest.store.names import mirror_path
from ingest.tables.tables import LakeReader
from tests.fleet import typed
from tests.lakes import change, touch
from tests.quality.test_cascades import Depots
from tests.quality.test_converted import Sums
from tests.quality.test_converted import kind as type_of
from tests.quality.test_null_values import null, wrapped
from tests.quality.test_order_checks import PARTS, canal
from tests.quality.test_transactions import BUS
from tests.quality.test_transactions import part as part_of
from tests.quality.test_transactions import row as row_of
from tests.written_lake import NOW, WrittenLake

SENT = {  # what the sources' second files bring about
    "cut.t": {"event_order"},
    "mixed.t": {"unplaced_changes"},
    "again.t": {"repeated_moves"},
    "read.t": {"re_reads_ignored", "old_positions"},
    "older.t": {"old_positions"},
    "restart.t": {"positions_started_again"},
    "tied.t": {"ambiguities"},
    "reread.t": {"rows_read_again"},
    "owned.bins": {"cascaded_rows"},
    "shop.public.sums": {"converted_cells"},
    "s.short": {"nulls_left_out"},
    "fine.t": set[str](),
    "": {"missing_parts"},
}
COUNTED = {
    "counted.t": {"rows", "cells_checked", "changes_compared", "changes_proven"},
    "resent.t": {"duplicates"},
    "shaped.t": {"rows_left_out", "columns_left_out"},
    "hidden.t": {"columns_masked"},
    "finer.t": {"cells_cut"},
}
"""What is only counted, and has a limit for these tables here."""


FINER = {"id": "bigint", "word": "datetime(6)"}


def duplicated(mirror: deltalake.DeltaTable) -> None:
    """A row is there twice."""
    _put(mirror, mirror.to_pyarrow_table().slice(0, 1))


def revived(mirror: deltalake.DeltaTable) -> None:
    """A row is there that no message has brought."""
    row = mirror.to_pyarrow_table().slice(0, 1).to_pylist()[0]
    _put(mirror, pa.Table.from_pylist([row | {"id": 99}], schema=_schema(mirror)))


def unkeyed(mirror: deltalake.DeltaTable) -> None:
    """A row has no key."""
    row = mirror.to_pyarrow_table().slice(0, 1).to_pylist()[0]
    _put(mirror, pa.Table.from_pylist([row | {"id": None}], schema=_schema(mirror)))


def gone(mirror: deltalake.DeltaTable) -> None:
    """All rows are gone."""
    mirror.delete(commit_properties=_AS_OURS)


def widened(mirror: deltalake.DeltaTable) -> None:
    """It has a column that nobody has decided."""
    field = deltalake.Field("surplus", deltalake.schema.PrimitiveType("string"))
    mirror.alter.add_columns(field, commit_properties=_AS_OURS)


def damaged(mirror: deltalake.DeltaTable) -> None:
    """Its files were overwritten."""
    for file in Path(mirror.table_uri.removeprefix("file://")).glob("*.parquet"):
        file.write_bytes(b"x" * 500)


PLANTED: dict[str, tuple[Callable[[deltalake.DeltaTable], None], set[str]]] = {
    "twice": (duplicated, {"key_unique"}),
    "ghost": (revived, {"ghost_rows"}),
    "empty": (unkeyed, {"key_not_null"}),
    "lost": (gone, {"missing_rows"}),
    "wide": (widened, {"schema"}),
    "torn": (damaged, {"readable"}),
}
"""What is done to mirrors by whoever writes like this pipeline, as an error of the product would, by their databases."""
_AS_OURS = deltalake.CommitProperties({"userMetadata": json.dumps({"run": "r"})})


def _put(mirror: deltalake.DeltaTable, rows: pa.Table) -> None:
    deltalake.write_deltalake(mirror, rows, mode="append", commit_properties=_AS_OURS)


def _schema(mirror: deltalake.DeltaTable) -> pa.Schema:
    return mirror.to_pyarrow_table().schema


def counted_parts() -> dict[str, tuple[str, str, str]]:
    """Tables of which a check counts something, in two files of a dialect each."""

    def sent(name: str, *rows: tuple[str, int, str, str], **given: Any) -> str:
        return "".join(
            change(kind, "t", serial, {"id": key, "word": word}, database=name, id=serial, **given)
            for kind, serial, key, word in rows
        )

    first = {
        name: sent(name, ("INSERT", 100, "1", "a"))
        for name in ("tied", "counted", "resent", "shaped", "hidden", "finer")
    }
    tied = sent("tied", ("UPDATE", 200, "1", "b"), ("UPDATE", 200, "1", "c"))
    update = sent("counted", ("UPDATE", 200, "1", "b"), old=[{"word": "a"}])
    digits = sent("finer", ("INSERT", 200, "2", "2026-01-02 03:04:05.123456789"), mysqlType=FINER)
    second = {
        "tied": tied,
        "counted": update,
        "resent": first["resent"],
        "shaped": sent("shaped", ("INSERT", 200, "7", "b")),
        "hidden": sent("hidden", ("INSERT", 200, "2", "b")),
        "finer": digits,
    }
    first["finer"] = sent("finer", ("INSERT", 100, "1", "2026-01-02 03:04:05"), mysqlType=FINER)
    parts = {name: ("dts-canal", first[name], second[name]) for name in first}
    loads = (sent("reread", ("INIT", serial, "1", word)) for serial, word in ((100, "a"), (200, "b")))
    return parts | {"reread": ("dts-canal", *loads)}


def other_parts(folder: Path) -> dict[str, tuple[str, str, str]]:
    """Tables of which their rows, or what they lack, say that the mirrors are wrong, in two files of a dialect each."""
    depots = Depots(folder, "dts-canal")
    depots.fill()
    born = "\n".join(depots.lines).replace('"shop"', '"owned"') + "\n"
    depots.lines.clear()
    depots.say("DELETE", "depots", {"id": "2"})
    gone = depots.lines[0].replace('"shop"', '"owned"') + "\n"
    sums = Sums(folder)
    wide, narrow = (sums._message("c", *given) for given in ((1, WIDE, 1.5), (2, NARROW, 2)))
    whole, short = (
        json.dumps(
            {
                "data": {"id": serial, **more},
                "metadata": PRICED | {"timestamp": f"2024-06-10T06:14:0{serial}Z"},
            }
        )
        for serial, more in ((1, {"price": 5, "note": "a"}), (2, {"note": "b"}))
    )
    bus = "".join(json.dumps(message) + "\n" for message in BUS)
    return {
        "owned": ("dts-canal", born, gone),
        "sums": ("debezium", f"{wide}\n", f"{narrow}\n"),
        "short": ("dms", f"{whole}\n", f"{short}\n"),
        "bus": ("debezium", bus, json.dumps(row_of(9, None)) + "\n"),
    }


WIDE, NARROW = type_of("double"), type_of("int32")
PRICED = {"record-type": "data", "operation": "insert", "schema-name": "s", "table-name": "short"}
RULES = """tables:
  - {match: shaped.t, where: id < 5, columns: {word: exclude}}
  - {match: hidden.t, mask: {word: 'null'}}
  - {match: shop.public.sums, keys: [id]}
  - {match: s.short, keys: [id], columns: {id: int64, price: int64}}
  - {match: depot.parcels, keys: [id]}
"""


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What is listed after two batches, and after what was done to the mirrors then: all is checked again."""
    folder = tmp_path_factory.mktemp("night")
    file = folder / "night.yaml"
    parts = dict(PARTS)
    newer = change(
        "UPDATE", "t", 5000, {"id": "1", "word": "b"}, old=[{"word": "a"}], database="restart", id=5
    )
    parts["restart"] = "dts-canal", canal("INSERT", 900, "a", "restart"), newer
    parts |= counted_parts() | other_parts(folder)
    for name in PLANTED:
        first = canal("INSERT", 100, "a", name)
        parts[name] = "dts-canal", first, canal("INSERT", 200, "b", name).replace('"id": "1"', '"id": "2"')
    sources = "".join(
        f"  - {{name: {name}, kind: files, path: './{name}-*.jsonl', format: {part[0]}, settle: 1s}}\n"
        for name, part in parts.items()
    )
    limits = "".join(
        f"  - {{table: {name}, thresholds: {{{', '.join(f'{check}: 0' for check in checks)}}}}}\n"
        for name, checks in COUNTED.items()
    )
    (folder / "counts.csv").write_text("table,rows\nfine.t,7\n", "utf-8")
    file.write_text(
        f"pipeline: night\nlake: ./lake\nengine: auto\nplain_tables: true\nsources:\n{sources}"
        f"{RULES}quality:\n{limits}  - {{table: fine.t, source_counts: counts.csv}}\n",
        "utf-8",
    )
    for number in (1, 2):
        for name, part in parts.items():
            path = folder / f"{name}-{number}.jsonl"
            path.write_text(part[number], "utf-8")
            touch(path, 3600 - number)
        code, out = typed(f"ingest run {shlex.quote(str(file))}")
        assert code in (0, 1), out
    sent, lake = _causes(file), LakeReader(load(file))
    for name, (plant, _) in PLANTED.items():
        plant(deltalake.DeltaTable(lake.path(mirror_path(TableId(name, None, "t")))))
    assert 1 == typed(f"ingest quality {shlex.quote(str(file))}")[0]
    return sent + _causes(file)


def _causes(file: Path) -> list[dict[str, Any]]:
    causes: list[dict[str, Any]] = json.loads(typed(f"ingest status {file} --output json")[1])["causes"]
    return causes


def test_what_has_happened_is_listed(night: list[dict[str, Any]]) -> None:
    """A kind that only a row in the table of checks brings about may be one that no history does."""
    kinds: dict[str, set[str]] = {}
    for cause in night:
        kinds.setdefault(cause["mirror"] or "", set()).add(cause["kind"])
    wanted = SENT | {f"{name}.t": expected for name, (_, expected) in PLANTED.items()}
    wanted |= COUNTED | {"fine.t": {"row_count"}}
    lacking = {
        name: (expected, kinds.get(name))
        for name, expected in wanted.items()
        if expected - kinds.get(name, set())
    }
    assert {} == lacking


def test_what_only_its_batch_shows_is_listed_after_everything_was_checked_again(
    night: list[dict[str, Any]],
) -> None:
    """`ingest quality` ended complaints of rows that were as wrong as before."""
    for mirror, kind in (("mixed.t", "unplaced_changes"), ("read.t", "re_reads_ignored")):
        listed = [cause for cause in night if (cause["mirror"], cause["kind"]) == (mirror, kind)]
        assert 2 == len(listed), "by the run, and by the look at everything"


@pytest.mark.parametrize("kind", ["positions_started_again", "re_reads_ignored"])
def test_the_epoch_that_repairs_it_is_the_command(night: list[dict[str, Any]], kind: str) -> None:
    """The text named the command that leads out, and `next:` one that only shows the text again."""
    listed = [cause for cause in night if cause["kind"] == kind]
    assert 2 == len(listed), "by the run, and by the look at everything"
    for cause in listed:
        verb, file, *words = shlex.split(cause["command"])[1:]
        assert ("epoch", "night.yaml", True) == (verb, Path(file).name, len(words) > 2), cause
        assert f"`{cause['command']}`" in cause["text"]


def test_a_copy_of_the_lake_names_its_own_pipeline_file(night: list[dict[str, Any]], tmp_path: Path) -> None:
    """A lake that was moved, or copied to look into it, printed commands that runs had recorded: they changed the other lake."""
    file = next(Path(word) for word in shlex.split(night[0]["command"]) if word.endswith("night.yaml"))
    here = shutil.copytree(file.parent, tmp_path / "it's a copy") / file.name
    causes = json.loads(typed(f"ingest status {shlex.quote(str(here))} --output json")[1])["causes"]
    said = [text for cause in causes for text in (cause["command"], *cause["text"].split("`")[1::2])]
    verbs = {text.split()[1] for text in said if text.startswith("ingest ")}
    assert {"explain", "epoch"} <= verbs
    assert [] == [text for text in said if text.startswith("ingest ") and str(here) not in shlex.split(text)]


def test_each_has_a_time_and_a_command_that_its_kind_may_have(night: list[dict[str, Any]]) -> None:
    """Whoever is woken asks since when, and what to type."""
    for cause in night:
        assert cause["since"], cause
        kind = (OF_CHECKS | OF_THRESHOLDS).get(cause["kind"])
        assert kind is None or shlex.split(cause["command"])[1] in kind.verbs, cause


# --- topics ---------------------------------------------------------------------------------------


class Topics(WrittenLake):
    """Sources of Kafka without a broker: bronze as they would have landed in it, and the other stages as they are."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        formats = {"bus": "debezium", "weak": "canal", "bare": "dts-shareplex"}
        sources = "".join(
            f"  - {{name: {name}, kind: kafka, format: {dialect}, bootstrap_servers: 'nowhere:9092', topics: ['{name}.*']}}\n"
            for name, dialect in formats.items()
        )
        self.file.write_text(
            f"pipeline: depot\nlake: ./depot-lake\nengine: auto\nsources:\n{sources}"
            "tables:\n  - {match: shop.t, keys: [id]}\n  - {match: BOXES, keys: [ID]}\n",
            "utf-8",
        )

    def land(self, *sent: tuple[str, int, int, bytes | None, bytes | None]) -> None:
        """A batch of messages, each with its topic, partition, offset, key and value; then a run without bronze."""
        self.batch += 1
        rows = []
        for topic, partition, offset, key, value in sent:
            place = {
                "batch": self.batch,
                "source": topic.partition(".")[0],
                "topic": topic,
                "partition": partition,
            }
            place |= {"offset": offset, "ingested_at": NOW, "day": NOW.date()}
            span = {"topic": topic, "partition": partition, "from": offset, "to": offset + 1, "count": 1}
            receipt = json.dumps(span | {"cluster": "c", "topic_id": "t"}).encode()
            rows.append({"kind": "message", **place, "key": key, "value": value})
            rows.append({"kind": "receipt", **place, "value": receipt})
        self.product("bronze", rows, "bronze")
        code, out = typed(f"ingest run {shlex.quote(str(self.file))} --stage silver,gold,quality")
        assert code in (0, 1), out


def test_what_topics_send_is_listed(tmp_path: Path) -> None:
    """What a broker has dropped, and what topics mix up, had been problems of written rows only."""

    def of_bus(offset: int, sent: tuple[int, int, bytes | None]) -> tuple[str, int, int, bytes, bytes | None]:
        return "bus.shop.t", 0, offset, json.dumps({"id": sent[0]}).encode(), sent[2]

    def weak(partition: int, serial: int) -> tuple[str, int, int, None, bytes]:
        return "weak.t", partition, 0, None, canal("INSERT", serial, "a", "weak").encode()

    def bare(topic: str, seq: int) -> tuple[str, int, int, None, bytes]:
        message = part_of(seq, "1/1", seq)
        message["meta"]["table"] = "BOXES"
        return topic, 0, 0, None, json.dumps(message).encode()

    made = Topics(tmp_path)
    made.land(of_bus(0, wrapped(1, "c", 10)), of_bus(1, wrapped(2, "c", 11)), weak(0, 100), bare("bare.a", 1))
    made.decide(
        "accept-gap", "bus", {"topic": "bus.shop.t", "partition": 0, "offset": 2, "reason": "retention"}
    )
    made.land(of_bus(3, null(1)), of_bus(9, wrapped(3, "c", 12)), weak(1, 200), bare("bare.b", 2))
    kinds: dict[str, set[str]] = {}
    for cause in _causes(made.file):
        kinds.setdefault(cause["mirror"] or "", set()).add(cause["kind"])
    wanted = {"": {"gaps", "losses", "lost_deletes"}, "weak.t": {"order_strength"}, "BOXES": {"mixed_topics"}}
    assert {} == {
        name: kinds.get(name) for name, expected in wanted.items() if expected - kinds.get(name, set())
    }
