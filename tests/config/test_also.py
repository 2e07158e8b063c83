"""Further mirrors in the pipeline file: what they take over from their entry, and what is refused where."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.change import TableId
from ingest.config import load
from ingest.errors import ConfigError

HEAD = "pipeline: p\nlake: ./lake\nsources:\n  - {name: s, path: ./in/*.jsonl, format: dts-canal}\ntables:\n"
ENTRY = """\
  - match: shop.orders
    keys: [id]
    columns: {price: "decimal(10,2)", old: exclude}
    mask: {email: last4}
"""
ORDERS = TableId("shop", None, "orders")


def write(folder: Path, text: str) -> Path:
    """A pipeline file with these entries."""
    file = folder / "x.yaml"
    file.write_text(HEAD + text, "utf-8")
    return file


def faults(folder: Path, text: str) -> list[str]:
    """What is wrong with a file, each with line and column."""
    with pytest.raises(ConfigError) as caught:
        load(write(folder, text))
    return [one.removeprefix(f"{folder / 'x.yaml'}:") for one in caught.value.problems]


def test_a_further_mirror_has_the_tables_key_types_and_masks(tmp_path: Path) -> None:
    """Otherwise one message would be read in two ways, or a masked value be judged as if it were there."""
    more = "    also:\n      - {into: eu.orders, where: price > 1, columns: {'*': exclude, price: include, n: {constant: 1}}}\n"
    pipeline = load(write(tmp_path, ENTRY + more))
    first, further = (view.rule(ORDERS) for view in pipeline.views)
    assert (("id",), {"price": "decimal(10,2)"}, {"email": "last4"}) == (
        further.keys,
        further.columns,
        further.mask,
    )
    assert (("old",), ("*",)) == (first.without, further.without)
    assert [False, True] == [first.leaves_out(name) for name in ("price", "old")]
    assert [False, True] == [further.leaves_out(name) for name in ("price", "old")]
    assert further.into_place.endswith("x.yaml:11:10")
    other = pipeline.views[1].rule(TableId("shop", None, "items"))
    assert (True, False) == (other.exclude, pipeline.rule(TableId("shop", None, "items")).exclude)


BAD = {
    "      - {into: eu.orders, mask: {email: null}}\n": ["11:27 belongs to the entry, not to one of its mirrors: values are masked"],
    "      - {into: eu.orders, keys: [id]}\n": ["11:27 belongs to the entry, not to one of its mirrors: its keys: hold"],
    "      - {into: eu.orders, also: []}\n": ["11:27 belongs to the entry"],
    "      - {into: eu.orders, columns: {price: int32}}\n": ["11:37 a type says how messages are read"],
    "      - {into: eu.orders, columns: {id: exclude}}\n": ["11:9 columns: leaves out 'id', which is a column of the key"],
    "      - {into: eu.orders, where: email = 'a'}\n": ["11:9 where: needs the column 'email', of which mask:"],
    "      - {into: eu.orders, colums: {}}\n": ["11:27 the key 'colums' is unknown here; did you mean columns"],
    "      - {where: price > 1}\n": ["11:9 the key 'into' is missing"],
    "      - {into: 'eu.{1}'}\n": ["11:9 into: {1} is not a group of match:, which has 0"],
    "      - {into: eu.orders}\n      - {into: '{database}.orders'}\n      - {into: eu.orders}\n": [
        "12:10 the mirror shop.orders is filled by line 6 already", "13:10 the mirror eu.orders is filled by line 11 already",
    ],
    "      - {into: shop.b}\n  - match: shop.b\n": ["12:5 the mirror shop.b is filled by line 11 already"],
}  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_what_cannot_hold_is_refused_with_its_place(tmp_path: Path, text: str) -> None:
    """Otherwise a rule would be ignored silently, or two rules would write into one mirror."""
    found = faults(tmp_path, ENTRY + "    also:\n" + text)
    assert len(BAD[text]) == len(found), found
    for wanted, actual in zip(BAD[text], found, strict=True):
        assert actual.startswith(wanted), actual


def test_a_table_that_is_left_out_has_no_further_mirror(tmp_path: Path) -> None:
    """Otherwise its further mirrors would wait for changes that silver does not keep."""
    [found] = faults(tmp_path, "  - {match: shop.a, exclude: true, also: [{into: eu.a}]}\n")
    assert found.startswith("6:36 exclude: leaves these tables out")


def test_entries_may_still_share_their_first_mirror(tmp_path: Path) -> None:
    """Otherwise a file that merges tables would be refused since there are further mirrors."""
    assert load(write(tmp_path, "  - {match: a.t, into: all.t}\n  - {match: b.t, into: all.t}\n")).tables
