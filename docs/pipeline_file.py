"""Write the reference of the pipeline file, docs/pipeline-file.md: ``python -m docs.pipeline_file``.

Keys, defaults and meanings come from `ingest.config.schema`, what a schema policy does from `ingest.gold.plan.policy`; the
examples and what goes wrong without a key are written here, and tested: every key has both, every example is valid.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from docs.marks import cell
from ingest import ddl, types
from ingest.change import TableId
from ingest.config import schema
from ingest.config.model import POLICIES
from ingest.gold.plan import policy
from ingest.gold.plan.policy import Subject
from ingest.ledgers.logged_statements import Statement

PAGE = Path(__file__).parent / "pipeline-file.md"


class Key(NamedTuple):
    """An example value as YAML, and what goes wrong where the key is missing or wrong."""

    example: str
    without: str


class Section(NamedTuple):
    """A mapping of the pipeline file: its title, its model, the keys that it shares with an earlier section."""

    title: str
    model: type[BaseModel]
    about: str
    keys: dict[str, Key]


_SOURCE = {
    "name": Key("orders", "Renaming it later is refused: receipts and order belong to the name."),
    "enabled": Key(
        "false", "Deleting the entry of a source that has ended is refused: its messages need it."
    ),
    "format": Key("dts-canal", "A wrong one rejects every message, with the reason."),
    "options": Key("{timezone: Asia/Shanghai}", "What the messages do not say takes its default."),
    "registry": Key("http://registry:8081", "Framed Avro cannot be decoded."),
    "max_messages": Key("1000000", "The first run takes everything that there is into one batch."),
    "max_bytes": Key("2GiB", "The same, counted in bytes."),
    "database": Key(
        "{url: 'mysql://db-1:3306', user: reader, password: '${READER}'}",
        "`ingest snapshot` and `ingest reconcile` have nothing to read from.",
    ),
    "server_change": Key(
        "accept",
        "With `hold`, tables wait after a failover until `ingest epoch` says how the two servers' positions compare.",
    ),
}

SECTIONS = (
    Section(
        "The file",
        schema.PipelineKeys,
        "One file is one pipeline and one lake.",
        {
            "pipeline": Key("shop", "Another name over an existing lake is refused."),
            "lake": Key("./lake", "Two pipelines must not share a lake."),
            "sources": Key(
                "[{name: orders, path: ./in/*.jsonl, format: dts-canal}]", "There is nothing to read."
            ),
            "tables": Key("[{match: shop.*, keys: [id]}]", "Each table gets a mirror of its own name."),
            "mask_secret": Key("'${MASK_SECRET}'", "The masks hmac and tokenize are refused."),
            "bronze": Key("{seal: {master_key: '${BRONZE_KEY}'}}", "Messages are stored as they were sent."),
            "quality": Key("[{table: shop.*, freshness: 1h}]", "Only the built-in checks run."),
            "spark": Key("{spark.driver.memory: 4g}", "Settings fit one small machine or the cluster's own."),
            "master": Key(
                "spark://host:7077", "The machine's own cores are used, or what spark-submit says."
            ),
            "plain_tables": Key("true", "Readers without deletion vectors cannot open the mirrors."),
            "every": Key("5m", "`ingest serve` runs the pipeline only when it is asked to."),
            "horizon_days": Key("30", "Older versions can be deleted by `ingest maintain` after 7 days."),
            "apply": Key("merge", "Files where they can be, else MERGE; `ingest plan` says which and why."),
            "rewrite_budget": Key(
                "64MiB",
                "4 MiB; with deletion vectors 64 MiB as soon as one row in eight would be deleted, without them 4 KiB "
                "for each change, and never more than 64 MiB.",
            ),
            "engine": Key(
                "auto", "Spark jobs do all work, on the machine's cores or the cluster's, and Java is needed."
            ),
            "condense_after": Key("90d", "Silver keeps every change."),
            "openlineage": Key("{url: 'http://marquez:5000'}", "No lineage is reported."),
            "catalog": Key(
                "{kind: hive, uri: 'thrift://metastore:9083'}",
                "Engines read the mirrors by their paths only.",
            ),
            "alerts": Key(
                "[{webhook: '${SLACK_HOOK}', style: slack}]", "Failures are seen by those who look."
            ),
        },
    ),
    Section(
        "A source of files",
        schema.FileKeys,
        "One entry of `sources:` that reads files.",
        _SOURCE
        | {
            "kind": Key("files", "It is recognised by the other keys."),
            "path": Key("./landing/*.jsonl", "Nothing is read, and a run says that no file matches."),
            "framing": Key("document", "Records are cut where they do not end, and rejected."),
            "settle": Key("5m", "A last line without its end waits, or is read before it is complete."),
            "order_files_by": Key("mtime", "Files whose names do not grow are read in the wrong order."),
            "renamed_files": Key(
                "same",
                "A renamed file is an alarm where arrival orders the changes, and read again elsewhere.",
            ),
            "max_record_bytes": Key("256MiB", "Longer records are rejected."),
            "storage": Key("{fs.s3a.endpoint: 'http://store:9000'}", "The store cannot be reached."),
        },
    ),
    Section(
        "A source of Kafka topics",
        schema.KafkaKeys,
        "One entry of `sources:` that reads topics. Either `topics` or `topic_pattern`.",
        _SOURCE
        | {
            "kind": Key("kafka", "It is recognised by the other keys."),
            "bootstrap_servers": Key("broker-1:9092", "There is no broker to ask."),
            "topics": Key(
                "[shop.orders, shop.schema]", "Without the topic of the statements, DDL is not seen."
            ),
            "topic_pattern": Key("shop\\..*", "New topics are not read."),
            "start": Key("latest", "The first run reads all that the broker still has."),
            "kafka": Key("{security.protocol: SASL_SSL}", "A broker that asks for a login refuses."),
        },
    ),
    Section(
        "The database of a source",
        schema.DatabaseKeys,
        "`database:` of a source: the database whose changes the source delivers. It is only read.",
        {
            "url": Key("postgresql://db-1:5432/shop", "There is nothing to read."),
            "user": Key("reader", "The database refuses."),
            "password": Key("'${READER}'", "A database that asks for one refuses."),
            "primary": Key(
                "mysql://db-0:3306",
                "Rows of a replica that lags are older than what the stream has delivered.",
            ),
            "connections": Key("4", "Two read at once, unless --parallel says otherwise."),
            "rows_per_second": Key("100000", "Tables are compared as fast as the database answers."),
            "reconcile_every": Key("1d", "`ingest reconcile --due` compares every table each time."),
        },
    ),
    Section(
        "Options of a source",
        schema.OptionKeys,
        "`options:` of a source. A format may have more of its own: its vendor page lists them. An option that is "
        "corrected later holds for new batches; `ingest backfill` decodes the old ones again.",
        {
            "table": Key("shop.orders", "Messages that name no table are rejected."),
            "timezone": Key("Asia/Shanghai", "Instants are off by the zone's offset."),
            "binary": Key("hex", "Bytes are read in another encoding, or rejected."),
            "time_units": Key("micros", "Bare numbers in time columns become cell rejects."),
            "swap_old_data": Key(
                "true", "Updates of DTS from before March 2022 put the old row into the mirror."
            ),
            "key_is_full": Key("false", "Columns that Quest leaves out become NULL."),
            "decimal_scale": Key("2", "Unscaled decimals cannot be read."),
            "order_by": Key("arrival", "The source's own position decides, where there is one."),
            "database_kind": Key("oracle", "Types are read as MySQL's where no name shows otherwise."),
            "inserts": Key("upsert", "An insert of a row that is there fails a check."),
            "left_out": Key("null", "A value that was set to NULL stays what it was, and a check says so."),
        },
    ),
    Section(
        "Tables",
        schema.TableKeys,
        "One entry of `tables:`. The first entry whose `match` fits a source table applies, and no other.",
        {
            "match": Key("shop.order_*", "It matches every table."),
            "exclude": Key("true", "The table gets a mirror."),
            "into": Key("'archive.{table}'", "The mirror has the source table's name."),
            "keys": Key("[id]", "Keys come from the messages, or the table is held."),
            "columns": Key(
                '{price: "decimal(38,10)", total: {compute: price * quantity}}',
                "The mirror has every column, and one without any known type is a STRING ([docs/shaping.md](shaping.md)).",
            ),
            "where": Key("\"region = 'EU'\"", "The mirror holds every row ([docs/shaping.md](shaping.md))."),
            "mask": Key("{phone: last4, name: null}", "Values are kept as they were sent."),
            "no_key": Key(
                "full_row",
                "A table without a key is held. `full_row` finds updated and deleted rows by all of their values; `append` keeps "
                "every row that came, as a log does, also those that are updated or deleted.",
            ),
            "on_schema_change": Key(
                "evolve",
                "Columns are added and widened; none is dropped, unless its name comes again in another letter case.",
            ),
            "shard_column": Key("shard", "Rows of several tables with one key hold their mirror."),
            "change_feed": Key("true", "`table_changes` has nothing to read."),
            "plain_tables": Key("true", "Readers without deletion vectors cannot open the mirror."),
            "apply": Key("merge", "What the pipeline's `apply` says."),
            "changes_of": Key("true", "A consumer compares whole mirrors ([docs/shaping.md](shaping.md))."),
            "deletes": Key("soft", "A deleted row leaves the mirror ([docs/shaping.md](shaping.md))."),
            "history": Key("true", "Only the newest state of a row is kept."),
            "cluster_by": Key(
                "[region, placed_at]",
                "Files are in the order of their batches ([docs/shaping.md](shaping.md)).",
            ),
            "also": Key(
                "[{into: eu.orders, where: \"region = 'EU'\", changes_of: true}]",
                "Each of these tables goes into one mirror ([docs/shaping.md](shaping.md#several-mirrors-of-one-table)).",
            ),
        },
    ),
    Section(
        "Bronze",
        schema.BronzeKeys,
        "`bronze:`, how messages are stored as they were received.",
        {
            "seal": Key(
                "{master_key: '${BRONZE_KEY}', keep_days: 400}", "Messages are stored as they were sent."
            )
        },
    ),
    Section(
        "Sealed messages",
        schema.SealKeys,
        "`seal:` under `bronze:`. Either `master_key` or `command`; [docs/privacy.md](privacy.md) says what is protected.",
        {
            "master_key": Key("'${BRONZE_KEY}'", "The command prints it."),
            "command": Key("[vault, kv, get, -field=key, secret/bronze]", "`master_key` has it."),
            "previous_master_key": Key(
                "'${BRONZE_KEY}'", "Days whose key the former one wrapped cannot be read."
            ),
            "keep_days": Key("400", "Each day stays readable until `ingest maintain --drop-key`."),
        },
    ),
    Section(
        "Checks",
        schema.QualityKeys,
        "One entry of `quality:`.",
        {
            "table": Key("shop.orders", "It is needed."),
            "expect": Key(
                "[{type: expect_column_values_to_not_be_null, column: id}]", "No check of your own."
            ),
            "suite": Key("orders-suite.json", "A suite that you have must be written again."),
            "on": Key("changed", "Every run looks at all rows."),
            "source_counts": Key("counts.csv", "Nothing compares with the source's own counts."),
            "cells_checked": Key("500", "200 of the keys that a batch touches are compared cell by cell."),
            "freshness": Key("1h", "A stream that has stopped is not noticed."),
            "thresholds": Key("{reject_rate: 0.1%}", "The built-in limits hold."),
        },
    ),
    Section(
        "Expectations",
        schema.ExpectationKeys,
        "One entry of `expect:`.",
        {
            "type": Key("expect_column_values_to_be_unique", "It is needed."),
            "severity": Key("warn", "A failure makes the run exit with 1."),
        },
    ),
    Section(
        "Alerts",
        schema.AlertKeys,
        "One entry of `alerts:`. Either `webhook` or `email`; docs/operations.md shows what is sent.",
        {
            "webhook": Key("'${ALERT_HOOK}'", "Mails are sent, if addresses are given."),
            "style": Key("slack", "Slack, Mattermost and their like do not understand the message."),
            "email": Key("[oncall@example.com]", "The webhook is called, if one is given."),
            "smtp": Key("'smtps://ingest:${SMTP}@mail.example.com:465'", "No mail can be sent."),
            "sender": Key("ingest@example.com", "No mail can be sent."),
            "severity": Key("warn", "Warnings are not sent."),
            "repeat": Key("12h", "What lasts is sent again after four hours."),
        },
    ),
    Section(
        "Lineage",
        schema.LineageKeys,
        "`openlineage:`. Either `url` or `file`.",
        {
            "url": Key("http://marquez:5000", "Events go to the file, if one is named."),
            "file": Key("lineage.jsonl", "Events go to the service, if one is named."),
            "namespace": Key("warehouse", "Jobs and mirrors are in the namespace `ingest`."),
            "api_key": Key("'${LINEAGE_KEY}'", "A service that asks for one refuses."),
        },
    ),
    Section(
        "A catalog",
        schema.CatalogKeys,
        "`catalog:`. docs/engines.md says what is registered there, and what reads it.",
        {
            "kind": Key("unity", "It is needed."),
            "uri": Key(
                "https://catalog.example.com", "Hive and Unity need it; Glue is asked where AWS has it."
            ),
            "catalog": Key("lake", "Unity needs it; Glue takes the caller's own account."),
            "region": Key("eu-west-1", "AWS' own settings say which; without any, Glue is not reached."),
            "token": Key("'${UNITY_TOKEN}'", "A server that asks for one refuses."),
            "database": Key("'lake_{database}'", "Each source's database has one of its own name."),
            "table": Key("'{database}_{table}'", "Tables have the names of their mirrors."),
        },
    ),
)

STATEMENTS = (
    "ALTER TABLE t ADD COLUMN c INT NOT NULL DEFAULT 7",
    "ALTER TABLE t ADD COLUMN c INT",
    "ALTER TABLE t DROP COLUMN v",
    "ALTER TABLE t RENAME COLUMN v TO w",
    "ALTER TABLE t RENAME COLUMN v TO V",
    "ALTER TABLE t MODIFY n BIGINT",
    "ALTER TABLE t MODIFY n SMALLINT",
    "TRUNCATE TABLE t",
    "DROP TABLE t",
    "CREATE TABLE t (id BIGINT PRIMARY KEY, n INT)",
    "RENAME TABLE t TO u",
    "ALTER TABLE t TRUNCATE PARTITION p0",
    "CREATE INDEX i ON t (n)",
)
_TABLE = TableId("shop", None, "t")
_KNOWN = {"id": "int64", "n": "int32", "v": "string"}
_HEAD = """\
# The pipeline file

Written by `python -m docs.pipeline_file` from the keys that the program accepts. The file is YAML 1.2; an unknown key
is an error with the nearest known name, line and column. `${NAME}` takes a value from the environment and
`${file:path}` from a file, in values only. Verbs that only ask go on with a warning if one does
not resolve that only runs need. `ingest validate` checks a file, `ingest schema` prints its JSON Schema for
editors, `ingest plan` says what a changed file would do.
"""
_TYPES = """\
## Logical types

What `columns:` may say. The canonical text is how a value is written in `changes`; a text that does not fit becomes a cell
reject with its raw text, never a wrong value.

| type | Delta type of the mirror | canonical text |
|---|---|---|
"""
_TEXTS = {
    "boolean": "`true`, `false`",
    "decimal": "digits as the source wrote them; without precision and scale it stays text",
    "string": "any text",
    "enum": "the label",
    "set": "labels with commas",
    "json": "the document's text",
    "interval": "the source's text",
    "geometry": "WKT, or `SRID=n;` and base64",
    "binary": "base64",
    "date": "`2024-05-01`",
    "time": "`-12:30:00.5`; hours may pass 24",
    "datetime": "`2024-05-01 12:30:00.123456`, without a zone",
    "timestamp": "`2024-05-01T12:30:00.123456Z`, an instant",
    "year": "digits",
    "bit": "the unsigned number; `bit(64)` is DECIMAL(20,0)",
    "unknown": "any text",
    "float32": "digits, `NaN`, `Infinity`; the mirror has the nearest binary number, so declare decimals as `decimal`",
    "float64": "digits, `NaN`, `Infinity`; the mirror has the nearest binary number, so declare decimals as `decimal`",
}
_POLICY = f"""\
## Schema policies

What each `on_schema_change:` does to a mirror with the columns `id BIGINT, n INT, v STRING`. A held mirror stops before
the statement, loses nothing, and goes on after `ingest ddl approve` or `dismiss`.

| statement | {" | ".join(POLICIES)} |
|---|{"---|" * len(POLICIES)}
"""
_STATES = """\
If you change `ignore` to `lenient` or `evolve`, the next run applies the statements that were logged. If you change
`lenient` to `evolve`, columns that the mirror has kept stay until `ingest rebuild FILE TABLE` drops them.

After `RENAME TABLE t TO u` the mirror of shop.u goes on with the table's rows, as soon as rows come under that name: those that
came under the name of shop.t are [carried over](operations.md#tables-that-get-another-name). If some of them may be lacking
it **holds**, and says why: approve the statement, and load the table again.

No message names the rows of a partition that is emptied, dropped, exchanged or detached: dismiss the statement, and after the
next run `ingest reconcile FILE TABLE --repair` makes the mirror exact. The rows of one that is attached have to be loaded again,
then the statement is dismissed. A table of PostgreSQL that has sent no row since its CREATE, and has been no partition, is taken
for empty when it is attached, and `ingest ddl` says so: if its rows are not published, load them.

PostgreSQL sends the rows of a partition under the partition's name, or under the table's (`publish_via_partition_root`); the rows
show which it is:

| rows of the partition come | mirror of the table | mirror of the partition |
|---|---|---|
| under its own name | has none of them: no statement on the partition concerns it; where it was loaded with them, `noticed`: they get no changes there | goes on through ATTACH and DETACH, and is emptied by TRUNCATE |
| under the name of the table | **holds** when the partition is attached with rows, detached, dropped or emptied | after DETACH **holds** until its rows are loaded; after ATTACH `noticed`: it gets no more changes |

The states of a statement in `ingest ddl`:

| state | the mirror | what to do |
|---|---|---|
| `waits` | has not folded the statement's batch yet | nothing |
| `applied` | does what the list says | nothing |
| `partly` | does it, but no message has what only the source knows: the values that existing rows get by a default that is not a literal or in a generated column, and rows that a foreign key deletes or changes (`ON DELETE CASCADE`) | load the table again or compare it, then approve the statement |
| `noticed` | goes on; the statement could not be read, or its rows are elsewhere | compare with the source, then approve or dismiss it |
| `held` | has stopped before the statement; nothing is lost | approve or dismiss it |
| `approved`, `dismissed` | does what was decided | nothing |
| `logged` | ignores statements (`on_schema_change: ignore`), or has no rows yet | nothing |
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD, *(_section(one) for one in SECTIONS), _TYPES + "\n".join(_types()) + "\n"]
    return "\n".join([*parts, _POLICY + "\n".join(_policies()) + "\n", _STATES])


def _section(one: Section) -> str:
    lines = [f"## {one.title}", "", one.about, "", "| key | meaning | default | example | without it |"]
    lines.append("|---|---|---|---|---|")
    for name, key in one.keys.items():
        field = one.model.model_fields[name]
        cells = (
            cell(str(field.description)),
            _default(field.default),
            f"`{cell(key.example)}`",
            cell(key.without),
        )
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "needed"
    if value is None or value in ((), {}) or isinstance(value, BaseModel):
        return "none"
    if isinstance(value, bool):
        return f"`{json.dumps(value)}`"
    return {60.0: "`60s`", 4 * 3600.0: "`4h`", 64 * 1024 * 1024: "`64MiB`"}.get(value, f"`{value}`")


def _types() -> Iterator[str]:
    for name in types.LOGICAL:
        shown = {"decimal": "decimal(10,2)"}.get(name, name)
        text = _TEXTS.get(name, "digits, with `-` if signed")
        yield f"| `{shown}` | {types.delta(shown)} | {cell(text)} |"


def _policies() -> Iterator[str]:
    for text in STATEMENTS:
        cells = [_verdict(text, one) for one in POLICIES]
        yield f"| `{text}` | {' | '.join(map(cell, cells))} |"


def _verdict(text: str, name: str) -> str:
    found = ddl.effects(text, "mysql", "shop", None, "t")
    if found.kind == "none":
        return "nothing: it does not concern the mirror"
    statement = Statement("", "s", _TABLE, 2, "", text, found.kind, found.effects)
    verdict = policy.judge(statement, Subject(_TABLE, name, _KNOWN, free_until=1))
    does = "; ".join(verdict.does)
    if verdict.state == policy.HELD:
        return f"**holds**: {does}" if does.startswith("nothing") else "**holds**"
    return "logs it" if verdict.state == policy.LOGGED else does


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
