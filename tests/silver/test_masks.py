"""Masked columns: what silver keeps of their values is the mask alone, in every dialect, and folds as the values would."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ingest import formats
from ingest.change import Change, Image, Message, Op, TableId
from ingest.config import Pipeline, TableRule
from ingest.config.masks import Masks, keyed
from ingest.ddl import effects
from ingest.fold import Placed, fold
from ingest.order import Order
from tests.formats.one_history.history import KEYS, TYPES, history
from tests.formats.one_history.test_one_history import DIALECTS, LOSSES, NONE
from tests.silver.test_lift import lifting
from tests.silver.test_lift import rows as silver

SECRET = "a secret of sixteen characters or more"
MASK = {
    "id": "hmac",
    "REMARK": "tokenize",
    "letter": "last4",
    "seal": "null",
    **dict.fromkeys(["pieces", "worth", "sent_on", "slot", "packed_at", "seen_at", "de*"], "hmac"),
}
TABLE = TableId("depot", None, "parcels")


def masks_of(dialect: str, mask: Mapping[str, str] = MASK) -> Masks:
    """Masks of the history's table, with the keys and types that the dialect needs."""
    hints = DIALECTS[dialect].hints.tables(TABLE)
    rule = TableRule(keys=hints.keys, columns=hints.columns, mask=mask)
    return Masks(Pipeline("p", Path("/p.yaml"), "/none", (), (rule,), SECRET))


def placed(dialect: str, messages: Sequence[Message], masks: Masks | None) -> list[Placed]:
    """The row changes of messages in their order, masked or not."""
    found = DIALECTS[dialect]
    parse = formats.load(found.format).parse
    changes = [(at, list(parse(message, found.hints))) for at, message in enumerate(messages)]
    return [
        Placed(Order(0, one.phase, one.sequence, one.half, (1, 0, 0, at), one.row), one)
        for at, mine in changes
        for one in (masks.changes(mine) if masks else mine)
        if one.op not in (Op.DDL, Op.HEARTBEAT, Op.BEGIN, Op.COMMIT, Op.CONTROL)
    ]


def rows(dialect: str, messages: Sequence[Message], masks: Masks | None) -> dict[Any, Image]:
    """The rows that changes leave."""
    keys = {name: "string" if masks and name in MASK else TYPES[name] for name in KEYS}
    return {key: row.values for key, row in fold(placed(dialect, messages, masks), KEYS, keys).items()}


@pytest.mark.parametrize("name", DIALECTS)
def test_masked_changes_fold_as_their_values_would(name: str) -> None:
    """A changed key, a column left out, or a number spelt in two ways would leave another row."""
    masks, loss = masks_of(name), LOSSES.get(name, NONE)
    table = masks.of(TABLE)
    assert table is not None
    for seed in range(8):
        truth = history(seed, truncates=not loss.truncates)
        sent = DIALECTS[name].write(truth)
        types = {
            column: one for each in placed(name, sent, None) for column, one in each.change.types.items()
        }
        wanted = [table.image(row, types) for row in rows(name, sent, None).values()]
        found = list(rows(name, sent, masks).values())
        assert sorted(map(text, wanted)) == sorted(map(text, found))
        views = {column: loss.views.get(column, str) for column in TYPES}
        true = [
            {column: value if value is None else views[column](value) for column, value in row.items()}
            for row in truth.rows.values()
        ]  # one value has one mask in all dialects
        assert sorted(map(shared, (table.image(row, TYPES) for row in true))) == sorted(map(shared, found))


def text(row: Image | None, names: Sequence[str] = ()) -> str:
    """A row as text, or some of its columns."""
    return json.dumps(row and ([row.get(name) for name in names] or row), sort_keys=True)


def shared(row: Image | None) -> str:
    """What is the same in all dialects, whatever they send of the form of a value."""
    return text(row, [name for name in MASK if name in TYPES])


@pytest.mark.parametrize("name", DIALECTS)
def test_no_value_of_a_masked_column_leaves_the_decoder(name: str) -> None:
    """A broken message's complaint, or a statement's default, would show what the row's mask hides."""
    truth = history(3)
    sent = DIALECTS[name].write(truth)
    how = lifting(name, TableRule(mask={"*": "hmac"}))
    how = replace(how, pipeline=replace(how.pipeline, mask_secret=SECRET))
    broken = [Message(damaged, one.key, one.topic) for one in sent for damaged in wounds(one.value or b"")]
    found, _ = silver(how, [*sent, *broken], 50)
    assert {"change", "reject"} <= {row["kind"] for row in found}
    kept = json.dumps([{**row, "event_time": None} for row in found], ensure_ascii=False, default=str)
    images = [image for event in truth.events for image in (event.before, event.after) if image]
    values = {value for image in images for value in image.values() if value and len(value) >= 7}
    assert len(values) > 20
    assert [] == [value for value in values if value in kept]


def wounds(value: bytes) -> Iterator[bytes]:
    """A message cut off, with a sign that belongs nowhere, and with letters where numbers were."""
    yield value[: len(value) * 2 // 3]
    yield value.replace(b",", b",,", 1)
    yield re.sub(rb"(?<=[0-9])[0-9](?=[0-9])", b"x", value)


def test_statements_keep_names_and_types_and_no_values() -> None:
    """A default is a value that rows get; a comment or a check may quote one."""
    mask = {"email": "hmac", "phone": "last4", "born": "null"}
    how = lifting("dts-canal", TableRule(mask=mask, keys=("id",)))
    masks = Masks(replace(how.pipeline, mask_secret=SECRET))
    how = replace(how, pipeline=replace(how.pipeline, mask_secret=SECRET))
    sql = (
        "ALTER TABLE shop.customers /* ask jo@example.org */ ADD email VARCHAR(80) DEFAULT 'jo@example.org', "
        "ADD phone BIGINT DEFAULT 4930123456, ADD born DATE NOT NULL DEFAULT '1970-02-03', "
        "ADD rank DECIMAL(10,2) DEFAULT 12.50, MODIFY email VARCHAR(20), ADD CHECK (rank < 98765)"
    )
    message = {"data": None, "database": "shop", "es": 1, "id": 1, "isDdl": True, "sql": sql, "table": "customers", "ts": 1, "type": "ALTER"}  # fmt: skip
    [row], _ = silver(how, [Message(json.dumps(message).encode())], 1)
    payload = json.loads(str(row["payload"]))
    assert payload["statement"] == (
        "ALTER TABLE shop.customers ADD email VARCHAR(80) DEFAULT ***, ADD phone BIGINT DEFAULT ***, "
        "ADD born DATE NOT NULL DEFAULT ***, ADD rank DECIMAL(10,2) DEFAULT ***, MODIFY email VARCHAR(20), "
        "ADD CHECK (rank < ***)"
    )
    table = masks.of(TableId("shop", None, "customers"))
    assert table is not None
    image = table.image({"email": "jo@example.org", "phone": "4930123456", "born": "1970-02-03"}, {})
    assert image is not None
    found = {(one["action"], one["column"]): one for one in payload["parsed"]["effects"]}
    for column, kind in {"email": "string", "phone": "string", "born": "date"}.items():
        effect = found["add_column", column]
        assert (image[column], kind, None) == (effect["default"], effect["type"], effect["declared"])
    assert ("12.50", "decimal(10,2)") == tuple(
        found["add_column", "rank"][one] for one in ("default", "type")
    )
    # what the source makes of the values is not known
    assert "computed" == found["modify_column", "email"]["note"]
    for charset, note in {"latin1": "computed", "utf8mb4": None}.items():
        text = f"ALTER TABLE shop.customers CONVERT TO CHARACTER SET {charset}"
        [effect] = masks.statement(effects(text, "mysql", "shop")).effects
        assert note == effect.note  # a mask shows nothing of the characters that are lost


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE customers ADD email VARCHAR(80) COMMENT 'as jo@example.org'",
        "ALTER TABLE customers ADD rank INT COMMENT '1 is jo@example.org'",
        "ALTER TABLE customers CHANGE nick email VARCHAR(80) DEFAULT 'jo@example.org' COMMENT 'jo@example.org'",
        (
            "CREATE TABLE customers (id INT PRIMARY KEY COMMENT '1 is jo@example.org', email VARCHAR(80) "
            "COMMENT 'jo@example.org', CHECK (email <> 'jo@example.org')) COMMENT = 'jo@example.org'"
        ),
    ],
)
def test_comments_of_a_masked_table_are_left_out(sql: str) -> None:
    """They would be in the ledger, in `decisions`, and in the schema of the mirror."""
    how = lifting("dts-canal", TableRule(match="shop.customers", mask={"email": "hmac"}, keys=("id",)))
    how = replace(how, pipeline=replace(how.pipeline, mask_secret=SECRET))
    message = {"data": None, "database": "shop", "es": 1, "id": 1, "isDdl": True, "sql": sql, "table": "customers", "ts": 1, "type": "ALTER"}  # fmt: skip
    [row], _ = silver(how, [Message(json.dumps(message).encode())], 1)
    assert "effects" in str(row["payload"])
    assert "jo@example" not in str(row["payload"])


def test_a_statement_may_write_names_in_capitals() -> None:
    """Oracle reads `customers` as CUSTOMERS, so the masks of the table would not hold for the default."""
    how = lifting("dts-shareplex", TableRule(match="shop.customers", mask={"email": "hmac"}, keys=("id",)))
    masks = Masks(replace(how.pipeline, mask_secret=SECRET))
    sql = "ALTER TABLE customers ADD email VARCHAR2(80) DEFAULT 'jo@example.org'"
    found = effects(sql, "oracle", "shop")
    assert "CUSTOMERS" == found.effects[0].table.table
    assert "jo@example" not in repr(masks.statement(found).effects)


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE customers 'jo@example.org' \"it's jo@example.org\"",
        "'jo@example.org' \"jo@example.org'\"",
        "ALTER TABLE customers TRUNCATE PARTITION FOR ('jo@example.org')",
        "CREATE TABLE customers (id INT PRIMARY KEY, email VARCHAR(9) DEFAULT 'jo@example.org')",
        "CREATE VIEW v AS SELECT * FROM customers WHERE email = 'jo@example.org'",
        "ALTER TABLE customers ADD email VARCHAR(9) DEFAULT 'jo@example.org",
    ],
)
@pytest.mark.parametrize("name", ["dts-canal", "oms-default", "maxwell", "debezium", "dataworks"])
def test_the_ledger_quotes_no_statement(sql: str, name: str) -> None:
    """A statement that cannot be read would be quoted as the reason why."""
    dialect = DIALECTS[name]
    truth = history(1)
    event = next(event for seed in range(99) for event in history(seed).events if event.sql)
    sent = dialect.write(replace(truth, events=[event._replace(sql=sql)]))
    how = lifting(name, TableRule(mask={"email": "hmac"}))
    how = replace(how, pipeline=replace(how.pipeline, mask_secret=SECRET))
    found, _ = silver(how, sent, 50)
    assert ["ddl"] == [row["kind"] for row in found]
    assert "jo@example.org" not in json.dumps(found, default=str)


def test_a_key_that_a_mask_blurs_is_refused() -> None:
    """Two customers with the same last digits would be one row."""
    how = lifting("dts-canal", TableRule(mask={"id": "last4"}))
    message = {"data": [{"id": "4930123456"}], "database": "d", "es": 1, "id": 1, "isDdl": False, "mysqlType": {"id": "bigint"}, "old": None, "pkNames": ["id"], "sql": "", "table": "t", "ts": 1, "type": "INSERT"}  # fmt: skip
    [row], [line] = silver(how, [Message(json.dumps(message).encode())], 1)
    assert "reject" == row["kind"]
    assert "masked-key" == json.loads(str(row["payload"]))["reason"]
    assert "4930123456" not in str(row)
    assert (1, 1) == (line.messages, line.rejected)


def test_no_two_images_are_one_object() -> None:
    """Values are masked where they are: an image that a parser keeps for two messages would be masked twice."""
    for name, dialect in DIALECTS.items():
        parse = formats.load(dialect.format).parse
        sent = [one for seed in range(3) for one in dialect.write(history(seed))] * 2
        found = [change for one in sent for change in parse(one, dialect.hints)]
        images = [image for one in found for image in (one.before, one.after) if image is not None]
        assert len(images) == len(set(map(id, images))), name


def test_many_messages_are_masked_as_each_by_itself() -> None:
    """Changes of several tables, types and forms share a page; an image that is before and after is masked once."""
    rules = (
        TableRule(match="d.t", mask={"a": "hmac", "c": "last4"}),
        TableRule(match="d.u", mask={"b": "tokenize"}),
    )
    masks, again = (Masks(Pipeline("p", Path("/p.yaml"), "/none", (), rules, SECRET)) for _ in range(2))

    def changes() -> list[Change]:
        tables = [TableId("d", None, name) for name in "tuv"]
        types = [{"a": "decimal", "b": "string"}, {}, {"a": "string", "c": "string"}]
        found = [
            Change(op=Op.UPDATE, table=TableId(*tables[at % 3]), types=dict(types[at % 4 % 3]), before={"c": f"{at}-{at}-{at}"} if at % 5 else None,
                   after={"a": f"{at % 7}.0", "b": None if at % 3 else f"Text {at}"})
            for at in range(60)
        ]  # fmt: skip
        image = {"a": "1", "b": "2"}
        return [*found, Change(op=Op.UPDATE, table=tables[0], before=image, after=image)]

    wanted = [one for change in changes() for one in again.changes([change])]
    assert wanted == list(masks.changes(changes()))
    assert {"a": keyed(SECRET.encode())("1").hex(), "b": "2"} == wanted[-1].after  # not the mask of a mask
    plain = changes()
    assert all(
        one.after != old.after for one, old in zip(wanted, plain, strict=True) if old.table.table == "t"
    )
    assert all(one == old for one, old in zip(wanted, plain, strict=True) if old.table.table == "v")


def test_a_refused_key_among_others_refuses_its_message_alone() -> None:
    """The messages of its page would be lost, or masked twice."""
    how = lifting("dts-canal", TableRule(match="d.t", mask={"email": "hmac", "card": "last4"}))
    how = replace(how, pipeline=replace(how.pipeline, mask_secret=SECRET))
    sent = [
        {"data": [{"id": str(at), "email": "jo@example.org", "card": "4930123456"}], "database": "d", "es": 1, "id": at, "isDdl": False, "mysqlType": {"id": "bigint", "email": "text", "card": "text"}, "old": None, "pkNames": ["card" if at == 2 else "id"], "sql": "", "table": "t", "ts": 1, "type": "INSERT"}
        for at in (1, 2, 3)
    ]  # fmt: skip
    found, _ = silver(how, [Message(json.dumps(one).encode()) for one in sent], 50)
    kept = [json.loads(str(row["after"])) for row in found if row["kind"] == "change"]
    secret = keyed(SECRET.encode())
    assert [(at, secret("jo@example.org").hex(), "***3456") for at in "13"] == [
        tuple(row.values()) for row in kept
    ]
    assert ["masked-key"] == [
        json.loads(str(row["payload"]))["reason"] for row in found if row["kind"] == "reject"
    ]
