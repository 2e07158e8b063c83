"""The starter pipeline file that ``init`` writes: working keys, and the rest as comments."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from pathlib import Path

from ingest import formats
from ingest.config.model import POLICIES
from ingest.config.scalars import is_uri, listed
from ingest.errors import ConfigError
from ingest.operate import detection

SCHEMA_FILE = "ingest.schema.json"

_TEXT = """\
# yaml-language-server: $schema={schema}
# Check it with `ingest validate {file}`.

pipeline: {name}
lake: {lake}             # a folder, relative to this file, or a URI
{plain}

{sources}
    # settle: 60s              # a file that has not changed for so long is finished

# every: 30s                 # how often `ingest serve` runs it

# The first entry that matches a table applies, alone. docs/pipeline-file.md explains these keys and all others.
# tables:
#   - match: "shop.*"          # database.table, or database.schema.table
#     keys: [id]               # where the messages name no key
#     columns: {{price: "decimal(12,2)"}}   # where the messages name no types
#     on_schema_change: {policy}   # {policies}
#     history: true            # every state of each row, in a table of its own
#   - match: log.lines
#     no_key: full_row         # for tables without a key; append keeps rows that are updated or deleted, too
#     into: log.all_lines      # the mirror's name, if not the table's own
#   - match: "*.tmp_*"
#     exclude: true

# quality:
#   - table: shop.orders
#     freshness: 2h
#     expect:
#       - {{type: expect_column_values_to_not_be_null, column: id}}
"""


_PLAIN = {
    True: "plain_tables: true       # mirrors without deletion vectors: any Delta reader opens them, updates rewrite more",
    False: "# plain_tables: true       # for readers that lack deletion vectors; updates rewrite more then",
}


@dataclass(frozen=True, slots=True)
class FoundSource:
    """A source of files, as it was given, with its format and framing."""

    path: str
    format: str
    framing: str
    doubt: str | None = None  # why it may be another format

    @property
    def has_zone(self) -> bool:
        """True if its messages may have times without a zone."""
        return "timezone" in formats.load(self.format).ABOUT.options


def found(source: str, format_name: str | None) -> FoundSource:
    """The format and framing of a source, as given or found from its files; a `ConfigError` if they are not known."""
    sample = _first(source)
    if not format_name:
        return _detected(source, sample)
    about = formats.load(format_name).ABOUT
    framing = detection.sample(sample, None, 1)[0] if sample else about.framing
    return FoundSource(source, format_name, framing)


def text(
    file: Path, name: str, read: FoundSource, lake: str, *, plain_tables: bool = False, zone: str = ""
) -> str:
    """The starter's YAML for one source of files; ``zone`` is that of times without one."""
    path = source = read.path
    if not is_uri(source) and not Path(source).is_absolute():  # as seen from the pipeline file's folder
        path = os.path.relpath(source, file.parent)
        path = path if path.startswith("..") else f"./{path}"
    return _TEXT.format(
        schema=SCHEMA_FILE,
        policy=POLICIES[0],
        policies=listed(POLICIES[1:]),
        file=file,
        name=detection.quoted(name),
        lake=detection.quoted(lake),
        plain=_PLAIN[plain_tables],
        sources=detection.block(
            path,
            read.format,
            read.framing,
            named=name,
            given={"timezone": zone} if zone else {},
            doubt=read.doubt,
        ),
    )


def _first(source: str) -> str | None:
    """A file of the source to sample, the newest one."""
    if is_uri(source):
        return None
    matching = glob.glob(source, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern
    files = [path for path in map(Path, matching) if path.is_file()]
    return str(max(files, key=lambda path: path.stat().st_mtime)) if files else None


def _detected(source: str, sample: str | None) -> FoundSource:
    if sample is None:
        raise ConfigError([f"{source} matches no file here, so its format is not known; give --format"])
    verdict = detection.judge(sample, *detection.sample(sample, None, 200))
    if not detection.is_one_source(verdict):
        raise ConfigError([detection.in_words(verdict)])
    if not verdict["format"]:
        rivals = verdict["candidates"]
        which = f"it may be {listed(rivals)}" if rivals else "it is like no known one"
        raise ConfigError([f"the format of {sample} cannot be detected ({which}); give --format"])
    return FoundSource(source, verdict["format"], verdict["framing"], detection.doubt(verdict))
