"""A service account token is good for as long as the objects that it is bound to: the account, its pod, its Secret."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from bound_tokens import account_token, pod_token
from factories import pod

from trainwright.api.errors import Unauthorized
from trainwright.api.kinds import NAMESPACE, POD, SECRET, SERVICE_ACCOUNT
from trainwright.controlplane.apiserver.auth.tokens import Authenticator, Tokens
from trainwright.controlplane.apiserver.verbs.deletion import DeleteOptions
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer

NOW = DeleteOptions(grace_period_seconds=0)


@pytest.fixture
def tokens() -> Tokens:
    return Tokens("a" * 32, b"k" * 32)


@pytest.fixture
def authenticator(server: ResourceServer, tokens: Tokens, clock: Any) -> Authenticator:
    return Authenticator(tokens, server.store, clock)


def is_valid(authenticator: Authenticator, token: str) -> bool:
    try:
        authenticator.verify(token, "me")
    except Unauthorized:
        return False
    return True


def test_a_token_ends_with_its_pod_also_if_another_has_its_name(
    server: ResourceServer, tokens: Tokens, authenticator: Authenticator
) -> None:
    token = pod_token(server, tokens, "me", server.create(POD, "default", pod()).object)
    assert is_valid(authenticator, token)
    server.delete(POD, "default", "p", NOW)
    assert not is_valid(authenticator, token)
    server.create(POD, "default", pod())
    assert not is_valid(authenticator, token)


def test_a_deleted_pod_keeps_its_token_for_a_minute_after_its_grace_period(
    server: ResourceServer, tokens: Tokens, authenticator: Authenticator, clock: Any
) -> None:
    created = server.create(POD, "default", pod(terminationGracePeriodSeconds=30, nodeName="local")).object
    token = pod_token(server, tokens, "me", created)
    server.delete(POD, "default", "p")
    clock.advance(89)
    assert is_valid(authenticator, token)
    clock.advance(2)
    assert not is_valid(authenticator, token)


def test_a_token_ends_with_its_account_also_if_another_has_its_name(
    server: ResourceServer, tokens: Tokens, authenticator: Authenticator
) -> None:
    token = account_token(server, tokens, "me")
    assert is_valid(authenticator, token)
    server.delete(SERVICE_ACCOUNT, "default", "default")  # made again at once, with another uid
    assert not is_valid(authenticator, token)
    assert is_valid(authenticator, account_token(server, tokens, "me"))


def test_a_token_ends_with_its_secret(server: ResourceServer, tokens: Tokens, authenticator: Authenticator) -> None:
    secret = server.create(SECRET, "default", {"metadata": {"name": "s"}}).object
    token = account_token(server, tokens, "me", secret={"name": "s", "uid": secret["metadata"]["uid"]})
    assert is_valid(authenticator, token)
    server.delete(SECRET, "default", "s")
    assert not is_valid(authenticator, token)


def test_a_token_ends_with_its_namespace(server: ResourceServer, tokens: Tokens, authenticator: Authenticator) -> None:
    server.create(NAMESPACE, "", {"metadata": {"name": "team"}})
    token = account_token(server, tokens, "me", namespace="team")
    assert is_valid(authenticator, token)
    server.delete(NAMESPACE, "", "team")
    assert not is_valid(authenticator, token)


@pytest.mark.parametrize("bound", [{}, {"serviceaccount": {"name": "default"}}, {"serviceaccount": None}])
def test_tokens_without_the_uid_of_an_account_are_refused(
    bound: Any, server: ResourceServer, tokens: Tokens, authenticator: Authenticator, clock: Any
) -> None:
    assert not is_valid(authenticator, tokens.issue(["me"], "default", "default", bound, 600, datetime.now(UTC)))


@pytest.mark.medium
def test_deletion_ends_a_token_at_every_use_over_http(peer: Any) -> None:
    account = SERVICE_ACCOUNT.path("default", "robot")
    peer.json("POST", SERVICE_ACCOUNT.path("default"), {"metadata": {"name": "robot"}})
    created = peer.json("POST", POD.path("default"), pod(serviceAccountName="robot")).body
    reference = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": created["metadata"]["uid"]}
    issued = peer.json(
        "POST", f"{account}/token", {"spec": {"boundObjectRef": reference, "expirationSeconds": 4_000_000_000}}
    ).body
    token = issued["status"]["token"]
    assert issued["spec"]["expirationSeconds"] == 86400

    def uses() -> tuple[int, bool]:
        review = peer.json("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": token}}).body
        return peer.json("GET", "/apis", token=token).status, review["status"]["authenticated"]

    assert uses() == (200, True)
    whoami = peer.json("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, token=token).body["status"]["userInfo"]
    assert whoami["uid"] == peer.json("GET", account).body["metadata"]["uid"]
    assert whoami["extra"]["authentication.kubernetes.io/pod-uid"] == [reference["uid"]]
    peer.json("DELETE", f"{POD.path('default', 'p')}?gracePeriodSeconds=0")
    assert uses() == (401, False)
