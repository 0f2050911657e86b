"""Deletion: at once, held by finalizers, with a pod's grace, with preconditions, and with a policy for dependents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainwright.api.errors import AlreadyExists, Conflict, Invalid, NotFound
from trainwright.api.kinds import CONFIG_MAP, JOB, POD, SERVICE, TRAINJOB, Kind
from trainwright.controlplane.apiserver.verbs.deletion import DeleteOptions
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire import patch_types
from trainwright.controlplane.apiserver.wire.list_options import ListOptions
from trainwright.controlplane.apiserver.wire.write_options import WriteOptions

Manifest = Callable[..., dict[str, Any]]


@pytest.fixture
def make(server: ResourceServer, manifest: Manifest) -> Callable[..., dict[str, Any]]:
    return lambda kind, name="a", **fields: server.create(kind, "default", manifest(kind, name, **fields)).object


def gone(server: ResourceServer, kind: Kind, name: str = "a") -> bool:
    return server.store.get(kind.resource, "default", name) is None


@pytest.mark.parametrize(
    ("kind", "answer"), [(CONFIG_MAP, "Status"), (JOB, "Status"), (TRAINJOB, "Status"), (SERVICE, "Service"), (POD, "Pod")]
)
def test_at_once(server: ResourceServer, make: Any, kind: Kind, answer: str) -> None:
    uid = make(kind)["metadata"]["uid"]
    found = server.delete(kind, "default", "a", DeleteOptions("Background")).object
    assert found["kind"] == answer
    assert answer != "Status" or found["details"] == {key: value for key, value in {
        "name": "a", "group": kind.group, "kind": kind.plural, "uid": uid}.items() if value}  # fmt: skip
    assert gone(server, kind)
    with pytest.raises(NotFound):
        server.delete(kind, "default", "a")


def test_finalizers_hold(server: ResourceServer, make: Any) -> None:
    make(TRAINJOB, metadata={"finalizers": ["e.com/one", "e.com/two"]})
    marked = server.delete(TRAINJOB, "default", "a").object
    assert marked["metadata"]["deletionTimestamp"] == "2026-01-02T03:04:05Z"
    assert (marked["metadata"]["deletionGracePeriodSeconds"], marked["metadata"]["generation"]) == (0, 2)
    before = server.store.revision
    assert server.delete(TRAINJOB, "default", "a").object == marked
    assert server.store.revision == before
    with pytest.raises(AlreadyExists, match=r"^object is being deleted: trainjobs"):
        make(TRAINJOB)
    with pytest.raises(Invalid, match="no new finalizers can be added"):
        server.patch(TRAINJOB, "default", "a", {"metadata": {"finalizers": ["e.com/one", "e.com/three"]}}, patch_types.MERGE)
    server.patch(TRAINJOB, "default", "a", {"metadata": {"finalizers": ["e.com/two"]}}, patch_types.MERGE)
    assert not gone(server, TRAINJOB)
    server.patch(TRAINJOB, "default", "a", [{"op": "remove", "path": "/metadata/finalizers"}], patch_types.JSON_PATCH)
    assert gone(server, TRAINJOB)


def test_an_object_that_has_become_invalid_can_still_be_released(server: ResourceServer, make: Any) -> None:
    make(TRAINJOB, metadata={"finalizers": ["e.com/one"]})
    stored = server.store.get(TRAINJOB.resource, "default", "a")
    assert stored
    server.store.put(TRAINJOB.resource, "default", "a", {**stored.object, "spec": {}})
    server.delete(TRAINJOB, "default", "a")
    server.patch(TRAINJOB, "default", "a", {"metadata": {"finalizers": []}}, patch_types.MERGE)
    assert gone(server, TRAINJOB)


def test_preconditions(server: ResourceServer, make: Any) -> None:
    metadata = make(CONFIG_MAP)["metadata"]
    with pytest.raises(Conflict, match=r"the UID in the precondition \(x\) does not match the UID in record") as failed:
        server.delete(CONFIG_MAP, "default", "a", DeleteOptions(uid="x"))
    assert failed.value.details == {"name": "a", "kind": "ConfigMap"}
    with pytest.raises(Conflict, match=r"the ResourceVersion in the precondition \(1\)"):
        server.delete(CONFIG_MAP, "default", "a", DeleteOptions(resource_version="1"))
    server.delete(CONFIG_MAP, "default", "a", DeleteOptions(uid=metadata["uid"], resource_version=metadata["resourceVersion"]))
    assert gone(server, CONFIG_MAP)


@pytest.mark.parametrize(
    ("policy", "finalizers"),
    [(None, ["orphan"]), ("Background", None), ("Foreground", ["foregroundDeletion"]), ("Orphan", ["orphan"])],
)
def test_policy(server: ResourceServer, make: Any, policy: Any, finalizers: Any) -> None:
    make(JOB)
    server.delete(JOB, "default", "a", DeleteOptions(policy))
    if finalizers is None:
        assert gone(server, JOB)
    else:
        metadata = server.get(JOB, "default", "a").object["metadata"]
        assert metadata["finalizers"] == finalizers
        assert "deletionTimestamp" in metadata


@pytest.mark.parametrize(
    ("node", "phase", "asked", "left"),
    [
        ("", "Pending", None, None),
        ("", "Pending", 60, None),
        ("n1", "Succeeded", None, None),
        ("n1", "Failed", 60, None),
        ("n1", "Running", 0, None),
        ("n1", "Running", None, 7),
        ("n1", "Running", 60, 60),
        ("n1", "Running", -1, 1),
    ],
)
def test_grace_of_a_pod(server: ResourceServer, make: Any, node: str, phase: str, asked: int | None, left: int | None) -> None:
    make(POD, spec={"terminationGracePeriodSeconds": 7})
    if node:
        server.bind("default", "a", node)
    server.patch(POD, "default", "a", {"status": {"phase": phase}}, patch_types.MERGE, WriteOptions(status=True))
    answer = server.delete(POD, "default", "a", DeleteOptions(grace_period_seconds=asked)).object
    assert answer["metadata"]["deletionGracePeriodSeconds"] == (left or 0)
    assert gone(server, POD) is (left is None)


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
    server.patch(POD, "default", "a", {"status": {"phase": "Failed"}}, patch_types.MERGE, WriteOptions(status=True))
    assert not gone(server, POD)
    server.delete(POD, "default", "a", DeleteOptions(grace_period_seconds=0))
    assert gone(server, POD)


def test_collection(server: ResourceServer, make: Any) -> None:
    for name in ("a", "b", "c"):
        make(CONFIG_MAP, name, metadata={"labels": {"x": str(name == "b")}})
    page = server.delete_collection(CONFIG_MAP, "default", ListOptions(label_selector="x=False"))
    assert [record.object["metadata"]["name"] for record in page.records] == ["a", "c"]
    assert not gone(server, CONFIG_MAP, "b")


def test_dry_run(server: ResourceServer, make: Any) -> None:
    make(CONFIG_MAP)
    assert server.delete(CONFIG_MAP, "default", "a", DeleteOptions(dry_run=True)).object["status"] == "Success"
    assert not gone(server, CONFIG_MAP)


def test_the_same_name_again_is_another_object(server: ResourceServer, make: Any) -> None:
    first = make(TRAINJOB)["metadata"]
    server.delete(TRAINJOB, "default", "a")
    second = make(TRAINJOB)["metadata"]
    assert first["uid"] != second["uid"]
    assert second["generation"] == 1
