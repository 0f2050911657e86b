"""Everything about one TrainJob, live: three watches of single objects, however many tabs show it, and its events.

What controllers delete (pods of an earlier attempt, their exit codes) stays visible while the page is open. A job of the same name
with another UID starts a new view.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator

from trainwright.api import names
from trainwright.api.errors import ApiError, ServiceUnavailable
from trainwright.api.kinds import JOBSET, POD, TRAINJOB, Kind
from trainwright.api.objects import Obj, annotations_of, labels_of, uid_of
from trainwright.api.phase import Phase, phase_of
from trainwright.api.times import now
from trainwright.cluster.reflector import Reflector
from trainwright.cluster.transforming_lister import TransformingLister
from trainwright.jobs.diagnosis.report import report_of
from trainwright.jobs.diagnosis.waiting_reason import ReasonFinder
from trainwright.jobs.state.attempts import attempt_of, preemptions_so_far, retries_so_far
from trainwright.jobs.state.kubernetes_events import event_time, events_of, first_time, steps_of
from trainwright.jobs.state.pod_history import PodHistory
from trainwright.jobs.state.pods import step_of
from trainwright.jobs.state.restarts import restarts_of
from trainwright.jobs.state.watched_pods import trim_pod
from trainwright.submission.jobs_client import JobsClient
from trainwright.ui.call import Json
from trainwright.ui.jobs.live_metrics import LiveMetrics
from trainwright.ui.jobs.pod_rows import pod_rows
from trainwright.ui.jobs.row import row_of
from trainwright.ui.jobs.runtime_nodes import RuntimeNodes
from trainwright.ui.jobs.timeline import Transition, timeline_of
from trainwright.ui.subscription import BEAT_SECONDS, Subscription

_MERGE_SECONDS, _LOOK_SECONDS = 0.2, 10.0
_EVENT_SECONDS = 3.0
_LINGER_SECONDS, _MAX_VIEWS = 60.0, 200
_MAX_EVENTS, _MAX_TEXT = 300, 2000
_MAX_TRANSITIONS = 200
_SHOWN_ANNOTATIONS = (
    names.RUN_FOLDER_ANNOTATION,
    names.RESUMES_FROM_ANNOTATION,
    names.DATASET_DIGEST_ANNOTATION,
    names.MODEL_DIGEST_ANNOTATION,
)
log = logging.getLogger(__name__)


class JobView:
    """One job of one connection, from its first subscriber until a while after the last. Thread-safe."""

    def __init__(self, cluster: JobsClient, namespace: str, name: str):
        self._cluster, self._namespace, self._name = cluster, namespace, name
        self._nodes = RuntimeNodes(cluster)
        self._lock = threading.Lock()
        self._dirty, self._stop = threading.Event(), threading.Event()
        self._subscribers: set[Subscription] = set()
        self._idle_since = time.monotonic()
        self._state: Json = {}
        self._seen = _Seen("")
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
        with self._lock:
            return 0.0 if self._subscribers else time.monotonic() - self._idle_since

    def stop(self) -> None:
        self._stop.set()
        self._dirty.set()
        with self._lock:
            subscribers = tuple(self._subscribers)
        for subscriber in subscribers:
            subscriber.close()

    async def updates(self) -> AsyncGenerator[Json, None]:
        """Yield the state whenever it has changed: `job`, or `absent` if there is no such job."""
        subscription = Subscription()
        with self._lock:
            self._subscribers.add(subscription)
            state = self._state
        try:
            if state:
                yield state
            async for changed in subscription.changes(beat_seconds=BEAT_SECONDS):
                with self._lock:
                    latest = self._state
                yield latest if changed else {"type": "beat"}
        finally:
            with self._lock:
                self._subscribers.discard(subscription)
                self._idle_since = time.monotonic()

    def _changed(self, _event: str, obj: Obj) -> None:
        if obj.get("kind") == TRAINJOB.kind:
            if uid_of(obj) != self._seen.uid:
                self._seen = _Seen(uid_of(obj))
            self._seen.metrics.observe(obj)  # here, so that no report is lost to the merging of changes
        self._dirty.set()

    def _run(self) -> None:
        """Compute the state after each change, and now and then: events, and why a job waits, change without one."""
        while not self._stop.is_set():
            self._dirty.wait(_LOOK_SECONDS)
            self._stop.wait(_MERGE_SECONDS)
            self._dirty.clear()
            try:
                state = self._compute()
            except ApiError as error:
                state = {"type": "problem", "problem": {"reason": type(error).__name__, "message": error.message}}
            except Exception:  # of a foreign object: the view must not end with it
                log.exception("event=page_job_not_shown namespace=%s name=%s", self._namespace, self._name)
                state = {"type": "problem", "problem": {"reason": "InternalError", "message": "see the log of the server"}}
            if state is not None:
                self._publish(state)

    def _publish(self, state: Json) -> None:
        with self._lock:
            if state == self._state:
                return
            self._state = state
            subscribers = tuple(self._subscribers)
        for subscriber in subscribers:
            subscriber.mark("state")

    def _compute(self) -> Json | None:
        if (failure := self._jobs.failure) is not None and not self._jobs.synced.is_set():
            raise failure[1]
        if not self._jobs.synced.is_set():
            return None
        trainjob = self._jobs.known.get((self._namespace, self._name))
        if trainjob is None:
            return {**self._state, "type": "absent"} if self._state.get("row") else {"type": "absent"}
        if not (self._pods.synced.is_set() or self._pods.failure):
            return None
        jobset = self._jobsets.known.get((self._namespace, self._name))
        pods = list(self._pods.known.values())
        return self._state_of(trainjob, jobset, pods)

    def _state_of(self, trainjob: Obj, jobset: Obj | None, pods: list[Obj]) -> Json:
        seen = self._seen
        seen.history.observe(pods)
        phase = phase_of(trainjob, jobset)
        seen.note_phase(phase)
        steps = [str(entry["name"]) for entry in ((jobset or {}).get("spec") or {}).get("replicatedJobs") or []]
        known_steps = {*steps, *steps_of(trainjob), *(step_of(pod) for pod in pods)}
        events, events_problem = seen.events(self._cluster, trainjob, known_steps)
        rows = pod_rows(pods, seen.history.pods())
        pods_problem = self._pods.failure[1].message if self._pods.failure else ""
        return {
            "type": "job",
            "row": row_of(trainjob, self._nodes, jobset),
            "facts": _facts(trainjob, jobset),
            "conditions": [_condition(entry) for entry in (trainjob.get("status") or {}).get("conditions") or []],
            "steps": (trainjob.get("status") or {}).get("jobsStatus") or [],
            "waiting": self._waiting(seen, trainjob, pods, phase),
            "pods": rows,
            "podsProblem": pods_problem,
            "events": [_event(event) for event in events[-_MAX_EVENTS:]],
            "eventsProblem": events_problem,
            "timeline": timeline_of(trainjob, rows, events, seen.transitions, steps=steps),
            "live": {"axis": seen.metrics.axis, "points": list(seen.metrics.points)},
        }

    def _waiting(self, seen: _Seen, trainjob: Obj, pods: list[Obj], phase: Phase) -> Json | None:
        if phase.is_final or phase in (Phase.Running, Phase.Suspended):
            return None
        try:
            reason = seen.reasons(self._cluster, trainjob).reason(trainjob, pods)
        except ApiError as error:
            return {"text": f"why it waits cannot be read: {error.message}", "part": "cluster", "final": False}
        if reason is None:
            return None
        return {"text": reason.text[:_MAX_TEXT], "part": reason.part, "final": reason.cannot_recover}

    def report(self) -> Json:
        """Return the failure report of the job. Raises NotFound, ApiError if the job cannot be read."""
        trainjob = self._cluster.get(TRAINJOB, self._name, self._namespace)
        report = report_of(self._cluster, trainjob, history=self._seen.history)
        return {"text": str(report), "report": report.as_dict(), "failed": phase_of(trainjob) is Phase.Failed}


class _Seen:
    """What was seen of one job: it is another object for a job with another UID."""

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.history, self.metrics = PodHistory(), LiveMetrics()
        self.transitions: list[Transition] = []
        self._reasons: ReasonFinder | None = None
        self._events: list[Obj] = []
        self._events_problem, self._events_at = "", float("-inf")

    def note_phase(self, phase: Phase) -> None:
        """Note the phase; the first one that is seen has begun at a time that nobody knows."""
        if not self.transitions:
            self.transitions.append(Transition(phase=phase.value, since=""))
        elif self.transitions[-1]["phase"] != phase.value:
            self.transitions.append(Transition(phase=phase.value, since=now()))
            del self.transitions[:-_MAX_TRANSITIONS]

    def reasons(self, cluster: JobsClient, trainjob: Obj) -> ReasonFinder:
        if self._reasons is None:
            self._reasons = ReasonFinder(cluster, trainjob)
        return self._reasons

    def events(self, cluster: JobsClient, trainjob: Obj, steps: set[str]) -> tuple[list[Obj], str]:
        """Return the events, at most every few seconds anew, and why they cannot be read."""
        if time.monotonic() - self._events_at >= _EVENT_SECONDS:
            self._events_at = time.monotonic()
            try:
                self._events, self._events_problem = events_of(cluster, trainjob, steps), ""
            except ApiError as error:
                self._events_problem = error.message
        return self._events, self._events_problem


class JobViews:
    """The views of a server, by the key of the credentials, namespace and name. Thread-safe."""

    def __init__(self, *, linger_seconds: float = _LINGER_SECONDS):
        self._linger_seconds = linger_seconds
        self._lock = threading.Lock()
        self._views: dict[tuple[str, str, str], JobView] = {}
        self._is_closed = False

    def of(self, key: str, cluster: JobsClient, namespace: str, name: str) -> JobView:
        """Return the view of a job, which starts if it is not open. Raises ServiceUnavailable if too many are."""
        self.stop_idle()
        with self._lock:
            found = self._views.get((key, namespace, name))
            if found is None:
                if len(self._views) >= _MAX_VIEWS:
                    raise ServiceUnavailable(f"{_MAX_VIEWS} TrainJobs are shown; close some pages")
                found = self._views[key, namespace, name] = JobView(cluster, namespace, name)
            if self._is_closed:
                found.stop()
            return found

    async def updates(self, key: str, cluster: JobsClient, namespace: str, name: str) -> AsyncGenerator[Json, None]:
        """Yield the updates of the view of a job."""
        view = self.of(key, cluster, namespace, name)
        try:
            async for update in view.updates():
                yield update
        finally:
            asyncio.get_running_loop().call_later(self._linger_seconds, self.stop_idle)

    def stop_idle(self) -> None:
        """Stop the views that nobody has read for a while."""
        with self._lock:
            for key in [key for key, view in self._views.items() if view.idle_seconds >= self._linger_seconds]:
                self._views.pop(key).stop()

    def close(self) -> None:
        """Stop all views, and end their streams."""
        with self._lock:
            self._is_closed = True
            views = tuple(self._views.values())
        for view in views:
            view.stop()


def _whole(obj: Obj) -> Obj:
    """Drop what is large and never shown."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": metadata}


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
