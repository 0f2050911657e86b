"""Gang scheduling with the coscheduling plugin: a PodGroup, and a label on every pod.

Source: Trainer's coscheduling plugin (reference section 2.14). The runtime must set the scheduler.
"""

from __future__ import annotations

from trainwright.materialize.draft import Draft
from trainwright.materialize.pod_groups import mark_pods, pod_group


class CoschedulingPolicy:
    name = "coscheduling"

    def enforce_pod_group(self, draft: Draft) -> None:
        if draft.pod_group_policy(self.name) is not None:
            mark_pods(draft, "labels", "scheduling.x-k8s.io/pod-group")

    def build(self, draft: Draft) -> None:
        policy = draft.pod_group_policy(self.name)
        if policy is None:
            return
        group = pod_group(draft, "scheduling.x-k8s.io/v1alpha1")
        if policy.get("scheduleTimeoutSeconds") is not None:
            group["spec"]["scheduleTimeoutSeconds"] = policy["scheduleTimeoutSeconds"]
        draft.companions.append(group)
