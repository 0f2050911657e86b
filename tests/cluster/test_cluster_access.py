"""Which right a refused request needed, told where the server does not tell it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.kinds import ALL, Kind
from trainwright.cluster.permissions import Permission, permission_for

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


@given(st.sampled_from(ALL), st.sampled_from(["", "one"]), st.sampled_from(["", "team"]))
def test_every_path_of_ours_is_read_back(kind: Kind, name: str, namespace: str) -> None:
    right = permission_for("get", kind.path(namespace or None, name or None))
    scope = namespace if kind.namespaced else ""
    assert right == Permission("get" if name else "list", kind.resource, scope)
