"""Finds why a TrainJob makes no progress: its queue, its pods, or the events of whatever could not be created.

The status of a TrainJob does not say it. A pod that is refused (quota, PodSecurity, LimitRange) exists only as an event of its Job,
and a volume that cannot be mounted only as an event of its pod.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from trainwright.api import names
from trainwright.api.conditions import condition, is_finished, is_true
from trainwright.api.containers import container_statuses, run_ends
from trainwright.api.errors import ApiError, Forbidden
from trainwright.api.kinds import EVENT, JOBSET
from trainwright.api.objects import Obj, labels_of, name_of, namespace_of
from trainwright.api.phase import Phase, phase_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.diagnosis.causes import failed_probe_of
from trainwright.jobs.diagnosis.stuck_causes import MISSING_SECONDS, is_missing_queue, is_missing_volume, refusal_of
from trainwright.jobs.diagnosis.waiting_reason import WaitingReason, is_over, missing, pods_reason
from trainwright.jobs.state.kubernetes_events import (
    belongs_to,
    event_time,
    involved_object,
    is_passing,
    is_queue_served,
    queue_message,
    queue_reason,
    reason_and_message,
    since_creation,
    steps_of,
    workload_of,
)
from trainwright.jobs.state.pods import Denials, is_jobset_of
from trainwright.jobs.state.started_pods import GangStart
from trainwright.submission.suspension import is_queued

T = TypeVar("T")
NO_KUEUE = "Kueue is not installed, so nothing starts the job"
_QUEUE_ADVICE = "create the queue, correct its name, or leave it out, and submit the job again"
_REFUSED = re.compile(r" is invalid: |\bForbidden: |Invalid value")
_MAX_PODS = 3
"""Pods whose events are read: the others of a large job most likely wait for the same."""


class ReasonFinder:
    """Finds the reason of one job. Reads only what the answer needs; what is forbidden is asked for once a minute. Not thread-safe.

    What requests have found is kept for calls that need not ask again.
    """

    def __init__(self, cluster: Cluster, trainjob: Obj):
        self._cluster, self._namespace = cluster, namespace_of(trainjob)
        self._forbidden = Denials()
        self._steps: set[str] | None = None
        self._claims: set[str] = set()
        self._found: dict[tuple[str, ...], WaitingReason | None] = {}

    def reason(
        self, trainjob: Obj, pods: list[Obj], start: GangStart | None = None, *, asks: bool = True
    ) -> WaitingReason | None:
        """Return why the job waits; None if nothing says so. Raises ApiError if the cluster cannot be read.

        `start` tells which pods have never started: why those wait comes first, since the others may wait for them. Without `asks`,
        for a job and pods that have not changed, the earlier answers of the cluster count.
        """
        if asks:
            self._found.clear()
        too_large = condition(trainjob, names.FITS_CLUSTER)
        if too_large is not None and too_large.get("status") == "False":  # known before any pod exists
            return WaitingReason(reason_and_message(too_large), "scheduling")
        if phase_of(trainjob) in (Phase.Queued, Phase.Suspended):  # it has no pods to ask
            return self._once(("queue",), lambda: self._queue(trainjob))
        if start is not None and start.is_partial:
            missing = [pod for pod in pods if start.lacks(pod)]
            if (found := self._of_pods(trainjob, pods, missing)) is not None:  # the others may wait for those
                return found
        return self._of_pods(trainjob, pods, pods)

    def _of_pods(self, trainjob: Obj, pods: list[Obj], concerned: list[Obj]) -> WaitingReason | None:
        """Find the reason of the pods that are concerned, or of those that could not be created."""
        if (reason := pods_reason(pods, concerned)) is None:
            of_events = ("events", *map(name_of, concerned))
            return self._once(of_events, lambda: self._pod_events(trainjob, concerned) or self._events(trainjob, concerned))
        if reason.part == "image":
            return self._once(("image", reason.pod, reason.text), lambda: self._of_image(reason))
        if reason.container:
            return self._once(("probe", reason.pod, reason.text), lambda: self._with_failed_probe(reason))
        return reason

    def _once(self, key: tuple[str, ...], find: Callable[[], WaitingReason | None]) -> WaitingReason | None:
        """Return what was found under this key, or find it. An error is not kept."""
        if key not in self._found:
            self._found[key] = find()
        return self._found[key]

    def _of_image(self, reason: WaitingReason) -> WaitingReason:
        """Add that a pull secret is missing: the registry's answer only says that access was denied. Another pull may last."""
        events = self._list_events(f"involvedObject.name={reason.pod}")
        # the last failure may be over
        if not reason.is_final and _latest(events, "Pulling") > _latest(events, "Failed", "BackOff"):
            return WaitingReason(f"{reason.text}; it is being pulled again", "image", pod=reason.pod)
        missing = next((event for event in events if event.get("reason") == "FailedToRetrieveImagePullSecret"), None)
        return replace(reason, text=f"{reason.text} ({reason_and_message(missing)})") if missing is not None else reason

    def _with_failed_probe(self, reason: WaitingReason) -> WaitingReason:
        """Add the probe that made the kubelet stop the container: its exit code does not say it."""
        probe = self.failed_probe(reason.pod, reason.container)
        return replace(reason, text=f"{reason.text} ({probe})") if probe else reason

    def failed_probe(self, pod_name: str, container: str) -> str:
        """Return the probe that made the kubelet stop a container last; empty if none did, or events cannot be read."""
        events = sorted(self._list_events(f"involvedObject.name={pod_name}"), key=event_time)
        return failed_probe_of(pod_name, container, events)

    def _queue(self, trainjob: Obj) -> WaitingReason | None:
        if names.QUEUE_LABEL not in labels_of(trainjob):  # suspended by a person, not by a queue
            return None
        reserved = condition(trainjob, names.QUOTA_RESERVED)
        if reserved is not None and reserved.get("status") == "False":
            return self._of_queue(trainjob, f"queue: {reason_and_message(reserved)}", reserved)
        workload = self._permitted("workloads", lambda: workload_of(self._cluster, trainjob))
        if workload is not None:
            text = queue_reason(self._cluster, trainjob, workload)
            return self._of_queue(trainjob, text, condition(workload, "QuotaReserved") or {}) if text else None
        if message := self._permitted("events", lambda: queue_message(self._cluster, trainjob)):
            return WaitingReason(f"queue: {message}", "queue")
        if is_queued(trainjob) and self._permitted("localqueues", lambda: is_queue_served(self._cluster, trainjob)) is False:
            text = f"queue {labels_of(trainjob)[names.QUEUE_LABEL]}: {NO_KUEUE}"
            return WaitingReason(text, "queue", True, MISSING_SECONDS, advice=_QUEUE_ADVICE)
        return None

    def _of_queue(self, trainjob: Obj, text: str, reserved: Obj) -> WaitingReason:
        """Return the reason that a queue gives: one that does not exist is created soon, or never."""
        if is_queued(trainjob) and is_missing_queue(str(reserved.get("reason")), str(reserved.get("message"))):
            return WaitingReason(text, "queue", True, MISSING_SECONDS, advice=_QUEUE_ADVICE)
        return WaitingReason(text, "queue")

    def _pod_events(self, trainjob: Obj, pods: list[Obj]) -> WaitingReason | None:
        """Find the reason of a pod that has been created, in its events: mounts, pulls, probes."""
        for pod in itertools.islice((pod for pod in pods if not (is_over(pod) or _is_ready(pod))), _MAX_PODS):
            events = self._list_events(f"involvedObject.name={name_of(pod)}")
            if events and (event := _latest_relevant(events, is_running=_is_running(pod))) is not None:
                count = f" ({event['count']} times)" if int(event.get("count") or 0) > 1 else ""
                what = "is not ready" if _is_running(pod) else "is waiting"
                text = f"pod {name_of(pod)} {what}: {reason_and_message(event)}{count}"
                if event.get("reason") == "FailedMount" and not _has_begun(pod) and is_missing_volume(str(event.get("message"))):
                    return missing(text)
                return WaitingReason(text, "event")
            if any(
                "running" in (entry.get("state") or {}) for entry in (pod.get("status") or {}).get("initContainerStatuses") or []
            ):
                return WaitingReason(f"pod {name_of(pod)}: an init container is running", "container")
        return None

    def _events(self, trainjob: Obj, pods: list[Obj]) -> WaitingReason | None:
        """Find the latest warning about the job, its JobSet, Jobs and claims."""
        found = self._permitted("events", lambda: self._cluster.list(EVENT, self._namespace, field_selector="type=Warning").items)
        if found is None:  # events may not be read
            return None
        steps, has_jobset = self._tree(trainjob)
        current = {name_of(pod) for pod in pods if not (is_over(pod) or _is_ready(pod))}
        begun = _resumed_at(trainjob)
        relevant = [
            event
            for event in since_creation(trainjob, found)
            if event_time(event) >= begun
            and (belongs_to(event, trainjob, steps) or involved_object(event) in self._claims)
            and not (_kind(event) == "Pod" and involved_object(event) not in current)
            and not is_passing(event)
            # with its JobSet there, the creation has succeeded since
            and not (has_jobset and event.get("reason") == "TrainJobResourcesCreationFailed")
        ]
        if relevant:
            event = max(relevant, key=event_time)
            text = f"{_kind(event)} {involved_object(event)}: {reason_and_message(event)}"
            if (
                event.get("reason") == "FailedCreate"
                and not pods
                and (refusal := refusal_of(str(event.get("message")))) is not None
            ):
                return WaitingReason(text, "admission", True, refusal.seconds, advice=refusal.advice)
            refused = event.get("reason") == "JobCreationFailed" and _REFUSED.search(str(event.get("message"))) is not None
            return WaitingReason(text, "event", refused)
        if not trainjob.get("status") and not pods and not is_finished(trainjob):
            return WaitingReason("no controller has processed it (check with `trainwright doctor`)", "cluster")
        return None

    def _tree(self, trainjob: Obj) -> tuple[set[str], bool]:
        """Return the steps of the job, and whether its JobSet exists. The claims that its pods use are remembered."""
        if self._steps is None:
            try:
                jobset = self._cluster.get(JOBSET, name_of(trainjob), self._namespace)
            except ApiError:  # not created yet, or not permitted: the status of the job names its steps
                return steps_of(trainjob), False
            if not is_jobset_of(jobset, trainjob):  # that of an earlier job of this name
                return steps_of(trainjob), False
            entries = jobset["spec"].get("replicatedJobs") or []
            self._steps = {str(entry["name"]) for entry in entries}
            self._claims = {claim for entry in entries for claim in claims_of(entry["template"]["spec"]["template"])}
        return self._steps | steps_of(trainjob), True

    def _list_events(self, selector: str) -> list[Obj]:
        found = self._permitted("events", lambda: self._cluster.list(EVENT, self._namespace, field_selector=selector).items)
        return found or []

    def _permitted(self, what: str, read: Callable[[], T]) -> T | None:
        """Return what was read; None if it may not be read."""
        if what in self._forbidden:  # asked again after a minute only
            return None
        try:
            return read()
        except Forbidden:
            self._forbidden.note(what)
            return None


def _resumed_at(trainjob: Obj) -> str:
    """Return when the job was resumed; empty if it was not: what kept it from starting before may be over."""
    suspended = condition(trainjob, "Suspended")
    return str(suspended.get("lastTransitionTime") or "") if suspended is not None and suspended.get("status") == "False" else ""


def claims_of(pod_template: Obj) -> set[str]:
    """Return the names of the PersistentVolumeClaims that a pod template mounts. Pure."""
    volumes = (pod_template.get("spec") or {}).get("volumes") or []
    claims = (volume.get("persistentVolumeClaim") or {} for volume in volumes)
    return {str(claim["claimName"]) for claim in claims if claim.get("claimName")}


def _latest_relevant(events: list[Obj], *, is_running: bool) -> Obj | None:
    """Return the latest warning of a pod, or the pull that is under way; of a running one, what says that it is not ready."""
    warnings = [event for event in events if event.get("type") == "Warning" or event.get("reason") == "Pulling"]
    if is_running:
        warnings = [event for event in warnings if event.get("reason") in ("Unhealthy", "NodeNotReady")]
    pulled = max((event_time(event) for event in events if event.get("reason") == "Pulled"), default="")
    mounted = max(pulled, _latest(events, "Pulling", "Created", "Started"))  # volumes come first
    until = {"Pulling": pulled, "FailedMount": mounted, "FailedAttachVolume": mounted}
    current = [event for event in warnings if event_time(event) > until.get(str(event.get("reason")), "")]
    return max(current, key=event_time, default=None)


def _latest(events: list[Obj], *reasons: str) -> str:
    """Return the time of the latest event with one of these reasons; empty if there is none."""
    return max((event_time(event) for event in events if event.get("reason") in reasons), default="")


def _has_begun(pod: Obj) -> bool:
    """Whether a container of the pod has run: its volumes are mounted then."""
    return any("running" in (entry.get("state") or {}) or run_ends(entry) for entry in container_statuses(pod))


def _is_running(pod: Obj) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running"


def _is_ready(pod: Obj) -> bool:
    return is_true(pod, "Ready")


def _kind(event: Obj) -> str:
    return str((event.get("involvedObject") or {}).get("kind") or "")
