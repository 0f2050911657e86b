"""The state of one TrainJob as the page shows it, from its objects and from what was seen of it before.

What controllers delete, such as pods of an earlier attempt and their exit codes, stays in it.
"""

from __future__ import annotations

import time

from trainwright.api import names
from trainwright.api.errors import ApiError
from trainwright.api.objects import Obj, annotations_of, labels_of
from trainwright.api.phase import Phase, phase_of
from trainwright.api.times import now
from trainwright.jobs.diagnosis.waiting_reason import ReasonFinder
from trainwright.jobs.state.attempts import attempt_of, preemptions_so_far, retries_so_far
from trainwright.jobs.state.kubernetes_events import event_time, events_of, first_time, steps_of
from trainwright.jobs.state.pod_history import PodHistory
from trainwright.jobs.state.pods import restarts_of, step_of
from trainwright.submission.jobs_client import JobsClient
from trainwright.ui.call import Json
from trainwright.ui.jobs.live_metrics import LiveMetrics
from trainwright.ui.jobs.pod_rows import PodRow, pod_rows
from trainwright.ui.jobs.row import row_of
from trainwright.ui.jobs.runtime_nodes import RuntimeNodes
from trainwright.ui.jobs.timeline import Transition, timeline_of

_EVENT_SECONDS = 3.0
_MAX_EVENTS, _MAX_TEXT = 300, 2000
_MAX_TRANSITIONS = 200
_SHOWN_ANNOTATIONS = (
    names.RUN_FOLDER_ANNOTATION,
    names.RESUMES_FROM_ANNOTATION,
    names.DATASET_DIGEST_ANNOTATION,
    names.MODEL_DIGEST_ANNOTATION,
)


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
        self._note_phase(phase)
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

    def _note_phase(self, phase: Phase) -> None:
        """Note the phase; the first one that is seen has begun at a time that nobody knows."""
        if not self._transitions:
            self._transitions.append(Transition(phase=phase.value, since=""))
        elif self._transitions[-1]["phase"] != phase.value:
            self._transitions.append(Transition(phase=phase.value, since=now()))
            del self._transitions[:-_MAX_TRANSITIONS]

    def _read_events(self, trainjob: Obj, steps: set[str]) -> None:
        """Read the events, at most every few seconds anew."""
        if time.monotonic() - self._events_at < _EVENT_SECONDS:
            return
        self._events_at = time.monotonic()
        try:
            self._events, self._events_problem = events_of(self._cluster, trainjob, steps), ""
        except ApiError as error:
            self._events_problem = error.message

    def _waiting(self, trainjob: Obj, pods: list[Obj], phase: Phase) -> Json | None:
        if phase.is_final or phase in (Phase.Running, Phase.Suspended):
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


def _is_failing(pod: PodRow) -> bool:
    """Whether a container of a pod has failed, and waits for its next run."""
    return not pod["gone"] and any(
        container["state"] != "running" and container["runs"] and container["runs"][-1]["code"] for container in pod["containers"]
    )


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
