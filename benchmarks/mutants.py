"""Planted faults: each breaks one rule of the fold in a copy of the tree, and the tests must notice.

    python -m benchmarks.mutants            # all of them
    python -m benchmarks.mutants text       # those whose name holds a word

The plain ones run the tests of the plain fold; the Spark ones fold a few histories into real Delta
tables in one session.  A fault that is missed, or whose place is no longer found, makes the exit code 1.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("ingest", "tests", "pyproject.toml")
FOLD = ("tests/properties/test_fold.py", "tests/properties/test_order_key.py")
POLICY = ("tests/gold/test_policy.py", "tests/gold/test_policy_steps.py", "tests/gold/test_character_sets.py")
MODEL = (*POLICY, "tests/lake/test_resolve.py", "tests/model/test_plain.py")
PASSES = ("tests/gold/test_passes.py",)
EFFECTS = ("tests/ddl/test_effects.py", "tests/ddl/test_cascades.py", "tests/ddl/test_defaults.py")
PLAIN, SPARK = "plain", "spark"
SECONDS = 900  # longer is a hang, which is noticed, too


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: the text of a file that is replaced, whether Spark is needed to see it, and which tests must."""

    name: str
    file: str
    text: str
    fault: str
    where: str = PLAIN
    tests: tuple[str, ...] = FOLD  # of a plain one


MUTANTS = (
    Mutant(
        "sequence compared as text",
        "ingest/order.py",
        "    return _length_mark(len(digits)) + digits\n",
        "    return digits\n",
    ),
    Mutant(
        "delete wins ties",
        "ingest/fold.py",
        "return event.order, isinstance(event, Placed)\n",
        "return event.order[:4], isinstance(event, Placed) and event.change.op == 'delete', event.order\n",
    ),
    Mutant(
        "absent taken for NULL",
        "ingest/fold.py",
        "values = {**(row.values if row else {}), **event.change.new_cells}",
        "values = {**event.change.new_cells}",
    ),
    Mutant(
        "key change as plain upsert",
        "ingest/fold.py",
        "return Concerned(key, left, {key: texts, left: texts_left})",
        "return Concerned(key, None, {key: texts})",
    ),
    Mutant(
        "duplicates applied again where they arrive",
        "ingest/fold.py",
        "return event.order, isinstance(event, Placed)\n",
        "return event.order.arrival, event.order\n",
    ),
    Mutant(
        "a repeated key change inherits again",
        "ingest/fold.py",
        "return table.inherited.setdefault((*order[:4], order.row, old, new), values)",
        "return values",
    ),
    Mutant(
        "nothing inherited over a changed key",
        "ingest/fold.py",
        "    values = {**(inherited or {}), **after}\n",
        "    values = {**after}\n",
    ),
    Mutant(
        "keys compared as text",
        "ingest/fold.py",
        'cells.append(typed(key_types.get(name, "unknown"), text, name))',
        "cells.append(text)",
    ),
    Mutant(
        "decimal through float",
        "ingest/values/typed_values.py",
        "    _sign, digits, exponent = Decimal(text).as_tuple()\n",
        "    _sign, digits, exponent = Decimal(float(text)).as_tuple()\n",
    ),
    Mutant(
        "rows of one message in reverse",
        "ingest/order.py",
        "        + number_key(row)\n",
        "        + number_key(-row)\n",
    ),
    Mutant(
        "truncate ignored",
        "ingest/fold.py",
        "    for key in list(table.rows):\n        table.remove(key, event)\n",
        "    for key in list(table.rows):\n",
    ),
    Mutant(
        "no re-fold of late keys",
        "ingest/gold/plan/lane.py",
        'return "" < self.order_low <= self.folded_high',
        "return False",
        SPARK,
    ),
    Mutant(
        "truncates left out of the re-fold",
        "ingest/gold/fold/arrow_fold.py",
        "            clearings.append((place, new))\n",
        "",
        tests=("tests/properties/test_arrow_fold.py",),
    ),
    Mutant(
        "absent taken for NULL, in Arrow",
        "ingest/gold/fold/arrow_fold.py",
        "whole or (row is not None and column.name in row)",
        "True",
        tests=("tests/gold/test_outcomes.py",),
    ),
    Mutant(
        "a truncate in one share alone",
        "ingest/gold/fold/arrow_shares.py",
        "np.where(pc.equal(halves[ADDS], 0).to_numpy(), EVERY, numbers)",
        "numbers",
        tests=("tests/properties/test_arrow_keyless.py",),
    ),
    Mutant(
        "batch replay applied twice",
        "ingest/gold/apply/planner.py",
        "    applied = mirrors.folded_until(lake, table, before)\n",
        "    applied = -1\n",
        SPARK,
    ),
    Mutant(
        "rows of one message in reverse, in silver",
        "ingest/order.py",
        "!{small_key(change.row)}",
        "!{number_key(-change.row)}",
        SPARK,
    ),
    Mutant(
        "arrival before sequence, in silver",
        "ingest/order.py",
        "{sequence}!{small_key(change.half)}{arrivals[place]}!",
        "!{small_key(change.half)}{arrivals[place]}{sequence}!",
        SPARK,
    ),
    Mutant(
        "loaded rows of a weak dialect before all changes",
        "ingest/formats/canal.py",
        "return op is READ and not sequence and dialect.position is not nowhere",
        "return op is READ and not sequence",
        tests=("tests/formats/test_relatives.py",),
    ),
    Mutant(
        "a plain CREATE keeps the rows of the table before it",
        "ingest/ledgers/timeline.py",
        'proves = self.left is not None or (effect.note != "if-not-exists" and self.made != made)',
        "proves = False",
        tests=MODEL,
    ),
    Mutant(
        "column names of statements in another letter case are unknown",
        "ingest/store/names.py",
        "if other.casefold() == name.casefold()]",
        "if other == name]",
        tests=MODEL,
    ),
    Mutant(
        "names exchanged one after the other",
        "ingest/ledgers/timeline.py",
        'exchanges = last.action == "rename_column" and last.note == EXCHANGED',
        "exchanges = False",
        tests=MODEL,
    ),
    Mutant(
        "an existing column is added and filled again",
        "ingest/gold/plan/steps.py",
        'case "add_column" if name in before.made:',
        'case "add_column" if False:',
        tests=MODEL,
    ),
    Mutant(
        "a changed type leaves the rows as they were",
        "ingest/fold.py",
        "    return row.values if new == text else {**row.values, name: new}\n",
        "    return row.values\n",
        tests=MODEL,
    ),
    Mutant(
        "a date does not fit a datetime",
        "ingest/types.py",
        'return (old, new) == ("DATE", "TIMESTAMP_NTZ")',
        "return False",
        tests=("tests/test_types.py", *POLICY),
    ),
    Mutant(
        "a string without its end is tried at every quote",
        "ingest/values/json_documents.py",
        '*+"?)|//',
        '*+")|//',
        tests=("tests/test_growth.py", "-k", "documents"),
    ),
    Mutant(
        "source text reaches Spark's variables",
        "ingest/spark/settings.py",
        '"spark.sql.variable.substitute": "false",',
        '"spark.sql.variable.substitute": "true",',
        tests=("tests/spark/test_settings.py",),
    ),
    Mutant(
        "a file goes on after a range that could not be read",
        "ingest/bronze/files.py",
        "if waiting and (end is not None or holes):",
        "if False:",
        tests=("tests/bronze/test_files.py", "tests/bronze/test_file_holes.py"),
    ),
    Mutant(
        "a cache that every user may write is used",
        "ingest/spark/cache.py",
        "if status.st_mode & stat.S_IWOTH and",
        "if False and",
        tests=("tests/spark/test_cache.py",),
    ),
    Mutant(
        "long texts stay remembered",
        "ingest/values/remembered.py",
        "length if length <= LONG else KEPT + 1",
        "length",
        tests=("tests/values/test_remembered.py",),
    ),
    Mutant(
        "a batch that names several keys has the last one",
        "ingest/gold/plan/mirror_schema.py",
        "mixed = eras.overlap(shown) or",
        "mixed = False and",
        tests=("tests/gold/test_eras.py",),
    ),
    Mutant(
        "a row without all columns is as usual",
        "ingest/formats/canal.py",
        "if image.keys() != columns or",
        "if",
        tests=("tests/silver/test_lift.py",),
    ),
    Mutant(
        "no change read as columns leaves its key",
        "ingest/formats/canal.py",
        "moved = before is not None and",
        "moved = False and",
        tests=("tests/silver/test_lift.py",),
    ),
    Mutant(
        "a renamed column takes no values along",
        "ingest/gold/fold/arrow_files.py",
        "columns.get(fill.of if fill else column.column, nothing)",
        "columns.get(column.column, nothing)",
        tests=PASSES,
    ),
    Mutant(
        "a part of a row counts as the whole one after a statement",
        "ingest/gold/fold/arrow_fold.py",
        'step.effect == "overlay" or isinstance(step.event, SchemaStep)',
        'step.effect == "overlay"',
        tests=PASSES,
    ),
    Mutant(
        "rows that a file has are inserted, too",
        "ingest/gold/apply/arrow_pass.py",
        "matched[of.to_numpy()] = True",
        "pass",
        tests=PASSES,
    ),
    Mutant(
        "marked rows are there again after a pass",
        "ingest/tables/row_files.py",
        "if kept is not None:",
        "if False:",
        tests=PASSES,
    ),
    Mutant(
        "late changes before a statement do not matter",
        "ingest/gold/plan/passes.py",
        "bool(lane.late) or _has_late_steps(lane, steps)",
        "False",
        tests=PASSES,
    ),
    Mutant(
        "the newcomer leaves a key, not the row that was there",
        "ingest/departures.py",
        "            return Departure(self.row, stays=True)\n        if not of_former:\n",
        "            return Departure(present)\n        if not of_former:\n",
        tests=("tests/model/test_key_moves.py",),
    ),
    Mutant(
        "a counter that starts again inside a position goes back",
        "ingest/silver/restarts.py",
        "now = last.number + 1 + number",
        "now = number",
        tests=("tests/silver/test_restarts.py",),
    ),
    Mutant(
        "SET STATEMENT hides the statement behind it",
        "ingest/ddl/statements.py",
        'while cursor.accept("SET", "STATEMENT"):',
        "while False:",
        tests=EFFECTS,
    ),
    Mutant(
        "TRUNCATE CASCADE empties the named table alone",
        "ingest/ddl/statements.py",
        'cascade = cursor.next().word == "CASCADE" and scope.dialect != "mysql"',
        'cascade = cursor.next().word == "" and scope.dialect != "mysql"',
        tests=EFFECTS,
    ),
    Mutant(
        "a default of PostgreSQL's bytes is its text",
        "ingest/ddl/stored_postgres.py",
        '    "bytea": _bytea,\n',
        '    "bytea": lambda text, _sizes: text,\n',
        tests=EFFECTS,
    ),
    Mutant(
        "CHAR of PostgreSQL keeps its blanks as text",
        "ingest/values/conversions.py",
        'return Conversion(lambda text: text.rstrip(" "))',
        "return KEEP",
        tests=("tests/values/test_conversions.py",),
    ),
    Mutant(
        "an image before that is not the row is no complaint",
        "ingest/images_before.py",
        "return bool(self.differences) and self.excuse is None",
        "return False",
        tests=("tests/model/test_images_before.py", "-k", "maxwell"),
    ),
    Mutant(
        "an old file of the same run goes unnoticed",
        "ingest/quality/repetitions.py",
        "if not across and not _turns_back(ordered):",
        "if not across:",
        tests=("tests/quality/test_set_back.py", "-k", "of_the_same_run"),
    ),
    Mutant(
        "bytes in hexadecimal digits are read as base64 in silence",
        "ingest/quality/byte_texts.py",
        "return _bits(new) >= _PROOF or",
        "return False and",
        tests=("tests/quality/test_byte_texts.py", "-k", "are_named"),
    ),
    Mutant(
        "rows of a later snapshot come before the changes before it",
        "ingest/silver/lift.py",
        "return msgspec.structs.replace(change, phase=1)",
        "return change",
        tests=("tests/quality/test_second_snapshots.py", "-k", "place_was_lost"),
    ),
    Mutant(
        "a change that a later snapshot did not see loses in silence",
        "ingest/quality/restarted_positions.py",
        "if load and (lost := lost_behind_load(ordered, load)) and not _started_again(ordered, beyond=load):",
        "if lost := 0:",
        tests=("tests/quality/test_second_snapshots.py", "-k", "second_snapshot_did_not_see"),
    ),
    Mutant(
        "rows that no mirror has are missed in a load",
        "ingest/quality/not_loaded.py",
        "for key, texts in by_key.items() if key in of_rows]",
        "for key, texts in by_key.items()]",
        tests=("tests/quality/test_unmarked_loads.py", "-k", "no_mirror"),
    ),
)


def main() -> int:
    """Plant each fault whose name holds the words asked for; 1 if any was missed."""
    asked = " ".join(sys.argv[1:])
    wanted = [mutant for mutant in MUTANTS if asked in mutant.name]
    missed = 0
    session = _Session()
    for where in (PLAIN, SPARK):
        mutants = [mutant for mutant in wanted if mutant.where == where]
        # first the healthy tree, which must pass
        for tests in dict.fromkeys(mutant.tests for mutant in mutants):
            mine = [mutant for mutant in mutants if mutant.tests == tests]
            for mutant in (None, *mine):
                missed += _line(mutant, where, *_tried(mutant, where, tests, session))
    session.stop()
    print(f"{len(wanted)} planted, {missed} missed")
    return 1 if missed else 0


def _line(mutant: Mutant | None, where: str, noticed: bool | None, seconds: float) -> int:
    """Print one outcome; 1 if it is not what it should be."""
    good = noticed is (mutant is not None)
    word = "its place is not found" if noticed is None else "caught" if noticed else "missed"
    if mutant is None:
        word = "passes" if good else "FAILS"
    print(f"{word:8} {seconds:6.1f} s  {where:6} {mutant.name if mutant else 'no fault'}", flush=True)
    return 0 if good else 1


def _tried(
    mutant: Mutant | None, where: str, tests: tuple[str, ...], session: _Session
) -> tuple[bool | None, float]:
    """Whether the tests noticed the fault, and how long they took; None if it could not be planted."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = _copied(Path(folder))
        if mutant is not None and not _planted(mutant, copy / mutant.file):
            return None, 0.0
        started = time.monotonic()
        passed = _plain_tests(copy, tests) if where == PLAIN else session.probe(copy)
        return not passed, time.monotonic() - started


def _copied(folder: Path) -> Path:
    for name in COPIED:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, target)
    return folder


def _planted(mutant: Mutant, file: Path) -> bool:
    text = file.read_text(encoding="utf-8")
    if text.count(mutant.text) != 1:
        return False
    file.write_text(text.replace(mutant.text, mutant.fault), encoding="utf-8")
    return True


def _plain_tests(copy: Path, tests: tuple[str, ...]) -> bool:
    options = ("-qx", "-p", "no:cacheprovider", "-m", "not spark and not slow and not e2e", *tests)
    command = [sys.executable, "-m", "pytest", *options]
    try:
        done = subprocess.run(command, cwd=copy, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


class _Session:
    """One Spark session for all Spark faults; the packages are imported again from each copy."""

    def __init__(self) -> None:
        self.spark = None

    def probe(self, copy: Path) -> bool:
        """Fold a few histories with the code of a copy; False if anything was wrong or failed."""
        for name in [name for name in sys.modules if name.partition(".")[0] in ("ingest", "tests")]:
            del sys.modules[name]
        sys.path.insert(0, str(copy))
        try:
            from ingest.spark.session import session
            from tests.properties import lakes

            self.spark = self.spark or session("mutants", master="local[2]")
            return not lakes.probe(self.spark, copy / "lake")
        except Exception:  # whatever a fault does: it was noticed
            return False
        finally:
            sys.path.remove(str(copy))

    def stop(self) -> None:
        """End the session, if one was needed."""
        if self.spark is not None:
            self.spark.stop()


if __name__ == "__main__":
    sys.exit(main())
