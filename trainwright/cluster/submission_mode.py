"""How TrainJobs are submitted to a cluster: as TrainJobs, or, where nobody acts on those, as the JobSets that they would become.

Chosen by what the cluster serves, logged, and forced by an argument, a connection or TRAINWRIGHT_SUBMISSION_MODE. An embedded control
plane is a cluster that was asked for; nothing falls back to one.
"""

from __future__ import annotations

import enum
import logging
import os
from dataclasses import dataclass, replace
from pathlib import Path

from trainwright.api.errors import ApiError
from trainwright.api.kinds import JOBSET, TRAINER, TRAINJOB
from trainwright.cluster.connect import NoCluster, connect, start_embedded
from trainwright.cluster.jobset_mode import JobSetCluster
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.cluster.live_controller import ControllerLife, Life, controller_life
from trainwright.cluster.patient import PatientCluster
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.self_review import served_plurals

VARIABLE = "TRAINWRIGHT_SUBMISSION_MODE"
JobsCluster = KubernetesCluster | JobSetCluster
"""A cluster on which jobs can be submitted and followed; either has a `default_namespace`."""
log = logging.getLogger(__name__)


class Mode(enum.StrEnum):
    auto = "auto"
    trainjob = "trainjob"
    jobset = "jobset"
    embedded = "embedded"


class NoTrainingApi(NoCluster):
    """The cluster has no API that the mode could submit to; the message says what to install."""


@dataclass(frozen=True)
class Choice:
    """`mode` is trainjob or jobset; `why` what it was chosen for, `doubt` what may be wrong with it."""

    mode: Mode
    why: str
    doubt: str = ""
    served: frozenset[str] = frozenset()
    """Resources of Trainer's API that the cluster serves."""
    forced: bool = False

    @property
    def could_differ(self) -> bool:
        """Whether another look at the same cluster could choose the other one."""
        return not self.forced and TRAINJOB.plural in self.served


def wanted_mode(given: str = "") -> Mode:
    """The mode that was asked for: by the argument, else by TRAINWRIGHT_SUBMISSION_MODE, else auto. Raises NoCluster."""
    text, where = (given, "submission mode") if given else (os.environ.get(VARIABLE) or Mode.auto, VARIABLE)
    if text not in list(Mode):
        raise NoCluster(f"{where}: {text!r} is none of {', '.join(Mode)}")
    return Mode(text)


def connect_for_jobs(
    kubeconfig: str | Path | None = None,
    *,
    context: str | None = None,
    embedded: str | Path | None = None,
    namespace: str = "",
    mode: str = "",
) -> JobsCluster:
    """As `connect`, for somebody who submits or follows TrainJobs: in the mode that is asked for, or that this cluster calls for.

    `namespace` stands in for the one of the credentials. The mode `embedded` starts the embedded control plane of `embedded`, or
    of the default home. Raises NoCluster, NoTrainingApi, and ApiError for a cluster that does not answer.
    """
    wanted = wanted_mode(mode)
    if wanted is Mode.embedded and embedded is None:
        if kubeconfig is None:
            kubeconfig = start_embedded()
        elif mode:
            raise NoCluster(f"the submission mode embedded, and the kubeconfig {kubeconfig}: name one of the two")
        else:  # what is said of this one call holds before what the environment says of all
            wanted = Mode.auto
    cluster = connect(kubeconfig, context=context, embedded=embedded)
    cluster.default_namespace = namespace or cluster.default_namespace
    return for_jobs(cluster, wanted)


def for_jobs(cluster: KubernetesCluster, mode: str = "") -> JobsCluster:
    """The cluster in that mode, as `connect_for_jobs`; the choice is logged, and kept in it."""
    choice = chosen_mode(cluster, wanted_mode(mode))
    log.info("submission mode chosen mode=%s why=%s host=%s", choice.mode, choice.why, cluster.host)
    if choice.doubt:
        log.warning("submission mode=%s %s", choice.mode, choice.doubt)
    return in_mode(cluster, choice)


def in_mode(cluster: KubernetesCluster, choice: Choice) -> JobsCluster:
    """The cluster as that choice says."""
    if choice.mode is Mode.trainjob:
        cluster.choice = choice
        return cluster
    adapted = JobSetCluster(cluster, served=choice.served, default_namespace=cluster.default_namespace)
    adapted.choice = choice
    return adapted


def chosen_mode(cluster: KubernetesCluster, wanted: Mode = Mode.auto, *, namespace: str = "") -> Choice:
    """What the cluster calls for, or whether it can do what is wanted. Asked patiently. Raises NoTrainingApi, ApiError."""
    ask = PatientCluster(cluster).patiently
    served = frozenset(ask(lambda: served_plurals(cluster, TRAINJOB.group, TRAINJOB.version)))
    has_trainjobs = TRAINJOB.plural in served
    if wanted in (Mode.trainjob, Mode.embedded):
        if not has_trainjobs:
            raise NoTrainingApi(f"{cluster.host} serves no {TRAINJOB.resource}, and the mode {wanted} needs them: {_INSTALL}")
        return Choice(Mode.trainjob, "asked for", served=served, forced=True)
    seen = None
    if wanted is Mode.auto and has_trainjobs:
        seen = ask(lambda: controller_life(cluster, namespace or cluster.default_namespace))
        if seen.life is Life.alive:
            return Choice(Mode.trainjob, seen.why, served=served)
    has_jobsets = JOBSET.plural in ask(lambda: served_plurals(cluster, JOBSET.group, JOBSET.version))
    if seen is not None:
        acted_on = _are_acted_on(cluster, namespace or cluster.default_namespace)
        return _without_sign_of_life(seen, served, has_jobsets, acted_on)
    if not has_jobsets:
        what = "neither" if wanted is Mode.auto else "no"
        raise NoTrainingApi(f"{cluster.host} serves {what} {JOBSET.resource} {JOBSET.version} {_NOR[wanted]}: {_INSTALL}")
    forced = wanted is Mode.jobset
    why = "asked for" if forced else f"{TRAINER} is not served, {JOBSET.group} is"
    return Choice(Mode.jobset, why, served=served, forced=forced)


_NOR = {Mode.auto: f"nor {TRAINJOB.resource}", Mode.jobset: "which the mode jobset needs"}
_INSTALL = (
    "install Kubeflow Trainer, or JobSet, or both with `trainwright crds` and `trainwright controller` (docs/submission.md); "
    "for a cluster on this machine ask for the mode embedded"
)


def _without_sign_of_life(seen: ControllerLife, served: frozenset[str], has_jobsets: bool, acted_on: bool) -> Choice:
    """TrainJobs are served, and no Lease says that somebody acts on them. Pure."""
    told = f"TrainJobs are served, and {seen.why}"
    if seen.life is not Life.gone and acted_on:
        return Choice(Mode.trainjob, f"{told}, but TrainJobs have a status", served=served)
    if seen.life is not Life.unknown and has_jobsets:
        doubt = "TrainJobs of this cluster are not looked at; when their controller is back, new jobs go to it"
        return Choice(Mode.jobset, told, doubt=doubt, served=served)
    doubt = f"nobody may be there to act on TrainJobs ({seen.why}): a job would not start. See `trainwright doctor`"
    return Choice(Mode.trainjob, told, doubt=doubt, served=served)


def _are_acted_on(cluster: KubernetesCluster, namespace: str) -> bool:
    """Whether any TrainJob of the namespace shows that a controller has looked at it."""
    try:
        jobs = cluster.list(TRAINJOB, namespace).items
    except ApiError as error:
        log.debug("TrainJobs cannot be listed error=%s", error.message)
        return False
    return any((job.get("status") or {}).get(part) for job in jobs for part in ("conditions", "jobsStatus"))


def other_mode(cluster: JobsCluster) -> JobsCluster:
    """The same cluster in the mode that was not chosen."""
    if isinstance(cluster, KubernetesCluster):
        return in_mode(cluster, replace(choice_of(cluster), mode=Mode.jobset, forced=True))
    assert isinstance(cluster.behind, KubernetesCluster), "no choice is made for others"
    return in_mode(cluster.behind, replace(choice_of(cluster), mode=Mode.trainjob, forced=True))


def choice_of(cluster: Cluster) -> Choice:
    """The choice that was made for this cluster; where none was, the mode that it is in."""
    made = getattr(cluster, "choice", None)
    mode = Mode.jobset if isinstance(cluster, JobSetCluster) else Mode.trainjob
    return made if made is not None else Choice(mode, "as connected", forced=True)
