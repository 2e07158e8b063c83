"""The keys that a pipeline file may hold: the one place for names, defaults, allowed words and kinds of values.

Values arrive as text (`ingest.config.yaml_tree`); each reader turns it into what it means, or raises `ValueError` with
the sentence that the user sees.  ``ingest schema`` prints the models as a JSON Schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)

from ingest import formats, values
from ingest.config import conditions, patterns, scalars
from ingest.config.model import AUTO, CELLS_CHECKED, FILES, MERGE, METADATA, SPARK, TableRule
from ingest.fold import DELETED, DELETED_AT
from ingest.values.typed_values import value_of

# --- kinds of values ------------------------------------------------------------------------------


def read(reader: Callable[[str], Any], schema: dict[str, Any]) -> tuple[PlainValidator, WithJsonSchema]:
    """A field read from one scalar's text by ``reader``."""

    def validate(value: Any) -> Any:
        if not isinstance(value, str):
            raise ValueError(f"a single value belongs here, not {_kind(value)}")
        return reader(str(value))  # without what YAML takes it for: encoders take `str` itself only

    return tree(validate, schema)


def tree(reader: Callable[[Any], Any], schema: dict[str, Any]) -> tuple[PlainValidator, WithJsonSchema]:
    """A field read from a list, a mapping or a scalar by ``reader``."""
    return PlainValidator(reader), WithJsonSchema(schema)


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    return "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, list) else f"{value!r}"


def choice(*known: str) -> tuple[PlainValidator, WithJsonSchema]:
    """A field that holds one of some words."""
    return read(lambda text: scalars.one_of(text, known), {"type": "string", "enum": list(known)})


def _filled(text: str) -> str:
    if not text.strip():
        raise ValueError("a value belongs here; the text is empty")
    return text


def _format(text: str) -> str:
    if text not in formats.names():
        hint = scalars.nearest(text, formats.names()) or "; `ingest formats` lists them"
        raise ValueError(f"{text!r} is not a format{hint}")
    return text


def _texts(value: Any) -> Any:
    """A list of texts; a single text means a list of one."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(item, str) and item for item in texts):
        raise ValueError(f"a list of texts belongs here, such as [a, b], not {_kind(value)}")
    if twice := [item for item in texts if texts.count(item) > 1]:
        raise ValueError(f"{twice[0]!r} is in the list twice")
    return tuple(map(str, texts))


def _settings(value: Any) -> dict[str, str]:
    """A map of settings that are passed on as they are written."""
    if not isinstance(value, dict):
        raise ValueError(f"a map of settings belongs here, such as {{key: value}}, not {_kind(value)}")
    if odd := [key for key, item in value.items() if not isinstance(item, str)]:
        raise ValueError(f"the setting {odd[0]!r} must hold a single value, not {_kind(value[odd[0]])}")
    return {str(key): str(item) for key, item in value.items()}


def _tables(value: Any) -> Any:
    if not isinstance(value, str | dict) or not value:
        raise ValueError(f"write database.table, or a map of topic patterns to tables, not {_kind(value)}")
    return scalars.tables(_settings(value) if isinstance(value, dict) else value)


def _mask(value: Any) -> Any:
    """Methods by column; a method may be the word null, which YAML reads as nothing."""
    if not isinstance(value, dict) or not value:
        raise ValueError(
            f"a map of columns to masks belongs here, such as {{email: hmac}}, not {_kind(value)}"
        )
    return {str(name): scalars.mask(str(name), "null" if how is None else how) for name, how in value.items()}


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None
    return text


def _match(text: str) -> str:
    parts = patterns.parts(text)
    if patterns.is_regular(text):
        if not 2 <= len(parts) <= 3 or not all(parts):
            raise ValueError(
                f"{text!r} matches no table; with groups, write a regular expression for each part of database.table, (.*) for any"
            )
        for part in parts:
            if part != "*":
                _pattern(part)
    elif text != "*" and not (len(parts) <= 3 and all(parts)):
        raise ValueError(f"{text!r} matches no table; write database.table, with * for any part")
    return text


def _start(value: Any) -> Any:
    """``earliest``, ``latest``, an instant, or ``{topic: {partition: offset}}``."""
    if isinstance(value, dict):
        return {str(topic): _offsets(topic, offsets) for topic, offsets in value.items()}
    if not isinstance(value, str):
        raise ValueError(f"write earliest, latest, a timestamp, or offsets per topic, not {_kind(value)}")
    if value in ("earliest", "latest"):
        return str(value)
    try:
        return values.zoned_text(value, "UTC")
    except ValueError:
        raise ValueError(
            f"{value!r} is not a start; write earliest, latest, a time such as 2024-05-01T00:00:00Z, "
            "or {topic: {0: 1234}}"
        ) from None


def _offsets(topic: str, offsets: Any) -> dict[int, int]:
    if not isinstance(offsets, dict):
        raise ValueError(f"the start of topic {topic!r} must be a map of partition to offset")
    numbers = [*offsets.keys(), *offsets.values()]
    if not numbers or not all(isinstance(n, str) and re.fullmatch("[0-9]{1,18}", n) for n in numbers):
        raise ValueError(f"the start of topic {topic!r} must be a map of partition to offset, whole numbers")
    return {int(partition): int(offset) for partition, offset in offsets.items()}


def _column(value: Any) -> dict[str, str]:
    """What becomes of one column, as a map: ``type``, ``rename``, ``exclude`` or ``include`` alone, or what makes it."""
    if isinstance(value, str):
        return (
            {str(value): ""} if value in ("exclude", "include") else {"type": scalars.of_column(str(value))}
        )
    if not isinstance(value, dict) or not value:
        raise ValueError(f"write a type, exclude, include, or {{type: ..., rename: ...}}, not {_kind(value)}")
    readers: dict[str, Callable[[str], str]] = {
        "type": scalars.logical,
        "rename": scalars.column,
        "compute": conditions.expression,
        "constant": str,
        "meta": lambda text: scalars.one_of(text, tuple(METADATA)),
    }
    if odd := [name for name in value if name not in readers]:
        raise ValueError(f"the key {odd[0]!r} is unknown here{scalars.nearest(odd[0], readers)}")
    rules = {name: readers[name](text) for name, text in _settings(value).items()}
    making = [name for name in rules if name in MAKING]
    if making and (lost := [name for name in rules if name != making[0] and (name, making[0]) not in _TYPED]):
        raise ValueError(f"{making[0]} and {lost[0]} cannot be in one rule")
    if "constant" in rules:
        try:
            value_of(rules.get("type", "string"), rules["constant"])
        except (ValueError, ArithmeticError):
            text = f"{rules['constant']!r} is not a value of {rules['type']}, in the form of messages"
            raise ValueError(text) from None
    return rules


MAKING = ("compute", "constant", "meta", "deletes")
SOFT = {DELETED: {"deletes": "soft", "type": "boolean"}, DELETED_AT: {"deletes": "soft", "type": "timestamp"}}
"""The columns of a mirror that keeps deleted rows, as rules."""
_TYPED = {("type", "compute"), ("type", "constant")}  # metadata has its own types


def _made_by(column: str) -> str:
    return "deletes: soft" if column in SOFT else f"columns: {column!r}"


TEXT = {"type": "string", "minLength": 1}
_LIST: dict[str, Any] = {"anyOf": [TEXT, {"type": "array", "items": TEXT}]}
_SCALAR = {"type": ["string", "number", "boolean"]}
_MAP = {"type": "object", "additionalProperties": _SCALAR}


def _rule(*needed: str, **properties: Any) -> dict[str, Any]:
    """The JSON Schema of a mapping with these keys alone."""
    required = {"required": list(needed)} if needed else {}
    return {"type": "object", "properties": properties, **required, "additionalProperties": False}


Text = Annotated[str, *read(_filled, TEXT)]
PathOrUri = Annotated[str, *read(lambda text: scalars.place(_filled(text)), TEXT)]
Name = Annotated[str, *read(scalars.name, {"type": "string", "pattern": "^[A-Za-z0-9_.-]+$"})]
Format = Annotated[str, *read(_format, {"type": "string", "enum": list(formats.names())})]
Flag = Annotated[bool, *read(scalars.boolean, {"type": "boolean"})]
Count = Annotated[int, *read(scalars.count, {"type": "integer", "minimum": 1})]
Natural = Annotated[int, *read(scalars.natural, {"type": "integer", "minimum": 0})]
SizeOrNone = Annotated[
    int, *read(scalars.size_or_none, {"type": ["string", "integer"], "examples": ["4MiB", 0]})
]
Size = Annotated[int, *read(scalars.size, {"type": ["string", "integer"], "examples": ["64MiB"]})]
Duration = Annotated[
    float, *read(scalars.duration, {"type": ["string", "number"], "examples": ["60s", "5m", "1d"]})
]
Ratio = Annotated[float, *read(scalars.ratio, {"type": ["string", "number"], "examples": ["0.1%"]})]
Zone = Annotated[str, *read(scalars.timezone, {"type": "string", "examples": ["UTC", "Asia/Shanghai"]})]
Template = Annotated[str, *read(scalars.template, {"type": "string", "examples": ["shop.{table}"]})]
CatalogName = Annotated[
    str, *read(scalars.catalog_name, {"type": "string", "examples": ["lake_{database}", "{table}"]})
]
Match = Annotated[str, *read(_match, {"type": "string", "examples": ["shop.*"]})]
_MASKS: dict[str, Any] = {
    "type": "object",
    "additionalProperties": {"enum": [*scalars.MASKS, None]},
    "examples": [{"email": "hmac", "*phone*": "last4"}],
}
Mask = Annotated[dict[str, str], *tree(_mask, _MASKS)]
Secret = Annotated[str, *read(scalars.mask_secret, {"type": "string", "minLength": scalars.LEAST_SECRET})]
MasterKey = Annotated[str, *read(scalars.master_key, TEXT)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_texts), WithJsonSchema(_LIST)]
Joined = Annotated[str, *tree(lambda value: ",".join(_texts(value)), _LIST)]
Settings = Annotated[dict[str, str], *tree(_settings, _MAP)]
KafkaSettings = Annotated[
    dict[str, str],
    *tree(lambda value: {key.removeprefix("kafka."): item for key, item in _settings(value).items()}, _MAP),
]
Start = Annotated[Any, *tree(_start, {"type": ["string", "object"], "examples": ["earliest", "latest"]})]
Tables = Annotated[
    tuple[Any, ...],
    BeforeValidator(_tables),
    WithJsonSchema({"anyOf": [TEXT, {"type": "object", "additionalProperties": TEXT}]}),
]
Pattern = Annotated[str, *read(_pattern, TEXT)]
_COLUMN: list[dict[str, Any]] = [
    {"type": "string", "examples": ["decimal(10,2)", "exclude", "include"]},
    _rule(type=TEXT, rename=TEXT),
    _rule("compute", compute={**TEXT, "examples": ["price * quantity"]}, type=TEXT),
    _rule("constant", constant=_SCALAR, type=TEXT),
    _rule("meta", meta={"enum": list(METADATA)}),
]
ColumnRule = Annotated[dict[str, str], *tree(_column, {"anyOf": _COLUMN})]


# --- keys -----------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """Arguments of an expectation: here, and only here, numbers and booleans become Python's own."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return getattr(value, "value", value)


def key(meaning: str, default: Any = ...) -> Any:
    """A key of the file: what it means, and its default if it may be left out."""
    return Field(default=default, description=meaning)


class _Keys(BaseModel):
    """A mapping that may hold the keys below and no others."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
    one_of: ClassVar[tuple[str, ...]] = ()  # what takes either of two keys, and these

    @model_validator(mode="after")
    def _takes_one(self) -> Self:
        if self.one_of and bool(getattr(self, self.one_of[1])) == bool(getattr(self, self.one_of[2])):
            raise ValueError("{} takes either {} or {}, one of the two".format(*self.one_of))
        return self

    @model_validator(mode="before")
    @classmethod
    def _empty_is_absent(cls, value: Any) -> Any:
        """``tables:`` with all its entries commented out is as if it were not there."""
        if not isinstance(value, dict):
            return value
        return {key: item for key, item in value.items() if item is not None or key not in cls.model_fields}


class OptionKeys(_Keys):
    """What a message cannot say of itself; a format may know further keys of its own."""

    model_config = ConfigDict(extra="allow", defer_build=True)

    table: Tables = key("the table, for messages that name none; or a map of topics to tables", ())
    timezone: Zone = key("the zone of times written without one", "UTC")
    binary: Annotated[str, *choice(*scalars.BINARY)] | None = key("how bytes are written", None)
    time_units: Annotated[str, *choice(*scalars.TIME_UNITS)] | None = key(
        "the unit of bare integers in time columns", None
    )
    swap_old_data: Flag = key("old holds the row after the change", False)
    key_is_full: Flag = key("key holds the whole row before, not only key columns", True)
    decimal_scale: Natural | None = key("the scale of decimals that are sent as unscaled bytes", None)
    order_by: Annotated[str, *choice(*scalars.ORDER_BY)] = key("what orders changes", "sequence")
    database_kind: Annotated[str, *choice(*scalars.DATABASE_KINDS)] | None = key(
        "the database whose type names the messages have, where they do not say so", None
    )
    inserts: Annotated[str, *choice(*scalars.INSERTS)] = key(
        "what an insert is: a new row, or a row that may be there", "insert"
    )
    left_out: Annotated[str, *choice(*scalars.LEFT_OUT)] | None = key(
        "what a column means that an update or insert lacks, where the source does not always send NULLs",
        None,
    )


class DatabaseKeys(_Keys):
    """The source database itself: read only, by `ingest snapshot` and `ingest reconcile`."""

    url: Annotated[
        str,
        *read(
            scalars.database, {"type": "string", "pattern": "^(mysql|mariadb|postgresql|oracle|sqlserver)://"}
        ),
    ] = key(
        "mysql://host:3306, mariadb://host:3306, postgresql://host:5432/database, oracle://host:1521/service or "
        "sqlserver://host:1433/database"
    )
    user: Text = key("a user who may read the tables, and nothing more")
    password: Text | None = key("the user's password, as ${VAR} or ${file:/path}", None)
    connections: Count = key("the most connections that read at once", 2)
    rows_per_second: Natural = key(
        "the most rows that `ingest reconcile` makes it read in a second; 0 for no bound", 0
    )
    reconcile_every: Duration | None = key(
        "how old a comparison may be before `ingest reconcile --due` makes a new one", None
    )


class _SourceKeys(_Keys):
    name: Name = key("its name in the lake: receipts, changes and order are kept under it")
    enabled: Flag = key("false: read nothing more; what has landed can still be decoded", True)
    format: Format = key("`ingest formats` lists them; `ingest detect FILE` finds it")
    options: OptionKeys = key("what a message cannot say of itself; listed below", OptionKeys())
    registry: Text | None = key("URL of the schema registry, for framed Avro", None)
    max_messages: Count | None = key("the most messages that one batch takes", None)
    max_bytes: Size | None = key("the most bytes that one batch takes", None)
    server_change: Annotated[str, *choice("hold", "accept")] = key(
        "what happens when another server counts the positions", "hold"
    )
    database: DatabaseKeys | None = key(
        "the database that the messages come from, for reading whole tables", None
    )


class FileKeys(_SourceKeys):
    """A source of files."""

    kind: Literal["files"] = key("files; not needed where the keys show the kind", "files")
    path: Text = key("a file or glob, relative to this file, or a URI")
    framing: Annotated[str, *choice("lines", "document", "length", "avro-container", "raw")] | None = key(
        "how a file is cut into records; the format's own unless given", None
    )
    settle: Duration = key(
        "a file that has not changed for this long is finished: a last line without an end is read, too", 60.0
    )
    order_files_by: Annotated[str, *choice("name", "mtime")] = key(
        "the order of files in one batch, numbers in names compared as numbers", "name"
    )
    renamed_files: Annotated[str, *choice("refuse", "same", "new")] | None = key(
        "what is done with a file that holds what was read under another name: nothing, with an alarm; it is that "
        "file; it is read as another one (refuse where arrival orders the changes, else new)",
        None,
    )
    max_record_bytes: Size = key("a longer record becomes a reject that names its place", 64 * 1024 * 1024)
    storage: Settings = key("settings of the file system that holds the path", {})


class KafkaKeys(_SourceKeys):
    """A source of Kafka topics."""

    one_of = ("a kafka source", "topics", "topic_pattern")

    kind: Literal["kafka"] = key("kafka; not needed where the keys show the kind", "kafka")
    bootstrap_servers: Joined = key("host:port, several with commas or as a list")
    topics: Texts = key("the topics, by name", ())
    topic_pattern: Pattern | None = key("or a pattern of them", None)
    start: Start = key("earliest, latest, a timestamp, or {topic: {partition: offset}}", "earliest")
    kafka: KafkaSettings = key("settings passed on to the client as kafka.*", {})


def _with_kind(value: Any) -> Any:
    """A source without ``kind`` is of the kind whose keys it has."""
    if isinstance(value, dict) and value.get("kind") is None:
        kafka = {"bootstrap_servers", "topics", "topic_pattern"} & value.keys()
        return {**value, "kind": "kafka" if kafka else "files"}
    return value


MOST_CLUSTERED = 4  # with more, a file's range of each is nearly that of the table


def _at_least_one(sources: tuple[Any, ...]) -> tuple[Any, ...]:
    if not sources:
        raise ValueError("sources must hold at least one entry")
    return sources


SourceKeys = Annotated[FileKeys | KafkaKeys, Discriminator("kind")]


class _MirrorKeys(_Keys):
    """What each mirror of a source table has of its own."""

    columns: dict[str, ColumnRule] = key(
        "what becomes of columns, by name: a logical type, exclude, include, or {type: ..., rename: ...}; or a column of "
        "the mirror's own: {compute: ...}, {constant: ...} or {meta: ...}",
        {},
    )
    where: (
        Annotated[str, *read(conditions.condition, {"type": "string", "examples": ["region = 'EU'"]})] | None
    ) = key("the condition, in SQL, that a row meets to be in the mirror", None)
    no_key: Annotated[str, *choice("hold", "append", "full_row")] = key(
        "what happens to a table without any key", "hold"
    )
    on_schema_change: Annotated[str, *choice("lenient", "evolve", "freeze", "ignore")] = key(
        "what statements and new columns do to the mirror", "lenient"
    )
    shard_column: Text | None = key(
        "a column that names the source table, where rows of several have one key", None
    )
    change_feed: Flag = key("turn on Delta's change data feed of the mirror", False)
    changes_of: Flag = key("keep what each batch changes in a table of its own, `<table>__changes`", False)
    plain_tables: Flag = key("the mirror without deletion vectors", False)
    apply: Annotated[str, *choice(AUTO, FILES, MERGE)] | None = key(
        "how a batch is put into the mirror, if not as the pipeline's apply: says", None
    )
    deletes: Annotated[str, *choice("remove", "soft")] = key(
        "what a delete does: remove the row, or keep it (soft) and set `_deleted` and `_deleted_at`", "remove"
    )
    history: Flag = key("keep every state of a row in a table of its own, `<table>__history`", False)
    cluster_by: Texts = key(
        "columns, at most four, by which `ingest maintain` orders the mirror's files, so that queries on them read few",
        (),
    )

    @property
    def made(self) -> dict[str, dict[str, str]]:
        """The rules of columns that no message carries."""
        made = {name: rule for name, rule in self.columns.items() if rule.keys() & {*MAKING}}
        return made | SOFT if self.deletes == "soft" else made


class AlsoKeys(_MirrorKeys):
    """A further mirror of the tables of an entry, with rules of its own."""

    into: Template = key("its name, with {1} for a group of match:")


class TableKeys(_MirrorKeys):
    """One entry of ``tables:``; the first that matches a table applies, alone."""

    match: Match = key(
        "database.table, with * for any part, or a regular expression with groups for each", "*"
    )
    exclude: Flag = key("leave these tables out", False)
    into: Template | None = key(
        "the mirror's name, with {1} for a group of match:; the source's own unless given", None
    )
    keys: Texts = key("the columns of the primary key", ())
    mask: Mask = key(
        "columns, or patterns of them, whose values are masked before anything is kept of them outside bronze: "
        "hmac, tokenize, last4 or null; keep leaves them as they are",
        {},
    )
    also: tuple[AlsoKeys, ...] = key(
        "further mirrors of these tables, each with into: and rules of its own", ()
    )

    @model_validator(mode="after")
    def _clusters_are_columns(self) -> Self:
        """Files are ordered by few columns that the mirror has."""
        if lost := [name for name in self.cluster_by if "exclude" in self.columns.get(name, {})]:
            raise ValueError(f"cluster_by: needs the column {lost[0]!r}, which columns: excludes")
        if len(self.cluster_by) > MOST_CLUSTERED:
            raise ValueError(
                f"cluster_by: names {len(self.cluster_by)} columns; files are ordered by at most {MOST_CLUSTERED}"
            )
        return self

    @model_validator(mode="after")
    def _columns_fit_together(self) -> Self:
        """Two columns cannot have one name, nor a row a key that is left out."""
        names = [rule["rename"] for rule in self.columns.values() if "rename" in rule]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"columns: renames two columns to {twice[0]!r}")
        if odd := [name for name, rule in self.columns.items() if "*" in name and "exclude" not in rule]:
            raise ValueError(f"columns: {odd[0]!r} is a pattern, and patterns can only be excluded")
        if lost := [name for name in self.keys if "exclude" in self.columns.get(name, {})]:
            raise ValueError(f"columns: leaves out {lost[0]!r}, which is a column of the key")
        if self.no_key == "full_row" and any("exclude" in rule for rule in self.columns.values()):
            raise ValueError("with no_key: full_row every column tells rows apart, and none can be excluded")
        if self.history and any(rule.keys() & {"exclude", "rename"} for rule in self.columns.values()):
            raise ValueError("with history: true every column stays as it is; exclude and rename none")
        return self

    @model_validator(mode="after")
    def _made_columns_can_be_made(self) -> Self:
        """A column of the mirror's own is made from the row's other columns, so it is neither theirs nor one of the key."""
        made = self.made
        if not made:
            return self
        first = next(iter(made))
        for name in made:
            scalars.column(name)
        if twice := [name for name in self.columns if self.deletes == "soft" and name in SOFT]:
            raise ValueError(f"columns: {twice[0]!r} is made by deletes: soft already")
        self._refuse_keyless(_made_by(first))
        if self.history:
            raise ValueError(f"{_made_by(first)} and history: true cannot be in one entry")
        if lost := [name for name in (*self.keys, self.shard_column) if name in made]:
            raise ValueError(f"columns: {lost[0]!r} is made by its rule, so it cannot tell rows apart")
        if lost := [rule["rename"] for rule in self.columns.values() if rule.get("rename") in made]:
            raise ValueError(f"columns: {lost[0]!r} is made by its rule, and another column is renamed to it")
        for name, rule in made.items():
            if "compute" in rule:
                self._refuse_lost(f"columns: {name!r}", rule["compute"])
        return self

    @model_validator(mode="after")
    def _changes_have_keys(self) -> Self:
        """A change of a row is known by the row's key."""
        if self.changes_of:
            self._refuse_keyless("changes_of:")
        return self

    def _refuse_keyless(self, what: str) -> None:
        if self.no_key != "hold":
            raise ValueError(f"{what} needs rows with a key, and no_key: {self.no_key} is for rows without")

    def _refuse_lost(self, what: str, expression: str) -> None:
        """Refuse an expression with a column that the mirror does not have as the source sends it."""
        names, masked = conditions.columns(expression), TableRule(mask=self.mask)
        if lost := [name for name in names if name in self.made]:
            raise ValueError(
                f"{what} needs the column {lost[0]!r}, which is made by a rule: write its expression"
            )
        if lost := [name for name in names if masked.mask_of(name)]:
            raise ValueError(
                f"{what} needs the column {lost[0]!r}, of which mask: leaves no value to compare"
            )
        if lost := [name for name in names if "exclude" in self.columns.get(name, {})]:
            raise ValueError(f"{what} needs the column {lost[0]!r}, which columns: excludes")

    @model_validator(mode="after")
    def _condition_can_be_judged(self) -> Self:
        """A row that stops to meet a condition leaves the mirror by its key, and with it what the condition was about."""
        if not self.where:
            return self
        self._refuse_keyless("where:")
        if self.deletes == "soft":
            raise ValueError(
                "where: and deletes: soft cannot be in one entry: a row that no longer meets the condition is not deleted"
            )
        if self.history:
            raise ValueError(
                "where: and history: true cannot be in one entry: old states are kept of all rows"
            )
        self._refuse_lost("where:", self.where)
        return self

    @model_validator(mode="after")
    def _shards_are_told_apart(self) -> Self:
        """Positions of two source tables cannot be compared: without a key, their rows must stay apart."""
        count = patterns.groups(self.match)
        numbers = [int(hole) for hole in re.findall(r"\{([0-9]+)\}", self.into or "")]
        if odd := [number for number in numbers if not 1 <= number <= count]:
            raise ValueError(f"into: {{{odd[0]}}} is not a group of match:, which has {count}")
        keyless = self.history or self.deletes == "soft" or self.no_key != "hold"
        if self.into and keyless and not self.shard_column and not self.exclude:
            for part, (pattern, groups) in patterns.varying(self.match).items():
                if f"{{{part}}}" not in self.into and (pattern or not groups <= {*numbers}):
                    raise ValueError(
                        f"into: {self.into!r} brings tables of several source {part}s into one mirror, where their "
                        f"changes cannot be ordered; put {{{part}}}{' or its groups' if groups else ''} into the name, give a "
                        f"shard_column, or write one {part} in match: instead of {patterns.shown(self.match, part)!r}"
                    )
        return self


class ExpectationKeys(BaseModel):
    """A Great Expectations type; its arguments are further keys."""

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)

    type: Annotated[str, *read(scalars.expectation, {"type": "string", "pattern": "^expect_"})] = key(
        "the expectation's name in Great Expectations; its arguments are further keys"
    )
    severity: Annotated[str, *choice("error", "warn")] = key(
        "whether its failure makes the run exit with 1", "error"
    )

    @model_validator(mode="before")
    @classmethod
    def _real_arguments(cls, value: Any) -> Any:
        keys = cls.model_fields
        if isinstance(value, dict) and isinstance(kind := value.get("type"), str):
            scalars.refuse_arguments(kind, value)
        return (
            {k: v if k in keys else _plain(v) for k, v in value.items()} if isinstance(value, dict) else value
        )


class QualityKeys(_Keys):
    """The checks of one mirror."""

    table: Match = key("the mirrors that the entry is about, database.table")
    expect: tuple[ExpectationKeys, ...] = key("your own checks", ())
    suite: PathOrUri | None = key(
        "a Great Expectations suite, JSON, relative to this file; joins expect:", None
    )
    on: Annotated[str, *choice("mirror", "changed")] = key(
        "look at all rows, or at those that changed since the last run", "mirror"
    )
    source_counts: PathOrUri | None = key(
        "the source's own row counts: CSV or JSON with table and rows", None
    )
    cells_checked: Natural = key(
        "how many of the keys that a batch touches are compared cell by cell with the fold of all "
        "their changes; 0 compares none, `ingest quality FILE --deep '*'` all",
        CELLS_CHECKED,
    )
    freshness: Duration | None = key("how old the newest change may be", None)
    thresholds: Annotated[dict[str, Ratio], AfterValidator(scalars.limits)] = key(
        "limits of the built-in checks, 0.1% or a count", {}
    )


class LineageKeys(_Keys):
    """Where OpenLineage events of the runs go."""

    one_of = ("openlineage", "url", "file")

    url: Text | None = key("a service that takes them, such as http://marquez:5000", None)
    file: PathOrUri | None = key("or a file, relative to this one, one event a line", None)
    namespace: Text = key("the namespace of the job and of the mirrors' names", "ingest")
    api_key: Text | None = key("sent to the service as a bearer token", None)


class CatalogKeys(_Keys):
    """A catalog in which each mirror is registered under a name; Glue needs ingest[glue]."""

    kind: Annotated[str, *choice(*scalars.CATALOGS)] = key(
        "hive (a metastore that speaks Thrift), glue (AWS Glue) or unity (Unity Catalog)"
    )
    uri: Text | None = key(
        "the metastore, thrift://host:9083, or Unity Catalog's server, http://host:8080; for Glue another endpoint than "
        "AWS' own",
        None,
    )
    catalog: Name | None = key(
        "Unity Catalog: the catalog that takes the databases; Glue: the account's number", None
    )
    region: Text | None = key("Glue's region; that of AWS' own settings unless given", None)
    token: Text | None = key("sent to Unity Catalog as a bearer token, as ${VAR} or ${file:/path}", None)
    database: CatalogName | None = key(
        "the database of a mirror, with {database} and {schema} of its name in it; both joined by _ unless given",
        None,
    )
    table: CatalogName = key("the table's name, with {database}, {schema} and {table} in it", "{table}")

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        scalars.catalog_address(self.kind, self.uri or "")
        needed, foreign = scalars.CATALOGS[self.kind]
        if lost := [name for name in needed if not getattr(self, name)]:
            raise ValueError(f"catalog of kind {self.kind} needs {lost[0]}:")
        if odd := [name for name in foreign if getattr(self, name)]:
            raise ValueError(f"{odd[0]}: has no meaning for a catalog of kind {self.kind}")
        if "{table}" in (self.database or ""):
            raise ValueError("database: cannot hold {table}: each mirror would get a database of its own")
        return self


class AlertKeys(_Keys):
    """Where alerts of the pipeline go."""

    one_of = ("an alert", "webhook", "email")

    webhook: (
        Annotated[str, *read(scalars.web_address, {"type": "string", "pattern": "^https?://"})] | None
    ) = key("a URL that takes alerts as JSON; as a secret: ${VAR} or ${file:/path}", None)
    style: Annotated[str, *choice("json", "slack")] = key(
        "what the webhook is sent: this product's JSON, or a message for Slack and its like", "json"
    )
    email: Texts = key("or addresses that get a mail", ())
    smtp: Annotated[str, *read(scalars.mail_server, {"type": "string", "pattern": "^smtps?://"})] | None = (
        key(
            "the mail server, smtp://host:25 (with STARTTLS where it offers that) or smtps://user:password@host:465",
            None,
        )
    )
    sender: Text | None = key("the address that mails come from", None)
    severity: Annotated[str, *choice("error", "warn")] = key("the least severe that is sent", "error")
    repeat: Duration = key("an alert that lasts is sent again after so long; 0s never", 4 * 3600.0)

    @model_validator(mode="after")
    def _mail_has_a_server(self) -> Self:
        if self.email and not (self.smtp and self.sender):
            raise ValueError("email needs the mail server in smtp and the address in sender")
        return self


class SealKeys(_Keys):
    """Encryption of the messages in bronze; needs ingest[seal]."""

    one_of = ("seal", "master_key", "command")

    master_key: MasterKey | None = key(
        "the key that wraps each day's own, 32 bytes, as ${VAR} or ${file:/path}", None
    )
    command: Texts | None = key("or a command that prints it: its words, run without a shell", None)
    previous_master_key: MasterKey | None = key(
        "the former one, until `ingest maintain --rewrap-keys` has wrapped all keys with the new one", None
    )
    keep_days: Count | None = key(
        "days after which `ingest maintain` drops a day's key; none if not given", None
    )


class BronzeKeys(_Keys):
    """How messages are stored as they were received."""

    seal: SealKeys | None = key(
        "encrypt them; readable for silver, replay and rebuild only with the key", None
    )


class PipelineKeys(_Keys):
    """A pipeline: its sources, its lake, and what holds for its tables."""

    pipeline: Name = key("the pipeline's name, which the lake's tables carry")
    lake: PathOrUri = key("the lake's folder, relative to this file, or a URI")
    sources: Annotated[
        tuple[Annotated[SourceKeys, BeforeValidator(_with_kind)], ...],
        AfterValidator(_at_least_one),
        Field(json_schema_extra={"minItems": 1}, description="where messages come from, at least one"),
    ]
    tables: tuple[TableKeys, ...] = key(
        "rules for source tables; the first entry that matches applies, alone", ()
    )
    mask_secret: Secret | None = key(
        "the secret of the masks hmac and tokenize, as ${VAR} or ${file:/path}; another one means decoding all again",
        None,
    )
    bronze: BronzeKeys | None = key("how messages are stored as they were received", None)
    quality: tuple[QualityKeys, ...] = key("your own checks and limits", ())
    spark: Settings = key("Spark settings, passed on as they are", {})
    master: Text | None = key("the Spark master", None)
    plain_tables: Flag = key("mirrors without deletion vectors", False)
    apply: Annotated[str, *choice(AUTO, FILES, MERGE)] = key(
        "how a batch is put into mirrors: files, new files and deletion vectors; merge, Delta's own MERGE by Spark; auto, "
        "files where they can be, else merge",
        AUTO,
    )
    every: Annotated[Duration, AfterValidator(scalars.pause)] | None = key(
        "how often `ingest serve` runs the pipeline", None
    )
    horizon_days: Count = key("days for which time travel is promised", 7)
    rewrite_budget: SizeOrNone = key(
        "the most bytes of a mirror that a batch rewrites; a larger one gets deletion vectors, or a MERGE if it has none",
        None,
    )
    engine: Annotated[str, *choice(SPARK, AUTO)] = key(
        "what does the work: spark, as Spark jobs whatever the size of a batch, or auto, where this process does what is "
        "less than a Spark job costs, and no session is started for it",
        SPARK,
    )
    condense_after: Duration | None = key(
        "`ingest maintain` drops superseded changes of batches so old; none if not given", None
    )
    openlineage: LineageKeys | None = key("report what each run read and wrote; needs ingest[lineage]", None)
    catalog: CatalogKeys | None = key("register each mirror by name in a catalog, and keep it in step", None)
    alerts: tuple[AlertKeys, ...] = key("who is alerted when something fails, and when it is over", ())


MODELS: dict[tuple[str, ...], type[BaseModel]] = {
    (): PipelineKeys,
    ("sources", "files"): FileKeys,
    ("sources", "kafka"): KafkaKeys,
    ("sources", "files", "database"): DatabaseKeys,
    ("sources", "kafka", "database"): DatabaseKeys,
    ("tables",): TableKeys,
    ("tables", "also"): AlsoKeys,
    ("quality",): QualityKeys,
    ("openlineage",): LineageKeys,
    ("catalog",): CatalogKeys,
    ("alerts",): AlertKeys,
    ("bronze",): BronzeKeys,
    ("bronze", "seal"): SealKeys,
}
"""Which keys are known where, for the nearest name of an unknown one."""


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a pipeline file, for editors."""
    schema = PipelineKeys.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
