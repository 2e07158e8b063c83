"""What else names erased rows: rejects, decisions, and what the product wrote about them in words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from ingest.erase.plan import Erasure, Texts
from ingest.erase.quotes import Quotes
from ingest.errors import command, counted
from ingest.fold import Key
from ingest.gold import evidence
from ingest.ledgers.barriers import GONE, Barrier
from ingest.ledgers.mirrors import Mirror
from ingest.ledgers.rejects import PLACE, key_of
from ingest.tables import duck
from ingest.tables.tables import Row, Tables


def rejects(lake: Tables, erasure: Erasure, mirror: Mirror) -> list[Row]:
    """Gold's rejects of the rows' cells and changes."""
    keys = _typed(mirror, erasure.keys)
    alone = _typed(mirror, erasure.alone)
    places = {change.place for change in erasure.changes}
    traces = []
    for row in lake.ask(
        f"SELECT * FROM {{rejects}} WHERE kind <> 'message' AND {duck.of_table(mirror.table)}"
    ):
        key = key_of(mirror, row["key"])
        if key in alone or (key in keys and tuple(row[name] for name in PLACE) in places):
            traces.append(row)
    return traces


def dismissals(lake: Tables, erasure: Erasure, mirror: Mirror) -> list[Row]:
    """Decisions on rejects that name the rows' keys."""
    keys = _typed(mirror, erasure.keys)
    traces = []
    for row in lake.ask("SELECT number, kind, subject FROM {decisions} WHERE kind = 'dismiss-reject'"):
        named = json.loads(row["subject"])
        same = tuple(named.get(name) for name in ("database", "schema", "table")) == tuple(mirror.table)
        if same and key_of(mirror, named.get("key")) in keys:
            traces.append(row)
    return traces


def _typed(mirror: Mirror, keys: Iterable[Texts]) -> set[Key]:
    return {evidence.typed_key(mirror, key) for key in keys}


def quoting(erasure: Erasure) -> Quotes:
    """What finds the rows' keys and cells in a text."""
    return Quotes({text for key in erasure.keys for text in key}, erasure.cells)


def unknown(lake: Tables, erasure: Erasure) -> list[str]:
    """What may hold more of the rows, in sentences without a key or a value."""
    traces = []
    sources = ", ".join(
        sorted({duck.text(Barrier.from_value(barrier).source) for barrier in erasure.barriers})
    )
    [undecoded] = lake.ask(
        f"SELECT count(*) AS n FROM {{rejects}} WHERE kind = 'message' AND detail <> '{GONE}' AND source IN ({sources or 'NULL'})"
    )
    if n := undecoded["n"]:
        traces.append(
            f"{counted(n, 'message')} that could not be decoded and may hold anything: `{command('rejects', lake.pipeline.file)}`"
        )
    traces += _named_elsewhere(lake, quoting(erasure))
    if erasure.doubtful:
        traces.append(
            f"{counted(len(erasure.doubtful), 'other key')}, inserted or deleted at the places in history at which these rows "
            "were deleted or inserted, as a changed key is: the command has named them; erase those of the same rows"
        )
    if erasure.unplaced:
        traces.append(
            f"other keys of these rows: {counted(erasure.unplaced, 'insert or delete', 'inserts and deletes')} came without a "
            "position, and their source sends a changed key as a delete and an insert: erase other keys of the same rows, too"
        )
    return traces


# texts that cannot be cut: names, and sentences that the operator wrote
_ELSEWHERE = {
    "names of files or topics": "SELECT DISTINCT topic AS text FROM {bronze} WHERE topic IS NOT NULL",
    "statements in the DDL ledger": "SELECT DISTINCT statement AS text FROM {ddl} WHERE statement IS NOT NULL",
    "reasons in decisions": "SELECT DISTINCT reason AS text FROM {decisions} WHERE reason IS NOT NULL",
    "schemas of the registry": "SELECT DISTINCT schema AS text FROM {schemas} WHERE schema IS NOT NULL",
}


def _named_elsewhere(lake: Tables, quotes: Quotes) -> Iterator[str]:
    """Where longer values of the rows stand that no erasure removes, in sentences without a value."""
    for what, query in _ELSEWHERE.items():
        if n := sum(quotes.surely_in(row["text"]) for row in lake.ask(query)):
            yield f"{what} in which a value of the rows is: {n}"
