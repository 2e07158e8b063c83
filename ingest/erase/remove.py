"""An erasure's steps: the barrier, then each table, then the certificate; each may be repeated after a kill.

The product's own tables are read by DuckDB to see whether a step has anything to do, and changed by Spark's MERGE in
one commit each.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ingest.change import ROW_OPS, Message, TableId
from ingest.erase import plan as planning
from ingest.erase.plan import Erasure, Texts, batched
from ingest.errors import IngestError, command
from ingest.gold import feeds as filling
from ingest.lake import barriers, commits, decisions, duck, feeds, histories, log, mirrors, sealing, shadow
from ingest.lake.barriers import HEADER, Barrier, Barriers, left_of
from ingest.lake.decisions import ALERT, ERASE, ERASED, Decision
from ingest.lake.envelope import Opener, Parts
from ingest.lake.lake import Lake
from ingest.lake.maintenance import cleaning_session, run_vacuum
from ingest.lake.mirrors import Mirror
from ingest.lake.names import literal, quoted
from ingest.lake.rejects import PLACE, REPLAY
from ingest.lake.schemas import BRONZE, CHANGES, CHECKS, DECISIONS, REJECTS, RUNS, TableSchema
from ingest.lake.tables import LOG_DAYS, Row
from ingest.quality.catalogue import LAST_RUN
from ingest.silver.lift import Deck, Lifting
from ingest.silver.messages import Messages
from ingest.silver.registry import schemas
from ingest.spark.settings import USER_METADATA

GONE = "(erased)"
LOG = "_delta_log"
Tell = Callable[[str, str], None]
_SETTINGS = {
    "spark.sql.caseSensitive": "true",
    "spark.databricks.delta.merge.deletionVectors.persistent": "false",  # rows leave the files at once
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
}
_REWRITTEN = (BRONZE, CHANGES, REJECTS, CHECKS, RUNS, DECISIONS)


@dataclass(frozen=True, slots=True)
class Certificate:
    """What was erased, for an auditor: no key and no value of the rows is in it."""

    number: str
    table: str
    reason: str
    by: str
    started_at: str
    completed_at: str
    rows: int  # that were named
    removed: dict[str, dict[str, int]]  # by step and table: rows, messages, files
    barriers: list[dict[str, Any]] = field(default_factory=list)  # source, table, digests
    readable_until: str | None = None  # old versions of the tables; None: deleted
    left: list[str] = field(default_factory=list)  # what no erasure can look into


def erase(lake: Lake, erasure: Erasure, tell: Tell = lambda _table, _step: None) -> Certificate:
    """Carry an erasure out, or the rest of one that was begun.

    Args:
        lake: the lake, whose lock the caller holds.
        erasure: what to remove.
        tell: called with the table and the step that begins.

    Raises:
        IngestError: a message is no longer decoded as it was; nothing has been removed then.
    """
    session = session_of(lake)
    known = mirrors.known(lake)
    parts = [(one, known[one.path]) for one in erasure.of_mirrors]
    messages = _replaced(lake, erasure)
    erasure.save(lake)
    _decide(lake, erasure)
    for name, step in _steps(lake, session, parts, messages):
        tell(name, "erasing")
        counts = {kind: n for kind, n in step().items() if n}
        sums = erasure.done.setdefault(name, {})
        for kind, count in counts.items():
            sums[kind] = sums.get(kind, 0) + count
        erasure.save(lake)
    if erasure.now:
        for name, mirror in {name: one for _, one in parts for name in _tables(lake, one)}.items():
            tell(name, "deleting old files")
            erasure.done.setdefault(name, {})["old files"] = _purge(lake, session, name, mirror)
            erasure.save(lake)
    certificate = _certificate(lake, erasure)
    value = {key: cell for key, cell in asdict(certificate).items() if key not in ("reason", "by")}
    why = (erasure.reason, erasure.by)
    decisions.append(
        lake,
        [Decision(ERASED, one.path, value | {"table": one.mirror}, lake.decoded(), *why) for one, _ in parts],
    )
    planning.forget(lake)
    return certificate


def session_of(lake: Lake) -> SparkSession:
    """A session for the removal."""
    return cleaning_session(lake, _SETTINGS)


def _metadata(lake: Lake, name: str) -> str:
    """What the next commit into a table carries: this run, and what the one before says of the whole table."""
    kept = {
        mark: value for mark, value in lake.last_marks(name).items() if mark not in ("run", "batch", "landed")
    }
    return json.dumps(kept | {"run": lake.run})


def _decide(lake: Lake, erasure: Erasure) -> None:
    """The barrier, once: from here on nothing of the rows is decoded again."""
    barriers.decide_secret(lake, erasure.secret)
    known = decisions.read(lake).of(ERASE)
    if all(one.value["number"] != erasure.number for one in known):
        value = {"number": erasure.number, "table": erasure.mirror, "barriers": erasure.barriers}
        decided = Decision(ERASE, erasure.path, value, lake.decoded(), erasure.reason, erasure.by)
        decisions.append(lake, [decided])


SEALED = "sealed"  # a row's bytes as bronze has them, next to what they were sealed from
Step = tuple[str, Callable[[], dict[str, int]]]


def _steps(
    lake: Lake,
    session: SparkSession,
    parts: Sequence[tuple[Erasure, Mirror]],
    messages: Sequence[tuple[Any, ...]],
) -> Iterator[Step]:
    yield BRONZE.name, lambda: erase_messages(lake, session, messages)
    for erasure, mirror in parts:
        yield from _steps_of(lake, session, erasure, mirror)
    yield CHANGES.name, lambda: _erase_changes(lake, session, parts[0][0])
    yield "killed rebuilds", lambda: {"files": shadow.clean(lake)}


def _steps_of(lake: Lake, session: SparkSession, erasure: Erasure, mirror: Mirror) -> Iterator[Step]:
    """What names the rows of one mirror, and its tables."""
    history = histories.table_of(mirror)
    yield REJECTS.name, lambda: _erase_rejects(lake, session, erasure, mirror)
    yield DECISIONS.name, lambda: _erase_dismissals(lake, session, erasure, mirror)
    yield CHECKS.name, lambda: _erase_checks(lake, session, erasure)
    yield RUNS.name, lambda: _erase_runs(lake, session, erasure)
    if lake.exists(history.path):
        yield history.path, lambda: _erase_rows(lake, session, history, erasure.alone)
    if lake.exists(mirror.path):
        yield mirror.path, lambda: _erase_rows(lake, session, mirror, erasure.rows)
    if lake.exists(feeds.path_of(mirror)):
        yield feeds.path_of(mirror), lambda: _erase_feed(lake, session, mirror, erasure.keys)


def _merge(
    lake: Lake,
    session: SparkSession,
    schema: TableSchema,
    named: Sequence[str],
    rows: Sequence[Sequence[Any]],
    then: str,
    *,
    new: str = "",
    where: str = "true",
) -> int:
    """Delete or update a product table's rows whose columns ``named`` are those of ``rows``; how many they were.

    ``new`` declares further columns of ``rows``, for the update.
    """
    same = " AND ".join(f"t.{quoted(name)} <=> s.{quoted(name)}" for name in named)
    ddl = ", ".join(filter(None, (schema.part_ddl(*named), new)))
    return _merged(lake, session, schema.name, rows, ddl, f"{where} AND {same}", then)


def _merged(
    lake: Lake, session: SparkSession, name: str, rows: Sequence[Sequence[Any]], ddl: str, on: str, then: str
) -> int:
    """The same for any table, by a condition on its rows ``t`` and the given ones ``s``."""
    if not rows:
        return 0
    session.conf.set(USER_METADATA, _metadata(lake, name))
    session.createDataFrame([tuple(row) for row in rows], ddl).createOrReplaceTempView("erasing")
    try:
        found = session.sql(
            f"MERGE INTO {lake.named(name)} AS t USING erasing AS s ON {on} WHEN MATCHED THEN {then}"
        ).first()
        return int(found["num_affected_rows"]) if found is not None else 0
    finally:
        session.catalog.dropTempView("erasing")


# --- bronze ---------------------------------------------------------------------------------------


def _replaced(lake: Lake, erasure: Erasure) -> list[tuple[Any, ...]]:
    """Replacements of the rows' messages, and of the rows of replays.

    Raises:
        IngestError: a message is no longer decoded as it was.
    """
    wanted: dict[tuple[Any, ...], dict[int, set[tuple[int | None, str]]]] = {}
    for one in erasure.changes:
        if one.topic is not None:  # a complete re-snapshot's deletes have no message
            wanted.setdefault(one.place, {}).setdefault(one.batch, set()).add((one.row, one.order_key))
    found: list[tuple[Any, ...]] = []
    replays = _rows_at(lake, REPLAY, wanted)
    for row in replays:
        told = json.loads(row["value"])
        mine = wanted[_place(row)]
        if row["batch"] in mine:
            mine.setdefault(told["batch"], set()).update(mine[row["batch"]])
            told["reject"] = told.get("reject", {}) | {"detail": GONE}
            value = json.dumps(told, ensure_ascii=False).encode()
            found.append((*_place(row), row["batch"], REPLAY, bytearray(value), None))
    keys = sealing.opener(lake)
    rows = [
        opened(keys, row)
        for row in _rows_at(lake, "message", wanted)
        if row["batch"] in wanted[_place(row)]
        and not (keys.seals(row["batch"]) and keys.is_lost(row["value"]))
    ]
    secret = Barriers(erasure.secret)
    decks = _decks(lake, secret, keys, {row["source"] for row in rows}, {row["batch"] for row in rows})
    for row in rows:
        numbers = {number for number, _ in wanted[_place(row)][row["batch"]]}
        if (new := replacement(decks[row["source"]], secret, row, numbers)) is not None:
            found.append(message_row(keys, row, *new))
    return found


def opened(keys: Opener, row: Row) -> Row:
    """A message's row of bronze as it was sent, with its sealed bytes if it is sealed.

    Raises:
        SealError: the key of its day is not there.
    """
    if not keys.seals(row["batch"]):
        return row
    return row | keys.open(row["batch"], _place(row), row["value"])._asdict() | {SEALED: row["value"]}


def message_row(keys: Opener, row: Row, value: bytes, signature: bytes) -> tuple[Any, ...]:
    """A message's replacement, sealed as the message was, for `erase_messages`."""
    place, batch = _place(row), row["batch"]
    if SEALED not in row:
        return *place, batch, "message", bytearray(value), bytearray(signature)
    parts = Parts(None, value, [{"key": HEADER, "value": signature}])
    return *place, batch, "message", bytearray(keys.sealed_again(batch, place, row[SEALED], parts)), None


def _place(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in PLACE)


def _rows_at(lake: Lake, kind: str, places: Iterable[tuple[Any, ...]]) -> Iterator[Row]:
    names = ", ".join(map(duck.name, PLACE))
    for some in batched(places):
        yield from lake.ask(
            f'SELECT {names}, batch, "key", "value", headers FROM {{bronze.{kind}}} '
            f"WHERE ({names}) IN ({duck.listed(some)})"
        )


def _decks(
    lake: Lake, secret: Barriers, keys: Opener, sources: set[str], batches: set[int]
) -> dict[str, Deck]:
    """What decodes the messages of some sources."""
    messages = Messages(
        lake,
        lambda: lake.read(BRONZE.name).where(
            (F.col("kind") == "message") & F.col("batch").isin(sorted(batches))
        ),
    )
    pipeline = lake.pipeline
    how = Lifting(pipeline, schemas=schemas(lake, messages, keys) if sources else {}, barriers=secret)
    ranks = {source.name: rank for rank, source in enumerate(pipeline.sources)}
    return {name: Deck(how, ranks[name], name) for name in sources}


def replacement(
    deck: Deck, secret: Barriers, row: Row, numbers: set[int | None]
) -> tuple[bytes, bytes] | None:
    """The replacement of a message without the rows of some numbers, and its signature; None if it lacks them already.

    ``deck`` decodes the message, ``secret`` signs the replacement, ``row`` is the message's row of bronze.

    Raises:
        IngestError: it does not hold these rows.
    """
    headers = tuple((one["key"], one["value"]) for one in row["headers"] or ())
    value = None if row["value"] is None else bytes(row["value"])
    erased, table = 0, None
    if secret.is_replacement(headers, value):
        before = left_of(value or b"")
        found, erased, table = before.kept, before.erased, before.table
        if not any(one.op in ROW_OPS and one.row in numbers for one in found):
            return None
    else:
        key = None if row["key"] is None else bytes(row["key"])
        found = deck.parsed(Message(value, key, row["topic"], headers))
    going = [one for one in found if one.op in ROW_OPS and one.row in numbers]
    if {one.row for one in going} != numbers or len(going) != len(numbers):
        place = "/".join(str(row[name]) for name in PLACE)
        raise IngestError(
            f"The message at {place} is decoded otherwise today than when its changes were written: "
            f"`{command('rebuild', deck.pipeline.file, '--layer', 'silver')}` first."
        )
    kept = [one for one in found if one not in going]
    return secret.replacement(table or going[0].table, erased + len(going), kept)


def erase_messages(lake: Lake, session: SparkSession, rows: Sequence[tuple[Any, ...]]) -> dict[str, int]:
    """Replace messages; each row is its place, batch, kind, new value and its signature, which a sealed value has within."""
    header = f"array(named_struct('key', '{HEADER}', 'value', s.signature))"
    kinds = "', '".join(sorted({row[5] for row in rows}))
    then = (
        "UPDATE SET `value` = s.new_value, `key` = NULL, "
        f"headers = CASE WHEN s.signature IS NULL THEN t.headers ELSE {header} END"
    )
    named, new = (*PLACE, "batch", "kind"), "new_value BINARY, signature BINARY"
    done = _merge(lake, session, BRONZE, named, rows, then, new=new, where=f"t.kind IN ('{kinds}')")
    return {"messages": done}


# --- the product's other tables ---------------------------------------------------------------------


def _erase_rejects(lake: Lake, session: SparkSession, erasure: Erasure, mirror: Mirror) -> dict[str, int]:
    """Gold's rejects go; what silver wrote of messages that were decoded later loses its words."""
    named = ("kind", "batch", *PLACE, "key", "column", "raw", "detail")
    rows = [[row[name] for name in named] for row in planning.rejects(lake, erasure, mirror)]
    done = _merge(lake, session, REJECTS, named, rows, "DELETE")
    told: list[tuple[Any, ...]] = []
    names, placed = ", ".join(map(duck.name, PLACE)), (*PLACE, "batch")
    for some in batched({one.place for one in erasure.changes if one.topic is not None}):
        found = lake.ask(
            f"SELECT DISTINCT {names}, batch FROM {{rejects}} WHERE kind = 'message' "
            f"AND detail <> '{GONE}' AND ({names}) IN ({duck.listed(some)})"
        )
        told += [tuple(row[name] for name in placed) for row in found]
    then = f"UPDATE SET detail = '{GONE}', raw = NULL"
    _merge(lake, session, REJECTS, placed, told, then, where="t.kind = 'message'")
    then = f"UPDATE SET payload = to_json(struct(get_json_object(t.payload, '$.reason') AS reason, '{GONE}' AS detail))"
    _merge(lake, session, CHANGES, placed, told, then, where="t.kind = 'reject'")
    return {"rows": done, "details": len(told)}


def _erase_dismissals(lake: Lake, session: SparkSession, erasure: Erasure, mirror: Mirror) -> dict[str, int]:
    """Dismissals that name the rows go, and alerts that quote them lose their words."""
    named = ("number", "kind", "subject")
    rows = [[row[name] for name in named] for row in planning.dismissals(lake, erasure, mirror)]
    done = _merge(lake, session, DECISIONS, named, rows, "DELETE")
    alerts = lake.ask(
        f"SELECT DISTINCT number, kind, subject, value FROM {{decisions}} WHERE kind = {duck.text(ALERT)}"
    )
    told = list(quoting_alerts(alerts, erasure))
    then = "UPDATE SET subject = s.new_subject, value = s.new_value"
    _merge(lake, session, DECISIONS, named, told, then, new="new_subject STRING, new_value STRING")
    return {"rows": done, "alerts": len(told)}


def quoting_alerts(rows: Iterable[Row], erasure: Erasure) -> Iterator[tuple[Any, ...]]:
    """The alerts about a mirror that quote an erased row: their identity, and their subject and value without it."""
    quotes = planning.quoting(erasure)
    for row in rows:
        value = json.loads(row["value"])
        text, subject = value.get("text"), row["subject"]
        if erasure.mirror not in f"{subject} {text}":
            continue
        if subject.startswith(LAST_RUN):  # other subjects are names of tables and checks
            subject = _shown(subject, quotes)
        value["text"] = _shown(text, quotes)
        if (subject, value["text"]) != (row["subject"], text):
            yield row["number"], row["kind"], row["subject"], subject, json.dumps(value, ensure_ascii=False)


def _erase_checks(lake: Lake, session: SparkSession, erasure: Erasure) -> dict[str, int]:
    """Keys and cells go from lists of failing keys and from details; the verdicts stay."""
    quotes = planning.quoting(erasure)
    named = ("run", "batch", "mirror", "check", "column", "failing", "detail")
    columns = ", ".join(map(duck.name, named))
    rows = []
    for row in lake.ask(
        f"SELECT DISTINCT {columns} FROM {{checks}} WHERE mirror = {duck.text(erasure.mirror)}"
    ):
        failing, detail = _without(row["failing"], quotes), _shown(row["detail"], quotes)
        if (failing, detail) != (row["failing"], row["detail"]):
            rows.append([*(row[name] for name in named), failing, detail])
    then, new = (
        "UPDATE SET failing = s.new_failing, detail = s.new_detail",
        "new_failing STRING, new_detail STRING",
    )
    return {"rows": _merge(lake, session, CHECKS, named, rows, then, new=new)}


def _without(failing: str | None, quotes: Any) -> str | None:
    if failing is None:
        return None
    keys = json.loads(failing)
    kept = [one for one in keys if not quotes.search(str(one))]
    return failing if kept == keys else json.dumps(kept, ensure_ascii=False)


def _shown(text: str | None, quotes: Any) -> str | None:
    return GONE if text is not None and text != GONE and quotes.search(text) else text


def _erase_runs(lake: Lake, session: SparkSession, erasure: Erasure) -> dict[str, int]:
    quotes = planning.quoting(erasure)
    rows = [
        (row["run"], row["message"])
        for row in lake.ask(
            "SELECT DISTINCT run, message FROM {runs} "
            f"WHERE message IS NOT NULL AND subject = {duck.text(erasure.mirror)}"
        )
        if _shown(row["message"], quotes) != row["message"]
    ]
    then = f"UPDATE SET message = '{GONE}'"
    return {"rows": _merge(lake, session, RUNS, ("run", "message"), rows, then)}


def _erase_rows(lake: Lake, session: SparkSession, mirror: Mirror, keys: Sequence[Texts]) -> dict[str, int]:
    """The rows of a mirror or its history."""
    same = [
        f"t.{quoted(one.column)} = "
        + (f"unbase64(s.k{i})" if one.delta == "BINARY" else f"CAST(s.k{i} AS {one.delta})")
        for i, one in enumerate(mirror.key_columns)
    ]
    return _erase_keys(lake, session, mirror.path, keys, same)


def _erase_feed(lake: Lake, session: SparkSession, mirror: Mirror, keys: Sequence[Texts]) -> dict[str, int]:
    """The rows of a change feed, and those that the removal of the mirror's rows adds to it."""
    filling.follow(lake, mirror)
    image = "from_json(coalesce(t.after, t.before), 'MAP<STRING, STRING>')"
    same = [
        f"CAST({image}[{literal(one.column)}] AS {one.delta}) = CAST(s.k{i} AS {one.delta})"
        for i, one in enumerate(mirror.key_columns)
    ]
    return _erase_keys(lake, session, feeds.path_of(mirror), keys, same)


def _erase_keys(
    lake: Lake, session: SparkSession, name: str, keys: Sequence[Texts], same: Sequence[str]
) -> dict[str, int]:
    """Delete rows by conditions on the texts of each key; what deletion vectors hide goes from the files, too."""
    ddl = ", ".join(f"k{i} STRING" for i in range(len(same)))
    done = _merged(lake, session, name, keys, ddl, " AND ".join(same), "DELETE")
    if any(one.deleted for one in lake.snapshot(name).files):
        session.conf.set(USER_METADATA, _metadata(lake, name))
        session.sql(f"REORG TABLE {lake.named(name)} APPLY (PURGE)").collect()
    return {"rows": done}


def _erase_changes(lake: Lake, session: SparkSession, erasure: Erasure) -> dict[str, int]:
    named = ("batch", *PLACE, "row", "order_key", *TableId._fields)
    rows = [tuple(getattr(one, name) for name in named) for one in erasure.changes]
    return {"rows": _merge(lake, session, CHANGES, named, rows, "DELETE", where="t.kind = 'change'")}


# --- old files ------------------------------------------------------------------------------------


def _tables(lake: Lake, mirror: Mirror) -> list[str]:
    """Every table whose old versions may hold the rows."""
    names = [schema.name for schema in _REWRITTEN]
    names += [mirror.path, histories.path_of(mirror), feeds.path_of(mirror)]
    return [name for name in names if lake.exists(name)]


def _purge(lake: Lake, session: SparkSession, name: str, mirror: Mirror) -> int:
    """Delete every file that the newest version does not need, and what the log says of them; how many they were."""
    table, metadata = lake.named(name), _metadata(lake, name)
    session.conf.set(USER_METADATA, metadata)
    before = _data_files(lake, name)
    run_vacuum(session, table, "RETAIN 0 HOURS")
    version = commits.mark(lake.path(name), metadata)
    if name == mirror.path and lake.exists(feeds.path_of(mirror)):
        filling.skip(lake, mirror)  # the version that the feed has reached is about to go
    log.checkpoint(session, lake.path(name))
    commits.forget(lake.path(name), version)
    return before - _data_files(lake, name)


def _data_files(lake: Lake, name: str) -> int:
    folder = Path(lake.path(name))
    return sum(one.is_file() and LOG not in one.relative_to(folder).parts for one in folder.rglob("*"))


# --- the certificate --------------------------------------------------------------------------------


def _certificate(lake: Lake, erasure: Erasure) -> Certificate:
    now = lake.now()
    until = now + dt.timedelta(days=max(LOG_DAYS, lake.pipeline.horizon_days))
    given = {name: getattr(erasure, name) for name in ("number", "reason", "by", "started_at")}
    return Certificate(
        **given,
        table=erasure.mirror,
        completed_at=now.isoformat(timespec="seconds"),
        rows=erasure.asked,
        removed={name: counts for name, counts in erasure.done.items() if counts},
        barriers=[
            {"source": one.source, "table": str(one.table), "keys": sorted(one.stretches)}
            for one in map(Barrier.from_value, erasure.barriers)
        ],
        readable_until=None if erasure.now else until.isoformat(timespec="seconds"),
        left=planning.unknown(lake, erasure),
    )
