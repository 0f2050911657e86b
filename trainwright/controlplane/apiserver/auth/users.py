"""The users of an embedded cluster: its administrator, and the service accounts that tokens are issued to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainwright.api.objects import Obj

MASTERS, AUTHENTICATED = "system:masters", "system:authenticated"


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
_ACCOUNT = "system:serviceaccount:"


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


def _groups_of_accounts(namespace: str) -> tuple[str, ...]:
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
