"""Decides whether a TrainJob is left behind: nobody waits for it any more. One decision for the guard, the controllers and `clean`.

A step that is killed cannot stop its job, and on a busy cluster its exit handler may not run either. So the job has notes for a later
decision: `on_cancel`, the lease of the client that waits, and its pod and workflow if these are on the same cluster.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from trainwright.api import names
from trainwright.api.conditions import is_finished
from trainwright.api.errors import BadRequest, Forbidden, NotFound
from trainwright.api.kinds import POD
from trainwright.api.objects import Obj, annotations_of, is_deleting, labels_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.state.attempts import versions_of
from trainwright.jobs.state.cancel import CancelOutcome, CancelPolicy, cancel_version
from trainwright.jobs.state.waiters import (
    COMPLETED_LABEL,
    POD_RUN_LABEL,
    RENEWALS,
    WORKFLOW,
    Run,
    WaitingPod,
    is_waited_for,
    lost_mark,
    runs_of,
    step_of,
    waiter_lease_of,
    waiting_pod_of,
)
from trainwright.submission.suspension import is_queued

UNFINISHED_PODS = "status.phase!=Succeeded,status.phase!=Failed"
"""Field selector of pods whose containers may run: who knows only the metadata of pods needs no more."""


class RunState(enum.Enum):
    """The known state of a run. One whose workflow is being deleted has ended."""

    unknown = "unknown"
    active = "active"
    ended = "ended"


def state_of_run(workflow: Obj, run: Run) -> RunState:
    """Return the state of a run whose workflow was found by its name; its metadata is enough."""
    is_another = uid_of(workflow) != run.uid
    has_ended = is_deleting(workflow) or labels_of(workflow).get(COMPLETED_LABEL) == "true"
    return RunState.ended if is_another or has_ended else RunState.active


@dataclass(frozen=True)
class Sight:
    """The state of those who wait for a job: of each of `runs_of`, and whether a pod of the waiting step may run."""

    runs: Sequence[RunState] = ()
    pod_waits: bool = False


@dataclass(frozen=True)
class Decision:
    """`policy` is what to do with the job now, None for nothing; `look_again` the seconds after which it may be left behind."""

    policy: CancelPolicy | None = None
    reason: str = ""
    look_again: float | None = None


_NOTHING = Decision()


def decide(trainjob: Obj, sight: Callable[[Obj], Sight], now: datetime) -> Decision:
    """Return what to do with a job. `sight` is called only for one about which the answer may differ. Pure, but for that call."""
    annotations = annotations_of(trainjob)
    if names.OWNER_ANNOTATION not in annotations or is_finished(trainjob) or is_deleting(trainjob):
        return _NOTHING
    if trainjob["spec"].get("suspend") and not is_queued(trainjob):
        return _NOTHING  # it trains nothing, and whoever resumes it wants it to run
    if not trainjob["spec"].get("suspend") and names.SUSPENDED_BY_ANNOTATION in annotations:
        return _NOTHING  # a person has set spec.suspend to false: notes of the waiter before that tell nothing any more
    policy = _policy_of(trainjob)
    if policy is CancelPolicy.keep:  # its step was told to leave it running
        return _NOTHING
    lease, runs = waiter_lease_of(trainjob), runs_of(trainjob)
    left = lease.seconds_left(now) if lease is not None else None
    if not runs and (left is None or left > 0):  # nobody else can say that the client is gone
        return Decision(look_again=left)
    seen = sight(trainjob)
    # Argo ends a run after its pods. One that still shows as running is on a lost node, or is deleted with its workflow.
    if runs and all(state is RunState.ended for state in seen.runs):
        return Decision(policy, "its run has ended")
    if lease is None or left is None or trainjob["spec"].get("suspend"):
        return _NOTHING  # of a queued job the lease decides once it has started: its client may only be cut off
    if left > 0:
        # Its pod may be gone. Neither the pod nor the metadata of the workflow tells whether Argo tries the step again: that depends
        # on the retry strategy, its back-off and quotas. If not, the run ends soon, unless other steps of it still run.
        return Decision(look_again=left)
    if seen.pod_waits:
        return Decision(look_again=lease.seconds / RENEWALS)  # it may be cut off from the API server for a while
    return Decision(policy, f"the client that waits for it has not renewed its lease of {lease.seconds} s")


def _policy_of(trainjob: Obj) -> CancelPolicy:
    """Return what to do with a job that is left behind; it is suspended if that is not noted."""
    try:
        return CancelPolicy(annotations_of(trainjob).get(names.ON_CANCEL_ANNOTATION, CancelPolicy.suspend))
    except ValueError:  # a later version may know more: suspending loses nothing
        return CancelPolicy.suspend


def look(cluster: Cluster, trainjob: Obj) -> Sight:
    """Read what is known now of those who wait for a job. What may not be read, or is not served, is unknown. Raises ApiError."""
    runs = tuple(_read_state(cluster, run) for run in runs_of(trainjob))
    if runs and all(state is RunState.ended for state in runs):  # no pod of it can wait any more
        return Sight(runs)
    pod = waiting_pod_of(trainjob)
    return Sight(runs, pod is not None and is_waited_for(pod, dict(_unfinished_pods(cluster, pod))))


def _read_state(cluster: Cluster, run: Run) -> RunState:
    try:
        return state_of_run(cluster.get(WORKFLOW, run.name, run.namespace), run)
    except NotFound as error:
        # Only an answer that names the object says that it is gone; another one, that the cluster does not serve its kind.
        return RunState.ended if error.details.get("name") == run.name else RunState.unknown
    except (BadRequest, Forbidden):  # an owner with an impossible name, or an optional right: the lease decides
        return RunState.unknown


def _unfinished_pods(cluster: Cluster, pod: WaitingPod) -> Iterator[tuple[str, tuple[str, str]]]:
    labels = f"{POD_RUN_LABEL}={pod.run}" if pod.run else ""
    fields = UNFINISHED_PODS if pod.run else f"metadata.name={pod.name},{UNFINISHED_PODS}"
    try:
        found = cluster.list(POD, pod.namespace, label_selector=labels, field_selector=fields).items
    except Forbidden:  # an optional right: the lease decides alone
        return
    yield from ((uid_of(each), step_of(each)) for each in found if not is_deleting(each))


@dataclass(frozen=True)
class Ended:
    """What was done with a job, or None if nothing was, and the decision that led to it. `trainjob` is the version decided on."""

    trainjob: Obj
    decision: Decision
    outcome: CancelOutcome | None = None


def end_if_left_behind(cluster: Cluster, trainjob: Obj, sight: Callable[[Obj], Sight], clock: Callable[[], datetime]) -> Ended:
    """Read a job again, decide about this version, and suspend or delete this version alone, so that an adoption in the meantime
    counts. A suspended job is marked, so that a client that was only cut off resumes it. Raises ApiError, Conflict if it changes
    all the time.
    """
    decision = _NOTHING
    for current in versions_of(cluster, trainjob, "ended"):
        decision = decide(current, sight, clock())
        if decision.policy is None:
            return Ended(current, decision)
        if (outcome := cancel_version(cluster, current, decision.policy, lost_mark())) is not None:
            return Ended(current, decision, outcome)
    return Ended(trainjob, decision)  # it is gone
