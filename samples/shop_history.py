"""The history of a small shop: what its database did, before any product wrote messages of it.

Three tables live through a full load, one statement that creates a table, two that add a column, and
a day of inserts, updates and deletes.  Everything is drawn from one seeded generator written out
here, so that every Python makes the same history.  Values are exact texts; ``updated`` counts
milliseconds since 1970 UTC.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")

Row = dict[str, "str | int | None"]
Key = tuple[int, ...]

KEYS = {"customers": ("id",), "orders": ("id",), "order_lines": ("order_id", "line_no")}
TYPES = {
    "customers": {
        "id": "int64",
        "name": "string",
        "email": "string",
        "city": "string",
        "credit": "decimal(12,2)",
        "joined": "datetime",
        "vip": "int8",
        "updated": "timestamp",
        "tier": "string",
    },
    "orders": {
        "id": "int64",
        "customer_id": "int64",
        "status": "string",
        "total": "decimal(18,4)",
        "placed": "datetime",
        "note": "string",
        "channel": "string",
    },
    "order_lines": {
        "order_id": "int64",
        "line_no": "int32",
        "sku": "string",
        "quantity": "int32",
        "price": "decimal(12,4)",
    },
}
CREATE_LINES = (
    "CREATE TABLE `shop`.`order_lines` (\n  `order_id` BIGINT NOT NULL,\n  `line_no` INT NOT NULL,\n"
    "  `sku` VARCHAR(24) NOT NULL COMMENT 'as printed, e.g. \"TEA-01\"',\n  `quantity` INT NOT NULL DEFAULT 1,\n"
    "  `price` DECIMAL(12,4) NOT NULL,\n  PRIMARY KEY (`order_id`, `line_no`)\n) DEFAULT CHARSET=utf8mb4"
)
ADD_CHANNEL = (
    "ALTER TABLE shop.orders ADD COLUMN channel VARCHAR(12) DEFAULT 'web' COMMENT 'where it was placed'"
)
ADD_TIER = "ALTER TABLE `shop`.`customers` ADD COLUMN `tier` VARCHAR(12) NULL AFTER `updated`"

NAMES = (
    'Ada Moreau|Zoë Ångström|李小梅|Łukasz Żak|Conor O\'Brien|Anna "Ann" Lee|Renée & Söhne <GmbH>|Nadia Haddad|'
    'a\\b=c|Юлия Орлова|Noor 🌷 de Wit|さくら|José Peña|Tab\there|"quoted"|Mia Berg'
).split("|")
CITIES = "Porto|Gdańsk|杭州|Lyon|São Paulo|Aarhus|Köln|".split("|")  # the last one is an empty text
NOTES = (
    "",
    "ring twice",
    None,
    "über die Straße",
    "line one\nline two",
    'say "hi"',
    "50% <off> & more",
    "礼物",
)
SKUS = "TEA-01|TEA-02|CUP-10|POT-07|TIN-33|杯-05".split("|")
STATUSES = ("new", "paid", "packed", "sent", "returned")
MOVED = 9000  # orders whose number was changed have numbers from here on
ODD = {"customers": 106, "orders": 5007, "order_lines": 0}  # keys below are left as `_odd_things` made them
START = 1_714_550_400_000  # 2024-05-01T08:00:00Z
ZONE = dt.timezone(dt.timedelta(hours=8))  # the shop's: Shanghai
AFTERNOON = 16  # the hour after which orders are placed


@dataclass(frozen=True)
class Event:
    """One thing that happened.

    Args:
        kind: ``read`` (full load), ``insert``, ``update``, ``delete``, ``create`` or ``alter``.
        time: when, in milliseconds since 1970 UTC.
        number: its place in history, from 0.
        columns: the table's columns at that time.
    """

    kind: str
    table: str
    time: int
    number: int
    columns: tuple[str, ...] = ()
    before: Row | None = None
    after: Row | None = None
    sql: str = ""


class Dice:
    """A linear congruential generator: the same numbers everywhere and for ever."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def below(self, limit: int) -> int:
        """A whole number from 0 to ``limit`` - 1."""
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % limit

    def pick(self, choices: Sequence[T]) -> T:
        """One of several."""
        return choices[self.below(len(choices))]

    def money(self, whole: int, digits: int) -> str:
        """An amount below ``whole`` with exactly so many digits after the point."""
        return f"{self.below(whole)}.{self.below(10**digits):0{digits}d}"


@dataclass
class Shop:
    """The database: its rows now, and all that happened."""

    day: str
    clock: int
    dice: Dice = field(default_factory=lambda: Dice(20240501))
    events: list[Event] = field(default_factory=list)
    rows: dict[str, dict[Key, Row]] = field(default_factory=lambda: {t: {} for t in KEYS})
    columns: dict[str, tuple[str, ...]] = field(
        default_factory=lambda: {t: tuple(c for c in TYPES[t] if c not in ("channel", "tier")) for t in KEYS}
    )

    def log(self, kind: str, table: str, before: Row | None, after: Row | None, sql: str = "") -> None:
        """Note what happened, a moment after the last thing."""
        self.clock += self.dice.below(3000)
        event = Event(
            kind, table, self.clock, len(self.events), self.columns[table], before, after and dict(after), sql
        )
        self.events.append(event)

    def put(self, table: str, row: Row, kind: str = "insert") -> None:
        """A new row."""
        key = _key(table, row)
        assert key not in self.rows[table]
        self.rows[table][key] = {column: row.get(column) for column in self.columns[table]}
        self.log(kind, table, None, self.rows[table][key])

    def change(self, table: str, key: Key, **new: str | int | None) -> None:
        """An update; a new key value moves the row."""
        before = self.rows[table].pop(key)
        after = {**before, **new}
        self.rows[table][_key(table, after)] = after
        self.log("update", table, before, after)

    def remove(self, table: str, key: Key) -> None:
        """A delete."""
        self.log("delete", table, self.rows[table].pop(key), None)

    def define(self, kind: str, table: str, sql: str, column: str = "", default: str | None = None) -> None:
        """A statement, alone in its second: one product's statements carry whole seconds only."""
        self.clock += 1000
        if column:
            self.columns[table] += (column,)
            for row in self.rows[table].values():
                row[column] = default
        self.log(kind, table, None, None, sql)
        self.clock += 1000

    def any(self, table: str) -> Key:
        """The key of some row that everyday changes may touch."""
        return self.dice.pick([key for key in sorted(self.rows[table]) if ODD[table] <= key[0] < MOVED])

    def updated(self) -> int:
        """The moment that a row was touched, in milliseconds."""
        return self.clock - self.clock % 10


def _key(table: str, row: Row) -> Key:
    return tuple(int(row[column] or 0) for column in KEYS[table])


def history(start: int = START) -> Shop:
    """The whole history, from ``start`` (milliseconds since 1970 UTC); another start moves its clocks and nothing else."""
    last_afternoon = dt.datetime.fromtimestamp(start / 1000, ZONE) - dt.timedelta(hours=AFTERNOON)
    shop = Shop(last_afternoon.date().isoformat(), start)
    _full_load(shop)
    shop.define("create", "order_lines", CREATE_LINES)
    for _ in range(10):
        _new_order(shop)
    _odd_things(shop)
    _some_days(shop, 30)
    shop.define("alter", "orders", ADD_CHANNEL, "channel", "web")
    _some_days(shop, 25)
    shop.define("alter", "customers", ADD_TIER, "tier")
    _some_days(shop, 28)
    return shop


def _full_load(shop: Shop) -> None:
    for i in range(16):
        shop.put("customers", _customer(shop, i), "read")
    for i in range(18):
        shop.put("orders", _order(shop, 5000 + i), "read")


def _customer(shop: Shop, i: int) -> Row:
    dice = shop.dice
    return {
        "id": 100 + i,
        "name": NAMES[i % len(NAMES)],
        "email": None if i % 7 == 3 else f"c{100 + i}@example.org",
        "city": dice.pick(CITIES),
        "credit": ("-" if i % 5 == 4 else "") + dice.money(5000, 2),
        "joined": f"20{10 + i % 14:02d}-{1 + dice.below(12):02d}-{1 + dice.below(28):02d} {dice.below(24):02d}:30:00",
        "vip": int(i % 4 == 0),
        "updated": shop.updated(),
        "tier": dice.pick(("gold", "silver", None)),
    }


def _order(shop: Shop, number: int) -> Row:
    dice = shop.dice
    return {
        "id": number,
        "customer_id": dice.pick(sorted(shop.rows["customers"]))[0],
        "status": "new",
        "total": dice.money(900, 4),
        "placed": f"{shop.day} {AFTERNOON + dice.below(4):02d}:{dice.below(60):02d}:{dice.below(60):02d}",
        "note": dice.pick(NOTES),
        "channel": dice.pick(("app", "web", "shop")),
    }


def _new_order(shop: Shop) -> None:
    number = 1 + max(key[0] for key in shop.rows["orders"] if key[0] < MOVED)
    shop.put("orders", _order(shop, number))
    for line in range(1, 2 + shop.dice.below(3)):
        price = shop.dice.money(80, 4)
        row: Row = {"order_id": number, "line_no": line, "sku": shop.dice.pick(SKUS)}
        shop.put("order_lines", {**row, "quantity": 1 + shop.dice.below(9), "price": price})


def _some_days(shop: Shop, actions: int) -> None:
    dice = shop.dice
    for _ in range(actions):
        what = dice.below(100)
        if what < 8:
            shop.put("customers", _customer(shop, len(shop.events)))
        elif what < 30:
            key = shop.any("customers")
            shop.change(
                "customers", key, credit=dice.money(9000, 2), vip=dice.below(2), updated=shop.updated()
            )
        elif what < 42:
            _new_order(shop)
        elif what < 72:
            key = shop.any("orders")
            shop.change(
                "orders", key, status=dice.pick(STATUSES), total=dice.money(900, 4), note=dice.pick(NOTES)
            )
        elif what < 90:
            key = shop.any("order_lines")
            shop.change("order_lines", key, quantity=1 + dice.below(99))
        else:
            _cancel(shop, shop.any("orders"))


def _cancel(shop: Shop, key: Key) -> None:
    for line in [line for line in sorted(shop.rows["order_lines"]) if line[0] == key[0]]:
        shop.remove("order_lines", line)
    shop.remove("orders", key)


def _odd_things(shop: Shop) -> None:
    """What mirrors get wrong: exact amounts, moved keys, keys used again, NULL against nothing."""
    shop.change("orders", (5000,), total="1234567890.1200")
    shop.change("orders", (5001,), total="99999999999999.9999")
    shop.change("orders", (5002,), total="0.0000", note=None)
    shop.change("orders", (5003,), note="")
    shop.change("orders", (5004,), note=None)
    shop.change("orders", (5005,), id=9005)  # a changed key, and its lines follow
    for line in [line for line in sorted(shop.rows["order_lines"]) if line[0] == 5018]:
        shop.change("order_lines", line, order_id=9018)
    shop.change("orders", (5018,), id=9018)
    again = dict(shop.rows["orders"][5006,])
    shop.remove("orders", (5006,))
    shop.put("orders", {**again, "status": "new", "note": "second try"})  # the same key again
    shop.remove("customers", (103,))
    shop.put("customers", {**_customer(shop, 3), "email": "", "city": None})
    shop.remove("customers", (104,))
    shop.change("customers", (105,), name="back\\slash, \"quote\" and 'tick'", credit="-0.01")
