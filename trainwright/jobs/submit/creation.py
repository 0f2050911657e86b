"""Creates the TrainJob of an attempt, with the claim, the code and the credentials that it needs, after everything was checked.

Objects are created in an order in which a retry after a crash at any point finds them. Only one step writes to the folder of a run:
the first TrainJob holds it, others are rejected. Two steps with the same run id and workspace would otherwise silently overwrite
each other's checkpoints.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import NamedTuple

from trainwright.api import names
from trainwright.api.errors import AlreadyExists, ApiError, Forbidden, Invalid, NotFound, Problem, Undecodable
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, annotations_of, is_deleting, labels_of, name_of, namespace_of, uid_of
from trainwright.cluster.protocol import Cluster, OnWarning
from trainwright.cluster.retrying import RetryingCluster
from trainwright.jobs.diagnosis.errors import Cancelled, RunFolderTaken
from trainwright.jobs.manifest.mounts import folder_uri
from trainwright.jobs.manifest.resolved_request import ResolvedRequest
from trainwright.jobs.manifest.trainjob_manifest import NO_PREVIOUS, PreviousAttempt
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.request.workspace import Workspace
from trainwright.jobs.state.deadline_timer import DEADLINE
from trainwright.jobs.state.identity import Identity
from trainwright.jobs.state.run_folder import label_value
from trainwright.jobs.state.waiters import lease_annotations, waiter_notes
from trainwright.jobs.submit.cluster_fit import check_capacity, check_memory, check_queue, nodes_of
from trainwright.jobs.submit.owned_objects import ensure_code
from trainwright.jobs.submit.plan import ServedForm, SubmissionPlan, dropped_fields, plan_submission, served_form
from trainwright.jobs.submit.submission import Submission, discard_credentials, ensure_credentials
from trainwright.jobs.submit.workspace_claim import ensure_claim
from trainwright.submission.jobs_client import JobsClient, forget_served, served_trainjob

log = logging.getLogger(__name__)


class Sent(NamedTuple):
    """What the create of a job was answered: the job, or None for AlreadyExists.

    `unanswered` is the job that was sent if a try before AlreadyExists got no answer: the existing job may be that one.
    """

    answer: Obj | None
    form: ServedForm
    unanswered: Obj | None = None


@dataclass(frozen=True)
class Creator:
    """Creates the jobs of one submission, whose request is resolved, on the cluster in their mode."""

    submission: Submission
    resolved: ResolvedRequest
    client: JobsClient
    cluster: RetryingCluster
    """The client, with retries."""
    stop: threading.Event
    on_warning: OnWarning | None
    lease_seconds: int
    new_secrets: dict[str, str] = field(default_factory=dict)
    """UIDs of Secrets that this submission has created, and that no job owns yet; with the name of the job that each is for."""

    @property
    def identity(self) -> Identity:
        return self.submission.identity

    @property
    def namespace(self) -> str:
        return self.submission.namespace

    @property
    def request(self) -> TrainRequest:
        return self.resolved.request

    def plan(self, attempt: int, step: Identity, previous: PreviousAttempt = NO_PREVIOUS, export: str = "") -> SubmissionPlan:
        """Plan the job of an attempt in the folder of `step`, see `plan_submission`."""
        return plan_submission(self.resolved, step, self.namespace, attempt=attempt, previous=previous, export=export)

    def form(self, plan: SubmissionPlan) -> ServedForm:
        """Return the planned job as the cluster serves it. Raises Invalid."""
        return served_form(plan.trainjob, served_trainjob(self.client, self.cluster))

    def waiter_notes(self) -> dict[str, str | None]:
        """Return the annotations that tell who waits for the job from now on."""
        return waiter_notes(self.request.ending.on_cancel, self.identity.submitter.waiting_pod)

    def ensure_claim(self) -> None:
        """Create or check the claim for a job that is about to be created or resumed, see `ensure_claim`."""
        if self.request.workspace is not None:
            ensure_claim(self.cluster, self.request.workspace, self.identity, self.namespace, self.resolved.nodes)

    def ensure_credentials(self, name: str) -> None:
        """Write the Secret for the job of this name, which is about to be created or resumed, see `ensure_credentials`."""
        credentials = self.submission.credentials
        if credentials and (uid := ensure_credentials(self.cluster, self.identity, self.namespace, credentials)):
            self.new_secrets[uid] = name

    def create(self, plan: SubmissionPlan, form: ServedForm) -> Sent:
        """Check the planned job against the cluster, then create it, `form` being what is sent.

        Raises Invalid, PolicyMissing, QueueNotFound, RunFolderTaken, Cancelled if `stop` is set, and ApiError.
        """
        plan = replace(plan, trainjob=self._with_lease(plan.trainjob))
        form = replace(form, trainjob=self._with_lease(form.trainjob))
        client, cluster = self.client, self.cluster
        for warning in plan.warnings:
            log.warning("event=submission_warning name=%s warning=%s", plan.name, warning)
        cluster.with_retries(lambda: client.check_plugins(plan.trainjob, self.resolved.runtime, self.namespace))
        if client.other is None:  # else `submission_start` has looked for jobs in the other mode
            cluster.with_retries(lambda: client.check_name(plan.trainjob))
        built = client.build(plan.trainjob, form.trainjob, self.resolved.runtime)
        if built.jobset is not None:
            check_capacity(cluster, built.jobset)
        self._check_memory(plan.name)
        check_queue(client, cluster, labels_of(plan.trainjob).get(names.QUEUE_LABEL, ""), self.namespace)
        if self.request.workspace is not None:
            check_holder(cluster, plan.trainjob, self.identity)
        self.ensure_claim()
        if self.resolved.code is not None:
            ensure_code(cluster, plan.trainjob, self.resolved.code)
        self.ensure_credentials(plan.name)
        if self.stop.is_set():
            raise Cancelled(f"the submission of TrainJob {plan.name} was cancelled; no job was created")
        on_warning = self.on_warning or (lambda text: log.warning("event=api_server_warning name=%s warning=%s", plan.name, text))
        tries = 0

        def send() -> Obj:
            nonlocal tries
            tries += 1
            return client.submit(built, on_warning=on_warning)

        try:
            return Sent(cluster.with_retries(send), form)
        except AlreadyExists:  # at the first try by another client, later perhaps by a try whose answer was lost
            return Sent(None, form, form.trainjob if tries > 1 else None)
        except Undecodable as error:
            forget_served(client)  # it may be of a version that has been replaced
            spec = form.trainjob["spec"]
            if DEADLINE in spec and not self.request.asks_for_deadline and DEADLINE in error.message:
                log.info("event=deadline_not_served name=%s", plan.name)
                without = {key: value for key, value in spec.items() if key != DEADLINE}
                return self.create(plan, replace(form, trainjob={**form.trainjob, "spec": without}))
            raise

    def check_created(self, created: Obj, sent: Obj) -> None:
        """Withdraw a job that the server has changed, or whose folder another step has taken in the same moment.

        Fields that the API server's version does not have are dropped by it. A deadline that nobody has asked for may be missing: the
        client keeps it. Raises Invalid naming the dropped fields, RunFolderTaken.
        """
        dropped = dropped_fields(sent, created)
        if not self.request.asks_for_deadline:
            dropped = [field for field in dropped if field != f"spec.{DEADLINE}"]
        if dropped:
            forget_served(self.client)
            self.cluster.delete(TRAINJOB, name_of(created), self.namespace, uid=uid_of(created))
            problems = [Problem(field, "dropped by the API server: its version of Trainer does not have it") for field in dropped]
            raise Invalid.of("TrainJob", name_of(sent), problems, "trainer.kubeflow.org")
        resolve_holder_conflict(self.cluster, created, self.identity)

    @contextmanager
    def no_secret_is_left(self) -> Iterator[None]:
        """Delete the Secret that the block has created if it ends without a job: nothing else would ever delete it."""
        try:
            yield
        except BaseException:  # a signal, too
            for uid, name in self.new_secrets.items():
                if self._is_absent(name):
                    discard_credentials(self.cluster, self.identity, self.namespace, uid)
            raise

    def _is_absent(self, name: str) -> bool:
        """Whether there is no job of this name; False if that is not known: a job whose create response was lost needs its Secret."""
        try:
            self.cluster.get(TRAINJOB, name, self.namespace)
        except NotFound:
            return True
        except ApiError as error:
            log.warning("event=secret_kept name=%s error=%s", name, error.message)
        return False

    def _with_lease(self, trainjob: Obj) -> Obj:
        """Return a job that tells of the client that is to wait, with its lease: it may be killed before it has renewed one."""
        notes = {key: text for key, text in self.waiter_notes().items() if text}
        annotations = {**annotations_of(trainjob), **lease_annotations(self.lease_seconds, datetime.now(UTC)), **notes}
        return {**trainjob, "metadata": {**trainjob["metadata"], "annotations": annotations}}

    def _check_memory(self, name: str) -> None:
        if self.request.data.model_shape and (warning := check_memory(self.resolved, nodes_of(self.cluster), name)):
            if self.on_warning is not None:
                self.on_warning(warning)
            else:
                log.warning("event=memory_may_not_suffice name=%s warning=%s", name, warning)


def check_holder(cluster: Cluster, candidate: Obj, identity: Identity) -> None:
    """Reject a job whose folder is held by that of another step than `identity`.

    Raises RunFolderTaken naming the holder, and ApiError if jobs cannot be listed.
    """
    for other in _other_holders(cluster, candidate, identity):
        raise RunFolderTaken(_conflict_message(candidate, other))


def _other_holders(cluster: Cluster, trainjob: Obj, identity: Identity) -> list[Obj]:
    folder = annotations_of(trainjob).get(names.RUN_FOLDER_ANNOTATION)
    if not folder:
        return []
    selector = f"{names.RUN_LABEL}={labels_of(trainjob)[names.RUN_LABEL]}"
    return [
        job
        for job in cluster.list(TRAINJOB, namespace_of(trainjob), label_selector=selector).items
        if annotations_of(job).get(names.RUN_FOLDER_ANNOTATION) == folder
        and annotations_of(job).get(names.OWNER_ANNOTATION) != str(identity)
        and not is_deleting(job)
    ]


def _conflict_message(trainjob: Obj, holder: Obj) -> str:
    folder, owner = annotations_of(trainjob)[names.RUN_FOLDER_ANNOTATION], annotations_of(holder).get(names.OWNER_ANNOTATION)
    return (
        f"run_id: the folder {folder} is in use by the TrainJob {name_of(holder)!r} of {owner or 'another owner'}; "
        "choose another run_id or workspace, or delete that job to take over its checkpoints"
    )


def check_run_folder(cluster: Cluster, workspace: Workspace, identity: Identity, namespace: str) -> None:
    """Like `check_holder`, for a run that has not submitted its job yet, before anything else is written to its folder."""
    metadata = {
        "name": identity.name(),
        "namespace": namespace,
        "labels": {names.RUN_LABEL: label_value(identity.run)},
        "annotations": {names.RUN_FOLDER_ANNOTATION: folder_uri(workspace, identity.folder)},
    }
    check_holder(cluster, {"metadata": metadata}, identity)


def resolve_holder_conflict(cluster: Cluster, created: Obj, identity: Identity) -> None:
    """Resolve a race after creation: if another job was created for the same folder, the later one is deleted.

    If both have the same creation time, both are deleted. Raises RunFolderTaken after deleting the job, or if it cannot be deleted.
    """
    for other in _other_holders(cluster, created, identity):
        if _created_at(other) <= _created_at(created):
            message = f"{_conflict_message(created, other)}; both were submitted at the same time"
            try:
                cluster.delete(TRAINJOB, name_of(created), namespace_of(created), propagation="Foreground", uid=uid_of(created))
            except Forbidden as error:
                raise RunFolderTaken(
                    f"{message}, and the TrainJob {name_of(created)!r} cannot be deleted: {error.message}; delete it manually"
                ) from error
            conflict = RunFolderTaken(f"{message}, and this one was deleted")
            conflict.retryable = True
            raise conflict


def _created_at(trainjob: Obj) -> str:
    return str(trainjob["metadata"].get("creationTimestamp") or "")
