"""Checks of `trainwright doctor` for the resources of a job: its runtime, queue, claim and store.

Only the store is written to, to check whether it supports conditional writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

from trainwright.api import names
from trainwright.api.conditions import condition
from trainwright.api.errors import ApiError, BadRequest, Forbidden, Invalid, NotFound
from trainwright.api.kinds import CLAIM, POD
from trainwright.api.objects import Obj, labels_of, name_of
from trainwright.cli.findings import Finding, missing, ok, rule_advice, warning
from trainwright.cluster.discovery import served_versions
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.cluster.refusals import is_admission_rejection
from trainwright.jobs.diagnosis.stuck_causes import refusal_of
from trainwright.jobs.manifest.resolved_request import replicated_jobs
from trainwright.jobs.state.kubernetes_events import LOCAL_QUEUE
from trainwright.jobs.submit.cluster_fit import QueueNotFound
from trainwright.jobs.submit.cluster_fit import check_queue as require_queue
from trainwright.jobs.submit.rbac import LIST_LOCAL_QUEUES, LIST_RUNTIMES, READ_CLAIM, ApiCall
from trainwright.jobs.submit.resolve import steps_of_runtime
from trainwright.materialize.frameworks.labelled_runtime import framework_without_peers
from trainwright.runtimes import RuntimeNotFound, bundled_runtimes
from trainwright.storage import StorageError, open_store
from trainwright.storage.errors import BadUri
from trainwright.submission.jobs_client import NO_POLICY, USE_PLUGINS, JobsClient, Mode
from trainwright.submission.runtime_lookup import resolve_in_cluster
from trainwright.text.suggest import suggest

_APPLY_HINT = "`trainwright runtimes apply NAME` creates a bundled runtime in the cluster"


def check_runtimes(client: JobsClient, namespace: str, requested: str = "") -> Iterator[Finding]:
    """Check the runtimes that jobs can use, and their labels; the requested one must exist."""
    found: dict[str, Obj] = {name_of(runtime): runtime for runtime in bundled_runtimes()} if client.uses_bundled_runtimes else {}
    is_complete, is_absent = True, True
    for list_call in LIST_RUNTIMES:
        kind, where = list_call.kind, namespace if list_call.kind.namespaced else None
        try:
            found |= {name_of(runtime): runtime for runtime in client.list(kind, where).items}
        except NotFound:
            continue  # reported by the API check
        except ApiError as error:
            is_complete = False
            yield _not_listed("runtime", kind.plural, error, list_call, namespace, client.mode)
            if requested and requested not in found:
                try:
                    found[requested] = client.get(kind, requested, where)
                except ApiError as unread:
                    is_absent = is_absent and isinstance(unread, NotFound)
    if requested and requested not in found and is_absent:
        yield missing("runtime", requested, "does not exist", suggest(requested, found) or _APPLY_HINT)
    elif requested and requested not in found:
        yield warning("runtime", requested, "cannot be read, so it may or may not exist", "see `access` above")
    if not found and is_complete:
        yield missing("runtime", "all", "there is no runtime, but a TrainJob requires one", _APPLY_HINT)
    why_no_plugins = cache(lambda: client.why_no_plugins(namespace))
    for name in [requested] if requested in found else sorted(found):
        yield _runtime(name, found[name])
        yield from _plugin(name, found[name], why_no_plugins)


def check_pods(client: JobsClient, namespace: str, runtime_name: str) -> Iterator[Finding]:
    """Check that the namespace admits the pods of a runtime, by a dry run: Pod Security, policies, quotas. Raises ApiError."""
    try:
        runtime = resolve_in_cluster(client, {"name": runtime_name}, namespace, bundled=client.uses_bundled_runtimes).runtime
    except RuntimeNotFound:  # reported by the check of the runtime
        return
    name, accepted = name_of(runtime), 0
    for job in replicated_jobs(runtime):
        template = job["template"]["spec"]["template"]
        pod = {
            "apiVersion": POD.api_version,
            "kind": POD.kind,
            "metadata": {**(template.get("metadata") or {}), "generateName": "trainwright-doctor-", "namespace": namespace},
            "spec": {"restartPolicy": "Never", **(template.get("spec") or {})},
        }
        try:
            client.create(pod, dry_run=True)
        except Forbidden as error:
            if not is_admission_rejection(error):
                yield ok("pods", name, "not checked: this account may not create pods")
                return
            refusal = refusal_of(error.message)
            advice = refusal.advice if refusal is not None else "see the message"
            yield missing("pods", name, f"step {job['name']} was refused in a dry run: {error.message}", advice)
        except (Invalid, BadRequest) as error:  # a job may have to add what it lacks, such as an image
            yield warning("pods", name, f"step {job['name']} cannot be checked: {error.message}", "submit with --dry-run server")
        else:
            accepted += 1
    if accepted == len(replicated_jobs(runtime)):
        yield ok("pods", name, "accepted in a dry run")


def _plugin(name: str, runtime: Obj, why_no_plugins: Callable[[], str]) -> Iterator[Finding]:
    """Warn of a runtime whose nodes do not find each other with the controller of this cluster."""
    framework = framework_without_peers({"spec": {"trainer": {"numNodes": 2}}}, runtime)
    if framework and (reason := why_no_plugins()):
        yield warning(
            "runtime", name, f"{NO_POLICY.format(framework)}: jobs of several nodes are refused ({reason})", USE_PLUGINS
        )


def _not_listed(check: str, subject: str, error: ApiError, call: ApiCall, namespace: str, mode: Mode) -> Finding:
    """Report a list that could not be read; only a missing permission is fixed by a rule."""
    advice = rule_advice(call, namespace, mode) if isinstance(error, Forbidden) else "try again, or ask an administrator"
    return warning(check, subject, f"cannot be listed: {error.message}", advice)


def _runtime(name: str, runtime: Obj) -> Finding:
    labels, steps = labels_of(runtime), steps_of_runtime(runtime)
    summary = (
        f"{runtime.get('kind')}, framework {labels.get(names.FRAMEWORK_LABEL) or 'unknown'}, steps: {', '.join(steps) or 'none'}"
    )
    if names.ANCESTOR_TRAINER not in steps:
        advice = f"label the pod template of the training step {names.ANCESTOR_LABEL}={names.ANCESTOR_TRAINER}"
        return warning("runtime", name, f"{summary}: arguments, variables and resources of a job are ignored", advice)
    if names.FRAMEWORK_LABEL not in labels:
        return warning("runtime", name, f"{summary}: clients cannot tell its framework", f"add the label {names.FRAMEWORK_LABEL}")
    if labels.get(names.SUPPORT_LABEL) == "deprecated":
        return warning("runtime", name, f"{summary}: marked as deprecated", "use another runtime")
    return ok("runtime", name, summary)


def check_queue(cluster: KubernetesCluster, namespace: str, requested: str = "", *, mode: Mode = Mode.trainjob) -> Finding:
    """Check the LocalQueues if Kueue is installed; the requested one must exist and be active."""
    versions = served_versions(cluster, LOCAL_QUEUE.group)
    if not versions:
        if requested and not JobsClient(cluster).is_embedded():
            return missing(
                "queue", requested, "Kueue is not installed: the job would stay suspended", "install Kueue, or do not use a queue"
            )
        if requested:
            try:
                require_queue(JobsClient(cluster), cluster, requested, namespace)
            except QueueNotFound as error:
                return missing("queue", requested, str(error), "create the queue, or do not use one")
            return ok("queue", requested, "this cluster has queues")
        return ok("queue", "kueue", "not installed, and no queue was requested")
    kind = replace(LOCAL_QUEUE, version=versions[0])
    try:
        queues = {name_of(queue): queue for queue in cluster.list(kind, namespace).items}
    except ApiError as error:
        return _not_listed("queue", requested or "localqueues", error, LIST_LOCAL_QUEUES, namespace, mode)
    if not requested:
        return ok("queue", "kueue", f"LocalQueues of {namespace}: {', '.join(sorted(queues)) or 'none'}")
    if requested not in queues:
        advice = suggest(requested, queues) or "create a LocalQueue in the namespace"
        return missing("queue", requested, f"no such LocalQueue in {namespace}: the job would stay suspended", advice)
    active = condition(queues[requested], "Active")
    if active is not None and active.get("status") != "True":
        message = f"is not active: {active.get('reason')}: {active.get('message')}"
        return missing("queue", requested, message, "check its ClusterQueue")
    return ok("queue", requested, f"LocalQueue of {namespace}, cluster queue {queues[requested]['spec'].get('clusterQueue')}")


def check_claim(cluster: KubernetesCluster, namespace: str, name: str, *, mode: Mode = Mode.trainjob) -> Finding:
    """Check that the claim exists, is writable, and can be shared by several nodes."""
    try:
        claim = cluster.get(CLAIM, name, namespace)
    except NotFound:
        advice = f"create a PersistentVolumeClaim with ReadWriteMany, or let jobs create it: workspace=pvc://{name}?size=20Gi"
        return missing("claim", name, f"does not exist in {namespace}", advice)
    except Forbidden as error:
        advice = f"{rule_advice(READ_CLAIM, namespace, mode)}; or check it manually"
        return warning("claim", name, f"cannot be read: {error.message}", advice)
    except ApiError as error:
        return warning("claim", name, f"cannot be read: {error.message}", "try again, or check it manually")
    modes = [str(mode) for mode in (claim.get("spec") or {}).get("accessModes") or []]
    phase = str((claim.get("status") or {}).get("phase") or "")
    summary = f"{', '.join(modes) or 'no access mode'}{', ' + phase if phase else ''}"
    if phase == "Lost":
        return missing("claim", name, f"{summary}: its volume is lost", "restore the volume, or use another claim")
    if "ReadWriteMany" in modes:
        return ok("claim", name, f"{summary}: several nodes can share it")
    if {"ReadWriteOnce", "ReadWriteOncePod"}.isdisjoint(modes):
        return missing("claim", name, f"{summary}: it is not writable", "use a claim with ReadWriteMany")
    return warning(
        "claim", name, f"{summary}: only pods of one node can use it", "for jobs with several nodes use one with ReadWriteMany"
    )


def check_store(uri: str) -> Finding:
    """Check that exports can be written, and what the store can do, with a small object that is then deleted."""
    try:
        store = open_store(uri)
        store.check_writable()
        found = store.capabilities()
    except BadUri as error:
        return missing("store", uri, str(error), "specify a folder as file:///path or s3://bucket/prefix")
    except StorageError as error:
        return missing("store", uri, str(error), "check address, credentials, and permissions to write and delete objects")
    confirmed = "uploads are checked by the store" if found.checks_uploads else "uploads are read back"
    if found.conditional_writes:
        return ok("store", uri, f"writable, with conditional writes; {confirmed}")
    return warning("store", uri, f"writable, but ignores If-None-Match or If-Match; {confirmed}", "run only one export at a time")
