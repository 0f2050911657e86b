"""What a service account may do with RBAC manifests, as the embedded cluster's authorizer decides it, and which rules were used."""

from __future__ import annotations

from typing import Any

from trainwright.cluster.refusals import Permission
from trainwright.controlplane.apiserver.auth.authorizer import Access, Authorizer, impersonated_user


class Rbac:
    """Roles and bindings. Accounts are `NAMESPACE:NAME`."""

    def __init__(self, manifests: list[dict[str, Any]]):
        self._manifests = [obj for obj in manifests if obj and obj["apiVersion"].startswith("rbac.authorization.k8s.io/")]
        self._authorizer = Authorizer(lambda kind: [obj for obj in self._manifests if obj["kind"] == kind.kind])
        self.used: set[tuple[str, str, str]] = set()
        """Verb, group and resource of what was allowed."""

    def allows(self, account: str, permission: Permission, name: str = "") -> bool:
        """Whether the account has a permission, for one object if `name` is given. A rule with names allows nothing without one."""
        resource, _, subresource = permission.resource.partition("/")
        plural, _, group = resource.partition(".")
        asked = plural + (f"/{subresource}" if subresource else "")
        access = Access(permission.verb, group, asked, name, permission.namespace)
        allowed = self._authorizer.allows(impersonated_user(f"system:serviceaccount:{account}", ()), access)
        if allowed and (permission.verb, group, asked) in self.granted():  # and not what every account may do
            self.used.add((permission.verb, group, asked))
        return allowed

    def granted(self) -> set[tuple[str, str, str]]:
        """Verb, group and resource of every rule."""
        return {
            (verb, group, resource)
            for role in self._manifests
            for rule in role.get("rules") or []
            for verb in rule["verbs"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
        }
