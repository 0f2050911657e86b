"""Cluster checks of `trainwright doctor`: submission mode, permissions, served APIs, and an active TrainJob controller. Read-only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from trainwright.api.errors import ApiError, Forbidden, NotFound
from trainwright.api.kinds import JOBSET, NAMESPACE, TRAINJOB, Kind
from trainwright.api.objects import Obj, name_of
from trainwright.api.times import parse_time
from trainwright.cli.findings import Finding, Level, calls_of, missing, ok, overall_level, print_command, rule_advice, warning
from trainwright.cli.manifests import RUNTIME_MISSING
from trainwright.cluster.discovery import is_allowed, served_plurals, served_versions, server_version
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.cluster.refusals import Permission
from trainwright.jobs.submit.rbac import READ_LEASE, WORKLOAD, ApiCall
from trainwright.submission.controller_lease import LeaseState, controller_state
from trainwright.submission.jobs_client import JobsClient, Mode, served_trainjob

_INSTALL_TRAINER = "install Kubeflow Trainer 2.1 or later, or apply `trainwright crds` and run `trainwright controller`"
_START_CONTROLLER = "start the controller of Kubeflow Trainer, and check its log"
_UNPROCESSED_SECONDS = 60
"""An active controller has processed a TrainJob by then."""


def check_cluster(cluster: KubernetesCluster, namespace: str) -> Iterator[Finding]:
    """Check that the API server responds and that the namespace exists. Raises ApiError if it does not respond."""
    yield ok("cluster", cluster.host, f"Kubernetes {server_version(cluster)} (credentials: {cluster.origin or 'given'})")
    try:
        cluster.get(NAMESPACE, namespace)
    except NotFound:
        yield missing(
            "namespace", namespace, "does not exist", f"create it (`kubectl create namespace {namespace}`), or use another"
        )
    except ApiError:
        return  # permissions in a namespace do not imply permission to read it
    else:
        yield ok("namespace", namespace, "exists")


def check_mode(client: JobsClient, requested: Mode) -> Finding:
    """Report the submission mode and its reason."""
    summary = f"{'auto' if requested is Mode.auto else 'forced'}: {client.reason}"
    if client.warning:
        return warning(
            "mode", client.mode, f"{summary}; {client.warning}", "force one with --submission-mode; see docs/submission.md"
        )
    return ok("mode", client.mode, summary)


def check_guard(client: JobsClient, namespace: str) -> Finding:
    """Report whether something ends jobs that nobody waits for any more. Raises ApiError."""
    guarded = client.is_guarded(namespace)
    if guarded is None:
        return ok("guard", namespace, "not known whether jobs that nobody waits for are ended: a permission is missing")
    if guarded:
        return ok("guard", namespace, "jobs that nobody waits for any more are ended")
    advice = f"`trainwright rbac --namespace {namespace} --guard` prints a guard; see docs/cancellation.md"
    return warning("guard", namespace, "nothing ends a job whose waiting step is killed: it trains on", advice)


def check_access(cluster: KubernetesCluster, namespace: str, mode: Mode = Mode.trainjob) -> Iterator[Finding]:
    """Check the permission for each API call of a job with a SelfSubjectAccessReview; calls to Kueue only if it is installed."""
    granted, needed = 0, list(_served_calls(cluster, mode))
    for call in needed:
        permission = call.permission(namespace)
        try:
            allowed = is_allowed(cluster, permission, call.name)
        except ApiError as error:
            advice = (
                "ask an administrator, or try `kubectl auth can-i --list`; "
                f"{print_command(namespace, mode)} prints the required permissions"
            )
            yield warning("access", "selfsubjectaccessreviews", f"permissions cannot be checked: {error.message}", advice)
            return
        if allowed:
            granted += 1
        else:
            yield _denied(call, namespace, mode)
    if granted:
        yield ok("access", "calls", f"{granted} of {len(needed)} API calls of a job are allowed")


def summarized_access(findings: list[Finding], namespace: str) -> list[Finding]:
    """Return the findings with the missing permissions in one line, where there are several."""
    denied = [finding for finding in findings if finding.check == "access" and finding.level is not Level.ok]
    if len(denied) < 2:  # one rule can be granted by hand; for more there is a command
        return findings
    is_jobset_mode = any(finding.check == "mode" and finding.subject == Mode.jobset for finding in findings)
    command = print_command(namespace, Mode.jobset if is_jobset_mode else Mode.trainjob)
    subjects = ", ".join(finding.subject.removesuffix(f" in the namespace {namespace}") for finding in denied)
    advice = f"{command} prints what grants them; --verbose shows what each is for"
    summary = Finding("access", f"{len(denied)} permissions", overall_level(denied), f"not allowed: {subjects}", advice)
    place = findings.index(denied[0])
    return [*findings[:place], summary, *(finding for finding in findings[place:] if finding not in denied)]


def _served_calls(cluster: KubernetesCluster, mode: Mode) -> Iterator[ApiCall]:
    """Yield the calls that are made on this cluster in this mode."""
    optional = {WORKLOAD.group, TRAINJOB.group} if mode is Mode.jobset else {WORKLOAD.group}
    absent = {group for group in optional if not _is_served(cluster, group)}
    yield from (call for call in calls_of(mode) if call.kind.group not in absent)


def _is_served(cluster: KubernetesCluster, group: str) -> bool:
    try:
        return bool(served_versions(cluster, group))
    except ApiError:
        return False  # reported by the checks of the APIs and of the queue


def _denied(call: ApiCall, namespace: str, mode: Mode) -> Finding:
    permission, needed = str(call.permission(namespace)), f"not allowed, needed to {', '.join(call.operations)}"
    if call.impact:
        return warning("access", permission, f"{needed}; without it {call.impact}", rule_advice(call, namespace, mode))
    return missing("access", permission, needed, rule_advice(call, namespace, mode))


def check_apis(cluster: KubernetesCluster, mode: Mode = Mode.trainjob) -> Iterator[Finding]:
    """Check that the required API versions are served: TrainJobs, runtimes and JobSets; in jobset mode only JobSets."""
    plurals = ("trainjobs", "trainingruntimes", "clustertrainingruntimes")
    if mode is Mode.trainjob:
        yield from _served(cluster, TRAINJOB, plurals, _INSTALL_TRAINER)
    yield from _served(cluster, JOBSET, ("jobsets",), "install JobSet, which Kubeflow Trainer requires")


def _served(cluster: KubernetesCluster, kind: Kind, plurals: tuple[str, ...], advice: str) -> Iterator[Finding]:
    versions = served_versions(cluster, kind.group)
    if kind.version not in versions:
        has = f"serves only {', '.join(versions)}" if versions else "is not served"
        yield missing("api", kind.group, f"{has}; {kind.version} is required", advice)
        return
    absent = sorted(set(plurals) - served_plurals(cluster, kind.group, kind.version))
    if absent:
        yield missing("api", kind.group, f"{kind.version} is served without {', '.join(absent)}", advice)
        return
    summary = f"; {trainer_version(cluster)}" if kind is TRAINJOB else ""
    yield ok("api", kind.group, f"served: {', '.join(versions)}{summary}")


def trainer_version(cluster: KubernetesCluster) -> str:
    """Return the version of Trainer, derived from the fields of its TrainJob CRD."""
    schema = served_trainjob(JobsClient(cluster))
    if schema is None:
        return "the TrainJob CRD cannot be read, so the API of Trainer 2.2 and later is assumed"
    if schema.has("runtimePatches"):
        return "TrainJobs of Trainer 2.2 or later"
    return "TrainJobs of Trainer 2.1: patches are sent as podTemplateOverrides, and the waiting client enforces the deadline"


def check_controller(
    cluster: KubernetesCluster,
    namespace: str,
    now: datetime | None = None,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> Finding:
    """Check for an active TrainJob controller, by the server's version, its Lease, or the status of existing jobs."""
    current_time = now or datetime.now(UTC)
    controller = controller_state(cluster, namespace, now=now, sleep=sleep)
    if controller.lease is LeaseState.alive:
        return ok("controller", "trainjobs", controller.reason)
    if controller.lease is LeaseState.gone:
        return missing("controller", "trainjobs", controller.reason, _START_CONTROLLER)
    try:
        jobs = cluster.list(TRAINJOB, namespace).items
    except ApiError as error:
        return warning("controller", "trainjobs", f"cannot be checked: {error.message}", "see `access` above")
    for job in jobs:
        if not _has_status(job) and _age_seconds(job, current_time) > _UNPROCESSED_SECONDS:
            message = f"TrainJob {name_of(job)} is older than {_UNPROCESSED_SECONDS} s, and no controller has processed it"
            return missing("controller", "trainjobs", message, _START_CONTROLLER)
    if any(_has_status(job) for job in jobs):
        return ok("controller", "trainjobs", "TrainJobs of this namespace have conditions")
    if controller.lease is LeaseState.unknown:
        message = f"{controller.reason}, and no TrainJob shows whether a controller is active"
        return warning("controller", "trainjobs", message, rule_advice(READ_LEASE, namespace))
    advice = "`kubectl get deployments -A` shows whether kubeflow-trainer-controller-manager is available"
    return warning(
        "controller", "trainjobs", f"{controller.reason}, and no TrainJob shows whether a controller is active", advice
    )


def check_admission(cluster: KubernetesCluster, namespace: str, runtime: str = "") -> Iterator[Finding]:
    """Check that the API server takes a TrainJob, by a dry run: webhooks without a controller refuse all, quotas and policies some.

    Without a runtime the refusal of an unknown one by Trainer's webhook is the good answer. Raises ApiError for what passes by itself.
    """
    trainjob = {
        "apiVersion": TRAINJOB.api_version,
        "kind": TRAINJOB.kind,
        "metadata": {"generateName": "trainwright-doctor-", "namespace": namespace},
        "spec": {"runtimeRef": {"name": runtime or "trainwright-doctor"}},
    }
    try:
        cluster.create(trainjob, dry_run=True)
    except NotFound:
        return  # the namespace or the API, which have checks of their own
    except ApiError as error:
        if "failed calling webhook" in error.message:
            advice = f"{_START_CONTROLLER}; in its place remove its webhooks, see docs/controller.md"
            yield missing("admission", "trainjobs", f"no TrainJob can be created: {error.message}", advice)
        elif error.retryable:
            raise
        elif RUNTIME_MISSING in error.message:
            yield ok("admission", "trainjobs", "the webhooks of Trainer answer")
        elif not isinstance(error, Forbidden) or is_allowed(cluster, Permission("create", TRAINJOB.resource, namespace)):
            yield missing("admission", "trainjobs", f"a TrainJob was refused in a dry run: {error.message}", "see the message")
    else:
        yield ok("admission", "trainjobs", "a TrainJob was accepted in a dry run")


def _age_seconds(job: Obj, now: datetime) -> float:
    return (now - parse_time(str(job["metadata"]["creationTimestamp"]))).total_seconds()


def _has_status(job: Obj) -> bool:
    status = job.get("status") or {}
    return bool(status.get("conditions") or status.get("jobsStatus"))
