"""Discovery and access reviews: which API versions a cluster serves, and what this account is allowed to do."""

from __future__ import annotations

from typing import Protocol

from trainwright.api.errors import NotFound
from trainwright.api.objects import Obj
from trainwright.cluster.refusals import Permission

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class RawClient(Protocol):
    """A client for requests by URL path, such as `KubernetesCluster`."""

    def request(self, method: str, path: str, body: Obj | None = None) -> Obj: ...


def is_allowed(cluster: RawClient, permission: Permission, name: str = "") -> bool:
    """Whether this account has a permission, for one object if `name` is given. Raises ApiError if the review is not allowed."""
    resource, _, subresource = permission.resource.partition("/")
    plural, _, group = resource.partition(".")
    attributes = {
        "verb": permission.verb,
        "group": group,
        "resource": plural,
        "subresource": subresource,
        "namespace": permission.namespace,
        "name": name,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {field: value for field, value in attributes.items() if value}},
    }
    answer = cluster.request("post", _REVIEWS, review)
    return bool((answer.get("status") or {}).get("allowed"))


def served_versions(cluster: RawClient, group: str) -> list[str]:
    """Return the versions of a group, the preferred one first; empty if it is not served. Raises ApiError."""
    try:
        found = cluster.request("get", f"/apis/{group}")
    except NotFound:  # the API server serves no such group
        return []
    versions = [str(version["version"]) for version in found.get("versions") or []]
    preferred = str((found.get("preferredVersion") or {}).get("version") or "")
    return sorted(versions, key=lambda version: version != preferred)


def served_plurals(cluster: RawClient, group: str, version: str) -> set[str]:
    """Return the resources of a group version; empty if it is not served. Raises ApiError."""
    try:
        found = cluster.request("get", f"/apis/{group}/{version}")
    except NotFound:
        return set()
    return {str(resource["name"]) for resource in found.get("resources") or []}


def server_version(cluster: RawClient) -> str:
    """Return the version of the API server, such as `v1.34.1`. Raises ApiError."""
    return str(cluster.request("get", "/version").get("gitVersion") or "")
