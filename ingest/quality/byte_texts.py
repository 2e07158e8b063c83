"""Columns of bytes whose texts are all hexadecimal although they are read as base64.

Base64 accepts every text of hexadecimal digits whose length is a multiple of four, and makes other bytes of it. Which of
the two a source sends no message says (AWS DMS, Tencent's Canal JSON and GoldenGate write both, by a setting); the texts do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ingest.quality.catalogue import FAILING_KEYS, Metric
from ingest.quality.ordered_lane import OrderedLane, ordered_lanes
from ingest.quality.subjects import CheckedMirror
from ingest.quality.ways_out import decoded_again
from ingest.tables import duck
from ingest.tables.lake import Lake

_HEX = "^(0[xX])?(([0-9A-F][0-9A-F])+|([0-9a-f][0-9a-f])+)$"  # a writer uses one letter case
_MOST = 50  # texts that are weighed
_PROOF = 14  # bits: of 16,000 texts that really are base64, one looks so


def of_mirrors(lake: Lake, chosen: Iterable[CheckedMirror], since: int) -> Iterator[Metric]:
    """Count the columns of each mirror whose new texts prove that they are hexadecimal; nothing without such columns."""
    for ordered in ordered_lanes(lake, chosen, since):
        names = [column.name for column in ordered.subject.decided.sent if column.type == "binary"]
        if names and (ordered.source.options.binary or ordered.source.about.bytes_as) == "base64":
            yield _of_lane(ordered, names)


def _of_lane(ordered: OrderedLane, names: Iterable[str]) -> Metric:
    wrong = [name for name in names if _is_hex(ordered, name)]
    detail = ""
    if wrong:
        detail = (
            f"the bytes of {', '.join(wrong[:FAILING_KEYS])} in {ordered.lane.table} are read as base64, but every text is "
            f"hexadecimal, so the mirror has other bytes or NULL: write `binary: hex` under the options of source "
            f"{ordered.source.name}, then run {decoded_again(ordered.lake)}"
        )
    return ordered.metric("bytes_misread", len(wrong), detail)


def _is_hex(lane: OrderedLane, name: str) -> bool:
    """True if every text of a column is hexadecimal, and so many digits cannot be so by chance.

    The new batches decide where they have texts enough, else the whole history.
    """
    new = _texts(lane, name, f"batch > {lane.since}")
    if not new:
        return False
    return _bits(new) >= _PROOF or (lane.since > 0 and _bits(_texts(lane, name, "true")) >= _PROOF)


def _texts(lane: OrderedLane, name: str, batches: str) -> list[str]:
    """Some of a column's texts; none if one of them is not hexadecimal."""
    texts = lane.lake.ask(
        f"""WITH sent AS (SELECT DISTINCT {duck.member("after", name)} AS text FROM {{changes.change}}
            WHERE op <> 'truncate' AND {batches} AND {lane.where}),
        judged AS (SELECT text, regexp_matches(text, {duck.text(_HEX)}) AS fits FROM sent WHERE text <> '')
        SELECT text, fits FROM judged ORDER BY fits, text LIMIT {_MOST}"""
    )
    return [row["text"] for row in texts] if texts and texts[0]["fits"] else []


def _bits(texts: Iterable[str]) -> int:
    """How unlikely it is that these texts are base64: each digit is one of 16 among 64 signs, ``0x`` two certain signs.

    The sign ``A`` proves nothing, for it means zeros, of which bytes are full.
    """
    bits = 0
    for text in texts:
        mark = re.match("0[xX]", text) is not None
        digits = text[2:] if mark else text
        bits += 12 * mark + 2 * (len(digits) - digits.count("A"))
    return bits
