"""What a Kafka source's cluster has to read, whichever client asks it; and losses that the operator has accepted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ingest.bronze.kafka_settings import BrokerError
from ingest.bronze.offsets import Cluster, Gap, KafkaPlan, Place, Position, plan
from ingest.config import Source
from ingest.lake import decisions
from ingest.lake.decisions import ACCEPT_GAP, Decision
from ingest.lake.tables import Tables

if TYPE_CHECKING:
    from ingest.lake.lake import Lake


@dataclass(frozen=True, slots=True)
class Look:
    """One source's plan, with the ids that its receipts carry."""

    source: Source
    plan: KafkaPlan
    cluster: str = ""
    topics: Mapping[str, str] = field(default_factory=dict)
    trouble: str = ""  # why the cluster could not be queried

    def alarms(self) -> Iterator[str]:
        """The sentences that make the run fail."""
        if self.trouble:
            yield self.trouble
        for gap in self.plan.gaps:
            yield gap.text


def look(
    lake: Tables | None,
    source: Source,
    known: Mapping[Place, Position],
    connected: Callable[[Source], AbstractContextManager[Cluster]],
) -> Look:
    """Query the cluster of one source and plan what to read; a cluster that is down affects only its source."""
    accepted: list[Mapping[str, Any]] | None = None

    def is_accepted(gap: Gap) -> bool:
        nonlocal accepted
        if accepted is None:  # read decisions only if there is a gap
            found = decisions.read(lake).of(ACCEPT_GAP, subject=source.name) if lake is not None else ()
            accepted = [one.value for one in found]
        return any(gap.value.items() <= one.items() for one in accepted)

    try:
        with connected(source) as cluster:
            planned = plan(source, known, cluster, is_accepted)
            return Look(source, planned, cluster.id, cluster.topics)
    except BrokerError as error:
        return Look(source, KafkaPlan(), trouble=str(error))


def accept(lake: Lake, source: Source, gaps: Iterable[Gap], batch: int) -> None:
    """Record that these gaps' losses are known; the next run continues with what is there."""
    decisions.append(
        lake,
        [Decision(ACCEPT_GAP, source.name, gap.value, batch, gap.loss) for gap in gaps],
    )
