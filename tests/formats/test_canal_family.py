"""The Canal family beyond its goldens: documents' own samples, recognition, exactness."""

from __future__ import annotations

import json

import pytest

from ingest import formats
from ingest.change import Change, Hints, Message, Options, TableHints
from ingest.errors import Undecodable
from ingest.formats import canal_protobuf
from ingest.values import conversions
from tests.formats import golden

FAMILY = ("canal", "dts-canal", "drs-json", "drs-json-c", "obcloud-canal", "oms-canal", "ticdc-canal")
NO_HINTS = Hints()


def parse(name: str, value: bytes | None, hints: Hints = NO_HINTS) -> list[Change]:
    return list(formats.load(name).parse(Message(value), hints))


def message(**members: object) -> bytes:
    """An INSERT of one row, its members replaced."""
    usual = {
        "data": [{"no": "1", "name": "x"}],
        "database": "rail",
        "es": 1718000000000,
        "id": 7,
        "isDdl": False,
        "mysqlType": {"no": "bigint", "name": "varchar(9)"},
        "old": None,
        "pkNames": ["no"],
        "table": "trip",
        "type": "INSERT",
    }
    return json.dumps(usual | members, ensure_ascii=False, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("canal", "all-types"),
        ("canal", "ddl-alter-called-cindex"),
        ("canal", "types-as-written"),
        ("dts-canal", "init"),
        ("dts-canal", "insert"),
        ("drs-json", "insert"),
        ("drs-json-c", "insert"),
        ("obcloud-canal", "update"),
        ("oms-canal", "insert"),
        ("ticdc-canal", "insert"),
        ("ticdc-canal", "watermark"),
    ],
)
def test_recognition(name, case):
    """Each dialect leaves marks of its own, and another's must not be claimed."""
    value = (golden.HERE / name / f"{case}.json").read_bytes()
    assert [name] == [other for other in FAMILY if formats.evidence(other, value)]


@pytest.mark.parametrize("value", [b"", b"{}", b"42", b"null", b"[]", b"\x00\x01", b'{"meta":{"op":"ins"}}'])
@pytest.mark.parametrize("name", FAMILY)
def test_what_is_no_flat_message(name, value):
    """Another dialect's bytes taken for control messages would vanish without a trace."""
    assert formats.evidence(name, value) is None
    with pytest.raises(Undecodable):
        parse(name, value)


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize(
    "number", ["18446744073709551616", "1.10", "1E400", "0." + "1" * 240, "-0.0", "9" * 60]
)
def test_numbers_to_the_last_digit(name, number):
    """A float on the way rounds what it cannot hold."""
    value = message().replace(b'"name":"x"', b'"name":' + number.encode())
    quoted = message(data=[{"no": "1", "name": number}])
    assert [number] * 2 == [parse(name, each)[0].after["name"] for each in (value, quoted)]


@pytest.mark.parametrize("name", FAMILY)
def test_damage_in_unread_members_is_noticed(name):
    """A name given twice or broken text shows that the message is not what the writer meant."""
    twice = message().replace(b'"id":7', b'"id":7,"id":8')
    nested = message(id=8).replace(b'{"no":"1"', b'{"no":"2","no":"1"')
    broken = message(sqlType={"no": "\u00e4"}).replace("\u00e4".encode(), b"\xff")
    codes = []
    for value in (twice, nested, broken):
        with pytest.raises(Undecodable) as caught:
            parse(name, value)
        codes.append(caught.value.code)
    assert ["duplicate-key", "duplicate-key", "bad-utf8"] == codes


def test_types_of_one_table_do_not_leak_into_another():
    """What is remembered of a type list is remembered with the declarations that changed it."""
    declared = {"rail": {"name": "int64"}, "sea": {}}
    hints = Hints(tables=lambda table: TableHints((), declared[table.database]))
    found = [parse("canal", message(database=name), hints)[0] for name in ("rail", "sea", "rail")]
    assert ["int64", "string", "int64"] == [change.types["name"] for change in found]


def test_options_of_one_source_do_not_leak_into_another():
    """Two sources with equal tables in different zones would shift each other's instants."""
    value = message(
        data=[{"no": "1", "name": "2024-06-10 12:00:00"}], mysqlType={"no": "int", "name": "timestamp"}
    )
    zones = ("UTC", "Asia/Tokyo", "UTC")
    found = [parse("canal", value, Hints(Options(timezone=zone)))[0].after["name"] for zone in zones]
    assert ["2024-06-10T12:00:00Z", "2024-06-10T03:00:00Z", "2024-06-10T12:00:00Z"] == found


def test_one_order_for_messages_of_many_digits():
    """Sequences compared as text put 10 before 9."""
    found = [parse("dts-canal", message(id=number))[0].sequence for number in (10, 9)]
    assert [(10,), (9,)] == found


@pytest.mark.parametrize("name", FAMILY)
def test_zerofill_is_read_from_the_type_of_a_message(name):
    """A number that becomes text shows its zeros, and often only the rows' own messages say how many."""
    sent = {"no": "int(5) unsigned zerofill", "name": "varchar(9)", "cost": "DECIMAL(8,2) UNSIGNED ZEROFILL"}
    row = {"no": "7", "name": "x", "cost": "7.50"}
    [change] = parse(name, message(data=[row], mysqlType=sent))
    assert ("uint32 zerofill 5", "string", "decimal(8,2) zerofill 9") == tuple(change.types.values())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("canal", 10),
        ("obcloud-canal", 10),
        ("dts-canal", 0),
        ("drs-json", 0),
        ("drs-json-c", 0),
        ("ticdc-canal", 0),
    ],
)
def test_the_width_of_zerofill_is_unknown_where_lengths_are_not_sent(name, expected):
    """Zeros of a guessed width would silently be a wrong text."""
    [change] = parse(name, message(mysqlType={"no": "int unsigned zerofill", "name": "varchar"}))
    assert f"uint32 zerofill {expected}" == change.types["no"]
    assert bool(expected) == conversions.conversion(change.types["no"], "string", "VARCHAR(20)").certain


def test_the_last_of_several_transactions_of_a_header_is_meant() -> None:
    """A name that comes twice has its last value, as in a map."""
    pairs = b"".join(b"\x62\x0d\x0a\x08curtGtid\x12\x01" + number for number in (b"1", b"2"))
    assert "2" == canal_protobuf._place(canal_protobuf.CANAL.read("Header", pairs)).transaction
