"""Apply on the verbs: who owns what, by which door, and what a configuration is refused for."""

from __future__ import annotations

from typing import Any

import pytest
from factories import pod

from trainwright.api.errors import ApiError, BadRequest, Conflict
from trainwright.api.kinds import CLAIM, CONFIG_MAP, POD
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire import patch_types
from trainwright.controlplane.apiserver.wire.write_options import WriteOptions

LAST = "kubectl.kubernetes.io/last-applied-configuration"


def apply(server: ResourceServer, config: Any, manager: str = "m", kind: Any = CONFIG_MAP, **options: Any) -> dict[str, Any]:
    options = {"field_manager": manager, **options}
    return server.patch(kind, "default", "a", config, patch_types.APPLY, WriteOptions(**options)).object


def config(**parts: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, **parts}


def owners(obj: dict[str, Any]) -> dict[str, Any]:
    return {entry["manager"]: entry["fieldsV1"] for entry in obj["metadata"].get("managedFields", [])}


def test_status_and_object_have_owners_of_their_own(server: ResourceServer) -> None:
    applied: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    apply(server, {**applied, "spec": {"containers": [{"name": "c", "image": "i"}]}}, kind=POD)
    done = apply(server, {**applied, "status": {"phase": "Running"}}, "m", POD, status=True)
    entries = [(entry["manager"], entry.get("subresource")) for entry in done["metadata"]["managedFields"]]
    assert sorted(entries, key=str) == [("m", "status"), ("m", None)]
    with pytest.raises(Conflict, match=r'conflict with "m" with subresource "status": \.status\.phase'):
        apply(server, {**applied, "status": {"phase": "Failed"}}, "other", POD, status=True)


def test_an_apply_that_changes_nothing_keeps_its_version(server: ResourceServer) -> None:
    first = apply(server, config(data={"k": "v"}))
    before = server.store.revision
    assert apply(server, config(data={"k": "v"})) == first
    assert server.store.revision == before


def test_a_dry_run_shows_the_owners_and_stores_nothing(server: ResourceServer) -> None:
    assert owners(apply(server, config(data={"k": "v"}), dry_run=True)) == {"m": {"f:data": {"f:k": {}}}}
    assert server.store.get(CONFIG_MAP.resource, "default", "a") is None


def test_fields_added_by_the_server_have_no_owner(server: ResourceServer) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a"}, "spec": spec}
    made = server.create(CLAIM, "default", claim).object
    assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert "f:metadata" not in owners(made)["trainwright"]


def test_kubectl_takes_over_what_it_applied_on_the_clients_side(server: ResourceServer) -> None:
    old = '{"data":{"k":"1"}}'
    made = config(metadata={"name": "a", "annotations": {LAST: old}}, data={"k": "1", "other": "1"})
    server.create(CONFIG_MAP, "default", made, WriteOptions(field_manager="kubectl-client-side-apply"))
    taken = apply(server, config(data={"k": "2"}), "kubectl")
    assert taken["data"] == {"k": "2", "other": "1"}
    assert '"k":"2"' in taken["metadata"]["annotations"][LAST]
    with pytest.raises(Conflict, match=r"kubectl-client-side-apply\" using v1: \.data\.other"):
        apply(server, config(data={"other": "2"}), "kubectl")


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"bogus": 1}, ApiError, r"\(/a; /v1, Kind=ConfigMap\): \.bogus: field not declared in schema"),
        ({"data": {"k": 1}}, ApiError, r"\.data\.k: expected string, got &value\.valueUnstructured\{Value:1\}"),
        ({"apiVersion": "v2"}, BadRequest, "Specified patch version: v2, expected: v1"),
        ({"metadata": {"name": "a", "managedFields": [{}]}}, BadRequest, "metadata.managedFields must be nil"),
        ({"metadata": {"name": "b"}}, BadRequest, r"the name of the object \(b\) does not match"),
    ],
)
def test_refused(server: ResourceServer, wrong: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        apply(server, config(**wrong))


@pytest.mark.parametrize(
    ("containers", "message"),
    [
        (
            [{"image": "i"}],
            r'\.spec\.containers: element 0: associative list with keys has an element that omits key field "name"',
        ),
        ([{"name": "c"}, {"name": "c"}], r'\.spec\.containers: duplicate entries for key \[name="c"\]'),
        ([{"name": "c", "bogus": 1}], r'\.spec\.containers\[name="c"\]\.bogus: field not declared in schema'),
    ],
)
def test_lists_need_their_keys(server: ResourceServer, containers: Any, message: str) -> None:
    with pytest.raises(ApiError, match=message):
        apply(server, pod("a", containers=containers), kind=POD)
