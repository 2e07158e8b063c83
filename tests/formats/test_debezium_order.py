"""Where Debezium's messages belong in the order of history."""

from __future__ import annotations

import pytest

from ingest.change import Options, TableId
from tests.formats.debezium_rows import POSTGRES, SOURCE, decode, one, row


def test_binlog_files_are_compared_as_numbers():
    """``binlog.1000000`` follows ``binlog.999999`` and would sort before it as text."""
    places = [
        one(row(source={**SOURCE, "file": file})).sequence for file in ("binlog.999999", "binlog.1000000")
    ]
    assert sorted(places) == places


def test_mysql_snapshot_is_ordered_at_its_position():
    """A table read again later must win over changes from before its new snapshot."""
    old = one(row("u"))
    again = one(row("r", {**SOURCE, "snapshot": "true", "pos": 900}))
    assert (1, 1) == (old.phase, again.phase)
    assert old.sequence < again.sequence


@pytest.mark.parametrize("snapshot", ["true", "first", "last_in_data_collection"])
def test_postgres_snapshot_is_ordered_before_the_stream(snapshot):
    """A transaction open during the snapshot has smaller log positions, and its changes come after."""
    assert 0 == one(row("r", {**POSTGRES, "snapshot": snapshot})).phase
    assert 1 == one(row("u", POSTGRES)).phase


def test_a_flattened_row_takes_its_database_from_the_option():
    """``__table`` names the table alone: tables of one name in two databases would become one mirror."""
    options = Options(table=(("*.shop.*", TableId("shop", None, "orders")), ("*", TableId("crm", "s", "x"))))
    row = {"id": 1, "__table": "orders", "__op": "c"}
    tables = [
        decode(row, options=options, topic=topic)[0].table for topic in ("srv.shop.orders", "srv.crm.orders")
    ]
    assert [TableId("shop", None, "orders"), TableId("crm", "s", "orders")] == tables
    assert TableId("own", None, "orders") == decode({**row, "__db": "own"}, options=options)[0].table


@pytest.mark.parametrize("name", ["debezium", "oms-debezium-smt"])
def test_columns_whose_names_begin_with_two_underscores_are_kept(name):
    """Only what flattening adds is not a column; others were dropped silently."""
    options = Options(table=(("*", TableId("d", None, "t")),))
    row = {"id": 1, "__v": 3, "__order": "x", "__op": "u", "__deleted": "false"}
    found = decode(row, options=options, name=name)[0]
    assert {"id": "1", "__v": "3", "__order": "x"} == found.after
    named = decode({**row, "__row": 5}, options=options, name=name, columns={"__row": "int32"})[0]
    assert "5" == (named.after or {}).get("__row")


def test_a_postgres_incremental_snapshot_keeps_its_place():
    """Reading a table again is the usual repair: before every change, its rows would repair nothing.

    They were phase 0 once, for the reason that holds for the initial snapshot only.
    """
    old = one(row("u", {**POSTGRES, "lsn": 200}))
    again = one(row("r", {**POSTGRES, "lsn": 300, "snapshot": "incremental"}))
    assert (1, 1) == (old.phase, again.phase)
    assert old.sequence < again.sequence


def test_a_transaction_open_during_an_incremental_snapshot_wins():
    """It wrote at 150 and committed after 390: the row that was read at 300 did not see it."""
    read = one(row("r", {**POSTGRES, "lsn": 300, "snapshot": "incremental", "sequence": '["290","300"]'}))
    first = one(row("u", {**POSTGRES, "lsn": 150, "sequence": '["390","150"]'}))
    second = one(row("u", {**POSTGRES, "lsn": 160, "sequence": '["390","160"]'}))
    usual = one(row("u", {**POSTGRES, "lsn": 410, "sequence": '["400","410"]'}))
    found = [read.sequence, first.sequence, second.sequence, usual.sequence]
    assert [(300,), (390, 150), (390, 160), (410,)] == found
    assert sorted(found) == found


@pytest.mark.parametrize("written", [None, "", "[]", "[null]", '[null,"150"]', "{", "7", '["x","150"]'])
def test_a_postgres_sequence_that_says_nothing_is_passed_over(written):
    """The first event after a start names no commit before it."""
    assert (150,) == one(row("u", {**POSTGRES, "lsn": 150, "sequence": written})).sequence


def test_a_snapshot_row_without_position_is_full_load():
    """Without phase 0 a late snapshot row would undo the stream."""
    source = {"db": "a", "table": "b", "file": "", "pos": 0}
    found = one(row("r", source))
    assert (0, ()) == (found.phase, found.sequence)


def test_rows_of_a_writer_without_positions_are_placed_by_arrival():
    """A row that is read again would lose against changes that came long before it.

    Such a row was phase 0 once; where no message has a position, arrival is the only order.
    """
    flat = {"id": 1, "__table": "orders", "__db": "shop", "__op": "r", "__lsn": 5}
    found = [one(row("r", {"db": "a", "table": "b"})), one(flat)]
    assert [(1, ())] * 2 == [(each.phase, each.sequence) for each in found]


def test_oracle_without_commit_number_uses_its_scn():
    """Snapshot rows of Oracle carry no commit number and must still be ordered before later commits."""
    source = {"connector": "oracle", "db": "X", "schema": "HR", "table": "S", "scn": "70", "commit_scn": None}
    assert (70,) == one(row("r", {**source, "snapshot": "true"})).sequence
    assert (80, 75, 1) == one(row("u", {**source, "scn": "75", "commit_scn": "80", "ssn": 1})).sequence


def test_ticdc_is_ordered_by_its_commits():
    """After a failure TiCDC sends changes again: by arrival each would set its row back until the newest came again."""
    source = {"connector": "TiCDC", "db": "test", "table": "t2", "file": "", "pos": 0, "row": 0, "gtid": None}
    first, second = (
        one(row("u", {**source, "commit_ts": number})) for number in (447507027004751877, 447507027004751879)
    )
    assert [(447507027004751877,), (447507027004751879,)] == [first.sequence, second.sequence]
    assert () == first.servers == second.servers
    flat = {
        "id": 1,
        "__table": "t2",
        "__db": "test",
        "__deleted": "false",
        "__source_commit_ts": 447507027004751877,
    }
    assert (first.sequence, {"id": "1"}) == (one(flat).sequence, one(flat).after)


def test_flattened_rows_without_deletes_as_rows_are_ordered_by_arrival():
    """A null-value delete has no position; among rows with positions it would sort first and be lost."""
    meta = {"id": 1, "__table": "orders", "__db": "shop", "__lsn": 5}
    assert ((), (5,)) == (one(meta).sequence, one({**meta, "__deleted": "false"}).sequence)
