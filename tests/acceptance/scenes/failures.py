"""What a person is told of a job that fails or waits, live: a table of cause, manifest, and the words that must stand in it.

The causes are those of the recordings in `goldens/failures` of a real cluster, with other programs, and the files of `cases/cluster`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml
from support.waiting import eventually

from acceptance.checks import ends, says
from acceptance.means import CASES
from acceptance.scene import Mark, Scene
from acceptance.stage import Stage
from acceptance.told import Told

BASH = ["bash", "-c"]
UNTIL_TERM = [*BASH, 'trap "exit 143" TERM; echo up; while true; do sleep 0.2; done']
RANK_1_EXITS = [
    *BASH,
    'echo started; [ "$JOB_COMPLETION_INDEX" = 1 ] && { sleep 2; echo "ValueError: bad batch" >&2; exit 7; }; sleep 60',
]
NEVER_STARTS = ("--start-timeout", "15")
LOW, LESS_LOW = "trainwright-acceptance-low", "trainwright-acceptance-less-low"
"""Priorities below those of all others, so that nobody else's pods are preempted."""
Happening = Callable[[Stage], None]


@dataclass(frozen=True)
class Cause:
    """Why a job fails or waits, and what must be said of it.

    Attributes:
        code: The exit code of `trainwright submit --wait`.
        words: Regular expressions, all of which must be found in what is said.
        container, pod, job, spec: More of the container, the pod, the Job, and the runtime's JobSet.
        happens: What happens while the job runs.
    """

    code: int
    words: tuple[str, ...]
    container: dict[str, Any] = field(default_factory=dict)
    pod: dict[str, Any] = field(default_factory=dict)
    job: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    nodes: int = 1
    objects: tuple[dict[str, Any], ...] = ()
    limits: tuple[str, ...] = ("--timeout", "120")
    happens: Happening | None = None
    marks: tuple[Mark, ...] = ()
    needs: tuple[str, ...] = ()
    fault: str = ""


def manifests(cause: Cause) -> list[dict[str, Any]]:
    """The runtime and the TrainJob of a cause."""
    container = {"name": "node", "image": "{launcher}", "command": ["true"], **cause.container}
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [container], **cause.pod}
    node = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"backoffLimit": 0, **cause.job, "template": {"spec": pod}},
        },
    }
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": "{name}", "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {"mlPolicy": {"numNodes": cause.nodes}, "template": {"spec": {**cause.spec, "replicatedJobs": [node]}}},
    }
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "{name}"},
        "spec": {"runtimeRef": {"kind": "TrainingRuntime", "name": "{name}"}},
    }
    return [runtime, job]


def _pods_run(count: int) -> Happening:
    def happens(stage: Stage) -> None:
        eventually(lambda: len(stage.running_pods()) == count, 120, f"{count} running pods")

    return happens


def _then(count: int, happening: Callable[[Stage, str], None], part: str = "") -> Happening:
    """Once so many pods run, let something happen to the one whose name has `part` in it."""

    def happens(stage: Stage) -> None:
        _pods_run(count)(stage)
        (pod,) = [name for name in stage.running_pods() if part in name]
        happening(stage, pod)

    return happens


def _evict(stage: Stage, pod: str) -> None:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": stage.namespace}}
    path = f"/api/v1/namespaces/{stage.namespace}/pods/{pod}/eviction"
    stage.admin.kubectl("create", "--raw", path, "-f", "-", text=json.dumps(eviction))


def _delete(stage: Stage, pod: str) -> None:
    stage.admin.kubectl("delete", "pod", pod, "-n", stage.namespace, "--wait=false")


def _preempt(stage: Stage, pod: str) -> None:
    """A pod of higher priority asks for a little more than is left."""
    node = stage.get("pod", pod)["spec"]["nodeName"]
    cpu = f"{_free_cpu(stage, node) + 50}m"
    container = {"name": "c", "image": stage.admin.image("launcher"), "command": ["sleep", "3"]}
    spec = {
        "priorityClassName": LESS_LOW,
        "nodeSelector": {"kubernetes.io/hostname": node},
        "restartPolicy": "Never",
        "containers": [{**container, "resources": {"requests": {"cpu": cpu}}}],
    }
    stage.apply({"apiVersion": "v1", "kind": "Pod", "metadata": stage.admin.metadata("important", stage.namespace), "spec": spec})


def _free_cpu(stage: Stage, node: str) -> int:
    """Milli-CPUs of a node that no pod asks for."""
    free = _milli(stage.admin.get("node", node)["status"]["allocatable"]["cpu"])
    for pod in stage.admin.get("pods", "-A", "--field-selector", f"spec.nodeName={node}")["items"]:
        if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            for container in pod["spec"]["containers"]:
                free -= _milli(container.get("resources", {}).get("requests", {}).get("cpu", "0"))
    return free


def _milli(quantity: str) -> int:
    return int(quantity[:-1]) if quantity.endswith("m") else int(float(quantity) * 1000)


def _lose_node(stage: Stage, pod: str) -> None:
    """Stop a kubelet until the node monitor and the tolerations have passed, and start it again."""
    node = stage.get("pod", pod)["spec"]["nodeName"]
    options = stage.admin.options
    subprocess.run(["sh", "-c", options.lose_node, "lose", node], check=True, timeout=120)
    try:
        eventually(lambda: stage.get("pod", pod)["metadata"].get("deletionTimestamp"), 400, "the pod of the lost node is deleted")
    finally:
        subprocess.run(["sh", "-c", options.find_node, "find", node], check=True, timeout=120)


def _toleration(key: str) -> dict[str, Any]:
    return {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}


def _priority_class(name: str, value: int) -> dict[str, Any]:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


def _volume(mount: str, **source: Any) -> dict[str, Any]:
    return {"name": mount, **source}


CAUSES: dict[str, Cause] = {
    "ended well": Cause(0, ("succeeded",), {"command": [*BASH, "echo start; sleep 1"]}, nodes=2),
    "exit code, Never": Cause(
        10, ("exited 7|exit code 7", "ValueError: bad batch", "node-0-1"), {"command": RANK_1_EXITS}, nodes=2, marks=("quick",)
    ),
    "exit code, OnFailure": Cause(
        10,
        ("exited 7|exit code 7", "ValueError: bad batch", "restart"),
        {"command": RANK_1_EXITS},
        {"restartPolicy": "OnFailure"},
        {"backoffLimit": 2},
        nodes=2,
        limits=("--timeout", "200"),
    ),
    "restarts of the JobSet": Cause(
        10,
        ("exited 5|exit code 5", "restart", "first"),
        {"command": [*BASH, '[ "$RESTARTED" = 1 ] && exit 0; echo first; sleep 1; exit 5']},
        spec={"failurePolicy": {"maxRestarts": 1}},
    ),
    "no such command": Cause(10, ("/no/such/program", "128"), {"command": ["/no/such/program"]}, nodes=2, marks=("quick",)),
    "init container fails": Cause(
        10,
        ("prepare", "exited 3|exit code 3", "cannot prepare"),
        pod={"initContainers": [{"name": "prepare", "image": "{launcher}", "command": [*BASH, "echo cannot prepare; exit 3"]}]},
    ),
    "out of memory": Cause(
        11,
        ("memory", "64Mi"),
        {
            "command": [*BASH, 'echo loading; exec python3 -c "x = bytearray(300 << 20)"'],
            "resources": {"limits": {"memory": "64Mi"}},
        },
        marks=("quick",),
    ),
    "a child out of memory": Cause(
        11,
        ("memory",),  # where the kernel kills the whole container, nobody can print anything
        {
            "command": [*BASH, 'python3 -c "x = bytearray(300 << 20)"; echo "worker died: $?"; exit 1'],
            "resources": {"limits": {"memory": "64Mi"}},
        },
    ),
    "killed by its probe": Cause(
        10,
        ("liveness", "node-0-0"),
        {
            "command": [*BASH, 'trap "exit 7" TERM; echo up; while true; do sleep 0.2; done'],
            "livenessProbe": {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 2},
        },
    ),
    "deadline of the Job": Cause(
        22,
        ("activeDeadlineSeconds|deadline",),
        {"command": [*BASH, "echo up; sleep 100"]},
        job={"activeDeadlineSeconds": 6},
        nodes=2,
    ),
    "never ready": Cause(
        0,
        ("readiness",),
        {
            "command": [*BASH, "echo up; sleep 12"],
            "readinessProbe": {"exec": {"command": ["false"]}, "periodSeconds": 2},
        },
    ),
    "image absent": Cause(
        13,
        ("registry.invalid/team/none:1", "ErrImagePull|ImagePullBackOff"),
        {"image": "registry.invalid/team/none:1"},
        limits=("--start-timeout", "30"),
    ),
    "image never pulled": Cause(
        13,
        ("docker.io/local/none:1", "ErrImageNeverPull|never"),
        {"image": "docker.io/local/none:1", "imagePullPolicy": "Never"},
        limits=("--start-timeout", "30"),
    ),
    "pull secret absent": Cause(
        13,
        ("registry.invalid/private/x:1",),
        {"image": "registry.invalid/private/x:1"},
        {"imagePullSecrets": [{"name": "nope"}]},
        limits=("--start-timeout", "30"),
    ),
    "claim absent": Cause(
        21,
        ("nope", "persistentvolumeclaim"),
        {"volumeMounts": [{"name": "w", "mountPath": "/w"}]},
        {"volumes": [_volume("w", persistentVolumeClaim={"claimName": "nope"})]},
        limits=NEVER_STARTS,
    ),
    "ConfigMap of a volume absent": Cause(
        21,
        ("nope", "configmap"),
        {"volumeMounts": [{"name": "c", "mountPath": "/c"}]},
        {"volumes": [_volume("c", configMap={"name": "nope"})]},
        limits=("--start-timeout", "30"),
    ),
    "Secret of a variable absent": Cause(
        21,
        ("nope", "secret"),
        {"env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "nope", "key": "k"}}}]},
        limits=NEVER_STARTS,
    ),
    "more CPU than any node": Cause(
        21, ("cpu", "insufficient|cannot hold"), {"resources": {"requests": {"cpu": "640"}}}, nodes=2, limits=NEVER_STARTS
    ),
    "pod template refused": Cause(
        21, ("volumes",), pod={"volumes": [{"name": "v", "emptyDir": {}, "configMap": {"name": "c"}}]}, limits=NEVER_STARTS
    ),
    "pod above a LimitRange": Cause(
        21,
        ("memory", "1Gi"),
        {"resources": {"limits": {"memory": "4Gi"}}},
        objects=(
            {
                "apiVersion": "v1",
                "kind": "LimitRange",
                "metadata": {"name": "l"},
                "spec": {"limits": [{"type": "Container", "max": {"memory": "1Gi"}}]},
            },
        ),
        limits=NEVER_STARTS,
        needs=("LimitRanges",),
    ),
    "quota of no pods": Cause(
        21,
        ("exceeded quota", "pods"),
        nodes=2,
        objects=({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}},),
        limits=NEVER_STARTS,
        needs=("quotas",),
    ),
    "quota of no TrainJobs": Cause(
        2,
        ("exceeded quota",),
        objects=(
            {
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": {"name": "q"},
                "spec": {"hard": {"count/trainjobs.trainer.kubeflow.org": "0"}},
            },
        ),
        needs=("quotas",),
    ),
    "pods against Pod Security": Cause(
        21,
        ("PodSecurity", "restricted"),
        needs=("Pod Security",),
        limits=NEVER_STARTS,
    ),
    "evicted": Cause(12, ("evict", "node-0-1"), {"command": UNTIL_TERM}, nodes=2, happens=_then(2, _evict, "-1-")),
    "evicted and replaced": Cause(
        0,
        ("evict",),
        {"command": [*BASH, 'trap "exit 143" TERM; echo up; for i in $(seq 60); do sleep 0.2; done']},
        job={"backoffLimit": 3},
        happens=_then(1, _evict),
    ),
    "pod deleted by hand": Cause(
        10,
        ("node-0-0", "deleted|vanished|removed"),
        {"command": [*BASH, "echo up; sleep 100"]},
        nodes=2,
        happens=_then(2, _delete, "-0-0-"),
        marks=("quick",),
    ),
    "more local storage than the limit": Cause(
        10,
        ("evict", "20Mi|limit"),
        {
            "command": [*BASH, "head -c 60000000 /dev/zero > /tmp/x; sleep 100"],
            "resources": {"limits": {"ephemeral-storage": "20Mi"}},
        },
        limits=("--timeout", "240"),
    ),
    "preempted": Cause(
        12,
        ("preempt",),
        {"command": UNTIL_TERM, "resources": {"requests": {"cpu": "100m"}}},
        {"priorityClassName": LOW},
        objects=(_priority_class(LOW, -1000), _priority_class(LESS_LOW, -500)),
        happens=_then(1, _preempt),
        limits=("--timeout", "600"),  # a loaded scheduler takes minutes
        needs=("preemption",),
    ),
    "node lost": Cause(
        12,
        ("node", "lost|unreachable|not ready|taint"),
        {"command": UNTIL_TERM},
        {"tolerations": [_toleration("unreachable"), _toleration("not-ready")]},
        nodes=2,
        happens=_then(2, _lose_node, "-0-0-"),
        limits=("--timeout", "600"),
        marks=("long",),
        needs=("two nodes", "a node to lose"),
    ),
}


def _scene(name: str, cause: Cause) -> Scene:
    def act(stage: Stage) -> Told:
        runtime, job = map(stage.manifest, manifests(cause))
        stage.write("job.yaml", yaml.safe_dump_all([runtime, job], sort_keys=False))
        stage.apply(runtime)  # of a namespace's runtimes, the account may only read
        stage.write("only-job.yaml", yaml.safe_dump(job))
        waiting = stage.begin("submit", "-f", "{folder}/only-job.yaml", "--wait", *cause.limits)
        if cause.happens is not None:
            cause.happens(stage)
        return waiting.wait(700)

    restricted = {"pod-security.kubernetes.io/enforce": "restricted"} if "Pod Security" in cause.needs else {}
    return Scene(
        name,
        act,
        (ends(cause.code), says(*cause.words)),
        marks=cause.marks,
        needs=cause.needs,
        objects=cause.objects,
        own_namespace=bool(cause.objects or restricted),
        labels=restricted,
        alone="a node to lose" in cause.needs,
        fault=cause.fault,
    )


def _case(file: str, code: int, *words: str, limit: str = "60", fault: str = "") -> Scene:
    """A file of `cases/cluster`, whose right outcome stands in it."""

    def act(stage: Stage) -> Told:
        text = (CASES / f"{file}.yaml").read_text("utf-8").replace("python:3.11", stage.admin.image("launcher"))
        runtime, job = yaml.safe_load_all(text)
        stage.apply(stage.manifest(runtime))
        stage.write("job.yaml", yaml.safe_dump(job))
        return stage.trainwright("submit", "-f", "{folder}/job.yaml", "--wait", "--logs", "--timeout", limit)

    return Scene(file.replace("-", " "), act, (ends(code), says(*words)), needs=("cases",), fault=fault)


SCENES = [
    *(_scene(name, cause) for name, cause in CAUSES.items()),
    _case("long-lines", 10, r"^ +ValueError: bad batch in column 7"),
    _case("progress-bar", 10, r"^ +ValueError: bad batch in column 7"),
    _case(
        "rank1-raises-onfailure",
        23,
        "ValueError: only rank 1 fails",
        limit="20",
    ),
]
