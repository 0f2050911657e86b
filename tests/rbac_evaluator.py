"""A small evaluator of RBAC manifests: what a service account may do, as Kubernetes' RBAC authorizer decides it."""

from __future__ import annotations

from typing import Any

from trainwright.cluster.permissions import Permission


class Rbac:
    """Roles and bindings. Accounts are `NAMESPACE:NAME`."""

    def __init__(self, manifests: list[dict[str, Any]]):
        self._manifests = [obj for obj in manifests if obj and obj["apiVersion"].startswith("rbac.authorization.k8s.io/")]
        self.used: set[tuple[str, str, str]] = set()
        """Verb, group and resource of the rules by which something was allowed."""

    def allows(self, account: str, permission: Permission, name: str = "") -> bool:
        """Whether the account has a permission, for one object if `name` is given. A rule with names allows nothing without one."""
        resource, _, subresource = permission.resource.partition("/")
        plural, _, group = resource.partition(".")
        asked = plural + (f"/{subresource}" if subresource else "")
        for rule in self.rules(account, permission.namespace):
            if (
                permission.verb in rule["verbs"]
                and group in rule["apiGroups"]
                and asked in rule["resources"]
                and (not rule.get("resourceNames") or name in rule["resourceNames"])
            ):
                self.used.add((permission.verb, group, asked))
                return True
        return False

    def rules(self, account: str, namespace: str) -> list[dict[str, Any]]:
        """The rules of the roles that are bound to the account for a namespace, `""` for the whole cluster."""
        found = []
        for binding in self._manifests:
            if not binding["kind"].endswith("Binding") or account not in map(_account, binding["subjects"]):
                continue
            where = binding["metadata"].get("namespace", "")
            if where and where != namespace:
                continue
            reference = binding["roleRef"]
            roles = [obj for obj in self._manifests if obj["kind"] == reference["kind"]]
            found += [
                rule
                for role in roles
                if role["metadata"]["name"] == reference["name"] and role["metadata"].get("namespace", where) == where
                for rule in role["rules"]
            ]
        return found

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


def _account(subject: dict[str, Any]) -> str:
    return f"{subject['namespace']}:{subject['name']}"
