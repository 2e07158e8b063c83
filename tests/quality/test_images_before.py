"""The images before of real batches: what a lost, late or repeated message, a load or a statement makes of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.change import Change, Op, TableId
from ingest.config.entries import QualityRule
from ingest.config.model import MadeColumn, TableRule
from ingest.fold import Placed, Table
from ingest.gold.explain import explain
from ingest.images_before import Chain, ImagesBefore, Mismatch
from ingest.ledgers import decisions
from ingest.ledgers.barriers import Barrier, Barriers
from ingest.ledgers.decisions import ERASE, ERASE_SECRET, Decision
from ingest.order import Order
from ingest.quality import arrow_rows, images_before
from ingest.quality.catalogue import NEVER_SENT
from ingest.store.names import mirror_path
from ingest.tables import duck
from ingest.tables.lake import Lake
from ingest.tables.schemas import CHECKS
from tests.shops import Shops

if TYPE_CHECKING:
    from ingest.quality.images_before import Proof, ProvenLane

ITEM = "shop_1.item"


def shop(folder: Path, dialect: str = "dts-canal", rule: TableRule | None = None) -> Shops:
    """One table, without checks in its runs."""
    return Shops(folder, rule or TableRule(match=ITEM), dialect=dialect)


def say(
    shops: Shops, kind: str, row: dict[str, str | None], old: dict[str, str | None] | None, at: int
) -> Shops:
    """A change with what it says of the row before it."""
    shops.say(1, kind, int(row["id"] or 0), at=at)
    message = json.loads(shops.lines.pop())
    message |= {"data": [row], "old": None if old is None else [old]}
    shops.lines.append(json.dumps(message))
    return shops


def insert(shops: Shops, key: int, text: str, at: int) -> Shops:
    return say(shops, "INSERT", {"id": str(key), "text": text}, None, at)


def update(shops: Shops, key: int, old: str, text: str, at: int) -> Shops:
    return say(shops, "UPDATE", {"id": str(key), "text": text}, {"text": old}, at)


def delete(shops: Shops, key: int, text: str, at: int) -> Shops:
    return say(shops, "DELETE", {"id": str(key), "text": text}, None, at)


def proof(shops: Shops, since: int) -> Proof:
    """What the batches after one prove; those that are not yet landed are one more."""
    if shops.lines:
        assert "done" == shops.run()[0]
    return shops.compared(since)[ITEM].proof


def differing(found: Proof) -> list[tuple[str, str | None, str | None]]:
    """The cells that are not as the changes say."""
    return [(each.column, each.said, each.had) for broken in found.broken for each in broken.differences]


def test_a_chain_that_closes_is_proven(tmp_path: Path) -> None:
    """A right mirror has no complaint, and says how much of it is proven."""
    shops = insert(shop(tmp_path), 1, "a", 10)
    update(shops, 1, "a", "b", 20)
    delete(update(shops, 1, "b", "c", 30), 1, "c", 40)
    found = proof(shops, 0)
    assert (3, 3, []) == (found.compared, found.proven, found.broken)


@pytest.mark.one_of(2, "batches")
@pytest.mark.parametrize("batches", [1, 2])
def test_a_lost_message_is_named_by_the_next_change(tmp_path: Path, batches: int) -> None:
    """Otherwise nothing would ever say that a message is missing."""
    shops = insert(shop(tmp_path), 1, "a", 10)
    if batches == 2:
        assert "done" == shops.run()[0]
    found = proof(update(shops, 1, "b", "c", 30), batches - 1)
    assert [("text", "b", "a")] == differing(found)
    assert found.strong


@pytest.mark.one_of(2, "batches")
@pytest.mark.parametrize("batches", [1, 2])
def test_a_lost_insert_after_a_delete_is_named(tmp_path: Path, batches: int) -> None:
    """The change describes a row that, by the messages, is gone."""
    shops = delete(insert(shop(tmp_path), 1, "a", 10), 1, "a", 20)
    if batches == 2:
        assert [] == sentences(shops, "a change says")
    [said] = sentences(update(shops, 1, "b", "c", 40), "a change says")
    assert "the changes before it give none" in said
    found = proof(shops, 0)
    assert ([("", None, None)], 2, 1) == (differing(found), found.compared, found.proven)


def change(shops: Shops, kind: str, text: str, at: int, old: str | None = None) -> Shops:
    """A change of row 1 as a capture of MySQL writes it, without `old` if it is not given."""
    row: dict[str, str | None] = {"id": "1", "text": text}
    if shops.dialect != "maxwell":
        return say(shops, kind, row, None if old is None else {"text": old}, at)
    message = {
        "database": "shop_1",
        "table": "item",
        "type": kind.lower(),
        "ts": 1714521600 + at,
        "xid": at,
        "data": row,
    }
    shops.lines.append(json.dumps(message if old is None else message | {"old": {"text": old}}))
    shops.number += 1
    return shops


KEYED = TableRule(match=ITEM, keys=("id",))


@pytest.mark.one_of(3, "dialect")
@pytest.mark.parametrize("dialect", ["canal", "maxwell", "dts-canal"])
def test_a_late_update_that_says_nothing_of_its_row(tmp_path: Path, dialect: str) -> None:
    """A position puts it into its place; where arrival decides, the next change that says what the row was names it."""
    shops = change(change(shop(tmp_path, dialect, KEYED), "INSERT", "a", 10), "UPDATE", "c", 30, "b")
    if dialect == "dts-canal":
        assert [("text", "b", "a")] == differing(proof(shops, 0))
    else:
        assert "done" == shops.run()[0]
    assert [] == proof(change(shops, "UPDATE", "b", 20), 1).broken
    is_placed = dialect == "dts-canal"
    rows = shops.rows("mirrors/shop_1/item")
    assert ["c" if is_placed else "b"] == [*rows.values()]
    found = proof(change(shops, "UPDATE", "d", 40, "c"), 2)
    assert ([] if is_placed else [("text", "c", "b")]) == differing(found)


@pytest.mark.one_of(6, "dialect", "batches")
@pytest.mark.parametrize("dialect", ["canal", "maxwell", "dts-canal"])
@pytest.mark.parametrize("batches", [1, 2])
def test_a_late_update_of_a_row_that_was_deleted(tmp_path: Path, dialect: str, batches: int) -> None:
    """The row was there again, and no later change of it came to say so: nothing did, ever."""
    shops = change(change(shop(tmp_path, dialect, KEYED), "INSERT", "a", 10), "DELETE", "a", 30)
    if batches == 2:
        assert [] == sentences(shops, "a change says")
    [said] = sentences(change(shops, "UPDATE", "b", 20 if dialect != "dts-canal" else 40), "a change says")
    assert "the changes before it give none" in said
    found = proof(shops, 0)
    assert [("", None, None)] == differing(found)
    assert (2, 1, dialect == "dts-canal") == (found.compared, found.proven, found.strong)


LOADS = {"maxwell": "BOOTSTRAP-INSERT"}


@pytest.mark.one_of(8, "dialect", "batches")
@pytest.mark.parametrize("inserts", [True, False])
@pytest.mark.parametrize("dialect", ["canal", "maxwell", "dts-canal"])
@pytest.mark.parametrize("batches", [1, 2, 3])
def test_a_late_update_of_a_loaded_row_that_was_deleted(
    tmp_path: Path, dialect: str, batches: int, inserts: bool
) -> None:
    """Where new rows are sent as inserts the update is one of before, or its insert was lost; only inserted rows were judged so."""
    shops = change(shop(tmp_path, dialect, KEYED), LOADS.get(dialect, "INIT"), "a", 10)
    if inserts:
        change(shops, "INSERT", "x", 15)
        shops.lines[-1] = shops.lines[-1].replace('"id": "1"', '"id": "2"')
    if batches == 3:
        assert "done" == shops.run()[0]
    change(shops, "DELETE", "a", 30)
    if batches >= 2:
        assert [] == sentences(shops, "a change says")
    said = sentences(change(shops, "UPDATE", "b", 20 if dialect != "dts-canal" else 40), "a change says")
    assert ["the changes before it give none" in each for each in said] == [True] * inserts
    told = [remark for event in explain(shops.lake, ITEM, ["1"]).events for remark in event.remarks]
    assert inserts == any("the row before does not fit" in remark for remark in told)


def test_each_update_of_a_deleted_row_is_counted(tmp_path: Path) -> None:
    """Two of one key counted as one, so that one change too few was called proven."""
    shops = change(shop(tmp_path, rule=KEYED), "INSERT", "a", 10)
    for at, text, gone in ((20, "b", "a"), (40, "c", "b")):
        change(change(shops, "DELETE", gone, at), "UPDATE", text, at + 10)
    found = proof(shops, 0)
    assert ([("", None, None)] * 2, 4, 2) == (differing(found), found.compared, found.proven)


@pytest.mark.parametrize("old", [None, "b"])
def test_an_update_that_brings_a_deleted_row_into_a_filter(tmp_path: Path, old: str | None) -> None:
    """GoldenGate's FILTER leaves out the insert between: each run failed, and nothing said what to write."""
    shops = change(change(shop(tmp_path, rule=KEYED), "INSERT", "a", 10), "DELETE", "a", 20)
    line = f"`- {{table: {ITEM}, thresholds: {{images_before: 1000000}}}}` under quality:"
    [said] = sentences(change(shops, "UPDATE", "c", 30, old), "a change says")
    assert line in said
    shops.quality = (QualityRule(ITEM, thresholds={"images_before": 1e6}),)
    change(change(shops, "DELETE", "c", 40), "UPDATE", "d", 50, old)
    assert [] == sentences(shops, "a change says")


def test_a_delete_of_a_deleted_row_comes_into_no_filter(tmp_path: Path) -> None:
    """A limit that is not needed would hide lost messages."""
    shops = delete(delete(insert(shop(tmp_path), 1, "a", 10), 1, "a", 20), 1, "b", 30)
    [said] = sentences(shops, "a change says")
    assert "thresholds" not in said


@pytest.mark.one_of(2, "batches")
@pytest.mark.parametrize("batches", [1, 2])
def test_an_upsert_needs_no_row(tmp_path: Path, batches: int) -> None:
    """A sink that writes Canal's messages inserts by what may be an update, and has no other inserts."""
    shops = shop(tmp_path, "canal", KEYED)
    for at, kind in ((10, "INSERT"), (20, "DELETE"), (30, "INSERT")):
        if at == 30 and batches == 2:
            assert "done" == shops.run()[0]
        message = json.loads(change(shops, kind, "a", at).lines.pop())
        shops.lines.append(
            json.dumps({name: message[name] for name in message if name not in ("id", "isDdl")})
        )
    assert [] == proof(shops, 0).broken


def test_columns_that_did_not_change_are_compared(tmp_path: Path) -> None:
    """Canal sends only the changed columns before; the others of the image after were the same before."""
    shops = say(shop(tmp_path), "INSERT", {"id": "1", "text": "a", "more": "x"}, None, 10)
    found = proof(say(shops, "UPDATE", {"id": "1", "text": "b", "more": "y"}, {"text": "a"}, 20), 0)
    assert [("more", "y", "x")] == differing(found)


@pytest.mark.one_of(2, "batches")
@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("had", ["x", None])
@pytest.mark.parametrize("rest", [{}, {"text": "a"}])
def test_a_column_that_appears_with_a_value_before_is_named(
    tmp_path: Path, batches: int, had: str | None, rest: dict[str, str]
) -> None:
    """No message has given the row that value: a column was renamed or added, and rows that do not change have NULL there."""
    shops = shop(tmp_path, "maxwell", TableRule(match=ITEM, keys=("id",)))
    messages: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("insert", {"id": 1, "text": "a"}, {}),
        ("insert", {"id": 2, "text": "b"}, {}),
        ("update", {"id": 1, **rest, "more": "y"}, {"old": {"more": had}}),
    ]
    for at, (kind, row, old) in enumerate(messages):
        if at == 2 and batches == 2:
            assert "done" == shops.run()[0]
        place = {"database": "shop_1", "table": "item", "ts": 1718000000 + at, "xid": at, "type": kind}
        shops.lines.append(json.dumps({**place, "data": row, **old}))
        shops.number += 1
    found = proof(shops, batches - 1)
    assert ([("more", "x", None)] if had else []) == differing(found)
    assert 1 == found.compared


@pytest.mark.one_of(2, "batches")
@pytest.mark.parametrize("batches", [1, 2])
def test_a_column_that_a_statement_has_filled_is_no_complaint(tmp_path: Path, batches: int) -> None:
    """The mirror did not have it before the batch; the statement says what each row has."""
    shops = insert(shop(tmp_path), 1, "a", 10)
    if batches == 2:
        assert "done" == shops.run()[0]
    shops.ddl("ALTER TABLE item ADD COLUMN more VARCHAR(9) DEFAULT 'x'", at=20)
    row: dict[str, str | None] = {"id": "1", "text": "a", "more": "y"}
    found = proof(say(shops, "UPDATE", row, {"more": "x"}, 30), batches - 1)
    assert (1, 1, []) == (found.compared, found.proven, found.broken)


def test_a_message_that_came_late_repairs_the_chain(tmp_path: Path) -> None:
    """In a dialect with positions the late message finds its place, and nothing is missing any more."""
    shops = update(insert(shop(tmp_path), 1, "a", 10), 1, "b", "c", 30)
    assert 1 == len(proof(shops, 0).broken)
    found = proof(update(shops, 1, "a", "b", 20), 0)
    assert (2, 2, []) == (found.compared, found.proven, found.broken)


def test_a_late_message_is_compared_with_the_row_at_its_place(tmp_path: Path) -> None:
    """The mirror holds a newer row than the one that the late change found."""
    shops = update(insert(shop(tmp_path), 1, "a", 10), 2, "y", "z", 35)
    assert "done" == shops.run()[0]
    assert "done" == update(shops, 1, "b", "c", 30).run()[0]
    assert [] == proof(update(shops, 1, "a", "b", 20), 2).broken


@pytest.mark.one_of(2, "dialect")
@pytest.mark.parametrize("dialect", ["dts-canal", "canal"])
def test_a_repeated_message_is_no_complaint(tmp_path: Path, dialect: str) -> None:
    """Every stream repeats messages after a restart."""
    shops = update(update(insert(shop(tmp_path, dialect), 1, "a", 10), 1, "a", "b", 20), 1, "b", "c", 30)
    assert "done" == shops.run()[0]
    update(update(shops, 1, "a", "b", 20), 1, "b", "c", 30)
    assert [] == proof(shops, 1).broken
    assert [] == proof(update(shops, 1, "c", "d", 40), 2).broken


@pytest.mark.one_of(4, "dialect", "batches")
@pytest.mark.parametrize("dialect", ["dts-canal", "canal"])
@pytest.mark.parametrize("batches", [1, 2])
def test_a_change_that_happens_twice_is_no_repetition(tmp_path: Path, dialect: str, batches: int) -> None:
    """A flag that is set, cleared and set again says the same twice: the loss of what cleared it went unnoticed."""
    shops = update(insert(shop(tmp_path, dialect), 1, "a", 10), 1, "a", "b", 20)
    update(update(shops, 1, "b", "a", 30), 1, "a", "b", 40)
    if batches == 2:
        assert "done" == shops.run()[0]
    found = proof(update(shops, 1, "a", "b", 60), batches - 1)  # that of 50 is lost
    assert [("text", "a", "b")] == differing(found)


@pytest.mark.parametrize("places", [(40, 50), (20, 30)], ids=["counts on", "same numbers"])
def test_a_task_that_is_put_back_repeats_its_changes(tmp_path: Path, places: tuple[int, int]) -> None:
    """What it sends again has the source's old time, and maybe a higher number: no message is lost."""
    shops = update(update(insert(shop(tmp_path), 1, "a", 10), 1, "a", "b", 20), 1, "b", "c", 30)
    assert "done" == shops.run()[0]
    for place, old, text, when in ((places[0], "a", "b", 20), (places[1], "b", "c", 30)):
        update(shops, 1, old, text, place)
        message = json.loads(shops.lines.pop())
        shops.lines.append(json.dumps(message | {"es": message["es"] + 1000 * (when - place)}))
    assert [] == proof(shops, 1).broken
    assert [] == proof(update(shops, 1, "c", "d", 60), 2).broken


@pytest.mark.one_of(2, "dialect")
@pytest.mark.parametrize("dialect", ["canal", "dts-canal"])
def test_a_message_from_before_the_key_changed_may_come_again(tmp_path: Path, dialect: str) -> None:
    """A stream that goes back behind the statement sends what the mirror had under another key: no message is lost."""
    shops = shop(tmp_path, dialect)
    shops.keys = ()  # only statements say what the key is
    shops.ddl("CREATE TABLE item (id bigint, text varchar(9), n varchar(9), PRIMARY KEY (id))", at=5)
    say(shops, "INSERT", {"id": "1", "text": "a", "n": "7"}, None, 10)
    for again in (False, True):
        say(shops, "UPDATE", {"id": "1", "text": "b", "n": "7"}, {"text": "a"}, 20)
        shops.ddl("ALTER TABLE item DROP PRIMARY KEY, ADD PRIMARY KEY (id, n)", at=25)
        say(shops, "UPDATE", {"id": "1", "text": "c", "n": "7"}, {"text": "b"}, 30)
        assert [] == proof(shops, int(again)).broken
    lost = proof(say(shops, "UPDATE", {"id": "1", "text": "e", "n": "7"}, {"text": "d"}, 50), 2)
    assert [("text", "d", "c")] == differing(lost)


def postgres(shops: Shops, op: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> Shops:
    """A change as Debezium sends it from PostgreSQL."""
    shops.number += 10
    source = {
        "connector": "postgresql",
        "db": "shop_1",
        "schema": "shop_1",
        "table": "item",
        "lsn": shops.number,
    }
    shops.lines.append(json.dumps({"before": before, "after": after, "source": source, "op": op, "ts_ms": 1}))
    return shops


@pytest.mark.one_of(2, "batches")
@pytest.mark.parametrize("identity", ["default", "full"])
@pytest.mark.parametrize("batches", [1, 2])
def test_a_delete_of_a_table_whose_updates_tell_nothing_has_only_its_key(
    tmp_path: Path, identity: str, batches: int
) -> None:
    """Without REPLICA IDENTITY FULL each delete would be a false alarm: other columns are NULL, zero or their default."""
    shops = shop(tmp_path, "debezium", TableRule(match="*item", keys=("id",)))
    was = {"id": 1, "text": "b", "size": 7, "mood": "good"}
    told = was if identity == "full" else None
    postgres(postgres(shops, "c", None, was), "u", told, was | {"text": "c"})
    postgres(shops, "c", None, was | {"id": 2})
    if batches == 2:
        assert "done" == shops.run()[0]
    blank = {"text": None, "size": 0, "mood": "new"}
    for key in (1, 2):
        postgres(shops, "d", {"id": key, **blank}, None)
    if batches == 2:
        postgres(postgres(shops, "c", None, was | {"id": 3}), "u", told and told | {"id": 3}, was | {"id": 3})
    assert "done" == shops.run()[0]
    [found] = shops.compared(batches - 1).values()
    broken = {each.key for each in found.proof.broken}
    assert ({("1",), ("2",)} if identity == "full" else set()) == broken
    assert found.proof.compared > 0


def test_keys_that_move_without_their_large_values_do_not_tell_more_than_the_key(tmp_path: Path) -> None:
    """The second of two moved rows raised a false alarm: the first, which takes its large value along, names its key before."""
    shops = shop(tmp_path, "debezium", TableRule(match="*item", keys=("id",)))
    for key in (1, 2):
        postgres(shops, "c", None, {"id": key, "text": f"large {key}"})
    assert "done" == shops.run()[0]
    for key in (1, 2):
        postgres(shops, "d", {"id": key, "text": None}, None)
        shops.number -= 10  # one position of the log
        postgres(shops, "c", None, {"id": key + 10, "text": "__debezium_unavailable_value"})
    assert "done" == shops.run()[0]
    [compared] = shops.compared(1).values()
    assert [] == compared.proof.broken
    path = mirror_path(TableId("shop_1", "shop_1", "item"))
    rows = shops.lake.ask_mirror(path, "SELECT id, text FROM {mirror} ORDER BY 1")
    assert [("11", "large 1"), ("12", "large 2")] == [tuple(row.values()) for row in rows]


def test_a_delete_has_only_its_key_again_once_the_replica_identity_is_the_default(tmp_path: Path) -> None:
    """The first delete after ALTER TABLE ... REPLICA IDENTITY DEFAULT raised a false alarm: updates before it had whole rows."""
    shops = shop(tmp_path, "debezium", TableRule(match="*item", keys=("id",)))
    for key in (1, 2, 3):
        postgres(shops, "c", None, {"id": key, "text": "a", "size": 7})
    postgres(shops, "u", {"id": 1, "text": "a", "size": 7}, {"id": 1, "text": "b", "size": 7})
    postgres(shops, "d", {"id": 1, "text": None, "size": 0}, None)
    assert "done" == shops.run()[0]
    postgres(shops, "d", {"id": 2, "text": None, "size": 8}, None)
    postgres(shops, "d", {"id": 3, "text": "a", "size": 7}, None)
    assert "done" == shops.run()[0]
    [compared] = shops.compared(0).values()
    assert {("text", None, "a"), ("size", "8", "7")} == {*differing(compared.proof)}


@pytest.mark.one_of(2, "updates", "batches")
@pytest.mark.parametrize("updates", [False, True])
@pytest.mark.parametrize("batches", [1, 2])
def test_a_delete_of_a_row_of_nulls_and_zeros_is_evidence_where_the_log_has_whole_rows(
    tmp_path: Path, updates: bool, batches: int
) -> None:
    """Only PostgreSQL fills: the loss of the update before went unnoticed in every database."""
    shops = shop(tmp_path, "debezium", TableRule(match="*item", keys=("id",)))

    def say(op: str, at: int, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        source = {
            "connector": "mysql",
            "db": "shop_1",
            "table": "item",
            "file": "b.000001",
            "pos": at,
            "row": 0,
        }
        message = {"before": before, "after": after, "source": source, "op": op, "ts_ms": at}
        shops.number = at
        shops.lines.append(json.dumps(message))

    was = {"id": 1, "text": "a", "size": 7}
    say("c", 1, None, was)
    if updates:
        say("u", 2, was, was | {"text": "b"})
    if batches == 2:
        assert "done" == shops.run()[0]
    say("d", 9, {"id": 1, "text": None, "size": 0}, None)
    assert "done" == shops.run()[0]
    [compared] = shops.compared(batches - 1).values()
    assert {("text", None, "b" if updates else "a"), ("size", "0", "7")} == {*differing(compared.proof)}


def test_nulls_of_a_deleted_row_are_no_evidence(tmp_path: Path) -> None:
    """AWS DMS writes NULL for all that PostgreSQL's log does not hold of a deleted row (its guide): each was a false alarm."""
    rule = TableRule(match=ITEM, keys=("id",), columns={"id": "int64", "text": "string"})
    shops = shop(tmp_path, "dms", rule)
    meta = {"record-type": "data", "schema-name": "shop_1", "table-name": "item"}
    said = [("insert", 1, "a"), ("insert", 2, "b"), ("delete", 1, None), ("delete", 2, "lost before")]
    for at, (op, key, text) in enumerate(said):
        clock = {"timestamp": f"2024-06-10T06:14:0{at}Z", "operation": op}
        shops.lines.append(json.dumps({"metadata": meta | clock, "data": {"id": key, "text": text}}))
        shops.number += 1
    assert [("text", "lost before", "b")] == differing(proof(shops, 0)), "a whole row before is compared"


def test_a_dialect_without_positions_warns(tmp_path: Path) -> None:
    """There a difference may only mean that the order of arrival was wrong."""
    found = proof(update(insert(shop(tmp_path, "canal"), 1, "a", 10), 1, "b", "c", 30), 0)
    assert [("text", "b", "a")] == differing(found)
    assert not found.strong


def test_a_row_that_was_loaded_may_be_newer_than_its_first_change(tmp_path: Path) -> None:
    """A load beside a running stream reads rows that already have what the stream sends afterwards."""
    shops = say(shop(tmp_path, "canal"), "INIT", {"id": "1", "text": "c"}, None, 10)
    update(update(shops, 1, "a", "b", 5), 1, "b", "c", 6)
    assert [] == proof(update(shops, 1, "c", "d", 20), 0).broken


@pytest.mark.parametrize("is_of_log", [False, True])
def test_the_position_of_a_loaded_row_may_not_say_when_it_was_read(is_of_log: bool) -> None:
    """Alibaba DTS gives rows of its full load the number 0, and reads them while changes come: each row that was changed twice
    meanwhile was a false alarm. Debezium's snapshots name the log's position.
    """
    images = ImagesBefore(shared_reads=is_of_log)
    chain = Chain(Table(("id",), {"id": "int64"}), images=images, loads=True)
    said = [(0, Op.READ, None, "c"), (5, Op.UPDATE, "a", "b"), (6, Op.UPDATE, "b", "c")]
    events = [
        Placed(
            Order(0, int(at > 0), (at,), 0, (1, at), 0), Change(op=op, before=image(old), after=image(new))
        )
        for at, op, old, new in said
    ]
    broken = [link.differences for _, _, link in chain.steps(events) if link is not None and link.is_broken]
    assert ([(Mismatch("text", "a", "c"),)] if is_of_log else []) == broken


def image(text: str | None) -> dict[str, str | None] | None:
    return None if text is None else {"id": "1", "text": text}


def test_a_change_of_the_key_is_compared_where_it_leaves(tmp_path: Path) -> None:
    """The image before is of the row under its old key."""
    shops = insert(insert(shop(tmp_path), 1, "a", 10), 2, "b", 11)
    say(shops, "UPDATE", {"id": "3", "text": "a"}, {"id": "1"}, 20)
    assert [] == proof(shops, 0).broken
    found = proof(say(shops, "UPDATE", {"id": "4", "text": "z"}, {"id": "2"}, 30), 1)
    assert [("text", "z", "b")] == differing(found)


def test_a_truncate_between_two_changes_is_named(tmp_path: Path) -> None:
    """If the row was there after the TRUNCATE, its insert is lost, or the TRUNCATE has the wrong place."""
    shops = insert(shop(tmp_path), 1, "a", 10).ddl("TRUNCATE TABLE item", at=20)
    assert [("", None, None)] == differing(proof(update(shops, 1, "a", "b", 30), 0))


def test_statements_between_two_changes_are_taken_into_account(tmp_path: Path) -> None:
    """A new column's default, a renamed and a dropped one are in the next image, and no message was lost."""
    shops = insert(shop(tmp_path), 1, "a", 10).ddl(
        "ALTER TABLE item ADD COLUMN n varchar(9) DEFAULT 'x'", at=15
    )
    say(shops, "UPDATE", {"id": "1", "text": "b", "n": "x"}, {"text": "a"}, 20)
    shops.ddl("ALTER TABLE item CHANGE text word varchar(9)", at=25)
    assert "done" == shops.run()[0]
    say(shops, "UPDATE", {"id": "1", "word": "c", "n": "x"}, {"word": "b"}, 30)
    assert [] == proof(shops, 0).broken


def test_a_default_that_the_database_stored_otherwise_is_named(tmp_path: Path) -> None:
    """No message carries the existing rows; the next change of one of them is the first to show it."""
    shops = insert(shop(tmp_path), 1, "a", 10).ddl(
        "ALTER TABLE item ADD COLUMN n varchar(9) DEFAULT 'x'", at=15
    )
    found = proof(say(shops, "UPDATE", {"id": "1", "text": "b", "n": "y"}, {"text": "a"}, 20), 0)
    assert [("n", "y", "x")] == differing(found)
    assert [("n", "y", "x")] == differing(found)


@pytest.mark.one_of(2, "batches")
@pytest.mark.parametrize("batches", [1, 2])
def test_what_a_statement_gave_and_nobody_knows_is_no_complaint(tmp_path: Path, batches: int) -> None:
    """The image before is the first message that has the value, of which `unknown_values` speaks: nothing was lost."""
    shops = insert(insert(shop(tmp_path), 1, "a", 10), 2, "x", 11)
    shops.ddl("ALTER TABLE item ADD seen DATETIME DEFAULT CURRENT_TIMESTAMP", at=20)
    if batches == 2:
        assert "done" == shops.run()[0]
    row = {"id": "1", "text": "b", "seen": "2024-05-01 10:00:00"}
    say(shops, "UPDATE", row, {"text": "a"}, 30)
    say(
        shops,
        "UPDATE",
        row | {"text": "c", "seen": "2024-05-02 10:00:00"},
        {"text": "b", "seen": row["seen"]},
        40,
    )
    assert [] == differing(proof(shops, batches - 1))
    lost = say(shops, "UPDATE", row | {"text": "d"}, {"text": "c", "seen": "2024-05-03 10:00:00"}, 50)
    assert [("seen", "2024-05-03 10:00:00", "2024-05-02 10:00:00")] == differing(proof(lost, batches))
    other = say(shops, "UPDATE", row | {"id": "2", "text": "z"}, {"text": "y"}, 60)
    assert [("text", "y", "x")] == differing(proof(other, batches + 1))


def test_columns_that_no_message_carries_are_not_compared(tmp_path: Path) -> None:
    """Metadata columns change with each change, and are in no image before."""
    made = {"at_batch": MadeColumn("meta", "batch"), "kind": MadeColumn("meta", "operation")}
    rule = TableRule(match=ITEM, made=made, places=dict.fromkeys(made, "x.yaml:9:7"))
    shops = insert(shop(tmp_path, rule=rule), 1, "a", 10)
    assert "done" == shops.run()[0]
    found = proof(update(update(shops, 1, "a", "b", 20), 1, "b", "c", 30), 1)
    assert (2, 2, []) == (found.compared, found.proven, found.broken)


def test_a_row_that_a_later_batch_has_set_is_judged_no_more(tmp_path: Path) -> None:
    """What was lost once would else be found for ever, although the row is right again."""
    shops = update(insert(shop(tmp_path), 1, "a", 10), 1, "b", "c", 30)
    assert 1 == len(proof(shops, 0).broken)
    assert [] == proof(update(shops, 1, "c", "d", 40), 0).broken


def test_many_suspects_are_judged_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that loses half of its messages must not make each batch as slow as its whole history."""
    monkeypatch.setattr(images_before, "JUDGED", 3)
    shops = shop(tmp_path)
    for key in range(8):
        update(insert(shops, key, "a", 10 + key), key, "b", "c", 50 + key)
    found = proof(shops, 0)
    assert (3, 5) == (len(found.broken), found.unjudged)


def test_of_many_rows_that_never_came_some_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those beyond were left out without a word."""
    monkeypatch.setattr(images_before, "JUDGED", 3)
    shops = begin(shop(tmp_path), "created")
    for key in range(11, 19):
        update(shops, key, "a", "b", 50 + key)
    [said] = never_sent(shops)
    assert "5 more keys were not judged" in said
    assert 5 == proof(shops, 0).undecided


# --- rows that no message has brought -------------------------------------------------------------

CREATE = "CREATE TABLE item (id bigint, text varchar(9), PRIMARY KEY (id))"


def begin(shops: Shops, how: str) -> Shops:
    """A table of which all rows are known: it is created, or emptied, or it was loaded by an earlier batch."""
    if how == "created":
        shops.ddl(CREATE, at=5)
    elif how == "emptied":
        update(shops, 9, "x", "y", 4).ddl("TRUNCATE TABLE item", at=5)
    else:
        say(shops, "INIT", {"id": "3", "text": "z"}, None, 0)
        assert "done" == shops.run()[0]
    return insert(shops, 1, "a", 10)


@pytest.mark.one_of(4, "dialect", "batches")
@pytest.mark.parametrize("dialect", ["dts-canal", "canal"])
@pytest.mark.parametrize("how", ["created", "emptied", "loaded"])
@pytest.mark.parametrize("batches", [1, 2])
def test_a_lost_change_of_a_key_is_named_by_the_next_change(
    tmp_path: Path, dialect: str, how: str, batches: int
) -> None:
    """Row 1 became row 2, and nothing said so: both were in the mirror, and no check said a word."""
    shops = begin(shop(tmp_path, dialect), how)
    if batches == 2:
        assert "done" == shops.run()[0]
    found = proof(
        update(shops, 2, "a", "b", 30), shops.lake.decoded() if batches == 2 or how == "loaded" else 0
    )
    assert [(("2",), how != "loaded")] == [(each.texts, each.certain) for each in found.unsent]
    assert [] == found.broken
    assert [] == proof(update(shops, 2, "b", "c", 40), shops.lake.decoded()).unsent, "it is named once"


@pytest.mark.parametrize(("how", "unsent"), [("created", [(("2",), True)]), ("loaded", [])])
def test_a_delete_of_a_row_that_never_came(
    tmp_path: Path, how: str, unsent: list[tuple[tuple[str, ...], bool]]
) -> None:
    """A load may not have read what is deleted while it runs; of a table that was empty each row has come."""
    shops = begin(shop(tmp_path), how)
    found = proof(delete(shops, 2, "a", 30), shops.lake.decoded())
    assert unsent == [(each.texts, each.certain) for each in found.unsent]


def never_sent(shops: Shops) -> list[str]:
    """What the run of all that was said calls never sent."""
    return sentences(shops, "no message has brought")


def sentences(shops: Shops, words: str) -> list[str]:
    """The faults and warnings with some words of the run of all that was said."""
    shops.stages = ("bronze", "silver", "gold", "quality")
    shops.run()
    assert shops.result is not None
    said = [*shops.result.failures, *shops.result.warnings]
    return [sentence for sentence in said if words in sentence]


@pytest.mark.one_of(2, "batches")
@pytest.mark.parametrize("batches", [1, 2])
def test_a_right_mirror_has_no_row_that_never_came(tmp_path: Path, batches: int) -> None:
    """Rows from before the capture began are no lost messages, nor is one that arrives late, or is read, moved or repeated."""
    shops = update(shop(tmp_path), 7, "x", "y", 3)  # from before the capture
    shops.run()
    begin(shops, "created")
    say(shops, "UPDATE", {"id": "2", "text": "a"}, {"id": "1"}, 20)
    if batches == 2:
        assert [] == never_sent(shops)
    update(insert(update(shops, 2, "a", "b", 30), 5, "k", 35), 5, "k", "l", 45)
    delete(update(shops, 2, "b", "c", 50), 2, "c", 60)
    assert [] == never_sent(shops)
    assert [] == never_sent(delete(insert(shops, 2, "d", 70), 2, "d", 80))


@pytest.mark.one_of(2, "batches")
@pytest.mark.parametrize("emptied", ["TRUNCATE TABLE item", "DROP TABLE item"])
@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("kind", ["UPDATE", "DELETE"])
def test_nothing_is_wrong_in_a_table_that_was_emptied(
    tmp_path: Path, emptied: str, batches: int, kind: str
) -> None:
    """A change found another row than it described, and then all rows went: it was an error until it was accepted."""
    shops = insert(shop(tmp_path), 1, "a", 10)
    update(shops, 1, "b", "c", 30) if kind == "UPDATE" else delete(shops, 1, "b", 30)
    if batches == 2:
        assert 1 == len(sentences(shops, "a change says"))
    shops.ddl(emptied, at=40)
    if emptied.startswith("DROP"):
        shops.ddl(CREATE, at=41)
    assert [] == sentences(insert(shops, 3, "c", 50), "a change says")
    assert [] == proof(shops, 0).broken


@pytest.mark.one_of(4, "dialect", "batches")
@pytest.mark.parametrize("dialect", ["dts-canal", "canal"])
@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("story", ["given back", "other columns", "made again", "made at last", "declared"])
def test_two_rows_had_one_key_while_the_table_had_none(
    tmp_path: Path, dialect: str, batches: int, story: str
) -> None:
    """Messages before and after name one key, so that those without it were folded by it: a row of two was gone, in silence."""
    shops = shop(
        tmp_path, dialect, KEYED if story == "declared" else TableRule(match=ITEM, no_key="full_row")
    )
    if story == "made at last":
        shops.keys = ()
        shops.ddl("CREATE TABLE item (id bigint, text varchar(9))", at=5)
        insert(shops, 1, "a", 10)
    else:
        insert(shops.ddl(CREATE, at=5), 1, "a", 10).ddl("ALTER TABLE item DROP PRIMARY KEY", at=15)
        shops.keys = ()
    insert(shops, 1, "b", 20)
    if batches == 2:
        assert "done" == shops.run()[0]
    if story in ("given back", "other columns"):
        delete(shops, 1, "b", 25)
        shops.keys = ("id",) if story == "given back" else ("id", "text")
        shops.ddl(f"ALTER TABLE item ADD PRIMARY KEY ({', '.join(shops.keys)})", at=30)
        left = {1: "a", 2: "c"}
    else:
        update(shops, 1, "a", "d", 25).ddl("DROP TABLE item", at=30).ddl(CREATE, at=31)
        shops.keys, left = ("id",), {2: "c"}
    found = proof(insert(shops, 2, "c", 40), 0)
    assert left == shops.rows("mirrors/shop_1/item")
    assert ([], []) == (found.broken, found.unsent)


@pytest.mark.parametrize("entries", [(), (QualityRule("shop_1.*"),)])
def test_rows_that_come_into_a_filter_are_allowed_by_a_limit(
    tmp_path: Path, entries: tuple[QualityRule, ...]
) -> None:
    """A tool that filters rows may send one that comes to meet its condition as an update; the message says what to write."""
    shops = shop(tmp_path)
    shops.quality = entries
    [said] = never_sent(update(begin(shops, "emptied"), 2, "a", "b", 30))
    line = "thresholds: {rows_never_sent: 1000000}"
    assert (f"`{line}` into" if entries else f"`- {{table: {ITEM}, {line}}}` under quality:") in said
    (tmp_path / "allowed").mkdir()
    allowed = shop(tmp_path / "allowed")
    allowed.quality = (QualityRule(ITEM, thresholds={NEVER_SENT: 1e6}),)
    assert [] == never_sent(update(begin(allowed, "emptied"), 2, "a", "b", 30))


@pytest.mark.one_of(2, "batches")
@pytest.mark.parametrize("emptied", ["TRUNCATE TABLE item", "DROP TABLE item"])
@pytest.mark.parametrize("batches", [1, 2])
def test_an_emptied_table_has_no_old_row(tmp_path: Path, emptied: str, batches: int) -> None:
    """The row whose message was lost is gone with all others: the mirror was right, and failed until it was accepted."""
    shops = update(begin(shop(tmp_path), "created"), 2, "a", "b", 30)
    if batches == 2:
        assert 1 == len(never_sent(shops))
    shops.ddl(emptied, at=40)
    if emptied.startswith("DROP"):
        shops.ddl(CREATE, at=41)
    assert [] == never_sent(insert(shops, 3, "c", 50))
    assert [] == proof(shops, 0).unsent
    assert 1 == len(never_sent(update(shops, 4, "d", "e", 60))), "since then each row must have come"


def test_what_a_late_message_brings_was_sent(tmp_path: Path) -> None:
    """The complaint stays while the key changes on, and ends when the message that was missing comes."""
    shops = update(begin(shop(tmp_path), "created"), 2, "a", "b", 30)
    assert 1 == len(never_sent(shops))
    [again] = never_sent(update(shops, 2, "b", "c", 40))
    assert "not repaired since" in again
    assert [] == never_sent(say(shops, "UPDATE", {"id": "2", "text": "a"}, {"id": "1"}, 20))


@pytest.mark.parametrize(
    ("statement", "unsent"),
    [
        ("CREATE TABLE item AS SELECT * FROM other", 0),
        ("CREATE TABLE IF NOT EXISTS item AS SELECT * FROM other", 0),
        (CREATE.replace("TABLE", "TABLE IF NOT EXISTS") + " SELECT * FROM other", 0),
        (CREATE.replace("TABLE", "TABLE IF NOT EXISTS"), 1),
        ("CREATE TABLE IF NOT EXISTS item LIKE other", 1),
    ],
)
def test_rows_that_a_statement_brings_without_messages_are_no_lost_ones(
    tmp_path: Path, statement: str, unsent: int
) -> None:
    """CREATE AS SELECT fills a table, and its rows are in no message; IF NOT EXISTS makes it after a DROP alone."""
    shops = shop(tmp_path).ddl("DROP TABLE item", at=4).ddl(statement, at=5)
    found = proof(update(insert(shops, 1, "a", 10), 2, "a", "b", 30), 0)
    assert unsent == len(found.unsent)


@pytest.mark.parametrize("kind", ["UPDATE", "DELETE"])
def test_the_source_goes_on_with_a_row_that_was_erased_here(tmp_path: Path, kind: str) -> None:
    """The message that brought the row was removed, and the source deletes it later: nothing was lost."""
    shops = begin(shop(tmp_path), "created")
    assert [] == never_sent(shops)
    table = TableId("shop_1", None, "item")
    [books] = shops.lake.ask("SELECT max(order_high) AS newest FROM {books}")
    ends = {Barriers("k").digest(table, (7,)): (("", books["newest"]),)}
    barrier = Barrier("s", table, ("id",), ("int64",), ends)
    erased = {"number": "1", "table": ITEM, "barriers": [barrier.to_value()]}
    decisions.append(
        shops.lake,
        [Decision(ERASE_SECRET, "shops", {"secret": "k"}), Decision(ERASE, mirror_path(table), erased)],
    )
    change = update if kind == "UPDATE" else lambda shops, key, old, _new, at: delete(shops, key, old, at)
    [said] = never_sent(change(change(shops, 7, "a", "b", 30), 8, "a", "b", 31))
    assert "id = 8" in said
    assert "id = 7" not in said


def test_all_first_changes_are_looked_at_if_the_mirror_has_gained_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many changed keys only some are compared with the mirror, unless it has more rows than were inserted."""
    monkeypatch.setattr(images_before, "FIRSTS", 1)
    shops = begin(shop(tmp_path), "created")
    for key in range(20, 30):
        insert(shops, key, "a", key)
    assert [] == never_sent(shops)
    for key in (*range(20, 30), 31):
        update(shops, key, "a", "b", key + 20)
    assert 1 == len(never_sent(shops))


def test_a_gap_that_a_late_message_has_closed_is_no_row_that_never_came(tmp_path: Path) -> None:
    """The load lies before the table had its key: the first change since then finds no row among those after it."""
    shops = shop(tmp_path)
    shops.keys, shops.stages = (), ("bronze", "silver", "gold", "quality")
    shops.ddl("CREATE TABLE item (id bigint, text varchar(9), n varchar(9), PRIMARY KEY (id))", at=1)
    row = {"id": "1", "text": "a", "n": "7"}
    say(shops, "INIT", row, None, 2).run()
    shops.ddl("ALTER TABLE item DROP PRIMARY KEY, ADD PRIMARY KEY (id, n)", at=5)
    say(shops, "UPDATE", row | {"text": "b"}, {"text": "a"}, 30).run()
    say(shops, "UPDATE", row | {"text": "d"}, {"text": "c"}, 50)
    assert 1 == len(sentences(shops, "a change says that text was"))
    say(shops, "UPDATE", row | {"text": "c"}, {"text": "b"}, 40)
    assert [] == sentences(shops, "a change says")


def test_a_fault_of_a_key_that_the_mirror_has_no_more_is_over(tmp_path: Path) -> None:
    """A key with other columns, or of another type, ended the checks of each batch with a late message with an error."""
    shops = update(begin(shop(tmp_path), "created"), 2, "a", "b", 30)
    assert 1 == len(never_sent(shops))
    names = CHECKS.arrow.names
    [fault] = shops.lake.ask(
        f"SELECT {', '.join(map(duck.name, names))} FROM {{checks}} WHERE \"check\" = '{NEVER_SENT}'"
    )
    keys = ['{"id":"x"}', '{"code":"2"}', '{"id":"2","code":"2"}']
    later = fault | {"failing": json.dumps(keys), "observed": 3.0, "checked_at": shops.lake.now()}
    shops.lake.append_unguarded([tuple(later[name] for name in names)], CHECKS)
    assert [] == never_sent(insert(shops, 5, "e", 20))


@pytest.mark.one_of(2, "batches")
@pytest.mark.parametrize("keys", [("id",), ("code",)])
@pytest.mark.parametrize("batches", [1, 2])
def test_a_delete_that_names_its_row_by_another_index(
    tmp_path: Path, keys: tuple[str, ...], batches: int
) -> None:
    """With REPLICA IDENTITY USING INDEX a delete has the index' columns, and zero for the key: its row stayed, silently."""
    shops = shop(tmp_path, "debezium", TableRule(match="*item", keys=keys))
    for key in (1, 2):
        postgres(shops, "c", None, {"id": key, "code": f"k{key}", "text": "a"})
    postgres(shops, "u", None, {"id": 1, "code": "k1", "text": "b"})
    if batches == 2:
        assert "done" == shops.run()[0]
    postgres(shops, "d", {"id": 0, "code": "k1", "text": None}, None)
    assert "done" == shops.run()[0]
    [compared] = shops.compared(batches - 1).values()
    assert ([("0",)] if keys == ("id",) else []) == [each.texts for each in compared.proof.unsent]


@pytest.mark.parametrize("identity", ["default", "full"])
def test_a_repeated_delete_of_row_zero_is_no_other_index(tmp_path: Path, identity: str) -> None:
    """Zero is a key like others."""
    shops = shop(tmp_path, "debezium", TableRule(match="*item", keys=("id",)))
    row = {"id": 0, "code": "k1"}
    postgres(shops, "c", None, row)
    postgres(shops, "u", row if identity == "full" else None, row)
    for _ in range(2):
        postgres(shops, "d", row if identity == "full" else {"id": 0, "code": None}, None)
        assert "done" == shops.run()[0]
        [compared] = shops.compared(shops.lake.decoded() - 1).values()
        assert [] == compared.proof.unsent


@pytest.mark.parametrize("text", ["a", None])
def test_a_delete_of_row_zero_that_came_before_the_messages_is_no_other_index(
    tmp_path: Path, text: str | None
) -> None:
    """With REPLICA IDENTITY FULL its image has all columns; of a row with a NULL the images of other rows tell."""
    shops = shop(tmp_path, "debezium", TableRule(match="*item", keys=("id",)))
    postgres(shops, "d", {"id": 0, "code": "k0", "text": text}, None)
    postgres(shops, "d", {"id": 7, "code": "k7", "text": "a"}, None)
    assert "done" == shops.run()[0]
    [compared] = shops.compared(0).values()
    assert [] == compared.proof.unsent


def test_whether_a_table_was_loaded_is_read_in_the_books(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of a load may be gone from the changes, and then all of them were looked at after each batch."""
    shops = begin(shop(tmp_path), "loaded")
    assert "done" == shops.run()[0]
    asked, ask = list[str](), Lake.ask

    def heard(lake: Lake, query: str) -> list[dict[str, Any]]:
        asked.append(query)
        return ask(lake, query)

    update(shops, 2, "a", "b", 30).run()
    monkeypatch.setattr(Lake, "ask", heard)
    assert [(("2",), False)] == [(each.texts, each.certain) for each in proof(shops, 2).unsent]
    assert not [query for query in asked if "{changes" in query and query.endswith("LIMIT 1")]


def test_changes_are_read_for_a_missing_row_only_if_one_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a lake that was begun without a load each batch changes new keys, and all changes were read for them."""
    shops = update(shop(tmp_path), 1, "a", "b", 10)
    assert "done" == shops.run()[0]
    asked, read, removed = list[object](), arrow_rows.changes_of_keys, images_before._has_removed
    by_others = list[bool]()

    def heard(*args: Any) -> list[dict[str, Any]]:
        asked.append(args)
        return read(*args)

    def judged(lane: ProvenLane, since: int) -> bool:
        by_text = replace(lane.subject, mirror=replace(lane.mirror, keys=("text",)))
        by_others.append(removed(replace(lane, subject=by_text), since))
        return removed(lane, since)

    monkeypatch.setattr(images_before, "changes_of_keys", heard)
    monkeypatch.setattr(images_before, "_has_removed", judged)
    assert [] == proof(update(shops, 2, "a", "b", 20), 1).broken
    assert ([], [True]) == (asked, by_others), "by a key that no message names each update may be a move"
    delete(shops, 2, "b", 30).run()
    assert [("", None, None)] == differing(proof(update(shops, 2, "c", "d", 40), 3))
    assert asked


@pytest.mark.parametrize("dialect", ["maxwell", "debezium"])
def test_a_load_of_a_part_tells_nothing_of_other_rows(tmp_path: Path, dialect: str) -> None:
    """A bootstrap with --where, or an incremental snapshot that goes on for days, has not read each row."""
    shops = shop(tmp_path, dialect, TableRule(match="*item", keys=("id",)))
    if dialect == "maxwell":
        place = {"database": "shop_1", "table": "item", "ts": 1718000000}
        shops.lines.append(json.dumps({**place, "type": "bootstrap-insert", "data": {"id": 1, "text": "a"}}))
        shops.number += 1
        update_of_2 = {
            **place,
            "type": "update",
            "xid": 7,
            "data": {"id": 2, "text": "c"},
            "old": {"text": "b"},
        }
        change: list[dict[str, Any]] = [update_of_2]
    else:
        postgres(shops, "r", None, {"id": 1, "text": "a"})
        message = json.loads(shops.lines.pop())
        message["source"]["snapshot"] = "incremental"
        shops.lines.append(json.dumps(message))
        change = []
    assert "done" == shops.run()[0]
    shops.lines += map(json.dumps, change)
    if not change:
        postgres(shops, "u", {"id": 2, "text": "b"}, {"id": 2, "text": "c"})
    shops.number += 1
    assert "done" == shops.run()[0]
    [compared] = shops.compared(1).values()
    assert ([], []) == (compared.proof.unsent, compared.proof.broken)


@pytest.mark.one_of(2, "dialect")
@pytest.mark.parametrize("dialect", ["canal", "dts-canal"])
def test_a_delete_beside_a_load_is_of_a_row_that_the_load_has_not_read(tmp_path: Path, dialect: str) -> None:
    """Replicate and DMS create a table, load it, and then send what has happened meanwhile: that a row is gone, too."""
    shops = shop(tmp_path, dialect).ddl(CREATE, at=5)
    say(shops, "INIT", {"id": "1", "text": "a"}, None, 10)
    delete(shops, 2, "b", 8)
    assert (dialect == "canal") == ([] == proof(shops, 0).unsent), (
        "positions say that the delete came after the CREATE"
    )
    remarks = [remark for event in explain(shops.lake, ITEM, ["2"]).events for remark in event.remarks]
    assert ["a load that ran" if dialect == "canal" else "a message before it was lost"] == [
        words for words in ("a load that ran", "a message before it was lost") if words in str(remarks)
    ]
