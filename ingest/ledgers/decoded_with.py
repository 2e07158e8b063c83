"""The options that each batch was decoded with, to detect a changed option that would apply to new batches only.

A source's format, options and table rules decide what its messages mean. Silver records them as a decision (kind
``decoding``) whenever they differ from the last ones; a backfill records the batch from which today's apply. What is
not recorded, as in lakes of older versions, is not reported. Nor is a rule by which the same messages would be decoded to
the same changes: a key that most formats only name, the type that a column had anyway, a table that is excluded now.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from ingest import types
from ingest.change import Op, Options, TableId
from ingest.config import Pipeline, Source, TableRule, matches
from ingest.config.masks import fingerprint
from ingest.config.model import MASK_SECRET, MASKED_BY_SECRET
from ingest.errors import HeldError, command
from ingest.formats import About
from ingest.ledgers import decisions, rejects
from ingest.ledgers.books import EXCLUDED_SQL
from ingest.ledgers.decisions import Decision
from ingest.ledgers.lanes import columns_seen
from ingest.tables import duck
from ingest.tables.json_cells import object_in
from ingest.tables.tables import Tables

if TYPE_CHECKING:
    from ingest.tables.lake import Lake

DECODING = "decoding"
_MASKS = "masks"
_OTHER_MASKS = "mask: of its tables, or mask_secret:"
_SHOWN = 3  # differences
_TIMES = {"datetime", "timestamp", "time"}
_SIGNED = {"int8", "int16", "int32", "int64"}  # types of the same texts: not those of bits or without a sign


@dataclass(frozen=True, slots=True)
class Outdated:
    """Batches of a source that were decoded with other settings than those of the pipeline file.

    ``left_out`` is the table, if they lack its changes because it was excluded then and is no more.
    """

    source: str
    by_table: Mapping[
        TableId, tuple[str, ...]
    ]  # "timezone was UTC and is Asia/Shanghai", "keys: of shop.orders"
    seen: Mapping[TableId, tuple[int, int]]  # the first and the last batch with messages of each of them
    typed: Callable[[int], str]  # the command that decodes the batches from one on again
    since: dt.datetime | None = None  # when the settings became others, in UTC without a zone
    left_out: TableId | None = None
    together: str = ""  # the command that decodes these and others again

    @property
    def first(self) -> int:
        """The first batch of its tables."""
        return min(self.seen[table][0] for table in self.by_table)

    @property
    def last(self) -> int:
        """The last one."""
        return max(self.seen[table][1] for table in self.by_table)

    @property
    def command(self) -> str:
        """The command that decodes them again."""
        return self.together or self.typed(self.first)

    @property
    def differences(self) -> tuple[str, ...]:
        """In what the settings differ, each once."""
        return tuple(dict.fromkeys(chain.from_iterable(self.by_table.values())))

    def without_said(self, said: Container[TableId]) -> Outdated | None:
        """The same without tables of which is ``said`` that they have other types, where nothing but `columns:` has changed."""
        left = {
            table: words
            for table, words in self.by_table.items()
            if table not in said or words != (_rule_word("columns", table),)
        }
        return replace(self, by_table=left) if left else None

    @property
    def sentence(self) -> str:
        """What is wrong and what to do, in a sentence."""
        backfill = self.command
        is_alone = self.first == self.last
        which = f"batch {self.first}" if is_alone else f"batches {self.first} to {self.last}"
        if self.left_out is not None:
            return (
                f"the rows of {self.left_out} that came in {which} of source {self.source}, while it was excluded, are "
                f"missing: `{backfill}` brings them in, and with --accept leaves them out."
            )
        shown, more = self.differences[:_SHOWN], len(self.differences) - _SHOWN
        words = "; ".join(shown) + (f"; and {more} more" if more > 0 else "")
        return (
            f"{which} of source {self.source} {'was' if is_alone else 'were'} decoded with other "
            f"settings ({words}): `{backfill}` decodes them again, and `{self.typed(self.first)} --accept` leaves "
            "them as they are."
        )


def by_one_command(batches: Sequence[Outdated]) -> list[Outdated]:
    """The same batches, each with the command that decodes all of them again; of rows that were left out with its own, as to
    accept that they are missing is another decision.
    """
    older = [each for each in batches if each.left_out is None]
    widest = min(older, key=attrgetter("first"), default=None)
    return [
        each if widest is None or each.left_out else replace(each, together=widest.command)
        for each in batches
    ]


def settings_of(pipeline: Pipeline, source: Source) -> dict[str, Any]:
    """The settings that decide how a source's messages are decoded, in the ledger's form."""
    options = {field.name: getattr(source.options, field.name) for field in fields(Options)}
    options["table"] = [[pattern, *table] for pattern, table in source.options.table]
    options["extra"] = dict(source.options.extra)
    rules = [
        {
            "match": table.match,
            "exclude": table.exclude,
            "keys": list(table.keys),
            "columns": dict(table.columns),
        }
        for table in pipeline.tables
        if table.exclude or table.keys or table.columns
    ]
    settings = {"format": source.format, "options": options, "tables": rules}
    return settings | ({_MASKS: _masks_of(pipeline)} if pipeline.masks else {})


def _masks_of(pipeline: Pipeline) -> dict[str, Any]:
    """All entries with their masks, because the first that fits a table applies; only the fingerprint of the secret."""
    used = any(how in MASKED_BY_SECRET for rule in pipeline.tables for how in rule.mask.values())
    return {
        "tables": [
            [rule.match, [[name, how] for name, how in rule.mask.items()]] for rule in pipeline.tables
        ],
        "secret": fingerprint(pipeline.mask_secret) if used else "",
    }


def note(lake: Lake, sources: Iterable[str], first: int) -> None:
    """Record today's settings of these sources for batches from ``first`` on, if they differ from the recorded ones."""
    recorded = _by_source(lake)
    named = lake.pipeline.by_source
    notes = []
    for name in sorted(set(sources) & named.keys()):
        now = settings_of(lake.pipeline, named[name])
        before = recorded.get(name, [])
        if not before or before[-1].settings != now or before[-1].first > first:
            notes.append(Decision(DECODING, name, now, first))
    decisions.append(lake, notes)


def outdated(lake: Tables, newest: int) -> list[Outdated]:
    """The batches up to ``newest`` that were decoded with other settings than today's.

    Batches whose messages were all rejected are left out: a replay decodes these with today's settings. A rule of the
    pipeline file counts for the batches with messages of a table that it fits. Those with nothing but other masks are left
    out if `mixed_masks` has more to say of them.
    """
    older = list[Outdated]()
    named, typed = lake.pipeline.by_source, partial(command, "backfill", lake.pipeline.file, "--from-batch")
    for name, spans in _by_source(lake).items():
        if name not in named:
            continue
        now = settings_of(lake.pipeline, named[name])
        ends = [(span.first - 1, span.decided_at) for span in spans[1:]] + [
            (newest, edited_at(lake.pipeline))
        ]
        for (first, then, _), (last, since) in zip(spans, ends, strict=True):
            if _MASKS in then and _MASKS in now:
                now[_MASKS] = _comparable(lake.pipeline, now[_MASKS], then[_MASKS])
            if then != now and first <= last:
                decoded = _decoded(lake, name, first, last)
                differences = partial(_differences, then, now, named[name].about)
                older += _of_span(lake.pipeline, name, decoded, differences, typed, since)
    if any(batch.differences == (_OTHER_MASKS,) for batch in older) and mixed_masks(lake, newest):
        older = [batch for batch in older if batch.differences != (_OTHER_MASKS,)]
    return older


def _of_span(
    pipeline: Pipeline,
    source: str,
    decoded: Mapping[TableId, _Batches],
    differences: Callable[[TableId, _Batches], Iterable[str]],
    typed: Callable[[int], str],
    since: dt.datetime | None,
) -> Iterator[Outdated]:
    """The outdated batches of those that were decoded with the same settings, up to ``since``."""
    by_table = dict[TableId, tuple[str, ...]]()
    for table, batches in decoded.items():
        if pipeline.rule(table).exclude:
            continue  # no mirror has its rows
        if batches.left_out:
            words = {table: (_rule_word("exclude", table),)}
            yield Outdated(source, words, {table: batches.left_out}, typed, since, table)
        elif of_table := tuple(differences(table, batches)):
            by_table[table] = of_table
    if by_table:
        seen = {table: decoded[table].seen for table in by_table}
        yield Outdated(source, by_table, seen, typed, since)


def edited_at(pipeline: Pipeline) -> dt.datetime | None:
    """When the pipeline file was written last, at which it may have got its newest settings; in UTC without a zone."""
    try:
        return dt.datetime.fromtimestamp(pipeline.file.stat().st_mtime, dt.UTC).replace(tzinfo=None)
    except OSError:
        return None


class _Batches(NamedTuple):
    """What some batches have of a table.

    Args:
        seen: the first and the last of them with its messages.
        left_out: those of messages that were left out, if there are any.
        types: the columns of its rows, each with the logical types by which its cells were read.
        operations: of its changes, as far as `ingest.formats.About.by_keys` names them.
        unfit: its columns with cells that did not fit their type.
    """

    seen: tuple[int, int]
    left_out: tuple[int, int] | None
    types: Mapping[str, frozenset[str]]
    operations: frozenset[str]
    unfit: frozenset[str]


def _decoded(lake: Tables, source: str, first: int, last: int) -> dict[TableId, _Batches]:
    """In which of these batches messages of each table of a source were decoded, and not by a replay in a later one."""
    unfit = rejects.columns_unfit_by_table(lake)
    return {
        TableId.of(row): _Batches(
            (row["low"], row["high"]),
            None if row["out_low"] is None else (row["out_low"], row["out_high"]),
            _types(row["listed"] or ()),
            frozenset(op for op in (Op.UPDATE, Op.DELETE) if row[op]),
            unfit.get(TableId.of(row), frozenset()),
        )
        for row in lake.ask(
            f"""SELECT "database", "schema", "table", min(batch) AS low, max(batch) AS high,
            min(batch) FILTER (WHERE {EXCLUDED_SQL}) AS out_low, max(batch) FILTER (WHERE {EXCLUDED_SQL}) AS out_high,
            list(DISTINCT columns) AS listed, sum(updates) AS "update", sum(deletes) AS "delete"
            FROM {{books}} WHERE source = {duck.text(source)} AND batch BETWEEN {first} AND {last}
            AND (change_messages + ddl + control > 0 OR {EXCLUDED_SQL}) GROUP BY ALL ORDER BY ALL"""
        )
    }


def _types(listed: Iterable[str | None]) -> dict[str, frozenset[str]]:
    """The types of each column in some cells `columns` of the books."""
    types_by_column = defaultdict[str, set[str]](set)
    for columns in listed:
        for name, logical in object_in(columns).items():
            types_by_column[name].add(logical)
    return {name: frozenset(logical) for name, logical in types_by_column.items()}


def _comparable(pipeline: Pipeline, now: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    """Today's masks, by the earlier secret if today's was left out of the pipeline file."""
    return now | {"secret": then.get("secret", "")} if MASK_SECRET in pipeline.unresolved else now


class _DecodedWith(NamedTuple):
    """Settings of a source, and from which batch on they apply."""

    first: int
    settings: dict[str, Any]
    decided_at: dt.datetime | None


def _by_source(lake: Tables) -> dict[str, list[_DecodedWith]]:
    """Each source's settings in the order of their batches; a later decision replaces those at or after its batch."""
    spans: dict[str, list[_DecodedWith]] = {}
    for decision in decisions.read(lake).of(DECODING):
        first = decision.batch or 1
        kept = [span for span in spans.get(decision.subject, []) if span.first < first]
        if not kept or kept[-1].settings != decision.value:
            kept.append(_DecodedWith(first, decision.value, decision.decided_at))
        spans[decision.subject] = kept
    return spans


def _differences(
    then: dict[str, Any], now: dict[str, Any], about: About, table: TableId, batches: _Batches
) -> Iterator[str]:
    """In what settings differ for the messages of a table, or for those that name none."""
    if then["format"] != now["format"]:
        yield f"format was {then['format']} and is {now['format']}"
    for name in now["options"]:
        if then["options"].get(name) != now["options"][name]:
            yield f"{name} was {_word(then['options'].get(name))} and is {_word(now['options'][name])}"
    if not table.table:
        return
    was, is_now = (_rule_of(settings["tables"], table) for settings in (then, now))
    if _is_other_key(was.get("keys") or [], is_now.get("keys") or [], about, table, batches):
        yield _rule_word("keys", table)
    if _are_other_types(was.get("columns") or {}, is_now.get("columns") or {}, about, batches):
        yield _rule_word("columns", table)
    if _is_other_mask(then, now, table, batches):
        yield _OTHER_MASKS


def _is_other_key(was: list[str], is_now: list[str], about: About, table: TableId, batches: _Batches) -> bool:
    """True if changes would be others by another key: to most of them a first one only gives the names of its columns, which
    a fold takes from the pipeline file; one that is replaced or removed has distinguished rows.
    """
    if was == is_now:
        return False
    if was and batches.types.keys() >= set(was):
        return True  # a key that no row has holds its table
    is_hidden = any(name in about.members and name not in batches.types for name in is_now)
    by_keys = about.by_keys + (about.by_keys_in_schemas if table.schema else ())
    return is_hidden or not batches.operations.isdisjoint(by_keys)


def _are_other_types(
    was: Mapping[str, str], is_now: Mapping[str, str], about: About, batches: _Batches
) -> bool:
    """True if cells would be read by other types: those of a column that the rows have, and not by its type of today."""
    for name in was.keys() | is_now.keys():
        if was.get(name) == is_now.get(name):
            continue
        if name not in batches.types:
            if name in about.members:
                return True
        elif not all(
            (then == is_now.get(name) or name not in batches.unfit)
            and _are_same_texts(then, is_now.get(name), about, is_told=name in was)
            for then in ([was[name]] if name in was else batches.types[name])
        ):
            return True
    return False


def _are_same_texts(then: str, now: str | None, about: About, *, is_told: bool) -> bool:
    """True if cells are the same texts by both types: signed whole numbers are, whatever their width.

    Unless a rule gave the earlier type, it has lost the digits of a second, by which some formats count bare numbers.
    """
    if now is None:
        return False
    if {then, now} <= _SIGNED:
        return True
    is_counted = "time_units" in about.options and types.base(now) in _TIMES
    return then == now and (is_told or not is_counted)


def _rule_word(key: str, table: TableId) -> str:
    return f"{key}: of {table}"


def _rule_of(rules: Iterable[dict[str, Any]], table: TableId) -> dict[str, Any]:
    """What the recorded rules say of a table: the first that fits; empty if none does."""
    fitting = ({**rule, "match": ""} for rule in rules if matches(rule["match"], table))
    return next(fitting, {})


def _is_other_mask(then: dict[str, Any], now: dict[str, Any], table: TableId, batches: _Batches) -> bool:
    """True if values of a column would be masked in another way: of one that rows have, or that a mask names."""
    was, is_now = then.get(_MASKS, {}), now.get(_MASKS, {})
    named = _masks_in(was, table).keys() | _masks_in(is_now, table).keys()
    for column in named | (batches.types.keys() if named else set()):
        how = _how(was, table, column)
        if how != _how(is_now, table, column):
            return True
        if how in MASKED_BY_SECRET and was["secret"] != is_now["secret"]:
            return True
    return False


# --- masks ----------------------------------------------------------------------------------------


def refuse_mixed_masks(lake: Tables, last: int, begun: int = 0) -> None:
    """Refuse to continue if values of batches up to ``last`` are masked in another way than the pipeline file says now.

    Raises:
        HeldError: with an affected column and the command that masks all values alike.
    """
    if problem := mixed_masks(lake, last, begun) or lost_masks(lake):
        raise HeldError(problem)


def lost_masks(lake: Tables) -> str:
    """Which masked column or table was renamed at the source to a name that no mask fits, and what to do; empty if
    none.
    """
    pipeline = lake.pipeline
    if not pipeline.masks:
        return ""
    for row in lake.ask(
        "SELECT batch, effects FROM {ddl} WHERE contains(effects, '\"rename_') ORDER BY batch"
    ):
        for effect in orjson.loads(row["effects"]):
            if lost := _lost(pipeline, effect):
                old, new, words = lost
                return (
                    f"Batch {row['batch']} renames {old}, which is masked, to {new}, which no mask fits: write {words} "
                    f"into the tables: entry, then type `{command('rebuild', pipeline.file, '--layer', 'silver')}` and "
                    f"`{command('rebuild', pipeline.file)}`; until then nothing more is decoded."
                )
    return ""


def _lost(pipeline: Pipeline, effect: dict[str, Any]) -> tuple[str, str, str] | None:
    """Old and new name, and what to write, for a rename that a mask does not follow."""
    if effect["action"] not in ("rename_column", "rename_table"):
        return None
    table = TableId(*effect["table"])
    rule = pipeline.rule(table)
    if effect["action"] == "rename_column":
        how, new = rule.mask_of(effect["column"]), effect["to"]
        lost = bool(how) and not rule.mask_named(new)
        return (f"{effect['column']} of {table}", new, f"mask: {{{new}: {how}}} (or keep)") if lost else None
    target = TableId(*effect["to"])
    lost = bool(rule.mask) and not pipeline.masking(target).mask and not pipeline.rule(target).exclude
    return (str(table), str(target), f"the masks of {table} (or '*': keep)") if lost else None


def mixed_masks(lake: Tables, last: int, begun: int = 0) -> str:
    """Which values would be masked in another way than in batches up to ``last``, and what to do; empty if none.

    ``begun`` is the last batch that a killed run may have decoded in part.
    """
    pipeline = lake.pipeline
    now = _masks_of(pipeline) if pipeline.masks else {}
    before = _masked_before(lake, max(last, begun))
    differing = [span for span in before if span.masks != (now and _comparable(pipeline, now, span.masks))]
    if not differing:
        return ""
    if begun > last:
        return (
            f"Batch {begun} is decoded in part, and not as mask: and mask_secret: now say: write these as they were, "
            f"type `{command('run', pipeline.file)}`, and change them then."
        )
    for name, first, end, then in differing:
        seen = columns_seen(lake, f"batch BETWEEN {first} AND {min(end, last)}") if first <= last else {}
        for (source, table), columns in sorted(seen.items(), key=str):
            for column in sorted(columns) if source == name else ():
                was, how = _how(then, table, column), _how(now, table, column)
                secret = _comparable(pipeline, now, then)["secret"] if how else ""
                if was != how or (how in MASKED_BY_SECRET and then["secret"] != secret):
                    return _mixed(pipeline, f"{column} of {table}", first, was, how)
    return ""


def _mixed(pipeline: Pipeline, column: str, first: int, was: str, how: str) -> str:
    old, new = (f"masked with {method}" if method else "not masked" for method in (was, how))
    what = f"was {old} and is now {new}" if was != how else f"is {new} by another secret"
    return (
        f"{column} {what}, and the changes from batch {first} on are not decoded so: one value would have two forms. "
        f"Type `{command('rebuild', pipeline.file, '--layer', 'silver')}`, which masks all of them alike, and then "
        f"`{command('rebuild', pipeline.file)}` for the mirrors; or write the mask and its secret as they were."
    )


class _Masked(NamedTuple):
    """Batches of a source, from the first to the last one, to which the same masks apply."""

    source: str
    first: int
    last: int
    masks: dict[str, Any]


def _masked_before(lake: Tables, last: int) -> Iterator[_Masked]:
    """The batches of each source up to ``last``, by their masks."""
    by_source = _by_source(lake)
    for source in lake.pipeline.sources:
        spans = by_source.get(source.name, [])
        if not spans or spans[0].first > 1:  # what is not recorded was decoded by a version without masks
            yield _Masked(source.name, 1, spans[0].first - 1 if spans else last, {})
        ends = [span.first - 1 for span in spans[1:]] + [last]
        for (first, then, _), end in zip(spans, ends, strict=False):
            if first <= last:
                yield _Masked(source.name, first, min(end, last), then.get(_MASKS, {}))


def _how(masks: dict[str, Any], table: TableId, column: str) -> str:
    """How a column was masked by the recorded entries."""
    return TableRule(mask=_masks_in(masks, table)).mask_of(column)


def _masks_in(masks: dict[str, Any], table: TableId) -> dict[str, str]:
    """The recorded masks of a table: those of the first entry that fits."""
    return next((dict(given) for match, given in masks.get("tables", ()) if matches(match, table)), {})


def _word(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "not set"}[value]
    return str(value)
