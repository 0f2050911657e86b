"""A TrainJob as a row of the list: what people look for, filter by and sort by.

Who made it is read from its labels and annotations: a DAG run, a pipeline run, a command, or a person. The number of nodes of a
runtime, for TrainJobs that do not set their own, is remembered for a minute.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypedDict
from urllib.parse import quote

from trainwright.api import names
from trainwright.api.conditions import condition
from trainwright.api.errors import ApiError
from trainwright.api.objects import Obj, annotations_of, is_deleting, labels_of, name_of, namespace_of, uid_of
from trainwright.api.phase import Phase, phase_of, verdict_of
from trainwright.jobs.state.progress import progress_of
from trainwright.runtimes import RuntimeNotFound
from trainwright.submission.jobs_client import JobsClient
from trainwright.submission.runtime_lookup import resolve_in_cluster
from trainwright.text.foreign_texts import one_line

_MAX_REASON, _MAX_METRICS, _MAX_METRIC = 300, 50, 64
_SECONDS = 60.0
_MAX_RUNTIMES = 2000


class JobRow(TypedDict):
    """Times are RFC 3339 in UTC; `nodes` is 0 if not known; `percent` None if nothing was reported."""

    uid: str
    namespace: str
    name: str
    runtime: str
    phase: str
    reason: str
    percent: int | None
    remaining: int | None
    metrics: dict[str, str]
    nodes: int
    created: str
    ended: str
    queue: str
    creator: Creator
    deleting: bool


def row_of(trainjob: Obj, nodes_of_runtime: Callable[[Obj, str], int], jobset: Obj | None = None) -> JobRow:
    """Return the row of a job. `nodes_of_runtime` returns the nodes that a runtime reference has in a namespace, 0 if unknown."""
    progress, phase = progress_of(trainjob), phase_of(trainjob, jobset)
    spec = trainjob["spec"]
    reference, own = spec.get("runtimeRef") or {}, (spec.get("trainer") or {}).get("numNodes")
    metrics = {name[:_MAX_METRIC]: value[:_MAX_METRIC] for name, value in progress.metrics[:_MAX_METRICS]}
    return JobRow(
        uid=uid_of(trainjob),
        namespace=namespace_of(trainjob),
        name=name_of(trainjob),
        runtime=str(reference.get("name") or ""),
        phase=phase.value,
        reason=one_line(_reason(trainjob, phase, progress.note))[:_MAX_REASON],
        percent=100 if phase is Phase.Succeeded and progress.percent is not None else progress.percent,
        remaining=None if phase.is_final else progress.remaining_seconds,
        metrics=metrics,
        nodes=int(own) if isinstance(own, int) else nodes_of_runtime(reference, namespace_of(trainjob)),
        created=str(trainjob["metadata"].get("creationTimestamp") or ""),
        ended=ended_at(trainjob),
        queue=labels_of(trainjob).get(names.QUEUE_LABEL, ""),
        creator=creator_of(trainjob),
        deleting=is_deleting(trainjob),
    )


def _reason(trainjob: Obj, phase: Phase, note: str) -> str:
    if phase.is_final:
        ended = final_condition(trainjob) or {}
        return f"{ended.get('reason', '')}: {ended.get('message', '')}".strip(": ") if phase is Phase.Failed else ""
    if note:
        return note
    if phase is Phase.Suspended and (by := annotations_of(trainjob).get(names.SUSPENDED_BY_ANNOTATION)):
        return f"suspended by {by}"
    created = condition(trainjob, "Created")  # of an older Trainer; False if its objects could not be created
    if created is not None and created.get("status") == "False":
        return str(created.get("message") or "")
    return ""


def ended_at(trainjob: Obj) -> str:
    """Return when a job has ended; empty if it has not."""
    return str((final_condition(trainjob) or {}).get("lastTransitionTime") or "")


def final_condition(trainjob: Obj) -> Obj | None:
    """Return the condition with which a job has ended, or what its client has written in its place; None before."""
    if (verdict := verdict_of(trainjob)) is not None:
        return {"reason": verdict.reason, "message": verdict.message, "lastTransitionTime": verdict.time}
    for kind in ("Complete", "Failed"):
        found = condition(trainjob, kind)
        if found is not None and found.get("status") == "True":
            return found
    return None


class Creator(TypedDict):
    """`kind` is `airflow`, `kfp`, `trainwright` or empty; `path` is that of the run below the address of its orchestrator."""

    kind: str
    name: str
    run: str
    task: str
    path: str


def creator_of(trainjob: Obj) -> Creator:
    """Return who made a job. What labels shorten is taken from annotations where those have it. Pure."""
    labels, owner = labels_of(trainjob), annotations_of(trainjob).get(names.OWNER_ANNOTATION, "")
    if names.DAG_LABEL in labels or owner.startswith("airflow/"):
        return _airflow(labels, owner)
    if names.PIPELINE_RUN_LABEL in labels or owner.startswith("kfp"):
        return _pipeline(labels, owner)
    if owner:
        name, run, task = ([*owner.rsplit("/", 2), "", ""])[:3]
        return Creator(kind="trainwright", name=name, run=run, task=task, path="")
    manager = labels.get(names.MANAGED_BY_LABEL, "")
    return Creator(kind="", name=manager, run="", task="", path="")


def _airflow(labels: dict[str, str], owner: str) -> Creator:
    parts = owner.split("/")
    whole = len(parts) >= 4 and parts[0] == "airflow"
    dag = parts[1] if whole else labels.get(names.DAG_LABEL, "")
    run = "/".join(parts[2:-1]) if whole else labels.get(names.AIRFLOW_RUN_LABEL, "")
    task = labels.get(names.TASK_LABEL, "") or (parts[-1] if whole else "")
    path = f"/dags/{quote(dag, safe='')}/runs/{quote(run, safe='')}" if dag and run else ""
    return Creator(kind="airflow", name=dag, run=run, task=task, path=path)


def _pipeline(labels: dict[str, str], owner: str) -> Creator:
    parts = owner.split("/")
    run = labels.get(names.PIPELINE_RUN_LABEL, "") or (parts[1] if len(parts) > 1 else "")
    name = labels.get(names.PIPELINE_LABEL, "") or "pipeline"
    path = f"/#/runs/details/{quote(run, safe='')}" if run else ""
    return Creator(kind="kfp", name=name, run=run, task=labels.get(names.PIPELINE_TASK_LABEL, ""), path=path)


class RuntimeNodes:
    """A function of a runtime reference and a namespace. Thread-safe."""

    def __init__(self, cluster: JobsClient, *, clock: Callable[[], float] = time.monotonic):
        self._cluster, self._clock = cluster, clock
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str, str], tuple[float, int]] = {}

    def __call__(self, reference: Obj, namespace: str) -> int:
        """Return the number of nodes, 0 if the runtime does not exist or cannot be read."""
        kind = str(reference.get("kind") or "")
        key = (namespace if kind == "TrainingRuntime" else "", kind, str(reference.get("name") or ""))
        now = self._clock()
        with self._lock:
            when, nodes = self._known.get(key, (0.0, -1))
        if nodes >= 0 and now - when < _SECONDS:  # rows change often, runtimes seldom
            return nodes
        nodes = self._read(reference, namespace)
        with self._lock:
            if len(self._known) >= _MAX_RUNTIMES:
                self._known.clear()
            self._known[key] = (now, nodes)
        return nodes

    def _read(self, reference: Obj, namespace: str) -> int:
        try:
            found = resolve_in_cluster(self._cluster, reference, namespace, bundled=self._cluster.uses_bundled_runtimes)
            return max(int((found.runtime["spec"].get("mlPolicy") or {}).get("numNodes") or 1), 1)
        except (RuntimeNotFound, ApiError, KeyError, TypeError, ValueError):  # whatever a foreign runtime contains
            return 0
