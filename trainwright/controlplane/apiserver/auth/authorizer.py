"""Decides what users may do: the administrator everything, others what roles and bindings in the store grant, as RBAC does.

Aggregated ClusterRoles are not filled in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trainwright.api.errors import Forbidden
from trainwright.api.kinds import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING, Kind
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.controlplane.apiserver.auth.users import User

ANY = "*"
_BASIC_RULES: tuple[Obj, ...] = (
    {
        "verbs": ["create"],
        "apiGroups": ["authorization.k8s.io"],
        "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
    },
    {"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]},
    {
        "verbs": ["get"],
        "nonResourceURLs": ["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", "/version", "/version/"],
    },
)
"""For every user: the ClusterRoles system:basic-user and system:discovery of a cluster."""


@dataclass(frozen=True)
class Access:
    """What a request wants to do: a verb on a resource, or on a `path` that is none."""

    verb: str
    group: str = ""
    resource: str = ""
    """`PLURAL[/SUBRESOURCE]`"""
    name: str = ""
    namespace: str = ""
    """Empty for the whole cluster."""
    path: str = ""


class Authorizer:
    """`objects` lists all stored objects of a kind."""

    def __init__(self, objects: Callable[[Kind], list[Obj]]):
        self._objects = objects

    def allows(self, user: User, access: Access) -> bool:
        """Whether a role of the user, or one of all users, has a rule for the access."""
        return user.is_administrator or any(_grants(rule, access) for rule in self.rules(user, access.namespace))

    def rules(self, user: User, namespace: str) -> Iterator[Obj]:
        """Yield the rules that apply to the user in a namespace; those for the whole cluster if it is empty."""
        yield from _BASIC_RULES
        for binding in self._objects(CLUSTER_ROLE_BINDING):
            if _binds(binding, user):
                yield from self._rules_of(binding)
        if namespace:
            for binding in self._objects(ROLE_BINDING):
                if namespace_of(binding) == namespace and _binds(binding, user):
                    yield from self._rules_of(binding)

    def _rules_of(self, binding: Obj) -> Iterator[Obj]:
        reference = binding["roleRef"]
        kind, where = (ROLE, namespace_of(binding)) if reference["kind"] == ROLE.kind else (CLUSTER_ROLE, "")
        for role in self._objects(kind):
            if name_of(role) == reference["name"] and (role["metadata"].get("namespace") or "") == where:
                yield from role.get("rules") or []


def forbidden_error(access: Access, user: str = "system:anonymous") -> Forbidden:
    """The error for an access that the user does not have."""
    who = f'User "{user}"'
    if access.path:
        return Forbidden(f'forbidden: {who} cannot {access.verb} path "{access.path}"')
    where = f' in the namespace "{access.namespace}"' if access.namespace else " at the cluster scope"
    plural = access.resource.partition("/")[0]
    resource = f"{plural}.{access.group}" if access.group else plural
    subject = f'{resource} "{access.name}"' if access.name else resource
    text = f'{subject} is forbidden: {who} cannot {access.verb} resource "{access.resource}" in API group "{access.group}"{where}'
    details = {key: value for key, value in (("name", access.name), ("group", access.group), ("kind", plural)) if value}
    return Forbidden(text, details=details)


def _binds(binding: Obj, user: User) -> bool:
    return any(_is(subject, user, binding["metadata"].get("namespace", "")) for subject in binding.get("subjects") or [])


def _is(subject: Obj, user: User, namespace: str) -> bool:
    kind, name = subject.get("kind"), subject.get("name")
    if kind == "ServiceAccount":
        return user.name == f"system:serviceaccount:{subject.get('namespace') or namespace}:{name}"
    return name == user.name if kind == "User" else kind == "Group" and name in user.groups


def _grants(rule: Obj, access: Access) -> bool:
    if not _has(rule, "verbs", access.verb):
        return False
    if access.path:
        return any(_is_path(access.path, pattern) for pattern in rule.get("nonResourceURLs") or [])
    if not _has(rule, "apiGroups", access.group):
        return False
    _, slash, subresource = access.resource.partition("/")
    if not _has(rule, "resources", access.resource, f"{ANY}/{subresource}" if slash else ""):
        return False
    names = rule.get("resourceNames") or []
    return not names or (bool(access.name) and access.name in names)


def _has(rule: Obj, field: str, *wanted: str) -> bool:
    values = rule.get(field) or []
    return ANY in values or any(each in values for each in wanted)


def _is_path(path: str, pattern: str) -> bool:
    return path == pattern or (pattern.endswith(ANY) and path.startswith(pattern[:-1]))
