"""Which format a sample of messages is of: each format's own word, weighed over the whole sample.

Sister dialects share most of their messages, so that one message may carry the marks of a sister: a
message speaks for a format if the format recognises it, or reads it exactly as the one that does.
The format for which most messages speak wins; messages that do not speak for it are named by number. A format of
which no message has a mark of its own is in doubt: others that read the messages too are named, with what they read otherwise.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
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
    seen = [_evidence(message) for message in sampled]
    pairs = list(zip(sampled, seen, strict=True))
    spoken = {  # for each format with a mark in the sample, whether each message speaks for it
        name: [
            _is_marked(name, evidence) or _reads_as(name, message, evidence) for message, evidence in pairs
        ]
        for name in sorted({name for evidence in seen for name in evidence})
    }
    # at last, how many messages a format can decode by itself: what distinguishes bare Avro from framed
    rank = {
        name: (
            sum(said),
            *_marks(name, seen),
            sum(_reading(name, message) is not None for message in sampled),
        )
        for name, said in spoken.items()
    }
    best = [name for name in rank if rank[name] == max(rank.values())]
    winner = best[0] if len(best) == 1 else None
    odd: dict[str, list[int]] = {}  # numbers, from 1, of messages that do not fit, by what they look like
    for i, (fits, evidence) in enumerate(zip(spoken[best[0]], seen, strict=True) if best else (), 1):
        if not fits:
            odd.setdefault(" or ".join(evidence) or _UNKNOWN, []).append(i)
    is_certain = winner is not None and any(_marks(winner, seen)[:1])
    verdict: dict[str, Any] = {
        "file": file,
        "framing": framing,
        "messages": len(sampled),
        "damage": damage,
        "format": winner,
        "certain": is_certain,
        "candidates": best,
        "unread": None if best else next((kind.words for kind in map(unread.named, sampled) if kind), None),
        "rivals": [] if is_certain or not best else _rivals(best[0], sampled),
        "evidence": [
            {"format": name, "evidence": text, "messages": number}
            for (name, text), number in Counter(
                (name, evidence[name]) for evidence in seen for name in best if name in evidence
            ).items()
        ],
        "odd": odd,
        "open": dict(formats.load(winner).ABOUT.options) if winner else {},
    }
    is_source = winner is not None and is_one_source(verdict)
    text = block(file, winner, framing, doubt=doubt(verdict)) if winner and is_source else None
    return verdict | {"sources": text}


def is_one_source(verdict: dict[str, Any]) -> bool:
    """True if the messages are of one format, apart from a minority that is of none: they become rejects."""
    unknown = verdict["odd"].get(_UNKNOWN, [])
    return not verdict["odd"].keys() - {_UNKNOWN} and 2 * len(unknown) < max(1, verdict["messages"])


def _evidence(message: bytes) -> dict[str, str]:
    """What each format says of a message; a format that stumbles over it says nothing."""
    by_format = {}
    first = next(iter(documents.inside(message)), message)  # a frame or an envelope is no mark of a format
    for name in formats.names():
        module = formats.load(name)
        try:
            evidence = module.recognise(message if module.ABOUT.binary else first)
        except (Undecodable, ValueError, RecursionError):
            continue
        if evidence:
            by_format[name] = evidence
    return by_format


def _marks(name: str, seen: list[dict[str, str]]) -> tuple[int, int]:
    """How many messages carry a mark of the format alone, and how many one that its sisters may carry."""
    marks = [evidence[name] for evidence in seen if name in evidence]
    shared = sum(isinstance(mark, formats.SharedEvidence) for mark in marks)
    return len(marks) - shared, shared


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
    count, file = verdict["messages"], verdict["file"]
    if not count:
        return f"{file}: holds no messages" + (f"; {verdict['damage']}" if verdict["damage"] else "")
    if not verdict["candidates"]:
        if verdict["unread"]:
            return f"{file}: {verdict['unread']}"
        return (
            f"{file}: none of {counted(count, 'message')} is of a known format; `ingest formats` lists them"
        )
    if not verdict["format"]:
        first, *others = verdict["candidates"]
        apart = [
            f"  {first} and {rival['format']} read them {'differently: ' + rival['differs'] if rival['differs'] else _ALIKE}"
            for rival in verdict["rivals"]
            if rival["format"] in others
        ]
        head = f"{file}: {listed(verdict['candidates'])}; the messages do not show which"
        return "\n".join([head, *_why(verdict), *apart])
    about = formats.load(verdict["format"]).ABOUT
    lines = [f"{file}: {verdict['format']} ({about.title})", *_why(verdict)]
    if uncertain := doubt(verdict):
        lines.append(f"  {uncertain}")
    if about.to_decide:
        lines.append(f"  {about.to_decide}")
    for name, numbers in verdict["odd"].items():
        shown = ", ".join(map(str, numbers[:_SHOWN])) + (", ..." if len(numbers) > _SHOWN else "")
        lines.append(f"  does not fit: {len(numbers)} of {counted(count, 'message')}: {name}, number {shown}")
    if verdict["odd"] and is_one_source(verdict):
        lines.append("  A run rejects such messages: it keeps them, counts them and says where they are.")
    elif verdict["odd"]:
        return "\n".join(
            [*lines, "", "Several formats in one file cannot be one source; split the file by format."]
        )
    lines += ["", "The messages do not show:" if verdict["open"] else ""]
    lines += [f"  {option}: {text}" for option, text in verdict["open"].items()]
    return "\n".join([*lines, "", verdict["sources"]])


def _why(verdict: dict[str, Any]) -> list[str]:
    several = len(verdict["candidates"]) > 1
    return [
        f"  {proof['messages']} x {proof['format'] + ': ' if several else ''}{proof['evidence']}"
        for proof in verdict["evidence"]
    ]
