"""Chooses how TrainJobs are submitted to a cluster: as TrainJobs, or as JobSets if no controller handles TrainJobs.

The choice depends on the APIs that the cluster serves; an argument, a connection or TRAINWRIGHT_SUBMISSION_MODE overrides it.
The embedded control plane is never a fallback: it is used only on request.
"""

from __future__ import annotations

import enum
import logging
import os
from dataclasses import dataclass

from trainwright.api.errors import ApiError, Forbidden, NotFound
from trainwright.api.kinds import JOBSET, TRAINER, TRAINJOB
from trainwright.cluster.connect import NoCluster
from trainwright.cluster.discovery import is_allowed, served_plurals
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.cluster.permissions import Permission
from trainwright.cluster.retrying import RetryingCluster
from trainwright.submission.controller_lease import ControllerState, LeaseState, controller_state

VARIABLE = "TRAINWRIGHT_SUBMISSION_MODE"
log = logging.getLogger(__name__)


class Mode(enum.StrEnum):
    auto = "auto"
    trainjob = "trainjob"
    jobset = "jobset"
    embedded = "embedded"


class NoTrainingApi(NoCluster):
    """The cluster does not serve the API that the mode needs; the message states what to install."""


@dataclass(frozen=True)
class Choice:
    """`mode` is trainjob or jobset; `reason` is why it was chosen, `warning` a possible problem."""

    mode: Mode
    reason: str
    warning: str = ""
    served: frozenset[str] = frozenset()
    """Resources of Trainer's API that the cluster serves."""
    forced: bool = False

    @property
    def could_differ(self) -> bool:
        """Whether the other mode may be chosen for the same cluster at another time."""
        return not self.forced and TRAINJOB.plural in self.served


def requested_mode(given: str = "") -> Mode:
    """Return the requested mode: the argument, else TRAINWRIGHT_SUBMISSION_MODE, else auto. Raises NoCluster."""
    text, where = (given, "submission mode") if given else (os.environ.get(VARIABLE) or Mode.auto, VARIABLE)
    if text not in list(Mode):
        raise NoCluster(f"{where}: {text!r} is not one of {', '.join(Mode)}")
    return Mode(text)


def choose_mode(cluster: KubernetesCluster, requested: Mode = Mode.auto, *, namespace: str = "") -> Choice:
    """Return the mode that suits the cluster, or the requested one if it can be used. Raises NoTrainingApi, ApiError."""
    with_retries = RetryingCluster(cluster).with_retries
    served = frozenset(with_retries(lambda: served_plurals(cluster, TRAINJOB.group, TRAINJOB.version)))
    has_trainjobs = TRAINJOB.plural in served
    if requested in (Mode.trainjob, Mode.embedded):
        if not has_trainjobs:
            raise NoTrainingApi(
                f"{cluster.host} serves no {TRAINJOB.resource}, and the mode {requested} requires them: {_INSTALL}"
            )
        return Choice(Mode.trainjob, "requested", served=served, forced=True)
    controller = None
    if requested is Mode.auto and has_trainjobs:
        if with_retries(lambda: _may_create_only_jobsets(cluster, namespace or cluster.default_namespace)):
            return Choice(Mode.jobset, "this account may create JobSets, but no TrainJobs", served=served)
        controller = with_retries(lambda: controller_state(cluster, namespace or cluster.default_namespace))
        if controller.lease is LeaseState.alive:
            return Choice(Mode.trainjob, controller.reason, served=served)
        if controller.lease is LeaseState.unknown:  # no sign of a problem: no warning
            return Choice(Mode.trainjob, f"TrainJobs are served; {controller.reason}", served=served)
    has_jobsets = JOBSET.plural in with_retries(lambda: served_plurals(cluster, JOBSET.group, JOBSET.version))
    if controller is not None:
        has_status = _any_trainjob_has_status(cluster, namespace or cluster.default_namespace)
        return _without_active_lease(controller, served, has_jobsets, has_status)
    if not has_jobsets:
        what = "neither" if requested is Mode.auto else "no"
        raise NoTrainingApi(f"{cluster.host} serves {what} {JOBSET.resource} {JOBSET.version} {_NOR[requested]}: {_INSTALL}")
    forced = requested is Mode.jobset
    reason = "requested" if forced else f"{TRAINER} is not served, {JOBSET.group} is"
    return Choice(Mode.jobset, reason, served=served, forced=forced)


_NOR = {Mode.auto: f"nor {TRAINJOB.resource}", Mode.jobset: "which the mode jobset requires"}
_INSTALL = (
    "install Kubeflow Trainer, or JobSet, or both with `trainwright crds` and `trainwright controller` (docs/submission.md); "
    "for a local cluster use the mode embedded"
)


def _may_create_only_jobsets(cluster: KubernetesCluster, namespace: str) -> bool:
    """Whether this account has the rights of jobset mode alone. False if it may not review them. Raises ApiError."""
    try:
        if is_allowed(cluster, Permission("create", TRAINJOB.resource, namespace)):
            return False
        return is_allowed(cluster, Permission("create", JOBSET.resource, namespace))
    except (Forbidden, NotFound):
        return False


def _without_active_lease(controller: ControllerState, served: frozenset[str], has_jobsets: bool, has_status: bool) -> Choice:
    """Choose the mode if TrainJobs are served but no Lease shows an active controller. Pure."""
    reason = f"TrainJobs are served, and {controller.reason}"
    if controller.lease is not LeaseState.gone and has_status:
        return Choice(Mode.trainjob, f"{reason}, but TrainJobs have a status", served=served)
    if has_jobsets:
        warning = (
            "existing TrainJobs of this cluster are not processed; when their controller is back, new jobs are submitted to it"
        )
        return Choice(Mode.jobset, reason, warning=warning, served=served)
    warning = f"there may be no controller for TrainJobs ({controller.reason}): a job would not start. See `trainwright doctor`"
    return Choice(Mode.trainjob, reason, warning=warning, served=served)


def _any_trainjob_has_status(cluster: KubernetesCluster, namespace: str) -> bool:
    """Whether any TrainJob of the namespace has a status, which shows that a controller has processed it."""
    try:
        jobs = RetryingCluster(cluster).list(TRAINJOB, namespace).items
    except ApiError as error:
        log.debug("event=trainjobs_not_listed error=%s", error.message)
        return False
    return any((job.get("status") or {}).get(part) for job in jobs for part in ("conditions", "jobsStatus"))
