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

from ingest.change import TableId
from ingest.erase import plan as planning
from ingest.erase import traces
from ingest.erase.plan import Erasure, Texts, batched
from ingest.erase.quotes import Quotes
from ingest.erase.replacements import replaced
from ingest.formats import ingest_snapshot
from ingest.gold import feeds as filling
from ingest.ledgers import decisions, feeds, histories, mirrors
from ingest.ledgers.barriers import GONE, HEADER, Barrier
from ingest.ledgers.decisions import ALERT, ERASE, ERASE_SECRET, ERASED, Decision
from ingest.ledgers.maintenance import cleaning_session, run_vacuum
from ingest.ledgers.mirrors import Mirror
from ingest.ledgers.rejects import PLACE
from ingest.quality.catalogue import LAST_RUN
from ingest.spark.settings import USER_METADATA
from ingest.store.names import literal, quoted
from ingest.tables import commits, duck, log, snapshots, staging
from ingest.tables.lake import Lake, Tell
from ingest.tables.schemas import BRONZE, CHANGES, CHECKS, DECISIONS, REJECTS, RUNS, TableSchema
from ingest.tables.tables import LOG_DAYS, Row, Tables

LOG = "_delta_log"
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
    removal = Removal.of(lake)
    mirrors_by_path = mirrors.known(lake)
    parts = [(share, mirrors_by_path[share.path]) for share in erasure.of_mirrors]
    messages = replaced(lake, erasure)
    erasure.save(lake)
    _decide(lake, erasure)
    for name, step in removal.steps(parts, messages):
        tell(name, "erasing")
        counts = {kind: n for kind, n in step().items() if n}
        sums = erasure.done.setdefault(name, {})
        for kind, count in counts.items():
            sums[kind] = sums.get(kind, 0) + count
        erasure.save(lake)
    if erasure.now:
        mirror_of = {name: mirror for _, mirror in parts for name in _tables(lake, mirror)}
        for name, mirror in mirror_of.items():
            tell(name, "deleting old files")
            erasure.done.setdefault(name, {})["old files"] = removal.purge(name, mirror)
            erasure.save(lake)
    certificate = _certificate(lake, erasure)
    value = {key: cell for key, cell in asdict(certificate).items() if key not in ("reason", "by")}
    why = (erasure.reason, erasure.by)
    decisions.append(
        lake,
        [
            Decision(ERASED, share.path, value | {"table": share.mirror}, lake.decoded(), *why)
            for share, _ in parts
        ],
    )
    planning.forget(lake)
    return certificate


def _decide(lake: Lake, erasure: Erasure) -> None:
    """The barrier, once: from here on nothing of the rows is decoded again."""
    ledger, decided = decisions.read(lake), list[Decision]()
    if not any(ledger.of(ERASE_SECRET)):
        decided.append(Decision(ERASE_SECRET, lake.pipeline.name, {"secret": erasure.secret}))
    if all(decision.value["number"] != erasure.number for decision in ledger.of(ERASE)):
        value = {"number": erasure.number, "table": erasure.mirror, "barriers": erasure.barriers}
        why = (erasure.reason, erasure.by)
        decided.append(Decision(ERASE, erasure.path, value, lake.decoded(), *why))
    decisions.append(lake, decided)


Step = tuple[str, Callable[[], dict[str, int]]]


@dataclass(frozen=True, slots=True)
class Removal:
    """Removes rows from the tables of a lake; whatever a method does may be repeated after a kill."""

    lake: Lake
    session: SparkSession

    @classmethod
    def of(cls, lake: Lake) -> Removal:
        """The removal in a session of its own."""
        return cls(lake, cleaning_session(lake, _SETTINGS))

    def steps(
        self, parts: Sequence[tuple[Erasure, Mirror]], messages: Sequence[tuple[Any, ...]]
    ) -> Iterator[Step]:
        """The steps of an erasure, each by the table that it changes."""
        yield BRONZE.name, lambda: self.messages(messages)
        for erasure, mirror in parts:
            yield from self._steps_of(erasure, mirror)
        yield CHANGES.name, lambda: self._changes(parts[0][0])
        yield "snapshots", lambda: {"files": snapshot_files(self.lake, parts[0][0])}
        yield "killed rebuilds", lambda: {"files": staging.clean(self.lake)}

    def _steps_of(self, erasure: Erasure, mirror: Mirror) -> Iterator[Step]:
        """What names the rows of one mirror, and its tables."""
        history = histories.table_of(mirror)
        yield REJECTS.name, lambda: self._rejects(erasure, mirror)
        yield DECISIONS.name, lambda: self._dismissals(erasure, mirror)
        yield CHECKS.name, lambda: self._checks(erasure)
        yield RUNS.name, lambda: self._runs(erasure)
        if self.lake.exists(history.path):
            yield history.path, lambda: self._rows(history, erasure.alone)
        if self.lake.exists(mirror.path):
            yield mirror.path, lambda: self._rows(mirror, erasure.rows)
        if self.lake.exists(feeds.path_of(mirror)):
            yield feeds.path_of(mirror), lambda: self._feed(mirror, erasure.keys)

    def messages(self, rows: Sequence[tuple[Any, ...]]) -> dict[str, int]:
        """Replace messages; each row is its place, batch, kind, new value and its signature, which a sealed value has within."""
        header = f"array(named_struct('key', '{HEADER}', 'value', s.signature))"
        kinds = "', '".join(sorted({row[5] for row in rows}))
        then = (
            "UPDATE SET `value` = s.new_value, `key` = NULL, "
            f"headers = CASE WHEN s.signature IS NULL THEN t.headers ELSE {header} END"
        )
        named, new = (*PLACE, "batch", "kind"), "new_value BINARY, signature BINARY"
        done = self._merge(BRONZE, named, rows, then, new=new, where=f"t.kind IN ('{kinds}')")
        return {"messages": done}

    def _rejects(self, erasure: Erasure, mirror: Mirror) -> dict[str, int]:
        """Delete gold's rejects, and remove the words of what silver wrote of messages that were decoded later."""
        named = ("kind", "batch", *PLACE, "key", "column", "raw", "detail")
        rows = [[row[name] for name in named] for row in traces.rejects(self.lake, erasure, mirror)]
        done = self._merge(REJECTS, named, rows, "DELETE")
        holding = {change.place for change in erasure.changes if change.topic is not None}
        return {"rows": done} | self.details(holding.union(erasure.parts))

    def details(self, places: Iterable[tuple[Any, ...]]) -> dict[str, int]:
        """Remove the words of what silver wrote of messages at some places when it could not decode them."""
        with_details: list[tuple[Any, ...]] = []
        names, placed = ", ".join(map(duck.name, PLACE)), (*PLACE, "batch")
        for places_of_batch in batched(places):
            rejected = self.lake.ask(
                f"SELECT DISTINCT {names}, batch FROM {{rejects}} WHERE kind = 'message' "
                f"AND detail <> '{GONE}' AND ({names}) IN ({duck.listed(places_of_batch)})"
            )
            with_details += [tuple(row[name] for name in placed) for row in rejected]
        # the rejects last: they say what there is to do
        then = f"UPDATE SET payload = to_json(struct({_member('reason')}, '{GONE}' AS detail, {_member('decoder')}))"
        self._merge(CHANGES, placed, with_details, then, where="t.kind = 'reject'")
        then = f"UPDATE SET detail = '{GONE}', raw = NULL"
        self._merge(REJECTS, placed, with_details, then, where="t.kind = 'message'")
        return {"details": len(with_details)}

    def _dismissals(self, erasure: Erasure, mirror: Mirror) -> dict[str, int]:
        """Delete dismissals that name the rows, and remove what alerts quote of them."""
        named = ("number", "kind", "subject")
        rows = [[row[name] for name in named] for row in traces.dismissals(self.lake, erasure, mirror)]
        done = self._merge(DECISIONS, named, rows, "DELETE")
        alerts = self.lake.ask(
            f"SELECT DISTINCT number, kind, subject, value FROM {{decisions}} WHERE kind = {duck.text(ALERT)}"
        )
        quoting = list(quoting_alerts(alerts, erasure))
        then = "UPDATE SET subject = s.new_subject, value = s.new_value"
        self._merge(DECISIONS, named, quoting, then, new="new_subject STRING, new_value STRING")
        return {"rows": done, "alerts": len(quoting)}

    def _checks(self, erasure: Erasure) -> dict[str, int]:
        """Remove keys and cells from lists of failing keys and details, and numbers that are cells; the verdicts stay."""
        quotes = traces.quoting(erasure)
        named = ("run", "batch", "mirror", "check", "column", "observed", "failing", "detail")
        columns = ", ".join(map(duck.name, named))
        rows = []
        for row in self.lake.recorded(
            f"SELECT DISTINCT {columns} FROM {{checks}} WHERE mirror = {duck.text(erasure.mirror)} OR mirror IS NULL"
        ):
            failing, detail = _without(row["failing"], quotes), _shown(row["detail"], quotes)
            observed = row["observed"]
            if _observes_values(row["check"]) and quotes.is_number_of(observed):
                observed, detail = 0.0, GONE
            if (observed, failing, detail) != (row["observed"], row["failing"], row["detail"]):
                rows.append([*(row[name] for name in named), observed, failing, detail])
        then = "UPDATE SET observed = s.new_observed, failing = s.new_failing, detail = s.new_detail"
        new = "new_observed DOUBLE, new_failing STRING, new_detail STRING"
        return {"rows": self._merge(CHECKS, named, rows, then, new=new)}

    def _runs(self, erasure: Erasure) -> dict[str, int]:
        """Remove what the messages of runs quote: those of the mirror, those that name it, and those of a whole run."""
        quotes = traces.quoting(erasure)
        rows = [
            (row["run"], row["subject"], row["message"], row["command"])
            for row in self.lake.recorded(
                "SELECT DISTINCT run, subject, message, command FROM {runs} "
                "WHERE message IS NOT NULL OR command IS NOT NULL"
            )
            if _quotes_rows(row, erasure.mirror, quotes)
        ]
        then = f"UPDATE SET message = '{GONE}', command = NULL"
        return {"rows": self._merge(RUNS, ("run", "subject", "message", "command"), rows, then)}

    def _rows(self, mirror: Mirror, keys: Sequence[Texts]) -> dict[str, int]:
        """The rows of a mirror or its history."""
        same = [
            f"t.{quoted(key_column.column)} = "
            + (f"unbase64(s.k{i})" if key_column.delta == "BINARY" else f"CAST(s.k{i} AS {key_column.delta})")
            for i, key_column in enumerate(mirror.key_columns)
        ]
        return self._keys(mirror.path, keys, same)

    def _feed(self, mirror: Mirror, keys: Sequence[Texts]) -> dict[str, int]:
        """The rows of a change feed, and those that the removal of the mirror's rows adds to it."""
        filling.follow(self.lake, mirror)
        image = "from_json(coalesce(t.after, t.before), 'MAP<STRING, STRING>')"
        same = [
            f"CAST({image}[{literal(key_column.column)}] AS {key_column.delta}) = CAST(s.k{i} AS {key_column.delta})"
            for i, key_column in enumerate(mirror.key_columns)
        ]
        return self._keys(feeds.path_of(mirror), keys, same)

    def _keys(self, name: str, keys: Sequence[Texts], same: Sequence[str]) -> dict[str, int]:
        """Delete rows by conditions on the texts of each key; what deletion vectors hide goes from the files, too."""
        ddl = ", ".join(f"k{i} STRING" for i in range(len(same)))
        done = self._merged(name, keys, ddl, " AND ".join(same), "DELETE")
        if any(file.deleted for file in self.lake.snapshot(name).files):
            self.session.conf.set(USER_METADATA, self._metadata(name))
            self.session.sql(f"REORG TABLE {self.lake.named(name)} APPLY (PURGE)").collect()
        return {"rows": done}

    def _changes(self, erasure: Erasure) -> dict[str, int]:
        named = ("batch", *PLACE, "row", "order_key", *TableId._fields)
        rows = [tuple(getattr(change, name) for name in named) for change in erasure.changes]
        return {"rows": self._merge(CHANGES, named, rows, "DELETE", where="t.kind = 'change'")}

    def purge(self, name: str, mirror: Mirror) -> int:
        """Delete every file that the newest version does not need, and what the log says of them; how many they were."""
        table, metadata = self.lake.named(name), self._metadata(name)
        self.session.conf.set(USER_METADATA, metadata)
        before = _data_files(self.lake, name)
        run_vacuum(self.session, table, "RETAIN 0 HOURS")
        version = commits.mark(self.lake.path(name), metadata)
        if name == mirror.path and self.lake.exists(feeds.path_of(mirror)):
            filling.skip(self.lake, mirror)  # the version that the feed has reached is about to go
        log.checkpoint(self.session, self.lake.path(name))
        commits.forget(self.lake.path(name), version)
        return before - _data_files(self.lake, name)

    def _metadata(self, name: str) -> str:
        """What the next commit into a table carries: this run, and what the one before says of the whole table."""
        marks = self.lake.last_marks(name).items()
        kept = {mark: value for mark, value in marks if mark not in ("run", "batch", "landed")}
        return json.dumps(kept | {"run": self.lake.run})

    def _merge(
        self,
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
        return self._merged(schema.name, rows, ddl, f"{where} AND {same}", then)

    def _merged(self, name: str, rows: Sequence[Sequence[Any]], ddl: str, on: str, then: str) -> int:
        """The same for any table, by a condition on its rows ``t`` and the given ones ``s``."""
        if not rows:
            return 0
        self.session.conf.set(USER_METADATA, self._metadata(name))
        self.session.createDataFrame([tuple(row) for row in rows], ddl).createOrReplaceTempView("erasing")
        try:
            merged = self.session.sql(
                f"MERGE INTO {self.lake.named(name)} AS t USING erasing AS s ON {on} WHEN MATCHED THEN {then}"
            ).first()
            return int(merged["num_affected_rows"]) if merged is not None else 0
        finally:
            self.session.catalog.dropTempView("erasing")


def snapshot_files(lake: Tables, erasure: Erasure) -> int:
    """Delete the files of `ingest snapshot` in which changes of the rows landed: bronze has the other rows of them."""
    landed = {
        (change.source, *Path(change.topic).parts[-2:])
        for change in erasure.changes
        if change.topic and ingest_snapshot.holds(change.topic)
    }
    files = [snapshots.folder(lake.pipeline, source) / here / name for source, here, name in landed]
    existing = [file for file in files if file.exists()]
    for file in existing:
        file.unlink()
    return len(existing)


def quoting_alerts(rows: Iterable[Row], erasure: Erasure) -> Iterator[tuple[Any, ...]]:
    """The alerts that quote an erased row: their identity, and their subject and value without it."""
    quotes = traces.quoting(erasure)
    for row in rows:
        value = json.loads(row["value"])
        text, subject = value.get("text"), row["subject"]
        if not (erasure.mirror in f"{subject} {text}" or quotes.surely_in(text) or quotes.surely_in(subject)):
            continue
        if subject.startswith(LAST_RUN):  # other subjects are names of tables and checks
            subject = _shown(subject, quotes)
        value["text"] = _shown(text, quotes)
        if (subject, value["text"]) != (row["subject"], text):
            yield row["number"], row["kind"], row["subject"], subject, json.dumps(value, ensure_ascii=False)


def _member(name: str) -> str:
    return f"get_json_object(t.payload, '$.{name}') AS {name}"


def _quotes_rows(row: Row, mirror: str, quotes: Quotes) -> bool:
    """True if a row of `runs` quotes an erased row; short keys are looked for only in what is about the mirror."""
    texts = [text for text in (row["message"], row["command"]) if text is not None and text != GONE]
    if row["subject"] == mirror or any(mirror in text for text in texts):
        return any(map(quotes.found_in, texts))
    return any(map(quotes.surely_in, texts))


def _observes_values(check: str) -> bool:
    """True for an expectation whose number is of the column's values, such as their maximum, and no count of rows."""
    return check.startswith("expect_column_") and not check.startswith("expect_column_values_")


def _without(failing: str | None, quotes: Quotes) -> str | None:
    if failing is None:
        return None
    keys = json.loads(failing)
    kept = [key for key in keys if not quotes.found_in(str(key))]
    return failing if kept == keys else json.dumps(kept, ensure_ascii=False)


def _shown(text: str | None, quotes: Quotes) -> str | None:
    return GONE if text != GONE and quotes.found_in(text) else text


def _tables(lake: Tables, mirror: Mirror) -> list[str]:
    """Every table whose old versions may hold the rows."""
    names = [schema.name for schema in _REWRITTEN]
    names += [mirror.path, histories.path_of(mirror), feeds.path_of(mirror)]
    return [name for name in names if lake.exists(name)]


def _data_files(lake: Tables, name: str) -> int:
    folder = Path(lake.path(name))
    return sum(path.is_file() and LOG not in path.relative_to(folder).parts for path in folder.rglob("*"))


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
            {"source": barrier.source, "table": str(barrier.table), "keys": sorted(barrier.stretches)}
            for barrier in map(Barrier.from_value, erasure.barriers)
        ],
        readable_until=None if erasure.now else until.isoformat(timespec="seconds"),
        left=traces.unknown(lake, erasure),
    )
