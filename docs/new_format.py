"""Make the skeleton of a new format: ``python -m docs.new_format acme-json``.

Writes the module, three sample messages, a writer of random histories and the vendor's page, then the rows that
are generated from them. The skeleton works at once for the messages of its own samples; each line marked
``FILL IN`` is one to replace, and `tests/formats/test_new_format.py` fails and lists them until none is left.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MARK = "FILL IN"


def files(name: str) -> dict[str, str]:
    """The skeleton's files by their path, with their text."""
    module = name.replace("-", "_")
    texts = {
        f"ingest/formats/{module}.py": _MODULE,
        f"tests/formats/{name}/insert.json": _INSERT,
        f"tests/formats/{name}/update.json": _UPDATE,
        f"tests/formats/{name}/delete.json": _DELETE,
        f"tests/formats/{name}/cases.md": _CASES,
        f"tests/formats/one_history/{module}.py": _WRITER,
        f"docs/vendors/{name}.md": _PAGE,
    }
    return {path: text.replace("NAME", name).replace("MARK", MARK) for path, text in texts.items()}


def to_fill_in(root: Path = ROOT) -> Iterator[str]:
    """Each marked line of the formats' files as ``path:line: what to write there``."""
    for folder in ("ingest/formats", "tests/formats", "docs/vendors"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".py", ".md"):
                continue
            for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
                if MARK in line:
                    yield f"{path.relative_to(root)}:{number}: {line.partition(MARK)[2].strip(' :->')}"


def make(name: str, root: Path = ROOT) -> list[Path]:
    """Write the skeleton; nothing that exists is written over.

    Raises:
        SystemExit: the name is no format's name, or a file exists.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        sys.exit(f"{name!r} cannot name a format; use small letters, digits and hyphens, such as acme-json")
    made = {root / path: text for path, text in files(name).items()}
    for path in made:
        if path.exists():
            sys.exit(f"{path.relative_to(root)} exists; choose another name, or remove it first")
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return list(made)


def main() -> None:
    """Write the skeleton and what is generated from it, and say what to do next."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", help="the format's name, such as acme-json")
    name = parser.parse_args().name
    for path in make(name):
        print(f"wrote {path.relative_to(ROOT)}")
    for module in ("docs.matrix", "docs.vendors"):
        importlib.import_module(module).main()
    print(_NEXT.replace("NAME", name))


_NEXT = """wrote the row in README.md and the table in docs/vendors/NAME.md

Next:
  1. .venv/bin/python -m pytest -vv tests/formats/test_new_format.py lists what to fill in.
  2. Put real messages in tests/formats/NAME, then: .venv/bin/python -m pytest -q tests/formats/test_goldens.py -k NAME --bless
     and read each .expected.json that it writes.
  3. When the mark is gone everywhere: .venv/bin/python -m docs.matrix; .venv/bin/python -m docs.vendors
     and .venv/bin/python -m pytest -q tests/formats tests/test_docs.py tests/test_matrix.py tests/test_walls.py"""

_MODULE = '''"""MARK: vendor and product ("Title of the document", section).

- MARK: one line for each quirk of the dialect: what a reader of the document would not expect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Raw

from ingest import values
from ingest.change import Change, Hints, Message, Op, TableId
from ingest.decoding import rows
from ingest.errors import Undecodable
from ingest.formats import About

ABOUT = About(  # MARK: each text; help, `detect`, README.md and the vendor's page are made from them
    title="NAME",
    document="NAME",
    operations=("insert", "update", "delete", "read", "truncate", "ddl"),
    order="pos",
    strength="strong",
    keys="keys",
    types="none in the message: only `columns:` of the pipeline file",
    images="full",
    ddl="sql holds the statement",
    losses=(),
    options={
        "timezone": "zone of times that name none, default UTC",
        "binary": "encoding of bytes, default base64",
        "time_units": "unit of whole-number times; without it they stay as they are",
        "order_by": "sequence (default), arrival or event_time",
    },
)

OPS = {  # MARK: the vendor's words
    "i": Op.INSERT,
    "u": Op.UPDATE,
    "d": Op.DELETE,
    "r": Op.READ,
    "t": Op.TRUNCATE,
    "ddl": Op.DDL,
}
MEMBERS = frozenset({"op", "db", "table", "pos"})
"""MARK: the members that every message has: `recognise` knows the format by them."""


def parse(message: Message, hints: Hints) -> Iterable[Change]:
    """The changes of one message."""
    envelope, note = values.opened(message.sent)
    if not envelope.keys() >= MEMBERS:
        raise Undecodable("not-this-format", f"the message lacks one of {', '.join(sorted(MEMBERS))}")
    place = _place(envelope, note)
    if place.op in (Op.DDL, Op.TRUNCATE):
        sql = values.member_text(envelope, "sql")
        return rows.statement(place, sql, None, truncates=place.op is Op.TRUNCATE)
    return (_row(place, envelope, hints),)


def recognise(sample: bytes) -> str | None:
    """The members that every message has."""
    return ", ".join(sorted(MEMBERS)) if values.opened(sample)[0].keys() >= MEMBERS else None


def _place(envelope: Mapping[str, Raw], note: str | None) -> Change:
    """All but the row: MARK where the operation, the table, the position and the time are."""
    position = values.member_text(envelope, "pos")
    number = values.integer(position)
    return Change(
        op=rows.operation(OPS, values.member_text(envelope, "op") or "", "op"),
        table=TableId(values.member_text(envelope, "db"), None, values.member_text(envelope, "table")),
        sequence=() if number is None else (number,),
        position=position,
        event_time=values.micros_of(values.integer(values.member_text(envelope, "ts")), 1000),
        note=note,
        dialect="mysql",
    )


def _row(place: Change, envelope: Mapping[str, Raw], hints: Hints) -> Change:
    """The row's images by the declared columns: MARK where the images and the key's names are."""
    old, new = envelope.get("before"), envelope.get("after")
    before, after = values.optional_image(old), values.optional_image(new)
    rows.require_image(before if place.op is Op.DELETE else after, place.op)
    declared = hints.tables(place.table)
    plan = rows.plan_of_declared(declared.columns, hints.options)
    kept = [*rows.convert(before, plan, old), *rows.convert(after, plan, new)]
    keys = declared.keys or values.names(envelope.get("keys"))
    return rows.finish(place, place.table, keys, before, after, plan, kept)
'''

_WRITER = '''"""MARK: vendor and document, as in the format's module; this writes what the vendor's capture would send."""

from __future__ import annotations

from typing import Any

from ingest.change import Message
from tests.formats.one_history.history import TYPES, Event, History
from tests.formats.one_history.oms import plain
from tests.formats.one_history.writing import Dialect, Loss, cells, message, pipeline_hints

OPS = {"read": "r", "insert": "i", "update": "u", "delete": "d", "truncate": "t", "alter": "ddl"}


def write(history: History) -> list[Message]:
    """One message for each event."""
    return [message(_message(event), event) for event in history.events]


def _message(event: Event) -> dict[str, Any]:
    """MARK: one message as the vendor's document shows it."""
    frame: dict[str, Any] = {
        "db": event.database,
        "table": event.table,
        "op": OPS[event.kind],
        "ts": event.time,
        "pos": event.number,
    }
    if event.sql:
        return frame | {"sql": event.sql}
    if event.kind == "truncate":
        return frame
    images = {"before": cells(event, event.before, plain), "after": cells(event, event.after, plain)}
    return frame | {"keys": list(event.keys)} | images


DIALECTS = {"NAME": Dialect("NAME", write, pipeline_hints(TYPES, keys=False))}
LOSSES: dict[str, Loss] = {}  # MARK: what the dialect cannot say, as `Loss` lists it; nothing if it loses nothing
'''

_INSERT = """{
 "db": "shop",
 "table": "orders",
 "op": "i",
 "ts": 1714564800000,
 "pos": 1,
 "keys": ["id"],
 "before": null,
 "after": {"id": 1, "price": 1.10, "note": "first"}
}
"""
_UPDATE = (
    _INSERT.replace('"i"', '"u"')
    .replace('"pos": 1', '"pos": 2')
    .replace('"before": null', '"before": {"id": 1, "price": 1.10, "note": "first"}')
    .replace(
        '"after": {"id": 1, "price": 1.10, "note": "first"}',
        '"after": {"id": 1, "price": 1.10, "note": null}',
    )
)
_DELETE = """{
 "db": "shop",
 "table": "orders",
 "op": "d",
 "ts": 1714564800000,
 "pos": 3,
 "keys": ["id"],
 "before": {"id": 1, "price": 1.10, "note": null},
 "after": null
}
"""
_CASES = """# Cases of NAME

MARK: replace the three messages here by the vendor's own, add one for each quirk, and delete this file.
"""
_PAGE = """# NAME

MARK: the vendor's and the product's name as the title.

## At the source

MARK: what to switch on, and why.

## Here

```yaml
pipeline: shop
lake: ./lake
sources:
  - {name: orders, kind: kafka, bootstrap_servers: 'broker-1:9092', topics: [orders], format: NAME}
tables:
  - match: shop.orders
    columns: {id: int64, price: "decimal(18,4)"}
```

## Types, and what to watch

MARK: what the document warns of.

## The format

<!-- formats:begin, written by docs/vendors.py --><!-- formats:end -->
"""


if __name__ == "__main__":
    main()
