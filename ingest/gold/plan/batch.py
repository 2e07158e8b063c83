"""Plan a batch: what each mirror with new changes shall be, before anything is written.

A mirror that is paused, held or damaged has its result already here; the others go on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from ingest.config import matches
from ingest.gold.plan import eras, failover
from ingest.gold.plan import ledger as ledgers
from ingest.gold.plan.completed import folded
from ingest.gold.plan.ledger import Ledger
from ingest.gold.plan.mirror_schema import Plan, decide
from ingest.gold.plan.results import Folded
from ingest.gold.plan.work import Books, Job, caught_up, jobs, stated
from ingest.ledgers import mirrors, pauses
from ingest.ledgers.decisions import FOLDED, Decision
from ingest.ledgers.mirrors import Mirror
from ingest.tables.lake import Lake
from ingest.tables.tables import Tables


@dataclass(frozen=True, slots=True)
class Backlog:
    """What earlier batches and the operator have left: mirrors by path, and how far the others are.

    Args:
        lagging: mirrors that have not folded all batches that the books sum up.
        asleep: those that wait for a decision, each with its last result.
        paused: those that are left as they are.
        settled: up to this batch frozen mirrors accept everything, because a rebuild folds again what they hold.
    """

    lagging: Collection[str] = ()
    asleep: Mapping[str, Folded] = field(default_factory=dict)
    paused: frozenset[str] = frozenset()
    settled: int = 0


NO_BACKLOG = Backlog()


@dataclass(frozen=True, slots=True)
class Batch:
    """What the mirrors of one batch share, the plan of each, and the results of those that cannot be folded."""

    books: Books
    ledger: Ledger
    plans: list[Plan]
    results: list[Folded]

    def until(self, plan: Plan) -> Books:
        """The books up to what holds the mirror, if anything does."""
        return self.books if plan.hold is None else self.books.before(plan.hold.batch)

    def renewed(self, decided: Mapping[str, Mirror]) -> dict[str, Mirror]:
        """The mirrors that are new or change, by path."""
        mirrors_of = ((plan.mirror, plan) for plan in self.plans if not plan.why_rebuilt)
        return {
            mirror.path: mirror
            for mirror, plan in mirrors_of
            if mirror != (before := decided.get(mirror.path))
            and (mirror.keys or (mirror.columns and (plan.job.has_changes or before is not None)))
        }

    def records(self, decided: Mapping[str, Mirror]) -> Iterator[Decision]:
        """What is decided, for the table `decisions`: columns of mirrors, and what new statements do to them.

        The latter is recorded now, because the texts describe the schema before the statements are applied.
        """
        renewed = self.renewed(decided)
        for plan in self.plans:
            path = plan.mirror.path
            if path in renewed:
                yield mirrors.decision(plan.mirror, self.books.last, "columns seen")
            as_recorded = self.ledger.recorded, self.ledger.done
            for verdict in self.verdicts(plan):
                name, value = (path, verdict.value["statement"]), verdict.value
                said = value["state"], tuple(value["does"])
                if (as_recorded[0].get(name), as_recorded[1].get(name)) != (said, said[0]):
                    yield verdict

    @staticmethod
    def verdicts(plan: Plan) -> Iterator[Decision]:
        """What the new statements do to a mirror."""
        for statement, verdict in plan.verdicts:
            value = {"statement": statement.id, "state": verdict.state, "does": list(verdict.does)}
            yield Decision(FOLDED, plan.mirror.path, value, statement.batch, "folded")


def plan_batch(lake: Lake, books: Books, decided: Mapping[str, Mirror], backlog: Backlog) -> Batch:
    """Plan every mirror that has new batches, and those that lag; the arguments are those of `ingest.gold.stage.apply`."""
    resting = backlog.paused | backlog.asleep.keys()
    books = caught_up(lake, books, decided, backlog.lagging, resting)
    ledger = ledgers.read(lake, books.lanes, books.last)
    books = stated(lake.pipeline, books, ledger.statements)
    every = jobs(lake.pipeline, books, decided)
    chosen = [job for job in every if not lake.select or matches(lake.select, job.table)]
    names = {job.path: str(job.table) for job in chosen} | {
        path: mirror.name for path, mirror in decided.items() if path in backlog.lagging and not lake.select
    }
    awake = [job for job in chosen if job.path not in resting]
    made = [_planned(lake, books, ledger, job, decided.get(job.path), backlog.settled) for job in awake]
    paused = [
        Folded(names[path], path, "paused", message=pauses.PAUSED) for path in backlog.paused & names.keys()
    ]
    return Batch(
        books,
        ledger,
        [plan for plan in made if isinstance(plan, Plan)],
        [
            *paused,
            *(outcome for path, outcome in backlog.asleep.items() if path not in backlog.paused),
            *(outcome for outcome in made if isinstance(outcome, Folded)),
        ],
    )


def _reached(lake: Tables, path: str, decided: Mirror | None) -> int | None:
    """As `ingest.ledgers.mirrors.reached`; None if the mirror's table does not exist yet."""
    return mirrors.reached(lake, decided) if decided is not None and lake.exists(path) else None


def _planned(
    lake: Tables, books: Books, ledger: Ledger, job: Job, decided: Mirror | None, settled: int
) -> Plan | Folded:
    """What a mirror shall be with this batch; its result if that holds it or fails."""
    applied, last = job.applied, books.last
    try:
        failover.refuse_another(lake.pipeline, books, job)
        # the mirror's log is read only if a policy may need the answer
        if decided is not None and (job.rule.freezes or any(ledger.of(*name) for name in job.lines)):
            applied = max(folded(lake, decided), applied)
        return decide(
            lake.pipeline, job, decided, ledger, applied,
            first=max(job.first_rows, settled),
            reached=partial(_reached, lake, job.path, decided),
            evidence=lambda name, upto: eras.evidence_of_changes(lake, *name, min(upto, last)),
        )  # fmt: skip
    except Exception as error:  # a damaged log, for example: the others go on
        result = Folded(str(job.table), job.path, "failed")
        result.stop(lake, error)
        return result
