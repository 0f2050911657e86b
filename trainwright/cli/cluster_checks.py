"""Looks of `trainwright doctor` at a cluster as a whole: how jobs are submitted to it, rights, served APIs, and whether somebody acts
on TrainJobs. Reads only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from trainwright.api.errors import ApiError, NotFound
from trainwright.api.kinds import JOBSET, NAMESPACE, TRAINJOB, Kind
from trainwright.api.objects import Obj, name_of
from trainwright.api.times import parse_time
from trainwright.cli.findings import Finding, missing, ok, warning
from trainwright.cluster.discovery import is_allowed, served_plurals, served_versions, server_version
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.jobs.submit.rbac import CALLS, ApiCall
from trainwright.submission.controller_lease import LeaseState, controller_state
from trainwright.submission.mode import Choice, Mode
from trainwright.submission.served_schema import served_trainjob

_INSTALL_TRAINER = "install Kubeflow Trainer 2.1 or later, or apply `trainwright crds` and run `trainwright controller`"
_START_CONTROLLER = "start the controller of Kubeflow Trainer, and look at its log"
_UNSEEN_SECONDS = 60
"""A controller that lives has looked at a TrainJob by then."""


def check_cluster(cluster: KubernetesCluster, namespace: str) -> Iterator[Finding]:
    """Whether it answers, and has the namespace. Raises ApiError where it does not answer."""
    yield ok("cluster", cluster.host, f"Kubernetes {server_version(cluster)} (credentials: {cluster.origin or 'given'})")
    try:
        cluster.get(NAMESPACE, namespace)
    except NotFound:
        yield missing(
            "namespace", namespace, "does not exist", f"create it (`kubectl create namespace {namespace}`), or name another"
        )
    except ApiError:
        return  # who may use a namespace need not be allowed to read it
    else:
        yield ok("namespace", namespace, "exists")


def check_mode(choice: Choice) -> Finding:
    """How jobs are submitted here, and why."""
    told = f"{'forced' if choice.forced else 'auto'}: {choice.reason}"
    if choice.warning:
        return warning("mode", choice.mode, f"{told}; {choice.warning}", "force one with --submission-mode; see docs/submission.md")
    return ok("mode", choice.mode, told)


def check_access(cluster: KubernetesCluster, namespace: str, calls: Sequence[ApiCall] = CALLS) -> Iterator[Finding]:
    """Each call that jobs make, asked of the cluster by SelfSubjectAccessReview."""
    granted = 0
    for call in calls:
        right = call.permission(namespace)
        try:
            allowed = is_allowed(cluster, right, call.name)
        except ApiError as error:
            advice = "ask an administrator, or try `kubectl auth can-i --list`; deploy/rbac.yaml has the rights that are needed"
            yield warning(
                "access", "selfsubjectaccessreviews", f"the cluster does not tell what may be done: {error.message}", advice
            )
            return
        if allowed:
            granted += 1
        else:
            yield _denied(call, str(right))
    if granted:
        yield ok("access", "calls", f"{granted} of {len(calls)} calls that jobs make are allowed")


def _denied(call: ApiCall, right: str) -> Finding:
    advice = f"grant it: verbs [{call.verb}] on {call.kind.plural}{'/' + call.subresource if call.subresource else ''} (see deploy/rbac.yaml)"
    needed = f"needed to {', '.join(call.operations)}"
    if call.impact:
        return warning("access", right, f"not allowed, {needed}; without it {call.impact}", advice)
    return missing("access", right, f"not allowed, {needed}", advice)


def check_apis(cluster: KubernetesCluster, mode: Mode = Mode.trainjob) -> Iterator[Finding]:
    """TrainJobs in a form that we speak, runtimes, and JobSets below them, or, in jobset mode, in their place."""
    plurals = ("trainjobs", "trainingruntimes", "clustertrainingruntimes")
    if mode is Mode.trainjob:
        yield from _served(cluster, TRAINJOB, plurals, _INSTALL_TRAINER)
    yield from _served(cluster, JOBSET, ("jobsets",), "install JobSet, on which Kubeflow Trainer builds")


def _served(cluster: KubernetesCluster, kind: Kind, plurals: tuple[str, ...], advice: str) -> Iterator[Finding]:
    versions = served_versions(cluster, kind.group)
    if kind.version not in versions:
        has = f"serves only {', '.join(versions)}" if versions else "is not served"
        yield missing("api", kind.group, f"{has}; {kind.version} is needed", advice)
        return
    lacking = sorted(set(plurals) - served_plurals(cluster, kind.group, kind.version))
    if lacking:
        yield missing("api", kind.group, f"{kind.version} is served without {', '.join(lacking)}", advice)
        return
    told = f"; {trainer_version(cluster)}" if kind is TRAINJOB else ""
    yield ok("api", kind.group, f"served: {', '.join(versions)}{told}")


def trainer_version(cluster: KubernetesCluster) -> str:
    """What the fields of TrainJobs tell of the version of Trainer, as far as it makes a difference to a job."""
    schema = served_trainjob(cluster)
    if schema is None:
        return "the definition of TrainJobs cannot be read, so today's form (Trainer 2.2 and later) is sent"
    if schema.has("runtimePatches"):
        return "TrainJobs of Trainer 2.2 or later"
    return "TrainJobs of Trainer 2.1: patches are sent as podTemplateOverrides, and whoever waits keeps the deadline"


def check_controller(
    cluster: KubernetesCluster,
    namespace: str,
    now: datetime | None = None,
    *,
    pause: Callable[[float], None] = time.sleep,
) -> Finding:
    """Whether somebody acts on TrainJobs: by the embedded server's own word, a Lease, or what became of the jobs that are there."""
    moment = now or datetime.now(UTC)
    seen = controller_state(cluster, namespace, now=now, sleep=pause)
    if seen.lease is LeaseState.alive:
        return ok("controller", "trainjobs", seen.reason)
    if seen.lease is LeaseState.gone:
        return missing("controller", "trainjobs", seen.reason, _START_CONTROLLER)
    try:
        jobs = cluster.list(TRAINJOB, namespace).items
    except ApiError as error:
        return warning("controller", "trainjobs", f"nobody can tell: {error.message}", "see `access` above")
    for job in jobs:
        if not _seen(job) and _created(job, moment) > _UNSEEN_SECONDS:
            message = f"TrainJob {name_of(job)} is older than {_UNSEEN_SECONDS} s, and no controller has looked at it"
            return missing("controller", "trainjobs", message, _START_CONTROLLER)
    if any(_seen(job) for job in jobs):
        return ok("controller", "trainjobs", "TrainJobs of this namespace have conditions")
    advice = "`kubectl get deployments -A` shows whether kubeflow-trainer-controller-manager is available"
    return warning("controller", "trainjobs", f"{seen.reason}, and no TrainJob tells whether a controller lives", advice)


def _created(job: Obj, now: datetime) -> float:
    return (now - parse_time(str(job["metadata"]["creationTimestamp"]))).total_seconds()


def _seen(job: Obj) -> bool:
    status = job.get("status") or {}
    return bool(status.get("conditions") or status.get("jobsStatus"))
