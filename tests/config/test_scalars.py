"""The small texts of a pipeline file mean what they say."""

from __future__ import annotations

import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.change import TableId
from ingest.config import scalars
from ingest.config.lint import covers
from ingest.config.patterns import matches


@pytest.mark.parametrize(
    ("text", "expected"),
    [("60s", 60), ("5m", 300), ("2h", 7200), ("1d", 86400), ("500ms", 0.5), ("1.5 h", 5400), ("7", 7)],
)
def test_durations(text: str, expected: float) -> None:
    """A minute taken for a second reads half-written files."""
    assert expected == scalars.duration(text)


@pytest.mark.parametrize("text", ["1" + "0" * 400 + "d", "9" * 100_000 + "s", "36501d"])
def test_a_duration_is_bounded(text: str) -> None:
    """An infinite pause never ends, and a date that far away does not exist."""
    with pytest.raises(ValueError, match="is longer than 36500d") as caught:
        scalars.duration(text)
    assert len(str(caught.value)) < 100
    assert 36_500 * 86_400 == scalars.duration("36500d")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("64MiB", 64 * 2**20), ("10 MB", 10**7), ("1GiB", 2**30), ("1.5kb", 1500), ("512", 512), ("9B", 9)],
)
def test_sizes(text: str, expected: int) -> None:
    """A limit that is off by a factor of a thousand does not limit."""
    assert expected == scalars.size(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("0.1%", 0.001), ("100 %", 1.0), ("5", 5.0), ("0.02", 0.02), ("0", 0.0)]
)
def test_thresholds(text: str, expected: float) -> None:
    """A percentage taken for a count never fails a check."""
    assert expected == scalars.ratio(text)


@pytest.mark.parametrize(
    "reader", [scalars.duration, scalars.size, scalars.ratio, scalars.count, scalars.boolean]
)
@pytest.mark.parametrize("text", ["", " ", "-1", "1e5s", "nan%", "Infinity", "5 mi", "\u0665s", "a/b", "1,5"])
def test_nonsense_is_refused_in_words(reader: object, text: str) -> None:
    """A value that is guessed at is a surprise later."""
    with pytest.raises(ValueError, match=r"is n|at least"):
        reader(text)  # type: ignore[operator]


@pytest.mark.parametrize("text", ["", ".", "..", "a b", "a/b", "\u00e9", "x" * 201])
def test_what_is_no_name(text: str) -> None:
    """Names become folders, lock names and transaction identifiers."""
    with pytest.raises(ValueError, match="is not a name"):
        scalars.name(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b", TableId("a", None, "b")),
        ("a.s.b", TableId("a", "s", "b")),
        ("`a.b`.c", TableId("a.b", None, "c")),
        ("a.`s`.`b.c`", TableId("a", "s", "b.c")),
        ("a.b c ", TableId("a", None, "b c ")),
    ],
)
def test_table_names(text: str, expected: TableId) -> None:
    """A name split in the wrong place is another table."""
    assert expected == scalars.table(text)


@pytest.mark.parametrize("text", ["a", "", ".", "a.", ".b", "a..b", "a.b.c.d", "`a.b", "a`x`.b", "`a`b.c"])
def test_what_is_no_table_name(text: str) -> None:
    """Half a name would match nothing, for ever."""
    with pytest.raises(ValueError, match="is not a table"):
        scalars.table(text)


@given(
    st.text(alphabet="ab*.", max_size=6),
    st.text(alphabet="ab*.", max_size=6),
    st.text(alphabet="ab.", max_size=6),
)
def test_a_rule_that_never_applies_is_proved(wide: str, narrow: str, name: str) -> None:
    """A warning without proof would hint at a fault that does not exist."""
    parts = name.split(".")
    if len(parts) in (2, 3) and all(parts) and covers(wide, narrow):
        table = TableId(parts[0], parts[1] if len(parts) == 3 else None, parts[-1])
        assert matches(wide, table) or not matches(narrow, table)


def test_near_words_are_found_whatever_their_case_and_dashes() -> None:
    """People write names from memory."""
    assert "; did you mean on_schema_change?" == scalars.nearest(
        "On-Schema-Changes", ["on_schema_change", "keys"]
    )
    assert "" == scalars.nearest("zzz", ["on_schema_change", "keys"])


def test_the_arguments_of_expectations_are_those_of_the_installed_release() -> None:
    """An argument that the library takes must not be refused; read from its source, for importing it takes seconds."""
    for kind, file in scalars._expectations().items():
        module = importlib.import_module(f"great_expectations.expectations.core.{kind}")
        (found,) = (
            one
            for name, one in vars(module).items()
            if name.lower() == kind.replace("_", "") and isinstance(one, type)
        )
        assert set() == vars(found)["__fields__"].keys() - scalars._OF_ALL - set(
            scalars._arguments(file) or ()
        ), kind


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "jdbc:oceanbase:oracle://db:2881/APP?password=hunter2-x",
            "OceanBase in its Oracle mode cannot be read",
        ),
        ("oceanbase:oracle://db:2881/APP", "OceanBase in its Oracle mode cannot be read"),
        ("jdbc:oceanbase://db:2881/app", "write OceanBase's address as mysql://host:2881"),
        ("jdbc:mysql://db:3306/app", "write the address without `jdbc:`"),
        ("jdbc:sqlserver://db:1433;databaseName=app;password=hunter2-x", "write the address without `jdbc:`"),
        ("db2://oceanbase:50000", "not the URL of a database that can be read"),
    ],
)
def test_an_address_of_another_form_says_what_to_write(text: str, said: str) -> None:
    """Addresses are copied from the settings of other tools."""
    with pytest.raises(ValueError, match=said) as caught:
        scalars.database(text)
    assert "hunter2" not in str(caught.value)
