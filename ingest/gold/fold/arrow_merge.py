"""Merge the outcomes of a batch into a mirror's rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.gold.fold.arrow_values import one_zero
from ingest.gold.fold.arrow_work import Cleared, MirrorWork


@dataclass(frozen=True, slots=True)
class Effort:
    """A merge as its metrics describe it, next to the rows that it inserted, updated and deleted."""

    sources: int = 0  # outcomes
    cleared: int = 0  # deleted rows without an outcome
    copied: int = 0  # rows that were written again as they were
    filled: int = 0  # updated rows without an outcome, which new statements have changed
    fold_ms: int = 0  # until the outcomes were known
    scan_ms: int = 0  # until they were matched with the mirror's rows
    write_ms: int = 0


@dataclass(frozen=True, slots=True)
class Merged:
    """A mirror's rows after the batch: kept, replacing, and new ones."""

    stays: pa.Table
    put: pa.Table
    new: pa.Table
    inserted: int
    updated: int
    deleted: int
    sources: int = 0  # the outcomes
    cleared: int = 0  # deleted rows without an outcome
    filled: int = 0  # rows that stay, and that new statements have changed: among the updated ones


def merge(mirror_rows: pa.Table, source: pa.Table, work: MirrorWork, cleared: Cleared) -> Merged:
    """Merge outcomes into a mirror's rows; a row that would not change is not touched.

    Args:
        mirror_rows: the rows, as new statements leave them.
        source: the outcomes.
        work: the mirror.
        cleared: the tables of which only rows with an outcome stay.
    """
    rows, others = pairs(mirror_rows.select(work.key_columns), source.select(work.key_columns))
    gone = source["%gone"].combine_chunks()
    going = gone.take(others)
    unmatched = pc.invert(pc.or_(_mask(source.num_rows, others), gone))
    new = source.filter(unmatched).select(mirror_rows.schema.names)
    stay = pc.invert(going)
    row_numbers, of = rows.filter(stay), others.filter(stay)
    matched, put = mirror_rows.take(row_numbers), _put(mirror_rows, source, row_numbers, of)
    # a mask of the matched rows that differ
    none = pa.chunked_array([pa.array([False] * matched.num_rows, pa.bool_())])
    differs = reduce(
        pc.or_, (_differs(matched[name], put[name]) for name in matched.schema.names), none
    ).combine_chunks()
    changed = row_numbers
    if differs.true_count < len(differs):  # else a copy would be the same
        put, changed = put.filter(differs), row_numbers.filter(differs)
    leaves = _mask(mirror_rows.num_rows, pa.concat_arrays([rows.filter(going), changed]))
    if cleared:
        unmatched_rows = pc.invert(_mask(mirror_rows.num_rows, rows))
        leaves = pc.or_(leaves, pc.and_(unmatched_rows, work.of_shards(mirror_rows, cleared)))
    stays = mirror_rows.filter(pc.invert(leaves))
    deleted = mirror_rows.num_rows - stays.num_rows - put.num_rows
    without_outcome = deleted - going.true_count
    filled = _filled(stays, work)
    updated = put.num_rows + filled
    return Merged(stays, put, new, new.num_rows, updated, deleted, source.num_rows, without_outcome, filled)


def _filled(rows: pa.Table, work: MirrorWork) -> int:
    """How many rows have got a value by new statements."""
    columns = [rows[fill.column] for fill in work.fills]
    if not columns:
        return 0
    return pc.sum(reduce(pc.or_, map(pc.is_valid, columns))).as_py() or 0


def pairs(mirror_rows: pa.Table, source: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Row numbers of equal keys in both tables."""
    mirror_rows, source, names = comparable(mirror_rows), comparable(source), mirror_rows.schema.names
    if len(names) == 1:
        matches = pc.index_in(mirror_rows[names[0]], value_set=source[names[0]].combine_chunks())
        matches = pa.chunked_array(
            matches.chunks if isinstance(matches, pa.ChunkedArray) else [matches], pa.int32()
        )
        places = pc.indices_nonzero(pc.is_valid(matches)).cast(pa.int64())
        return places, matches.drop_null().combine_chunks().cast(pa.int64())
    left = mirror_rows.append_column("%t", pa.array(np.arange(mirror_rows.num_rows)))
    right = source.append_column("%s", pa.array(np.arange(source.num_rows)))
    both = left.join(right, names, join_type="inner")
    return both["%t"].combine_chunks(), both["%s"].combine_chunks()


def _mask(length: int, places: pa.Array) -> pa.BooleanArray:
    """A mask that is True at some row numbers."""
    mask = np.zeros(length, np.bool_)
    mask[places.to_numpy(zero_copy_only=False)] = True
    return pa.array(mask)


def _put(mirror_rows: pa.Table, source: pa.Table, row_numbers: pa.Array, of: pa.Array) -> pa.Table:
    """Outcomes as rows; a column that an outcome does not carry keeps the existing row's value."""
    columns, carried = [], set(source.schema.names)
    for name in mirror_rows.schema.names:
        value = source[name].take(of)
        if "%has " + name in carried:
            value = pc.if_else(source["%has " + name].take(of), value, mirror_rows[name].take(row_numbers))
        columns.append(value)
    return pa.Table.from_arrays(columns, schema=mirror_rows.schema)


def comparable(keys: pa.Table) -> pa.Table:
    """Keys of which equal ones have the same bits: -0.0 is 0.0, and NaN is one key."""
    return pa.table(list(map(_comparable, keys.columns)), names=keys.schema.names)


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_floating(column.type):
        return bits(one_zero(column.combine_chunks()))
    return column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column


def bits(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray:
    """A column in which values that differ are unequal: 0.0 and -0.0 differ, and NaN equals NaN."""
    if not pa.types.is_floating(column.type):
        return column
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return pa.chunked_array([whole.view(f"int{column.type.bit_width}")])


def numbered(rows: pa.Table) -> np.ndarray:
    """A number for each row, equal for rows with equal cells; 0.0 and -0.0 differ."""
    numbers = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        codes = pc.dictionary_encode(bits(column).combine_chunks(), null_encoding="encode").indices
        column_codes = codes.to_numpy(zero_copy_only=False).astype(np.int64)
        _, numbers = np.unique(numbers * (len(column_codes) + 1) + column_codes, return_inverse=True)
    return numbers


def _differs(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    left, right = bits(left), bits(right)
    unequal = pc.not_equal(left, right)
    return pc.coalesce(unequal, pc.xor(pc.is_null(left), pc.is_null(right)))
