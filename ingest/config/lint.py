"""What several keys mean together: what is refused because it must go wrong, and what is warned of."""

from __future__ import annotations

import fnmatch
import glob
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingest import formats
from ingest.config import schema, target
from ingest.config.model import MASK_SECRET, MASKED_BY_SECRET, Pipeline, TableRule
from ingest.config.scalars import is_uri, nearest
from ingest.config.yaml_tree import Document, Where, is_secret
from ingest.decoding import schema_folder

_EVERYWHERE = ("order_by",)  # read by every format alike


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A pipeline, its file as read (`document`) and as understood (`keys`)."""

    pipeline: Pipeline
    document: Document
    keys: Any  # of `schema.PipelineKeys`, which are made from the records


def refuse(document: Document, pipeline: Pipeline) -> None:
    """Note as faults what can be proved to go wrong in an otherwise sound file."""
    _refuse_rival_sources(document, pipeline)
    _refuse_shared(document, pipeline)
    for i, rule in enumerate(pipeline.tables):
        _refuse_masks(document, pipeline, i, rule)
        for where, mirror in _mirrors(i, rule):
            if mirror.changes_of and pipeline.is_stored:
                document.fault(
                    (*where, "changes_of"),
                    "changes_of: needs a lake in a file system, and this one is in a store",
                )


def _refuse_rival_sources(document: Document, pipeline: Pipeline) -> None:
    """A table that two sources name has two orders of changes, and one mirror."""
    first: dict[str, str] = {}
    for i, source in enumerate(pipeline.sources):
        for table in {table for _, table in source.options.table}:
            rule = pipeline.rule(table)
            if rule.exclude or rule.shard_column:
                continue
            mirror = str(target(rule, table))
            if first.setdefault(mirror, source.name) != source.name:
                document.fault(
                    ("sources", i, "options", "table"),
                    f"the sources {first[mirror]!r} and {source.name!r} both fill the mirror {mirror}, and their "
                    "positions cannot be compared; give the table's rule a shard_column, or another table here",
                )


def _refuse_masks(document: Document, pipeline: Pipeline, i: int, rule: TableRule) -> None:
    """A mask without its secret, and one that would make two keys one."""
    by_secret = [name for name, how in rule.mask.items() if how in MASKED_BY_SECRET]
    if by_secret and not pipeline.mask_secret and MASK_SECRET not in pipeline.unresolved:
        document.fault(
            ("tables", i, "mask", by_secret[0]),
            f"{by_secret[0]}: {rule.mask[by_secret[0]]} needs a secret; write at the top "
            "mask_secret: ${file:/path}, whose file `openssl rand -hex 32` can make",
        )
    for key in rule.keys:
        if (how := rule.mask_of(key)) not in ("", "hmac"):
            document.fault(
                ("tables", i, "mask"),
                f"the column {key} is part of the key, and {how} gives different values one text; write hmac for it",
            )


def _mirrors(i: int, rule: TableRule) -> Iterator[tuple[Where, TableRule]]:
    """The rules of an entry's mirrors, with their places."""
    yield ("tables", i), rule
    for j, further in enumerate(rule.also):
        yield ("tables", i, "also", j), further


def _refuse_shared(document: Document, pipeline: Pipeline) -> None:
    """A further mirror holds rows of its entry alone; names with parts to fill in are compared by gold."""
    filled_by: dict[str, tuple[Where, bool]] = {}
    for i, rule in enumerate(pipeline.tables):
        for where, mirror_rule in _mirrors(i, rule):
            name = _fixed(mirror_rule)
            if not name or mirror_rule.exclude:
                continue
            first, further = filled_by.setdefault(name, (where, mirror_rule is not rule))
            if first != where and (further or mirror_rule is not rule):
                line, _ = document.place((*first, "into"))
                document.fault(
                    (*where, "into"),
                    f"the mirror {name} is filled by line {line} already, and no other rows can go into one of also:; "
                    "use another name",
                )


def _fixed(rule: TableRule) -> str:
    """The name of a rule's only mirror; empty if it depends on the table."""
    alone = not set(rule.match) & set("*?[(")
    if not rule.into:
        return rule.match if alone and "." in rule.match else ""
    if "{" not in rule.into:
        return rule.into
    parts = rule.match.split(".")
    if not alone or len(parts) != 2:
        return ""
    return rule.into.format(database=parts[0], schema="", table=parts[1])


def warnings(checked: CheckedFile) -> list[str]:
    """What the operator should look at, in the order of the file, as ``file:line:col text``."""
    document = checked.document
    advice = [
        *_files(checked),
        *_options(checked),
        *_rules(checked),
        *_secrets(document),
        *_brokers(checked),
        *_starts(checked),
        *_catalog(checked),
    ]
    placed = sorted({(document.place(where), text) for where, text in advice})
    return [f"{document.file}:{line}:{column} {text}" for (line, column), text in placed]


def notes(checked: CheckedFile) -> list[str]:
    """What holds for sources by their format and is good to know."""
    weak = [s for s in checked.pipeline.sources if formats.load(s.format).ABOUT.strength == "weak"]
    return [
        f"source {source.name!r} is weakly ordered: {source.format} carries no position that orders changes, so the "
        "order of arrival within a file or partition is taken for the truth"
        for source in weak
        if source.options.order_by != "event_time"
    ]


Advice = Iterator[tuple[Where, str]]


def _files(checked: CheckedFile) -> Advice:
    for i, source in enumerate(checked.pipeline.sources):
        if source.kind != "files" or is_uri(source.path):
            continue
        where = ("sources", i, "path")
        if not glob.has_magic(source.path) and Path(source.path).is_dir():
            yield where, f"{source.path} is a folder; write {source.path}/* for the files in it"
        elif next(glob.iglob(source.path, recursive=True), None) is None:  # noqa: PTH207 - absolute pattern
            yield where, f"no file matches {source.path} yet"


def _options(checked: CheckedFile) -> Advice:
    for i, source in enumerate(checked.keys.sources):
        meant = {*formats.load(source.format).ABOUT.options, *_EVERYWHERE}
        for key in source.options.model_fields_set - meant:
            yield ("sources", i, "options", key), f"the option {key} has no meaning for {source.format}"


def _rules(checked: CheckedFile) -> Advice:
    rules = checked.pipeline.tables
    for i, rule in enumerate(rules):
        before = next((earlier.match for earlier in rules[:i] if covers(earlier.match, rule.match)), None)
        if before is not None:
            text = f"the rule for {rule.match!r} never applies: {before!r} comes before it"
            yield ("tables", i, "match"), text
        for name, how in rule.mask.items():
            first = next(pattern for pattern in rule.mask if _fits(name, pattern))
            if rule.mask[first] != how:
                yield (
                    ("tables", i, "mask", name),
                    f"the mask {name}: {how} never applies: {first}: {rule.mask[first]} comes before it, and the first that fits counts",
                )


def _fits(name: str, pattern: str) -> bool:
    """True if the columns of a mask are known to be those of another, too."""
    name, pattern = name.casefold(), pattern.casefold()
    return name == pattern or ("[" not in name + pattern and fnmatch.fnmatchcase(name, pattern))


def covers(wide: str, narrow: str) -> bool:
    """True if every table that fits ``narrow`` is known to fit ``wide``."""
    if wide == "*":
        return True
    if narrow == "*" or set(wide) & set("?[("):
        return wide == narrow
    wides, narrows = wide.split("."), narrow.split(".")
    if len(wides) == 1:
        narrows = narrows[-1:]
    return len(wides) == len(narrows) and all(map(fnmatch.fnmatchcase, narrows, wides))


def _secrets(document: Document) -> Advice:
    for where, value in leaves(document.tree):
        if isinstance(value, str) and value and where not in document.references and is_secret(where, value):
            yield (
                where,
                f"{where[-1]} holds a secret in plain text; write ${{VAR}} or ${{file:/path}} instead",
            )


def leaves(tree: object, where: Where = ()) -> Iterator[tuple[Where, object]]:
    """Every single value of a tree with the way to it."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from leaves(value, (*where, key))
    elif isinstance(tree, list | tuple):
        for i, value in enumerate(tree):
            yield from leaves(value, (*where, i))
    else:
        yield where, tree


def _brokers(checked: CheckedFile) -> Advice:
    for i, source in enumerate(checked.keys.sources):
        brokers = source.bootstrap_servers if isinstance(source, schema.KafkaKeys) else ""
        for broker in map(str.strip, brokers.split(",") if brokers else ()):
            if not broker.rpartition(":")[2].isdigit():
                yield ("sources", i, "bootstrap_servers"), f"{broker!r} names no port; write host:9092"
        about = formats.load(source.format).ABOUT
        by_registry = about.by_registry
        if source.registry and not by_registry:
            yield ("sources", i, "registry"), f"a registry has no meaning for {source.format}"
        if by_registry and not source.registry:
            yield (
                ("sources", i, "format"),
                f"{source.format} needs a schema registry: write `registry: http://host:8081` into the source",
            )
        if by_registry and not about.schema_files and schema_folder.is_folder(source.registry):
            yield (
                ("sources", i, "registry"),
                f"{source.format} needs a schema registry, not a folder: write its address, as in `http://host:8081`",
            )


def _starts(checked: CheckedFile) -> Advice:
    """Offsets to start from, of a topic that is not read."""
    for i, source in enumerate(checked.pipeline.sources):
        for topic in source.start if isinstance(source.start, dict) and source.topics else ():
            if topic not in source.topics:
                said = f"{topic!r} is not among topics:{nearest(topic, source.topics)}"
                yield ("sources", i, "start", topic), said


def _catalog(checked: CheckedFile) -> Advice:
    pipeline = checked.pipeline
    if pipeline.catalog is None or pipeline.catalog.kind != "glue":
        return
    if not pipeline.lake.startswith(("s3://", "s3a://", "s3n://")):
        yield (
            ("catalog", "kind"),
            f"what reads Glue's tables looks for them in S3, and the lake is {pipeline.lake}",
        )
