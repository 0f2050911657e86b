"""Which actions on a TrainJob a user may take, by access reviews of the API server, and which its state allows.

The page disables the others and says why. The server of the page decides nothing: the API server checks every request itself.
"""

from __future__ import annotations

from typing import TypedDict

from trainwright.api.conditions import is_finished
from trainwright.api.errors import ApiError
from trainwright.api.objects import Obj, is_deleting, name_of, namespace_of
from trainwright.api.verdict import is_superseded, verdict_of
from trainwright.cluster.discovery import is_allowed
from trainwright.cluster.refusals import Permission
from trainwright.jobs.state.cancel import CancelOutcome
from trainwright.jobs.submit.job_lookup import LocatedJob
from trainwright.jobs.wait.resume_job import ResumeOutcome
from trainwright.submission.jobs_client import JobsClient
from trainwright.submission.suspension import is_queued

ACTIONS = ("suspend", "resume", "cancel", "delete")
_VERBS = {"suspend": "patch", "resume": "patch", "cancel": "delete", "delete": "delete"}
_DELETING = "it is being deleted"
_SUSPENDED = "it is suspended already"


class AllowedAction(TypedDict):
    """`reason` says why an action is not offered; `note` what it does, or that it could not be checked and the API server decides."""

    allowed: bool
    reason: str
    note: str


def allowed_actions(cluster: JobsClient, namespace: str, job: LocatedJob | None, name: str = "") -> dict[str, AllowedAction]:
    """Return for each action whether the user may take it on a TrainJob; `job` is None if no certain one is meant."""
    by_verb = {verb: _review(job.cluster if job is not None else cluster, verb, namespace, name) for verb in set(_VERBS.values())}
    by_state = state_reasons(job.trainjob) if job is not None else {}
    found: dict[str, AllowedAction] = {}
    for action, verb in _VERBS.items():
        denied, note = by_verb[verb]
        reason = by_state.get(action, "") or denied
        if action == "resume" and job is not None and (verdict := verdict_of(job.trainjob)) is not None:
            note = note or f"it was given up ({verdict.reason}); its pods start again, from their checkpoints if they have any"
        found[action] = AllowedAction(allowed=not reason, reason=reason, note=note)
    return found


def state_reasons(trainjob: Obj) -> dict[str, str]:
    """Return why the state of a job rules actions out, by action. Pure."""
    if is_deleting(trainjob):
        return dict.fromkeys(ACTIONS, _DELETING)
    if is_finished(trainjob):
        return dict.fromkeys(("suspend", "resume", "cancel"), CancelOutcome.ended.value)
    if not trainjob["spec"].get("suspend"):
        return {"resume": ResumeOutcome.running.value}
    if is_queued(trainjob):
        return {"suspend": CancelOutcome.queued.value, "resume": ResumeOutcome.queued.value}
    if is_superseded(trainjob):
        return {"suspend": _SUSPENDED, "resume": ResumeOutcome.superseded.value}
    return {"suspend": _SUSPENDED}


def described_job(trainjob: Obj) -> str:
    """Return `TrainJob namespace/name`, for messages."""
    return f"TrainJob {namespace_of(trainjob)}/{name_of(trainjob)}"


def _review(cluster: JobsClient, verb: str, namespace: str, name: str) -> tuple[str, str]:
    """Return why an action is denied, or why that is not known."""
    permission = Permission(verb, cluster.job_kind.resource, namespace)
    try:
        allowed = is_allowed(cluster, permission, name)
    except ApiError as error:
        return "", f"permissions cannot be checked: {error.message}"
    return ("" if allowed else f"you may not {permission}"), ""
