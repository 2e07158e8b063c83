"""What ``plan`` finds out, as plain values: what would be read, decoded and folded.  It writes nothing.

The positions are read from the lake's receipts, without Spark.  A Kafka source's offsets are asked of its brokers, if
one of them answers at all: by librdkafka if it is installed and has the source's security settings, else by Spark's
client.  A lake in a store that is not read otherwise takes Spark, too.
"""

from __future__ import annotations

import datetime as dt
import fnmatch
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingest.bronze import files, moved, offsets
from ingest.bronze import preview as unread
from ingest.bronze.kafka_settings import why_java
from ingest.bronze.offsets import Look
from ingest.bronze.positions import read_so_far
from ingest.bronze.reading import OPEN_END, Range
from ingest.bronze.receipts import FileState
from ingest.catalog import registrations
from ingest.change import TableId
from ingest.config import Pipeline, Source, TableRule, matches, target
from ingest.config.scalars import nearest
from ingest.errors import StoreError, command, counted
from ingest.formats import ingest_snapshot
from ingest.gold import preview as gold
from ingest.gold.plan import completed
from ingest.gold.preview import CHANGE, CREATE, FOLD, HOLD, Foreseen, LakeState
from ingest.ledgers import decoded_with, lanes, targets
from ingest.ledgers import mirrors as known_mirrors
from ingest.ledgers.books import Line, misdated
from ingest.ledgers.mirrors import Column, names
from ingest.operate.doctor import answers
from ingest.silver import preview as silver
from ingest.spark.jobs import DRIVER, SPARK
from ingest.spark.tasks import Load, in_tasks
from ingest.store import stores
from ingest.tables import identity
from ingest.tables.identity import Seen
from ingest.tables.schemas import BRONZE
from ingest.tables.tables import LakeReader, Tables, has_landed
from ingest.values import EPOCH

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ingest.bronze.offsets import Place, Position
    from ingest.tables.lake import Lake

_SHOWN = 8  # names in one sentence
_ROWS = 20  # messages of a stream are about as long as one of a snapshot
CORES = 1  # of a plan without a session: only the cuts of large files depend on it


@dataclass(slots=True)
class Sources:
    """What the sources would give: descriptions, and a sample of messages with their batch and source."""

    described: list[dict[str, Any]] = field(default_factory=list)
    messages: list[tuple[Any, ...]] = field(default_factory=list)


@cache
def unreachable(servers: str) -> str:
    """Why none of a Kafka source's brokers can be asked; empty if one of them answers.

    Each is tried once, because a dead one takes seconds.
    """
    rows = [answers("broker", f"//{server.strip()}") for server in servers.split(",")]
    if any(row.state == "ok" for row in rows):
        return ""
    return f"{'; '.join(row.found for row in rows)}: its offsets are not known, and a run would fail."


def why_spark(pipeline: Pipeline) -> str:
    """Why the plan needs Spark, in a sentence; empty if it does not."""
    for source in pipeline.sources:
        if (
            source.enabled
            and source.kind == "kafka"
            and not unreachable(source.bootstrap_servers)
            and (why := why_java(source))
        ):
            return f"The offsets of {source.name} are asked of the brokers by Spark's client, because {why}."
    if not stores.is_readable(pipeline.lake):
        return f"{pipeline.lake} is not read otherwise."
    try:
        has_landed(pipeline)
    except StoreError as error:  # Spark may know more of the store than the environment says
        return str(error)
    return ""


def foresee(pipeline: Pipeline, spark: SparkSession | None, count: int) -> dict[str, Any]:
    """The plan of one pipeline from ``count`` messages of each source; ``spark`` is None where `why_spark` is empty."""
    lake = _lake(pipeline, spark)
    seen = gold.states_by_view(lake)
    state = seen[0][1]
    last = max(0, lake.progress("bronze", BRONZE.name))
    sources = Sources()
    if last > state.last and count:
        sources.messages += [
            (batch, source.name, *row)
            for source in pipeline.sources
            for batch, row in unread.landed(lake, source.name, (state.last + 1, last), count)
        ]
    _look(pipeline, lake, last, count, sources)
    decoded = silver.decode(pipeline, sources.messages)
    for described in sources.described:
        _add_sample(described, decoded, sum(_is_of(described, *message[1:3]) for message in sources.messages))
    unlike, batches = targets.of_other_settings(lake)
    for outdated in batches:
        described = next(source for source in sources.described if source["source"] == outdated.source)
        described["warnings"].append(outdated.sentence)
    tables = [
        table
        for view, own_rows in seen
        for table in gold.foresee(view, own_rows, decoded.lines, decoded.statements, decoded.changes, lake)
    ]
    undecoded = list(range(state.last + 1, last + 1))
    sampled = {name for line in decoded.lines for name in names(pipeline, line.table_id)}
    guessed = set(map(str, sampled))
    return {
        "pipeline": pipeline.name,
        "file": str(pipeline.file),
        "lake": pipeline.lake,
        "lake_exists": lake.exists(BRONZE.name),
        "next_batch": last + 1 if any(source["due"] for source in sources.described) else None,
        "undecoded_batches": undecoded,
        "engine": pipeline.engine,
        "stages": _stages(pipeline, sources, tables, decodes=bool(undecoded)),
        "sources": sources.described,
        "tables": [_described(table, guessed) for table in tables],
        "catalog": _catalog(pipeline, lake, tables, sampled),
        "problems": [*_problems(lake, state.last, sources, tables)],
        "warnings": [
            *(each.sentence for each in unlike),
            *_warnings(pipeline, lake, state, decoded.lines, tables),
        ],
    }


def _catalog(
    pipeline: Pipeline, lake: Tables, tables: Iterable[Foreseen], sampled: Iterable[TableId]
) -> dict[str, Any] | None:
    """Which catalog a run would register mirrors in, and under which names; None without one."""
    if pipeline.catalog is None:
        return None
    created = {table.mirror for table in tables if table.action == CREATE}
    named = registrations.foreseen(lake, [table for table in sampled if str(table) in created])
    return {"catalog": registrations.target(pipeline.catalog), "names": named}


def _stages(
    pipeline: Pipeline, sources: Sources, tables: Iterable[Foreseen], *, decodes: bool
) -> dict[str, str]:
    """Where each stage with something to do would be done: ``spark`` or ``driver``.

    With ``engine: auto`` that is for silver and gold as good as the sample: the messages are counted by its mean length.
    """
    due = [source for source in sources.described if source["due"]]
    folded = [table for table in tables if table.action in (CREATE, CHANGE, FOLD)]
    size = sum(source.get("bytes", 0) for source in due)
    sent = [len(value) for *_, value, _ in sources.messages if value]
    messages = sum(source.get("messages", 0) for source in due) + size * len(sent) // max(1, sum(sent))
    loads = {"bronze": Load(size=size), "silver": Load(messages, size)}
    if folded:
        changes = messages if due else sum(table.changes for table in folded)
        loads["gold"] = loads["quality"] = Load(changes)
    by_spark = {name for name, load in loads.items() if in_tasks(pipeline.engine, name, load, started=False)}
    if any(source["kind"] == "kafka" for source in due):
        by_spark.add("bronze")  # whose client reads the topics
    if any(table.why_merge for table in folded):
        by_spark.add("gold")
    wanted = {
        "bronze": bool(due),
        "silver": bool(due) or decodes,
        "gold": bool(folded),
        "quality": bool(folded),
    }
    return {name: SPARK if name in by_spark else DRIVER for name, does in wanted.items() if does}


def _lake(pipeline: Pipeline, spark: SparkSession | None) -> Lake | LakeReader:
    """The pipeline's lake; one that is not there yet reads as an empty one."""
    lake: Lake | LakeReader = LakeReader(pipeline)
    if spark is not None:
        from ingest.tables.lake import Lake

        lake = Lake(spark, pipeline)
    identity.check(lake, Seen())
    return lake


def _problems(lake: Tables, decoded: int, sources: Sources, tables: Sequence[Foreseen]) -> Iterator[str]:
    """What would make a run fail, or hold a mirror."""
    for source in sources.described:
        yield from (f"source {source['source']}: {text}" for text in source["problems"])
    if mixed := decoded_with.mixed_masks(lake, decoded) or decoded_with.lost_masks(lake):
        yield mixed
    listed_by = command("ddl", lake.pipeline.file)
    for table in tables:
        if table.action == HOLD:
            early = table.command == listed_by and not lake.exists(BRONZE.name)
            later = f" There is no lake yet: `{listed_by}` has the statement after the run." if early else ""
            yield f"{table.mirror} would be held: {table.why}{later}"
    if not any(source["due"] for source in sources.described):
        named = {table.mirror for table in tables}  # a run folds these, or has said why it does not
        yield from (mirror.said for mirror in completed.lost(lake) if mirror.name not in named)


def _warnings(
    pipeline: Pipeline, lake: Tables, state: LakeState, lines: Sequence[Line], tables: Sequence[Foreseen]
) -> Iterator[str]:
    """What the operator should look at before the run; ``lines`` are those of the sample."""
    left = known_mirrors.unfed(lake)
    for mirror in known_mirrors.known(lake).values():
        if mirror.path not in left:
            continue
        typed = command("drop", pipeline.file, mirror.name, "--reason", "excluded")
        yield f"{pipeline.file} {left[mirror.path]}, and the mirror {mirror.name} stays as it is: `{typed}` removes it"
    seen = {line.table_id for line in lines}
    seen |= {table for _, table in lanes.booked(lake)}
    columns = {mirror.name: {each.name for each in mirror.columns} for mirror in state.mirrors.values()}
    for new in tables:
        columns.setdefault(new.mirror, set()).update(each.name for each in new.columns)
    yield from _idle_rules(pipeline, seen)
    yield from _idle_masks(pipeline, seen, columns)
    yield from _idle_columns(pipeline, lake, lines)
    yield from _misdated(lines)
    yield from _untyped(pipeline, tables)


# --- sources ------------------------------------------------------------------------------------


def _look(pipeline: Pipeline, lake: Lake | LakeReader, last: int, count: int, sources: Sources) -> None:
    state = read_so_far(lake)
    with_spark = None if isinstance(lake, LakeReader) else lake
    identity.refuse_missing_sources(lake, state.sources)
    for rank, source in enumerate(pipeline.sources):
        if not source.enabled:
            off = ("enabled: false: nothing more is read of it",)
            sources.described.append(_source_described(source, [], [], off))
            continue
        if source.kind == "kafka":
            looked = [_topics(pipeline, lake, with_spark, source, state.places.get(source.name, {}), count)]
        else:
            looked = []
        for part in files.parts(pipeline, source):
            of_part = files.known_of(part, state.files.get(source.name, {}))
            recorded = partial(moved.known_moves, lake, source.name)
            described, sample = _files(with_spark, part, rank, of_part, recorded, count)
            if part is source or described["reads"] or described["problems"]:
                looked.append((described, sample))
        for described, sample in looked:
            described["problems"] += sample.faults
            sources.described.append(described)
            sources.messages += [(last + 1, source.name, *row) for row in sample.rows]


def _files(
    with_spark: Lake | None,
    source: Source,
    rank: int,
    states: dict[str, FileState],
    recorded: moved.Recorded,
    count: int,
) -> tuple[dict[str, Any], unread.Sample]:
    cores = with_spark.spark.sparkContext.defaultParallelism if with_spark else CORES
    plan = files.plan(source, rank, states, cores, recorded)
    reads, missing = _by_file(plan.ranges), [*(plan.missing or {}).values()]
    warnings = tuple(text for text in (*plan.warnings, *plan.notes) if text not in missing)
    described = _source_described(source, reads, [*plan.alarms, *missing], warnings)
    described["bytes"] = sum(read["bytes"] for read in reads)
    sampled: Iterable[Range] = plan.ranges
    # the messages of a snapshot hold hundreds of rows: a few of each table
    if count and source.format == ingest_snapshot.MARK:
        sampled = {Path(span.file).parent: span for span in reversed(plan.ranges)}.values()
        count = max(len(sampled), count // _ROWS)
    return described, unread.of_files(list(sampled), count) if count else unread.Sample()


def _by_file(ranges: tuple[Range, ...]) -> list[dict[str, Any]]:
    """Each file's unread bytes; cuts that only share the work among cores are put together again."""
    by_file: list[dict[str, Any]] = []
    for span in ranges:
        end = None if span.end == OPEN_END else span.end
        if by_file and by_file[-1]["file"] == span.file and by_file[-1]["end"] == span.start:
            by_file[-1] |= {"end": end, "bytes": by_file[-1]["bytes"] + span.weight}
        else:
            by_file.append({"file": span.file, "start": span.start, "end": end, "bytes": span.weight})
    return by_file


def _topics(
    pipeline: Pipeline,
    lake: Tables,
    with_spark: Lake | None,
    source: Source,
    positions: dict[Place, Position],
    count: int,
) -> tuple[dict[str, Any], unread.Sample]:
    if fault := unreachable(source.bootstrap_servers):
        return _source_described(source, [], [fault], ()), unread.Sample()
    look = _asked(lake, with_spark, source, positions)
    reads = [
        {
            "topic": span.place.topic,
            "partition": span.place.partition,
            "start": span.start,
            "end": span.end,
            "messages": span.end - span.start,
        }
        for span in look.plan.spans
    ]
    described = _source_described(source, reads, list(look.alarms(pipeline.file)), look.plan.warnings)
    described["due"] = look.plan.due
    described["messages"] = sum(read["messages"] for read in reads)
    return described, unread.of_topics(with_spark, look, count) if count else unread.Sample()


def _asked(lake: Tables, with_spark: Lake | None, source: Source, positions: dict[Place, Position]) -> Look:
    if with_spark is None:
        from ingest.bronze import native_broker

        return offsets.look(lake, source, positions, native_broker.connected)
    from ingest.bronze import kafka

    return kafka.look(with_spark, source, positions)


def _source_described(
    source: Source, reads: list[dict[str, Any]], problems: list[str], warnings: tuple[str, ...]
) -> dict[str, Any]:
    return {
        "source": source.name,
        "kind": source.kind,
        "format": source.format,
        "reads": reads,
        "due": bool(reads),
        "problems": problems,
        "warnings": list(warnings),
    }


def _add_sample(source: dict[str, Any], decoded: silver.Foretold, count: int) -> None:
    name = source["source"]
    rejects = [reject for reject in decoded.rejects if _is_of(source, *reject[:2])]
    source["sampled"], source["rejected"] = count, len(rejects)
    if rejects:
        *_, reason, detail = rejects[0]
        source["warnings"].append(
            f"{len(rejects)} of {counted(count, 'sampled message')} would be rejected; the first: {reason}: {detail}"
        )
    if name in decoded.faults:
        source["problems"].append(decoded.faults[name])


def _is_of(described: Mapping[str, Any], source: str, topic: str) -> bool:
    """True for a message of a source, or of its snapshots if these are what is described."""
    wanted = described["source"], described["format"] == ingest_snapshot.MARK
    return (source, ingest_snapshot.holds(topic)) == wanted


# --- tables -------------------------------------------------------------------------------------


def _described(foreseen: Foreseen, guessed: set[str]) -> dict[str, Any]:
    return {
        "table": foreseen.mirror,
        "path": foreseen.path,
        "action": foreseen.action,
        "why": foreseen.why,
        "from_a_sample": foreseen.mirror in guessed,
        "changes": foreseen.changes,
        "keys": list(foreseen.keys),
        "columns": [_column(each) for each in foreseen.columns],
        "added": [_column(each) for each in foreseen.added],
        "retyped": [_column(each) | {"was": was} for was, each in foreseen.retyped],
        "dropped": list(foreseen.dropped),
        "left_out": list(foreseen.left_out),
        "why_merge": foreseen.why_merge,
        "why_folded_again": foreseen.why_folded,
        "file_by_file": foreseen.passes,
        "deletion_vectors": foreseen.marks,
        "bytes": foreseen.size,
        "rewrite_budget": foreseen.budget,
    }


def _column(column: Column) -> dict[str, str]:
    shown = {"name": column.column, "source": column.name, "type": column.delta, "source_type": column.type}
    return shown | ({"source": "", "rule": column.origin} if column.made else {})


def _idle_rules(pipeline: Pipeline, seen: set[TableId]) -> Iterator[str]:
    """Entries that fit no table: most have a typing error, and are missed only when a mirror is wrong."""
    sources = {table for table in seen if table.table}
    if not sources:
        return
    mirrors = {name for source in sources for name in names(pipeline, source)}
    for rule in pipeline.tables:
        if not any(matches(rule.match, source) for source in sources):
            yield f"tables: nothing in the lake or the sample fits match: {rule.match}{nearest(rule.match, map(str, sources))}"
    for check in pipeline.quality:
        if not any(matches(check.table, mirror) for mirror in mirrors):
            yield f"quality: no mirror fits table: {check.table}{nearest(check.table, map(str, mirrors))}"


def _idle_masks(pipeline: Pipeline, sources: set[TableId], columns: Mapping[str, set[str]]) -> Iterator[str]:
    """Masks that fit no column: a column that is spelt otherwise is in the mirror as it is.

    ``columns`` are those of the mirrors, by name.
    """
    for rule in pipeline.tables:
        masked_columns = [
            columns.get(str(target(rule, source)), set())
            for source in sources
            if pipeline.rule(source) == rule
        ]
        shown = set().union(*masked_columns)
        for pattern in rule.mask if shown else ():
            if not any(TableRule(mask={pattern: "hmac"}).mask_of(name) for name in shown):
                yield f"mask: no column of {rule.match} fits {pattern}{nearest(pattern, shown)}"


def _idle_columns(pipeline: Pipeline, lake: Tables, lines: Iterable[Line]) -> Iterator[str]:
    """Columns that a rule is about and no row has shown: they may come, or be a typing error."""
    if not any(rule.places or rule.cluster_by for rule in pipeline.every_rule):
        return
    seen: dict[TableId, set[str]] = {}
    for line in lines:
        seen.setdefault(line.table_id, set()).update(line.columns)
    for (_, table), columns in lanes.columns_seen(lake).items():
        seen.setdefault(table, set()).update(columns)
    for rule in pipeline.tables:
        shown = {name for table, names in seen.items() if pipeline.rule(table) is rule for name in names}
        for mirror_rule in (rule, *rule.also) if shown else ():
            for name, place in (
                dict.fromkeys(mirror_rule.cluster_by, mirror_rule.cluster_place) | dict(mirror_rule.places)
            ).items():
                if not fnmatch.filter(shown, name) and name not in shown and name not in mirror_rule.made:
                    near = nearest(name, sorted(shown))
                    yield f"{place} no row of {mirror_rule.match} has shown a column {name} yet{near}"


def _misdated(lines: Iterable[Line]) -> Iterator[str]:
    """Tables whose newest sampled change has a time that no source of today has."""
    newest: dict[TableId, int] = {}
    for line in lines:
        if line.event_high is not None:
            newest[line.table_id] = max(line.event_high, newest.get(line.table_id, line.event_high))
    for table, micros in newest.items():
        if table.table and (wrong := misdated((EPOCH + dt.timedelta(microseconds=micros)).isoformat())):
            yield f"{table}: {wrong}"


def _untyped(pipeline: Pipeline, tables: Iterable[Foreseen]) -> Iterator[str]:
    """New columns that become texts because no message says a type that holds their values, in one sentence; types belong
    to the entry, so its further mirrors are left out.
    """
    further = {each.into for rule in pipeline.tables for each in rule.also}
    untyped = {}
    for table in tables:
        new = table.columns if table.action == CREATE else table.added
        texts = [
            each.column for each in new if each.delta == "STRING" and each.type in ("unknown", "decimal")
        ]
        if texts and table.mirror not in further:
            untyped[table.mirror] = _listed(texts)
    if untyped:
        [mirror, *others] = untyped
        where = f"each of {len(untyped)} tables" if others else mirror
        yield (
            f"{_listed([f'{mirror}: {texts}' for mirror, texts in untyped.items()], '; ')} would be STRING, because the messages "
            f"do not say a type or its precision: write columns: for {where}; `{command('infer', pipeline.file)}` proposes them"
        )


def _listed(names: Sequence[str], comma: str = ", ") -> str:
    rest = len(names) - _SHOWN
    return comma.join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
