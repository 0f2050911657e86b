"""Identity of a step of a run, and who asks for its job. The identity determines the TrainJob's name, so that a retry finds the job
instead of creating a second one.

An Airflow run that was deleted and triggered again has the identity of the first one, and so has a task that was cleared. A retry
takes over the job of the try before; they do not: the TrainJob notes which execution of the step has asked for it.

Imported where a DAG is parsed, so it loads little.
"""

from __future__ import annotations

import enum
import getpass
import hashlib
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trainwright.jobs.state.run_folder import STEP_DIGITS, export_name, label_value, later_subfolder, run_folder, step_subfolder

NAME_LIMIT = 33
"""Keeps `NAME-dataset-initializer-0-0-abcde`, the longest pod name of a bundled runtime, within the 63 characters of a DNS label."""
_SLUG, _SLUG_OF_STEP = 20, 13
_ALONE = "train"
"""The place of the only training of a pipeline or DAG run: it has the run's folder."""
COMMAND_LINE = "cli"
"""The owner of these runs. The page has the same, so that `trainwright finetune --run-id` resumes a run of the page."""


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
        if self.clears and clears and clears != self.clears:  # a cleared task is to run anew
            return Relation.cleared
        if not (self.run_instance and instance):  # jobs and tries of earlier versions say nothing
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


@dataclass(frozen=True)
class Identity:
    """`owner` is the submitter (`kfp`, `airflow/dag`, a person); `map_index` distinguishes mapped tasks, -1 for others."""

    owner: str
    run: str
    step: str
    map_index: int = -1
    subfolder: str = field(default="", compare=False)
    """Subfolder of the run's folder that only this step writes to; empty for the run's folder itself."""
    may_resume: bool = field(default=True, compare=False)
    """Whether an attempt continues with what the one before has left in the folder: a training does, an evaluation does not."""
    folder_since: str = field(default="", compare=False)
    """What begins the folder, as an attempt and a random text that no other attempt has; empty for the first folder of the step."""
    submitter: Submitter = field(default=NOBODY, compare=False)

    def at(self, place: str) -> Identity:
        """Return the same identity of a training at a place in its pipeline or DAG, which decides on its folder.

        One that may not be the only training of the run has a folder below that of the run.
        """
        return self if place in ("", _ALONE) else replace(self, subfolder=step_subfolder(place, self.digest()[:STEP_DIGITS]))

    def name(self, attempt: int = 1) -> str:
        """Return the TrainJob's name: a DNS label of at most 33 characters, with a numeric suffix from the second attempt on."""
        base = f"{self._readable()}-{self.digest()[:STEP_DIGITS]}"
        return base if attempt == 1 else f"{base}-{attempt}"

    @property
    def folder(self) -> str:
        """Folder that the step writes to, relative to its workspace: `runs/NAME` or a subfolder of it. Unique for each run."""
        own = run_folder(self.run, self.map_index)
        if not self.folder_since:
            return f"{own}/{self.subfolder}" if self.subfolder else own
        return f"{own}/{later_subfolder(self.subfolder, self.digest()[:STEP_DIGITS], self.folder_since)}"

    def of_attempt(self, trainjob: Mapping[str, Any]) -> Identity:
        """Return the same identity with the folder of the attempt that this TrainJob is."""
        from trainwright.api import names  # a DAG file that is parsed needs neither

        return replace(self, folder_since=(trainjob["metadata"].get("annotations") or {}).get(names.FOLDER_SINCE_ANNOTATION, ""))

    @property
    def exports(self) -> str:
        """The name of the folder of its exports, below the URI that all runs share. Unique like `folder`."""
        return export_name(self.folder)

    def _readable(self) -> str:
        """The DAG or pipeline, the task and its index; the run where there is none."""
        if not self.submitter.pipeline:
            return _slug(self.run)
        index = f"-{self.map_index}" if self.map_index >= 0 else ""
        step = _slug(re.split(r"[./]", self.step)[-1], _SLUG_OF_STEP - len(index)) + index
        return f"{_slug(self.submitter.pipeline, _SLUG - 1 - len(step))}-{step}"

    def digest(self) -> str:
        return hashlib.sha256(str(self).encode()).hexdigest()

    def __str__(self) -> str:
        mapped = f"[{self.map_index}]" if self.map_index >= 0 else ""
        return f"{self.owner}/{self.run}/{self.step}{mapped}"


def _slug(text: str, length: int = _SLUG) -> str:
    """Return the readable part of a name: lower-case letters, digits and dashes, starting with a letter."""
    cleaned = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if not cleaned or not cleaned[0].isalpha():
        cleaned = f"job-{cleaned}".rstrip("-")
    return cleaned[:length].rstrip("-")


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


def new_run_id() -> str:
    """Return the id of a new run: the user, the time, and what tells runs of one second apart."""
    return f"{_user()}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def _user() -> str:
    """Return the user name, or a default for a user id without a name, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in some containers
        return COMMAND_LINE
