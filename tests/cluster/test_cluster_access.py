"""Which right a refused request needed, told where the server does not tell it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.errors import Forbidden, NotFound
from trainwright.api.kinds import ALL, Kind
from trainwright.cluster.permissions import AccessDenied, Permission, permission_for, with_missing_permission

JOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs"


@pytest.mark.parametrize(
    ("method", "path", "query", "right"),
    [
        ("get", JOBS, [], "list trainjobs.trainer.kubeflow.org in the namespace team"),
        ("get", JOBS, [("watch", "true")], "watch trainjobs.trainer.kubeflow.org in the namespace team"),
        ("post", JOBS, [], "create trainjobs.trainer.kubeflow.org in the namespace team"),
        ("patch", f"{JOBS}/a/status", [], "patch trainjobs.trainer.kubeflow.org/status in the namespace team"),
        ("get", "/api/v1/namespaces/team/pods/p/log", [], "get pods/log in the namespace team"),
        ("get", "/api/v1/nodes", [], "list nodes"),
        ("get", "/api/v1/namespaces/team", [], "get namespaces"),
        ("delete", f"{JOBS}/a", [], "delete trainjobs.trainer.kubeflow.org in the namespace team"),
    ],
)
def test_the_right_that_a_request_needs(method: str, path: str, query: Any, right: str) -> None:
    assert str(permission_for(method, path, query)) == right


def test_a_path_that_is_no_resource_needs_nothing_known() -> None:
    assert permission_for("get", "/version") is None


@given(st.sampled_from(ALL), st.sampled_from(["", "one"]), st.sampled_from(["", "team"]))
def test_every_path_of_ours_is_read_back(kind: Kind, name: str, namespace: str) -> None:
    right = permission_for("get", kind.path(namespace or None, name or None))
    scope = namespace if kind.namespaced else ""
    assert right == Permission("get" if name else "list", kind.resource, scope)


@pytest.mark.parametrize("message", ["HTTP 403", "trainjobs is forbidden"])
def test_a_bare_refusal_names_the_right(message: str) -> None:
    told = with_missing_permission(Forbidden(message), "post", JOBS, [])
    assert isinstance(told, AccessDenied)
    assert str(told) == f"{message} (missing permission: create trainjobs.trainer.kubeflow.org in the namespace team)"


@pytest.mark.parametrize(
    "message",
    [
        'trainjobs is forbidden: User "u" cannot create resource "trainjobs" in API group "trainer.kubeflow.org"',
        'admission webhook "v" denied the request: no',
        'pods "a" is forbidden: exceeded quota: q',
    ],
)
def test_complete_messages_and_other_errors_stay_unchanged(message: str) -> None:
    assert str(with_missing_permission(Forbidden(message), "post", JOBS, [])) == message
    missing = NotFound("gone")
    assert with_missing_permission(missing, "get", JOBS, []) is missing
