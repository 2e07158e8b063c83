"""Thirteen numbers that break: one table each, one row each, sent bare (not quoted), as some writers send them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

import pyarrow as pa

from benchmarks.contest.ground import PRODUCT, Contestant, Ground
from benchmarks.contest.measure import Failed
from benchmarks.contest.workload import DATABASE, Table


@dataclass(frozen=True, slots=True)
class Cell:
    """A number: what is sent, the column's type, and the product's own type where SQL has none."""

    what: str
    sent: str
    kind: str
    logical: str = ""


_DIGITS = "2250738585072014"
CELLS = (
    Cell(
        "38 digits, 10 of them after the point", "1234567890123456789012345678.0123456789", "DECIMAL(38,10)"
    ),
    Cell("300 digits E-308", f"2.{(_DIGITS * 19)[:299]}E-308", "DOUBLE"),
    Cell("2^63, unsigned", "9223372036854775808", "DECIMAL(20,0)"),
    Cell("2^64 - 1, unsigned", "18446744073709551615", "DECIMAL(20,0)"),
    Cell("39 digits", "123456789012345678901234567890123456789", "STRING", "decimal(39,0)"),
    Cell("zeros after the point", "1.2300", "STRING", "decimal"),
    Cell("1e2", "1e2", "STRING", "decimal"),
    Cell("1E400, a decimal", "1E400", "STRING", "decimal"),
    Cell("1E400, a double: to be refused", "1E400", "DOUBLE"),
    Cell("-0.0", "-0.0", "DOUBLE"),
    Cell("2^53 + 1", "9007199254740993", "BIGINT"),
    Cell("38 nines", "9" * 38, "DECIMAL(38,0)"),
    Cell("18 digits after the point", "0.100000000000000006", "DECIMAL(20,18)"),
)


class Numbers:
    """The cells as a workload: a row of zeros in each table, then the row with the number."""

    def __init__(self) -> None:
        self.tables = [Table(f"cell{n:02d}") for n in range(1, len(CELLS) + 1)]

    def base(self) -> Iterator[str]:
        """One row for each table."""
        for n, table in enumerate(self.tables, 1):
            yield message(table.name, n, "INIT", 0, "0")

    def batch(self) -> dict[str, str]:
        """By table, the message with its number."""
        sent = enumerate(zip(self.tables, CELLS, strict=True), len(CELLS) + 1)
        return {table.name: message(table.name, n, "INSERT", 1, cell.sent) for n, (table, cell) in sent}

    def expected(self) -> dict[str, pa.Table]:
        """The row of zeros, in each column's type."""
        return {
            table.name: pa.table({"id": pa.array([0]), "value": pa.array(["0"]).cast(_arrow(cell.kind))})
            for table, cell in zip(self.tables, CELLS, strict=True)
        }


def message(table: str, serial: int, kind: str, key: int, number: str) -> str:
    """A message whose number is not quoted."""
    head = {"database": DATABASE, "es": 1_714_521_600_000 + serial, "id": serial, "isDdl": False, "old": None}
    rest = {"pkNames": ["id"], "sql": "", "table": table, "ts": 1_714_521_600_000 + serial, "type": kind}
    types = {"mysqlType": {"id": "bigint", "value": "decimal"}}
    text = json.dumps({**head, **types, **rest})
    return f'{{"data": [{{"id": {key}, "value": {number}}}], {text[1:]}\n'


def _arrow(kind: str) -> pa.DataType:
    if kind.startswith("DECIMAL"):
        precision, scale = kind[8:-1].split(",")
        return pa.decimal128(int(precision), int(scale))
    return {"BIGINT": pa.int64(), "STRING": pa.string(), "DOUBLE": pa.float64()}[kind]


def is_right(cell: Cell, found: str | None, refused: str | None) -> bool:
    """True if the mirror's text is the number that was sent, or it was refused with its text kept."""
    if cell.kind == "DOUBLE" and float(cell.sent) == float("inf"):
        return found is None and refused == cell.sent
    if found is None:
        return False
    if cell.kind == "DOUBLE":
        return str(float(found)) == str(float(cell.sent))
    try:
        number = Decimal(found)
    except InvalidOperation:
        return False
    zeros = (
        cell.kind != "STRING"
        or "e" in cell.sent.lower()
        or number.as_tuple() == Decimal(cell.sent).as_tuple()
    )
    return number == Decimal(cell.sent) and zeros


def fidelity(folder: Path, chosen: tuple[Contestant, ...]) -> tuple[str, int]:
    """The table of all contestants' wrong cells, and how many of them are the product's."""
    numbers = Numbers()
    columns = {f"cell{n:02d}": {"id": "BIGINT", "value": cell.kind} for n, cell in enumerate(CELLS, 1)}
    logical = {f"cell{n:02d}": {"value": cell.logical} for n, cell in enumerate(CELLS, 1) if cell.logical}
    ground = Ground(folder, numbers, columns, {"logical": logical})
    ground.prepare(chosen)
    files = {name: ground.batch(name, [line]) for name, line in numbers.batch().items()}
    found: dict[str, dict[str, dict[str, str | None]]] = {}
    for one in chosen:
        try:
            places = ground.run_cells(one, files)
        except Failed as error:
            found[one.name] = {name: {"error": str(error)[-200:]} for name in files}
            continue
        found[one.name] = ground.read_cells(one, places)
    return _table(found), len(_wrong(found.get(PRODUCT.name, {})))


def _wrong(found: dict[str, dict[str, str | None]]) -> list[int]:
    return [
        n
        for n, cell in enumerate(CELLS, 1)
        if not is_right(cell, found[f"cell{n:02d}"].get("found"), found[f"cell{n:02d}"].get("refused"))
    ]


def _table(found: dict[str, dict[str, dict[str, str | None]]]) -> str:
    lines = ["| contestant | wrong cells of 13 | which, and what the table holds |", "|---|---|---|"]
    for name, cells in found.items():
        wrong = _wrong(cells)
        listed = "; ".join(f"{CELLS[n - 1].what}: {_shown(cells[f'cell{n:02d}'])}" for n in wrong)
        lines.append(f"| {name} | {len(wrong)} | {listed} |")
    return "\n".join(lines)


def _shown(cell: dict[str, str | None]) -> str:
    if cell.get("error"):
        return "failed"
    return (cell.get("found") or "NULL")[:48]
