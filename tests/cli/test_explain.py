"""A row's story in words: what may be wrong with it is said as what it is."""

from __future__ import annotations

from dataclasses import replace

from ingest.gold.explain import Story, StoryEffect, StoryEvent
from ingest.inspect.story import lines

ROW = {"id": "7", "at": None}
PLACE = {"topic": "pay.jsonl", "partition": 0, "offset": 512, "batch": 3, "column": None}
CELL = {**PLACE, "topic": None, "kind": "cell", "column": "at", "reason": "does-not-fit", "raw": "soon"}
CHANGE = {**PLACE, "kind": "change", "reason": "key-does-not-fit", "detail": "no key"}
MESSAGE = {**PLACE, "kind": "message", "reason": "bad-json", "detail": "the text ends"}


def story(*suspects: dict[str, object]) -> Story:
    """A row that the mirror has as the fold gives it, with open rejects."""
    return Story("pay.wallet", {"id": "7"}, 3, (), ROW, True, (ROW,), True, (), suspects)


def test_rejects_are_described_by_their_kind() -> None:
    """A NULL cell, a lost change and a message about an unknown row ask for three different actions."""
    suspects = [
        line.removeprefix("suspect: ") for line in lines(story(CELL, CHANGE, MESSAGE)) if "suspect" in line
    ]
    assert [
        "the cell at is NULL since batch 3: soon does not fit it",
        "a change of batch 3 at pay.jsonl/0/512 was rejected (key-does-not-fit: no key)",
        "a message of batch 3 at pay.jsonl/0/512 was rejected (bad-json: the text ends); it may have been about this row",
    ] == suspects


def test_the_headline_counts_cells_that_did_not_fit() -> None:
    """`What they say` and a NULL where they say something would be a contradiction."""
    assert lines(story(CELL, MESSAGE))[0].endswith("is what they say, but for 1 cell that did not fit.")
    assert lines(story())[0].endswith("the mirror's row is what they say.")


def test_a_row_that_a_condition_leaves_out_is_no_fault() -> None:
    """`The mirror LACKS the row` would send the operator looking for a fault that does not exist."""
    left = replace(story(), mirror_rows=(), left_out="at > 4")
    assert lines(left)[0].endswith("no row, because the one that they give does not meet at > 4.")
    assert lines(replace(story(), equal=False, left_out="at > 4"))[0].endswith(
        "a row that DOES NOT MEET at > 4."
    )


PLAIN = StoryEvent(1, 1, "insert", "pay", None, None, None, None, None, None, None, {"id": "7", "at": None, "by": "x"},
                   False, None, None, ())  # fmt: skip


def test_what_supersedes_a_change_is_said_of_late_ones() -> None:
    """Every change of a row is superseded in the end; of a late one it was so from the beginning."""
    set_by = (StoryEffect(("7",), "set", "the newest image", None, 2),)
    for late in (True, False):
        text = "\n".join(lines(replace(story(), events=(replace(PLAIN, effects=set_by, late=late),))))
        assert "(7) the newest image" in text
        assert late == ("superseded by event 2" in text)


def test_what_an_event_changes_is_marked() -> None:
    """Among forty columns, the one that an update is about would not be found."""
    events = (
        PLAIN,
        replace(PLAIN, number=2, op="update", after={"id": "7", "at": "soon", "by": "x"}),
        replace(PLAIN, number=3, op="update", after={"by": "y"}, partial=True),
        replace(PLAIN, number=4, op="delete", before={"id": "7"}, after=None),
        replace(PLAIN, number=5, after={"id": "7", "at": None, "by": "z"}),
    )
    said = [line.strip() for line in lines(replace(story(), events=events)) if "changed" in line]
    assert ['changed    at: null -> "soon"', 'changed    by: "x" -> "y"'] == said


def test_a_column_that_came_without_its_statement_does_not_deny_the_row() -> None:
    """Below the changes of a row stood that there was none."""
    events = (PLAIN, replace(PLAIN, number=2, op="open_column", effects=()))
    text = "\n".join(lines(replace(story(), events=events)))
    assert "there was no row" not in text.partition("2. batch")[2]
    assert "is not known here" in text
