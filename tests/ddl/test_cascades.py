"""Whose logs lack what a foreign key does to rows: only these statements need a decision."""

import json

import pytest

from ingest import ddl
from ingest.change import Hints, Message, Op
from ingest.formats import load

SQL = "ALTER TABLE child ADD FOREIGN KEY (id) REFERENCES parent (id) ON DELETE CASCADE"
CANAL = {"database": "shop", "table": "child", "isDdl": True, "type": "ALTER", "sql": SQL, "es": 1, "ts": 1}


def oms(kind: str) -> dict[str, object]:
    meta = {"dbType": kind, "db": "shop", "table_name": "child", "timestamp": "1", "ddlType": "ALTER_TABLE"}
    return {"recordType": "DDL", "allMetaData": meta, "prevStruct": None, "postStruct": {"ddl": SQL}}


def streamx(kind: str) -> dict[str, object]:
    source = {"dbType": kind, "dbName": "shop", "tableName": "child", "table": "child"}
    payload = {
        "op": "ALTER",
        "ddl": {"text": SQL},
        "timestamp": {"eventTime": 1},
        "sequenceId": "1",
        "scn": "1",
    }
    return {"schema": {"source": source}, "payload": payload, "version": "2.0"}


@pytest.mark.parametrize(
    ("name", "message", "asks"),
    [
        ("canal", CANAL | {"id": 1}, True),
        ("dts-canal", CANAL | {"id": 1}, True),
        ("drs-json", CANAL | {"id": 1}, True),
        ("oms-canal", CANAL, True),
        ("ticdc-canal", CANAL | {"id": 0, "_tidb": {"commitTs": 1}}, False),
        ("obcloud-canal", CANAL | {"id": 1}, False),
        *(("oms-default", oms(kind), True) for kind in ("MYSQL", "")),
        *(("oms-default", oms(kind), False) for kind in ("OB_MYSQL", "OCEANBASE", "OB_ORACLE", "ORACLE")),
        *(("oms-dataworks", streamx(kind), kind == "mysql") for kind in ("mysql", "ob_mysql", "ob_oracle")),
        *(("dataworks", streamx(kind), kind == "MySQL") for kind in ("MySQL", "oceanbase", "postgresql")),
    ],
)
def test_only_a_binary_log_lacks_cascades(name: str, message: dict[str, object], asks: bool) -> None:
    """TiCDC reads TiKV's log and OMS OceanBase's, which have every stored row: a question there is a false alarm."""
    found = load(name).parse(Message(json.dumps(message).encode()), Hints())
    (statement,) = [one for one in found if one.op is Op.DDL]
    effects = [effect.action for effect in ddl.of_change(statement).effects]
    assert ("add_foreign_key" in effects) == asks
