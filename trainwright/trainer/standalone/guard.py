"""`trainwright guard`: ends the jobs that nobody waits for any more, also when neither their step nor an exit handler could.

It stands beside the runs: one watch for the jobs, one for the workflows of Argo that run, one for the pods of their steps. All that it
knows follows from these objects, so that a restart loses nothing, and several guards do no harm. Before it changes a job it reads job,
workflow and pods again: its watches may be behind.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Unpack

from trainwright.api import names
from trainwright.api.errors import ApiError, Forbidden, NotFound, ServiceUnavailable
from trainwright.api.kinds import POD, TRAINJOB, Kind
from trainwright.api.objects import Obj, is_deleting, name_of, namespace_of, owners_of, uid_of
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.cluster.protocol import Cluster, Listing, ListOptions, WatchEvent, WatchOptions
from trainwright.cluster.reflector import Reflector, TransformingLister
from trainwright.controlplane.controllers.queue import Key, KeyQueue
from trainwright.jobs.state.left_behind import UNFINISHED_PODS, RunState, Sight, decide, end_if_left_behind, look, state_of_run
from trainwright.jobs.state.waiters import (
    COMPLETED_LABEL,
    MOST_RUNS,
    NOTE_CHARACTERS,
    POD_NODE_ANNOTATION,
    POD_RUN_LABEL,
    WORKFLOW,
    is_active,
    is_waited_for,
    runs_of,
    step_of,
    waiting_pod_of,
)
from trainwright.submission.controller_lease import GUARD_LEASE
from trainwright.submission.jobs_client import Mode
from trainwright.submission.jobset_mode import JobSetCluster
from trainwright.trainer.standalone.leader_election import LeaderElectionConfig, LeaderElector
from trainwright.trainer.trainjob import report_left_job

PAGE, PAGE_BYTES = 50, 1024 * 1024
"""Of a page of a list: 500 JobSets would take more memory than all that is kept of 10,000, and 50 objects may have 1.5 MB each."""
_MOST_CONDITIONS = 16
_UNSERVED_SECONDS = 30.0
"""Between two looks whether a kind is served, and may be read."""
_CHECK_SECONDS = 5.0
"""Between two looks whether all threads live."""
_BEHIND_SECONDS = 5.0
"""After so many seconds a job is looked at again about which the watches do not show the truth yet."""
_ANNOTATIONS = (
    names.OWNER_ANNOTATION,
    names.ON_CANCEL_ANNOTATION,
    names.WAITING_POD_ANNOTATION,
    names.WAITER_LEASE_ANNOTATION,
    names.WAITER_RENEWED_ANNOTATION,
    names.SUSPENDED_BY_ANNOTATION,
)
_METADATA = ("name", "namespace", "uid", "resourceVersion", "generation", "deletionTimestamp")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GuardOptions:
    """`namespace` None: all namespaces; the Lease is then in `lease_namespace`. Mode auto: TrainJobs and JobSets in their place."""

    namespace: str | None = None
    lease_namespace: str = "default"
    mode: Mode = Mode.auto


def run(cluster: KubernetesCluster, options: GuardOptions, stop: threading.Event) -> str:
    """Guard until `stop` is set, and release the Lease. Returns why it ended before, empty if it did not.

    A guard without one of its threads ends, so that its Deployment starts another: its Lease must not say that it guards.
    """
    small = cluster.in_small_memory(page=PAGE, page_bytes=PAGE_BYTES)
    metadata = cluster.in_small_memory(page=PAGE, page_bytes=PAGE_BYTES, metadata_only=True)
    runs = _Runs(metadata, options.namespace, stop)
    views: dict[Mode, Cluster] = {Mode.trainjob: small, Mode.jobset: JobSetCluster(small)}
    guarded = [_Jobs(views[mode], mode, runs, stop) for mode in views if options.mode in (mode, Mode.auto)]
    threads = runs.start(guarded)
    for jobs in guarded:
        threads += jobs.start()
    where = options.namespace or options.lease_namespace
    elector = LeaderElector(cluster.with_timeout(5), GUARD_LEASE, where, f"{socket.gethostname()}_{uuid.uuid4()}", _SIGN_OF_LIFE)
    threads.append(threading.Thread(target=_hold_lease, args=(elector, stop), name="lease", daemon=True))
    threads[-1].start()
    log.info("event=guard_started namespace=%s mode=%s pid=%d", options.namespace or "(all)", options.mode, os.getpid())
    ended: list[str] = []
    while not ended and not stop.wait(_CHECK_SECONDS):
        ended = [thread.name for thread in threads if not thread.is_alive()]
    problem = f"the guard ends: its thread {ended[0]} has ended; see its log for the cause" if ended and not stop.is_set() else ""
    stop.set()
    for jobs in guarded:
        jobs.queue.close()
    elector.release()
    return problem


_SIGN_OF_LIFE = LeaderElectionConfig(lease_duration=30, renew_deadline=20, retry_period=5)


def _hold_lease(elector: LeaderElector, stop: threading.Event) -> None:
    """Show that a guard is alive. No guard waits for the Lease: only one of them renews it."""
    while elector.acquire(stop):
        elector.renew(stop)


class _Runs:
    """The workflows that have not ended, and the pods of steps whose containers may run; only their metadata, in `namespace` or all.

    What is missing here has ended, is not seen yet, or may not be read.
    """

    def __init__(self, cluster: Cluster, namespace: str | None, stop: threading.Event):
        self.cluster, self.namespace = cluster, namespace
        lister = _Patient(cluster, _trim_metadata, stop)
        unfinished = f"{COMPLETED_LABEL}!=true"
        self.workflows = Reflector(lister, WORKFLOW, namespace, label_selector=unfinished, handler=self._on_workflow, stop=stop)
        self.pods = Reflector(
            _Patient(cluster, _trim_metadata, stop),
            POD,
            namespace,
            label_selector=POD_RUN_LABEL,
            field_selector=UNFINISHED_PODS,
            handler=self._on_pod,
            stop=stop,
        )
        self._guarded: list[_Jobs] = []
        self._steps: dict[str, tuple[str, str]] = {}
        """The `step_of` the pods, by UID."""

    def start(self, guarded: list[_Jobs]) -> list[threading.Thread]:
        """Watch, and let the jobs know what has ended."""
        self._guarded = guarded
        return [self.workflows.start(), self.pods.start()]

    def sight(self, trainjob: Obj) -> Sight:
        """Return what the watches show of those who wait for a job."""
        pod = waiting_pod_of(trainjob)
        runs = [self._state(run.namespace, run.name, partial(state_of_run, run=run)) for run in runs_of(trainjob)]
        return Sight(runs, pod is not None and is_waited_for(pod, self._steps))

    def _state(self, namespace: str, name: str, state: Any) -> RunState:
        if self.namespace not in (None, namespace) or not self.workflows.synced.is_set():
            return RunState.unknown
        found = self.workflows.known.get((namespace, name))
        return RunState.ended if found is None else state(found)

    def _on_workflow(self, event: str, workflow: Obj) -> None:
        if event == "DELETED" or is_deleting(workflow):
            for jobs in self._guarded:
                jobs.add_those(lambda job: any(run.uid == uid_of(workflow) for run in runs_of(job)))

    def _on_pod(self, event: str, pod: Obj) -> None:
        if event != "DELETED" and not is_deleting(pod):
            self._steps[uid_of(pod)] = step_of(pod)
        elif step := self._steps.pop(uid_of(pod), None):  # the lease of its job may have expired long ago
            ended = {uid_of(pod): step}
            for jobs in self._guarded:
                jobs.add_those(lambda job: (noted := waiting_pod_of(job)) is not None and is_waited_for(noted, ended))


class _Jobs:
    """The jobs in one submission mode: a watch, a queue of those that may be left behind, and a thread that looks at them."""

    def __init__(self, cluster: Cluster, mode: Mode, runs: _Runs, stop: threading.Event):
        self._cluster, self._runs, self._stop, self._mode = cluster, runs, stop, mode
        self.queue = KeyQueue()
        selector = f"{names.MANAGED_BY_LABEL}=trainwright"
        lister = _Patient(cluster, trim, stop, what=str(mode))
        self.watch = Reflector(lister, TRAINJOB, runs.namespace, label_selector=selector, stop=stop, handler=self._on_job)

    def start(self) -> list[threading.Thread]:
        worker = threading.Thread(target=self._work, name=f"guard-{self._mode}", daemon=True)
        worker.start()
        return [self.watch.start(), worker]

    def add_those(self, concerned: Any) -> None:
        """Look again at the known jobs that are concerned."""
        for key, job in list(self.watch.known.items()):
            if concerned(job):
                self.queue.add(key)

    def _on_job(self, event: str, trainjob: Obj) -> None:
        if event != "DELETED":
            self.queue.add((namespace_of(trainjob), name_of(trainjob)))

    def _work(self) -> None:
        while (key := self.queue.take()) is not None:
            failed = True
            try:
                seconds = self._look_at(key)
                failed = False
                if seconds is not None:
                    self.queue.add_after(key, seconds)
            except ApiError as error:  # the queue tries it again, after a pause
                log.warning("event=job_not_looked_at namespace=%s name=%s error=%s", *key, error.message)
            except Exception:  # one job must not end the guard of all others
                log.exception("event=job_not_looked_at namespace=%s name=%s", *key)
            self.queue.done(key, failed=failed)

    def _look_at(self, key: Key) -> float | None:
        """End a job if nobody waits for it any more; returns the seconds after which that may be so."""
        job = self.watch.known.get(key)
        if job is None:
            return None
        seen = decide(job, self._runs.sight, datetime.now(UTC))
        if seen.policy is None:
            is_early = runs_of(job) and is_active(job) and not self._runs.workflows.synced.is_set()
            return _BEHIND_SECONDS if is_early else seen.look_again
        try:
            ended = end_if_left_behind(self._cluster, job, partial(look, self._runs.cluster), lambda: datetime.now(UTC))
        except Forbidden as error:  # it stays so until somebody grants the right
            log.warning("event=left_job_not_ended namespace=%s name=%s error=%s", *key, error.message)
            return None
        report_left_job(self._cluster, ended, "trainwright-guard")
        # The watches are behind. The event that shows this may never come: a workflow may begin and end between two lists.
        is_behind = ended.outcome is None and is_active(ended.trainjob)
        return min(_BEHIND_SECONDS, ended.decision.look_again or _BEHIND_SECONDS) if is_behind else None


class _Patient:
    """Implements `ListerWatcher` for a kind that may not be served, or not be readable: says so once, and waits until it is."""

    def __init__(self, cluster: Cluster, transform: Any, stop: threading.Event, what: str = ""):
        self._lister, self._stop, self._what, self._said = TransformingLister(cluster, transform), stop, what, ""

    def list(self, kind: Kind, namespace: str | None = None, **options: Unpack[ListOptions]) -> Listing:
        while True:
            try:
                found = self._lister.list(kind, namespace, **options)
            except (NotFound, Forbidden) as error:  # not served, or not granted yet: either may come
                self._say(kind, error)
                if self._stop.wait(_UNSERVED_SECONDS):
                    raise ServiceUnavailable("the guard ends") from error
            else:
                self._said = ""
                return found

    def watch(self, kind: Kind, namespace: str | None = None, **options: Unpack[WatchOptions]) -> Iterator[WatchEvent]:
        return self._lister.watch(kind, namespace, **options)

    def _say(self, kind: Kind, error: ApiError) -> None:
        if self._said != type(error).__name__:
            self._said = type(error).__name__
            level = logging.WARNING if isinstance(error, Forbidden) else logging.INFO
            log.log(level, "event=kind_not_watched kind=%s mode=%s error=%s", kind.kind, self._what or "any", error.message)


def trim(trainjob: Obj) -> Obj:
    """Return what `decide` needs of a job, in at most a few KiB: whoever may create jobs decides how large they are. Pure."""
    metadata = _trimmed(trainjob, (names.QUEUE_LABEL,), _ANNOTATIONS)
    owners = [owner for owner in owners_of(trainjob) if owner.get("kind") == WORKFLOW.kind]
    if owners:
        kept = owners[: MOST_RUNS + 1]  # one more than are asked about: so many are still too many
        metadata["ownerReferences"] = [_short_fields(owner, ("kind", "name", "uid")) for owner in kept]
    conditions = ((trainjob.get("status") or {}).get("conditions") or [])[:_MOST_CONDITIONS]
    status = [_short_fields(each, ("type", "status", "reason")) for each in conditions]
    suspended = {"suspend": True} if (trainjob.get("spec") or {}).get("suspend") else {}
    return {"metadata": metadata, "spec": suspended, "status": {"conditions": status}}


def _trim_metadata(obj: Obj) -> Obj:
    return {"metadata": _trimmed(obj, (POD_RUN_LABEL,), (POD_NODE_ANNOTATION,))}


def _trimmed(obj: Obj, labels: tuple[str, ...], annotations: tuple[str, ...]) -> Obj:
    given = obj["metadata"]
    metadata: Obj = {field: given[field] for field in _METADATA if field in given}
    for part, wanted in (("labels", labels), ("annotations", annotations)):
        entries = given.get(part) or {}
        if kept := _short_fields(entries, wanted):
            metadata[part] = kept
    return metadata


def _short_fields(entries: Obj, wanted: tuple[str, ...]) -> Obj:
    """Return the entries wanted. Of one that is too long to be read only that it is there."""
    return {key: "" if len(entries[key]) > NOTE_CHARACTERS else entries[key] for key in wanted if entries.get(key) is not None}
