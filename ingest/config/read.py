"""From a file to a checked `Pipeline`: every fault at once, each with its line and column."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from ingest import formats
from ingest.change import Options
from ingest.config import lint, schema, suite, words
from ingest.config.lint import CheckedFile
from ingest.config.model import (
    METADATA,
    AlertTarget,
    Database,
    Expectation,
    Lineage,
    MadeColumn,
    Pipeline,
    QualityRule,
    Sealing,
    Source,
    TableRule,
)
from ingest.config.yaml_tree import Document, Where, is_secret, read
from ingest.errors import ConfigError

_STANDARD_OPTIONS = tuple(schema.OptionKeys.model_fields)


def check(path: str | Path) -> CheckedFile:
    """Read and check one pipeline file; a `ConfigError` with all its faults."""
    document = read(Path(path))
    keys = None
    try:
        keys = schema.PipelineKeys.model_validate(document.tree)
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            _note(document, fault)
    _check_names(document)
    _check_options(document)
    if document.faults or keys is None:
        raise ConfigError(document.problems())
    suites = _suites(document, keys)
    pipeline = _pipeline(document, keys, suites)
    lint.refuse(document, pipeline)
    if document.faults:
        raise ConfigError(document.problems())
    return CheckedFile(pipeline, document, keys)


def options(given: Mapping[str, Any], format_name: str) -> Options:
    """A source's ``options:`` from text values, for verbs without a pipeline file; a `ConfigError` with all faults."""
    known = known_options(format_name)
    unknown = [key for key in given if key not in known]
    problems = [
        f"option {key!r} is unknown{words.nearest(key, known) or '; there are ' + ', '.join(known)}"
        for key in unknown
    ]
    try:
        keys = schema.OptionKeys.model_validate(dict(given))
    except ValidationError as error:
        problems += [f"option {fault['loc'][0]}: {_sentence(fault)}" for fault in error.errors()]
    if problems:
        raise ConfigError(problems)
    return _options(keys, format_name)


def known_options(format_name: str) -> tuple[str, ...]:
    """The names that ``options:`` may hold for a format."""
    own = formats.load(format_name).ABOUT.options if format_name in formats.names() else {}
    return tuple(dict.fromkeys((*_STANDARD_OPTIONS, *own)))


# --- faults -------------------------------------------------------------------------------------


def _note(document: Document, fault: Mapping[str, Any]) -> None:
    where, model = _locate(document, tuple(fault["loc"]))
    if fault["type"] == "union_tag_invalid":
        where = (*where, "kind")
    if where in document.references and any(place == document.place(where) for place, _ in document.faults):
        return  # the reference could not be resolved, so its value means nothing
    if where in document.references or is_secret(where, fault.get("input")):
        written = document.references.get(where, "the value")
        document.fault(where, f"{written} does not resolve to a usable value of {where[-1]}")
        return
    document.fault(where, _sentence(fault, model))


def _locate(document: Document, loc: tuple[str | int, ...]) -> tuple[Where, tuple[str, ...]]:
    """Where in the file a fault is, and in which model; the location also names the model's kind."""
    where: Where = ()
    model: list[str] = []
    for step in loc:
        inside = (*where, step) in document.places
        if inside or step is loc[-1]:
            where = (*where, step)
        if isinstance(step, str) and step is not loc[-1]:
            model.append(step)
    return where, tuple(model)


def _sentence(fault: Mapping[str, Any], model: tuple[str, ...] = ()) -> str:
    kind, key = fault["type"], fault["loc"][-1] if fault["loc"] else ""
    match kind:
        case "value_error":
            return str(fault["ctx"]["error"])
        case "extra_forbidden":
            return _unknown_key(str(key), model)
        case "missing":
            return f"the key {key!r} is missing"
        case "union_tag_invalid":
            tag = str(fault["ctx"]["tag"])
            return f"kind: {tag!r} is not one of files or kafka{words.nearest(tag, ('files', 'kafka'))}"
        case "model_type" | "model_attributes_type" | "dict_type" | "union_tag_not_found":
            return "a mapping of keys belongs here"
        case "tuple_type":
            return f"{key} must be a list; start each entry with a dash"
    return str(fault["msg"])


def _unknown_key(key: str, model: tuple[str, ...]) -> str:
    for other, keys in schema.MODELS.items():
        if other[:1] == model[:1] == ("sources",) and key in keys.model_fields:
            return f"the key {key!r} belongs to a source of kind {other[1]}, not {model[1]}"
    known = schema.MODELS[model].model_fields if model in schema.MODELS else ()
    return f"the key {key!r} is unknown here{words.nearest(key, known)}"


def _sources(document: Document) -> Iterator[tuple[int, dict[str, Any]]]:
    found = document.tree.get("sources")
    for i, source in enumerate(found if isinstance(found, list) else []):
        if isinstance(source, dict):
            yield i, source


def _check_names(document: Document) -> None:
    first: dict[str, int] = {}
    for i, source in _sources(document):
        name = source.get("name")
        if isinstance(name, str) and first.setdefault(name, i) != i:
            line, _ = document.place(("sources", first[name], "name"))
            document.fault(
                ("sources", i, "name"), f"the source {name!r} is in line {line} already; use another name"
            )


def _check_options(document: Document) -> None:
    """Options of a format's own are not in the model: their names come from its module."""
    for i, source in _sources(document):
        given, format_name = source.get("options"), source.get("format")
        if not isinstance(given, dict) or format_name not in formats.names():
            continue
        known = known_options(str(format_name))
        for key in given.keys() - set(known):
            where = ("sources", i, "options", key)
            document.fault(where, f"the option {key!r} is unknown{words.nearest(key, known)}")


def _suites(document: Document, keys: schema.PipelineKeys) -> dict[int, tuple[Expectation, ...]]:
    """The expectations of the suites that ``quality:`` entries name, by the entry."""
    found = {}
    for i, rule in enumerate(keys.quality):
        if rule.suite is not None:
            try:
                found[i] = suite.read(document.file.absolute().parent / Path(rule.suite).expanduser())
            except ValueError as error:
                document.fault(("quality", i, "suite"), str(error))
    return found


# --- the dataclasses ----------------------------------------------------------------------------


def _pipeline(
    document: Document, keys: schema.PipelineKeys, suites: Mapping[int, tuple[Expectation, ...]]
) -> Pipeline:
    file = document.file
    folder, given = file.absolute().parent, _given(keys)
    name, lineage = given.pop("pipeline"), given.pop("openlineage", None)
    given.pop("bronze", None)
    given["lake"] = words.whole_uri(absolute(keys.lake, folder))
    given["sources"] = tuple(_source(source, folder) for source in keys.sources)
    given["tables"] = tuple(_table(document, i, rule) for i, rule in enumerate(keys.tables))
    given["quality"] = tuple(_quality(rule, folder, suites.get(i, ())) for i, rule in enumerate(keys.quality))
    given["alerts"] = tuple(AlertTarget(**_given(one)) for one in keys.alerts)
    if keys.bronze and keys.bronze.seal:
        given["seal"] = Sealing(**_given(keys.bronze.seal))
    if lineage:
        places = {"file": absolute(str(lineage.file), folder)} if lineage.file else {}
        given["lineage"] = Lineage(**(_given(lineage) | places))
    return Pipeline(name=name, file=file.absolute(), **given)


def _table(document: Document, i: int, keys: schema.TableKeys) -> TableRule:
    """A rule for tables, with what becomes of columns apart from their types."""
    given, columns = _given(keys), _plain(keys.columns)
    made = _plain(keys.made)
    given.pop("deletes")
    for part, name in (("columns", "type"), ("names", "rename")):
        given[part] = {
            column: rule[name] for column, rule in columns.items() if name in rule and column not in made
        }
    given["made"] = {
        column: MadeColumn(
            kind, rule[kind], METADATA.get(rule[kind], "") if kind == "meta" else rule.get("type", "")
        )
        for column, rule in made.items()
        for kind in schema.MAKING
        if kind in rule
    }
    given["without"] = tuple(column for column, rule in columns.items() if "exclude" in rule)
    if any("*" in one for one in given["without"]):
        given["include"] = tuple(column for column, rule in columns.items() if "exclude" not in rule)
    for name in ("where", "cluster_by"):
        line, at = document.place(("tables", i, name))
        given[f"{name.partition('_')[0]}_place"] = f"{document.file}:{line}:{at}"
    places = {column: document.place(("tables", i, "columns", column)) for column in columns}
    places |= {
        column: document.place(("tables", i, "deletes")) for column, rule in made.items() if "deletes" in rule
    }
    given["places"] = {name: f"{document.file}:{line}:{at}" for name, (line, at) in places.items()}
    return TableRule(**given)


def absolute(path: str, folder: Path) -> str:
    """A path as an absolute one, taken from the pipeline file's folder; a URI as it is."""
    if words.is_uri(path):
        return path
    return os.path.normpath(folder / Path(path).expanduser())


def _source(keys: schema.FileKeys | schema.KafkaKeys, folder: Path) -> Source:
    given = _given(keys)
    given["options"] = _options(keys.options, str(keys.format))
    if keys.database is not None:
        given["database"] = Database(**_given(keys.database))
    if isinstance(keys, schema.FileKeys):
        given["path"] = absolute(keys.path, Path(glob.escape(str(folder))))  # only the path is a pattern
    return Source(**given)


def _options(keys: schema.OptionKeys, format_: str) -> Options:
    given = {name: _plain(getattr(keys, name)) for name in _STANDARD_OPTIONS}
    if "order_by" not in keys.model_fields_set:
        given["order_by"] = formats.load(format_).ABOUT.order_by
    return Options(**given, extra={key: str(value) for key, value in (keys.model_extra or {}).items()})


def _given(keys: BaseModel) -> dict[str, Any]:
    """The keys that have a value, by name."""
    found = {name: _plain(getattr(keys, name)) for name in type(keys).model_fields}
    return {name: value for name, value in found.items() if value is not None}


def _quality(keys: schema.QualityKeys, folder: Path, listed: tuple[Expectation, ...]) -> QualityRule:
    given = _given(keys)
    given.pop("suite", None)
    own = [
        Expectation(str(one.type), _plain(one.model_extra or {}), str(one.severity)) for one in keys.expect
    ]
    given["expect"] = (*own, *listed)
    if keys.source_counts:
        given["source_counts"] = absolute(str(keys.source_counts), folder)
    return QualityRule(**given)


def _plain(value: Any) -> Any:
    """Text without its place in the file: encoders take `str` itself only."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(map(_plain, value))
    return value
