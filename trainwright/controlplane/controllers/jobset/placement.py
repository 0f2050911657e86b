"""Exclusive placement: one Job per domain of a topology (rack, slice), by annotation of the JobSet or a replicated job.

The leader, index 0, has an anti-affinity to other Jobs' pods. The others are created once it has a node, and follow to its domain:
JobSet's pod webhook modifies them before their creation. With the node selector strategy, domains are labelled in advance, and pods
only select theirs.
"""

from __future__ import annotations

from collections.abc import Callable

from trainwright.api import names
from trainwright.api.errors import Forbidden, NotFound
from trainwright.api.kinds import NODE, POD
from trainwright.api.objects import Obj, annotations_of, is_deleting, labels_of, namespace_of
from trainwright.api.rules.defaults import priority_of
from trainwright.cluster.protocol import Cluster

EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
NODE_SELECTOR = "alpha.jobset.sigs.k8s.io/node-selector"
PRIORITY_LABEL = "jobset.sigs.k8s.io/priority"
_JOB_KEY = "jobset.sigs.k8s.io/job-key"
_NAMESPACED_JOB = "alpha.jobset.sigs.k8s.io/namespaced-job"
_NO_SCHEDULE = {"key": "alpha.jobset.sigs.k8s.io/no-schedule", "operator": "Exists", "effect": "NoSchedule"}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
DomainOf = Callable[[Obj, str], str | None]
"""Maps `(pod, topology key)` to the domain of the leader's node, or None if unknown."""


def placement_annotations(jobset: Obj, replicated: Obj) -> dict[str, str]:
    """Return the annotations for every Job and pod; those of the replicated job override those of the JobSet."""
    found: dict[str, str] = {}
    for notes in (annotations_of(jobset), annotations_of(replicated["template"])):
        if EXCLUSIVE in notes:
            found |= {key: notes[key] for key in (EXCLUSIVE, NODE_SELECTOR) if key in notes}
    return found


def select_domain(pod_spec: Obj, namespace: str, job: str) -> None:
    """Select nodes labelled with this Job's name, and tolerate their taint (node selector strategy)."""
    pod_spec["nodeSelector"] = {**(pod_spec.get("nodeSelector") or {}), _NAMESPACED_JOB: f"{namespace}_{job}"}
    pod_spec["tolerations"] = [*(pod_spec.get("tolerations") or []), dict(_NO_SCHEDULE)]


def place_pod(pod: Obj, domain_of: DomainOf) -> None:
    """Modify a pod of a JobSet before its creation. Raises Forbidden if it must wait for its leader."""
    notes = annotations_of(pod)
    if names.JOBSET_NAME_LABEL not in notes:
        return  # a pod of a plain Job
    spec = pod["spec"]
    priority = str(spec["priority"] if spec.get("priority") is not None else priority_of(spec))
    pod["metadata"]["labels"] = {**labels_of(pod), PRIORITY_LABEL: priority}
    topology = notes.get(EXCLUSIVE)
    if topology is None or NODE_SELECTOR in notes:
        return  # no exclusive placement, or its Job has selected a domain
    if notes.get(names.COMPLETION_INDEX) == "0":
        pod["spec"]["affinity"] = _exclusive_affinity(pod, topology, priority)
        return  # the leader chooses the domain
    domain = domain_of(pod, topology)
    if domain is not None:
        pod["spec"]["nodeSelector"] = {**(pod["spec"].get("nodeSelector") or {}), topology: domain}
    if topology not in (pod["spec"].get("nodeSelector") or {}):
        raise Forbidden('admission webhook "vpod.kb.io" denied the request: follower pod node selector not set')


def _exclusive_affinity(pod: Obj, topology: str, priority: str) -> Obj:
    """Return an affinity to pods of the own Job and an anti-affinity to others with the same priority, so preemption still works."""
    key = labels_of(pod).get(_JOB_KEY, "")
    own = [{"key": _JOB_KEY, "operator": "In", "values": [key]}]
    others = [
        {"key": _JOB_KEY, "operator": "Exists"},
        {"key": _JOB_KEY, "operator": "NotIn", "values": [key]},
        {"key": PRIORITY_LABEL, "operator": "In", "values": [priority]},
    ]
    affinity: Obj = dict(pod["spec"].get("affinity") or {})
    for part, expressions in (("podAffinity", own), ("podAntiAffinity", others)):
        term = {"labelSelector": {"matchExpressions": expressions}, "topologyKey": topology, "namespaceSelector": {}}
        given = affinity.get(part) or {}
        affinity[part] = {**given, _REQUIRED: [*(given.get(_REQUIRED) or []), term]}
    return affinity


def leader_selector(pod: Obj) -> tuple[str, str]:
    """Return namespace and label selector of the pod's leader of the same attempt."""
    labels = labels_of(pod)
    keys = (_JOB_KEY, names.RESTART_ATTEMPT_LABEL)
    leader = {key: labels[key] for key in keys if key in labels} | {names.COMPLETION_INDEX: "0"}
    return namespace_of(pod), ",".join(f"{key}={value}" for key, value in leader.items())


def pod_admission(cluster: Cluster) -> Callable[[Obj], None]:
    """Return a function that modifies a pod, or raises Forbidden if it must wait for its leader's node."""

    def domain_of(pod: Obj, topology: str) -> str | None:
        namespace, selector = leader_selector(pod)
        leaders = [leader for leader in cluster.list(POD, namespace, label_selector=selector).items if not is_deleting(leader)]
        node = leaders[0]["spec"].get("nodeName") if leaders else None
        if not node:
            return None  # the leader is not created or not scheduled yet
        try:
            return labels_of(cluster.get(NODE, node)).get(topology)
        except NotFound:  # the node was removed since: the pod waits
            return None

    return lambda pod: place_pod(pod, domain_of)
