"""The common part of both gang schedulers: one PodGroup for all pods of the TrainJob, with its minimum resources."""

from __future__ import annotations

from trainwright.api.objects import Obj
from trainwright.materialize.draft import Draft
from trainwright.materialize.ownership import owned_object
from trainwright.materialize.pod_requests import pod_requests, total_requests


def pod_group(draft: Draft, api_version: str) -> Obj:
    """Return a PodGroup with the TrainJob's name. It counts initializers and the launcher, but not replicas of jobs."""
    members = sum(pods.count for pods in draft.pod_sets)
    needed = total_requests((pods.count, pod_requests(pods.pod_spec)) for pods in draft.pod_sets)
    return owned_object(draft, api_version, "PodGroup", draft.name) | {"spec": {"minMember": members, "minResources": needed}}


def mark_pods(draft: Draft, kind: str, key: str) -> None:
    """Set the group's name in every pod template; `kind` is `labels` or `annotations`."""
    for pods in draft.pod_sets:
        pods.job["template"]["spec"]["template"]["metadata"].setdefault(kind, {})[key] = draft.name
