"""The dialects of an Oracle source in the model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from tests.formats.one_history import bare_avro, debezium
from tests.formats.one_history.test_one_history import NONE
from tests.formats.one_history.writing import Dialect
from tests.model import oracle_types
from tests.model.oracle import OracleWriter
from tests.model.postgres_captures import PostgresCapture


class OracleCapture(PostgresCapture):
    """A dialect of Oracle."""

    KINDS: ClassVar[Mapping[str, Any]] = {
        "types": oracle_types.DECLARED,
        "keys": oracle_types.KEYS,
        "writer": OracleWriter,
    }


CAPTURES = tuple(
    OracleCapture(f"{dialect.format} of Oracle", dialect, NONE, keyed=True, typed=True)
    for dialect in (
        Dialect("dts-avro", partial(bare_avro.dts, born=True)),
        Dialect("debezium", partial(debezium.wrapped, cell=debezium.connect, schema=True)),
    )
)
