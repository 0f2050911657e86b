"""Impersonation headers: each needs a right, and none counts without a user."""

from __future__ import annotations

from typing import Any

import pytest

from trainwright.api.errors import BadRequest, Forbidden
from trainwright.controlplane.apiserver.auth.authorizer import ADMINISTRATOR, Authorizer, Caller, User, impersonated
from trainwright.controlplane.apiserver.auth.tokens import Authenticator, Tokens
from trainwright.controlplane.apiserver.storage.store import Store

RULES = [
    {"apiGroups": [""], "resources": ["users"], "resourceNames": ["jane"], "verbs": ["impersonate"]},
    {"apiGroups": [""], "resources": ["groups"], "resourceNames": ["readers"], "verbs": ["impersonate"]},
    {"apiGroups": ["authentication.k8s.io"], "resources": ["uids", "userextras/scopes"], "verbs": ["impersonate"]},
]


def caller(user: User) -> Caller:
    role = {"kind": "ClusterRole", "metadata": {"name": "r"}, "rules": RULES}
    binding = {
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "r"},
        "roleRef": {"kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "User", "name": "boss"}],
    }
    authorizer = Authorizer(lambda kind: [obj for obj in (role, binding) if obj["kind"] == kind.kind])
    return Caller(user, authorizer, Authenticator(Tokens("a" * 32, b"k" * 32), Store(":memory:")))


def sent(user: User, **headers: str) -> User:
    return impersonated(caller(user), [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]).user


BOSS = User("boss", ("system:authenticated",))


@pytest.mark.parametrize("name", ["impersonate_group", "impersonate_uid", "impersonate_extra_scopes"])
@pytest.mark.parametrize("user", [ADMINISTRATOR, BOSS])
def test_a_header_without_a_user_is_refused(name: str, user: User) -> None:
    for more in ({}, {"impersonate_user": ""}):
        with pytest.raises(BadRequest, match="without impersonating a user"):
            sent(user, **{name: "x"}, **more)


def test_the_user_has_what_the_headers_say() -> None:
    headers = {"impersonate_group": "readers", "impersonate_uid": "7", "impersonate_extra_scopes": "view"}
    user = sent(BOSS, impersonate_user="jane", **headers)
    assert user.info == {
        "username": "jane",
        "groups": ["readers", "system:authenticated"],
        "uid": "7",
        "extra": {"scopes": ["view"]},
    }
    assert sent(BOSS) == BOSS


@pytest.mark.parametrize(
    "headers",
    [
        {"impersonate_user": "john"},
        {"impersonate_user": "jane", "impersonate_group": "system:masters"},
        {"impersonate_user": "jane", "impersonate_extra_other": "x"},
    ],
)
def test_headers_beyond_the_rights_of_the_sender_are_forbidden(headers: dict[str, Any]) -> None:
    with pytest.raises(Forbidden, match="cannot impersonate resource"):
        sent(BOSS, **headers)
