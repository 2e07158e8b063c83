"""The smaller entries of a pipeline file, each key once: its type, its default and what it means.

A field with `key` is a key of the file.  The name of its type is the kind of value that is read there
(`ingest.config.kinds`), and `ingest.config.schema` makes the keys that a file may hold from the fields.  So an entry can
be made in Python, too, and a worker unpickles it without importing the validator.  A text that may be left out is empty
then; paths are absolute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ingest.config.kinds import (
        CatalogName,
        Count,
        DatabaseUrl,
        Duration,
        Limits,
        MailServer,
        MasterKey,
        Match,
        Name,
        Natural,
        PathOrUri,
        Text,
        Texts,
        WebAddress,
    )

CELLS_CHECKED = 200


def key(
    meaning: str, default: Any = MISSING, *, among: tuple[str, ...] = (), shown: bool = True, only: str = ""
) -> Any:
    """A field that is a key of the file.

    Args:
        meaning: what the reference says of it.
        default: what holds if it is left out; needed if none.
        among: the words of which it is one, if it is one of some.
        shown: False for a secret, which ``repr`` leaves out.
        only: the kind of source that has it, if one has; of rules for tables, ``entry`` if further mirrors have none.
    """
    metadata = {"meaning": meaning, "among": among, "only": only}
    if default == {}:
        return field(default_factory=dict, repr=shown, metadata=metadata)
    return field(default=default, repr=shown, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Database:
    """The source database itself: read only, by `ingest snapshot` and `ingest reconcile`."""

    url: DatabaseUrl = key(
        "mysql://host:3306, mariadb://host:3306, postgresql://host:5432/database, oracle://host:1521/service or "
        "sqlserver://host:1433/database"
    )
    user: Text = key("a user who may read the tables, and nothing more")
    password: Text = key("the user's password, as ${VAR} or ${file:/path}", "", shown=False)
    primary: DatabaseUrl = key(
        "where the changes of the stream are written, if url is a replica of it: MySQL, MariaDB, PostgreSQL",
        "",
    )
    connections: Count = key("the most connections that read at once", 2)
    rows_per_second: Natural = key(
        "the most rows that `ingest reconcile` makes it read in a second; 0 for no bound", 0
    )
    reconcile_every: Duration | None = key(
        "how old a comparison may be before `ingest reconcile --due` makes a new one", None
    )


@dataclass(frozen=True, slots=True)
class Expectation:
    """One of the user's own checks: a Great Expectations type with its arguments."""

    type: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    severity: str = "error"  # warn | error


@dataclass(frozen=True, slots=True)
class QualityRule:
    """The checks of one mirror."""

    table: Match = key("the mirrors that the entry is about, database.table")
    expect: tuple[Expectation, ...] = key("your own checks", ())
    freshness: Duration | None = key("how old the newest change may be", None)
    thresholds: Limits = key("limits of the built-in checks, 0.1% or a count", {})
    on: str = key(
        "look at all rows, or at those that changed since the last run", "mirror", among=("mirror", "changed")
    )
    source_counts: PathOrUri = key("the source's own row counts: CSV or JSON with table and rows", "")
    cells_checked: Natural = key(
        "how many of the keys that a batch touches are compared cell by cell with the fold of all "
        "their changes; 0 compares none, `ingest quality FILE --deep '*'` all",
        CELLS_CHECKED,
    )


@dataclass(frozen=True, slots=True)
class Lineage:
    """Where OpenLineage events of the runs go."""

    url: Text = key("a service that takes them, such as http://marquez:5000", "")
    file: PathOrUri = key("or a file, relative to this one, one event a line", "")
    namespace: Text = key("the namespace of the job and of the mirrors' names", "ingest")
    api_key: Text = key("sent to the service as a bearer token", "", shown=False)


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    """A catalog in which each mirror is registered under a name; Glue needs ingest[glue]."""

    kind: str = key(
        "hive (a metastore that speaks Thrift), glue (AWS Glue) or unity (Unity Catalog)",
        among=("hive", "glue", "unity"),
    )
    uri: Text = key(
        "the metastore, thrift://host:9083, or Unity Catalog's server, http://host:8080; for Glue another endpoint than "
        "AWS' own",
        "",
    )
    catalog: Name = key("Unity Catalog: the catalog that takes the databases; Glue: the account's number", "")
    region: Text = key("Glue's region; that of AWS' own settings unless given", "")
    token: Text = key("sent to Unity Catalog as a bearer token, as ${VAR} or ${file:/path}", "", shown=False)
    database: CatalogName = key(
        "the database of a mirror, with {database} and {schema} of its name in it; both joined by _ unless given",
        "",
    )
    table: CatalogName = key("the table's name, with {database}, {schema} and {table} in it", "{table}")


@dataclass(frozen=True, slots=True)
class AlertTarget:
    """Where alerts of the pipeline go."""

    webhook: WebAddress = key(  # its path is often the secret
        "a URL that takes alerts as JSON; as a secret: ${VAR} or ${file:/path}", "", shown=False
    )
    style: str = key(
        "what the webhook is sent: this product's JSON, or a message for Slack and its like",
        "json",
        among=("json", "slack"),
    )
    email: Texts = key("or addresses that get a mail", ())
    smtp: MailServer = key(
        "the mail server, smtp://host:25 (with STARTTLS where it offers that) or smtps://user:password@host:465",
        "",
        shown=False,
    )
    sender: Text = key("the address that mails come from", "")
    severity: str = key("the least severe that is sent", "error", among=("error", "warn"))
    repeat: Duration = key("an alert that lasts is sent again after so long; 0s never", 4 * 3600.0)


@dataclass(frozen=True, slots=True)
class Sealing:
    """Encryption of the messages in bronze; needs ingest[seal]."""

    master_key: MasterKey = key(
        "the key that wraps each day's own, 32 bytes, as ${VAR} or ${file:/path}", "", shown=False
    )
    command: Texts = key("or a command that prints it: its words, run without a shell", ())
    previous_master_key: MasterKey = key(
        "the former one, until `ingest maintain --rewrap-keys` has wrapped all keys with the new one",
        "",
        shown=False,
    )
    keep_days: Count | None = key(
        "days after which `ingest maintain` drops a day's key; none if not given", None
    )
    fault: str = ""  # why the master key is not known: of a file read for looking
