"""Means that a cluster may lack. Each is a function that asks the cluster, and returns why scenes that need it cannot be played."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from importlib.util import find_spec

from support.shared_folder import reason_without, shared_path
from support.waiting import eventually

from acceptance.clusters import RUNTIMES, ClusterUnderTest, Namespace
from acceptance.rights import Obj

CASES = shared_path("cases/cluster")
NO_PODS = "quota-no-pods"


def pod_security(cluster: ClusterUnderTest, namespace: Namespace) -> str:
    restricted = "pod-security.kubernetes.io/enforce=restricted"
    cluster.kubectl("label", "namespace", namespace.name, restricted)
    privileged = _pod(namespace, {"securityContext": {"privileged": True}})
    try:
        done = cluster.kubectl("create", "--dry-run=server", "-f", "-", text=json.dumps(privileged), check=False)
    finally:
        cluster.kubectl("label", "namespace", namespace.name, restricted.partition("=")[0] + "-")
    return "" if "PodSecurity" in done.stderr else "the API server enforces no Pod Security: it took a privileged pod"


def quotas(cluster: ClusterUnderTest, namespace: Namespace) -> str:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": cluster.metadata(NO_PODS, namespace.name)}
    cluster.apply({**quota, "spec": {"hard": {"pods": "0"}}})

    def is_enforced() -> bool:
        done = cluster.kubectl("create", "--dry-run=server", "-f", "-", text=json.dumps(_pod(namespace, {})), check=False)
        return "exceeded quota" in done.stderr

    try:
        eventually(is_enforced, 5)
        return ""
    except AssertionError:
        return "the API server enforces no quotas: it took a pod where a ResourceQuota allows none"
    finally:
        cluster.kubectl("delete", "resourcequota", NO_PODS, "-n", namespace.name)


def limit_ranges(cluster: ClusterUnderTest, namespace: Namespace) -> str:
    limits = [{"type": "Container", "max": {"memory": "64Mi"}}]
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": cluster.metadata("small", namespace.name),
            "spec": {"limits": limits},
        }
    )
    large = _pod(namespace, {"resources": {"limits": {"memory": "1Gi"}}})
    try:
        done = cluster.kubectl("create", "--dry-run=server", "-f", "-", text=json.dumps(large), check=False)
    finally:
        cluster.kubectl("delete", "limitrange", "small", "-n", namespace.name)
    return "" if done.returncode else "the API server enforces no LimitRanges: it took a pod above one"


def two_nodes(cluster: ClusterUnderTest, _namespace: Namespace) -> str:
    nodes = [node for node in cluster.get("nodes")["items"] if not node.get("spec", {}).get("unschedulable")]
    return "" if len(nodes) > 1 else f"the cluster has {len(nodes)} node"


def restart(cluster: ClusterUnderTest, _namespace: Namespace) -> str:
    return cluster.why_no_restart()


def lose_node(cluster: ClusterUnderTest, _namespace: Namespace) -> str:
    given = cluster.options.lose_node and cluster.options.find_node
    return "" if given else "no commands that stop a node's kubelet and start it again were given (LOSE_NODE=..., FIND_NODE=...)"


def kfp_host(cluster: ClusterUnderTest, _namespace: Namespace) -> str:
    host = cluster.options.kfp_host
    if not host:
        return "no Kubeflow Pipelines API was given (KFP_HOST=...)"
    try:
        urllib.request.urlopen(f"{host.rstrip('/')}/apis/v2beta1/healthz", timeout=20).read()
    except (urllib.error.URLError, OSError) as error:
        return f"{host} does not answer as Kubeflow Pipelines: {error}"
    return ""


def airflow(cluster: ClusterUnderTest, _namespace: Namespace) -> str:
    if not cluster.options.airflow:
        return "DAGs were not asked for (AIRFLOW=yes)"
    return "" if find_spec("airflow") else "Airflow is not installed here"


def shared_runtimes(cluster: ClusterUnderTest, _namespace: Namespace) -> str:
    there = {runtime["metadata"]["name"] for runtime in cluster.get("clustertrainingruntimes")["items"]}
    absent = [name for name in (*RUNTIMES[1:], "workspace-step") if name not in there]
    return f"ClusterTrainingRuntimes are not installed: {', '.join(absent)}" if absent else ""


def cases(_cluster: ClusterUnderTest, _namespace: Namespace) -> str:
    return "" if CASES.is_dir() else reason_without("cases/cluster")


def kueue(cluster: ClusterUnderTest, _namespace: Namespace) -> str:
    served = cluster.kubectl("api-resources", "--api-group=kueue.x-k8s.io", "-o", "name").stdout
    return "" if "workloads" in served else "the cluster has no Kueue"


def free_place(cluster: ClusterUnderTest, _namespace: Namespace) -> str:
    return cluster.why_no_free_place()


def manager(cluster: ClusterUnderTest, _namespace: Namespace) -> str:
    return cluster.why_no_manager()


def tokens_that_end(cluster: ClusterUnderTest, namespace: Namespace) -> str:
    kubeconfig = cluster.make_account(namespace.name, "asked", [])
    ask = ["kubectl", "--kubeconfig", str(kubeconfig), "auth", "whoami"]
    cluster.kubectl("delete", "serviceaccount", "asked", "-n", namespace.name)
    try:
        eventually(lambda: subprocess.run(ask, capture_output=True, timeout=60, check=False).returncode != 0, 15)
    except AssertionError:
        return "the API server accepts the token of an account that was deleted"
    return ""


def lease_of_ours(cluster: ClusterUnderTest, _namespace: Namespace) -> str:
    return cluster.why_no_lease()


def hub(cluster: ClusterUnderTest, namespace: Namespace) -> str:
    program = "import urllib.request; urllib.request.urlopen('https://huggingface.co/api/models?limit=1', timeout=10).read()"
    keeper = cluster.keeper(namespace.name)
    asked = cluster.kubectl("exec", keeper, "-n", namespace.name, "--", "python3", "-c", program, check=False)
    return "pods do not reach the Hugging Face Hub" if asked.returncode else ""


def preemption(cluster: ClusterUnderTest, _namespace: Namespace) -> str:
    return "the scheduler of the embedded cluster does not preempt" if not cluster.options.kubeconfig else ""


def _pod(namespace: Namespace, container: Obj) -> Obj:
    spec = {"containers": [{"name": "c", "image": "docker.io/library/python:3.11", "command": ["true"], **container}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asked", "namespace": namespace.name}, "spec": spec}


MEANS: dict[str, Callable[[ClusterUnderTest, Namespace], str]] = {
    "Airflow": airflow,
    "LimitRanges": limit_ranges,
    "Pod Security": pod_security,
    "a KFP host": kfp_host,
    "a node to lose": lose_node,
    "a restart": restart,
    "Kueue": kueue,
    "Trainer's Lease to hold": lease_of_ours,
    "Trainer's manager": manager,
    "Trainer's place": free_place,
    "the Hub": hub,
    "cases": cases,
    "preemption": preemption,
    "quotas": quotas,
    "shared runtimes": shared_runtimes,
    "tokens that end": tokens_that_end,
    "two nodes": two_nodes,
}
"""Named in `Scene.needs`. They are asked in a namespace of this run."""


class Means:
    """What this cluster has, asked once for each of the means."""

    def __init__(self, cluster: ClusterUnderTest, namespace: Namespace):
        self._cluster, self._namespace = cluster, namespace
        self._reasons: dict[str, str] = {}

    def why_not(self, needs: tuple[str, ...]) -> str:
        """Why a scene that needs these cannot be played; empty if it can."""
        for name in needs:
            if name not in self._reasons:
                self._reasons[name] = MEANS[name](self._cluster, self._namespace)
        return "; ".join(filter(None, (self._reasons[name] for name in needs)))
