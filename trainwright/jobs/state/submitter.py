"""Who asks for the job of a step, as its TrainJob notes it: which execution of the step, beyond the identity that all of them share.

An Airflow run that was deleted and triggered again has the identity of the first one, and so has a task that was cleared. A retry
takes over the job of the try before; they do not. Imported where a DAG is parsed, so it loads little.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainwright.jobs.state.label_values import label_value


class Relation(enum.Enum):
    """How an existing job of a step was asked for, compared with who asks now."""

    retry = "retry"
    """By an earlier try of the same execution."""
    rerun = "rerun"
    """By the same step of another run with the same id."""
    cleared = "cleared"
    """By the same task before a user cleared it."""
    unknown = "unknown"
    """By somebody who noted nothing, such as a person."""


@dataclass(frozen=True)
class Submitter:
    """`run_instance` is the same for all tries of a run, and another for a later run with the same id. `clears` is a number that
    only a clear changes. Either is empty if it is not known.
    """

    run_instance: str = ""
    clears: str = ""
    pipeline: str = ""
    """The DAG or the pipeline, for the names of jobs; empty for a run without one."""
    task_instance: str = ""
    """The orchestrator's id of the task instance."""
    waiter: str = ""
    """The process that asks, as a random text."""
    awaited_by: str = ""
    """The orchestrator's task that stops the job when a user ends it, in the orchestrator's terms; noted, never compared."""
    waiting_pod: str = ""
    """The pod in which the submitter waits, if it runs on the cluster of its jobs: the annotation, as text; see `left_behind`."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """What the TrainJob's labels tell, in any text: label keys to values."""
    adopts_reruns: bool = True
    """Whether the job of an earlier run with the same id is taken, because the run was named by its user."""
    is_certain: bool = True
    """Whether no other step can have this identity."""

    @property
    def execution(self) -> str:
        """What all tries of one execution share, as a short text; empty if it is not known."""
        return " ".join(filter(None, (self.run_instance, f"#{self.clears}" if self.clears else "")))

    def relation_to(self, trainjob: Mapping[str, Any]) -> Relation:
        """Return how a job of the same identity was asked for."""
        from trainwright.api import names

        noted = trainjob["metadata"].get("annotations") or {}
        clears, instance = noted.get(names.CLEARS_ANNOTATION, ""), noted.get(names.RUN_INSTANCE_ANNOTATION, "")
        if self.clears and clears and clears != self.clears:
            return Relation.cleared
        if not (self.run_instance and instance):
            return Relation.unknown
        return Relation.retry if instance == self.run_instance else Relation.rerun

    def has_lost(self, trainjob: Mapping[str, Any]) -> bool:
        """Whether the job was followed by the very try that asks now, in a process that is gone: nobody has seen how it ended."""
        from trainwright.api import names

        metadata = trainjob["metadata"]
        noted, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
        waiter = noted.get(names.WAITER_ANNOTATION, "")
        is_same_task = self.task_instance and noted.get(names.TASK_INSTANCE_ANNOTATION) == self.task_instance
        is_same_try = labels.get(names.TRY_NUMBER_LABEL) == self.label_values().get(names.TRY_NUMBER_LABEL)
        return bool(waiter and waiter != self.waiter and is_same_task and is_same_try)

    def adoption_patch(self, trainjob: Mapping[str, Any]) -> dict[str, Any]:
        """Return the patch by which this process and try note that they follow the job, of this job only; empty if they need not."""
        from trainwright.api import names

        if not self.waiter:
            return {}
        noted = self.annotations()
        annotations: dict[str, str | None] = {
            key: noted[key] for key in (names.TASK_INSTANCE_ANNOTATION, names.WAITER_ANNOTATION) if key in noted
        }
        # Of a task that does not wait any more, none must be found when the task has ended.
        annotations[names.AWAITED_BY_ANNOTATION] = self.awaited_by or None
        labels = {key: value for key, value in self.label_values().items() if key == names.TRY_NUMBER_LABEL}
        return {"metadata": {"uid": trainjob["metadata"]["uid"], "annotations": annotations, "labels": labels}}

    def label_values(self) -> dict[str, str]:
        """Return the labels of the TrainJob, with values that a label may have."""
        return {key: label_value(value) for key, value in self.labels.items() if value}

    def annotations(self) -> dict[str, str]:
        """Return the annotations of the TrainJob by which a later execution is told from a retry."""
        from trainwright.api import names

        noted = {
            names.RUN_INSTANCE_ANNOTATION: self.run_instance,
            names.CLEARS_ANNOTATION: self.clears,
            names.TASK_INSTANCE_ANNOTATION: self.task_instance,
            names.WAITER_ANNOTATION: self.waiter,
            names.AWAITED_BY_ANNOTATION: self.awaited_by,
        }
        return {key: value for key, value in noted.items() if value}


NOBODY = Submitter()
"""Of a person, or of a program that calls the library."""
