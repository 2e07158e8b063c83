"""Messages in Debezium's JSON, made from Python values."""

from __future__ import annotations

import json

import pytest

from ingest import formats
from ingest.change import Hints, Message, Options, TableHints
from ingest.errors import Undecodable

FAMILY = ("debezium", "oms-debezium", "oms-debezium-flatten", "oms-debezium-smt")
SOURCE = {
    "connector": "mysql",
    "ts_ms": 1714564800250,
    "snapshot": "false",
    "db": "shop",
    "table": "orders",
    "file": "binlog.000009",
    "pos": 100,
    "row": 0,
}
POSTGRES = {"connector": "postgresql", "db": "crm", "schema": "sales", "table": "leads", "lsn": 50}


def decode(value, key=None, name="debezium", options=None, columns=None, keys=(), headers=(), topic="t"):
    """The changes of one message given as Python values."""
    data = None if value is None else json.dumps(value).encode()
    hints = Hints(options or Options(), lambda _table: TableHints(keys, columns or {}))
    message = Message(data, None if key is None else json.dumps(key).encode(), topic, headers)
    return list(formats.load(name).parse(message, hints))


def one(*args, **kwargs):
    """The only change of one message."""
    (change,) = decode(*args, **kwargs)
    return change


def code(*args, **kwargs):
    """The reason for which a message is rejected."""
    with pytest.raises(Undecodable) as error:
        decode(*args, **kwargs)
    return error.value.code


def row(op="c", source=SOURCE, **members):
    """A wrapped row."""
    return {"op": op, "source": source, "before": None, "after": {"id": 1}, **members}
