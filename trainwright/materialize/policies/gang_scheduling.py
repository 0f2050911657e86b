"""Gang scheduling with the coscheduling plugin or with Volcano: one PodGroup for all pods of the TrainJob, with its minimum resources.

Coscheduling puts a label on every pod; the runtime must set the scheduler. Volcano's PodGroup has queue, priority and topology, and
every pod an annotation. Only a cluster can check whether a PriorityClass exists. Source: Trainer's plugins (reference sections 2.14,
4.2 rule 27).
"""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.api.errors import Problem
from trainwright.api.objects import Obj
from trainwright.api.quantities import pod_requests, total_requests
from trainwright.materialize.draft import Draft, owned_object

_QUEUE = "scheduling.volcano.sh/queue-name"


class CoschedulingPolicy:
    name = "coscheduling"

    def enforce_pod_group(self, draft: Draft) -> None:
        if draft.pod_group_policy(self.name) is not None:
            _mark_pods(draft, "labels", "scheduling.x-k8s.io/pod-group")

    def build(self, draft: Draft) -> None:
        policy = draft.pod_group_policy(self.name)
        if policy is None:
            return
        group = _pod_group(draft, "scheduling.x-k8s.io/v1alpha1")
        if policy.get("scheduleTimeoutSeconds") is not None:
            group["spec"]["scheduleTimeoutSeconds"] = policy["scheduleTimeoutSeconds"]
        draft.companions.append(group)


class VolcanoPolicy:
    name = "volcano"

    def validate(self, draft: Draft) -> Iterator[Problem]:
        if draft.pod_group_policy(self.name) is not None and draft.annotations.get(_QUEUE) == "":
            yield Problem(f"spec.annotations[{_QUEUE}]", 'Invalid value: "": Volcano queue name must not be empty')

    def enforce_pod_group(self, draft: Draft) -> None:
        if draft.pod_group_policy(self.name) is not None:
            _mark_pods(draft, "annotations", "scheduling.k8s.io/group-name")

    def build(self, draft: Draft) -> None:
        policy = draft.pod_group_policy(self.name)
        if policy is None:
            return
        group = _pod_group(draft, "scheduling.volcano.sh/v1beta1")
        spec = group["spec"]
        if queue := draft.annotations.get(_QUEUE):
            spec["queue"] = queue
        for pods in draft.pod_sets:  # the last priority is used
            if priority := pods.pod_spec.get("priorityClassName"):
                spec["priorityClassName"] = priority
        if policy.get("networkTopology") is not None:
            spec["networkTopology"] = dict(policy["networkTopology"])
        draft.companions.append(group)


def _pod_group(draft: Draft, api_version: str) -> Obj:
    """Return a PodGroup with the TrainJob's name. It counts initializers and the launcher, but not replicas of jobs."""
    members = sum(pods.count for pods in draft.pod_sets)
    needed = total_requests((pods.count, pod_requests(pods.pod_spec)) for pods in draft.pod_sets)
    return owned_object(draft, api_version, "PodGroup", draft.name) | {"spec": {"minMember": members, "minResources": needed}}


def _mark_pods(draft: Draft, kind: str, key: str) -> None:
    """Set the group's name in every pod template; `kind` is `labels` or `annotations`."""
    for pods in draft.pod_sets:
        pods.job["template"]["spec"]["template"]["metadata"].setdefault(kind, {})[key] = draft.name
