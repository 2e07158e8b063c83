"""Keys of a `tables:` entry that are changed after the first batch: when each is obeyed, and which command is named for it.

docs/operations.md has the same table. All tables of one pipeline are edited at once, each by its own entry.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from ingest.config import load
from ingest.ledgers import mirrors as known_mirrors
from ingest.tables.tables import LakeReader
from tests.fleet import typed
from tests.lakes import change, touch

NEXT_RUN, NEXT_BATCH = "the next run", "the next batch"


class Edit(NamedTuple):
    """What an entry said and says, when that is obeyed (or by the verb that `status` names), and what shows it then."""

    key: str
    before: str
    after: str
    when: str
    types: Mapping[str, str] = MappingProxyType(
        {}
    )  # of the mirror's columns, as far as they tell; empty for one that it has not
    rows: int = 2  # of the mirror, without the row of the second batch
    also: str = ""  # another table that is there
    mirror: str = ""  # the one that is looked at, if it has another name than the table
    gone: str = ""  # a mirror that is not there any more


EDITS = {
    "narrow": Edit("a type", "", "columns: {price: 'decimal(10,2)'}", "backfill", {"price": "DECIMAL(10,2)"}),
    "states": Edit("a type", "history: true", "history: true, columns: {price: 'decimal(10,2)'}", "backfill",
                   {"price": "DECIMAL(10,2)"}),
    "wide": Edit("a wider type", "columns: {n: int32}", "columns: {n: int64}", NEXT_BATCH, {"n": "BIGINT"}),
    "left": Edit("exclude (column)", "", "columns: {price: exclude}", NEXT_RUN, {"price": ""}),
    "named": Edit("rename", "", "columns: {price: {rename: cost}}", NEXT_RUN, {"cost": "STRING", "price": ""}),
    "made": Edit("compute", "", "columns: {more: {compute: n + 1}}", NEXT_RUN, {"more": "INT"}),
    "some": Edit("where", "", "where: id = 1", NEXT_RUN, rows=1),
    "keyed": Edit("keys", "", "keys: [price]", NEXT_RUN),
    "soft": Edit("deletes", "", "deletes: soft", NEXT_RUN, {"_deleted": "BOOLEAN"}, 3),
    "old": Edit("history", "", "history: true", NEXT_RUN, also="histories/d/old"),
    "sent": Edit("changes_of", "", "changes_of: true", NEXT_RUN, also="feeds/d/sent"),
    "shard": Edit("shard_column", "", "shard_column: shard", NEXT_RUN, {"shard": "STRING"}),
    "into": Edit("into", "", "into: d.moved", NEXT_RUN, mirror="moved"),
    "stale": Edit("into", "", "into: d.elsewhere", "drop", gone="stale"),
    "more": Edit("also", "", "also: [{into: d.further}]", NEXT_RUN, also="mirrors/d/further"),
    "fewer": Edit("also", "also: [{into: d.third}]", "", "drop", gone="third"),
    "flat": Edit("plain_tables", "", "plain_tables: true", "rebuild"),
    "out": Edit("exclude (table)", "", "exclude: true", "drop", gone="out"),
}  # fmt: skip
COLUMNS = {"id": "bigint", "n": "int", "price": "varchar(20)"}


class Yard:
    """The pipeline, as it is before and after all the edits."""

    def __init__(self, folder: Path) -> None:
        self.file, self.batches = folder / "yard.yaml", 0
        self.write("before")

    def write(self, when: str) -> None:
        """The pipeline file before or after the edits."""
        rules = (f"  - {{match: d.{name}, {getattr(edit, when)}}}\n" for name, edit in EDITS.items())
        self.file.write_text(
            "pipeline: yard\nlake: ./lake\nengine: auto\nsources:\n"
            "  - {name: s, kind: files, path: './in-*.jsonl', format: dts-canal, settle: 1s}\n"
            f"tables:\n{''.join(rules).replace(', }', '}')}",
            "utf-8",
        )

    def send(self, *ids: int) -> None:
        """A batch with a row of each table for each number; a negative one is deleted again."""
        self.batches += 1
        lines = []
        for serial, key in enumerate(ids):
            row = {"id": str(abs(key)), "n": "7", "price": f"{abs(key)}.50"}
            for at, table in enumerate(EDITS):
                place = 10_000 * self.batches + 100 * serial + at
                given = {"database": "d", "mysqlType": COLUMNS}
                lines.append(change("INSERT", table, place, row, **given))
                if key < 0:
                    lines.append(change("DELETE", table, place + 5000, row, **given))
        path = self.file.parent / f"in-{self.batches}.jsonl"
        path.write_text("".join(lines), "utf-8")
        touch(path, 3600 - self.batches)

    def run(self) -> None:
        """A run that does not fail."""
        code, out = typed(f"ingest run {shlex.quote(str(self.file))}")
        assert 0 == code, out

    def causes(self) -> dict[str, list[dict[str, Any]]]:
        """What `status` lists, by mirror."""
        listed = json.loads(typed(f"ingest status {shlex.quote(str(self.file))} --output json")[1])["causes"]
        return {
            str(cause["mirror"]): [*(each for each in listed if each["mirror"] == cause["mirror"])]
            for cause in listed
        }

    def not_obeyed(self, *when: str) -> dict[str, object]:
        """The edits that are to be obeyed by then and are not, with what there is instead."""
        lake, wrong = LakeReader(load(self.file)), dict[str, object]()
        known = {mirror.name: mirror for mirror in known_mirrors.known(lake).values()}
        for name, edit in EDITS.items():
            if edit.when not in when:
                continue
            if edit.gone:
                instead: object = f"d.{edit.gone}" in known
            else:
                if (mirror := known.get(f"d.{edit.mirror or name}")) is None:
                    wrong[name] = "no mirror"
                    continue
                there = {column.column: column.delta for column in mirror.columns}
                types = {column: there.get(column, "") for column in edit.types}
                [rows] = lake.ask_mirror(mirror.path, "SELECT count(*) AS n FROM {mirror}")
                more = self.batches > 1 and "where" not in edit.after
                keyed = mirror.keys[0] == ("price" if "keys" in edit.after else "id")
                same = rows["n"] == edit.rows + more
                is_there = not edit.also or lake.exists(edit.also)
                is_there &= "plain" not in edit.after or not lake.snapshot(mirror.path).takes_vectors
                instead = (
                    None
                    if (types, same, is_there, keyed) == (edit.types, True, True, True)
                    else (there, rows, is_there)
                )
            if instead:
                wrong[name] = instead
        return wrong


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Yard:
    """The pipeline with a batch, edited, and run without anything new."""
    made = Yard(tmp_path_factory.mktemp("yard"))
    made.send(1, 2, -3)
    made.run()
    made.write("after")
    made.run()
    return made


def test_what_a_run_alone_obeys(yard: Yard) -> None:
    """An edit that waits for a table's next batch, which may be far, and says nothing: the mirror is called up to date."""
    assert {} == yard.not_obeyed(NEXT_RUN)


def test_what_needs_a_command_names_it(yard: Yard) -> None:
    """A type that is written into the file, and a mirror that gets no more rows, looked as if all were done."""
    causes = yard.causes()
    for name, edit in EDITS.items():
        verbs = {shlex.split(cause["command"])[1] for cause in causes.get(f"d.{edit.gone or name}", ())}
        wanted = set() if edit.when in (NEXT_RUN, NEXT_BATCH) and name != "into" else {edit.when}
        assert ({"drop"} if name == "into" else wanted) == verbs, (name, causes)
    # whose types alone have changed is said once, by the mirror's name; another key is decoded to the same changes
    assert "decoded_before" not in {cause["kind"] for listed in causes.values() for cause in listed}
    [plan] = json.loads(typed(f"ingest plan {shlex.quote(str(yard.file))} --output json")[1])
    for name in ("narrow", "stale", "third", "out"):
        assert any(f"d.{name} " in text or text.endswith(f"d.{name}") for text in plan["warnings"]), name


@pytest.mark.spark
@pytest.mark.slow
def test_the_commands_that_are_named_are_enough(yard: Yard) -> None:
    """`ingest backfill` decoded with the new types and left the mirrors as they were; nothing said so from then on."""
    yard.send(5)
    yard.run()
    assert {} == yard.not_obeyed(NEXT_RUN, NEXT_BATCH)
    for _ in range(9):
        causes = [cause for listed in yard.causes().values() for cause in listed]
        if not causes:
            break
        code, out = typed(causes[0]["command"])
        assert 0 == code, out
    assert {} == yard.causes()
    assert {} == yard.not_obeyed(*{edit.when for edit in EDITS.values()})
