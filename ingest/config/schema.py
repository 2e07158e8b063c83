"""The keys that a pipeline file may hold, as the validator knows them; ``ingest schema`` prints them as a JSON Schema.

Those of an entry that is the same in the file and in Python are made from its record (`ingest.config.entries`); the
others, which a record holds in another form, are written here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, fields
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    create_model,
    model_validator,
)

from ingest.config import conditions, kinds, patterns, scalars
from ingest.config.entries import AlertTarget, CatalogSettings, Database, Lineage, QualityRule, Sealing
from ingest.config.kinds import (
    MAKING,
    SOFT,
    ColumnRule,
    Flag,
    Format,
    Joined,
    Name,
    Natural,
    PathOrUri,
    Tables,
    Template,
    Text,
    Zone,
    choice,
    read,
)
from ingest.config.model import Pipeline, Source, TableRule


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
    record: ClassVar[type | None] = None  # what the keys say, if all of them are its fields

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


Model = TypeVar("Model", bound=_Keys)
_READ_AS: dict[str, Any] = {"Expectation": ExpectationKeys}
"""The models of entries inside of entries, by the names of their records."""


def _keys_of(entry: type, only: str = "") -> Callable[[type[Model]], type[Model]]:
    """Give a model the keys that say an entry: its fields that are keys, each of the kind that its type names."""

    def keyed(model: type[Model]) -> type[Model]:
        kinds_by_key = get_type_hints(entry, localns=vars(kinds) | _READ_AS, include_extras=True)
        keys: dict[str, Any] = {}
        for field in fields(entry):
            said = field.metadata
            if not said or said["only"] not in ("", only):
                continue
            kind: Any = Annotated[str, *choice(*said["among"])] if said["among"] else kinds_by_key[field.name]
            default: Any = ... if field.default is MISSING else field.default
            if field.default_factory is not MISSING:
                default = field.default_factory()
            if default == "":  # a text that may be left out
                kind, default = kind | None, None
            keys[field.name] = (kind, key(said["meaning"], default))
        made = create_model(
            model.__name__,
            __base__=model,
            __doc__=model.__doc__ if only else entry.__doc__,
            __module__=__name__,
            **keys,
        )
        if not model.model_fields:
            made.record = entry
        _READ_AS[entry.__name__] = made
        return made

    return keyed


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


@_keys_of(Database)
class DatabaseKeys(_Keys):
    """The keys of `Database`."""

    @model_validator(mode="after")
    def _has_replicas(self: Any) -> Any:
        scalars.replicated(self.url, self.primary or "")
        return self


class _SourceKeys(_Keys):
    name: Name = key("its name in the lake: receipts, changes and order are kept under it")
    format: Format = key("`ingest formats` lists them; `ingest detect FILE` finds it")
    options: OptionKeys = key("what a message cannot say of itself; listed below", OptionKeys())


@_keys_of(Source, "files")
class FileKeys(_SourceKeys):
    """A source of files."""

    kind: Literal["files"] = key("files; not needed where the keys show the kind", "files")
    path: Text = key("a file or glob, relative to this file, or a URI")


@_keys_of(Source, "kafka")
class KafkaKeys(_SourceKeys):
    """A source of Kafka topics."""

    one_of = ("a kafka source", "topics", "topic_pattern")

    kind: Literal["kafka"] = key("kafka; not needed where the keys show the kind", "kafka")
    bootstrap_servers: Joined = key("host:port, several with commas or as a list")


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

    deletes: Annotated[str, *choice("remove", "soft")] = key(
        "what a delete does: remove the row, or keep it (soft) and set `_deleted` and `_deleted_at`", "remove"
    )

    @property
    def made(self) -> dict[str, dict[str, str]]:
        """The rules of columns that no message carries."""
        made = {name: rule for name, rule in self.columns.items() if rule.keys() & {*MAKING}}
        return made | SOFT if self.deletes == "soft" else made


@_keys_of(TableRule, "mirror")
class AlsoKeys(_MirrorKeys):
    """A further mirror of the tables of an entry, with rules of its own."""

    into: Template = key("its name, with {1} for a group of match:")


def _refuse(names: Iterable[object], before: str, after: str = "") -> None:
    """Raise a `ValueError` of the first of some names, if there is one, with the words before and after it."""
    for name in names:
        raise ValueError(f"{before} {name!r}{after}")


def _made_by(column: str) -> str:
    return "deletes: soft" if column in SOFT else f"columns: {column!r}"


@_keys_of(TableRule, "entry")
class TableKeys(_MirrorKeys):
    """One entry of ``tables:``; the first that matches a table applies, alone."""

    also: tuple[AlsoKeys, ...] = key(
        "further mirrors of these tables, each with into: and rules of its own", ()
    )

    @model_validator(mode="after")
    def _clusters_are_columns(self: Any) -> Any:
        """Files are ordered by few columns that the mirror has."""
        _refuse(self._excluded(self.cluster_by), "cluster_by: needs the column", ", which columns: excludes")
        if len(self.cluster_by) > MOST_CLUSTERED:
            raise ValueError(
                f"cluster_by: names {len(self.cluster_by)} columns; files are ordered by at most {MOST_CLUSTERED}"
            )
        return self

    @model_validator(mode="after")
    def _columns_fit_together(self: Any) -> Any:
        """Two columns cannot have one name, nor a row a key that is left out."""
        names = [rule["rename"] for rule in self.columns.values() if "rename" in rule]
        twice = (name for name in names if names.count(name) > 1)
        _refuse(twice, "columns: renames two columns to")
        odd = (name for name, rule in self.columns.items() if "*" in name and "exclude" not in rule)
        _refuse(odd, "columns:", " is a pattern, and patterns can only be excluded")
        _refuse(self._excluded(self.keys), "columns: leaves out", ", which is a column of the key")
        if self.no_key == "full_row" and any("exclude" in rule for rule in self.columns.values()):
            raise ValueError("with no_key: full_row every column tells rows apart, and none can be excluded")
        if self.history and any(rule.keys() & {"exclude", "rename"} for rule in self.columns.values()):
            raise ValueError("with history: true every column stays as it is; exclude and rename none")
        return self

    @model_validator(mode="after")
    def _made_columns_can_be_made(self: Any) -> Any:
        """A column of the mirror's own is made from the row's other columns, so it is neither theirs nor one of the key."""
        made = self.made
        if not made:
            return self
        first = next(iter(made))
        for name in made:
            scalars.column(name)
        if self.deletes == "soft":
            twice = (name for name in self.columns if name in SOFT)
            _refuse(twice, "columns:", " is made by deletes: soft already")
        self._refuse_keyless(_made_by(first))
        if self.history:
            raise ValueError(f"{_made_by(first)} and history: true cannot be in one entry")
        telling = (name for name in (*self.keys, self.shard_column) if name in made)
        _refuse(telling, "columns:", " is made by its rule, so it cannot tell rows apart")
        renamed = (rule["rename"] for rule in self.columns.values() if rule.get("rename") in made)
        _refuse(renamed, "columns:", " is made by its rule, and another column is renamed to it")
        for name, rule in made.items():
            if "compute" in rule:
                self._refuse_lost(f"columns: {name!r}", rule["compute"])
        return self

    @model_validator(mode="after")
    def _changes_have_keys(self: Any) -> Any:
        """A change of a row is known by the row's key."""
        if self.changes_of:
            self._refuse_keyless("changes_of:")
        return self

    def _refuse_keyless(self: Any, what: str) -> None:
        if self.no_key != "hold":
            raise ValueError(f"{what} needs rows with a key, and no_key: {self.no_key} is for rows without")

    def _refuse_lost(self: Any, what: str, expression: str) -> None:
        """Refuse an expression with a column that the mirror does not have as the source sends it."""
        names, masked = conditions.columns(expression), TableRule(mask=self.mask)
        lost = f"{what} needs the column"
        _refuse(
            (name for name in names if name in self.made),
            lost,
            ", which is made by a rule: write its expression",
        )
        hidden = (name for name in names if masked.mask_of(name))
        _refuse(hidden, lost, ", of which mask: leaves no value to compare")
        _refuse(self._excluded(names), lost, ", which columns: excludes")

    def _excluded(self: Any, names: Iterable[str]) -> Iterator[str]:
        """Those of some columns that the mirror leaves out."""
        return (name for name in names if "exclude" in self.columns.get(name, {}))

    @model_validator(mode="after")
    def _condition_can_be_judged(self: Any) -> Any:
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
    def _shards_are_told_apart(self: Any) -> Any:
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


@_keys_of(QualityRule)
class QualityKeys(_Keys):
    """The keys of `QualityRule`."""

    suite: PathOrUri | None = key(
        "a Great Expectations suite, JSON, relative to this file; joins expect:", None
    )


@_keys_of(Lineage)
class LineageKeys(_Keys):
    """The keys of `Lineage`."""

    one_of = ("openlineage", "url", "file")


@_keys_of(CatalogSettings)
class CatalogKeys(_Keys):
    """The keys of `CatalogSettings`."""

    @model_validator(mode="after")
    def _fits_its_kind(self: Any) -> Any:
        scalars.catalog_address(self.kind, self.uri or "")
        needed, foreign = scalars.CATALOGS[self.kind]
        if lost := [name for name in needed if not getattr(self, name)]:
            raise ValueError(f"catalog of kind {self.kind} needs {lost[0]}:")
        if odd := [name for name in foreign if getattr(self, name)]:
            raise ValueError(f"{odd[0]}: has no meaning for a catalog of kind {self.kind}")
        if "{table}" in (self.database or ""):
            raise ValueError("database: cannot hold {table}: each mirror would get a database of its own")
        return self


@_keys_of(AlertTarget)
class AlertKeys(_Keys):
    """The keys of `AlertTarget`."""

    one_of = ("an alert", "webhook", "email")

    @model_validator(mode="after")
    def _mail_has_a_server(self: Any) -> Any:
        if self.email and not (self.smtp and self.sender):
            raise ValueError("email needs the mail server in smtp and the address in sender")
        return self


@_keys_of(Sealing)
class SealKeys(_Keys):
    """The keys of `Sealing`."""

    one_of = ("seal", "master_key", "command")


class BronzeKeys(_Keys):
    """How messages are stored as they were received."""

    seal: SealKeys | None = key(
        "encrypt them; readable for silver, replay and rebuild only with the key", None
    )


@_keys_of(Pipeline)
class PipelineKeys(_Keys):
    """The keys of `Pipeline`."""

    pipeline: Name = key("the pipeline's name, which the lake's tables carry")
    lake: PathOrUri = key("the lake's folder, relative to this file, or a URI")
    sources: Annotated[
        tuple[Annotated[SourceKeys, BeforeValidator(_with_kind)], ...],
        AfterValidator(_at_least_one),
        Field(json_schema_extra={"minItems": 1}, description="where messages come from, at least one"),
    ]
    bronze: BronzeKeys | None = key("how messages are stored as they were received", None)
    openlineage: LineageKeys | None = key("report what each run read and wrote; needs ingest[lineage]", None)


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
