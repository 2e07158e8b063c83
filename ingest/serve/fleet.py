"""What the pages show of several pipelines, kept for as long as the lakes' tables do not change."""

from __future__ import annotations

import datetime as dt
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from ingest.config import Pipeline, is_stored, load
from ingest.errors import ConfigError, IngestError, command, first_line, unexpected
from ingest.inspect import problem_kinds, problems, status
from ingest.inspect.problems import Problem
from ingest.quality.catalogue import ERROR, FAIL
from ingest.quality.report_model import Facts
from ingest.store import faults, stores
from ingest.store.names import MIRRORS
from ingest.tables import identity
from ingest.tables.schemas import ALL
from ingest.tables.tables import LakeReader

Made = TypeVar("Made")
OLDEST = 60.0  # seconds after which an answer is made again, whatever the folders say
PAUSE = 10  # times what an answer cost: it is not made again sooner, while a run commits every second
LONGEST = 20.0  # seconds of such a pause
KEPT = 64  # answers, and as many of each pipeline as the page of all of them needs
OF_EACH = 4
LATELY = 600.0  # seconds after a question in which a pipeline's answers are made before they are asked for
SOON = 0.4  # seconds after which the page of all pipelines shows what is known
AGAIN = 10.0  # seconds after which a pipeline file with a fault is read again
STORE_LOOK = 10.0  # seconds for which a lake in a store is taken to be as it was


@dataclass(slots=True)
class _Slot:
    lock: threading.Lock = field(default_factory=threading.Lock)
    seen: object = None
    value: Any = None
    has_value: bool = False  # one that was made, and may have been forgotten since
    failed: bool = False  # it could not be made: whoever asks next gets the reason
    made: float | None = None
    looked: float = 0.0  # when the value was made
    cost: float = 0.0

    def is_usable(self) -> bool:
        """True if a question that cannot wait may be answered: by a value that is not old, or by a failure."""
        return self.failed or (self.has_value and time.monotonic() - self.looked < 2 * OLDEST)


class Answers:
    """Answers by name, each made by one thread at a time; a thread that asks meanwhile gets the last one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._slots: OrderedDict[tuple[str, ...], _Slot] = OrderedDict()
        self._lock = threading.Lock()

    def get(
        self, name: tuple[str, ...], seen: object, make: Callable[[], Made], until: float | None = None
    ) -> Made:
        """The answer of that name, as it was made when its tables were as ``seen`` says.

        With ``until``, a moment of `time.monotonic`, the last answer is given where a new one takes longer.

        Raises:
            NotYetError: until then there was none.
        """
        slot = self._slot(name)
        # whoever prepares answers makes it: it may take long
        while until is not None and not slot.is_usable():
            if time.monotonic() > until:
                raise NotYetError
            time.sleep(0.01)
            slot = self._slot(name)
        if not self._is_due(slot, seen):
            return slot.value  # type: ignore[no-any-return] # what was made under this name
        too_long = until is not None and time.monotonic() + slot.cost > until
        waits = slot.made is None and (until is None or not slot.has_value)
        if (too_long and slot.has_value) or not slot.lock.acquire(blocking=waits):
            return slot.value  # type: ignore[no-any-return]
        try:
            if self._is_due(slot, seen):
                began = time.monotonic()
                slot.value = make()
                slot.made = slot.looked = time.monotonic()
                slot.has_value, slot.failed = True, False
                slot.seen, slot.cost = seen, slot.made - began
            return slot.value  # type: ignore[no-any-return]
        except Exception:
            slot.failed = True
            raise
        finally:
            slot.lock.release()

    def _slot(self, name: tuple[str, ...]) -> _Slot:
        with self._lock:
            slot = self._slots.setdefault(name, _Slot())
            self._slots.move_to_end(name)
            while len(self._slots) > self._most:
                self._slots.popitem(last=False)
        return slot

    @staticmethod
    def _is_due(slot: _Slot, seen: object) -> bool:
        if slot.made is None:
            return True
        age = time.monotonic() - slot.made
        return age > OLDEST or (slot.seen != seen and age > min(LONGEST, PAUSE * slot.cost))

    def forget(self, first: str) -> None:
        """Make every answer whose name begins so again when it is next asked for."""
        with self._lock:
            for name, slot in self._slots.items():
                if name[0] == first:
                    self._slots[name] = replace(
                        slot, lock=threading.Lock(), seen=None, made=None, failed=False
                    )


@dataclass(slots=True)
class Member:
    """One pipeline file of the service; ``fault`` says why it cannot be read as it is now."""

    file: Path
    name: str = ""
    pipeline: Pipeline | None = None
    fault: str = ""
    stamp: object = None
    looked: float = 0.0  # when the file was last read
    kept: dict[str, tuple[object, object]] = field(default_factory=dict)

    def read(self) -> None:
        """Read the file again if it was changed; with faults, what it said before holds."""
        stamp, now = _stamp(self.file), time.monotonic()
        whole = not self.fault and not (self.pipeline and self.pipeline.unresolved)
        if stamp == self.stamp and self.stamp is not None and (whole or now - self.looked < AGAIN):
            return
        self.stamp, self.looked = stamp, now
        try:
            pipeline = load(self.file, to_look=True)
        except IngestError as error:
            self.fault = str(error)
            return
        except Exception as error:  # one file keeps none of the others from being served
            self.fault = f"{self.file}: {unexpected(error)}"
            return
        if self.pipeline is not None and (pipeline.name, pipeline.lake) != (
            self.pipeline.name,
            self.pipeline.lake,
        ):
            self.fault = (
                f"{self.file}: its name or its lake was changed: stop `ingest serve` and start it again"
            )
            return
        self.pipeline, self.fault = pipeline, ""


def _stamp(path: Path | str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - asked a thousand times a second
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_ino


def versions(lake: str) -> tuple[object, ...]:
    """What changes with every commit to a lake: when the folders of its tables' logs were last written."""
    if is_stored(lake):  # no cheap sign of a commit: asked again after a while
        return (int(time.monotonic() // STORE_LOOK),)
    stamps = [_stamp(f"{lake}/{schema.name}/_delta_log") for schema in ALL]
    with suppress(OSError):
        for database in os.scandir(f"{lake}/{MIRRORS}"):
            with suppress(OSError):
                stamps += [_stamp(f"{table.path}/_delta_log") for table in os.scandir(database.path)]
    return tuple(stamps)


class Fleet:
    """Several pipelines, by name."""

    def __init__(self, files: Sequence[Path], soon: float | None = None) -> None:
        self.is_prepared = False  # True once every pipeline was read
        self._soon = soon  # None: no answers are prepared, so every question waits
        self._answers = Answers(KEPT + OF_EACH * len(files))
        self._asked: dict[str, float] = {}
        self._look = threading.local()
        self.members: dict[str, Member] = {}
        for file in files:
            member = Member(file)
            member.read()
            member.name = member.pipeline.name if member.pipeline else file.stem
            if member.pipeline is None and member.name in self.members:
                member.name = str(file)
            if (other := self.members.get(member.name)) is not None:
                raise IngestError(
                    f"{other.file} and {file} are both called {member.name}: give each pipeline a name of its own."
                )
            self.members[member.name] = member
        self._asked = dict.fromkeys(self.members, time.monotonic())  # the first questions come soon
        identity.refuse_shared(
            member.pipeline for member in self.members.values() if member.pipeline is not None
        )

    def member(self, name: str) -> Member:
        """The pipeline of that name, read again if its file was changed; a `NotHereError` if there is none."""
        member = self.members.get(name)
        if member is None:
            raise NotHereError(
                f"There is no pipeline {name!r} here; there are {', '.join(sorted(self.members))}."
            )
        member.read()
        return member

    def lake(self, name: str) -> LakeReader:
        """The lake of a pipeline, for questions; an `IngestError` if it cannot be read, or is not there."""
        member = self.member(name)
        if member.pipeline is None:
            raise IngestError(member.fault)
        lake = member.pipeline.lake
        if not stores.is_readable(lake):
            raise IngestError(f"{lake} is read by Spark alone: ask with {command('status', member.file)}.")
        reader = LakeReader(member.pipeline, member.kept)
        stored = is_stored(lake)
        if (stored or Path(lake).is_dir()) and (
            self.kept(name, "identity", reader, identity.look).table_id or not stored
        ):
            return reader
        raise NoLakeError(
            f"There is no lake at {lake} yet: the first run makes it, {command('run', member.file)}."
        )

    def kept(self, name: str, what: str, lake: LakeReader, make: Callable[[LakeReader], Made]) -> Made:
        """An answer about a lake, made again only after one of its tables was written."""
        return self._answers.get(
            (name, what), (self._versions(lake.pipeline.lake), lake.pipeline), lambda: make(lake),
            getattr(self._look, "until", None),
        )  # fmt: skip

    @contextmanager
    def one_look(self) -> Iterator[None]:
        """Look once at what was written, however many answers this thread asks for meanwhile."""
        self._look.seen = {}
        try:
            yield
        finally:
            del self._look.seen

    def _versions(self, lake: str) -> object:
        seen: dict[str, object] | None = getattr(self._look, "seen", None)
        if seen is None:
            return versions(lake)
        if lake not in seen:
            seen[lake] = versions(lake)
        return seen[lake]

    def status(self, name: str) -> dict[str, Any]:
        """What `ingest status` says, with the lag of this moment."""
        lake = self.lake(name)
        seen = self.kept(name, "status", lake, status.look)
        return status.aged(status.summary(lake, seen, self.facts(name, lake)))

    def forget(self, name: str) -> None:
        """Look again at once: something was decided or run here."""
        self._answers.forget(name)

    def facts(self, name: str, lake: LakeReader) -> Facts:
        """What the report knows of a pipeline, as of this moment."""
        facts = self.kept(name, "facts", lake, lambda lake: problems.gathered(lake, trend=8))
        facts.look()
        return facts

    def prepare(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Make what the pages show of the pipelines that were asked about lately, so that no user waits for it."""
        for name, asked in [*self._asked.items()]:
            if not is_over() and time.monotonic() - asked < LATELY:
                with suppress(Exception):  # whoever asks is answered why not
                    self._prepare(name)
        self.is_prepared = True

    def _prepare(self, name: str) -> None:
        lake = self.lake(name)
        self.kept(name, "status", lake, status.look)
        self.kept(name, "checks", lake, status.verdicts)
        self.facts(name, lake)

    def states(self, *, soon: bool = False) -> list[PipelineState]:
        """Every pipeline's state, the worst first; ``soon`` gives what is known if making the rest takes long."""
        self._look.until = time.monotonic() + self._soon if soon and self._soon is not None else None
        try:
            states = [self.state(name) for name in self.members]
        finally:
            self._look.until = None
        # by minutes, so that pipelines with one lag do not change places at each look
        return sorted(
            states, key=lambda state: (LIGHTS.index(state.light), -((state.lag or 0) // 60), state.name)
        )

    def state(self, name: str) -> PipelineState:
        """One pipeline's state; whatever keeps it from being read is its state, too."""
        member = self.members[name]
        self._asked[name] = time.monotonic()
        try:
            member.read()
            lake = self.lake(name)
            described = self.status(name)
            checks = self.kept(name, "checks", lake, status.verdicts)
            wrong = [problems.of_described(cause) for cause in described["causes"]]
        except NotYetError:
            return PipelineState(name, member, "none", BEING_READ, [])
        except NoLakeError as error:
            text = "There is no lake yet: the first run makes it."
            trouble = Trouble("none", text, command("run", member.file))
            return PipelineState(name, member, "none", "Not run yet", [trouble], fault=error)
        except Exception as error:
            text = f"{faults.fault(error) or f'{type(error).__name__}: {first_line(error)}'}."
            text = str(error) if isinstance(error, IngestError) else text
            trouble = Trouble("bad", text, command("validate", member.file))
            return PipelineState(name, member, "bad", "Cannot be read", [trouble], fault=IngestError(text))
        troubles = sorted(
            _troubles(member, wrong, {table["table"] for table in described["tables"]}),
            key=lambda table: LIGHTS.index(table.light),
        )
        light = troubles[0].light if troubles else "good"
        states = [row["state"] for row in described["tables"] if row["state"] != "ok"]
        if states:
            word = ", ".join(
                f"{states.count(state_name)} {state_name}"
                for state_name in problem_kinds.STATES
                if state_name in states
            )
        else:
            word = {"bad": "Failing", "warn": "Needs a look", "none": "No table yet"}.get(light, "Good")
        if light == "good" and not described["tables"]:
            light, word = "none", "No table yet"
        return PipelineState(name, member, light, word, troubles, described, checks)


class NotHereError(IngestError):
    """What is asked for does not exist."""


class NoLakeError(NotHereError):
    """A pipeline has not been run yet."""


class NotYetError(Exception):
    """An answer takes longer than is waited for."""


BEING_READ = "Being read"
LIGHTS = ("bad", "warn", "none", "good")


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that is wrong with a pipeline, in words, and the command that leads out."""

    light: str
    text: str
    command: str = ""
    page: str = ""  # the one that shows more
    table: str = ""  # which that page is of, if it is a table's


@dataclass(frozen=True, slots=True)
class PipelineState:
    """A pipeline's state in one line."""

    name: str
    member: Member
    light: str
    word: str
    troubles: list[Trouble]
    status: dict[str, Any] = field(default_factory=dict)
    checks: dict[str, int] = field(default_factory=dict)
    fault: IngestError | None = None  # why there is no status

    @property
    def being_read(self) -> bool:
        """True if nothing is known of it yet."""
        return self.word == BEING_READ

    @property
    def measured(self) -> dict[str, Any]:
        """What metrics are made of: the status, with what is wrong with the pipeline file; empty if nothing is known."""
        fault = ConfigError([self.member.fault]) if self.member.fault else self.fault
        if fault is None:
            return self.status
        unusable = status.unusable(self.member.file, fault, self.name)
        return {**unusable, **self.status, "causes": [*self.status.get("causes", []), *unusable["causes"]]}

    @property
    def lag(self) -> int | None:
        """Seconds since the newest commit of the mirror that lags most."""
        lags = [table["lag_seconds"] for table in self.tables if table["lag_seconds"] is not None]
        return max(lags, default=None)

    @property
    def tables(self) -> list[dict[str, Any]]:
        """The lines of `ingest status`."""
        lines: list[dict[str, Any]] = self.status.get("tables", [])
        return lines

    @property
    def batch(self) -> int | None:
        """The newest batch of any mirror."""
        return max((table["batch"] for table in self.tables if table["batch"] is not None), default=None)

    @property
    def bad(self) -> int:
        """Mirrors that are not up to date."""
        return sum(table["state"] != "ok" for table in self.tables)

    @property
    def rejects(self) -> int:
        """Rejects that wait."""
        return sum(self.status.get("open_rejects", {}).values())

    @property
    def statements(self) -> int:
        """Statements that wait for a decision."""
        return int(self.status.get("pending_statements", 0))

    @property
    def failing(self) -> int:
        """Checks that failed or could not be judged."""
        return sum(self.checks.get(state, 0) for state in (FAIL, ERROR))

    @property
    def ended(self) -> dt.datetime | None:
        """When the last run ended."""
        last = self.status.get("last_run")
        return dt.datetime.fromisoformat(last["ended"]) if last else None


def _troubles(member: Member, wrong: Iterable[Problem], tables: set[str]) -> Iterator[Trouble]:
    if member.fault:
        yield Trouble("bad", member.fault, command("validate", member.file))
    for text in member.pipeline.unresolved.values() if member.pipeline else ():
        yield Trouble("warn", f"{text}; only a run needs it", command("validate", member.file))
    for problem in wrong:
        if problem.acknowledged:
            continue
        text, table = problems.without(problem.sentence, problem.command), problem.mirror
        verb = next(
            (verb for verb in ("rejects", "ddl") if problem.command == command(verb, member.file)), ""
        )
        page = verb or ("table" if table in tables else "")
        light = "bad" if problem.severity == problem_kinds.ERROR else "warn"
        yield Trouble(light, text, problem.command, page, table if page == "table" else "")
