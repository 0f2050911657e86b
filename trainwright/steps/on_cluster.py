"""Does the steps of a run on its workspace in pods that mount it: each step is a small TrainJob of the runtime workspace-step.

The job has the guarantees of a training: a retry adopts it, a cancellation stops it, and credentials are a Secret of its own.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainwright.api.errors import NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.names import CLAIMS_VARIABLE
from trainwright.api.objects import name_of, namespace_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs import EventPrinter, Identity, TrainRequest
from trainwright.jobs.credentials.store_variables import step_secrets
from trainwright.jobs.diagnosis.errors import TrainJobFailed
from trainwright.jobs.logs.training_log import results_of
from trainwright.jobs.manifest.training_program import escape_expansion
from trainwright.jobs.request.workspace import Workspace
from trainwright.jobs.submit.submission import StepCredentials, Submission
from trainwright.jobs.wait.give_up import CancelHandler
from trainwright.jobs.wait.run_step import run_to_end
from trainwright.jobs.wait.waiting import Waiting
from trainwright.steps.ends.step_end import RemoteStepFailed, error_of
from trainwright.steps.requests import ExportCheckpoint, FilesJob, StepRequest, StepRun, job_request
from trainwright.steps.workspace_program import ERROR, RESULT
from trainwright.storage.errors import NotMounted
from trainwright.storage.open import check_mounted
from trainwright.storage.uri import StorageUri

MOUNT = "/trainwright-workspace"
_VOLUME = "claim"
NO_JOB_SETTINGS = FilesJob()


@dataclass(frozen=True)
class ClusterSteps:
    """Steps in pods of `cluster`, on the claim that `workspace` names (`pvc://CLAIM[/FOLDER]`).

    `identity` is that of the orchestrator's step, `job` has the settings of the pods.
    """

    cluster: Cluster
    workspace: Workspace
    identity: Identity
    namespace: str
    job: FilesJob = NO_JOB_SETTINGS
    credentials: StepCredentials | None = None
    event_printer: EventPrinter | None = None
    on_signal: CancelHandler | None = None

    def __call__(self, request: StepRequest, run: StepRun) -> dict[str, Any]:
        """Return the result of a step of `workspace_steps.STEPS`.

        Raises ValueError for an export to a folder of the pod, RemoteStepInvalid, RemoteStepFailed, and the errors of `run_to_end`.
        """
        if isinstance(request, ExportCheckpoint):
            check_target(request.export_uri)
        step, asked = request.step_name(), json.dumps({"request": request.given_values(), "run": run._asdict()}, sort_keys=True)
        once = f"-{hashlib.sha256(asked.encode()).hexdigest()[:8]}" if request.is_asked_again else ""
        identity = replace(self.identity, step=f"{self.identity.step}-{step}{once}", may_resume=False)
        job = self._job(step, asked, identity)
        for is_last in (False, True):
            try:
                submission = Submission(self.cluster, job, identity, self.namespace, credentials=self.credentials)
                trainjob = run_to_end(submission, Waiting.of(job, self.event_printer, on_signal=self.on_signal))
            except TrainJobFailed as error:
                report = results_of(self.cluster, error.trainjob)
                if isinstance(report, dict) and isinstance(report.get(ERROR), dict):
                    raise error_of(report[ERROR], f"TrainJob {name_of(error.trainjob)}") from error
                raise
            report = results_of(self.cluster, trainjob)
            if isinstance(report, dict) and isinstance(report.get(RESULT), dict):
                return dict(report[RESULT])
            if not is_last:  # it ended long ago, and its log is gone: every step may be done twice
                self._delete(trainjob)
        raise RemoteStepFailed(f"TrainJob {namespace_of(trainjob)}/{name_of(trainjob)} succeeded, but its log has no result")

    def _job(self, step: str, asked: str, identity: Identity) -> TrainRequest:
        mount = {"name": _VOLUME, "mountPath": MOUNT, **({"subPath": self.workspace.path} if self.workspace.path else {})}
        secrets = step_secrets(self.job.secrets.store_secret, self.job.secrets.hub_secret)
        own = self.credentials.variables(identity) if self.credentials else {}
        request, place = job_request(self.job), self.job.placement
        claim = {"name": _VOLUME, "persistentVolumeClaim": {"claimName": self.workspace.claim}}
        # By this variable, sources on the claim of the workspace are found; not where only a folder of it is mounted.
        claims = {} if self.workspace.path else {CLAIMS_VARIABLE: f"{self.workspace.claim}={MOUNT}"}
        return request.having(
            runtime=self.job.runtime,
            env={**claims, **secrets, **self.job.env, **own},
            args=[step, escape_expansion(asked)],
            placement=place.having(volumes=[*place.volumes, claim], volume_mounts=[*place.volume_mounts, mount]),
            limits=request.limits.having(fail_on_divergence=False),
        ).checked()

    def _delete(self, trainjob: Any) -> None:
        try:
            self.cluster.delete(TRAINJOB, name_of(trainjob), namespace_of(trainjob), uid=uid_of(trainjob))
        except NotFound:  # deleted already
            return


def check_target(export_uri: str, mount: str = MOUNT) -> None:
    """Refuse an export to a folder that only the pod has: it would succeed, and be lost with the pod.

    `mount` is where the pods of the steps have the workspace. Raises ValueError, BadUri.
    """
    target = StorageUri.parse(export_uri)
    if target.scheme == "file" and not Path(target.path).is_relative_to(mount):
        raise ValueError(
            f"export_uri: {target} is a folder in the pod of the step, and would be lost with it; use an object store, or a folder "
            f"of the workspace: file://{mount}/..."
        )


def only_pods_see(export_uri: str) -> bool:
    """Whether exports are on the workspace where pods mount it, and this process does not see them. Raises BadUri, NotPermitted."""
    target = StorageUri.parse(export_uri)
    # It can be read from anywhere, or is not on the workspace.
    if target.scheme != "file" or not Path(target.path).is_relative_to(MOUNT):
        return False
    try:
        check_mounted(target)
    except NotMounted:
        return True
    return False
