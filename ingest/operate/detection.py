"""Which format a sample of messages is of: each format's own word, weighed over the whole sample.

Sister dialects share most of their messages, so that one message may carry the marks of a sister: a
message speaks for a format if the format recognises it, or reads it exactly as the one that does.
The format for which most messages speak wins; messages that do not speak for it are named by number. A format of
which no message has a mark of its own is in doubt: others that read the messages too are named, with what they read otherwise.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ingest import formats
from ingest.change import Change, Hints, Message, Options, TableId
from ingest.config.scalars import listed, plain_name
from ingest.decoding import documents, unread
from ingest.errors import Undecodable, counted
from ingest.operate.message_input import messages

_HINTS = Hints(Options(table=(("*", TableId("database", None, "table")),)))
_SHOWN = 12
_UNKNOWN = "unknown"


def sample(file: str, framing: str | None, count: int) -> tuple[str, list[bytes], str | None]:
    """The framing of a file, the bytes of its first messages, and the damage that ended the sample."""
    name, framed = messages(file, framing, None)
    sampled: list[bytes] = []
    for message in islice(framed, count):
        if isinstance(message, Undecodable):
            return name, sampled, message.detail
        sampled.append(message.value)
    return name, sampled, None


def judge(file: str, framing: str, sampled: list[bytes], damage: str | None) -> dict[str, Any]:
    """The result as one object: format, evidence, rivals, odd messages, what is open, a block to paste."""
    seen = _Sample(sampled, [_evidence(message) for message in sampled])
    verdict: dict[str, Any] = {
        "file": file,
        "framing": framing,
        "messages": len(sampled),
        "damage": damage,
        "format": None,
        "certain": False,
        "candidates": seen.best(),
        "unread": None,
        "rivals": [],
        "evidence": [],
        "odd": {},
        "open": {},
        "sources": None,
    }
    if not verdict["candidates"]:
        words = (kind.words for kind in map(unread.named, sampled) if kind)
        return verdict | {"unread": next(words, None)}
    first, *others = verdict["candidates"]
    verdict |= {"odd": seen.odd(first), "evidence": seen.proofs(verdict["candidates"])}
    verdict["certain"] = not others and seen.marks(first)[0] > 0
    if not verdict["certain"]:
        verdict["rivals"] = _rivals(first, sampled)
    if others:
        return verdict
    verdict |= {"format": first, "open": dict(formats.load(first).ABOUT.options)}
    if is_one_source(verdict):
        verdict["sources"] = block(file, first, framing, doubt=doubt(verdict))
    return verdict


@dataclass(frozen=True, slots=True)
class _Sample:
    """Messages, and what each format says of each of them."""

    messages: list[bytes]
    evidence: list[dict[str, str]]

    def best(self) -> list[str]:
        """The formats, of those with a mark in the sample, for which most messages speak; several if these are equal."""
        ranks = {name: self._rank(name) for name in sorted({name for said in self.evidence for name in said})}
        return [name for name, rank in ranks.items() if rank == max(ranks.values())]

    def _rank(self, name: str) -> tuple[int, ...]:
        # at last, how many messages a format can decode by itself: what distinguishes bare Avro from framed
        decoded = sum(_reading(name, message) is not None for message in self.messages)
        return sum(self._speak(name)), *self.marks(name), decoded

    def _speak(self, name: str) -> Iterator[bool]:
        """Whether each message speaks for a format."""
        for message, said in zip(self.messages, self.evidence, strict=True):
            yield _is_marked(name, said) or _reads_as(name, message, said)

    def marks(self, name: str) -> tuple[int, int]:
        """How many messages carry a mark of the format alone, and how many one that its sisters may carry."""
        marks = [said[name] for said in self.evidence if name in said]
        shared = sum(isinstance(mark, formats.SharedEvidence) for mark in marks)
        return len(marks) - shared, shared

    def odd(self, name: str) -> dict[str, list[int]]:
        """The numbers, from 1, of the messages that do not speak for a format, by what they look like."""
        numbers: dict[str, list[int]] = {}
        for number, (speaks, said) in enumerate(zip(self._speak(name), self.evidence, strict=True), 1):
            if not speaks:
                numbers.setdefault(" or ".join(said) or _UNKNOWN, []).append(number)
        return numbers

    def proofs(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Each proof of some formats, with the number of messages that have it."""
        proofs = Counter((name, said[name]) for said in self.evidence for name in names if name in said)
        return [
            {"format": name, "evidence": text, "messages": number} for (name, text), number in proofs.items()
        ]


def is_one_source(verdict: Mapping[str, Any]) -> bool:
    """True if the messages are of one format, apart from a minority that is of none: they become rejects."""
    unknown = verdict["odd"].get(_UNKNOWN, [])
    return not verdict["odd"].keys() - {_UNKNOWN} and 2 * len(unknown) < max(1, verdict["messages"])


def _evidence(message: bytes) -> dict[str, str]:
    """What each format says of a message; a format that stumbles over it says nothing."""
    by_format = {}
    first = next(iter(documents.inside(message)), message)  # a frame or an envelope is no mark of a format
    for name in formats.names():
        sample = message if formats.load(name).ABOUT.binary else first
        if evidence := formats.evidence(name, sample):
            by_format[name] = evidence
    return by_format


def _is_marked(name: str, evidence: Mapping[str, str]) -> bool:
    """True if a message has a mark of the format, which it may share with others unless one of them has its own."""
    shared = isinstance(evidence.get(name), formats.SharedEvidence)
    return name in evidence and not (
        shared and any(not isinstance(mark, formats.SharedEvidence) for mark in evidence.values())
    )


def _reads_as(name: str, message: bytes, evidence: dict[str, str]) -> bool:
    """True if the format reads a message as another one that recognises it, or none does.

    A message without rows has no types or images that could mark it: what it does is enough.
    """
    reading = _reading(name, message)
    if reading is None:
        return False
    others = [_reading(other, message) for other in evidence if other != name]
    if not others or reading in others:
        return True
    return (
        all(isinstance(mark, formats.SharedEvidence) for mark in evidence.values())
        and all(change.before is None and change.after is None for change in reading)
        and _done(reading) in (_done(other or []) for other in others)
    )


def _rivals(winner: str, sampled: list[bytes]) -> list[dict[str, str]]:
    """The other formats that read every message, each with the first thing that it reads otherwise."""
    messages = sampled[:_COMPARED]
    readings = [_reading(winner, message) for message in messages]
    rivals = []
    for name in formats.names():
        if name == winner or formats.load(name).ABOUT.binary != formats.load(winner).ABOUT.binary:
            continue
        others = [_reading(name, message) for message in messages]
        if all(others):
            pairs = zip(readings, others, strict=True)
            differences = (_difference(reading, other, i) for i, (reading, other) in enumerate(pairs, 1))
            rivals.append({"format": name, "differs": next(filter(None, differences), "")})
    return rivals


_COMPARED = 20  # messages that rivals read
_ALIKE = "alike while `columns:` declares no type"


def _difference(reading: list[Change] | None, other: list[Change] | None, number: int) -> str | None:
    """What two readings of a message do not agree in, in words; None if they agree."""
    if reading == other:
        return None
    if reading is None or other is None or [each.op for each in reading] != [each.op for each in other]:
        return f"what message {number} does"
    for ours, theirs in zip(reading, other, strict=True):
        if ours.table != theirs.table:
            return f"the table of message {number}"
        if (ours.phase, ours.sequence) != (theirs.phase, theirs.sequence):
            return f"the place of message {number} in the order"
        for before, after in ((ours.after, theirs.after), (ours.before, theirs.before)):
            cells = (before or {}).items() ^ (after or {}).items()
            if cells:
                return f"the column {min(name for name, _ in cells)} of message {number}"
    return f"types, keys or the time of message {number}"


def doubt(verdict: Mapping[str, Any]) -> str | None:
    """Why a detected format may be another one, in one sentence; None if a message shows it."""
    if verdict["certain"] or not verdict["format"]:
        return None
    rivals = [
        f"{rival['format']} ({'reads otherwise: ' + rival['differs'] if rival['differs'] else f'reads them {_ALIKE}'})"
        for rival in verdict["rivals"]
    ]
    others = f"; so does {listed(rivals)}" if rivals else ""
    return f"in doubt: {verdict['format']} reads these messages, but none has a mark of it alone{others}"


def _done(reading: list[Change]) -> list[object]:
    """What changes do, without their places in history."""
    return [(change.op, change.table, change.ddl) for change in reading]


def _reading(name: str, message: bytes) -> list[Change] | None:
    """The changes that a format takes a message for; None if it cannot read it."""
    try:
        return list(formats.reader(name)(Message(message), _HINTS))
    except Exception:
        return None


def block(
    file: str,
    name: str,
    framing: str,
    named: str | None = None,
    given: Mapping[str, str] | None = None,
    doubt: str | None = None,
) -> str:
    """A ``sources:`` block to paste; the options that may matter are comments in it, unless they are given."""
    about = formats.load(name).ABOUT
    path = "messages.jsonl" if file == "-" else file
    lines = ["sources:", f"  - name: {named or plain_name(Path(path).name.split('.')[0])}", "    kind: files"]
    lines += [f"    path: {quoted(path)}", f"    format: {name}"]
    if doubt:
        lines.insert(1, f"  # {doubt}")
    if framing not in ("avro-container", about.framing):  # a container is recognised anyway
        lines.append(f"    framing: {framing}")
    if about.by_registry:
        files = ", or the folder of the schemas' files (*.avsc)" if about.schema_files else ""
        lines.append(
            f"    # registry: http://host:8081   # the schema registry{files}, which this format needs"
        )
    if about.to_decide:
        lines.append(f"    # {about.to_decide}")
    if given:
        lines += ["    options:", *(f"      {key}: {quoted(value)}" for key, value in given.items())]
    if rest := {key: text for key, text in about.options.items() if key not in (given or {})}:
        lines += [f"    #{' more' if given else ''} options:"]
        lines += [f"    #   {key}:   # {text}" for key, text in rest.items()]
    return "\n".join(lines)


def quoted(text: str) -> str:
    """A text as a YAML scalar that means it, quoted only where it must be."""
    if re.fullmatch(r"(\.{0,2}/|[A-Za-z_])[A-Za-z0-9_./*-]*", text) and text not in ("null", "true", "false"):
        return text
    return "'" + text.replace("'", "''") + "'"


def in_words(verdict: dict[str, Any]) -> str:
    if verdict["format"]:
        return "\n".join(_of_format(verdict))
    if verdict["candidates"]:
        return "\n".join(_of_several(verdict))
    count = verdict["messages"]
    said = f"none of {counted(count, 'message')} is of a known format; `ingest formats` lists them"
    if not count:
        said = "; ".join(filter(None, ("holds no messages", verdict["damage"])))
    return f"{verdict['file']}: {verdict['unread'] or said}"


def _of_several(verdict: Mapping[str, Any]) -> Iterator[str]:
    """Which formats the messages may be of, and what they read differently."""
    first, *others = verdict["candidates"]
    yield f"{verdict['file']}: {listed(verdict['candidates'])}; the messages do not show which"
    yield from _why(verdict)
    for rival in verdict["rivals"]:
        if rival["format"] in others:
            differ = f"differently: {rival['differs']}" if rival["differs"] else _ALIKE
            yield f"  {first} and {rival['format']} read them {differ}"


def _of_format(verdict: Mapping[str, Any]) -> Iterator[str]:
    """Which format the messages are of, what does not fit, and what they do not show."""
    about = formats.load(verdict["format"]).ABOUT
    yield f"{verdict['file']}: {verdict['format']} ({about.title})"
    yield from _why(verdict)
    yield from (f"  {text}" for text in (doubt(verdict), about.to_decide) if text)
    for name, numbers in verdict["odd"].items():
        shown = ", ".join([*map(str, numbers[:_SHOWN]), *(["..."] if len(numbers) > _SHOWN else [])])
        of = counted(verdict["messages"], "message")
        yield f"  does not fit: {len(numbers)} of {of}: {name}, number {shown}"
    if not is_one_source(verdict):
        yield from ("", "Several formats in one file cannot be one source; split the file by format.")
        return
    if verdict["odd"]:
        yield "  A run rejects such messages: it keeps them, counts them and says where they are."
    yield from ("", "The messages do not show:" if verdict["open"] else "")
    yield from (f"  {option}: {text}" for option, text in verdict["open"].items())
    yield from ("", verdict["sources"])


def _why(verdict: Mapping[str, Any]) -> list[str]:
    several = len(verdict["candidates"]) > 1
    return [
        f"  {proof['messages']} x {proof['format'] + ': ' if several else ''}{proof['evidence']}"
        for proof in verdict["evidence"]
    ]
