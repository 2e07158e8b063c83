"""Send what a run read and wrote to a lineage service as OpenLineage events, if the pipeline file says so.

One job is one pipeline, one run is one run: START as soon as there is something to do, then COMPLETE, or FAIL with
the reasons. Inputs are topics and file patterns, outputs are the mirrors that were written, with their columns.
The client is `openlineage-python`, an optional package. An event that cannot be sent is a warning, never a failure of
the run.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ingest.config import Pipeline, Source
from ingest.config.entries import Lineage
from ingest.config.secrets import struck
from ingest.errors import first_line
from ingest.tables.lake import Lake

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient

PRODUCER = "urn:ingest"
_MOST = 500  # characters of one failure
_SECONDS = 5.0  # timeout of the service
_TRIES = {"total": 1, "connect": 1, "read": 0, "backoff_factor": 0.2}
Messages = Mapping[tuple[str, str | None], int]
"""The number of messages from each source and topic."""


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """A table that a run has written."""

    name: str
    path: str  # under the lake
    rows: int
    size: int  # bytes of the whole table


@dataclass(frozen=True, slots=True)
class _Event:
    """One event of a run."""

    state: str  # START | COMPLETE | FAIL
    moment: dt.datetime
    failures: list[str] = field(default_factory=list)
    messages: Messages = field(default_factory=dict)
    written: Iterable[WrittenTable] = ()


@dataclass(slots=True)
class Emitter:
    """Emits the events of one run; without ``openlineage:`` in the pipeline file it does nothing."""

    lake: Lake
    warnings: list[str] = field(default_factory=list)
    began: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))
    _client: OpenLineageClient | None = None
    _started: bool = False

    def start(self) -> None:
        """Send START, once."""
        if not self._started:
            self._started = True
            self._send(_Event("START", self.began))

    def end(self, failures: list[str], messages: Messages, written: Iterable[WrittenTable]) -> None:
        """Send how the run ended, without secrets, Java's traces and long texts of the source."""
        self.start()
        failures = [struck(first_line(text), self.lake.pipeline)[:_MOST] for text in failures]
        state = "FAIL" if failures else "COMPLETE"
        self._send(_Event(state, dt.datetime.now(dt.UTC), failures, messages, written))

    def _send(self, event: _Event) -> None:
        """Send one event; after a failure no further one is sent."""
        where = self.lake.pipeline.lineage
        if where is None or self.warnings:
            return
        try:
            self._client = self._client or _client(where)
            self._client.emit(_run_event(self.lake, where, event))
        except ImportError:
            self.warnings.append(
                "openlineage: the package openlineage-python is missing: type `pip install 'ingest[lineage]'`."
            )
        except Exception as error:  # any error of a service or its client
            text = struck(first_line(error), self.lake.pipeline)
            reason = f"{type(error).__name__}: {text[:200]}"
            self.warnings.append(f"openlineage: the {event.state} event was not accepted ({reason}).")


def _client(where: Lineage) -> OpenLineageClient:
    from openlineage.client import OpenLineageClient
    from openlineage.client.transport.file import FileConfig, FileTransport
    from openlineage.client.transport.http import ApiKeyTokenProvider, HttpConfig, HttpTransport

    if where.file:
        return OpenLineageClient(transport=FileTransport(FileConfig(where.file, append=True)))
    config = HttpConfig(where.url, timeout=_SECONDS, retry=dict(_TRIES))
    if where.api_key:
        config.auth = ApiKeyTokenProvider({"api_key": where.api_key})
    return OpenLineageClient(transport=HttpTransport(config))


def _run_event(lake: Lake, where: Lineage, event: _Event) -> Any:
    from openlineage.client import event_v2 as events
    from openlineage.client import facet_v2 as facets

    faults = facets.error_message_run.ErrorMessageRunFacet("\n".join(event.failures), "PYTHON")
    kind = facets.job_type_job.JobTypeJobFacet(
        processingType="BATCH", integration="INGEST", jobType="PIPELINE"
    )
    return events.RunEvent(
        eventType=events.RunState[event.state],
        eventTime=event.moment.isoformat(),
        run=events.Run(str(uuid.UUID(lake.run)), {"errorMessage": faults} if event.failures else {}),
        job=events.Job(where.namespace, lake.pipeline.name, {"jobType": kind}),
        producer=PRODUCER,
        inputs=list(_inputs(lake.pipeline, event.messages)),
        outputs=[_output(lake, where, table) for table in event.written],
    )


def _inputs(pipeline: Pipeline, messages: Messages) -> Iterator[Any]:
    """The inputs; before they are known, those that the pipeline file names."""
    from openlineage.client import event_v2 as events
    from openlineage.client import facet_v2 as facets

    for source in pipeline.sources:
        counts: dict[tuple[str, str], int | None] = dict.fromkeys(
            [_place(source, topic) for topic in source.topics]
            if source.kind == "kafka"
            else [_place(source, None)]
        )
        for (name, topic), count in messages.items():
            if name == source.name:
                place = _place(source, topic)
                counts[place] = (counts.get(place) or 0) + count
        for (namespace, name), n in counts.items():
            statistics = facets.input_statistics_input_dataset.InputStatisticsInputDatasetFacet(rowCount=n)
            yield events.InputDataset(
                namespace, name, inputFacets={} if n is None else {"inputStatistics": statistics}
            )


def _place(source: Source, topic: str | None) -> tuple[str, str]:
    """Namespace and name of a topic, or of a source of files by its pattern."""
    if source.kind == "kafka":
        return f"kafka://{source.bootstrap_servers.split(',')[0].strip()}", topic or source.name
    return place(source.path)


def place(path: str) -> tuple[str, str]:
    """Namespace and name of a path, by OpenLineage's rules for file systems and stores."""
    scheme, apart, rest = path.partition("://")
    if not apart:
        return "file", path
    host, _, name = rest.partition("/")
    if scheme == "hdfs":
        return f"hdfs://{host}", f"/{name}"
    return f"{'s3' if scheme in ('s3a', 's3n') else scheme}://{host}", name or "/"


def _output(lake: Lake, where: Lineage, table: WrittenTable) -> Any:
    from openlineage.client import event_v2 as events
    from openlineage.client import facet_v2 as facets

    columns = [
        facets.schema_dataset.SchemaDatasetFacetFields(name=each.name, type=each.dataType.simpleString())
        for each in lake.read(table.path).schema
    ]
    known_as = facets.symlinks_dataset.Identifier(namespace=where.namespace, name=table.name, type="TABLE")
    statistics = facets.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=table.rows, size=table.size
    )
    return events.OutputDataset(
        *place(lake.path(table.path)),
        facets={
            "schema": facets.schema_dataset.SchemaDatasetFacet(fields=columns),
            "symlinks": facets.symlinks_dataset.SymlinksDatasetFacet(identifiers=[known_as]),
        },
        outputFacets={"outputStatistics": statistics},
    )
