"""Submits a TrainJob, or adopts the one that an earlier try of the same step created. Never creates two for one attempt.

`plan_submission` decides what to create; this module performs it, in an order in which a retry after a crash at any point finds
everything that was created.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from trainwright.api import names
from trainwright.api.conditions import is_finished, is_true
from trainwright.api.errors import AlreadyExists, ApiError, Invalid, NotFound, Problem, Undecodable
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, annotations_of, is_deleting, labels_of, name_of, uid_of
from trainwright.api.verdict import superseded, verdict_of
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.retrying import RetryingCluster
from trainwright.cluster.warning_headers import OnWarning
from trainwright.jobs.diagnosis.errors import Cancelled, TrainJobNameTaken
from trainwright.jobs.diagnosis.preemption import jobsets_to_resume_from, mark_if_preempted
from trainwright.jobs.manifest.resolved_request import ResolvedRequest
from trainwright.jobs.manifest.trainjob_manifest import NO_PREVIOUS, PreviousAttempt
from trainwright.jobs.request.resume import LAST
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.state.attempts import (
    attempt_of,
    delete_previous_attempts,
    needs_new_attempt,
    preemptions_so_far,
    retries_so_far,
    was_preempted,
    was_retried,
)
from trainwright.jobs.state.cancel import suspend_job
from trainwright.jobs.state.deadline_timer import DEADLINE
from trainwright.jobs.state.identity import Identity
from trainwright.jobs.state.left_behind import waiter_notes
from trainwright.jobs.state.remaining_pods import wait_until_pods_ended
from trainwright.jobs.state.submitter import Relation
from trainwright.jobs.state.waiter_lease import lease_annotations, lease_seconds
from trainwright.jobs.state.workflow import Workflow
from trainwright.jobs.submit.adoption import (
    check_digest,
    check_owner,
    has_same_request,
    resume_if_suspended_by_us,
    supersede,
    take_lease,
    wait_until_unwatched,
)
from trainwright.jobs.submit.api_compat import ServedForm, dropped_fields, served_form
from trainwright.jobs.submit.capacity import check_capacity, nodes_of
from trainwright.jobs.submit.changed_request import changed_input, reason_to_begin_again, request_changes
from trainwright.jobs.submit.code_volume import ensure_code, set_code_owner
from trainwright.jobs.submit.job_lookup import submission_start
from trainwright.jobs.submit.memory_check import check_memory
from trainwright.jobs.submit.plan import SubmissionPlan, can_resume_from_export, plan_submission, resumes_from_previous
from trainwright.jobs.submit.queue_check import check_queue
from trainwright.jobs.submit.resolve import RuntimeChoice, resolve_with
from trainwright.jobs.submit.run_holder import check_holder, resolve_holder_conflict
from trainwright.jobs.submit.step_credentials import (
    StepCredentials,
    discard_credentials,
    ensure_credentials,
    set_credentials_owner,
)
from trainwright.jobs.submit.workflow_owner import tie_to_workflow
from trainwright.jobs.submit.workspace_claim import ensure_claim, set_claim_owner
from trainwright.submission.jobs_client import JobsClient
from trainwright.submission.served_schema import forget_served, served_trainjob

MAX_ATTEMPTS = 100
_MAX_RETIREMENTS = 3
LatestCheckpoint = Callable[[Identity], str]
"""Returns the URI of the latest export of what a step has trained in its folder, "" for none. A callback, because stores belong to a
higher layer."""
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
    cluster: Cluster,
    request: TrainRequest,
    identity: Identity,
    namespace: str,
    *,
    latest_checkpoint: LatestCheckpoint | None = None,
    stop: threading.Event | None = None,
    on_warning: OnWarning | None = None,
    workflow: Workflow | None = None,
    credentials: StepCredentials | None = None,
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
    With `resume` = auto a new job gets the export that `latest_checkpoint` returns, for a volume without checkpoints. A workspace
    claim is created on request. The runtime is resolved, the objects are built and node capacity is checked before a job is
    created, so that an invalid request fails here. Transient API errors are retried for half a minute, unless `stop` is set; a
    job whose create response was lost is found. `on_warning` receives the warnings of the API server about the job; by default
    they are logged. The job is tied to the `workflow` of its pipeline, see `tie_to_workflow`. `credentials` are written to a
    Secret that the job owns and refers to where the request names none. The job has a lease of `waiter_lease_seconds` of the client
    that is to wait for it, none for 0, see `waiter_lease`.
    Raises RuntimeNotFound, IncompatibleRuntime, PolicyMissing, QueueNotFound, Invalid, ValueError (bad workspace, BadCode),
    WorkspaceMismatch, TrainJobNameTaken, RunFolderTaken, Cancelled if `stop` is set before a job is created.
    """
    if credentials:
        request = credentials.referred_to_by(request, identity)
    client = JobsClient.of(cluster)
    retrying = RetryingCluster(client, stop=stop)
    resolved, choice = resolve_with(retrying, request, namespace, bundled=client.uses_bundled_runtimes)
    for warning in resolved.warnings:
        log.warning("event=runtime_warning name=%s warning=%s", choice.name, warning)
    seconds = lease_seconds(waiter_lease_seconds)
    submission = _Submission(resolved, identity, namespace, latest_checkpoint, stop, on_warning, choice, credentials, seconds)
    with submission.no_secret_is_left(retrying):
        submitted = submission.run(client)
    retrying = RetryingCluster(submitted.cluster, stop=stop)
    if request.workspace_volume is not None:
        set_claim_owner(retrying, request.workspace_volume, identity, submitted.trainjob)
    if resolved.code is not None:
        set_code_owner(retrying, submitted.trainjob, resolved.code)
    if credentials and not is_finished(submitted.trainjob):
        set_credentials_owner(retrying, identity, submitted.trainjob, credentials)
    if workflow is not None:
        tie_to_workflow(submitted.cluster, submitted.trainjob, workflow)
    if request.previous_jobs == "delete":
        delete_previous_attempts(retrying, submitted.trainjob, identity)
    return submitted


@dataclass(frozen=True)
class _Submission:
    """One call of `submit_or_adopt`, with its request resolved."""

    resolved: ResolvedRequest
    identity: Identity
    namespace: str
    latest_checkpoint: LatestCheckpoint | None
    stop: threading.Event | None
    on_warning: OnWarning | None
    choice: RuntimeChoice
    credentials: StepCredentials | None
    lease_seconds: int
    new_secrets: dict[str, str] = field(default_factory=dict)
    """UIDs of Secrets that this submission has created, and that no job owns yet; with the name of the job that each is for."""

    @property
    def request(self) -> TrainRequest:
        return self.resolved.request

    def run(self, connected: JobsClient) -> Submitted:
        """Try the attempts from the newest existing one until one can be adopted or created."""
        client, first, existing_jobs, previous = submission_start(connected, self.identity, self.namespace, self.stop)
        cluster = RetryingCluster(client, stop=self.stop)
        stopped = [] if previous is None else [previous]
        earlier_jobs = [*stopped, *(job for job in existing_jobs if attempt_of(job) < first)]
        for attempt in range(first, MAX_ATTEMPTS + 1):
            name = self.identity.name(attempt)
            existing = next((job for job in existing_jobs if attempt_of(job) == attempt), None)
            if existing is None:
                step = self._step_of(attempt, earlier_jobs)
                plan = self._plan(attempt, step, self._previous(cluster, previous), self._export(step))
                form = self._form(plan, client, cluster)
                retired = {uid_of(job): self._retire(cluster, job) for job in stopped}
                if any(is_true(retired[uid_of(job)], "Complete") and not is_true(job, "Complete") for job in stopped):
                    step = self._step_of(attempt, [retired.get(uid_of(job), job) for job in earlier_jobs])
                    plan = self._plan(attempt, step, self._previous(cluster, previous), self._export(step))
                    form = self._form(plan, client, cluster)
                created = self._create(plan, form, client, cluster)
                if created is not None:
                    return self._submitted(created, attempt, form, client, adopted=False)
                existing = cluster.get(TRAINJOB, name, self.namespace)  # NotFound: created and deleted in the meantime
            check_owner(existing, self.identity)
            stopped.append(existing)
            earlier_jobs.append(existing)
            if self._is_of_earlier_execution(existing):
                supersede(cluster, existing, self.request.on_cancel, "it was submitted by an earlier execution of the step")
                previous = None
                continue
            if needs_new_attempt(existing) and self._ended_unseen(cluster, existing):
                log.warning("event=trainjob_ended_unseen name=%s attempt=%d", name, attempt)
                plan = self._plan(attempt, self.identity.of_attempt(existing))
                return self._submitted(existing, attempt, self._form(plan, client, cluster), client, adopted=True)
            if needs_new_attempt(existing):
                log.info("event=attempt_ended name=%s attempt=%d", name, attempt)
                previous = mark_if_preempted(cluster, existing)  # a killed client may not have recorded it
                continue
            if not self.identity.submitter.is_certain and (existing := self._without_waiter(cluster, existing)) is None:
                previous = None
                continue
            plan = self._plan(attempt, self.identity.of_attempt(existing))
            form = self._form(plan, client, cluster)
            if not has_same_request(existing, plan.trainjob) and (
                verdict_of(existing) is not None  # nothing of it runs, and what it lacked may be what has changed
                or not self._is_adopted_changed(cluster, existing, plan.trainjob)
            ):
                previous = existing
                continue
            if not is_finished(existing):  # a client killed right after creating the job has not checked
                resolve_holder_conflict(cluster, existing, self.identity)
                self._ensure_claim(cluster)  # of this request: its size is not part of the job
                self._ensure_credentials(cluster, name)
            notes = self._waiter_notes()
            resumed = resume_if_suspended_by_us(cluster, self._noted(cluster, existing), self.stop, notes)
            adopted = take_lease(cluster, resumed, self.lease_seconds, notes)
            return self._submitted(adopted, attempt, form, client, adopted=True)
        raise TrainJobNameTaken(f"{self.identity}: {MAX_ATTEMPTS} attempts exist and have failed; delete some of their jobs")

    def _retire(self, cluster: RetryingCluster, earlier: Obj) -> Obj:
        """Wait for the end of an earlier attempt's pods, which write to the same folder, and let nobody resume it from now on.

        Returns it as it is then. Raises TrainJobNameTaken if somebody resumes it all the time.
        """
        for _ in range(_MAX_RETIREMENTS):
            has_ended = is_finished(earlier) or is_deleting(earlier)
            if not has_ended:
                suspend_job(cluster, earlier, superseded("its step has submitted another job"))
            wait_until_pods_ended(cluster, earlier, self.stop)
            if has_ended:
                return earlier
            try:
                earlier = cluster.get(TRAINJOB, name_of(earlier), self.namespace)
            except NotFound:  # also a job of the other mode, whose step has ended
                return earlier
            if earlier["spec"].get("suspend") or is_finished(earlier) or is_deleting(earlier):
                return earlier
        raise TrainJobNameTaken(f"the TrainJob {name_of(earlier)!r} is resumed again and again; suspend it, or delete it")

    def _ensure_claim(self, cluster: Cluster) -> None:
        if self.request.workspace_volume is not None:
            ensure_claim(cluster, self.request.workspace_volume, self.identity, self.namespace, self.resolved.nodes)

    def _ensure_credentials(self, cluster: Cluster, name: str) -> None:
        if self.credentials and (uid := ensure_credentials(cluster, self.identity, self.namespace, self.credentials)):
            self.new_secrets[uid] = name

    @contextmanager
    def no_secret_is_left(self, cluster: Cluster) -> Iterator[None]:
        """Delete the Secret that the block has created if it ends without a job: nothing else would ever delete it."""
        try:
            yield
        except BaseException:
            for uid, name in self.new_secrets.items():
                if self._is_absent(cluster, name):
                    discard_credentials(cluster, self.identity, self.namespace, uid)
            raise

    def _is_absent(self, cluster: Cluster, name: str) -> bool:
        """Whether there is no job of this name; False if that is not known: a job whose create response was lost needs its Secret."""
        try:
            cluster.get(TRAINJOB, name, self.namespace)
        except NotFound:
            return True
        except ApiError as error:
            log.warning("event=secret_kept name=%s error=%s", name, error.message)
        return False

    def _is_of_earlier_execution(self, existing: Obj) -> bool:
        """Whether the job was submitted before the step was cleared, or by another run of the same id whose job is not taken."""
        submitter = self.identity.submitter
        relation = submitter.relation_to(existing)
        if relation is Relation.rerun:
            return not (self.request.adopt_finished if is_finished(existing) else submitter.adopts_reruns)
        if relation is Relation.unknown and names.RESULT_SEEN_ANNOTATION in annotations_of(existing):
            return not self.request.adopt_finished
        return relation is Relation.cleared

    def _ended_unseen(self, cluster: RetryingCluster, existing: Obj) -> bool:
        """Whether the job has failed while the process that followed it in this very try was gone: its end is the end of this try.

        A job that was preempted is submitted again, as that process would have done.
        """
        if not (is_true(existing, "Failed") and self.identity.submitter.has_lost(existing)):
            return False
        return not was_preempted(mark_if_preempted(cluster, existing))

    def _noted(self, cluster: RetryingCluster, existing: Obj) -> Obj:
        """Note on the job who follows it from now on; returns it."""
        patch = self.identity.submitter.adoption_patch(existing)
        if not patch or is_finished(existing):
            return existing
        return cluster.patch(TRAINJOB, name_of(existing), patch, self.namespace)

    def _without_waiter(self, cluster: RetryingCluster, existing: Obj) -> Obj | None:
        """Return the job once its waiting client is gone; None if it has ended, so that it may be another step's result."""
        unwatched = wait_until_unwatched(cluster, existing, self.stop)
        return None if unwatched is None or is_finished(unwatched) else unwatched

    def _is_adopted_changed(self, cluster: Cluster, existing: Obj, desired: Obj) -> bool:
        """Decide on the job of an earlier try that asked for something else. Returns whether to adopt it; if not, it is stopped.

        Raises TrainJobNameTaken if it is not known that this is a retry.
        """
        changes = request_changes(existing, desired) or "its code"
        if is_finished(existing):
            log.warning("event=request_changed name=%s outcome=submitted_again changed=%r", name_of(existing), changes)
            return False
        if self.identity.submitter.relation_to(existing) is not Relation.retry:
            raise TrainJobNameTaken(
                changed_input(existing, dataset=self.request.dataset_digest, model=self.request.model_digest)
                or f"the TrainJob {name_of(existing)!r} was created from another request and has not ended; "
                f"suspend or delete it, or use another run id; changed: {changes}"
            )
        if self.request.on_changed_request == "replace":
            supersede(cluster, existing, self.request.on_cancel, f"the request has changed: {changes}")
            return False
        log.warning("event=request_changed name=%s outcome=adopted_as_it_is changed=%r", name_of(existing), changes)
        return True

    def _step_of(self, attempt: int, earlier: Sequence[Obj]) -> Identity:
        """Return the identity of a new attempt with its folder: that of the last one of the same training, unless one has succeeded.

        An attempt between them that asked for something else, as by a wrong edit, has trained in another folder. Numbers of attempts
        are given again once jobs are deleted, and names of folders never.
        """
        if not earlier:
            if self.request.adopt_finished:
                log.info("event=nothing_to_adopt step=%s reason='there is no job of it, or it was deleted'", self.identity)
            return self.identity
        newest_first = sorted(earlier, key=attempt_of, reverse=True)
        step = self.identity.of_attempt(newest_first[0])
        if not self.identity.may_resume or self.request.resume == LAST:
            return step
        reason = ""
        for job in newest_first:
            found = reason_to_begin_again(job, self._plan(attempt, self.identity.of_attempt(job)).trainjob)
            if not found:
                same = self.identity.of_attempt(job)
                log.info("event=training_continues name=%s folder=%s of=%s", same.name(attempt), same.folder, name_of(job))
                return same
            reason = reason or found
            if is_true(job, "Complete"):
                break
        later = replace(step, folder_since=f"{attempt}-{secrets.token_hex(3)}")
        log.warning("event=training_begins_again name=%s folder=%s reason=%r", later.name(attempt), later.folder, reason)
        return later

    def _plan(self, attempt: int, step: Identity, previous: PreviousAttempt = NO_PREVIOUS, export: str = "") -> SubmissionPlan:
        return plan_submission(self.resolved, step, self.namespace, attempt=attempt, previous=previous, export=export)

    def _with_lease(self, trainjob: Obj) -> Obj:
        """Return a job that tells of the client that is to wait, with its lease: it may be killed before it has renewed one."""
        notes = {key: text for key, text in self._waiter_notes().items() if text}
        annotations = {**annotations_of(trainjob), **lease_annotations(self.lease_seconds, datetime.now(UTC)), **notes}
        return {**trainjob, "metadata": {**trainjob["metadata"], "annotations": annotations}}

    def _waiter_notes(self) -> dict[str, str | None]:
        return waiter_notes(self.request.on_cancel, self.identity.submitter.waiting_pod)

    def _previous(self, cluster: Cluster, previous: Obj | None) -> PreviousAttempt:
        if previous is None:
            return NO_PREVIOUS
        is_continued = was_preempted(previous) or was_retried(previous)
        resumes = resumes_from_previous(self.resolved, is_continued=is_continued)
        resumes_from = jobsets_to_resume_from(cluster, previous) if resumes else None
        return PreviousAttempt(preemptions_so_far(previous), resumes_from, retries_so_far(previous))

    def _export(self, step: Identity) -> str:
        if self.latest_checkpoint is None or not can_resume_from_export(self.resolved):
            return ""
        return self.latest_checkpoint(step)

    def _form(self, plan: SubmissionPlan, client: JobsClient, cluster: Cluster) -> ServedForm:
        return served_form(plan.trainjob, served_trainjob(client, cluster))

    def _create(self, plan: SubmissionPlan, form: ServedForm, client: JobsClient, cluster: RetryingCluster) -> Obj | None:
        """Create the job and the objects that it needs; None if a job of this name exists already."""
        plan = replace(plan, trainjob=self._with_lease(plan.trainjob))
        form = replace(form, trainjob=self._with_lease(form.trainjob))
        for warning in plan.warnings:
            log.warning("event=submission_warning name=%s warning=%s", plan.name, warning)
        cluster.with_retries(lambda: client.check_plugins(plan.trainjob, self.resolved.runtime, self.namespace))
        if client.other is None:  # else `submission_start` has looked for jobs in the other mode
            cluster.with_retries(lambda: client.check_name(plan.trainjob))
        built = client.build(plan.trainjob, form.trainjob, self.resolved.runtime)
        if built.jobset is not None:
            check_capacity(cluster, built.jobset)
        self._check_memory(plan.name, cluster)
        check_queue(client, cluster, labels_of(plan.trainjob).get(names.QUEUE_LABEL, ""), self.namespace)
        if self.request.workspace_volume is not None:
            check_holder(cluster, plan.trainjob, self.identity)
        self._ensure_claim(cluster)
        if self.resolved.code is not None:
            ensure_code(cluster, plan.trainjob, self.resolved.code)
        self._ensure_credentials(cluster, plan.name)
        if self.stop is not None and self.stop.is_set():
            raise Cancelled(f"the submission of TrainJob {plan.name} was cancelled; no job was created")
        on_warning = self.on_warning or _log_warning(plan.name)
        try:
            created = cluster.create_once(form.trainjob, lambda: client.submit(built, on_warning=on_warning))
        except AlreadyExists:
            return None
        except Undecodable as error:
            forget_served(client)  # it may be of a version that has been replaced
            spec = form.trainjob["spec"]
            if DEADLINE in spec and not self.request.asks_for_deadline and DEADLINE in error.message:
                log.info("event=deadline_not_served name=%s", plan.name)
                known = replace(form, trainjob={**form.trainjob, "spec": _without(spec, DEADLINE)})
                return self._create(plan, known, client, cluster)
            raise
        check_owner(created, self.identity)  # it may be an existing job, if a create response was lost
        _check_nothing_dropped(cluster, form.trainjob, created, client, asks_for_deadline=self.request.asks_for_deadline)
        check_digest(created, plan.trainjob)
        resolve_holder_conflict(cluster, created, self.identity)
        return created

    def _check_memory(self, name: str, cluster: Cluster) -> None:
        if self.request.model_shape and (warning := check_memory(self.resolved, nodes_of(cluster), name)):
            if self.on_warning is not None:
                self.on_warning(warning)
            else:
                log.warning("event=memory_may_not_suffice name=%s warning=%s", name, warning)

    def _submitted(self, job: Obj, attempt: int, form: ServedForm, client: JobsClient, *, adopted: bool) -> Submitted:
        event = "trainjob_adopted" if adopted else "trainjob_created"
        log.info("event=%s namespace=%s name=%s step=%s mode=%s", event, self.namespace, name_of(job), self.identity, client.mode)
        return Submitted(job, adopted, attempt, self.choice, form.run_deadline, client)


def _log_warning(name: str) -> OnWarning:
    return lambda text: log.warning("event=api_server_warning name=%s warning=%s", name, text)


def _without(spec: Obj, field: str) -> Obj:
    return {name: value for name, value in spec.items() if name != field}


def _check_nothing_dropped(cluster: Cluster, sent: Obj, created: Obj, client: JobsClient, *, asks_for_deadline: bool) -> None:
    """Delete the job and raise Invalid naming the fields that the API server dropped because its version does not have them.

    A deadline that nobody has asked for may be missing: the client keeps it.
    """
    dropped = dropped_fields(sent, created)
    if not asks_for_deadline:
        dropped = [field for field in dropped if field != f"spec.{DEADLINE}"]
    if not dropped:
        return
    forget_served(client)
    cluster.delete(TRAINJOB, name_of(created), created["metadata"]["namespace"], uid=uid_of(created))
    problems = [Problem(field, "dropped by the API server: its version of Trainer does not have it") for field in dropped]
    raise Invalid.of("TrainJob", name_of(sent), problems, "trainer.kubeflow.org")
