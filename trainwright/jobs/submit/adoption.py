"""What becomes of the existing job of a step: decides whether a submission adopts it, supersedes it or goes to the next attempt,
and does so.

The decision is pure: `submit_or_adopt` reads the job, performs the decision, and asks again after a create that was refused. To
adopt a job is to wait for its other client to go, to resume it and to take the lease. Its request may have changed since: a DAG was
edited, a template renders differently.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from trainwright.api import names
from trainwright.api.conditions import is_finished, is_true
from trainwright.api.errors import Conflict, NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, annotations_of, is_deleting, name_of, namespace_of
from trainwright.api.phase import is_suspended_by_us, superseded, verdict_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.diagnosis.errors import Cancelled, TrainJobNameTaken
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.state.attempts import needs_new_attempt, versions_of, was_preempted
from trainwright.jobs.state.cancel import CancelPolicy, cancel_owned_job, suspend_job
from trainwright.jobs.state.identity import Identity, Relation
from trainwright.jobs.state.remaining_pods import wait_until_pods_ended
from trainwright.jobs.state.waiters import RENEWALS, active_lease_of, release_patch, renewal_patch, waiter_lease_of
from trainwright.submission.suspension import MARKS, early_stop_reason

log = logging.getLogger(__name__)
_POLL_SECONDS = 1.0
Notes = Mapping[str, str | None]
"""Annotations about the client that waits for a job; None removes that of an earlier one."""
_MOST, _LONGEST = 8, 60
_OF_OTHERS = ("suspend", "managedBy", "time")
"""Fields that a queue, Kueue or the API server may have set."""
_ABSENT = object()
_INPUTS = {"dataset": names.DATASET_DIGEST_ANNOTATION, "model": names.MODEL_DIGEST_ANNOTATION}


@dataclass(frozen=True)
class Wanted:
    """Who asks for a job, and for which."""

    identity: Identity
    request: TrainRequest
    desired: Callable[[Obj], Obj]
    """Returns the manifest that would be submitted in the folder of an existing job."""


@dataclass(frozen=True)
class Create:
    """Create the job of the attempt."""


@dataclass(frozen=True)
class Adopt:
    """Take the existing job. `is_new`: this submission has created it; `changed`: the fields in which its request differs."""

    job: Obj
    is_new: bool = False
    changed: str = ""


@dataclass(frozen=True)
class Supersede:
    """Stop the existing job for good, then go to the next attempt. `continues` as for `Next`."""

    job: Obj
    reason: str
    continues: bool = False


@dataclass(frozen=True)
class Next:
    """Leave the existing job, of which nothing will run, and go to the next attempt.

    `continues`: the next attempt counts the preemptions and retries of this one, and may resume from its checkpoints.
    """

    job: Obj
    continues: bool = False
    changed: str = ""


Decision = Create | Adopt | Supersede | Next


def decide(existing: Obj | None, unanswered: Obj | None, wanted: Wanted) -> Decision:
    """Return what to do about an attempt.

    Args:
        existing: The job under the attempt's name; of a failed one, its preemption has been noted.
        unanswered: The job that this submission has sent under that name, if a try got no answer before AlreadyExists.
        wanted: The identity and the request of the submission.

    Raises:
        TrainJobNameTaken: The job belongs to another step, or runs for another request and this is not known to be a retry.
    """
    if existing is None:
        return Create()  # if another client is quicker, the server refuses the name, and its job is decided on
    identity, request, submitter = wanted.identity, wanted.request, wanted.identity.submitter
    if (owner := annotations_of(existing).get(names.OWNER_ANNOTATION)) != str(identity):
        raise TrainJobNameTaken(
            f"the TrainJob {name_of(existing)!r} exists and belongs to {owner or 'another owner'}, not to {identity}"
        )
    if is_new(existing, unanswered):
        return Adopt(existing, is_new=True)  # its end, too, is that of this try
    if _is_of_earlier_execution(existing, wanted):
        if is_finished(existing) or is_deleting(existing):
            return Next(existing)  # nothing of it will run, and its result is that of the earlier execution
        return Supersede(existing, "it was submitted by an earlier execution of the step")
    if needs_new_attempt(existing):
        if is_true(existing, "Failed") and submitter.has_lost(existing) and not was_preempted(existing):
            return Adopt(existing)  # the process that followed it in this very try is gone: the failure is that of this try
        return Next(existing, continues=True)  # also after a preemption that a killed process could not answer
    if is_finished(existing) and not submitter.is_certain:
        return Next(existing)  # it may be the result of another step with the same identity
    desired = wanted.desired(existing)
    if _digest(existing) == _digest(desired):
        return Adopt(existing)  # a retry, whether the job runs, is suspended or has succeeded
    changed = request_changes(existing, desired) or "its code"
    if verdict_of(existing) is not None:
        return Next(existing, continues=True)  # it was given up and is suspended; what it lacked may be what has changed
    if is_finished(existing):
        return Next(existing, continues=True, changed=changed)  # a success, of another request
    if submitter.relation_to(existing) is not Relation.retry:  # it may be somebody else's run of the same id
        raise TrainJobNameTaken(
            changed_input(existing, dataset=request.dataset_digest, model=request.model_digest)
            or f"the TrainJob {name_of(existing)!r} was created from another request and has not ended; "
            f"suspend or delete it, or use another run id; changed: {changed}"
        )
    if request.ending.on_changed_request == "replace":
        return Supersede(existing, f"the request has changed: {changed}", continues=True)
    return Adopt(existing, changed=changed)  # a DAG was edited while its job runs: hours of training outweigh the edit


def _is_of_earlier_execution(existing: Obj, wanted: Wanted) -> bool:
    """Whether the job was submitted before the step was cleared, or by another run of the same id whose job is not taken."""
    request, submitter = wanted.request, wanted.identity.submitter
    relation = submitter.relation_to(existing)
    if relation is Relation.rerun:
        # Yesterday's result is only taken on request; a job that still runs, by runs that a person has named.
        return not (request.ending.adopt_finished if is_finished(existing) else submitter.adopts_reruns)
    if relation is Relation.unknown and names.RESULT_SEEN_ANNOTATION in annotations_of(existing):
        return not request.ending.adopt_finished  # its result was used once already
    return relation is Relation.cleared


def _digest(trainjob: Obj) -> str:
    return annotations_of(trainjob).get(names.SPEC_DIGEST_ANNOTATION) or ""


def is_new(existing: Obj, unanswered: Obj | None) -> bool:
    """Whether the existing job is the one that was sent: it has all its notes, such as the lease and the process that waits."""
    return unanswered is not None and annotations_of(unanswered).items() <= annotations_of(existing).items()


def supersede(cluster: Cluster, trainjob: Obj, on_cancel: str, reason: str) -> None:
    """Stop a job for good, before its step submits another one: both would write to one folder.

    It is deleted if `on_cancel` says so, else suspended, also with `keep`. Raises ApiError, so that two jobs never run at once.
    """
    policy = CancelPolicy.delete if on_cancel == CancelPolicy.delete else CancelPolicy.suspend
    if policy is CancelPolicy.suspend:
        suspend_job(cluster, trainjob, superseded(reason))
    cancel_owned_job(cluster, trainjob, policy)
    log.warning("event=trainjob_superseded name=%s on_cancel=%s reason=%r", name_of(trainjob), policy.value, reason)


def wait_until_unwatched(cluster: Cluster, trainjob: Obj, stop: threading.Event | None = None) -> Obj | None:
    """Wait while another client renews the lease of the job; returns the job as it is then, None if it is gone.

    A client is gone after two intervals without a renewal. Raises ApiError, Cancelled if `stop` is set.
    """
    stop = stop or threading.Event()
    current, renewed, since = trainjob, "", time.monotonic()
    while (lease := active_lease_of(current)) is not None:
        if lease.renewed != renewed:
            renewed, since = lease.renewed, time.monotonic()
        if time.monotonic() - since > 2 * lease.seconds / RENEWALS:  # by this clock: those of two machines may differ
            break
        if stop.wait(min(_POLL_SECONDS, lease.seconds / RENEWALS)):
            raise Cancelled(f"the wait for another client of TrainJob {name_of(trainjob)} was cancelled; no job was created")
        try:
            current = cluster.get(TRAINJOB, name_of(trainjob), namespace_of(trainjob))
        except NotFound:  # its client has deleted it
            return None
    return current


def resume_if_suspended_by_us(
    cluster: Cluster, trainjob: Obj, stop: threading.Event | None = None, notes: Notes = MappingProxyType({})
) -> Obj:
    """Resume a job that an earlier cancellation by Trainwright suspended; any other suspension is kept, and so is an early stop.

    Its pods end first, see `wait_until_pods_ended`; if `stop` is set meanwhile, the job stays suspended. The same request writes
    the `notes` of who waits for it from now on. Returns the job as it is then. Raises ApiError, Conflict if it changes all the time.
    """
    if not _may_resume(trainjob) or not wait_until_pods_ended(cluster, trainjob, stop, to_resume=True):
        return trainjob
    return resume_at_once(cluster, trainjob, notes)


def _may_resume(trainjob: Obj) -> bool:
    return is_suspended_by_us(trainjob) and not needs_new_attempt(trainjob) and not early_stop_reason(trainjob)


def resume_at_once(cluster: Cluster, trainjob: Obj, notes: Notes = MappingProxyType({})) -> Obj:
    """As `resume_if_suspended_by_us`, for a job whose pods are known to have ended."""
    for current in versions_of(cluster, trainjob, "resumed"):
        if not _may_resume(current):  # somebody else has decided about it in the meantime
            return current
        version = current["metadata"]["resourceVersion"]
        annotations = {**dict.fromkeys(MARKS), **notes}
        patch = {"spec": {"suspend": False}, "metadata": {"resourceVersion": version, "annotations": annotations}}
        try:
            return cluster.patch(TRAINJOB, name_of(trainjob), patch, trainjob["metadata"]["namespace"])
        except Conflict:  # its status changed in the meantime
            continue
    return trainjob


def take_lease(cluster: Cluster, trainjob: Obj, seconds: int = 0, notes: Notes = MappingProxyType({})) -> Obj:
    """Replace the lease of an earlier client, whose expiry would suspend a job that this one waits for, by one of so many seconds.

    0 is none. The `notes` are those of the new waiter. The verdict of an earlier client no longer counts: somebody has started the
    job again, and if that was a person, the mark of its suspension does not count either.
    """
    if is_finished(trainjob) or verdict_of(trainjob) is not None:  # no lease can suspend it
        return trainjob
    noted = annotations_of(trainjob)
    stale = [names.VERDICT_ANNOTATION, *([] if trainjob["spec"].get("suspend") else [names.SUSPENDED_BY_ANNOTATION])]
    marks = {name: None for name in stale if name in noted} | {key: text for key, text in notes.items() if noted.get(key) != text}
    if waiter_lease_of(trainjob) is None and not marks and not seconds:  # there is nothing to change
        return trainjob
    patch = renewal_patch(trainjob, seconds, datetime.now(UTC)) if seconds else release_patch(trainjob)
    patch["metadata"]["annotations"] |= marks
    return cluster.patch(TRAINJOB, name_of(trainjob), patch, trainjob["metadata"]["namespace"])


def request_changes(existing: Obj, desired: Obj) -> str:
    """Return the differing fields of the spec, as `trainer.numNodes: 1 -> 2`; empty if only the code or its digest differs."""
    found = list(_changes(existing.get("spec") or {}, desired.get("spec") or {}, ""))
    more = f"; and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return "; ".join(found[:_MOST]) + more


def _changes(before: Any, after: Any, path: str) -> Iterator[str]:
    before, after = _by_name(before), _by_name(after)
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys((*before, *after)):
            if key not in _OF_OTHERS:
                yield from _changes(before.get(key, _ABSENT), after.get(key, _ABSENT), f"{path}.{key}" if path else str(key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _changes(old, new, f"{path}[{index}]")
    elif before != after:
        at = _first_difference(before, after) if isinstance(before, str) and isinstance(after, str) else 0
        yield f"{path}: {_shown(before, at)} -> {_shown(after, at)}"


def _by_name(value: Any) -> Any:
    """Return a list whose entries have unique names as an object, so that an entry that is added changes no other."""
    if not (isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value)):
        return value
    for key in ("name", "manager"):
        found = [entry.get(key) for entry in value]
        if all(isinstance(name, str) for name in found) and len(set(found)) == len(found):
            return dict(zip(found, value, strict=True))
    return value


def _first_difference(before: str, after: str) -> int:
    """Return where two texts begin to differ; 0 for short ones, which are shown as a whole."""
    if max(len(before), len(after)) <= _LONGEST:
        return 0
    return next(
        (at for at, (one, other) in enumerate(zip(before, after, strict=False)) if one != other), min(len(before), len(after))
    )


def _shown(value: Any, at: int = 0) -> str:
    """Return a value as text, of a long one what stands around the position `at`."""
    if value is _ABSENT:
        return "nothing"
    if not isinstance(value, str):
        text = repr(value)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    begin = max(0, at - _LONGEST // 3)
    shown = value[begin : begin + _LONGEST]
    return f"{'...' if begin else ''}{shown!r}{'...' if begin + _LONGEST < len(value) else ''}"


def reason_to_begin_again(last: Obj, desired: Obj) -> str:
    """Say why an attempt resumes from no checkpoint of the `last` one of its step; empty if it may, as the same training.

    `desired` is its TrainJob as it would be in the folder of the last one.
    """
    if is_true(last, "Complete"):
        return f"the TrainJob {name_of(last)} of this step has succeeded: it is trained again"
    key = names.TRAINING_DIGEST_ANNOTATION
    before, after = (annotations_of(job).get(key) for job in (last, desired))
    if before is None or before == after:
        return ""
    changes = request_changes(last, desired) or "its code"
    return f"not resumed from the checkpoints of the TrainJob {name_of(last)}, because its request differs: {changes}"


def changed_input(existing: Obj, *, dataset: str, model: str) -> str:
    """Say that the job trains on another prepared dataset or model than these digests name, and what to do; empty if not so."""
    for kind, digest in (("dataset", dataset), ("model", model)):
        before = annotations_of(existing).get(_INPUTS[kind], "")
        if before and digest and before != digest:
            return (
                f"the {kind} has changed since this run began: it was {before}, and is {digest}\n"
                f"start a run with another run id; to resume this one, restore its {kind}; to train it again, delete the TrainJob "
                f"{name_of(existing)!r}"
            )
    return ""
