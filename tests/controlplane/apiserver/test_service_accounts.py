"""Every namespace has its default service account, and a pod is created only if its account exists."""

from __future__ import annotations

from typing import Any

import pytest
from factories import pod

from trainwright.api.errors import Forbidden, Invalid
from trainwright.api.kinds import NAMESPACE, POD, SERVICE_ACCOUNT
from trainwright.api.objects import uid_of
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.verbs.deletion import DeleteOptions
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer


def test_a_pod_of_a_missing_account_is_refused(server: ResourceServer) -> None:
    with pytest.raises(Forbidden) as refused:
        server.create(POD, "default", pod("x", serviceAccountName="robot"))
    assert refused.value.message == (
        'pods "x" is forbidden: error looking up service account default/robot: serviceaccounts "robot" not found'
    )
    server.create(SERVICE_ACCOUNT, "default", {"metadata": {"name": "robot"}})
    server.create(POD, "default", pod("x", serviceAccountName="robot"))


def test_a_new_namespace_has_its_default_account_at_once(server: ResourceServer) -> None:
    server.create(NAMESPACE, "", {"metadata": {"name": "team"}})
    server.create(POD, "team", pod(namespace="team"))
    before = uid_of(server.get(SERVICE_ACCOUNT, "team", "default").object)
    server.delete(SERVICE_ACCOUNT, "team", "default")
    assert uid_of(server.get(SERVICE_ACCOUNT, "team", "default").object) not in ("", before)
    server.delete(POD, "team", "p", DeleteOptions(grace_period_seconds=0))
    server.delete(NAMESPACE, "", "team")
    assert server.store.get(NAMESPACE.resource, "", "team") is None


def test_a_server_without_service_accounts_makes_and_needs_none() -> None:
    store = Store(":memory:")
    server = ResourceServer(store, service_accounts=False)
    assert not server.list(SERVICE_ACCOUNT, None).records
    server.create(POD, "default", pod(serviceAccountName="robot"))
    store.close()


@pytest.mark.parametrize(
    ("token", "problem"),
    [
        (
            {"path": "t", "expirationSeconds": 599},
            "expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
        ),
        (
            {"path": "t", "expirationSeconds": 2**32 + 1},
            "expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds",
        ),
        ({"path": "../t"}, "path: Invalid value: \"../t\": must not contain '..'"),
        ({"path": ""}, "path: Required value"),
        ({"path": "t", "expirationSeconds": 600}, ""),
        ({"path": "t", "expirationSeconds": 2**32}, ""),
    ],
)
def test_life_and_path_of_a_projected_token_are_checked(server: ResourceServer, token: dict[str, Any], problem: str) -> None:
    volume = {"name": "t", "projected": {"sources": [{"serviceAccountToken": token}]}}
    if not problem:
        server.create(POD, "default", pod(volumes=[volume]))
        return
    with pytest.raises(Invalid) as refused:
        server.create(POD, "default", pod(volumes=[volume]))
    assert f"spec.volumes[0].projected.sources[0].serviceAccountToken.{problem}" in refused.value.message
