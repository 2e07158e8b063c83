"""Compare every cell of a source's table with its mirror's, as values that mean the same on both sides."""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from ingest.tables.lake import Lake
from tests.e2e.typed_tables import Table

Row = Mapping[str, Any]
TEXT_TYPES = "interval json jsonb inet int4range bit".split()  # of PostgreSQL: compared as its own text
_SPAN = re.compile(r"(-?[0-9.]+)([YMDHS])|T")


@dataclass
class Compared:
    """One table: how many rows each side has and which cells differ."""

    table: str
    source_rows: int = 0
    mirror_rows: int = 0
    differing: int = 0
    declared: int = 0  # cells whose difference the capture is known for
    examples: list[str] = field(default_factory=list)

    def add(self, count: int, example: str) -> None:
        """Some cells more that differ, with one of them to show."""
        self.differing += count
        if len(self.examples) < 20:
            self.examples.append(example)


def compare(table: Table, source: list[Row], mirror: list[Row], *, nulls: bool = True) -> Compared:
    """Rows by their key, or by their content where there is none; a missing row counts with all its cells.

    Without ``nulls`` the capture sends a column's default in the place of NULL, and this is only counted.
    """
    found = Compared(table.name, len(source), len(mirror))
    if not table.keys:
        _compare_bags(found, table, source, mirror)
        return found
    left, right = (_by_key(table, rows, found) for rows in (source, mirror))
    for key in left.keys() | right.keys():
        if key not in left or key not in right:
            where = "mirror" if key in left else "source"
            found.add(len(table.columns), f"{key}: not in the {where}")
            continue
        for name, value in left[key].items():
            other = right[key].get(name, "absent")
            if value is None and other is not None and not nulls and other == table.columns[name].default:
                found.declared += 1
            elif value != other:
                found.add(1, f"{key} {name}: {value!r:.100} but {other!r:.100}")
    return found


def _by_key(table: Table, rows: list[Row], found: Compared) -> dict[tuple[object, ...], Row]:
    made: dict[tuple[object, ...], Row] = {}
    for row in rows:
        key = tuple(row[name] for name in table.keys)
        if key in made:
            found.add(len(table.columns), f"{key}: twice")
        made[key] = row
    return made


def _compare_bags(found: Compared, table: Table, source: list[Row], mirror: list[Row]) -> None:
    left, right = (
        Counter(tuple(row[name] for name in table.columns) for row in rows) for rows in (source, mirror)
    )
    for row in left.keys() | right.keys():
        count = abs(left[row] - right[row])
        if count:
            found.add(count * len(table.columns), f"{row}: {left[row]} times, but {right[row]}")


# --- the two sides ---------------------------------------------------------------------------------


def read_as_text(connection: Any) -> None:
    """Have psycopg give some types as the server writes them."""
    from psycopg.types.string import TextLoader

    for name in TEXT_TYPES:
        connection.adapters.register_loader(name, TextLoader)


def source_rows(connection: Any, table: Table, quote: str) -> list[Row]:
    """``SELECT *``; a FLOAT as the double that it is, for MariaDB prints six digits of it."""
    with connection.cursor() as cursor:
        cells = [
            f"{quote}{name}{quote} * 1e0" if one.type == "FLOAT" else f"{quote}{name}{quote}"
            for name, one in table.columns.items()
        ]
        cursor.execute(f"SELECT * FROM {quote}{table.name}{quote}")
        assert list(table.columns) == [column[0] for column in cursor.description]
        cursor.execute(f"SELECT {', '.join(cells)} FROM {quote}{table.name}{quote}")
        rows = cursor.fetchall()
    connection.commit()
    types = {name: one.type.split()[0] for name, one in table.columns.items()}
    return [
        {name: _comparable(value, types[name]) for name, value in zip(table.columns, row, strict=True)}
        for row in rows
    ]


def mirror_rows(lake: Lake, name: str, table: Table) -> list[Row]:
    """The mirror, its instants as microseconds since 1970 in UTC."""
    frame = lake.read(name)
    kinds = dict(frame.dtypes)
    cells = [
        f"unix_micros(`{name}`) AS `{name}`"
        if kind == "timestamp"
        else f"CAST(`{name}` AS STRING) AS `{name}`"
        if kind in ("timestamp_ntz", "date")
        else f"`{name}`"
        for name, kind in kinds.items()
    ]
    types = {name: one.type.split()[0] for name, one in table.columns.items()}
    return [
        {
            name: _mirrored(value, kinds[name], types.get(name, ""))
            for name, value in row.asDict().items()
            if name in types
        }
        for row in frame.selectExpr(*cells).collect()
    ]


def surplus(lake: Lake, name: str, table: Table) -> Iterable[str]:
    """Columns of the mirror that the source does not have."""
    return lake.read(name).columns - table.columns.keys()


def _comparable(value: Any, declared: str) -> Any:
    """What the client library gave, in the form in which both sides are compared."""
    match value:
        case float() if declared == "real":
            return repr(struct.unpack("f", struct.pack("f", value))[0])
        case float():
            return repr(value)  # NaN equals itself, and -0.0 is not 0.0
        case bytes() if declared.startswith("BIT"):
            return int.from_bytes(value)
        case bytes():
            return value.hex()
        case datetime() if value.tzinfo or declared == "TIMESTAMP(6)":
            return value.replace(tzinfo=None).isoformat(" ", "microseconds")
        case datetime() | time():
            return _unpadded(str(value))
        case date() | UUID():
            return str(value)
        case timedelta():
            return _unpadded(_clock(value))
        case list():
            return json.dumps(value)
        case str() if declared == "interval":
            return _parts(value)
        case str() if declared.startswith("bit("):
            return int(value, 2)
    return value


def _mirrored(value: Any, kind: str, declared: str) -> Any:
    """What Spark gave, likewise."""
    match value:
        case float():
            return repr(value)
        case bytes() | bytearray():
            return value.hex()
        case int() if kind == "timestamp":
            return (datetime(1970, 1, 1) + timedelta(microseconds=value)).isoformat(" ", "microseconds")  # noqa: DTZ001
        case str() if kind == "timestamp_ntz" or declared.lower().startswith("time"):
            return _unpadded(value)
        case str() if declared.startswith("DECIMAL(65") or declared == "numeric":
            return Decimal(value)  # beyond Delta's 38 digits it is text
        case str() if declared == "interval":
            return _parts(value)
        case str() if declared.endswith("[]"):
            return json.dumps(json.loads(value))
    return value


def _unpadded(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _clock(value: timedelta) -> str:
    micros = value // timedelta(microseconds=1)
    seconds, rest = divmod(abs(micros), 10**6)
    sign = "-" if micros < 0 else ""
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{rest:06d}"


def _parts(text: str) -> tuple[tuple[str, Decimal], ...]:
    """An ISO 8601 interval's parts that are not zero; M before the T are months."""
    found, times = [], ""
    for number, unit in _SPAN.findall(text):
        if not unit:
            times = "T"
        elif Decimal(number):
            found.append((times + unit, Decimal(number)))
    return tuple(found)
