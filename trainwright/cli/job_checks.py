"""Looks of `trainwright doctor` at what a job would use: its runtime, queue, claim and store.

Only the store is written to, since reading does not tell whether it keeps two writers apart.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.conditions import condition
from trainwright.api.errors import ApiError, NotFound
from trainwright.api.kinds import CLAIM, CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME, Kind
from trainwright.api.objects import Obj, labels_of, name_of
from trainwright.api.suggest import suggest
from trainwright.cli.findings import Finding, missing, ok, warning
from trainwright.cluster.discovery import served_versions
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.submit.compatibility import steps_of_runtime
from trainwright.runtimes import bundled_runtimes
from trainwright.storage import StorageError, open_store
from trainwright.storage.errors import BadUri

_KUEUE = "kueue.x-k8s.io"
_APPLY = "`trainwright runtimes apply NAME` brings the bundled ones into the cluster"


def check_runtimes(cluster: Cluster, namespace: str, wanted: str = "", *, bundled: bool = False) -> Iterator[Finding]:
    """Those that are there, with what clients need to know of them; the one that is wanted must be.

    `bundled`: those that come with Trainwright can be used as well.
    """
    found: dict[str, Obj] = {name_of(runtime): runtime for runtime in bundled_runtimes()} if bundled else {}
    for kind in (TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME):
        try:
            found |= {name_of(runtime): runtime for runtime in cluster.list(kind, namespace if kind.namespaced else None).items}
        except NotFound:
            continue  # said of the API already
        except ApiError as error:
            yield warning("runtime", kind.plural, f"cannot be listed: {error.message}", "see `access` above")
            if wanted and wanted not in found and (one := _one(cluster, kind, wanted, namespace)) is not None:
                found[wanted] = one
    if wanted and wanted not in found:
        yield missing("runtime", wanted, "does not exist here", suggest(wanted, found) or _APPLY)
    if not found:
        yield missing("runtime", "all", "there is no runtime, and a TrainJob needs one", _APPLY)
    for name in [wanted] if wanted in found else sorted(found):
        yield _runtime(name, found[name])


def _one(cluster: Cluster, kind: Kind, name: str, namespace: str) -> Obj | None:
    try:
        return cluster.get(kind, name, namespace if kind.namespaced else None)
    except ApiError:
        return None


def _runtime(name: str, runtime: Obj) -> Finding:
    labels, steps = labels_of(runtime), steps_of_runtime(runtime)
    told = (
        f"{runtime.get('kind')}, framework {labels.get(names.FRAMEWORK_LABEL) or 'unknown'}, steps: {', '.join(steps) or 'none'}"
    )
    if names.ANCESTOR_TRAINER not in steps:
        advice = f"label the pod template of the training step {names.ANCESTOR_LABEL}={names.ANCESTOR_TRAINER}"
        return warning("runtime", name, f"{told}: arguments, variables and resources of a job are ignored", advice)
    if names.FRAMEWORK_LABEL not in labels:
        return warning(
            "runtime", name, f"{told}: clients cannot tell its framework", f"give it the label {names.FRAMEWORK_LABEL}"
        )
    if labels.get(names.SUPPORT_LABEL) == "deprecated":
        return warning("runtime", name, f"{told}: marked as deprecated", "move to another runtime")
    return ok("runtime", name, told)


def check_queue(cluster: KubernetesCluster, namespace: str, wanted: str = "") -> Finding:
    """LocalQueues where Kueue is served; the one that is wanted must be, and admit."""
    versions = served_versions(cluster, _KUEUE)
    if not versions:
        if wanted:
            return missing(
                "queue", wanted, "Kueue is not served: the job would stay suspended", "install Kueue, or name no queue"
            )
        return ok("queue", "kueue", "not served, and no queue was asked for")
    kind = Kind(_KUEUE, versions[0], "LocalQueue", "localqueues")
    try:
        queues = {name_of(queue): queue for queue in cluster.list(kind, namespace).items}
    except ApiError as error:
        return warning(
            "queue", wanted or "kueue", f"LocalQueues cannot be listed: {error.message}", "grant get and list on localqueues"
        )
    if not wanted:
        return ok("queue", "kueue", f"LocalQueues of {namespace}: {', '.join(sorted(queues)) or 'none'}")
    if wanted not in queues:
        advice = suggest(wanted, queues) or "create a LocalQueue in the namespace"
        return missing("queue", wanted, f"no such LocalQueue in {namespace}: the job would stay suspended", advice)
    active = condition(queues[wanted], "Active")
    if active is not None and active.get("status") != "True":
        message = f"is not active: {active.get('reason')}: {active.get('message')}"
        return missing("queue", wanted, message, "look at the ClusterQueue that it belongs to")
    return ok("queue", wanted, f"LocalQueue of {namespace}, cluster queue {queues[wanted]['spec'].get('clusterQueue')}")


def check_claim(cluster: KubernetesCluster, namespace: str, name: str) -> Finding:
    """Whether the claim is there, can be written, and by several nodes at once."""
    try:
        claim = cluster.get(CLAIM, name, namespace)
    except NotFound:
        advice = f"create a PersistentVolumeClaim with ReadWriteMany, or have jobs make it: workspace=pvc://{name}?size=20Gi"
        return missing("claim", name, f"does not exist in {namespace}", advice)
    except ApiError as error:
        return warning("claim", name, f"cannot be read: {error.message}", "grant get on persistentvolumeclaims, or look yourself")
    modes = [str(mode) for mode in (claim.get("spec") or {}).get("accessModes") or []]
    phase = str((claim.get("status") or {}).get("phase") or "")
    told = f"{', '.join(modes) or 'no access mode'}{', ' + phase if phase else ''}"
    if phase == "Lost":
        return missing("claim", name, f"{told}: its volume is gone", "restore the volume, or take another claim")
    if "ReadWriteMany" in modes:
        return ok("claim", name, f"{told}: several nodes can share it")
    if {"ReadWriteOnce", "ReadWriteOncePod"}.isdisjoint(modes):
        return missing("claim", name, f"{told}: nobody can write to it", "take a claim with ReadWriteMany")
    return warning(
        "claim", name, f"{told}: only pods of one node can use it", "for jobs of several nodes take one with ReadWriteMany"
    )


def check_store(uri: str) -> Finding:
    """Whether exports can be written there, one writer at a time: tried with a small object of its own, removed again."""
    key = f".trainwright-doctor-{secrets.token_hex(8)}"
    try:
        honoured = open_store(uri).supports_conditional_writes(key)
    except BadUri as error:
        return missing("store", uri, str(error), "name a folder as file:///path or s3://bucket/prefix")
    except StorageError as error:
        return missing("store", uri, str(error), "check address, credentials and that objects may be written and removed")
    if honoured:
        return ok("store", uri, "takes objects, and keeps two writers apart")
    return warning(
        "store", uri, "takes objects, but ignores If-None-Match or If-Match", "let only one export at a time write there"
    )
