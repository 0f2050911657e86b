"""The verbs: identity, versions, generation, status, patches, lists in pages, namespaces."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from trainwright.api.errors import Conflict, Invalid
from trainwright.api.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    EVENT,
    JOB,
    NAMESPACE,
    NODE,
    POD,
    PRIORITY_CLASS,
    RUNTIME_CLASS,
    TRAINJOB,
    Kind,
)
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire.media import APPLY, MERGE
from trainwright.controlplane.apiserver.wire.requests import ListOptions, WriteOptions

Manifest = Callable[..., dict[str, Any]]


def create(server: ResourceServer, obj: dict[str, Any], kind: Kind) -> dict[str, Any]:
    return server.create(kind, obj["metadata"].get("namespace", ""), obj).object


@pytest.fixture
def letters(server: ResourceServer, manifest: Manifest) -> ResourceServer:
    for index, name in enumerate("abcde"):
        create(server, manifest(CONFIG_MAP, name, metadata={"labels": {"odd": str(index % 2)}}), CONFIG_MAP)
    return server


def names(page: Any) -> str:
    return "".join(record.object["metadata"]["name"] for record in page.records)


def test_pages_show_one_moment(letters: ResourceServer) -> None:
    first = letters.list(CONFIG_MAP, "default", ListOptions(limit=2))
    assert (names(first), first.remaining) == ("ab", 3)
    letters.delete(CONFIG_MAP, "default", "c")
    second = letters.list(CONFIG_MAP, "default", ListOptions(limit=2, continue_token=first.token))
    third = letters.list(CONFIG_MAP, "default", ListOptions(limit=2, continue_token=second.token))
    assert (names(second), names(third), third.token) == ("cd", "e", "")
    assert second.revision == first.revision
    assert names(letters.list(CONFIG_MAP, "default")) == "abde"


@pytest.mark.parametrize("namespace", ["default", None])
def test_pages_of_one_namespace_and_of_all(namespace: str | None, server: ResourceServer, manifest: Manifest) -> None:
    create(server, {"metadata": {"name": "other"}}, NAMESPACE)
    for place, name in (("default", "a"), ("default", "b"), ("other", "a"), ("other", "b")):
        create(server, manifest(CONFIG_MAP, name, namespace=place), CONFIG_MAP)
    seen, token = [], ""
    while token or not seen:
        page = server.list(CONFIG_MAP, namespace, ListOptions(limit=1, continue_token=token))
        seen += [(record.object["metadata"]["namespace"], record.object["metadata"]["name"]) for record in page.records]
        token = page.token
    assert seen == [("default", "a"), ("default", "b"), ("other", "a"), ("other", "b")][: 2 if namespace else 4]


@pytest.mark.medium
def test_eight_threads_count_with_optimistic_concurrency(server: ResourceServer, manifest: Manifest) -> None:
    create(server, manifest(CONFIG_MAP, "counter", data={"n": "0"}), CONFIG_MAP)
    conflicts = []

    def count() -> None:
        done = 0
        while done < 25:
            seen = server.get(CONFIG_MAP, "default", "counter").object
            try:
                server.update(CONFIG_MAP, "default", "counter", {**seen, "data": {"n": str(int(seen["data"]["n"]) + 1)}})
                done += 1
            except Conflict as error:
                conflicts.append(error)

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert server.get(CONFIG_MAP, "default", "counter").object["data"] == {"n": "200"}


@pytest.mark.parametrize(
    ("kind", "labels", "annotations"),
    [(JOB, "new", "new"), (POD, "new", "new"), (DEPLOYMENT, "old", "new"), (TRAINJOB, "old", "old")],
)
def test_status_write_sets_labels_and_annotations_except_of_custom_resources(
    kind: Kind, labels: str, annotations: str, server: ResourceServer, manifest: Manifest
) -> None:
    given = {"labels": {"a": "old"}, "annotations": {"b": "old"}}
    stored = create(server, manifest(kind, "one", metadata=given), kind)
    metadata = {**stored["metadata"], "labels": {"a": "new"}, "annotations": {"b": "new"}, "finalizers": ["c/d"]}
    written = server.update(
        kind, "default", "one", {**stored, "metadata": metadata, "spec": {}}, WriteOptions(status=True)
    ).object
    assert written["metadata"]["labels"]["a"] == labels
    assert written["metadata"]["annotations"]["b"] == annotations
    assert written["metadata"].get("finalizers") == stored["metadata"].get("finalizers")
    assert written["spec"] == stored["spec"]
    if kind == JOB:
        with pytest.raises(Invalid, match=r"metadata\.labels"):
            server.patch(kind, "default", "one", {"metadata": {"labels": {"a": "!"}}}, MERGE, WriteOptions(status=True))


@pytest.mark.parametrize(
    ("kind", "given", "selector", "found"),
    [
        (POD, {"spec": {"hostNetwork": True}}, "spec.hostNetwork=true", True),
        (POD, {}, "spec.hostNetwork=false", True),
        (POD, {}, "spec.hostNetwork!=false", False),
        (JOB, {}, "status.successful=0", True),
        (JOB, {}, "status.successful=1", False),
        (NODE, {"spec": {"unschedulable": True}}, "spec.unschedulable=true", True),
        (NODE, {}, "spec.unschedulable=false", True),
        (EVENT, {"source": {"component": "a"}, "reportingComponent": "b"}, "source=a,reportingComponent=b", True),
        (EVENT, {"reportingComponent": "b"}, "source=b", True),
    ],
)
def test_field_selector_reads_values_that_are_derived_as_the_api_server_does(
    kind: Kind, given: dict[str, Any], selector: str, found: bool, server: ResourceServer, manifest: Manifest
) -> None:
    about = {"involvedObject": {"namespace": "default"}} if kind == EVENT else {}
    create(server, manifest(kind, "one", **about, **given), kind)
    page = server.list(kind, "default" if kind.namespaced else None, ListOptions(field_selector=selector))
    assert bool(page.records) is found


@pytest.mark.parametrize(
    ("kind", "given", "change", "refused"),
    [
        (PRIORITY_CLASS, {"value": 5}, {"value": 6}, r"value: Forbidden: may not be changed in an update\."),
        (PRIORITY_CLASS, {"value": 5}, {"preemptionPolicy": "Never"}, 'Invalid value: "Never": field is immutable'),
        (PRIORITY_CLASS, {"value": 5}, {"globalDefault": True}, ""),
        (RUNTIME_CLASS, {"handler": "a"}, {"handler": "b"}, 'handler: Invalid value: "b": field is immutable'),
        (
            NODE,
            {"spec": {"providerID": "a"}},
            {"spec": {"providerID": "b"}},
            r"spec\.providerID: Forbidden: node updates may not",
        ),
        (NODE, {}, {"spec": {"providerID": "b"}}, ""),
        (NODE, {"spec": {"providerID": "a"}}, {"spec": {"unschedulable": True}}, ""),
    ],
)
def test_field_that_keeps_its_first_value_is_refused_another(
    kind: Kind, given: dict[str, Any], change: dict[str, Any], refused: str, server: ResourceServer, manifest: Manifest
) -> None:
    create(server, manifest(kind, "one", **given), kind)
    if not refused:
        server.patch(kind, "", "one", change, MERGE)
        return
    with pytest.raises(Invalid, match=refused):
        server.patch(kind, "", "one", change, MERGE)


def test_apply_of_a_status_keeps_the_labels_and_owns_those_that_it_sets(server: ResourceServer, manifest: Manifest) -> None:
    create(server, manifest(POD, "one", metadata={"labels": {"a": "old"}, "annotations": {"b": "old"}}), POD)
    by = WriteOptions(status=True, field_manager="me")
    applied = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "labels": {"c": "new"}}, "status": {"reason": "r"}}
    metadata = server.patch(POD, "default", "one", applied, APPLY, by).object["metadata"]
    assert (metadata["labels"], metadata["annotations"]) == ({"a": "old", "c": "new"}, {"b": "old"})
    (entry,) = [each for each in metadata["managedFields"] if each["manager"] == "me"]
    assert entry["fieldsV1"]["f:metadata"]["f:labels"] == {"f:c": {}}
    merged = server.patch(POD, "default", "one", {"metadata": {"labels": {"a": "new"}}}, MERGE, by).object["metadata"]
    updates = [each for each in merged["managedFields"] if each["operation"] == "Update" and each.get("subresource") == "status"]
    assert ["f:a" in each["fieldsV1"].get("f:metadata", {}).get("f:labels", {}) for each in updates] == [True]


def test_namespace_keeps_the_label_of_its_name_in_a_write_of_its_status(server: ResourceServer) -> None:
    create(server, {"metadata": {"name": "other"}}, NAMESPACE)
    change = {"metadata": {"labels": {"kubernetes.io/metadata.name": "default", "a": "b"}}}
    changed = server.patch(NAMESPACE, "", "other", change, MERGE, WriteOptions(status=True)).object
    assert changed["metadata"]["labels"] == {"kubernetes.io/metadata.name": "other", "a": "b"}
