"""Sealed bronze: one data key a day, wrapped by the master key, in a folder of the lake.

Deleting a key's file makes its day unreadable for good. `decisions` records from which batch messages are sealed, and
which keys were dropped on purpose, so that a plain message among sealed ones and a lost key are both noticed.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import os
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.config import is_stored
from ingest.config.entries import Sealing
from ingest.config.masks import fingerprint
from ingest.config.scalars import KEY_BYTES, master_key_bytes
from ingest.errors import IngestError, SetupError, command, counted
from ingest.ledgers import decisions
from ingest.ledgers.decisions import KEY_DROPPED, SEALED, Decision
from ingest.store import hadoop, stores
from ingest.store.envelope import (
    ID_BYTES,
    MARK,
    NOT_SEALED,
    Dropped,
    Opener,
    Seal,
    SealError,
    Spans,
    unwrapped,
    wrapped,
)
from ingest.store.hadoop import HadoopStore
from ingest.store.stores import Store
from ingest.tables.schemas import BRONZE
from ingest.tables.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ingest.tables.lake import BatchSpan, Lake

FOLDER = "_seal"
_END = ".key.json"
_PATIENCE = 60.0  # seconds for the command that prints the master key
_SUBJECT = "bronze"
_AT_ONCE = 0.1  # seconds between a file and the change of its folder that it is
_kept: dict[tuple[str, str, frozenset[str]], bytes] = {}  # data keys by folder, file and masters


def begin(lake: Lake, batch: int, day: dt.date) -> Seal | None:
    """What seals the messages of a new batch; None if the pipeline file does not ask for it.

    Raises:
        SealError: the master key is not there, or not the one that wrapped the other keys.
    """
    wanted = lake.pipeline.seal
    seal = _key_of(lake, wanted, day.isoformat()) if wanted is not None else None
    now = spans(lake)
    if (seal is not None) != (bool(now) and now[-1][1] is None):
        decided = Decision(SEALED, _SUBJECT, {"on": seal is not None}, batch)
        decisions.append(lake, [decided])
    return seal


def spans(lake: Tables) -> Spans:
    """The batches whose messages are sealed."""
    turns: list[tuple[int, bool]] = []
    for decision in decisions.read(lake).of(SEALED):
        first, on = decision.batch or 1, bool(decision.value.get("on"))
        turns = [turn for turn in turns if turn[0] < first]  # a run that was killed did not land them
        if on != (bool(turns) and turns[-1][1]):
            turns.append((first, on))
    ends = [first for first, _ in turns[1:]] + [None]
    return tuple((first, end) for (first, on), end in zip(turns, ends, strict=True) if on) if turns else ()


def opener(lake: Tables) -> Opener:
    """What opens the sealed messages of a lake, as far as there are keys; faults are raised where one is needed."""
    sealed_spans = spans(lake)
    if not sealed_spans:
        return NOT_SEALED
    folder = _folder(lake)
    missing = _missing(lake, "DAY")
    try:
        masters = _masters(lake.pipeline.seal)
    except SealError as error:
        masters, missing = {}, str(error)
    keys: dict[bytes, bytes] = {}
    days: dict[bytes, str] = {}
    faults: dict[str, str] = {}
    for name in folder.names():
        day, number = _parsed(name)
        days[number] = day
        try:
            keys[number] = _data_key(folder, name, masters)
        except SealError as error:
            faults[day] = missing if not masters else str(error)
    dropped, gone = _dropped(lake, set(days))
    return Opener(sealed_spans, keys, gone | days, faults, missing, dropped)


def _dropped(lake: Tables, present: Collection[bytes]) -> tuple[dict[str, Dropped], dict[bytes, str]]:
    """The days whose key was dropped, and the days of the keys; ``there`` are the ids of the key files."""
    dropped: dict[str, Dropped] = {}
    days: dict[bytes, str] = {}
    for decision in decisions.read(lake).of(KEY_DROPPED):
        gone = dict.fromkeys(map(bytes.fromhex, decision.value.get("ids", ())), decision.subject)
        days |= gone
        if not gone.keys() & present:  # else the command was killed before it deleted the key
            text = (
                f"the day's key was dropped by {decision.by}{f' ({decision.reason})' if decision.reason else ''}; what silver holds of "
                f"these messages is kept, and `{command('rebuild', lake.pipeline.file)}` makes mirrors from it."
            )
            before = dropped[decision.subject].ids if decision.subject in dropped else frozenset[bytes]()
            dropped[decision.subject] = Dropped(text, before | gone.keys(), decision.batch)
    return dropped, days


def lost(lake: Tables) -> list[str]:
    """The days whose sealed messages bronze still holds, though their key is neither there nor was dropped on purpose.

    Bronze is only read if a day of its log has no key.
    """
    sealed = spans(lake)
    if not sealed:
        return []
    try:
        keys = dict(map(_parsed, _folder(lake).names()))
    except OSError:  # who may not list the keys cannot say
        return []
    files = lake.snapshot(BRONZE.name).files
    days = {str(file.partition["day"]) for file in files if file.partition["kind"] == "message"} - keys.keys()
    dropped, _ = _dropped(lake, keys.values())
    if not days - {day for day, dropping in dropped.items() if dropping.last is None}:
        return []
    rows = lake.ask(
        f"SELECT DISTINCT day FROM {{bronze.message}} WHERE {_sealed(sealed)} AND NOT {_gone(dropped)} ORDER BY day"
    )
    return [day for row in rows if (day := str(row["day"])) in days]


def lost_since(lake: Tables) -> dt.datetime | None:
    """Since when a key's file is gone: when the folder of keys was changed last, in UTC without a zone; None if keys came after
    that, or the folder is in a store.
    """
    folder = Path(_folder(lake).path)
    try:
        changed = folder.stat().st_mtime
        if any(file.stat().st_mtime > changed - _AT_ONCE for file in folder.iterdir()):
            return None
    except OSError:
        return None
    return dt.datetime.fromtimestamp(changed, dt.UTC).replace(tzinfo=None)


def lost_text(lake: Tables, days: Sequence[str]) -> str:
    """What to do about days whose key is lost."""
    return f"Bronze's messages of {_some(days)} cannot be opened: {_missing(lake, days[0])}"


def _missing(lake: Tables, day: str) -> str:
    typed = command("maintain", lake.pipeline.file, "--drop-key", day)
    return (
        f"the day's key is not in {_folder(lake).path}: put its file back from a backup; if there is none, `{typed}` "
        "gives these messages up."
    )


def _sealed(held: Spans) -> str:
    """The SQL condition for sealed messages of bronze."""
    parts = (f"batch >= {first}" + (f" AND batch < {end}" if end is not None else "") for first, end in held)
    return f"({' OR '.join(parts) or 'false'})"


def _gone(dropped: Mapping[str, Dropped]) -> str:
    """The SQL condition for messages of bronze whose key was dropped, if they are sealed."""
    parts = (
        f"day = DATE '{day}'" + (f" AND batch <= {dropping.last}" if dropping.last is not None else "")
        for day, dropping in dropped.items()
    )
    return f"({' OR '.join(parts) or 'false'})"


def refuse_unreadable(lake: Tables, opener: Opener, span: BatchSpan, *, new: bool = False) -> None:
    """Raise before anything is read if messages of some batches cannot be opened.

    Messages that are ``new`` to silver may belong to a dropped key: they become rejects.

    Raises:
        SealError: with the days, the cause, and what to do.
    """
    if not any(first <= span[1] and (end is None or span[0] < end) for first, end in opener.spans):
        return
    rows = lake.ask(
        f"""SELECT day, batch FROM {{bronze.message}} WHERE batch BETWEEN {span[0]} AND {span[1]}
        GROUP BY day, batch ORDER BY day, batch"""
    )
    places = [(str(row["day"]), row["batch"]) for row in rows]
    if new:
        gone = opener.dropped
        places = [(day, batch) for day, batch in places if day not in gone or not gone[day].covers(batch)]
    _refuse(opener, places)


def refuse_unreadable_rows(opener: Opener, rows: DataFrame) -> None:
    """The same for messages of bronze that Spark reads, with all of bronze's columns."""
    if opener.spans:
        batches = rows.select("day", "batch").distinct().collect()
        _refuse(opener, [(str(row["day"]), row["batch"]) for row in batches])


def _refuse(opener: Opener, places: Iterable[tuple[str, int]]) -> None:
    causes: dict[str, dict[str, list[int]]] = {}
    for day, batch in places:
        if opener.seals(batch) and (cause := opener.fault(day, batch)):
            causes.setdefault(cause, {}).setdefault(day, []).append(batch)
    if causes:
        texts = (
            f"Bronze's messages of {_listed(days)} cannot be opened: {cause}"
            for cause, days in causes.items()
        )
        raise SealError(" ".join(texts))


def _listed(days: Mapping[str, list[int]]) -> str:
    """Days with their batches: all of a few, the first and the last of many."""
    batches = sorted(batch for day in days.values() for batch in day)
    return (
        f"{_some(sorted(days))} (batch {batches[0]}{f' to {batches[-1]}' if len(set(batches)) > 1 else ''})"
    )


def _some(days: Sequence[str]) -> str:
    if len(days) <= 3:
        return ", ".join(days)
    return f"{counted(len(days), 'day')} from {days[0]} to {days[-1]}"


def readable(opener: Opener, rows: DataFrame) -> DataFrame:
    """Messages of bronze for Spark without those of days whose key was dropped: they are as if dropped themselves."""
    if not opener.dropped:
        return rows
    return rows.where(f"NOT ({_sealed(opener.spans)} AND {_gone(opener.dropped)})")


# --- keys -----------------------------------------------------------------------------------------


def _key_of(lake: Tables, wanted: Sealing, day: str) -> Seal:
    """The day's data key, made if there is none.

    Raises:
        SealError: a key of the day, or all keys, are lost: another one would hide it.
    """
    folder, masters = _folder(lake), _masters(wanted)
    names = folder.names()
    names_of_day = _of_day(names, day)
    if not names_of_day and names:
        _unwrapped(folder, names[-1], masters)  # refuses a master key that is not that of the other days
    if not names_of_day:
        gone = lost(lake)
        if gone and (day in gone or not names):
            raise SealError(lost_text(lake, gone))
        number, data_key = os.urandom(ID_BYTES), os.urandom(KEY_BYTES)
        names_of_day = [f"{day}.{number.hex()}{_END}"]
        folder.write(names_of_day[0], _wrapping(masters, day, number, data_key))
    return Seal(_parsed(names_of_day[0])[1], _unwrapped(folder, names_of_day[0], masters))


def _masters(wanted: Sealing | None) -> dict[str, bytes]:
    """The master keys by their fingerprints, the present one first."""
    if wanted is None:
        raise SealError(
            "the pipeline file has no `bronze: seal:` any more: put its `master_key:` back to read them."
        )
    if wanted.fault:
        raise SealError(wanted.fault)
    texts = [_printed(wanted.command) if wanted.command else wanted.master_key, wanted.previous_master_key]
    return {fingerprint(key.hex()): key for key in map(master_key_bytes, filter(None, texts))}


@cache
def _printed(words: tuple[str, ...]) -> str:
    """The master key that a command prints; it is run once in a process."""
    shown = f"the command of `bronze: seal:` ({words[0]} ...)"
    try:
        done = subprocess.run(
            words, capture_output=True, timeout=_PATIENCE, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = getattr(error, "strerror", None) or f"no answer in {_PATIENCE:g} s"
        raise SealError(f"{shown} cannot be run ({reason}): correct it, then run again.") from None
    if done.returncode:
        raise SealError(f"{shown} ended with exit code {done.returncode}: run it by hand to see why.")
    text = done.stdout.decode("utf-8", "replace").strip()
    try:
        master_key_bytes(text)
    except ValueError as error:
        raise SealError(f"{shown} does not print a master key: {error}.") from None
    return text


def _wrapping(masters: Mapping[str, bytes], day: str, number: bytes, data_key: bytes) -> bytes:
    name, master = next(iter(masters.items()))
    fields = {"version": 1, "day": day, "id": number.hex(), "master": name}
    data = wrapped(master, data_key, f"{day}.{number.hex()}")
    return json.dumps(fields | {"wrapped": base64.b64encode(data).decode()}).encode()


def _parsed(name: str) -> tuple[str, bytes]:
    """The day and the id of a key's file."""
    day, number = name.removesuffix(_END).split(".")
    return day, bytes.fromhex(number)


def _of_day(names: Iterable[str], day: str) -> list[str]:
    """The files of a day's keys."""
    return [name for name in names if _parsed(name)[0] == day]


def _data_key(folder: _Folder, name: str, masters: Mapping[str, bytes]) -> bytes:
    """Unwrap one data key to read with; it is kept in this process.

    Raises:
        SealError: with the cause.
    """
    place = (folder.path, name, frozenset(masters))
    if place not in _kept:
        _kept[place] = _unwrapped(folder, name, masters)
    return _kept[place]


def _unwrapped(folder: _Folder, name: str, masters: Mapping[str, bytes]) -> bytes:
    try:
        fields = json.loads(folder.read(name))
        by, data = str(fields["master"]), base64.b64decode(fields["wrapped"], validate=True)
    except (ValueError, KeyError, TypeError, OSError):
        raise SealError(
            f"the key file {folder.path}/{name} is damaged or missing: put it back from a backup."
        ) from None
    if by not in masters:
        raise SealError(
            f"another master key wrapped the day's key (its fingerprint is {by}, that of `master_key:` "
            f"{next(iter(masters), 'none')}): correct `master_key:`, or write that one as `previous_master_key:`."
        )
    key = unwrapped(masters[by], data, name.removesuffix(_END))
    if key is None:
        raise SealError(f"the key file {folder.path}/{name} was changed: put it back from a backup.")
    return key


# --- dropping and rotating ------------------------------------------------------------------------


def drop(lake: Lake, day: str, reason: str = "", by: str = "") -> None:
    """Make a day's messages unreadable for good.

    Raises:
        IngestError: the day has no key, or its messages are still needed.
    """
    try:
        dt.date.fromisoformat(day)
    except ValueError:
        raise IngestError(f"{day!r} is not a day: write it as 2026-03-14.") from None
    folder, is_lost = _folder(lake), day in lost(lake)
    if not is_lost and not _of_day(folder.names(), day):
        raise IngestError(f"There is no key of {day} in {folder.path}: days without messages have none.")
    if not is_lost and (needed := _needed(lake).get(day)):
        raise IngestError(f"The key of {day} is still needed: {needed}.")
    ids, last = _sealed_with(lake, day)
    _drop(lake, [day], reason, by or decisions.user(), ids, last if is_lost else None)


def drop_old(lake: Lake) -> list[str]:
    """Drop the keys of days that are older than the pipeline file keeps, and whose messages are no longer needed."""
    wanted = lake.pipeline.seal
    if wanted is None or wanted.keep_days is None:
        return []
    before = (lake.now().date() - dt.timedelta(days=wanted.keep_days)).isoformat()
    old = sorted({day for name in _folder(lake).names() if (day := _parsed(name)[0]) < before})
    needed = _needed(lake) if old else {}
    days = [day for day in old if day not in needed]
    _drop(lake, days, f"keep_days: {wanted.keep_days}", "`ingest maintain`")
    return days


def _drop(
    lake: Lake, days: Iterable[str], reason: str, by: str, used: Iterable[str] = (), last: int | None = None
) -> None:
    """Record what is dropped, then delete it: a run that is killed in between is repeated.

    ``used`` are ids of keys that may have no file; ``last`` is the last batch that they sealed, if the day may go on
    with another key.
    """
    folder = _folder(lake)
    for day in days:
        names = _of_day(folder.names(), day)
        ids = sorted({_parsed(name)[1].hex() for name in names} | {*used})
        decisions.append(lake, [Decision(KEY_DROPPED, day, {"ids": ids}, last, reason, by)])
        for name in names:
            folder.remove(name)


def _sealed_with(lake: Tables, day: str) -> tuple[set[str], int | None]:
    """The ids of the keys that bronze's messages of a day are sealed with, and the last such batch."""
    rows = lake.ask(
        f"SELECT left(hex(value), {2 * (len(MARK) + ID_BYTES)}) AS head, max(batch) AS last FROM {{bronze.message}} "
        f"WHERE day = DATE '{day}' AND {_sealed(spans(lake))} GROUP BY head"
    )
    last = max((row["last"] for row in rows), default=None)
    return {row["head"][2 * len(MARK) :].lower() for row in rows}, last


def _needed(lake: Lake) -> dict[str, str]:
    """The days whose messages are still to be read, with the reason."""
    from ingest.ledgers.rejects import PLACE, open_sql

    file, decoded = lake.pipeline.file, lake.decoded()
    same = " AND ".join(f'm."{name}" = r."{name}"' for name in (*PLACE, "batch"))
    rejected = lake.ask(
        f"SELECT DISTINCT m.day FROM ({open_sql(lake)}) AS r JOIN {{bronze.message}} AS m ON {same} "
        "WHERE r.kind = 'message'"
    )
    reasons = {
        str(row["day"]): "open rejects point at its messages, which "
        f"`{command('replay', file)}` decodes again; `{command('rejects', file)}` lists them, and how each is closed"
        for row in rejected
    }
    waiting = lake.ask(f"SELECT DISTINCT day FROM {{bronze.message}} WHERE batch > {decoded}")
    reasons |= {
        str(row["day"]): f"silver has yet to decode messages: `{command('run', file)}` first"
        for row in waiting
    }
    today = lake.now().date().isoformat()
    return reasons | {today: "the day is not over, and more messages will be sealed with it"}


def rewrap(lake: Tables) -> int:
    """Wrap all data keys with the present master key; returns how many had been wrapped by the previous one.

    Raises:
        SealError: a key is wrapped by neither; then none is changed.
    """
    wanted, folder = lake.pipeline.seal, _folder(lake)
    masters = _masters(wanted)
    names = folder.names()
    keys = {name: _unwrapped(folder, name, masters) for name in names}
    present = next(iter(masters))
    old = [name for name in names if json.loads(folder.read(name))["master"] != present]
    for name in old:
        folder.write(name, _wrapping(masters, *_parsed(name), keys[name]))
    return len(old)


# --- the folder -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Folder:
    """The folder of the keys."""

    path: str
    store: Store | HadoopStore

    def names(self) -> list[str]:
        """The names of the key files, oldest day first; none if there is no folder."""
        return sorted(name for name in self.store.names(self.path) if name.endswith(_END))

    def read(self, name: str) -> bytes:
        """A key file's content."""
        return self.store.read(f"{self.path}/{name}")

    def write(self, name: str, data: bytes) -> None:
        """Write a key file for good before anything is sealed with it."""
        with self._told(
            name, "written", "nothing was sealed; correct its permissions or its disk, then run again"
        ):
            self.store.write_for_good(f"{self.path}/{name}", data)

    def remove(self, name: str) -> None:
        """Delete a key file."""
        with self._told(name, "deleted", "correct its permissions, then type the command again"):
            self.store.remove(f"{self.path}/{name}")

    @contextmanager
    def _told(self, name: str, done: str, advice: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or error
            raise SetupError(
                f"The key file {self.path}/{name} cannot be {done} ({reason}): {advice}."
            ) from None


def _folder(lake: Tables) -> _Folder:
    root = lake.pipeline.lake.rstrip("/")
    by_run = hasattr(lake, "spark") and is_stored(root)
    return _Folder(f"{root}/{FOLDER}", hadoop.small_files(root) if by_run else stores.at(root))
