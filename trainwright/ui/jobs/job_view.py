"""Everything about one TrainJob, live: three watches of single objects, however many tabs show it, and its events.

The state is made from the objects of the job and from earlier observations: it keeps objects that controllers delete, such as pods
of an earlier attempt with their exit codes, and the metrics that the training has reported while somebody watched.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import AsyncGenerator

from trainwright.api import names
from trainwright.api.errors import ApiError
from trainwright.api.kinds import JOBSET, POD, TRAINJOB, Kind
from trainwright.api.objects import Obj, annotations_of, labels_of, uid_of
from trainwright.api.phase import Phase, phase_of
from trainwright.api.times import now
from trainwright.cluster.reflector import Reflector, TransformingLister
from trainwright.jobs.diagnosis.reason_finder import ReasonFinder
from trainwright.jobs.diagnosis.report import report_of
from trainwright.jobs.state.attempts import attempt_of, preemptions_so_far, retries_so_far
from trainwright.jobs.state.kubernetes_events import event_time, events_of, first_time, steps_of
from trainwright.jobs.state.pod_history import PodHistory
from trainwright.jobs.state.pods import restarts_of, step_of
from trainwright.jobs.state.progress import reported_values
from trainwright.jobs.state.watched_pods import trim_pod
from trainwright.jobs.wait.job_events import MetricChanges, Metrics
from trainwright.submission.jobs_client import JobsClient
from trainwright.ui.call import Json
from trainwright.ui.jobs.row import RuntimeNodes, row_of
from trainwright.ui.jobs.timeline import PodRow, Transition, pod_rows, timeline_of
from trainwright.ui.subscription import BEAT_SECONDS, Subscribers

_MERGE_SECONDS, _LOOK_SECONDS, _FIRST_LOOK_SECONDS = 0.2, 10.0, 0.05
log = logging.getLogger(__name__)
_EVENT_SECONDS = 3.0
_MAX_EVENTS, _MAX_TEXT = 300, 2000
_MAX_TRANSITIONS = 200
_SHOWN_ANNOTATIONS = (
    names.RUN_FOLDER_ANNOTATION,
    names.RESUMES_FROM_ANNOTATION,
    names.DATASET_DIGEST_ANNOTATION,
    names.MODEL_DIGEST_ANNOTATION,
)
_MOST = 5000
"""Points that are kept; of more, every second one is dropped."""
Point = tuple[int, dict[str, float]]


class JobView:
    """One job of one connection, from its first subscriber until a while after the last. Thread-safe."""

    def __init__(self, cluster: JobsClient, namespace: str, name: str):
        self._cluster, self._namespace, self._name = cluster, namespace, name
        self._nodes = RuntimeNodes(cluster)
        self._dirty, self._stop = threading.Event(), threading.Event()
        self._subscribers = Subscribers()
        self._state: Json = {}
        self._seen = JobState("", cluster, self._nodes)
        fields, labels = f"metadata.name={name}", f"{names.JOBSET_NAME_LABEL}={name}"
        self._jobs = self._reflect(TransformingLister(cluster, _whole), TRAINJOB, field_selector=fields)
        self._jobsets = self._reflect(TransformingLister(cluster, _whole), JOBSET, field_selector=fields)
        self._pods = self._reflect(TransformingLister(cluster, trim_pod), POD, label_selector=labels)
        threading.Thread(target=self._run, name="page-job-view", daemon=True).start()

    def _reflect(
        self, lister: TransformingLister, kind: Kind, *, label_selector: str = "", field_selector: str = ""
    ) -> Reflector:
        reflector = Reflector(
            lister,
            kind,
            self._namespace,
            handler=self._changed,
            label_selector=label_selector,
            field_selector=field_selector,
            stop=self._stop,
        )
        reflector.start()
        return reflector

    @property
    def idle_seconds(self) -> float:
        """How long it has had no subscribers; 0 with some."""
        return self._subscribers.idle_seconds

    def stop(self) -> None:
        self._stop.set()
        self._dirty.set()
        self._subscribers.close()

    async def updates(self) -> AsyncGenerator[Json, None]:
        """Yield the state whenever it has changed: `job`, or `absent` if there is no such job."""
        with self._subscribers.joined() as subscription:
            if self._state:
                yield self._state
            async for changed in subscription.changes(beat_seconds=BEAT_SECONDS):
                yield self._state if changed else {"type": "beat"}

    def _changed(self, _event: str, obj: Obj) -> None:
        if obj.get("kind") == TRAINJOB.kind:
            if uid_of(obj) != self._seen.uid:
                self._seen = JobState(uid_of(obj), self._cluster, self._nodes)
            self._seen.metrics.observe(obj)  # here, so that no report is lost to the merging of changes
        self._dirty.set()

    def _run(self) -> None:
        """Compute the state after each change, and now and then: events, and why a job waits, change without one."""
        while not self._stop.is_set():
            # until something was shown, no change announces that there is nothing
            self._dirty.wait(_LOOK_SECONDS if self._state else _FIRST_LOOK_SECONDS)
            self._stop.wait(_MERGE_SECONDS)
            self._dirty.clear()
            try:
                state = self._compute()
            except ApiError as error:
                state = {"type": "problem", "problem": {"reason": type(error).__name__, "message": error.message}}
            except Exception:  # of a foreign object: the view must not end with it
                log.exception("event=page_job_not_shown namespace=%s name=%s", self._namespace, self._name)
                state = {"type": "problem", "problem": {"reason": "InternalError", "message": "see the log of the server"}}
            if state is not None and state != self._state:
                self._state = state
                self._subscribers.mark("state")

    def _compute(self) -> Json | None:
        if (failure := self._jobs.failure) is not None and not self._jobs.synced.is_set():
            raise failure[1]
        if not self._jobs.synced.is_set():  # the job has yet to be listed: `absent` would be wrong
            return None
        trainjob = self._jobs.known.get((self._namespace, self._name))
        if trainjob is None:
            return {**self._state, "type": "absent"} if self._state.get("row") else {"type": "absent"}
        if not (self._pods.synced.is_set() or self._pods.failure):  # a page without pods would be replaced a moment later
            return None
        jobset = self._jobsets.known.get((self._namespace, self._name))
        pods = list(self._pods.known.values())
        pods_problem = self._pods.failure[1].message if self._pods.failure else ""
        return self._seen.show(trainjob, jobset, pods, pods_problem=pods_problem)

    def report(self) -> Json:
        """Return the failure report of the job. Raises NotFound, ApiError if the job cannot be read."""
        trainjob = self._cluster.get(TRAINJOB, self._name, self._namespace)
        report = report_of(self._cluster, trainjob, history=self._seen.history)
        return {"text": str(report), "report": report.as_dict(), "failed": phase_of(trainjob) is Phase.Failed}


def _whole(obj: Obj) -> Obj:
    """Drop what is large and never shown."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": metadata}


class JobState:
    """One job, by its UID: a job of the same name with another UID has another state. Not thread-safe, but for `metrics`."""

    def __init__(self, uid: str, cluster: JobsClient, nodes: RuntimeNodes):
        self.uid = uid
        self.history, self.metrics = PodHistory(), LiveMetrics()
        self._cluster, self._nodes = cluster, nodes
        self._transitions: list[Transition] = []
        self._reasons: ReasonFinder | None = None
        self._events: list[Obj] = []
        self._events_problem, self._events_at = "", float("-inf")

    def show(self, trainjob: Obj, jobset: Obj | None, pods: list[Obj], *, pods_problem: str = "") -> Json:
        """Return the state after a change of any of these objects. Events, and why a job waits, are read from the cluster."""
        self.history.observe(pods)
        phase = phase_of(trainjob, jobset)
        if not self._transitions:  # the first one that is seen has begun at a time that nobody knows
            self._transitions.append(Transition(phase=phase.value, since=""))
        elif self._transitions[-1]["phase"] != phase.value:
            self._transitions.append(Transition(phase=phase.value, since=now()))
            del self._transitions[:-_MAX_TRANSITIONS]
        steps = [str(entry["name"]) for entry in ((jobset or {}).get("spec") or {}).get("replicatedJobs") or []]
        self._read_events(trainjob, {*steps, *steps_of(trainjob), *(step_of(pod) for pod in pods)})
        rows = pod_rows(pods, self.history.pods())
        return {
            "type": "job",
            "row": row_of(trainjob, self._nodes, jobset),
            "facts": _facts(trainjob, jobset),
            "conditions": [_condition(entry) for entry in (trainjob.get("status") or {}).get("conditions") or []],
            "waiting": self._waiting(trainjob, pods, phase),
            "failing": not phase.is_final and any(_is_failing(pod) for pod in rows),
            "pods": rows,
            "podsProblem": pods_problem,
            "events": [_event(event) for event in self._events[-_MAX_EVENTS:]],
            "eventsProblem": self._events_problem,
            "timeline": timeline_of(trainjob, rows, self._events, self._transitions, steps=steps),
            "live": {"axis": self.metrics.axis, "points": list(self.metrics.points)},
        }

    def _read_events(self, trainjob: Obj, steps: set[str]) -> None:
        """Read the events, at most every few seconds anew."""
        if time.monotonic() - self._events_at < _EVENT_SECONDS:  # events are read with each change, but not that often
            return
        self._events_at = time.monotonic()
        try:
            self._events, self._events_problem = events_of(self._cluster, trainjob, steps), ""
        except ApiError as error:
            self._events_problem = error.message

    def _waiting(self, trainjob: Obj, pods: list[Obj], phase: Phase) -> Json | None:
        if phase.is_final or phase in (Phase.Running, Phase.Suspended):  # it does not wait
            return None
        if self._reasons is None:
            self._reasons = ReasonFinder(self._cluster, trainjob)
        try:
            reason = self._reasons.reason(trainjob, pods)
        except ApiError as error:
            return {"text": f"why it waits cannot be read: {error.message}", "part": "cluster", "final": False}
        if reason is None:
            return None
        return {"text": reason.text[:_MAX_TEXT], "part": reason.part, "final": reason.is_final}


def _facts(trainjob: Obj, jobset: Obj | None) -> Json:
    annotations, restarts = annotations_of(trainjob), restarts_of(jobset) if jobset is not None else None
    return {
        "runtimeKind": str((trainjob["spec"].get("runtimeRef") or {}).get("kind") or ""),
        "attempt": attempt_of(trainjob),
        "preemptions": preemptions_so_far(trainjob),
        "retries": retries_so_far(trainjob),
        "restarts": [restarts.used, restarts.allowed] if restarts is not None else None,
        "suspended": bool(trainjob["spec"].get("suspend")),
        "managedBy": str(trainjob["spec"].get("managedBy") or ""),
        "run": labels_of(trainjob).get(names.RUN_LABEL, ""),
        "annotations": {key.partition("/")[2]: annotations[key][:_MAX_TEXT] for key in _SHOWN_ANNOTATIONS if key in annotations},
    }


def _condition(entry: Obj) -> Json:
    fields = ("type", "status", "reason", "message", "lastTransitionTime")
    return {field: str(entry.get(field) or "")[:_MAX_TEXT] for field in fields}


def _is_failing(pod: PodRow) -> bool:
    """Whether a container of a pod has failed, and waits for its next run."""
    return not pod["gone"] and any(
        container["state"] != "running" and container["runs"] and container["runs"][-1]["code"] for container in pod["containers"]
    )


def _event(event: Obj) -> Json:
    subject = event.get("involvedObject") or {}
    return {
        "at": event_time(event),
        "first": first_time(event),
        "count": int(event.get("count") or (event.get("series") or {}).get("count") or 1),
        "type": str(event.get("type") or ""),
        "reason": str(event.get("reason") or ""),
        "message": str(event.get("message") or "")[:_MAX_TEXT],
        "object": f"{subject.get('kind', '')} {subject.get('name', '')}".strip(),
    }


class LiveMetrics:
    """The points of one job, in the order in which they were reported."""

    def __init__(self) -> None:
        self._changes = MetricChanges()
        self.points: list[Point] = []

    @property
    def axis(self) -> str:
        """What the first number of a point counts: `step`, or `report` of a training that reports no steps."""
        return "report" if self._changes.is_counted else "step"

    def observe(self, trainjob: Obj) -> None:
        """Add what is new in the status."""
        if values := reported_values(trainjob):
            self.points.extend(self._changes.of((Metrics(tuple(values.items())),)))
        if len(self.points) > _MOST:
            del self.points[1:-1:2]
