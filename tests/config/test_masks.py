"""Masks: their keys in the pipeline file, and what they make of a value."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

import pytest

from ingest.change import NO_TABLE, Change, Op, TableId
from ingest.config import Pipeline, TableRule
from ingest.config.lint import warnings
from ingest.config.masks import (
    Masks,
    _Remembered,
    canonical,
    detail_without_values,
    fingerprint,
    keyed,
    last4,
    tokenized,
    without_literals,
)
from ingest.config.read import check
from ingest.config.secrets import struck
from ingest.values.remembered import KEPT, LONG
from tests.config.pipeline_file import GOOD, loaded, problems

SECRET = "0123456789abcdef0123456789abcdef"
MASKED = "tables:\n  - match: shop.customers\n    mask: {email: hmac, '*phone*': last4, name: null, iban: tokenize}\n"


def test_masks_are_read_with_their_secret(tmp_path: Path) -> None:
    """The word null, which YAML reads as nothing, is a mask like the others."""
    (tmp_path / "secret").write_text(SECRET + "\n")
    pipeline = loaded(tmp_path, MASKED + "mask_secret: ${file:secret}\n")
    [rule] = pipeline.tables
    assert {"email": "hmac", "*phone*": "last4", "name": "null", "iban": "tokenize"} == rule.mask
    assert SECRET == pipeline.mask_secret
    assert SECRET not in repr(pipeline)
    assert "see ***" == struck(f"see {SECRET}", pipeline)
    assert ["hmac", "last4", ""] == [rule.mask_of(name) for name in ("EMail", "WorkPhone", "emails")]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            MASKED,
            "10:12 email: hmac needs a secret; write at the top mask_secret: ${file:/path}, whose file `openssl rand -hex 32` can make",
        ),
        ("tables:\n  - mask: {email: hash}\n", "9:5 email: 'hash' is not a mask; there are hmac, tokenize, last4, null or keep"),
        ("tables:\n  - mask: [email]\n", "9:5 a map of columns to masks belongs here, such as {email: hmac}, not a list"),
        (
            "tables:\n  - {keys: [phone], mask: {'p*': last4}}\n",
            "9:21 the column phone is part of the key, and last4 gives different values one text; write hmac for it",
        ),
        (
            "mask_secret: short\n",
            "8:1 the secret is shorter than 16 characters and could be guessed; make one with `openssl rand -hex 32`",
        ),
    ],
)  # fmt: skip
def test_a_mask_that_cannot_hold_is_refused(tmp_path: Path, text: str, found: str) -> None:
    """Values would be kept as they are, or two rows become one."""
    assert [found] == problems(tmp_path, GOOD + text)


def test_a_mask_without_a_secret_needs_none(tmp_path: Path) -> None:
    """Otherwise a pipeline that only drops values would need a secret."""
    assert "" == loaded(tmp_path, "tables:\n  - mask: {email: null, phone: last4}\n").mask_secret


def test_masked_columns_are_texts_to_the_mirror() -> None:
    """An HMAC does not fit BIGINT: each cell would be a reject."""
    rule = TableRule(columns={"a": "int64", "b": "int64", "c": "int64"}, mask={"a": "hmac", "b": "null"})
    assert {"a": "string", "b": "int64", "c": "int64"} == rule.declared


def test_what_stays_is_named_before_a_pattern_for_the_rest() -> None:
    """New columns would come as they are if each masked one had to be listed."""
    rule = TableRule(mask={"id": "keep", "*": "null"})
    assert ("", "null") == (rule.mask_of("ID"), rule.mask_of("what comes later"))
    assert {"id": "int64"} == TableRule(columns={"id": "int64"}, mask=rule.mask).declared


def test_copies_of_a_table_have_its_masks() -> None:
    """gh-ost copies each row into a table of its own, whose rows are in the stream, too."""
    rules = (TableRule("shop.customers", mask={"email": "null"}), TableRule("shop.*"))
    masks = Masks(Pipeline("p", Path("/p"), "/l", (), rules))
    for name in ("customers", "_customers_gho", "_customers_new", "_customers_old", "_customers_del"):
        table = masks.of(TableId("shop", None, name))
        assert table is not None, name
        assert {"email": None} == table.image({"email": "jo@example.org"}, {})
    assert [None, None] == [masks.of(TableId("shop", None, name)) for name in ("orders", "_orders_gho")]


# --- values ---------------------------------------------------------------------------------------


def test_hmac_is_the_one_that_others_compute() -> None:
    """Another system could not join with the mirror."""
    pipeline = Pipeline("p", Path("/p"), "/l", (), (TableRule(mask={"*": "hmac"}),), SECRET)
    table = Masks(pipeline).of(NO_TABLE)
    assert table is not None
    wanted = hmac.new(SECRET.encode(), b"jo@example.org", hashlib.sha256).hexdigest()
    assert {"email": wanted, "none": None} == table.image({"email": "jo@example.org", "none": None}, {})


@pytest.mark.parametrize(
    ("logical", "texts"),
    [
        ("int64", ["5", "05", "+5"]),
        ("decimal(10,2)", ["5", "5.0", "5.00", "0.5e1", "50e-1"]),
        ("decimal", ["-0", "0.00", "0"]),
        ("float64", ["100", "1e2", "100.0"]),
        ("datetime(6)", ["2024-01-31", "2024-01-31 00:00:00", "2024-01-31 00:00:00.000"]),
        ("timestamp", ["2024-01-31T01:00:00.50+01:00", "2024-01-31T00:00:00.5Z"]),
        ("time(3)", ["12:00:00", "12:00:00.000"]),
    ],
)
def test_a_value_is_masked_alike_in_all_its_spellings(logical: str, texts: list[str]) -> None:
    """A key of DECIMAL(10,2) in one table would not find its row in another one with BIGINT."""
    assert 1 == len({canonical(text, logical) for text in texts})


@pytest.mark.parametrize(("text", "logical"), [("1e9999", "decimal"), ("x", "int64"), ("?", "timestamp"), ("007", "string"), ("9" * 3000, "decimal")])  # fmt: skip
def test_what_has_no_other_spelling_stays(text: str, logical: str) -> None:
    """A mask may not fail on a value that does not fit its type, nor write out a number without end."""
    assert text == canonical(text, logical)


def test_the_last_four_show_only_of_texts_that_are_longer() -> None:
    """A PIN of five digits would be read off its mask."""
    assert ["***3456", "***", "***", "***"] == list(map(last4, ["4930123456", "1234567", "12345", ""]))


@pytest.mark.parametrize("length", [0, 1, 31, 63, 64, 65, 200])
def test_the_keyed_hash_is_hmac(length: int) -> None:
    """Another hash after an update, and no masked key would join with its older rows."""
    key, text = bytes(range(length)), "jo@example.org \ud800 王"
    expected = hmac.digest(key, text.encode("utf-8", "surrogatepass"), "sha256")
    assert expected == keyed(key)(text)


def test_a_token_has_the_form_of_its_value() -> None:
    """A check of the form would fail downstream, or a letter outside ASCII stay as it is."""
    token = tokenized(keyed(b"k"), "DE89 3704-0044 müller 王小明")
    assert len("DE89 3704-0044 müller 王小明") == len(token)
    assert token.isascii()
    assert [" ", "-", " ", " "] == [sign for sign in token if not sign.isalnum()]
    assert token[:2].isupper()
    assert token[2:4].isdigit()
    assert (
        token
        == tokenized(keyed(b"k"), "DE89 3704-0044 müller 王小明")
        != tokenized(keyed(b"l"), "DE89 3704-0044 müller 王小明")
    )


def test_secrets_have_names_that_do_not_give_them_away() -> None:
    """The lake notes with which secret its values are masked."""
    assert fingerprint("a" * 32) != fingerprint("b" * 32)
    assert 16 == len(fingerprint("a" * 32))


# --- texts ----------------------------------------------------------------------------------------


def test_complaints_quote_no_values() -> None:
    """More users see a reject than may see its table."""
    assert "member *** is missing" == detail_without_values("missing-member", "member 'x@y' is missing")
    hidden = "(not shown, because the pipeline file masks columns or seals bronze)"
    assert hidden == detail_without_values("bad-avro", "the Avro datum cannot be read: x@y")
    assert f"ValueError {hidden}" == detail_without_values("decoder-error", "ValueError: x@y")


@pytest.mark.parametrize(
    ("dialect", "statement", "shown"),
    [
        ("mysql", 'CREATE TABLE t (a ENUM("x","y"), b INT(11) -- note\n)', "CREATE TABLE t (a ENUM(***,***), b INT(11) )"),
        ("oracle", "ALTER TABLE t ADD (a VARCHAR2(10 CHAR) DEFAULT q'[it's]')", "ALTER TABLE t ADD (a VARCHAR2(10 CHAR) DEFAULT ***)"),
        ("postgres", "CREATE TABLE t AS SELECT $$x$$, 'y' FROM \"User\" WHERE id = 4711", 'CREATE TABLE t AS SELECT ***, *** FROM "User" WHERE id = ***'),
        ("mysql", "ALTER TABLE t PARTITION BY RANGE (y) (PARTITION p VALUES LESS THAN (19991231))", "ALTER TABLE t PARTITION BY RANGE (y) (PARTITION p VALUES LESS THAN (***))"),
        ("mysql", "ALTER TABLE t COMMENT 'has no end", "(not shown, because the pipeline file masks columns or seals bronze)"),
    ],
)  # fmt: skip
def test_statements_are_shown_without_values(dialect: str, statement: str, shown: str) -> None:
    """A statement contains what a user typed, secrets too."""
    assert shown == without_literals(Change(op=Op.DDL, ddl=statement, dialect=dialect)).ddl


def test_long_texts_are_masked_and_not_remembered() -> None:
    """Fifty thousand texts of a megabyte, remembered for the next row, would fill the memory of a task."""
    long, short = "x" * (LONG + 1), "y"
    known = _Remembered(last4)
    assert (last4(long), last4(short)) == (known[long], known[short])
    assert [short] == list(known)
    for number in range(KEPT // LONG + 2):
        known[f"{number:09}".ljust(LONG)]
    assert sum(map(len, known)) <= KEPT


@pytest.mark.parametrize(
    ("masks", "warned"),
    [
        ("{'*mail*': last4, email: hmac}", ["the mask email: hmac never applies: *mail*: last4 comes before it, and the first that fits counts"]),
        ("{'*': hmac, 'P*': 'null', id: keep}", [
            "the mask P*: null never applies: *: hmac comes before it, and the first that fits counts",
            "the mask id: keep never applies: *: hmac comes before it, and the first that fits counts",
        ]),
        ("{email: hmac, '*mail*': last4, '*': keep}", []),
        ("{'*mail*': hmac, email: hmac}", []),
        ("{'[ab]*': hmac, 'a*': last4, 'x?': last4, '?x': 'null'}", []),
    ],
)  # fmt: skip
def test_a_mask_that_an_earlier_pattern_hides_is_warned_of(
    tmp_path: Path, masks: str, warned: list[str]
) -> None:
    """The column would be masked in another way than the line that names it says."""
    path = tmp_path / "p.yaml"
    path.write_text(GOOD + f"tables:\n  - match: shop.customers\n    mask: {masks}\nmask_secret: {SECRET}\n")
    found = [text for text in warnings(check(path)) if "the mask" in text]
    assert warned == [text.partition(" ")[2] for text in found]
    assert all(f"{path}:10:" in text for text in found)
