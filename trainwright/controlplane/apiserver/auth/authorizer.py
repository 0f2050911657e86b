"""Who sends a request, and what users may do: the administrator everything, others what roles and bindings in the store grant.

Users are the administrator and the service accounts that tokens are issued to. Roles grant as RBAC does; aggregated ClusterRoles are
not filled in. Headers of `kubectl --as` impersonate, and each of them needs a right. Source of these:
staging/src/k8s.io/apiserver/pkg/endpoints/filters/impersonation of Kubernetes. It answers headers without a user with code 500; here
they are a BadRequest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from trainwright.api.errors import BadRequest, Forbidden
from trainwright.api.kinds import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING, Kind
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.controlplane.apiserver.auth.tokens import Authenticator

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
MASTERS, AUTHENTICATED = "system:masters", "system:authenticated"
_ACCOUNT = "system:serviceaccount:"
_PREFIX, _EXTRA = "impersonate-", "impersonate-extra-"
_GROUP = "authentication.k8s.io"


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


def _binds(binding: Obj, user: User) -> bool:
    return any(_is(subject, user, binding["metadata"].get("namespace", "")) for subject in binding.get("subjects") or [])


def _is(subject: Obj, user: User, namespace: str) -> bool:
    kind, name = subject.get("kind"), subject.get("name")
    if kind == "ServiceAccount":
        return user.name == f"system:serviceaccount:{subject.get('namespace') or namespace}:{name}"
    return name == user.name if kind == "User" else kind == "Group" and name in user.groups


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


@dataclass(frozen=True)
class Caller:
    """A `Requester`, for the admission of writes."""

    user: User
    authorizer: Authorizer
    authenticator: Authenticator

    @property
    def name(self) -> str:
        return self.user.name

    @property
    def groups(self) -> tuple[str, ...]:
        return self.user.groups

    @property
    def is_administrator(self) -> bool:
        return self.user.is_administrator

    def may(self, verb: str, kind: Kind, namespace: str, name: str) -> bool:
        """Whether the user has a verb on an object."""
        return self.authorizer.allows(self.user, Access(verb, kind.group, kind.plural, name, namespace))

    def require(self, verb: str, kind: Kind, namespace: str, name: str) -> None:
        """Raises Forbidden if the user does not have a verb on an object."""
        self.require_access(Access(verb, kind.group, kind.plural, name, namespace))

    def require_access(self, access: Access) -> None:
        """Raises Forbidden if the user does not have an access."""
        if not self.authorizer.allows(self.user, access):
            raise forbidden_error(access, self.user.name)

    def rules(self, namespace: str) -> Iterable[Obj]:
        """The RBAC rules of the user in a namespace; those for the whole cluster if it is empty."""
        return self.authorizer.rules(self.user, namespace)


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


@dataclass(frozen=True)
class User:
    """Who sends a request, as in the UserInfo of a review."""

    name: str
    groups: tuple[str, ...]
    uid: str = ""
    extra: tuple[tuple[str, str], ...] = ()

    @property
    def is_administrator(self) -> bool:
        return MASTERS in self.groups

    @property
    def info(self) -> Obj:
        """The UserInfo."""
        optional: Obj = {"uid": self.uid} if self.uid else {}
        if self.extra:
            optional["extra"] = {key: [value for name, value in self.extra if name == key] for key, _ in self.extra}
        return {"username": self.name, "groups": list(self.groups), **optional}


ADMINISTRATOR = User("trainwright-admin", (MASTERS, AUTHENTICATED))


def service_account_user(claims: Obj) -> User:
    """Return the user of a service account token, with the pod that it is bound to and its node."""
    bound: Any = claims.get("kubernetes.io") or {}
    extra = tuple(
        (f"authentication.kubernetes.io/{kind}-{part}", bound[kind][part])
        for kind in ("node", "pod")
        for part in ("name", "uid")
        if (bound.get(kind) or {}).get(part)
    )
    account = bound.get("serviceaccount") or {}
    return User(claims.get("sub", ""), _groups_of_accounts(bound.get("namespace", "")), account.get("uid", ""), extra)


def _groups_of_accounts(namespace: str) -> tuple[str, ...]:
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)


def impersonated_user(name: str, groups: tuple[str, ...]) -> User:
    """Return the user that the headers of `kubectl --as NAME --as-group GROUP` mean; without groups, those of a service account."""
    namespace, colon, _ = name.removeprefix(_ACCOUNT).partition(":")
    if not groups and name.startswith(_ACCOUNT) and colon:
        groups = _groups_of_accounts(namespace)
    return User(name, (*groups, *(() if AUTHENTICATED in groups else (AUTHENTICATED,))))


def impersonation_target(name: str) -> tuple[str, str, str]:
    """Return the resource, name and namespace for which the verb `impersonate` is asked."""
    namespace, colon, account = name.removeprefix(_ACCOUNT).partition(":")
    return ("serviceaccounts", account, namespace) if name.startswith(_ACCOUNT) and colon else ("users", name, "")


def impersonated(caller: Caller, headers: Iterable[tuple[bytes, bytes]]) -> Caller:
    """Return the caller that a request is sent as. Raises BadRequest for other headers without a user, Forbidden."""
    given = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers]
    given = [(name, value) for name, value in given if name.startswith(_PREFIX)]
    if not given:
        return caller
    named = next((value for name, value in given if name == "impersonate-user" and value), "")
    if not named:
        asked = ", ".join(sorted({name for name, _ in given}))
        raise BadRequest(f"requested {asked} without impersonating a user")
    groups = tuple(value for name, value in given if name == "impersonate-group")
    uid = next((value for name, value in given if name == "impersonate-uid"), "")
    extra = tuple((unquote(name.removeprefix(_EXTRA)), value) for name, value in given if name.startswith(_EXTRA))
    resource, account, namespace = impersonation_target(named)
    caller.require_access(Access("impersonate", "", resource, account, namespace))
    for group in groups:
        caller.require_access(Access("impersonate", "", "groups", group))
    for key, value in extra:
        caller.require_access(Access("impersonate", _GROUP, f"userextras/{key}", value))
    if uid:
        caller.require_access(Access("impersonate", _GROUP, "uids", uid))
    return replace(caller, user=replace(impersonated_user(named, groups), uid=uid, extra=extra))
