"""Everything about one TrainJob, live: three watches of single objects, however many tabs show it, and its events."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncGenerator

from trainwright.api import names
from trainwright.api.errors import ApiError
from trainwright.api.kinds import JOBSET, POD, TRAINJOB, Kind
from trainwright.api.objects import Obj, uid_of
from trainwright.api.phase import Phase, phase_of
from trainwright.cluster.reflector import Reflector, TransformingLister
from trainwright.jobs.diagnosis.report import report_of
from trainwright.jobs.state.watched_pods import trim_pod
from trainwright.submission.jobs_client import JobsClient
from trainwright.ui.call import Json
from trainwright.ui.jobs.job_state import JobState
from trainwright.ui.jobs.runtime_nodes import RuntimeNodes
from trainwright.ui.subscription import BEAT_SECONDS, Subscribers

_MERGE_SECONDS, _LOOK_SECONDS, _FIRST_LOOK_SECONDS = 0.2, 10.0, 0.05
log = logging.getLogger(__name__)


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
            self._dirty.wait(_LOOK_SECONDS if self._is_known else _FIRST_LOOK_SECONDS)
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

    @property
    def _is_known(self) -> bool:
        """Whether something was shown: until then, no change announces that there is nothing."""
        return bool(self._state)

    def _publish(self, state: Json) -> None:
        if state != self._state:
            self._state = state
            self._subscribers.mark("state")

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
