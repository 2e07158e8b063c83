"""From a file to a checked `Pipeline`: every fault at once, each with its line and column."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from ingest import formats
from ingest.change import Options
from ingest.config import kinds, lint, scalars, schema, suite, unresolved
from ingest.config.entries import Expectation, QualityRule, Sealing
from ingest.config.lint import CheckedFile
from ingest.config.model import METADATA, SEAL, MadeColumn, Pipeline, Source, TableRule
from ingest.config.yaml_tree import Document, Where, is_secret, read
from ingest.errors import ConfigError

_BELONGS = "belongs to the entry, not to one of its mirrors: {}"
_OF_THE_TABLE = {
    "match": _BELONGS.format("also: is about the tables that the entry's match: fits"),
    "exclude": _BELONGS.format("it leaves tables out of all of them"),
    "keys": _BELONGS.format("its keys: hold for all of them"),
    "mask": _BELONGS.format(
        "values are masked when messages are decoded, before they are folded into any mirror"
    ),
    "also": _BELONGS.format("list all further mirrors in its also:"),
}
"""Keys of an entry that its further mirrors do not have, and why."""

_GONE = {
    "writer": "is not used any more: write engine: spark, by which Spark jobs do all work, or engine: auto, by which this "
    "process does what is little"
}
"""Keys of older versions at the top of a file, and what to write instead."""

_STANDARD_OPTIONS = tuple(schema.OptionKeys.model_fields)


def check(path: str | Path, *, to_look: bool = False) -> CheckedFile:
    """Read and check one pipeline file; a `ConfigError` with all its faults.

    ``to_look`` leaves out what does not resolve and is needed by runs only (`ingest.config.unresolved`).
    """
    document = read(Path(path))
    missing = unresolved.leave_out(document) if to_look else {}
    keys = None
    try:
        keys = schema.PipelineKeys.model_validate(document.tree)
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            _note(document, fault)
    _check_names(document)
    _check_options(document)
    if keys is not None and not document.faults:
        _check_also(document, keys)
    if document.faults or keys is None:
        raise ConfigError(document.problems())
    suites = _suites(document, keys)
    pipeline = _pipeline(document, keys, suites)
    if missing:
        seal = Sealing(fault=missing[SEAL]) if SEAL in missing else pipeline.seal
        pipeline = replace(pipeline, unresolved=missing, seal=seal)
    lint.refuse(document, pipeline)
    if document.faults:
        raise ConfigError(document.problems())
    return CheckedFile(pipeline, document, keys)


def options(given: Mapping[str, Any], format_name: str) -> Options:
    """A source's ``options:`` from text values, for verbs without a pipeline file; a `ConfigError` with all faults."""
    allowed = known_options(format_name)
    unknown = [key for key in given if key not in allowed]
    problems = [
        f"option {key!r} is unknown{scalars.nearest(key, allowed) or '; there are ' + ', '.join(allowed)}"
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
    of_format = formats.load(format_name).ABOUT.options if format_name in formats.names() else {}
    return tuple(dict.fromkeys((*_STANDARD_OPTIONS, *of_format)))


# --- faults -------------------------------------------------------------------------------------


def _note(document: Document, fault: Mapping[str, Any], above: Where = ()) -> None:
    where, model = _locate(document, (*above, *fault["loc"]))
    if fault["type"] == "union_tag_invalid":
        where = (*where, "kind")
    if where in document.references and any(place == document.place(where) for place, _ in document.faults):
        return  # the reference could not be resolved, so its value means nothing
    if where in document.references or is_secret(where, fault.get("input")):
        written = document.references.get(where, "the value")
        said = _sentence(fault, model)
        # a validator's own words; others quote what they refuse
        if where in document.references or fault["type"] != "value_error" or repr(fault.get("input")) in said:
            said = f"{written} does not resolve to a usable value of {where[-1]}"
        document.fault(where, said)
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
            return f"kind: {tag!r} is not one of files or kafka{scalars.nearest(tag, ('files', 'kafka'))}"
        case "model_type" | "model_attributes_type" | "dict_type" | "union_tag_not_found":
            return "a mapping of keys belongs here"
        case "tuple_type":
            return f"{key} must be a list; start each entry with a dash"
    return str(fault["msg"])


def _unknown_key(key: str, model: tuple[str, ...]) -> str:
    if model == ("tables", "also") and key in _OF_THE_TABLE:
        return _OF_THE_TABLE[key]
    for other, keys in schema.MODELS.items():
        if other[:1] == model[:1] == ("sources",) and key in keys.model_fields:
            return f"the key {key!r} belongs to a source of kind {other[1]}, not {model[1]}"
    if not model and key in _GONE:
        return f"the key {key!r} {_GONE[key]}"
    allowed = schema.MODELS[model].model_fields if model in schema.MODELS else ()
    return f"the key {key!r} is unknown here{scalars.nearest(key, allowed)}"


def _sources(document: Document) -> Iterator[tuple[int, dict[str, Any]]]:
    entries = document.tree.get("sources")
    for i, source in enumerate(entries if isinstance(entries, list) else []):
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
        allowed = known_options(str(format_name))
        for key in given.keys() - set(allowed):
            where = ("sources", i, "options", key)
            hint = scalars.nearest(key, allowed)
            if key in schema.FileKeys.model_fields.keys() | schema.KafkaKeys.model_fields.keys():
                hint = f"; {key}: is a key of the source itself: write it next to options:, not below"
            document.fault(where, f"the option {key!r} is unknown{hint}")


def _check_also(document: Document, keys: Any) -> None:
    """Check each further mirror as an entry with the match, keys and masks of its own entry."""
    for i, entry in enumerate(keys.tables):
        given = document.tree["tables"][i]
        if entry.also and entry.exclude:
            text = "exclude: leaves these tables out, so no further mirror of them can be filled"
            document.fault(("tables", i, "also"), text)
        for j, further in enumerate(entry.also):
            where = ("tables", i, "also", j)
            for name, rule in further.columns.items():
                if "type" in rule and name not in further.made:
                    text = "a type says how messages are read: write it under columns: of the entry"
                    document.fault((*where, "columns", name), text)
            shared = {name: given[name] for name in ("match", "keys", "mask") if given.get(name) is not None}
            try:
                schema.TableKeys.model_validate(given["also"][j] | shared)
            except ValidationError as error:
                for fault in error.errors(include_url=False):
                    _note(document, fault, where)


def _suites(document: Document, keys: Any) -> dict[int, tuple[Expectation, ...]]:
    """The expectations of the suites that ``quality:`` entries name, by the entry."""
    suites = {}
    for i, rule in enumerate(keys.quality):
        if rule.suite is not None:
            try:
                suites[i] = suite.read(document.file.absolute().parent / Path(rule.suite).expanduser())
            except ValueError as error:
                document.fault(("quality", i, "suite"), str(error))
    return suites


# --- the dataclasses ----------------------------------------------------------------------------


def _pipeline(document: Document, keys: Any, suites: Mapping[int, tuple[Expectation, ...]]) -> Pipeline:
    file = document.file
    folder, given = file.absolute().parent, _given(keys)
    given["lake"] = absolute(keys.lake, folder)
    given["sources"] = tuple(_source(source, folder) for source in keys.sources)
    given["tables"] = tuple(_table(document, ("tables", i), rule) for i, rule in enumerate(keys.tables))
    given["quality"] = tuple(_quality(rule, folder, suites.get(i, ())) for i, rule in enumerate(keys.quality))
    name, bronze, lineage = given.pop("pipeline"), given.pop("bronze", None), given.pop("openlineage", None)
    seal = _given(bronze).get("seal") if bronze else None
    if lineage and lineage.file:
        lineage = replace(lineage, file=absolute(lineage.file, folder))
    return Pipeline(name=name, file=file.absolute(), seal=seal, lineage=lineage, **given)


def _table(document: Document, where: Where, keys: schema.TableKeys) -> TableRule:
    """A rule for tables, with those of their further mirrors."""
    given = _of_mirror(document, where, keys)
    types = given["columns"]
    given["also"] = tuple(
        TableRule(
            **_of_mirror(document, (*where, "also", j), further)
            | {name: given[name] for name in ("match", "keys", "mask") if name in given}
            | {"columns": {name: logical for name, logical in types.items() if name not in further.made}}
        )
        for j, further in enumerate(keys.also)
    )
    return TableRule(**given)


def _of_mirror(document: Document, where: Where, keys: schema.AlsoKeys | schema.TableKeys) -> dict[str, Any]:
    """A mirror's keys, with what becomes of columns apart from their types, and with the places of the rules."""
    given, columns, made = _given(keys), keys.columns, keys.made
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
        for kind in kinds.MAKING
        if kind in rule
    }
    given["without"] = tuple(column for column, rule in columns.items() if "exclude" in rule)
    if any("*" in column for column in given["without"]):
        given["include"] = tuple(column for column, rule in columns.items() if "exclude" not in rule)

    def place(*rest: str) -> str:
        line, column = document.place((*where, *rest))
        return f"{document.file}:{line}:{column}"

    for name in ("where", "cluster_by", "into"):
        given[f"{name.partition('_')[0]}_place"] = place(name)
    given["places"] = {column: place("columns", column) for column in columns} | {
        column: place("deletes") for column, rule in made.items() if "deletes" in rule
    }
    return given


def absolute(path: str, folder: Path) -> str:
    """A path as an absolute one, taken from the pipeline file's folder; a URI as it is."""
    if scalars.is_uri(path):
        return scalars.whole_uri(path)
    return os.path.normpath(folder / Path(path).expanduser())


def _source(keys: schema.FileKeys | schema.KafkaKeys, folder: Path) -> Source:
    given = _given(keys)
    given["options"] = _options(keys.options, keys.format)
    if registry := given.get("registry"):
        given["registry"] = absolute(registry, folder)
    if isinstance(keys, schema.FileKeys):
        given["path"] = absolute(keys.path, Path(glob.escape(str(folder))))  # only the path is a pattern
    return Source(**given)


def _options(keys: schema.OptionKeys, format_: str) -> Options:
    given = {name: getattr(keys, name) for name in _STANDARD_OPTIONS}
    if "order_by" not in keys.model_fields_set:
        given["order_by"] = formats.load(format_).ABOUT.order_by
    return Options(**given, extra={key: str(value) for key, value in (keys.model_extra or {}).items()})


def _given(keys: BaseModel) -> dict[str, Any]:
    """The keys that have a value, by name."""
    return {name: _meant(value) for name, value in keys if value is not None}


def _meant(value: Any) -> Any:
    """A value, as the record of its keys if they are all that the record says."""
    if isinstance(value, tuple):
        return tuple(map(_meant, value))
    record = getattr(value, "record", None)
    return value if record is None else record(**_given(value))


def _quality(keys: Any, folder: Path, listed: tuple[Expectation, ...]) -> QualityRule:
    given = _given(keys)
    given.pop("suite", None)
    expectations = [
        Expectation(expectation.type, expectation.model_extra or {}, expectation.severity)
        for expectation in keys.expect
    ]
    given["expect"] = (*expectations, *listed)
    if keys.source_counts:
        given["source_counts"] = absolute(keys.source_counts, folder)
    return QualityRule(**given)
