"""Connects to a cluster for TrainJobs, and chooses how they are submitted: as TrainJobs, or as JobSets if no controller handles them.

The choice depends on the APIs that the cluster serves, unless a mode is requested. The embedded control plane is never a fallback:
it is used only on request.
"""

from __future__ import annotations

import logging
from pathlib import Path

from trainwright.api.errors import ApiError, Forbidden, NotFound
from trainwright.api.kinds import JOBSET, TRAINER, TRAINJOB, Kind
from trainwright.cluster.connect import NoCluster, connect, start_embedded
from trainwright.cluster.discovery import is_allowed, served_plurals
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.cluster.refusals import Permission
from trainwright.cluster.retrying import RetryingCluster
from trainwright.submission.controller_lease import LeaseState, controller_state
from trainwright.submission.jobs_client import JobsClient, Mode, requested_mode
from trainwright.submission.jobset_mode import JobSetCluster

_Choice = tuple[Mode, str, str]
"""The mode trainjob or jobset, why it was chosen, and a possible problem."""
log = logging.getLogger(__name__)


class NoTrainingApi(NoCluster):
    """The cluster does not serve the API that the mode needs; the message states what to install."""


def connect_for_jobs(
    kubeconfig: str | Path | None = None,
    *,
    context: str | None = None,
    embedded: str | Path | None = None,
    namespace: str = "",
    mode: str = "",
    in_cluster: bool = False,
) -> JobsClient:
    """Connect as `connect` does, to submit or follow TrainJobs, in the requested mode or the one that suits the cluster.

    `namespace` overrides the kubeconfig's. The mode `embedded` starts the embedded control plane with the home `embedded`,
    or with the default home; with `in_cluster` only the pod's service account counts. Raises NoCluster, NoTrainingApi, and
    ApiError if the API server is unreachable.
    """
    requested = requested_mode(mode)
    if requested is Mode.embedded and embedded is None:
        if kubeconfig is None:
            kubeconfig = start_embedded()
        elif mode:
            raise NoCluster(f"the submission mode embedded conflicts with the kubeconfig {kubeconfig}: use only one of them")
        else:  # the kubeconfig argument overrides the environment variable
            requested = Mode.auto
    cluster = connect(kubeconfig, context=context, embedded=embedded, in_cluster=in_cluster)
    return for_jobs(cluster, requested, namespace=namespace)


def for_jobs(cluster: KubernetesCluster, mode: str = "", *, namespace: str = "") -> JobsClient:
    """Return a client for a cluster, as `connect_for_jobs` does; logs the chosen mode."""
    client = choose_client(cluster, requested_mode(mode), namespace=namespace)
    log.info("event=submission_mode_selected mode=%s reason=%s host=%s", client.mode, client.reason, cluster.host)
    if client.warning:
        log.warning("event=submission_mode_warning mode=%s warning=%s", client.mode, client.warning)
    return client


def choose_client(cluster: KubernetesCluster, requested: Mode = Mode.auto, *, namespace: str = "") -> JobsClient:
    """Return a client in the mode that suits the cluster, or in the requested one if it can be used.

    Raises NoTrainingApi, ApiError.
    """
    namespace = namespace or cluster.default_namespace
    served = frozenset(RetryingCluster(cluster).with_retries(lambda: served_plurals(cluster, TRAINJOB.group, TRAINJOB.version)))
    has_trainjobs = TRAINJOB.plural in served
    mode, reason, warning = _choice(cluster, requested, namespace, has_trainjobs)
    trainjobs = JobsClient(cluster, default_namespace=namespace)
    jobsets = JobSetCluster(cluster, served=served, default_namespace=namespace)
    client, other = (jobsets, trainjobs) if mode is Mode.jobset else (trainjobs, jobsets)
    client.reason, client.warning = reason, warning
    if requested is Mode.auto and has_trainjobs:
        client.other = other
    return client


def _choice(cluster: KubernetesCluster, requested: Mode, namespace: str, has_trainjobs: bool) -> _Choice:
    with_retries = RetryingCluster(cluster).with_retries
    if requested in (Mode.trainjob, Mode.embedded):
        if not has_trainjobs:
            raise NoTrainingApi(
                f"{cluster.host} serves no {TRAINJOB.resource}, and the mode {requested} requires them: {_INSTALL}"
            )
        return Mode.trainjob, "requested", ""
    controller = None
    if requested is Mode.auto and has_trainjobs:
        if with_retries(lambda: _may_create_only_jobsets(cluster, namespace)):
            return Mode.jobset, "this account may create JobSets, but no TrainJobs", ""
        controller = with_retries(lambda: controller_state(cluster, namespace))
        if controller.lease is LeaseState.alive:
            return Mode.trainjob, controller.reason, ""
        if controller.lease is LeaseState.unknown:  # no sign of a problem: no warning
            return Mode.trainjob, f"TrainJobs are served; {controller.reason}", ""
    has_jobsets = JOBSET.plural in with_retries(lambda: served_plurals(cluster, JOBSET.group, JOBSET.version))
    if controller is not None:
        reason = f"TrainJobs are served, and {controller.reason}"
        if controller.lease is not LeaseState.gone and _any_trainjob_has_status(cluster, namespace):
            return Mode.trainjob, f"{reason}, but TrainJobs have a status", ""
        if has_jobsets and with_retries(lambda: _may_create(cluster, JOBSET, namespace, unknown=True)):  # else the create says it
            return Mode.jobset, reason, _NOT_PROCESSED
        if has_jobsets:
            return Mode.trainjob, f"{reason}; this account may not create JobSets", _AWAY
        warning = (
            f"there may be no controller for TrainJobs ({controller.reason}): a job would not start. See `trainwright doctor`"
        )
        return Mode.trainjob, reason, warning
    if not has_jobsets:
        what = "neither" if requested is Mode.auto else "no"
        raise NoTrainingApi(f"{cluster.host} serves {what} {JOBSET.resource} {JOBSET.version} {_NOR[requested]}: {_INSTALL}")
    return Mode.jobset, "requested" if requested is Mode.jobset else f"{TRAINER} is not served, {JOBSET.group} is", ""


_NOR = {Mode.auto: f"nor {TRAINJOB.resource}", Mode.jobset: "which the mode jobset requires"}
_INSTALL = (
    "install Kubeflow Trainer, or JobSet, or both with `trainwright crds` and `trainwright controller` (docs/submission.md); "
    "for a local cluster use the mode embedded"
)
_AWAY = (
    "the controller of Trainer is away: a job starts when it is back. Its webhook may refuse new TrainJobs until then; see "
    "`trainwright doctor`"
)
_NOT_PROCESSED = (
    "existing TrainJobs of this cluster are not processed; when their controller is back, new jobs are submitted to it"
)


def _may_create_only_jobsets(cluster: KubernetesCluster, namespace: str) -> bool:
    """Whether this account has the rights of jobset mode alone. False if it may not review them. Raises ApiError."""
    may_create_trainjobs = _may_create(cluster, TRAINJOB, namespace, unknown=True)
    return not may_create_trainjobs and _may_create(cluster, JOBSET, namespace, unknown=False)


def _may_create(cluster: KubernetesCluster, kind: Kind, namespace: str, *, unknown: bool) -> bool:
    """Whether this account may create objects of this kind; `unknown` if it may not review that. Raises ApiError."""
    try:
        return is_allowed(cluster, Permission("create", kind.resource, namespace))
    except (Forbidden, NotFound):  # no right to review rights, or no such API
        return unknown


def _any_trainjob_has_status(cluster: KubernetesCluster, namespace: str) -> bool:
    """Whether any TrainJob of the namespace has a status, which shows that a controller has processed it."""
    try:
        jobs = RetryingCluster(cluster).list(TRAINJOB, namespace).items
    except ApiError as error:  # without rights nobody knows: as if there were none
        log.debug("event=trainjobs_not_listed error=%s", error.message)
        return False
    return any((job.get("status") or {}).get(part) for job in jobs for part in ("conditions", "jobsStatus"))
