"""Decides what a submission does about one attempt of its step: adopts its job, supersedes it, goes to the next, or creates it.

Pure: `submit_or_adopt` reads the job, performs the decision, and asks again after a create that was refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainwright.api import names
from trainwright.api.conditions import is_finished, is_true
from trainwright.api.objects import Obj, annotations_of, is_deleting, name_of
from trainwright.api.verdict import verdict_of
from trainwright.jobs.diagnosis.errors import TrainJobNameTaken
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.state.attempts import needs_new_attempt, was_preempted
from trainwright.jobs.state.identity import Identity, Relation
from trainwright.jobs.submit.changed_request import changed_input, request_changes


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


def is_new(existing: Obj, unanswered: Obj | None) -> bool:
    """Whether the existing job is the one that was sent: it has all its notes, such as the lease and the process that waits."""
    return unanswered is not None and annotations_of(unanswered).items() <= annotations_of(existing).items()


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
