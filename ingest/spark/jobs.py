"""Where a stage of a run was done: by how many Spark jobs and tasks, on how many executors, or by this process."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ingest.errors import counted
from ingest.spark.deferred import has_started
from ingest.spark.settings import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK, DRIVER = "spark", "driver"
_DRIVER = "driver"  # the executor of a session on one machine
_PATIENCE = 2_000  # milliseconds for Spark's own counts to become complete


@dataclass(frozen=True, slots=True)
class Ran:
    """The Spark jobs of a stage, their tasks, and the executors other than the driver that ran these.

    All are 0 for a stage that this process did by itself.
    """

    jobs: int = 0
    tasks: int = 0
    executors: int = 0

    @property
    def where(self) -> str:
        """``spark`` or ``driver``."""
        return SPARK if self.jobs else DRIVER

    def document(self) -> dict[str, Any]:
        """As scripts read it."""
        return {"where": self.where, **asdict(self)}

    def __str__(self) -> str:
        if not self.jobs:
            return "the driver"
        where = f"on {counted(self.executors, 'executor')}" if self.executors else "on this machine"
        return f"Spark, {counted(self.jobs, 'job')}, {counted(self.tasks, 'task')} {where}"


NOWHERE = Ran()


def recorded(row: Mapping[str, Any]) -> Ran | None:
    """Where a stage was done, from its row of `runs`; None if the row does not say it, as those of older versions."""
    return Ran(row["jobs"], row["tasks"], row["executors"]) if row["ran"] else None


def said(stages: Mapping[str, Ran]) -> str:
    """Where each stage was done, in a line: ``bronze: Spark, 1 job, 2 tasks on 2 executors; gold: the driver``."""
    return "; ".join(f"{stage}: {ran}" for stage, ran in stages.items())


def unused_cluster(spark: SparkSession, master: str, stages: Mapping[str, Ran]) -> str:
    """The cluster that a session was asked to use and that ran no task of these stages; empty if there is none."""
    if not stages or any(stage.executors for stage in stages.values()):
        return ""
    if has_started(spark):
        with suppress(Exception):
            master = str(spark.sparkContext.master)
    return "" if is_local(master) else master


def ran(spark: SparkSession, group: str) -> Ran | None:
    """What the jobs of a group were, by Spark's own books; None where a session does not show these."""
    if not has_started(spark):
        return NOWHERE
    try:
        context = spark.sparkContext
        scala = context._jsc.sc()
        scala.listenerBus().waitUntilEmpty(_PATIENCE)
        tracker, store = context.statusTracker(), scala.statusStore()
        jobs = tracker.getJobIdsForGroup(group)
        tasks, executors = 0, set[str]()
        for job in jobs:
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info else ():
                stage_info = tracker.getStageInfo(stage)
                if stage_info is not None and stage_info.numCompletedTasks:
                    tasks += stage_info.numCompletedTasks
                    summary = store.executorSummary(stage, stage_info.currentAttemptId)
                    executors.update(summary.keySet().mkString("\n").split("\n"))
    except Exception:  # a session of Spark Connect, or one whose owner forbids it; the work itself is done
        return None
    return Ran(len(jobs), tasks, len(executors - {_DRIVER, ""}))
