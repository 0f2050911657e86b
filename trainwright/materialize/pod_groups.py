"""The part that both gang schedulers have in common: one PodGroup for all pods of the TrainJob, and what it needs at least."""

from __future__ import annotations

from trainwright.api.objects import Obj
from trainwright.materialize.draft import Draft
from trainwright.materialize.ownership import owned
from trainwright.materialize.pod_requests import pod_requests, summed


def pod_group(draft: Draft, api_version: str) -> Obj:
    """A PodGroup with the TrainJob's name: initializers and launcher count too, replicas of jobs do not."""
    members = sum(pods.count for pods in draft.pod_sets)
    needed = summed((pods.count, pod_requests(pods.pod_spec)) for pods in draft.pod_sets)
    return owned(draft, api_version, "PodGroup", draft.name) | {"spec": {"minMember": members, "minResources": needed}}


def mark_pods(draft: Draft, kind: str, key: str) -> None:
    """Every pod says which group it is of; `kind` is `labels` or `annotations`."""
    for pods in draft.pod_sets:
        pods.job["template"]["spec"]["template"]["metadata"].setdefault(kind, {})[key] = draft.name
