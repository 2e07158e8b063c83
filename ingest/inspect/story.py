"""A row's story in words: what `ingest explain` prints, and the service shows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ingest.errors import counted
from ingest.fold import OPEN

if TYPE_CHECKING:
    from ingest.change import Image
    from ingest.gold.explain import Story, StoryEffect, StoryEvent
    from ingest.ledgers.raw import Raw


def lines(story: Story) -> list[str]:
    """The story as lines of text."""
    shown = [headline(story), ""]
    for event, before in zip(story.events, rows_before(story), strict=True):
        shown.extend(_event(event, before))
        shown.append("")
    if story.folded is not None:
        shown.append(f"the fold ends with  {image(story.folded)}")
        if not story.complete:
            shown.append("it is incomplete: the row was never sent whole")
    for row in story.mirror_rows:
        shown.append(f"the mirror holds    {image(row)}")
    for name, rows in story.elsewhere.items():
        shown.extend(f"{name} holds    {image(row)}" for row in rows)
        if not rows:
            shown.append(f"{name} holds no row of it")
    for suspected in story.suspects:
        shown.append(f"suspect: {suspect(suspected)}")
    return shown


def rows_before(story: Story) -> list[Image]:
    """The row before each event as the events before it left it; empty where there was none."""
    images: list[Image] = []
    row: Image = {}
    for event in story.events:
        images.append(row)
        if event.after is not None:
            row = {**row, **event.after} if event.partial else event.after
        elif event.op in ("delete", "truncate"):
            row = {}
    return images


def changed(event: StoryEvent, before: Image) -> dict[str, str | None]:
    """The cells that an event gives other values, with those before; nothing for a new row."""
    after = event.after or {}
    return {name: before.get(name) for name in after if before and before.get(name) != after[name]}


def suspect(reject: Mapping[str, Any]) -> str:
    """A reject that may concern the row: a cell of it, a change of it, or a message whose table is unknown."""
    place = ""
    if reject["topic"] is not None:
        place = f" at {reject['topic']}/{reject['partition']}/{reject['offset']}"
    if reject["kind"] == "cell":
        return f"the cell {reject['column']} is NULL since batch {reject['batch']}: {reject['raw']} does not fit it"
    what = f"of batch {reject['batch']}{place} was rejected ({reject['reason']}: {reject['detail']})"
    if reject["kind"] == "change":
        return f"a change {what}"
    return f"a message {what}; it may have been about this row"


def headline(story: Story) -> str:
    """One sentence: the number of events, and whether the mirror agrees with them."""
    key = ", ".join(f"{name} = {value}" for name, value in story.key.items())
    count = counted(len(story.events), "event")
    waiting = f", {counted(story.waiting, 'more waits', 'more wait')} to be folded" if story.waiting else ""
    return f"{story.mirror}, {key}: {count} up to batch {story.batch}{waiting}; {_verdict(story)}."


def _verdict(story: Story) -> str:
    if story.equal:
        cells = sum(suspect["kind"] == "cell" for suspect in story.suspects)
        but = f", but for {counted(cells, 'cell')} that did not fit" if cells else ""
        if story.left_out:
            return f"no row, because the one that they give does not meet {story.left_out}"
        if not story.mirror_rows and not story.events:
            return "no change has named this key, and the mirror has no row of it"
        return f"the mirror's row is what they say{but}" if story.mirror_rows else "no row, as they say"
    if not story.mirror_rows:
        return "the mirror LACKS the row that they give"
    if len(story.mirror_rows) > 1:
        return f"the mirror holds the key {len(story.mirror_rows)} TIMES"
    if story.folded is None:
        return "the mirror holds a row that they DO NOT give"
    if story.left_out:
        return f"the mirror holds a row that DOES NOT MEET {story.left_out}"
    return f"the mirror DIFFERS in {', '.join(story.differing)}"


_NOT_KNOWN = "what rows of before have in the column is not known here"


def _event(event: StoryEvent, before: Image) -> list[str]:
    place = "" if event.topic is None else f"  {event.topic}/{event.partition}/{event.offset}"
    moment = f"  {event.event_time}" if event.event_time else ""
    sequence = f"  sequence {event.sequence}" if event.sequence else ""
    after = event.after or {}
    changes = (
        f"{name}: {image(old)} -> {image(after[name])}" for name, old in changed(event, before).items()
    )
    return [
        f"{event.number}. batch {event.batch}  {event.op}{moment}{sequence}{place}",
        *_labelled("statement", event.statement),
        *_labelled("before", "" if event.before is None else image(event.before)),
        *_labelled(
            "after", "" if event.after is None else image(event.after) + "  (partial)" * event.partial
        ),
        *_labelled("changed", ", ".join(changes)),
        *(f"   {_effect(effect, event)}" for effect in event.effects or ()),
        *(
            ()
            if event.effects
            else (f"   nothing: {_NOT_KNOWN if event.op == OPEN else 'there was no row'}",)
        ),
        *(f"   {text}" for text in event.remarks),
        *_labelled("note", event.note),
        *(() if event.raw is None else (_message(event.raw),)),
    ]


def _labelled(label: str, text: str | None) -> Iterator[str]:
    if text:
        yield f"   {label:<10} {text}"


def _message(raw: Raw) -> str:
    """The message's bytes, and how many there are if some are cut off."""
    is_cut = not raw.binary and len(raw.text.encode("utf-8", "replace")) < raw.length
    cut = f" ... ({counted(raw.length, 'byte')})" if is_cut else ""
    return f"   {'base64' if raw.binary else 'message':<10} {raw.text}{cut}"


def _effect(effect: StoryEffect, event: StoryEvent) -> str:
    key = ", ".join(effect.key)
    undone = ""
    if effect.superseded_by is not None and event.late:
        undone = f"; superseded by event {effect.superseded_by}"
    return f"{effect.effect:<10} ({key}) {effect.why}{undone}"


def image(shown: Image | str | None) -> str:
    """A row, or one of its cells, as JSON."""
    return json.dumps(shown, ensure_ascii=False)
