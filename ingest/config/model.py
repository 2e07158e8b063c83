"""What a checked pipeline file says, as frozen dataclasses that every stage and worker can carry."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ingest import formats
from ingest.change import NO_HINTS, Hints, Options, TableHints, TableId
from ingest.config.entries import AlertTarget, CatalogSettings, Database, Lineage, QualityRule, Sealing, key
from ingest.config.patterns import captured, matches
from ingest.images_before import ImagesBefore
from ingest.values.remembered import remembered

if TYPE_CHECKING:
    from ingest.config.kinds import (
        Condition,
        Count,
        Duration,
        Flag,
        KafkaSettings,
        Mask,
        Match,
        Pattern,
        Pause,
        Secret,
        Settings,
        Size,
        SizeOrNone,
        Start,
        Template,
        Text,
        Texts,
    )  # fmt: skip

NO_OPTIONS = Options()
SPARK, AUTO = "spark", "auto"  # what `engine:` may be
FILES, MERGE = "files", "merge"  # what `apply:` may be, besides `AUTO`
MASKED_TO_TEXT = ("hmac", "tokenize", "last4")  # masks that give a text; the fourth, null, gives none
MASKED_BY_SECRET = ("hmac", "tokenize")
KEEP = "keep"  # instead of a mask: the values stay
METADATA = {
    "source": "string", "table": "string", "batch": "int64", "event_time": "timestamp", "operation": "string"
}  # fmt: skip
"""What a column may hold of the last change of its row, with its type."""


@dataclass(frozen=True, slots=True)
class Source:
    """One source of messages. Kafka members are empty for files, and the other way round."""

    name: str
    kind: str  # files | kafka
    format: str
    options: Options = NO_OPTIONS
    path: str = ""  # absolute glob or URI
    framing: str = key(
        "how a file is cut into records; the format's own unless given: lines, document (JSON documents one after another, or in an "
        "array), length (four bytes before each), avro-container, or raw (the whole file)",
        "",
        among=("lines", "document", "length", "avro-container", "raw"),
        only="files",
    )
    settle: Duration = key(
        "a file that has not changed for this long is finished: a last line without an end is read, too",
        60.0,
        only="files",
    )
    order_files_by: str = key(
        "the order of files in one batch, numbers in names compared as numbers",
        "name",
        among=("name", "mtime"),
        only="files",
    )
    renamed_files: str = key(  # `renamed` has what holds
        "what is done with a file that holds what was read under another name: nothing, with an alarm; it is that "
        "file; it is read as another one (refuse where arrival orders the changes, else new)",
        "",
        among=("refuse", "same", "new"),
        only="files",
    )
    max_record_bytes: Size = key(
        "a longer record becomes a reject that names its place", 64 * 1024 * 1024, only="files"
    )
    storage: Settings = key("settings of the file system that holds the path", {}, only="files")
    bootstrap_servers: str = ""
    topics: Texts = key("the topics, by name", (), only="kafka")
    topic_pattern: Pattern = key("or a pattern of them", "", only="kafka")
    start: Start = key(
        "earliest, latest, a timestamp, or {topic: {partition: offset}}", "earliest", only="kafka"
    )
    registry: Text = key(
        "URL of the schema registry, for framed Avro; for some formats also a folder of schemas (*.avsc)",
        "",
    )
    kafka: KafkaSettings = key("settings passed on to the client as kafka.*", {}, only="kafka")
    max_messages: Count | None = key("the most messages that one batch takes", None)
    max_bytes: Size | None = key("the most bytes that one batch takes", None)
    server_change: str = key(
        "what happens when another server counts the positions", "hold", among=("hold", "accept")
    )
    enabled: Flag = key("false: read nothing more; what has landed can still be decoded", True)
    database: Database | None = key(
        "the database that the messages come from, for reading whole tables", None
    )

    @property
    def renamed(self) -> str:
        """What is done with a file that holds what was read under another name: refuse, same or new.

        Where positions order the changes, a file that is read twice changes nothing.
        """
        return self.renamed_files or ("refuse" if self.by_arrival else "new")

    @property
    def by_arrival(self) -> bool:
        """True if arrival orders all of its messages, or some of them."""
        return self.options.order_by != "sequence" or self.about.by_arrival

    @property
    def about(self) -> formats.About:
        """What is known of its format."""
        return formats.load(self.format).ABOUT


class MadeColumn(NamedTuple):
    """The rule of a column that no message carries."""

    kind: str  # compute | constant | meta | deletes
    value: str  # an expression, a text, one of `METADATA`, or `soft`
    type: str = ""  # as the rule gives it


POLICIES = ("lenient", "evolve", "freeze", "ignore")
"""The values of ``on_schema_change:``, the default first."""
OF_MIRROR = (
    "keys", "no_key", "on_schema_change", "shard_column", "history", "change_feed", "changes_of", "plain_tables", "apply",
    "cluster_by",
)  # fmt: skip
"""Rules of a mirror that all its tables must have alike."""


@dataclass(frozen=True, slots=True)
class TableRule:
    """One entry of ``tables:``; the first whose ``match`` fits a table applies, alone."""

    match: Match = key(
        "database.table, with * for any part, or a regular expression with groups for each", "*", only="entry"
    )
    exclude: Flag = key("leave these tables out", False, only="entry")
    into: Template = key(
        "the mirror's name, with {1} for a group of match:; the source's own unless given", "", only="entry"
    )
    keys: Texts = key("the columns of the primary key", (), only="entry")
    columns: Mapping[str, str] = field(default_factory=dict)  # logical types
    without: tuple[str, ...] = ()  # columns, or patterns of them, that the mirror leaves out
    include: tuple[str, ...] = ()  # columns with a rule of their own, which no pattern leaves out
    names: Mapping[str, str] = field(default_factory=dict)  # columns' names in the mirror
    made: Mapping[str, MadeColumn] = field(default_factory=dict)  # the mirror's own columns
    where: Condition = key("the condition, in SQL, that a row meets to be in the mirror", "")
    mask: Mask = key(  # the first column or pattern that fits counts
        "columns, or patterns of them, whose values are masked before anything is kept of them outside bronze: "
        "hmac, tokenize, last4 or null; keep leaves them as they are",
        {},
        only="entry",
    )
    no_key: str = key("what happens to a table without any key", "hold", among=("hold", "append", "full_row"))
    on_schema_change: str = key(
        "what statements and new columns do to the mirror",
        POLICIES[0],
        among=POLICIES,
    )
    shard_column: Text | None = key(  # an empty name is one that a source may have
        "a column that names the source table, where rows of several have one key", None
    )
    change_feed: Flag = key("turn on Delta's change data feed of the mirror", False)
    changes_of: Flag = key("keep what each batch changes in a table of its own, `<table>__changes`", False)
    plain_tables: Flag = key("the mirror without deletion vectors", False)
    apply: str = key(
        "how a batch is put into the mirror, if not as the pipeline's apply: says",
        "",
        among=(AUTO, FILES, MERGE),
    )
    history: Flag = key("keep every state of a row in a table of its own, `<table>__history`", False)
    # file:line:column of columns' rules
    places: Mapping[str, str] = field(default_factory=dict, compare=False)
    where_place: str = field(default="", compare=False)
    cluster_by: Texts = key(
        "columns, at most four, by which `ingest maintain` orders the mirror's files, so that queries on them read few",
        (),
    )
    cluster_place: str = field(default="", compare=False)
    also: tuple[TableRule, ...] = ()  # the rules of further mirrors, which have its keys, types and masks
    into_place: str = field(default="", compare=False)  # of a further mirror's name

    def leaves_out(self, column: str) -> bool:
        """True if the mirror does not take the column from its source table."""
        if column in self.include or column == self.shard_column:
            return False
        return any(fnmatch.fnmatchcase(column, pattern) for pattern in self.without)

    @property
    def soft(self) -> bool:
        """True if the mirror keeps deleted rows."""
        return any(made.kind == "deletes" for made in self.made.values())

    @property
    def ignores(self) -> bool:
        """True if statements, and columns that they add, do nothing."""
        return self.on_schema_change == "ignore"

    @property
    def freezes(self) -> bool:
        """True if the mirror's columns stay until the operator approves a change."""
        return self.on_schema_change == "freeze"

    @property
    def shape(self) -> str:
        """What makes the mirror another table than its source's, as one text; empty if nothing does."""
        given = {
            "without": sorted(self.without),
            "include": sorted(self.include),
            "names": dict(sorted(self.names.items())),
            "made": dict(sorted(self.made.items())),
            "where": self.where,
        }
        decisions = {name: value for name, value in given.items() if value}
        return json.dumps(decisions, ensure_ascii=False, sort_keys=True) if decisions else ""

    def differing(self, other: TableRule) -> list[str]:
        """The keys of the pipeline file that decide a mirror as a whole, and differ in another rule for it."""
        names = [name for name in OF_MIRROR if getattr(self, name) != getattr(other, name)]
        both = self.columns.keys() & other.columns.keys()
        shaped = self.shape != other.shape or any(self.columns[name] != other.columns[name] for name in both)
        return [*names, "columns"] if shaped else names

    @property
    def declared(self) -> Mapping[str, str]:
        """The declared types of the mirror's columns: a masked value is a text, whatever the message's own is."""
        return {
            name: "string" if self.mask_of(name) in MASKED_TO_TEXT else logical
            for name, logical in self.columns.items()
        }

    def mask_of(self, column: str) -> str:
        """How a column is masked; empty if it is not. Case does not count: a mask too many does less harm."""
        how = self.mask_named(column)
        return "" if how == KEEP else how

    def mask_named(self, column: str) -> str:
        """What the first fitting name or pattern under ``mask`` says of a column: a mask, or to keep its values."""
        name = column.casefold()
        fitting = (how for pattern, how in self.mask.items() if fnmatch.fnmatchcase(name, pattern.casefold()))
        return next(fitting, "")


MASK_SECRET, SEAL = "mask_secret", "bronze.seal"  # in `Pipeline.unresolved`


def shown_from(file: Path, place: str) -> str:
    """A path, or a place in it, for display: from a pipeline file's folder on if it is below."""
    folder = f"{file.parent}/"
    return f"./{place.removeprefix(folder)}" if place.startswith(folder) else place


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline: its sources, its lake, and what holds for its tables."""

    name: str
    file: Path
    lake: str  # absolute plain path, or a URI
    sources: tuple[Source, ...]
    tables: tuple[TableRule, ...] = key(
        "rules for source tables; the first entry that matches applies, alone", ()
    )
    mask_secret: Secret = key(
        "the secret of the masks hmac and tokenize, as ${VAR} or ${file:/path}; another one means decoding all again",
        "",
        shown=False,
    )
    quality: tuple[QualityRule, ...] = key("your own checks and limits", ())
    spark: Settings = key("Spark settings, passed on as they are", {})
    master: Text = key("the Spark master", "")
    plain_tables: Flag = key("mirrors without deletion vectors", False)
    apply: str = key(
        "how a batch is put into mirrors: files, new files and deletion vectors; merge, Delta's own MERGE by Spark; auto, "
        "files where they can be, else merge",
        AUTO,
        among=(AUTO, FILES, MERGE),
    )
    every: Pause | None = key("how often `ingest serve` runs the pipeline", None)
    horizon_days: Count = key("days for which time travel is promised", 7)
    rewrite_budget: SizeOrNone | None = key(
        "the most bytes of a mirror that a batch rewrites; a larger one gets deletion vectors, or a MERGE if it has none",
        None,
    )
    engine: str = key(
        "what does the work: spark, as Spark jobs whatever the size of a batch, or auto, where this process does what is "
        "less than a Spark job costs, and no session is started for it",
        SPARK,
        among=(SPARK, AUTO),
    )
    condense_after: Duration | None = key(
        "`ingest maintain` drops superseded changes of batches so old; none if not given", None
    )
    lineage: Lineage | None = None
    catalog: CatalogSettings | None = key(
        "register each mirror by name in a catalog, and keep it in step", None
    )
    alerts: tuple[AlertTarget, ...] = key("who is alerted when something fails, and when it is over", ())
    seal: Sealing | None = None  # None: bronze holds messages as they were sent
    # of a view: source tables whose further mirror is another table's
    barred: frozenset[TableId] = frozenset()
    # of a file read for looking: what was left out because its ``${...}`` does not resolve: why, by the key's path with dots
    unresolved: Mapping[str, str] = field(default_factory=dict)
    # the rules of tables that were asked for: a run asks several times for each table
    _known_rules: dict[TableId, TableRule] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def is_stored(self) -> bool:
        """True if the lake is in an object store."""
        return is_stored(self.lake)

    @property
    def hides(self) -> bool:
        """True if what a decoder says of a message must not quote it."""
        return self.masks or self.seal is not None

    @property
    def masks(self) -> bool:
        """True if some table has masked columns."""
        return any(rule.mask for rule in self.tables)

    @property
    def views(self) -> tuple[Pipeline, ...]:
        """The pipeline itself, and for each place in ``also`` one that fills only the further mirrors at that place.

        So each of them has one rule for a source table.
        """
        most = max((len(rule.also) for rule in self.tables), default=0)
        return self, *(replace(self, tables=tuple(_at(i, self.tables))) for i in range(most))

    @property
    def every_rule(self) -> Iterator[TableRule]:
        """The rules of all mirrors, further ones included."""
        return (mirror_rule for rule in self.tables for mirror_rule in (rule, *rule.also))

    @property
    def by_source(self) -> dict[str, Source]:
        """Its sources by their names."""
        return {source.name: source for source in self.sources}

    @property
    def names_sources(self) -> bool:
        """True if a shard column names the source, too, because there are several."""
        return len(self.sources) > 1

    def about(self, source: str) -> formats.About:
        """What is known of a source's format; nothing odd of a source that the file does not have any more."""
        entry = self.by_source.get(source)
        return formats.UNKNOWN if entry is None else entry.about

    def shared_reads(self, source: str) -> bool:
        """True if rows of a source's snapshots share a position, so that it does not tell one from another."""
        return self.about(source).shared_reads

    def sends_no_inserts(self, source: str) -> bool:
        """True if rows that are new to a source come otherwise than as inserts."""
        return "insert" not in self.about(source).operations

    def images_before(self, source: str) -> ImagesBefore:
        """How a source writes what rows were before."""
        about = self.about(source)
        return replace(about.before, counts_rows=about.counts_rows, shared_reads=about.shared_reads)

    def shown(self, place: str) -> str:
        """A path, or a place in it, for display: from the pipeline file's folder on if it is below."""
        return shown_from(self.file, place)

    def rule(self, table: TableId) -> TableRule:
        """The rule of a source table: the first whose pattern fits, else the defaults."""
        if table in self.barred:
            return _EXCLUDED
        rule = self._known_rules.get(table)
        if rule is None:
            rule = _rule(self.tables, table)
            if len(self._known_rules) < _RULES_KEPT:
                self._known_rules[table] = rule
        return rule

    def quality_rule(self, table: TableId) -> QualityRule | None:
        """The first ``quality:`` entry that fits a mirror, or a source by its name."""
        return next((rule for rule in self.quality if matches(rule.table, table)), None)

    def limits(self, table: TableId) -> dict[str, float]:
        """The limits of checks that the file sets for a mirror, or for a source by its name."""
        rule = self.quality_rule(table)
        if rule is None:
            return {}
        limits = dict(rule.thresholds)
        if rule.freshness is not None:
            limits.setdefault("freshness", rule.freshness)
        return limits

    def masking(self, table: TableId) -> TableRule:
        """The rule whose masks hold: a table's own, or that of the table which an online schema tool copies into it."""
        rule = self.rule(table)
        copied = None if rule.mask else _HELPER.fullmatch(table.name)
        return self.rule(table._replace(table=copied[1])) if copied else rule

    def hints(self, source: Source, schemas: Mapping[int, str] | None = None) -> Hints:
        """What the parser of a source may know: its options, its tables' keys and columns, its registry's schemas."""
        rules = self.tables

        @remembered(10_000)
        def hints_of(table: TableId) -> TableHints:
            rule = _rule(rules, table)
            return TableHints(rule.keys, rule.columns) if rule.keys or rule.columns else NO_HINTS

        of_registry = None if schemas is None else schemas.__getitem__
        return Hints(source.options, hints_of, of_registry, framed=source.kind == "files")


def is_stored(path: str) -> bool:
    """True for a place in an object store, of whatever kind: a URI."""
    return "://" in path


_RULES_KEPT = 10_000  # of a pipeline: damaged messages may name any number of tables
_DEFAULT_RULE = TableRule()
_EXCLUDED = TableRule(exclude=True)
_HELPER = re.compile("_(.+)_(?:gho|ghc|del|old|new)")
_HELPER_TABLES = ("_*_gho", "_*_ghc", "_*_del", "_*_old", "_*_new")


def _at(place: int, rules: Iterable[TableRule]) -> Iterator[TableRule]:
    """The rules for the further mirrors at a place in ``also``; all other tables are excluded."""
    for rule in rules:
        yield rule.also[place] if place < len(rule.also) else TableRule(rule.match, exclude=True)
    yield _EXCLUDED


def _rule(rules: tuple[TableRule, ...], table: TableId) -> TableRule:
    for rule in rules:
        if matches(rule.match, table):
            return rule
    if any(fnmatch.fnmatchcase(table.name, pattern) for pattern in _HELPER_TABLES):
        return _EXCLUDED  # helper tables of online schema tools
    return _DEFAULT_RULE


def target(rule: TableRule, source: TableId) -> TableId:
    """The mirror of a source table: its own name, or the rule's ``into`` template."""
    if not rule.into:
        return source
    values = {"database": source.database or "", "schema": source.schema or "", "table": source.table or ""}
    groups = captured(rule.match, source) or ()
    parts = [part.format("", *groups, **values) for part in rule.into.split(".")]
    if len(parts) == 1:
        return source._replace(table=parts[0])
    if len(parts) == 2:
        return TableId(parts[0], None, parts[1])
    return TableId(parts[0], parts[1], ".".join(parts[2:]))
