"""Exclusive placement: one Job in each domain of a topology (a rack, a slice), by annotation of the JobSet or a replicated job.

The leader, index 0, is kept away from other Jobs' pods by affinity; the others are let in once it has a node, and go to its domain.
With the node selector strategy the domains are labelled beforehand, and the pods only ask for theirs.
"""

from __future__ import annotations

from collections.abc import Callable

from trainwright.api import names
from trainwright.api.errors import Forbidden
from trainwright.api.objects import Obj, annotations_of, labels_of, namespace_of
from trainwright.api.pod_defaults import priority_of

EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
NODE_SELECTOR = "alpha.jobset.sigs.k8s.io/node-selector"
PRIORITY_LABEL = "jobset.sigs.k8s.io/priority"
_JOB_KEY = "jobset.sigs.k8s.io/job-key"
_NAMESPACED_JOB = "alpha.jobset.sigs.k8s.io/namespaced-job"
_NO_SCHEDULE = {"key": "alpha.jobset.sigs.k8s.io/no-schedule", "operator": "Exists", "effect": "NoSchedule"}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

DomainOf = Callable[[Obj, str], str | None]
"""`(pod, topology key)`: the domain of the node that the pod's leader is on, or None while that is not known."""


def placement_annotations(jobset: Obj, replicated: Obj) -> dict[str, str]:
    """The annotations of every Job and pod; those of the replicated job go before those of the set."""
    found: dict[str, str] = {}
    for notes in (annotations_of(jobset), annotations_of(replicated["template"])):
        if EXCLUSIVE in notes:
            found |= {key: notes[key] for key in (EXCLUSIVE, NODE_SELECTOR) if key in notes}
    return found


def ask_for_domain(pod_spec: Obj, namespace: str, job: str) -> None:
    """The node selector strategy: nodes that carry this Job's name, whatever keeps others away from them."""
    pod_spec["nodeSelector"] = {**(pod_spec.get("nodeSelector") or {}), _NAMESPACED_JOB: f"{namespace}_{job}"}
    pod_spec["tolerations"] = [*(pod_spec.get("tolerations") or []), dict(_NO_SCHEDULE)]


def place(pod: Obj, domain_of: DomainOf) -> None:
    """Prepare, in place, a pod of a JobSet that is about to be created. Raises Forbidden for one that must still wait."""
    notes = annotations_of(pod)
    if names.JOBSET_NAME_LABEL not in notes:
        return
    spec = pod["spec"]
    priority = str(spec["priority"] if spec.get("priority") is not None else priority_of(spec))
    pod["metadata"]["labels"] = {**labels_of(pod), PRIORITY_LABEL: priority}
    topology = notes.get(EXCLUSIVE)
    if topology is None or NODE_SELECTOR in notes:
        return
    if notes.get(names.COMPLETION_INDEX) == "0":
        pod["spec"]["affinity"] = _alone(pod, topology, priority)
        return
    domain = domain_of(pod, topology)
    if domain is not None:
        pod["spec"]["nodeSelector"] = {**(pod["spec"].get("nodeSelector") or {}), topology: domain}
    if topology not in (pod["spec"].get("nodeSelector") or {}):
        raise Forbidden('admission webhook "vpod.kb.io" denied the request: follower pod node selector not set')


def leader_selector(pod: Obj) -> tuple[str, str]:
    """Namespace and label selector of the pod's leader, of the same attempt."""
    labels = labels_of(pod)
    keys = (_JOB_KEY, names.RESTART_ATTEMPT_LABEL)
    wanted = {key: labels[key] for key in keys if key in labels} | {names.COMPLETION_INDEX: "0"}
    return namespace_of(pod), ",".join(f"{key}={value}" for key, value in wanted.items())


def _alone(pod: Obj, topology: str, priority: str) -> Obj:
    """Beside pods of the own Job only, as far as these are of the same priority: more urgent ones may still evict."""
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
