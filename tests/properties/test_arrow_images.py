"""Images that are read as columns, against a look at each change."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from ingest.change import TableId
from ingest.gold.fold import arrow_fold, unfit
from ingest.gold.fold.arrow_work import ColumnWork, LaneWork, MirrorWork

TEXTS = (
    "", " ", "null", "true", "2024-05-01", "2024-05-01T10:00:00Z", "1.50", "-0", "a\nb\r\t", '"quoted" \\ \\"', "\0", "\x1f\x7f",
    "ä€\U0001f600", "\u2028\u2029\ufeff", "{}", '{"id":"7"}', "]", "x" * 100_000,
)  # fmt: skip


def _page(changes: Sequence[tuple[str, str | None, str | None]]) -> pa.Table:
    """Changes: what was done, and the images."""
    ops, before, after = zip(*changes, strict=True)
    places = [f"{at:05}" for at in range(len(changes))]
    return pa.table(
        {"op": ops, "before": pa.array(before, pa.string()), "after": pa.array(after, pa.string()), "order_key": places,
         "topic": places, "partition": [0] * len(places), "offset": [7] * len(places), "row": [0] * len(places),
         "batch": [1] * len(places)}
    )  # fmt: skip


def _both(changes: Sequence[tuple[str, str | None, str | None]]) -> tuple[Any, Any]:
    """The outcomes by columns, and by a look at each change; None for what is left to the latter."""
    columns = tuple(
        ColumnWork(name, name, one) for name, one in (("id", "int64"), ("v", "string"), ("w", "date"))
    )
    work = MirrorWork(
        "m", "m", ("id",), columns, (LaneWork("s", TableId("yard", None, "depot"), 1, 1, images=True),)
    )
    page, [lane] = _page(changes), work.lanes
    found = arrow_fold.last_images(page, lane, work)
    one_by_one, *_ = arrow_fold.fold(page, lane, work.keys, work.logical)
    typed = unfit.placed(arrow_fold.typed_outcomes(one_by_one, work), work, {lane.id: page})
    slow = typed.append_column(arrow_fold.PLACE, pa.array(one_by_one.places))
    return found and found[0].sort_by("id").to_pylist(), slow.sort_by("id").to_pylist()


@pytest.mark.parametrize("escaped", [False, True])
def test_images_read_as_columns_are_the_same(escaped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JSON reader that takes a text for a date, or one escape for another, would silently change cells."""
    monkeypatch.setattr(arrow_fold, "AT_ONCE", 1)
    changes: list[tuple[str, str | None, str | None]] = []
    for at, text in enumerate([*TEXTS, None]):
        image = json.dumps({"id": str(at), "v": text, "w": "2024-05-01"}, ensure_ascii=escaped)
        changes.append(("insert", None, image))
        changes.append(
            ("update", image, json.dumps({"more": "x", "v": text, "id": str(at)}, ensure_ascii=escaped))
        )
    changes += [
        ("delete", '{"id":"3","v":"gone"}', None),
        ("delete", '{"id":"4"}', None),
        ("insert", None, '{"id":"4"}'),
        ("insert", None, '{"id":"98","v":"x","w":"2024-5-1"}'),
        ("insert", None, '{"id":"99","v":"x","w":"2024-5-1"}'),
        ("insert", None, '{"id":"99","v":"y","w":"2024-05-01"}'),
    ]
    by_columns, one_by_one = _both(changes)
    assert by_columns is not None
    assert 1 == sum(row[unfit.UNFIT] is not None for row in by_columns), "of id 98"
    assert one_by_one == [{**row, "w": None if row["%gone"] else row["w"], "v": None if row["%gone"] else row["v"]} for row in by_columns]  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        ("update", '{"id":"1"}', '{"v":"x"}'), ("delete", None, '{"id":"1"}'), ("insert", None, '{"id":"1","v":"\\ud800"}'),
        ("insert", None, '{"id":"one","w":"2024-05-01"}'),
    ],
    ids=["the key is before", "only after", "half a character", "a key that does not fit"],
)  # fmt: skip
def test_other_images_are_looked_at_one_by_one(
    change: tuple[str, str | None, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What columns do not show is not guessed: a key may be in the other image alone."""
    monkeypatch.setattr(arrow_fold, "AT_ONCE", 1)
    work = MirrorWork("m", "m", ("id",), tuple(ColumnWork(n, n, t) for n, t in (("id", "int64"), ("v", "string"), ("w", "date"))), ())  # fmt: skip
    lane = LaneWork("s", TableId("yard", None, "depot"), 1, 1, images=True)
    assert arrow_fold.last_images(_page([("insert", None, '{"id":"2"}'), change]), lane, work) is None
    assert arrow_fold.last_images(_page([("insert", None, '{"id":"2"}')]), lane, work) is not None
