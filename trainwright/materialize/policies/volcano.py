"""Gang scheduling with Volcano: a PodGroup with queue, priority and topology, and an annotation on every pod.

Source: Trainer's volcano plugin (reference sections 2.14, 4.2 rule 27). Only a cluster can check whether a PriorityClass exists.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.api.errors import Problem
from trainwright.materialize.draft import Draft
from trainwright.materialize.pod_groups import mark_pods, pod_group

QUEUE = "scheduling.volcano.sh/queue-name"


class VolcanoPolicy:
    name = "volcano"

    def validate(self, draft: Draft) -> Iterator[Problem]:
        if draft.pod_group_policy(self.name) is not None and draft.annotations.get(QUEUE) == "":
            yield Problem(f"spec.annotations[{QUEUE}]", 'Invalid value: "": Volcano queue name must not be empty')

    def enforce_pod_group(self, draft: Draft) -> None:
        if draft.pod_group_policy(self.name) is not None:
            mark_pods(draft, "annotations", "scheduling.k8s.io/group-name")

    def build(self, draft: Draft) -> None:
        policy = draft.pod_group_policy(self.name)
        if policy is None:
            return
        group = pod_group(draft, "scheduling.volcano.sh/v1beta1")
        spec = group["spec"]
        if queue := draft.annotations.get(QUEUE):
            spec["queue"] = queue
        for pods in draft.pod_sets:  # the last priority is used
            if priority := pods.pod_spec.get("priorityClassName"):
                spec["priorityClassName"] = priority
        if policy.get("networkTopology") is not None:
            spec["networkTopology"] = dict(policy["networkTopology"])
        draft.companions.append(group)
