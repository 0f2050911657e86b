"""What the page changes: it suspends, resumes, cancels and deletes TrainJobs, and promotes and rolls back exports.

Each request says what the user saw: the UID of the job, or the digest that the alias named. A page that is out of date therefore
changes nothing, and a second click finds the work done.

The page disables actions that a user may not take, by access reviews of the API server, or that the state of the job rules out, and
says why. The server of the page decides nothing: the API server checks every request.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any, TypedDict

from pydantic import ValidationError

from trainwright.api.conditions import is_finished
from trainwright.api.errors import ApiError, Conflict, NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, is_deleting, name_of, namespace_of, uid_of
from trainwright.api.phase import is_superseded, phase_of, verdict_of
from trainwright.checkpoints.errors import CheckpointError, PromotionConflict
from trainwright.checkpoints.manifest import MANIFEST
from trainwright.checkpoints.promotion import CHAMPION, Alias, AliasRecord
from trainwright.cluster.discovery import is_allowed
from trainwright.cluster.refusals import Permission
from trainwright.jobs.state.cancel import CancelOutcome, CancelPolicy, CancelResult, cancel_job, delete_job
from trainwright.jobs.state.remaining_pods import have_pods_ended
from trainwright.jobs.submit.job_lookup import LocatedJob
from trainwright.jobs.wait.resume_job import ResumeOutcome, resume_job
from trainwright.steps.ends.change_jobs import JobSuperseded, job_named
from trainwright.steps.promotion.champion import roll_back_once
from trainwright.submission.jobs_client import JobsClient
from trainwright.submission.suspension import is_queued
from trainwright.text.foreign_texts import one_line
from trainwright.ui.call import EXPECTED, Call, Endpoint, Json
from trainwright.ui.models.evaluations import EvaluatedExports
from trainwright.ui.models.export_rows import read_alias, read_record, read_small_export
from trainwright.ui.models.places import MAX_URI, Places, root_of
from trainwright.ui.models.workspaces import find_workspaces

ACTIONS = ("suspend", "resume", "cancel", "delete")
_VERBS = {"suspend": "patch", "resume": "patch", "cancel": "delete", "delete": "delete"}
_DELETING = "it is being deleted"
_SUSPENDED = "it is suspended already"
_CLICK = re.compile(r"[A-Za-z0-9-]{8,64}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MAX_REASON, _MAX_LOGGED, _MAX_ALIAS, _MAX_UID = 500, 300, 63, 128
log = logging.getLogger(__name__)


def show_access(call: Call) -> Json:
    """Return which actions the user may take on a TrainJob, with the reasons where not. Without a name, in its namespace."""
    name, cluster = call.query.get("name", ""), call.session.cluster
    job = job_named(cluster, name, call.namespace) if name else None
    if name and job is None:
        raise NotFound(f"there is no TrainJob {call.namespace}/{name[:_MAX_LOGGED]}")
    return {
        "uid": uid_of(job.trainjob) if job is not None else "",
        "ended": job is not None and is_finished(job.trainjob),
        "actions": allowed_actions(cluster, call.namespace, job, name),
        "mayPromote": call.page.may_read_files,
    }


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


def _review(cluster: JobsClient, verb: str, namespace: str, name: str) -> tuple[str, str]:
    """Return why an action is denied, or why that is not known."""
    permission = Permission(verb, cluster.job_kind.resource, namespace)
    try:
        allowed = is_allowed(cluster, permission, name)
    except ApiError as error:
        # not a denial: the API server decides when the user acts
        return "", f"permissions cannot be checked: {error.message}"
    return ("" if allowed else f"you may not {permission}"), ""


def suspend(call: Call) -> Json:
    """Suspend a job as `trainwright cancel` does: its pods end, its checkpoints stay. Raises Conflict if it has ended."""
    job = _job(call)
    if is_deleting(job.trainjob):
        raise Conflict(f"{described_job(job.trainjob)} is being deleted")
    if is_queued(job.trainjob):
        return _done(call, job, "suspend", CancelOutcome.queued.value)
    already = bool(job.trainjob["spec"].get("suspend"))
    result = cancel_job(job.cluster, job.trainjob, CancelPolicy.suspend, timeout_seconds=0)
    _require_alive(job, result)
    return _done(call, job, "suspend", "it is suspended already" if already else str(result))


def resume(call: Call) -> Json:
    """Resume a suspended job, whoever has suspended it. Raises Conflict while its pods end, JobSuperseded."""
    job = _job(call)
    if "resume" not in state_reasons(job.trainjob) and not have_pods_ended(job.cluster, job.trainjob):
        raise Conflict(f"{described_job(job.trainjob)}: the pods of its earlier run have not ended yet; resume it when they have")
    outcome = resume_job(job.cluster, job.trainjob)
    if outcome is ResumeOutcome.superseded:
        raise JobSuperseded(f"{described_job(job.trainjob)}: {outcome.value}")
    if outcome is ResumeOutcome.gone:
        raise NotFound(f"{described_job(job.trainjob)}: {outcome.value}")
    return _done(call, job, "resume", outcome.value)


def cancel(call: Call) -> Json:
    """Stop a job for good, as `trainwright cancel --by delete`. Raises Conflict if it has ended."""
    job = _job(call)
    result = cancel_job(job.cluster, job.trainjob, CancelPolicy.delete, timeout_seconds=0)
    _require_alive(job, result)
    return _done(call, job, "cancel", str(result))


def delete(call: Call) -> Json:
    """Delete a job with everything that it owns, finished or not. Raises NotFound if it no longer exists."""
    job = _job(call)
    if not delete_job(job.cluster, job.trainjob):
        raise NotFound(f"{described_job(job.trainjob)}: {CancelOutcome.gone.value}")
    return _done(call, job, "delete", CancelOutcome.deleted.value)


def promote(call: Call) -> Json:
    """Let an alias name an export. The figures of its evaluation are recorded, if the page finds them.

    The body has `uri`, `digest` (of the manifest that the user saw), `expected` (the digest that the alias named on the page, "" if
    it named none), and optionally `alias` and `reason`. Raises Forbidden, PromotionConflict, CheckpointError, StorageError.
    """
    places, alias = _alias_places(call)
    uri, digest = call.text("uri", limit=MAX_URI), _digest(call, "digest")
    export = read_small_export(places.open(uri, levels=2))
    root = root_of(export.uri)
    named = Alias(root, alias)
    figures = _figures(call, places, root, alias, digest)

    def change() -> AliasRecord:
        record = named.read()
        if record is not None and record.current.manifest == digest:  # a second click, or another user's
            return record
        _check_history(places, record)
        return named.promote(
            export.uri,
            digest=digest,
            expected=_digest(call, "expected") if call.body.get("expected") != "" else "",
            evaluation=figures,
            reason=_reason(call) or "promoted on the page",
        )

    record = _once_more(change)
    _log(call, "promote", uri=export.uri, digest=digest, alias=alias)
    return _shown(places, root, record)


def roll_back(call: Call) -> Json:
    """Restore the previous export of an alias.

    The body has `uri` (of the folder of all exports), `expected` (the digest that the alias named on the page), `click` (a random
    text of this decision: the same one is carried out once), and optionally `alias` and `reason`. Raises as `promote`.
    """
    places, alias = _alias_places(call)
    root = str(places.allowed(call.text("uri", limit=MAX_URI)))
    click, expected = call.text("click"), _digest(call, "expected")
    if not _CLICK.fullmatch(click):
        raise ValueError("click: expected 8 to 64 letters, digits or dashes")

    def change() -> AliasRecord:
        _check_history(places, Alias(root, alias).read())
        return roll_back_once(root, alias, step=f"page {click}", expected_digest=expected, reason=_reason(call))

    record = _once_more(change)
    _log(call, "roll_back", uri=root, expected=expected, alias=alias)
    return _shown(places, root, record)


def _job(call: Call) -> LocatedJob:
    """Return the job that the user saw. Raises NotFound if it is gone, Conflict if another one has its name, ApiError."""
    namespace, name, uid = call.text("namespace"), call.text("name"), call.text("uid", limit=_MAX_UID)
    job = job_named(call.session.cluster, name, namespace)
    if job is None:
        raise NotFound(f"TrainJob {namespace}/{name}: {CancelOutcome.gone.value}")
    if uid_of(job.trainjob) != uid:
        raise Conflict(f"{described_job(job.trainjob)} was replaced by another job of the same name; look at that one first")
    return job


def described_job(trainjob: Obj) -> str:
    """Return `TrainJob namespace/name`, for messages."""
    return f"TrainJob {namespace_of(trainjob)}/{name_of(trainjob)}"


def _require_alive(job: LocatedJob, result: CancelResult) -> None:
    if result.outcome is CancelOutcome.ended:
        current = job.cluster.get(TRAINJOB, name_of(job.trainjob), job.trainjob["metadata"]["namespace"])
        raise Conflict(f"{described_job(job.trainjob)} has already ended: {phase_of(current).value}")
    if result.outcome is CancelOutcome.gone:
        raise NotFound(f"{described_job(job.trainjob)}: {result.outcome.value}")


def _done(call: Call, job: LocatedJob, action: str, outcome: str) -> Json:
    _log(call, action, job=described_job(job.trainjob), uid=uid_of(job.trainjob), outcome=outcome)
    return {"outcome": outcome, "message": f"{described_job(job.trainjob)}: {outcome}"}


def _alias_places(call: Call) -> tuple[Places, str]:
    """Return the places that may be changed, and the alias. Raises Forbidden."""
    places = Places(call.page)
    places.check_may_change()
    return places, call.text("alias", limit=_MAX_ALIAS) if "alias" in call.body else CHAMPION


def _check_history(places: Places, record: AliasRecord | None) -> None:
    """Check the places that a change reads and unpins, which others have written. Raises Forbidden, StorageError."""
    for entry in (record.current, *record.history) if record is not None else ():
        store = places.open(entry.uri, levels=1)
        if store.uri.scheme == "file":
            store.head(MANIFEST)  # fails if the path leads through a link out of the folders that may be read


def _figures(call: Call, places: Places, root: str, alias: str, digest: str) -> dict[str, Any]:
    """Return the figures of an export: those recorded when it was promoted before, else of its newest evaluation in a workspace."""
    try:
        record = read_record(places.open(root), alias)
    except ValidationError as error:
        raise CheckpointError(f"{root}/{alias}.json is not the record of an alias; repair or remove it") from error
    for entry in (record.current, *record.history) if record is not None else ():
        if entry.manifest == digest and entry.evaluation:
            return entry.evaluation
    return EvaluatedExports(lambda: find_workspaces(call.page)).figures_of(digest)


def _once_more(change: Callable[[], AliasRecord]) -> AliasRecord:
    """Try again after a conflict: if that was with the same request, sent twice at once, the second try finds the work done."""
    try:
        return change()
    except PromotionConflict:  # perhaps of the same click, sent twice
        return change()


def _shown(places: Places, root: str, record: AliasRecord) -> Json:
    return {"alias": read_alias(places.open(root), record.alias), "uri": root}


def _digest(call: Call, field: str) -> str:
    digest = call.text(field)
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"{field}: expected sha256: and 64 hexadecimal digits")
    return digest


def _reason(call: Call) -> str:
    reason = call.body.get("reason", "")
    if not isinstance(reason, str) or len(reason) > _MAX_REASON:
        raise ValueError(f"reason: expected a text of at most {_MAX_REASON} characters")
    return one_line(reason)


def _log(call: Call, action: str, **facts: str) -> None:
    """Log who did what. None of the facts is a secret, but users write them: each is one line."""
    shown = " ".join(f"{name}={one_line(value)[:_MAX_LOGGED]!r}" for name, value in facts.items())
    log.info("event=page_action action=%s user=%r %s", action, one_line(call.session.user)[:_MAX_LOGGED] or "owner", shown)


def _logged(action: str, act: Callable[[Call], Json]) -> Callable[[Call], Json]:
    """Return the action, which logs why it failed."""

    def answer(call: Call) -> Json:
        try:
            return act(call)
        except EXPECTED as error:
            user, message = one_line(call.session.user)[:_MAX_LOGGED] or "owner", one_line(error)[:_MAX_LOGGED]
            log.warning(
                "event=page_action_failed action=%s user=%r error=%s message=%r", action, user, type(error).__name__, message
            )
            raise

    return answer


ROUTES = (
    Endpoint("GET", "/access", show_access),
    *(
        Endpoint("POST", f"/actions/{name}", _logged(name, act))
        for name, act in (
            ("suspend", suspend),
            ("resume", resume),
            ("cancel", cancel),
            ("delete", delete),
            ("promote", promote),
            ("roll-back", roll_back),
        )
    ),
)
