"""Deletion: at once, held by finalizers, with a pod's grace, with preconditions, and with a policy for dependents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainwright.api.errors import Invalid
from trainwright.api.kinds import POD, TRAINJOB, Kind
from trainwright.controlplane.apiserver.verbs.deletion import DeleteOptions
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire import media
from trainwright.controlplane.apiserver.wire.requests import WriteOptions

Manifest = Callable[..., dict[str, Any]]


@pytest.fixture
def make(server: ResourceServer, manifest: Manifest) -> Callable[..., dict[str, Any]]:
    return lambda kind, name="a", **fields: server.create(kind, "default", manifest(kind, name, **fields)).object


def gone(server: ResourceServer, kind: Kind, name: str = "a") -> bool:
    return server.store.get(kind.resource, "default", name) is None


def test_no_finalizer_is_added_to_what_is_being_deleted(server: ResourceServer, make: Any) -> None:
    make(TRAINJOB, metadata={"finalizers": ["e.com/one"]})
    server.delete(TRAINJOB, "default", "a")
    with pytest.raises(Invalid, match="no new finalizers can be added"):
        server.patch(TRAINJOB, "default", "a", {"metadata": {"finalizers": ["e.com/one", "e.com/two"]}}, media.MERGE)


def test_an_object_that_has_become_invalid_can_still_be_released(server: ResourceServer, make: Any) -> None:
    make(TRAINJOB, metadata={"finalizers": ["e.com/one"]})
    stored = server.store.get(TRAINJOB.resource, "default", "a")
    assert stored
    server.store.put(TRAINJOB.resource, "default", "a", {**stored.object, "spec": {}})
    server.delete(TRAINJOB, "default", "a")
    server.patch(TRAINJOB, "default", "a", {"metadata": {"finalizers": []}}, media.MERGE)
    assert gone(server, TRAINJOB)


def test_grace_can_only_become_shorter(server: ResourceServer, make: Any, clock: Any) -> None:
    make(POD)
    server.bind("default", "a", "n1")
    first = server.delete(POD, "default", "a").object["metadata"]
    assert (first["deletionTimestamp"], first["deletionGracePeriodSeconds"], first["generation"]) == (
        "2026-01-02T03:04:35Z",
        30,
        2,
    )
    clock.advance(10)
    assert server.delete(POD, "default", "a", DeleteOptions(grace_period_seconds=50)).object["metadata"] == first
    shorter = server.delete(POD, "default", "a", DeleteOptions(grace_period_seconds=5)).object["metadata"]
    assert (shorter["deletionTimestamp"], shorter["deletionGracePeriodSeconds"]) == ("2026-01-02T03:04:10Z", 5)
    server.patch(POD, "default", "a", {"status": {"phase": "Failed"}}, media.MERGE, WriteOptions(status=True))
    assert not gone(server, POD)
    server.delete(POD, "default", "a", DeleteOptions(grace_period_seconds=0))
    assert gone(server, POD)
