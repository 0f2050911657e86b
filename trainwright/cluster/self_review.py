"""Asking a cluster about itself: whether this account may do something, and which versions of a group are served."""

from __future__ import annotations

from typing import Protocol

from trainwright.api.errors import NotFound
from trainwright.api.objects import Obj
from trainwright.cluster.access import Right

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Asked(Protocol):
    """A cluster that is spoken to by path, as `KubernetesCluster`."""

    def request(self, method: str, path: str, body: Obj | None = None) -> Obj: ...


def is_allowed(cluster: Asked, right: Right, name: str = "") -> bool:
    """Whether this account has the right, for one object where it is named. Raises ApiError where that may not be asked."""
    resource, _, sub = right.resource.partition("/")
    plural, _, group = resource.partition(".")
    attributes = {
        "verb": right.verb,
        "group": group,
        "resource": plural,
        "subresource": sub,
        "namespace": right.namespace,
        "name": name,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {field: value for field, value in attributes.items() if value}},
    }
    answer = cluster.request("post", _REVIEWS, review)
    return bool((answer.get("status") or {}).get("allowed"))


def served_versions(cluster: Asked, group: str) -> list[str]:
    """The versions of a group, the preferred one first; none where it is not served. Raises ApiError."""
    try:
        found = cluster.request("get", f"/apis/{group}")
    except NotFound:
        return []
    versions = [str(version["version"]) for version in found.get("versions") or []]
    preferred = str((found.get("preferredVersion") or {}).get("version") or "")
    return sorted(versions, key=lambda version: version != preferred)


def served_plurals(cluster: Asked, group: str, version: str) -> set[str]:
    """The resources of a version of a group. Raises ApiError."""
    try:
        found = cluster.request("get", f"/apis/{group}/{version}")
    except NotFound:
        return set()
    return {str(resource["name"]) for resource in found.get("resources") or []}


def server_version(cluster: Asked) -> str:
    """As the server calls itself, such as `v1.34.1`. Raises ApiError."""
    return str(cluster.request("get", "/version").get("gitVersion") or "")
