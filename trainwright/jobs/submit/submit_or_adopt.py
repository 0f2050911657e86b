"""Submits a TrainJob, or adopts the one that an earlier try of the same step created. Never creates two for one attempt.

`decide` says what to do about an attempt, from its job and from what a create was answered; this module reads and performs.
"""

from __future__ import annotations

import logging
import secrets
import threading
from dataclasses import dataclass, replace

from trainwright.api import names
from trainwright.api.conditions import is_finished, is_true
from trainwright.api.errors import NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, annotations_of, is_deleting, name_of, namespace_of, uid_of
from trainwright.api.phase import superseded
from trainwright.cluster.protocol import OnWarning
from trainwright.cluster.retrying import RetryingCluster
from trainwright.jobs.diagnosis.errors import TrainJobNameTaken
from trainwright.jobs.diagnosis.resubmission import jobsets_to_resume_from, mark_if_preempted
from trainwright.jobs.manifest.trainjob_manifest import NO_PREVIOUS, PreviousAttempt
from trainwright.jobs.request.workspace import LAST
from trainwright.jobs.state.attempts import (
    attempt_of,
    delete_previous_attempts,
    preemptions_so_far,
    retries_so_far,
    was_preempted,
    was_retried,
)
from trainwright.jobs.state.cancel import suspend_job
from trainwright.jobs.state.identity import Identity
from trainwright.jobs.state.remaining_pods import wait_until_pods_ended
from trainwright.jobs.state.waiters import lease_seconds
from trainwright.jobs.submit.adoption import (
    Adopt,
    Create,
    Decision,
    Next,
    Supersede,
    Wanted,
    decide,
    is_new,
    reason_to_begin_again,
    resume_if_suspended_by_us,
    supersede,
    take_lease,
    wait_until_unwatched,
)
from trainwright.jobs.submit.creation import Creator, Sent, resolve_holder_conflict
from trainwright.jobs.submit.job_lookup import SubmissionStart, submission_start
from trainwright.jobs.submit.owned_objects import set_code_owner, tie_to_workflow
from trainwright.jobs.submit.plan import ServedForm, SubmissionPlan, can_resume_from_export, resumes_from_previous
from trainwright.jobs.submit.resolve import RuntimeChoice, resolve_with
from trainwright.jobs.submit.submission import Submission, set_credentials_owner
from trainwright.jobs.submit.workspace_claim import set_claim_owner
from trainwright.submission.jobs_client import JobsClient

MAX_ATTEMPTS = 100
_MAX_RETIREMENTS = 3
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Submitted:
    """The TrainJob, whether it was adopted (running, suspended or complete), and its runtime."""

    trainjob: Obj
    adopted: bool
    attempt: int
    runtime: RuntimeChoice
    run_deadline: int | None
    """The request's deadline in seconds if the cluster does not enforce it: the waiting client does, see `run_to_end`."""
    cluster: JobsClient
    """The client in the mode of the submission, to follow the job with."""

    @property
    def name(self) -> str:
        return name_of(self.trainjob)


def submit_or_adopt(
    submission: Submission,
    *,
    stop: threading.Event | None = None,
    on_warning: OnWarning | None = None,
    waiter_lease_seconds: int = 0,
) -> Submitted:
    """Return the TrainJob for this step of this run, created at most once.

    An existing job of the step with the same spec digest is adopted, and resumed if a cancellation suspended it. No pod of it runs
    any more when it is resumed, nor of an earlier job when another one is created, see `wait_until_pods_ended`. If it failed,
    is being deleted or was superseded (see `suspend_job`), the next attempt is submitted, and so it is for a later execution of the
    step (see `Submitter`), which stops the job of the earlier one first. An attempt after one that has succeeded, or that asked for
    another training, begins in an empty folder; any other continues in that of the attempt before. A retry whose request has
    changed adopts a job that still runs, or replaces it, as `on_changed_request` says. With `previous_jobs` = delete finished jobs
    are deleted.
    A workspace claim is created on request. The runtime is resolved, the objects are built and node capacity is checked before a job
    is created, so that an invalid request fails here. Transient API errors are retried for a minute, unless `stop` is set; a job
    whose create response was lost is found. `on_warning` receives the warnings of the API server about the job; by default they are
    logged. The job has a lease of `waiter_lease_seconds` of the client that is to wait for it, none for 0, see `jobs.state.waiters`.
    Raises RuntimeNotFound, IncompatibleRuntime, PolicyMissing, QueueNotFound, Invalid, ValueError (bad workspace, BadCode),
    WorkspaceMismatch, TrainJobNameTaken, RunFolderTaken, Cancelled if `stop` is set before a job is created.
    """
    if submission.credentials:
        referring = submission.credentials.referred_to_by(submission.request, submission.identity)
        submission = replace(submission, request=referring)
    request, identity, namespace = submission.request, submission.identity, submission.namespace
    stop = stop or threading.Event()
    connected = JobsClient.of(submission.cluster)
    retrying = RetryingCluster(connected, stop=stop)
    resolved, choice = resolve_with(retrying, request, namespace, bundled=connected.uses_bundled_runtimes)
    for warning in resolved.warnings:
        log.warning("event=runtime_warning name=%s warning=%s", choice.name, warning)
    start = submission_start(connected, identity, namespace, stop)
    retrying, seconds = RetryingCluster(start.client, stop=stop), lease_seconds(waiter_lease_seconds)
    creator = Creator(submission, resolved, start.client, retrying, stop, on_warning, seconds)
    with creator.no_secret_is_left():
        submitted = _Attempts(creator, choice, _Earlier.of(start)).first_fitting(start)
    retrying = RetryingCluster(submitted.cluster, stop=stop)
    if request.workspace is not None:
        set_claim_owner(retrying, request.workspace, identity, submitted.trainjob)
    if resolved.code is not None:
        set_code_owner(retrying, submitted.trainjob, resolved.code)
    if submission.credentials and not is_finished(submitted.trainjob):
        set_credentials_owner(retrying, identity, submitted.trainjob, submission.credentials)
    if submission.workflow is not None:
        tie_to_workflow(submitted.cluster, submitted.trainjob, submission.workflow)
    if request.ending.previous_jobs == "delete":
        delete_previous_attempts(retrying, submitted.trainjob, identity)
    return submitted


@dataclass
class _Earlier:
    """The jobs of the step before the attempt at hand."""

    jobs: list[Obj]
    to_retire: list[Obj]
    """Those that must not run beside a new one."""
    continued: Obj | None
    """The one whose preemptions and retries the next attempt counts."""

    @classmethod
    def of(cls, start: SubmissionStart) -> _Earlier:
        stopped = [] if start.previous is None else [start.previous]
        return cls([*stopped, *(job for job in start.jobs if attempt_of(job) < start.attempt)], list(stopped), start.previous)

    def add(self, job: Obj, *, continues: bool) -> None:
        self.jobs.append(job)
        self.to_retire.append(job)
        self.continued = job if continues else None


@dataclass(frozen=True)
class _Attempts:
    """The attempts of a step, of which a submission takes the newest that fits, or the next."""

    creator: Creator
    choice: RuntimeChoice
    earlier: _Earlier

    def first_fitting(self, start: SubmissionStart) -> Submitted:
        """Decide on one attempt after another, from the newest existing one, until one is adopted or created."""
        creator, cluster = self.creator, self.creator.cluster
        for attempt in range(start.attempt, MAX_ATTEMPTS + 1):
            decision = self._decide(next((job for job in start.jobs if attempt_of(job) == attempt), None))
            if isinstance(decision, Create):
                sent = self._create(attempt)
                if sent.answer is not None:  # else a job of this name exists: another client's, or of a try without an answer
                    return self._created(sent.answer, sent.form)
                found = cluster.get(TRAINJOB, self.identity.name(attempt), creator.namespace)  # NotFound: deleted meanwhile
                decision = self._decide(found, sent.unanswered)
                if isinstance(decision, Adopt) and decision.is_new:
                    return self._created(found, sent.form)
            match decision:
                case Adopt(job, changed=changed):
                    if changed:
                        log.warning("event=request_changed name=%s outcome=adopted_as_it_is changed=%r", name_of(job), changed)
                    return self._adopted(job)
                case Supersede(job, reason, continues):
                    supersede(cluster, job, creator.request.ending.on_cancel, reason)
                    self.earlier.add(job, continues=continues)
                case Next(job, continues, changed):
                    if changed:
                        log.warning("event=request_changed name=%s outcome=submitted_again changed=%r", name_of(job), changed)
                    log.info("event=attempt_ended name=%s attempt=%d", name_of(job), attempt)
                    self.earlier.add(job, continues=continues)
        raise TrainJobNameTaken(f"{self.identity}: {MAX_ATTEMPTS} attempts exist and have failed; delete some of their jobs")

    @property
    def identity(self) -> Identity:
        return self.creator.identity

    def _decide(self, existing: Obj | None, unanswered: Obj | None = None) -> Decision:
        """Read what `decide` needs, and decide. Who cannot know whose a job is waits until its client is gone."""
        cluster, wanted = self.creator.cluster, Wanted(self.identity, self.creator.request, self._desired)
        if existing is None:
            return decide(None, unanswered, wanted)
        is_owned = annotations_of(existing).get(names.OWNER_ANNOTATION) == str(self.identity)
        if is_owned and not self.identity.submitter.is_certain and not is_new(existing, unanswered):
            unwatched = wait_until_unwatched(cluster, existing, self.creator.stop)
            if unwatched is None:
                return Next(existing)  # it was deleted, but its pods may not have ended: another name than theirs
            existing = unwatched
        return decide(mark_if_preempted(cluster, existing), unanswered, wanted)  # a killed client may not have recorded it

    def _desired(self, existing: Obj) -> Obj:
        """Return the job as this submission would create it in the folder of an existing one."""
        return self.creator.plan(attempt_of(existing), self.identity.of_attempt(existing)).trainjob

    def _adopted(self, job: Obj) -> Submitted:
        creator, cluster = self.creator, self.creator.cluster
        form = creator.form(creator.plan(attempt_of(job), self.identity.of_attempt(job)))
        if is_true(job, "Failed"):  # while the process that followed it was gone: its report is still to be made
            log.warning("event=trainjob_ended_unseen name=%s", name_of(job))
        if not is_finished(job):
            resolve_holder_conflict(cluster, job, self.identity)  # a client killed right after creating the job has not checked
            creator.ensure_claim()  # of this request: its size is not part of the job
            creator.ensure_credentials(name_of(job))
            if patch := self.identity.submitter.adoption_patch(job):
                job = cluster.patch(TRAINJOB, name_of(job), patch, creator.namespace)
            notes = creator.waiter_notes()
            job = take_lease(cluster, resume_if_suspended_by_us(cluster, job, creator.stop, notes), creator.lease_seconds, notes)
        return self._submitted(job, form, adopted=True)

    def _create(self, attempt: int) -> Sent:
        """Plan the job of an attempt, stop the earlier ones, and send it."""
        plan, form = self._planned(attempt)
        to_retire = self.earlier.to_retire
        retired = {uid_of(job): self._retire(job) for job in to_retire}
        if any(is_true(retired[uid_of(job)], "Complete") and not is_true(job, "Complete") for job in to_retire):
            # One has succeeded meanwhile, and what it trained stays its own: the next one begins in another folder.
            self.earlier.jobs = [retired.get(uid_of(job), job) for job in self.earlier.jobs]
            plan, form = self._planned(attempt)
        return self.creator.create(plan, form)

    def _planned(self, attempt: int) -> tuple[SubmissionPlan, ServedForm]:
        resolved, continued = self.creator.resolved, self.earlier.continued
        step, previous, export = self._step_of(attempt), NO_PREVIOUS, ""
        if continued is not None:
            is_continued = was_preempted(continued) or was_retried(continued)
            resumes = resumes_from_previous(resolved, is_continued=is_continued)
            resumes_from = jobsets_to_resume_from(self.creator.cluster, continued) if resumes else None
            previous = PreviousAttempt(preemptions_so_far(continued), resumes_from, retries_so_far(continued))
        latest_checkpoint = self.creator.submission.latest_checkpoint
        if latest_checkpoint is not None and can_resume_from_export(resolved):
            export = latest_checkpoint(step)
        plan = self.creator.plan(attempt, step, previous, export)
        return plan, self.creator.form(plan)

    def _created(self, created: Obj, form: ServedForm) -> Submitted:
        self.creator.check_created(created, form.trainjob)
        return self._submitted(created, form, adopted=False)

    def _submitted(self, job: Obj, form: ServedForm, *, adopted: bool) -> Submitted:
        client, event = self.creator.client, "trainjob_adopted" if adopted else "trainjob_created"
        place = (namespace_of(job), name_of(job), self.identity, client.mode)
        log.info("event=%s namespace=%s name=%s step=%s mode=%s", event, *place)
        return Submitted(job, adopted, attempt_of(job), self.choice, form.run_deadline, client)

    def _retire(self, earlier: Obj) -> Obj:
        """Wait for the end of an earlier attempt's pods, which write to the same folder, and let nobody resume it from now on.

        Returns it as it is then. Raises TrainJobNameTaken if somebody resumes it all the time.
        """
        cluster = self.creator.cluster
        for _ in range(_MAX_RETIREMENTS):
            has_ended = is_finished(earlier) or is_deleting(earlier)
            if not has_ended:
                suspend_job(cluster, earlier, superseded("its step has submitted another job"))
            wait_until_pods_ended(cluster, earlier, self.creator.stop)
            if has_ended:  # for good: nobody can resume it
                return earlier
            try:
                earlier = cluster.get(TRAINJOB, name_of(earlier), self.creator.namespace)
            except NotFound:  # also a job of the other mode, whose step has ended
                return earlier
            if earlier["spec"].get("suspend") or is_finished(earlier) or is_deleting(earlier):
                return earlier
        raise TrainJobNameTaken(f"the TrainJob {name_of(earlier)!r} is resumed again and again; suspend it, or delete it")

    def _step_of(self, attempt: int) -> Identity:
        """Return the identity of a new attempt with its folder: that of the last one of the same training, unless one has succeeded.

        An attempt between them that asked for something else, as by a wrong edit, has trained in another folder. Numbers of attempts
        are given again once jobs are deleted, and names of folders never.
        """
        request = self.creator.request
        if not self.earlier.jobs:
            if request.ending.adopt_finished:
                log.info("event=nothing_to_adopt step=%s reason='there is no job of it, or it was deleted'", self.identity)
            return self.identity
        newest_first = sorted(self.earlier.jobs, key=attempt_of, reverse=True)
        step = self.identity.of_attempt(newest_first[0])
        if not self.identity.may_resume or request.resume == LAST:
            return step
        reason = ""
        for job in newest_first:
            found = reason_to_begin_again(job, self.creator.plan(attempt, self.identity.of_attempt(job)).trainjob)
            if not found:
                same = self.identity.of_attempt(job)
                log.info("event=training_continues name=%s folder=%s of=%s", same.name(attempt), same.folder, name_of(job))
                return same
            reason = reason or found
            if is_true(job, "Complete"):  # what came before it led to this success, and is done
                break
        later = replace(step, folder_since=f"{attempt}-{secrets.token_hex(3)}")
        log.warning("event=training_begins_again name=%s folder=%s reason=%r", later.name(attempt), later.folder, reason)
        return later
