"""Who waits for a TrainJob, as its annotations note it: the lease of the client, and its pod and workflow on the same cluster.
Pure.

A step that was killed cannot stop its job any more, which would train on for nobody. Whoever finds the lease expired may suspend
the job; the pod and the workflow of a pipeline's step tell more, see `left_behind`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime

from trainwright.api import names
from trainwright.api.conditions import is_finished
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj, annotations_of, is_deleting, labels_of, name_of, namespace_of, owners_of, uid_of
from trainwright.api.phase import is_suspended_by_us
from trainwright.api.rules.metadata import is_subdomain, label_value_fault
from trainwright.api.times import is_moment, rfc3339, seconds_between

MIN_SECONDS = 30
"""A shorter lease would expire when its holder is busy, or when clocks differ."""
RENEWALS = 4
"""How often a lease is renewed before it expires."""
_SECONDS = re.compile(r"[1-9][0-9]{0,8}")
NOTE_CHARACTERS = 2048
"""Of a note on a job: four times as many as usual."""
MOST_RUNS = 20
"""That are asked about for one job. Anyone may write owners, thousands of them, and each costs a request."""
_TRY = re.compile(r"\(\d+\)")
WORKFLOW = Kind("argoproj.io", "v1alpha1", "Workflow", "workflows")
COMPLETED_LABEL = "workflows.argoproj.io/completed"
"""`true` on a workflow that has ended; a run that is retried loses it again."""
POD_RUN_LABEL = "pipeline/runid"
"""Label of the pods of a run's steps."""
POD_NODE_ANNOTATION = "workflows.argoproj.io/node-name"
"""Annotation of a step's pod: the path of its node in the workflow, with attempts."""


@dataclass(frozen=True)
class WaiterLease:
    """`renewed` is an RFC 3339 time of the holder's clock."""

    seconds: int
    renewed: str

    def seconds_left(self, now: datetime) -> float:
        """Return the seconds until the lease expires; 0 or less if it has. One renewed in the future counts as renewed now."""
        return self.seconds - max(seconds_between(self.renewed, now), 0.0)


def lease_seconds(requested: int) -> int:
    """Return for how many seconds a lease is held: those requested, but not less than the minimum; 0 is no lease."""
    return max(requested, MIN_SECONDS) if requested else 0


def waiter_lease_of(trainjob: Obj) -> WaiterLease | None:
    """Return the lease of the waiting client; None without one, or with one that cannot be read."""
    annotations = annotations_of(trainjob)
    seconds, renewed = (annotations.get(key, "") for key in (names.WAITER_LEASE_ANNOTATION, names.WAITER_RENEWED_ANNOTATION))
    if not _SECONDS.fullmatch(seconds) or not is_moment(renewed):  # anyone may write annotations
        return None
    return WaiterLease(lease_seconds(int(seconds)), renewed)


def is_active(trainjob: Obj) -> bool:
    """Whether a job runs or will run: it has not ended, and is neither suspended nor being deleted."""
    return not (is_finished(trainjob) or is_deleting(trainjob) or trainjob["spec"].get("suspend"))


def active_lease_of(trainjob: Obj) -> WaiterLease | None:
    """Return the lease of a job that runs or will run; None if there is nothing to suspend when it expires."""
    return waiter_lease_of(trainjob) if is_active(trainjob) else None


def lease_annotations(seconds: int, now: datetime) -> dict[str, str]:
    """Return the annotations of a lease that begins now; empty for 0 seconds."""
    if not seconds:
        return {}
    return {names.WAITER_LEASE_ANNOTATION: str(seconds), names.WAITER_RENEWED_ANNOTATION: rfc3339(now)}


def renewal_patch(trainjob: Obj, seconds: int, now: datetime) -> Obj:
    """Return the patch that renews the lease, of this job only."""
    return {"metadata": {"uid": trainjob["metadata"]["uid"], "annotations": lease_annotations(seconds, now)}}


def release_patch(trainjob: Obj) -> Obj:
    """Return the patch that removes the lease, of this job only: from now on it may run without a waiting client."""
    annotations = {names.WAITER_LEASE_ANNOTATION: None, names.WAITER_RENEWED_ANNOTATION: None}
    return {"metadata": {"uid": trainjob["metadata"]["uid"], "annotations": annotations}}


def lost_mark() -> dict[str, str]:
    """Return the annotation of a job that is suspended because its waiting client is gone: that one resumes it if it is back."""
    return {names.WAITER_LOST_ANNOTATION: "true"}


def was_abandoned(trainjob: Obj) -> bool:
    """Whether a job is suspended because its lease had expired, and by nothing since."""
    return is_suspended_by_us(trainjob) and names.WAITER_LOST_ANNOTATION in annotations_of(trainjob)


@dataclass(frozen=True)
class WaitingPod:
    """The pod that waits for a job. `run` is the label of all pods of its pipeline run, and `step` the name of its node of Argo
    without tries: another pod with both is another try. `workflow` and its UID are empty for a pod that no workflow owns.
    """

    namespace: str
    name: str
    uid: str
    run: str = ""
    step: str = ""
    workflow: str = ""
    workflow_uid: str = ""

    @classmethod
    def of(cls, pod: Obj, workflow: str = "", workflow_uid: str = "") -> WaitingPod:
        """Return the note of a pod that a workflow owns."""
        run, step = step_of(pod)
        return cls(namespace_of(pod), name_of(pod), uid_of(pod), run, step, workflow, workflow_uid)

    def as_text(self) -> str:
        """Return the value of the annotation."""
        return json.dumps({key: value for key, value in asdict(self).items() if value}, separators=(",", ":"))


def waiting_pod_of(trainjob: Obj) -> WaitingPod | None:
    """Return the pod that waits for a job; None if none is noted, or the note cannot be read, or no pod can have its names.

    Anyone may write annotations, and the lease decides then: so it reads no long text, and asks no server for impossible names.
    """
    text = annotations_of(trainjob).get(names.WAITING_POD_ANNOTATION, "")
    if len(text) > NOTE_CHARACTERS:  # no note of ours is that long
        return None
    try:
        pod = WaitingPod(**{str(key): str(value) for key, value in json.loads(text).items()})
    except (ValueError, TypeError, AttributeError, RecursionError):  # not written by us
        return None
    are_names = all(map(is_subdomain, (pod.namespace, pod.name, pod.workflow or pod.name)))
    return pod if are_names and not label_value_fault(pod.run) else None


def step_of(pod: Obj) -> tuple[str, str]:
    """Return the run and the step that a pod is a try of, both empty if it does not tell."""
    return labels_of(pod).get(POD_RUN_LABEL, ""), _TRY.sub("", annotations_of(pod).get(POD_NODE_ANNOTATION, ""))


def waiter_notes(on_cancel: str, waiting_pod: str) -> dict[str, str | None]:
    """Return the annotations that tell who waits for a job; None for those that are removed of an earlier waiter."""
    return {names.ON_CANCEL_ANNOTATION: on_cancel, names.WAITING_POD_ANNOTATION: waiting_pod or None}


@dataclass(frozen=True)
class Run:
    """The workflow of a run that waits for a job, or has done so."""

    namespace: str
    name: str
    uid: str


def runs_of(trainjob: Obj) -> tuple[Run, ...]:
    """Return the runs whose ends decide about a job: that of the pod that waits, and those that own the job.

    Several runs may have adopted it; with more than `MOST_RUNS` the lease decides. Without a noted pod, whoever waits now is
    elsewhere: no run tells anything about it.
    """
    pod = waiting_pod_of(trainjob)
    owners = [owner for owner in owners_of(trainjob) if owner.get("kind") == WORKFLOW.kind]
    if pod is None or not pod.workflow_uid or len(owners) > MOST_RUNS:
        return ()
    owning = (Run(namespace_of(trainjob), str(owner.get("name")), str(owner.get("uid"))) for owner in owners)
    return tuple({run.uid: run for run in (*owning, Run(pod.namespace, pod.workflow, pod.workflow_uid))}.values())


def is_waited_for(pod: WaitingPod, pods: Mapping[str, tuple[str, str]]) -> bool:
    """Whether one of these pods, by UID with their `step_of`, is the one that waits, or another try of its step."""
    return pod.uid in pods or bool(pod.run and pod.step and (pod.run, pod.step) in pods.values())


@dataclass(frozen=True)
class Workflow:
    """`reference` is the owner reference for the workflow's object, which is in `namespace`."""

    name: str
    namespace: str
    reference: Obj


def workflows_of(trainjob: Obj) -> tuple[str, ...]:
    """Return the names of the workflows that own a job: it is deleted with the last of them."""
    owners = trainjob["metadata"].get("ownerReferences") or []
    return tuple(str(owner.get("name")) for owner in owners if owner.get("kind") == "Workflow")
