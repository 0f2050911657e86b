"""Apply on the verbs: who owns what, by which door, and what a configuration is refused for."""

from __future__ import annotations

from typing import Any

import pytest

from trainwright.api.errors import Conflict
from trainwright.api.kinds import CLAIM, CONFIG_MAP
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire import media
from trainwright.controlplane.apiserver.wire.requests import WriteOptions

LAST = "kubectl.kubernetes.io/last-applied-configuration"


def apply(server: ResourceServer, config: Any, manager: str = "m", kind: Any = CONFIG_MAP, **options: Any) -> dict[str, Any]:
    options = {"field_manager": manager, **options}
    return server.patch(kind, "default", "a", config, media.APPLY, WriteOptions(**options)).object


def config(**parts: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, **parts}


def owners(obj: dict[str, Any]) -> dict[str, Any]:
    return {entry["manager"]: entry["fieldsV1"] for entry in obj["metadata"].get("managedFields", [])}


def test_an_apply_that_changes_nothing_keeps_its_version(server: ResourceServer) -> None:
    first = apply(server, config(data={"k": "v"}))
    before = server.store.revision
    assert apply(server, config(data={"k": "v"})) == first
    assert server.store.revision == before


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
