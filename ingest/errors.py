"""The few exceptions. This module imports nothing of the package, so that all of it may import this one.

Every message is one sentence: what was found, where, and what to do about it.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import datetime as dt
    from pathlib import Path

_FAULT = "ingest-fault: "  # before the record of a fault, wherever only text passes
_DECODER = json.JSONDecoder()


def command(*words: object) -> str:
    """An `ingest` command quoted for a shell, whatever its paths and names contain."""
    return shlex.join(["ingest", *map(str, words)])


def explain_command(file: object, mirror: str, key: Sequence[str]) -> str:
    """The command that shows the life of a row, by the texts of its key: one that begins with a dash is no option."""
    dashes = ("--",) if any(text.startswith("-") for text in key) else ()
    return command("explain", file, mirror, *dashes, *key)


_COMMAND = re.compile(r"""\bingest ((?:[a-z-]+ ){1,2})((?:'[^']*'|"[^"]*"|[^\s'"`])+)""")
_FILE = re.compile(r"""\.ya?ml(?=['"]*[,.:;)]*$)""")


def pointed(text: str, file: Path) -> str:
    """A recorded text whose commands name this pipeline file, which may have been elsewhere when it was recorded."""
    return _COMMAND.sub(partial(_pointed, shlex.quote(str(file))), text)


def _pointed(file: str, recorded: re.Match[str]) -> str:
    word = recorded[2]
    if not _FILE.search(word):
        return recorded[0]
    return f"ingest {recorded[1]}{file}{word[len(word.rstrip(',.:;)')) :]}"


def counted(count: int, noun: str, nouns: str = "") -> str:
    """A number with its noun: ``1 message``, ``1,204 messages``."""
    return f"{count:,} {agreeing(count, noun, nouns or noun + 's')}"


def agreeing(count: int, one: str, several: str) -> str:
    """The word that goes with a number of things: `it` or `they`, `has` or `have`."""
    return one if count == 1 else several


def capitalised(sentence: str) -> str:
    """A sentence with a capital at its beginning, unless that is a name: those of columns and tables stay as they are."""
    first, _, rest = sentence.partition(" ")
    is_name = not first.rstrip(":,").isalpha() or rest.startswith("= ")
    return sentence if is_name else f"{sentence[:1].upper()}{sentence[1:]}"


def first_line(error: object) -> str:
    """The first line of an error's text, which may be empty: clients put Java traces and hints below it."""
    return next(iter(str(error).strip().splitlines()), "")


def visible(text: str) -> str:
    """A text of one line: whatever cannot be seen, or moves what is seen, as its code."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)


def unexpected(error: Exception) -> str:
    """A sentence for an error that is not one of this package's own."""
    return f"something unexpected went wrong ({type(error).__name__}: {first_line(error)})"


class IngestError(Exception):
    """Root of everything this package raises on purpose; the text is meant for the user.

    ``command`` is the `ingest` command that repairs it, empty if something else does, or if the text alone names it.
    """

    exit_code = 2

    def __init__(self, text: str = "", command: str = "") -> None:
        super().__init__(text)
        self.command = command


@dataclass(frozen=True, slots=True)
class Fault:
    """What a worker reports to the driver where only text passes: an error of Spark's, a column of a task's report.

    Attributes:
        kind: the name of the exception's class.
        text: the sentence for the operator.
        facts: what the driver has to know, as JSON has it.
    """

    kind: str
    text: str
    facts: Mapping[str, Any]

    def __str__(self) -> str:
        return _FAULT + json.dumps([self.kind, self.text, self.facts])


class FaultError(Exception):
    """Root of what a task raises and the driver recognises, by `fault_of`: a note of the error carries its fault.

    A traceback has an error's notes, and is all that Spark brings back of it.
    """

    def __init__(self, text: str, facts: Mapping[str, Any]) -> None:
        super().__init__(text)
        self.fault = Fault(type(self).__name__, text, facts)
        self.add_note(str(self.fault))


def fault_of(error: BaseException | str, kind: type[FaultError]) -> Fault | None:
    """The fault of a kind that an error is, or that its text or a task's report carries; None if there is none.

    Nothing else reads a worker's text.
    """
    if isinstance(error, FaultError):
        return error.fault if isinstance(error, kind) else None
    whole, last = str(error), None
    for begins in re.finditer(_FAULT, whole):
        with suppress(ValueError, TypeError):  # cut off, or in the words of another record
            fault = Fault(*_DECODER.raw_decode(whole, begins.end())[0])
            last = fault if fault.kind == kind.__name__ else last
    return last  # a traceback ends with the error that was raised, after its causes


class ConfigError(IngestError):
    """A pipeline file cannot be used; ``problems`` lists every fault as ``file:line:col text``."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class SetupError(IngestError):
    """Java, a jar, a path or a permission is missing; the text names the one command that repairs it.

    ``command`` is that command alone where `ingest doctor` lists it; empty elsewhere.
    """


class StoreError(IngestError):
    """An object store that cannot be reached, or refuses access."""


class LockedError(IngestError):
    """Another live run holds the lake's lock."""


class StoppedError(IngestError):
    """A run ended in the middle of a stage: a full disk, a refused access, a damaged file."""

    exit_code = 1


class HeldError(IngestError):
    """A mirror, lane or source waits for the operator; the text says what releases it.

    ``command`` is the `ingest` command that does, empty if something else is to be done first; ``since`` is when what is wrong
    was done, in UTC without a zone, if that is known.
    """

    exit_code = 1

    def __init__(self, text: str, command: str = "", since: dt.datetime | None = None) -> None:
        super().__init__(text, command)
        self.since = since


class NoValueError(Exception):
    """A message has no value, and its format says nothing of such: it is a tombstone."""


class Undecodable(Exception):
    """One message cannot be decoded: it becomes a reject and the run continues.

    Args:
        code: stable reason code, lower case with dashes, e.g. ``bad-json``; reports group by it.
        detail: one sentence for the user, without the message's own values where they may be secret.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
