"""Values of erased rows found in what the product wrote about them, in every form that it writes."""

from __future__ import annotations

import html
import json
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.erase.quotes import Quotes
from ingest.erase.remove import _observes_values, _quotes_rows
from ingest.erase.search import search

KEY = 'O"Hara\\ZQXKEY-77'
TOLD = "ZQX about 1961, she told us on the telephone last May"
VALUES = (KEY, TOLD, "it's & <b>", "張三豐住在北京", "🚚\ttab\nline", "a\\b\\\\c", "x" * 5000)


def forms(text: str) -> dict[str, str]:
    """A value as reports, lists of failing keys, commands and pages have it."""
    key = json.dumps({"id": text}, ensure_ascii=False)
    return {
        "plain": f"the row {text} is wrong",
        "a key": f"1 key, such as {key}, was inserted again",
        "a list of keys": json.dumps([key], ensure_ascii=False),
        "in small digits": json.dumps([json.dumps({"id": text})]),
        "three times": json.dumps({"alert": json.dumps([json.dumps({"id": text})])}),
        "a command": f"see `ingest explain p.yaml shop.pay {shlex.quote(text)}`",
        "Python's": f"holds {text!r}, the changes give nothing",
        "a page": f"<td>{html.escape(text)}</td>",
        "a list on a page": html.escape(json.dumps([key])),
    }


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
@pytest.mark.parametrize("as_key", [True, False])
def test_a_value_is_found_in_every_form(value: str, as_key: bool) -> None:
    """A form that is not known keeps the value in a lake whose certificate says that it is gone."""
    quotes = Quotes([value] if as_key else [], [] if as_key else [value])
    other = Quotes([], [f"not {value}"[::-1]])
    for name, text in forms(value).items():
        assert quotes.found_in(text), name
        assert not other.found_in(text), name


@pytest.mark.parametrize("value", [TOLD, VALUES[3], "abcdefgh " + "漢字𝄞" * 30, 'say "well" and more of it'])
def test_the_beginning_of_a_value_is_found_before_a_mark_of_cutting(value: str) -> None:
    """Thirty-eight characters of a cell that did not fit stay in the checks."""
    quotes = Quotes([], [value])
    for length in (6, 20, 38):
        shown = f"not a date, for example {value[:length]}"
        assert not quotes.is_cut_in(shown) or len(value) <= length
        if len(value) > length:
            assert quotes.found_in(f"{shown}…")
            assert quotes.found_in(json.dumps([f"{shown}…"]))
            assert not quotes.found_in("for example another…")
    assert quotes.found_in("." * (2_000 - 9) + value[:9])


def test_numbers_and_times_are_found_by_their_value() -> None:
    """The maximum of a column is the salary of one row, with a zero more or commas between its digits."""
    quotes = Quotes(["17"], ["918273645", "7.50", "2024-02-29T15:59:59Z"])
    for text in (
        "observed 918273645.0",
        "up to 918,273,645",
        "9.18273645e8",
        "at 2024-02-29 15:59:59",
        "x 7.5000 y",
    ):
        assert quotes.found_in(text), text
    for text in ("918273644", "117 rows", "2024-02-29 15:59:58"):
        assert not quotes.found_in(text), text
    assert quotes.is_number_of(918273645.0)
    assert quotes.is_number_of(17.0)
    assert not quotes.is_number_of(918273644.0)
    observing = ("expect_column_max_to_be_between", "expect_column_mean_to_be_between")
    assert all(map(_observes_values, observing))
    counting = (
        "rows",
        "cell_rejects",
        "expect_column_values_to_be_unique",
        "expect_table_row_count_to_equal",
    )
    assert not any(map(_observes_values, counting))


def test_short_values_are_words_and_no_parts_of_words() -> None:
    """Each sentence has an x or a 1 in it, and a verdict whose words are gone explains nothing."""
    quotes = Quotes([], ["ZQX", "x", "12", "李"])
    for text in ("the text ZQX is no number", "'x' is no number", 'found "12"', "李四"):
        assert quotes.found_in(text), text
    for text in ("ZQXA and AZQX", "an x and a box", "12 rows of 120"):
        assert not quotes.found_in(text), text


@pytest.mark.parametrize(
    ("subject", "message", "quoted"),
    [
        ("shop.pay", "key 17 is there twice", True),
        (None, 'shop.pay: 1 key, such as {"id":"17"}, was inserted again', True),
        (None, "17 batches are behind", False),
        (None, f"shop.other: a change of {KEY} was refused", True),
        ("shop.other", "key 17 is there twice", False),
    ],
)
def test_messages_of_runs_are_looked_at_whatever_their_subject(
    subject: str | None, message: str, quoted: bool
) -> None:
    """The row of the run itself repeats what it says of a mirror, and has no mirror for its subject."""
    row = {"subject": subject, "message": message, "command": None}
    assert quoted is _quotes_rows(row, "shop.pay", Quotes(["17", KEY], []))


@pytest.mark.parametrize("name", list(forms("")))
@pytest.mark.parametrize("value", VALUES[:5], ids=range(5))
def test_the_search_finds_what_a_lake_may_hold(tmp_path: Path, value: str, name: str) -> None:
    """An auditor who searches for a name signs what a list of keys within a list still has."""
    text = forms(value)[name]
    pq.write_table(pa.table({"failing": [None, text], "n": [1, 2]}), tmp_path / "part.parquet")
    (tmp_path / "page.html").write_text(text, "utf-8")
    hits = search(tmp_path, ["is not there", value]).hits
    assert {("page.html", 2), ("part.parquet", 2)} == {(hit.file, hit.number) for hit in hits}


def test_the_search_finds_the_beginning_of_a_text(tmp_path: Path) -> None:
    """What was cut is a part of the row, too."""
    text = f"1 cell does not fit: not a date, for example {TOLD[:37]}…"
    pq.write_table(pa.table({"detail": [text, None, "another…"]}), tmp_path / "part.parquet")
    (tmp_path / "checks.json").write_text(json.dumps(json.dumps({"detail": text})), "utf-8")
    hits = search(tmp_path, [TOLD]).hits
    assert {("checks.json", 1), ("part.parquet", 1)} == {(hit.file, hit.values) for hit in hits}
    assert [] == search(tmp_path, ["ZQX above and beyond all that"]).hits
