"""Conditions judged on rows, by the values that gold has and by the texts that the check of cells has."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from ingest.config import conditions as written
from ingest.config.model import MadeColumn
from ingest.gold.fold.arrow_values import arrow_type, values
from ingest.ledgers import conditions
from ingest.ledgers.mirrors import Column

TEXTS = {
    "boolean": ("true", "false"),
    "int8": ("-128", "5"),
    "uint64": ("18446744073709551615", "0"),
    "decimal(20,3)": ("-1.5", "12345678901234567.001", "1e3"),
    "float64": ("1.5", "-0.0"),
    "date": ("2024-02-29", "1999-12-31"),
    "datetime": ("2024-02-29 12:00:00.123456789", "1999-12-31 00:00:00"),
    "timestamp": ("2024-02-29T12:00:00.1234567+08:00", "1999-12-31T00:00:00Z"),
    "string": ("", "a", "ä'b"),
    "binary": ("YWJj", ""),
}
ASKED = {
    "boolean": "NOT c", "int8": "c > 0", "uint64": "c > 9223372036854775807", "decimal(20,3)": "c >= 12345678901234567.001",
    "float64": "c > 1", "date": "c > DATE '2024-01-01'", "datetime": "c = TIMESTAMP '2024-02-29 12:00:00.123456'",
    "timestamp": "c = TIMESTAMPTZ '2024-02-29 04:00:00.123456+00'", "string": "c = 'ä''b' OR length(c) = 0", "binary": "c = 'abc'",
}  # fmt: skip


@pytest.mark.parametrize("logical", TEXTS)
def test_texts_and_values_give_one_answer(logical: str) -> None:
    """The check of cells would call right mirrors wrong, or the other way round."""
    texts = [*TEXTS[logical], None]
    cut = [text[:26] if logical == "datetime" and text else text for text in texts]
    cut = [text.replace("4567+", "456+") if logical == "timestamp" and text else text for text in cut]
    cells, unfit = values(pa.array(cut, pa.string()), logical)
    assert unfit is None
    assert arrow_type(logical) == cells.type
    by_value = conditions.met(ASKED[logical], {"c": cells}.__getitem__, len(texts)).to_pylist()
    delta = {"datetime": "TIMESTAMP_NTZ"}.get(logical) or _delta(logical)
    assert "" == conditions.refused(ASKED[logical], [delta])
    assert by_value == conditions.met_by_texts(ASKED[logical], [[text] for text in texts], [delta])
    assert by_value[-1] is False, "NULL is not true"
    assert True in by_value
    assert False in by_value[:-1]


def _delta(logical: str) -> str:
    from ingest import types

    return types.delta(logical)


def test_a_condition_that_fails_on_a_row_is_no_answer() -> None:
    """A row on which the condition fails would be left out silently."""
    where = written.condition("CAST(c AS INT) > 1")
    assert "" == conditions.refused(where, ["STRING"])
    with pytest.raises(conditions.ConditionError, match="Could not convert"):
        conditions.met(where, {"c": pa.array(["1", "x"])}.__getitem__, 2)


def test_types_that_cannot_be_compared_are_refused_before_any_row() -> None:
    """Otherwise the first row would stop the mirror later."""
    assert "VARCHAR" in conditions.refused("c > 1", ["STRING"])
    assert "" == conditions.refused("c > 1", ["DECIMAL(38,10)"])


def test_no_rows_are_asked_nothing() -> None:
    """A condition on no rows gives no rows."""
    assert [] == conditions.met("c > 1", {"c": pa.array([], pa.int64())}.__getitem__, 0).to_pylist()
    assert [] == conditions.met_by_texts("c > 1", [], ["BIGINT"])
    assert [True] == conditions.met("c > 1", {"c": pa.array([Decimal("1.5")])}.__getitem__, 1).to_pylist()
    assert [True] == conditions.met(
        "c > DATE '2024-01-01'", {"c": pa.array([dt.date(2024, 5, 1)])}.__getitem__, 1
    ).to_pylist()


def test_rules_of_no_rows_are_followed() -> None:
    """A batch of a statement alone has none, and would start Spark."""
    none = pa.array([], pa.int64())
    gone, made = conditions.shaped(
        "a > 1", {"b": ("a + 1", "int64")}, lambda _: none, pa.array([], pa.bool_())
    )
    assert (pa.bool_(), 0, 0) == (gone.type, len(gone), len(made["b"]))


@pytest.mark.parametrize(
    ("logical", "text", "computed"),
    [
        ("datetime", "2024-02-29 12:00:00.50", "2024-02-29 12:00:00.5"),
        ("timestamp", "2024-02-29T12:00:00.1200+08:00", "2024-02-29T04:00:00.12Z"),
        ("timestamp", "2024-02-29T12:00:00Z", "2024-02-29T12:00:00Z"),
        ("date", "2024-02-29", "2024-02-29"),
        ("decimal(10,2)", "1.5", "1.50"),
        ("float64", "Infinity", "Infinity"),
        ("boolean", "true", "true"),
        ("binary", "YWJj", "YWJj"),
        ("int64", None, None),
    ],
)
def test_a_computed_cell_is_written_as_all_others(
    logical: str, text: str | None, computed: str | None
) -> None:
    """`explain` would show another text of a cell than the mirror's, as if the two differed."""
    column = Column("b", "b", logical, made=MadeColumn("compute", written.condition("c")))
    assert computed == conditions.value_by_row(column, {"c": text}, {"c": logical})
