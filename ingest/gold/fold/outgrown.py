"""Integer columns of a mirror that new values have outgrown: many sources send neither UNSIGNED nor the digits of a DECIMAL."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ingest import types
from ingest.config import TableRule
from ingest.gold.fold.arrow_files import pages
from ingest.gold.fold.arrow_work import LaneWork
from ingest.gold.fold.unfit import Reject
from ingest.ledgers.mirrors import Mirror
from ingest.tables.image_columns import texts_of

_NUMBER, _FRACTION = r"\A-?[0-9]{1,38}\z", r"\.[0-9]*[1-9]"


def narrow(mirror: Mirror, rule: TableRule, rejects: Iterable[Reject]) -> list[str]:
    """The integer columns that may become wider, if a reject is of one of them: all, as a row without a key hides others.

    A type from the pipeline file is binding, and a frozen mirror keeps its columns: there such cells stay rejected.
    """
    if rule.freezes or rule.ignores:
        return []
    integers = [
        column.name
        for column in mirror.sent
        if types.family(column.type) == "integer" and column.name not in rule.columns
    ]
    named = {name for reject in rejects for name in ([reject.column] if reject.column else mirror.keys)}
    return [] if named.isdisjoint(integers) else integers


def widened(
    mirror: Mirror, columns: Collection[str], files: Sequence[str], lanes: Sequence[LaneWork]
) -> Mirror | None:
    """The mirror with columns as wide as its new changes need; None if they are.

    Args:
        mirror: with its columns as decided.
        columns: those that may be too narrow.
        files: the files of ``changes`` with its new changes.
        lanes: their lanes.
    """
    wider = {column.name: column.type for column in mirror.columns if column.name in columns}
    has_image = ds.field("after").is_valid()
    for lane in lanes:
        for page in pages(files, lane, ("after", "types"), (ds.field("batch") >= lane.first) & has_image):
            wider = _of_page(wider, page)
    widened_columns = tuple(
        replace(column, type=wider.get(column.name, column.type)) for column in mirror.columns
    )
    grows = [column.delta for column in widened_columns] != [column.delta for column in mirror.columns]
    return replace(mirror, columns=widened_columns) if grows else None


def _of_page(wider: dict[str, str], page: pa.RecordBatch) -> dict[str, str]:
    """The types that hold the integers of some changes, too; DECIMAL cells with a fraction need a decimal."""
    sent, kinds = (texts_of(page[side], list(wider)) for side in ("after", "types"))
    of_page = {}
    for (name, logical), texts, kind in zip(wider.items(), sent, kinds, strict=True):
        fraction = pc.and_(pc.equal(kind, "decimal"), pc.match_substring_regex(texts, _FRACTION))
        if logical == "decimal" or pc.any(fraction).as_py():
            of_page[name] = "decimal"
            continue
        numbers = texts.filter(pc.match_substring_regex(texts, _NUMBER)).cast(pa.decimal128(38, 0))
        ends = (types.integer(int(end.as_py() or 0)) for end in pc.min_max(numbers).values())
        of_page[name] = reduce(types.common, ends, logical)
    return of_page
