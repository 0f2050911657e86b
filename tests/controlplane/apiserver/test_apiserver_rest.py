"""The verbs: identity, versions, generation, status, patches, lists in pages, namespaces."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from trainwright.api.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    UnsupportedMediaType,
)
from trainwright.api.kinds import CONFIG_MAP, EVENT, JOB, LEASE, NAMESPACE, NODE, POD, SECRET, TRAINJOB, Kind
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire import patch_types
from trainwright.controlplane.apiserver.wire.list_options import ListOptions
from trainwright.controlplane.apiserver.wire.write_options import WriteOptions

Manifest = Callable[..., dict[str, Any]]
STATUS = WriteOptions(status=True)
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def merge(server: ResourceServer, kind: Kind, name: str, patch: Any, options: WriteOptions = WriteOptions()) -> dict[str, Any]:  # noqa: B008
    return server.patch(kind, "default", name, patch, patch_types.MERGE, options).object


def create(server: ResourceServer, obj: dict[str, Any], kind: Kind) -> dict[str, Any]:
    return server.create(kind, obj["metadata"].get("namespace", ""), obj).object


def test_create_gives_identity_and_ignores_a_clients(server: ResourceServer, manifest: Manifest) -> None:
    given = {
        "uid": "mine",
        "creationTimestamp": "2000-01-01T00:00:00Z",
        "generation": 9,
        "deletionTimestamp": "2000-01-01T00:00:00Z",
    }
    metadata = create(server, manifest(TRAINJOB, "a", metadata=given), TRAINJOB)["metadata"]
    assert re.fullmatch(r"[0-9a-f-]{36}", metadata["uid"])
    assert metadata["creationTimestamp"] == "2026-01-02T03:04:05Z"
    assert metadata["generation"] == 1
    assert "deletionTimestamp" not in metadata
    assert metadata["resourceVersion"] == str(server.store.revision)


def test_generated_names(server: ResourceServer, manifest: Manifest) -> None:
    obj = manifest(CONFIG_MAP, "", metadata={"generateName": "run-"})
    del obj["metadata"]["name"]
    names = {create(server, obj, CONFIG_MAP)["metadata"]["name"] for _ in range(20)}
    assert len(names) == 20
    assert all(re.fullmatch(r"run-[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in names)


@pytest.mark.parametrize(
    ("kind", "change", "error", "text"),
    [
        (
            CONFIG_MAP,
            {"metadata": {"name": "Has_Upper"}},
            Invalid,
            r'ConfigMap "Has_Upper" is invalid: metadata.name: Invalid value',
        ),
        (CONFIG_MAP, {"metadata": {}}, Invalid, r"metadata.name: Required value: name or generateName is required"),
        (
            CONFIG_MAP,
            {"metadata": {"name": "a", "labels": {"a": 1}}},
            BadRequest,
            "cannot unmarshal number into Go struct field",
        ),
        (CONFIG_MAP, {"metadata": {"name": "a", "labels": {"a b": ""}}}, Invalid, 'metadata.labels: Invalid value: "a b"'),
        (CONFIG_MAP, {"metadata": {"name": "a", "labels": {"a": "b c"}}}, Invalid, 'metadata.labels: Invalid value: "b c"'),
        (CONFIG_MAP, {"metadata": {"name": "a", "finalizers": ["x"]}}, Invalid, "neither a standard finalizer name"),
        (CONFIG_MAP, {"metadata": {"name": "a", "ownerReferences": [{"name": "x"}]}}, Invalid, "ownerReferences.uid"),
        (
            CONFIG_MAP,
            {"metadata": {"name": "a", "namespace": "other"}},
            BadRequest,
            "does not match the namespace sent on the request",
        ),
        (CONFIG_MAP, {"metadata": {"name": "a", "resourceVersion": "5"}}, ApiError, "resourceVersion should not be set"),
        (CONFIG_MAP, {"kind": "Secret"}, BadRequest, "cannot be handled as a ConfigMap"),
        (TRAINJOB, {"kind": ""}, BadRequest, "Object 'Kind' is missing"),
        (NAMESPACE, {"metadata": {"name": "a.b"}}, Invalid, "a lowercase RFC 1123 label"),
        (TRAINJOB, {"spec": {}}, Invalid, "runtimeRef"),
    ],
)
def test_create_refuses(
    server: ResourceServer, manifest: Manifest, kind: Kind, change: Any, error: type[ApiError], text: str
) -> None:
    before = server.store.revision
    with pytest.raises(error, match=text):
        server.create(kind, "default" if kind.namespaced else "", {**manifest(kind, "a"), **change})
    assert server.store.revision == before


def test_create_twice_and_in_a_missing_namespace(server: ResourceServer, manifest: Manifest) -> None:
    create(server, manifest(TRAINJOB, "a"), TRAINJOB)
    with pytest.raises(AlreadyExists, match=r'^trainjobs.trainer.kubeflow.org "a" already exists$') as failed:
        create(server, manifest(TRAINJOB, "a"), TRAINJOB)
    assert failed.value.details == {"name": "a", "group": "trainer.kubeflow.org", "kind": "trainjobs"}
    with pytest.raises(NotFound, match=r'^namespaces "x" not found$'):
        create(server, manifest(POD, "a", namespace="x"), POD)
    with pytest.raises(NotFound, match=r'^pods "b" not found$'):
        server.get(POD, "default", "b")


def test_status_has_its_own_door(server: ResourceServer, manifest: Manifest) -> None:
    assert "status" not in create(server, manifest(TRAINJOB, "a", status={"x": 1}), TRAINJOB)
    merge(server, TRAINJOB, "a", {"status": {"jobsStatus": []}, "metadata": {"labels": {"a": "b"}}})
    assert "status" not in server.get(TRAINJOB, "default", "a").object
    changed = merge(server, TRAINJOB, "a", {"status": {"conditions": []}, "spec": {"suspend": True}}, STATUS)
    assert changed["status"] == {"conditions": []}
    assert not changed["spec"].get("suspend")
    assert changed["metadata"]["generation"] == 1
    kept = server.update(TRAINJOB, "default", "a", {**changed, "status": {"other": 1}}).object
    assert kept["status"] == {"conditions": []}


def test_a_pod_begins_pending_and_a_node_with_its_status(server: ResourceServer, manifest: Manifest) -> None:
    assert create(server, manifest(POD, "a", status={"phase": "Running"}), POD)["status"] == {
        "phase": "Pending",
        "qosClass": "BestEffort",
    }
    assert create(server, manifest(NODE, "n", status={"capacity": {"cpu": "2"}}), NODE)["status"] == {"capacity": {"cpu": "2"}}


@pytest.mark.parametrize(
    ("kind", "patch", "options", "counts"),
    [
        (TRAINJOB, {"spec": {"suspend": True}}, WriteOptions(), True),
        (TRAINJOB, {"metadata": {"labels": {"a": "b"}}}, WriteOptions(), False),
        (TRAINJOB, {"status": {"conditions": []}}, STATUS, False),
        (JOB, {"spec": {"parallelism": 3}}, WriteOptions(), True),
        (POD, {"metadata": {"annotations": {"a": "b"}}}, WriteOptions(), False),
    ],
)
def test_generation_counts_the_spec(
    server: ResourceServer, manifest: Manifest, kind: Kind, patch: Any, options: WriteOptions, counts: bool
) -> None:
    create(server, manifest(kind, "a"), kind)
    assert merge(server, kind, "a", patch, options)["metadata"]["generation"] == 1 + counts


def test_nothing_changed_is_no_write(server: ResourceServer, manifest: Manifest) -> None:
    obj = create(server, manifest(JOB, "a", metadata={"labels": {"a": "b"}}), JOB)
    before = server.store.revision
    assert server.update(JOB, "default", "a", obj).object == obj
    assert merge(server, JOB, "a", {"metadata": {"labels": {"a": "b"}}, "spec": {"parallelism": 1}}) == obj
    assert merge(server, JOB, "a", {"status": {}}, STATUS) == obj
    assert server.store.revision == before


def test_stale_versions_conflict(server: ResourceServer, manifest: Manifest) -> None:
    old = create(server, manifest(CONFIG_MAP, "a"), CONFIG_MAP)
    merge(server, CONFIG_MAP, "a", {"data": {"k": "1"}})
    with pytest.raises(Conflict, match=rf'^Operation cannot be fulfilled on configmaps "a": {MODIFIED}$'):
        server.update(CONFIG_MAP, "default", "a", {**old, "data": {"k": "2"}})
    with pytest.raises(Conflict, match=MODIFIED):
        merge(server, CONFIG_MAP, "a", {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}, "data": {"k": "2"}})
    with pytest.raises(Invalid, match=r'metadata.uid: Invalid value: "other": field is immutable'):
        merge(server, CONFIG_MAP, "a", {"metadata": {"uid": "other"}})
    with pytest.raises(Conflict, match="UID in precondition: other"):
        server.update(CONFIG_MAP, "default", "a", {**old, "metadata": {"name": "a", "uid": "other"}})
    free = {**old, "metadata": {"name": "a"}, "data": {"k": "3"}}
    assert server.update(CONFIG_MAP, "default", "a", free).object["data"] == {"k": "3"}


def test_custom_resources_must_say_what_they_replace(server: ResourceServer, manifest: Manifest) -> None:
    create(server, manifest(TRAINJOB, "a"), TRAINJOB)
    with pytest.raises(Invalid, match=r"metadata.resourceVersion: Invalid value: 0: must be specified for an update"):
        server.update(TRAINJOB, "default", "a", manifest(TRAINJOB, "a"))


@pytest.mark.parametrize(("kind", "made"), [(LEASE, True), (EVENT, True), (CONFIG_MAP, False), (POD, False)])
def test_put_creates_some_kinds(server: ResourceServer, manifest: Manifest, kind: Kind, made: bool) -> None:
    if made:
        assert server.update(kind, "default", "a", manifest(kind, "a")).created
    else:
        with pytest.raises(NotFound):
            server.update(kind, "default", "a", manifest(kind, "a"))


def test_name_of_the_url_must_be_that_of_the_object(server: ResourceServer, manifest: Manifest) -> None:
    create(server, manifest(CONFIG_MAP, "a"), CONFIG_MAP)
    with pytest.raises(BadRequest, match=r"the name of the object \(b\) does not match the name on the URL \(a\)"):
        server.update(CONFIG_MAP, "default", "a", manifest(CONFIG_MAP, "b"))


def test_patches(server: ResourceServer, manifest: Manifest) -> None:
    create(server, manifest(CONFIG_MAP, "a", data={"k": "v", "gone": "x"}), CONFIG_MAP)
    assert merge(server, CONFIG_MAP, "a", {"data": {"gone": None, "n": "1"}})["data"] == {"k": "v", "n": "1"}
    operations = [{"op": "test", "path": "/data/k", "value": "v"}, {"op": "replace", "path": "/data/k", "value": "w"}]
    assert server.patch(CONFIG_MAP, "default", "a", operations, patch_types.JSON_PATCH).object["data"]["k"] == "w"
    with pytest.raises(Invalid, match="the server rejected our request due to an error in our request"):
        server.patch(CONFIG_MAP, "default", "a", operations, patch_types.JSON_PATCH)
    with pytest.raises(BadRequest, match="error decoding patch"):
        server.patch(CONFIG_MAP, "default", "a", {}, patch_types.JSON_PATCH)
    with pytest.raises(NotFound):
        merge(server, CONFIG_MAP, "none", {})


def test_strategic_merge_is_for_built_in_kinds(server: ResourceServer, manifest: Manifest) -> None:
    create(server, manifest(POD, "a"), POD)
    patch = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    server.patch(POD, "default", "a", patch, patch_types.STRATEGIC, STATUS)
    patch = {"status": {"conditions": [{"type": "Initialized", "status": "True"}]}}
    conditions = server.patch(POD, "default", "a", patch, patch_types.STRATEGIC, STATUS).object["status"]["conditions"]
    assert {entry["type"] for entry in conditions} == {"Ready", "Initialized"}
    create(server, manifest(TRAINJOB, "a"), TRAINJOB)
    with pytest.raises(UnsupportedMediaType, match="accepted media types include: application/json-patch"):
        server.patch(TRAINJOB, "default", "a", {}, patch_types.STRATEGIC)


def test_apply_creates_and_changes(server: ResourceServer, manifest: Manifest) -> None:
    obj = manifest(CONFIG_MAP, "a", data={"k": "v"})
    assert server.patch(CONFIG_MAP, "default", "a", obj, patch_types.APPLY).created
    again = server.patch(CONFIG_MAP, "default", "a", {**obj, "data": {"k": "w"}}, patch_types.APPLY)
    assert not again.created
    assert again.object["data"] == {"k": "w"}


def test_dry_run_answers_and_stores_nothing(server: ResourceServer, manifest: Manifest) -> None:
    before = server.store.revision
    dry = WriteOptions(dry_run=True)
    answer = server.create(CONFIG_MAP, "default", manifest(CONFIG_MAP, "a"), dry)
    assert answer.created
    assert "resourceVersion" not in answer.object["metadata"]
    with pytest.raises(NotFound):
        server.get(CONFIG_MAP, "default", "a")
    assert server.store.revision == before


def test_unknown_fields(server: ResourceServer, manifest: Manifest) -> None:
    obj = manifest(TRAINJOB, "a", spec={"bogus": 1})
    with pytest.raises(BadRequest, match=r'strict decoding error: unknown field "spec.bogus"'):
        server.create(TRAINJOB, "default", obj, WriteOptions(field_validation="Strict"))
    assert server.create(TRAINJOB, "default", obj).warnings == ['unknown field "spec.bogus"']


def test_text_of_a_secret_is_encoded(server: ResourceServer, manifest: Manifest) -> None:
    secret = create(server, manifest(SECRET, "a", stringData={"k": "v"}, data={"x": "eA=="}), SECRET)
    assert secret["data"] == {"k": "dg==", "x": "eA=="}
    assert "stringData" not in secret
    assert secret["type"] == "Opaque"


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


@pytest.mark.parametrize(
    ("labels", "fields", "found"),
    [
        ("odd=1", "", "bd"),
        ("odd!=1", "", "ace"),
        ("odd in (0,1),odd notin (0)", "", "bd"),
        ("!odd", "", ""),
        ("", "metadata.name=c", "c"),
        ("odd=0", "metadata.name!=c", "ae"),
        ("", "metadata.namespace=other", ""),
    ],
)
def test_selectors(letters: ResourceServer, labels: str, fields: str, found: str) -> None:
    assert names(letters.list(CONFIG_MAP, None, ListOptions(label_selector=labels, field_selector=fields))) == found


def test_pages_of_a_selection_do_not_count_the_rest(letters: ResourceServer) -> None:
    page = letters.list(CONFIG_MAP, "default", ListOptions(limit=1, label_selector="odd=0"))
    assert (names(page), page.remaining, bool(page.token)) == ("a", None, True)


@pytest.mark.parametrize(
    ("kind", "options", "error", "text"),
    [
        (CONFIG_MAP, ListOptions(field_selector="data.k=v"), BadRequest, '"data.k" is not a known field selector'),
        (TRAINJOB, ListOptions(field_selector="spec.suspend=true"), BadRequest, "field label not supported: spec.suspend"),
        (CONFIG_MAP, ListOptions(field_selector="x"), BadRequest, "can't understand 'x'"),
        (CONFIG_MAP, ListOptions(label_selector="a in b"), BadRequest, "unable to parse requirement"),
        (CONFIG_MAP, ListOptions(continue_token="zzz", limit=1), BadRequest, "continue key is not valid"),
        (CONFIG_MAP, ListOptions(resource_version="abc"), BadRequest, "invalid resource version"),
        (CONFIG_MAP, ListOptions(resource_version="99999"), ApiError, "Too large resource version: 99999"),
    ],
)
def test_lists_refuse(letters: ResourceServer, kind: Kind, options: ListOptions, error: type[ApiError], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        letters.list(kind, "default", options)


def test_expired_token(server: ResourceServer, manifest: Manifest) -> None:
    for name in "abc":
        create(server, manifest(CONFIG_MAP, name), CONFIG_MAP)
    token = server.list(CONFIG_MAP, "default", ListOptions(limit=1)).token
    create(server, manifest(CONFIG_MAP, "d"), CONFIG_MAP)
    server.store._history._floor = server.store.revision
    with pytest.raises(Expired, match="The provided continue parameter is too old") as refused:
        server.list(CONFIG_MAP, "default", ListOptions(limit=1, continue_token=token))
    token = refused.value.status()["metadata"]["continue"]  # goes on with the list as it is now
    rest = server.list(CONFIG_MAP, "default", ListOptions(continue_token=token))
    assert [record.object["metadata"]["name"] for record in rest.records] == ["b", "c", "d"]


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


def test_binding(server: ResourceServer, manifest: Manifest) -> None:
    create(server, manifest(POD, "a"), POD)
    server.bind("default", "a", "n1")
    pod = server.get(POD, "default", "a").object
    assert pod["spec"]["nodeName"] == "n1"
    assert pod["metadata"]["generation"] == 1
    assert pod["status"]["conditions"][0]["type"] == "PodScheduled"
    with pytest.raises(Conflict, match='pod a is already assigned to node "n1"'):
        server.bind("default", "a", "n2")


def test_namespaces_of_a_new_cluster(server: ResourceServer) -> None:
    found = {record.object["metadata"]["name"]: record.object for record in server.list(NAMESPACE, None).records}
    assert set(found) == {"default", "kube-system", "kubeflow-system"}
    assert found["default"]["status"] == {"phase": "Active"}
    assert found["default"]["metadata"]["labels"] == {"kubernetes.io/metadata.name": "default"}
    with pytest.raises(Forbidden, match="this namespace may not be deleted"):
        server.delete(NAMESPACE, "", "default")


def test_a_namespace_goes_with_what_it_holds(server: ResourceServer, manifest: Manifest) -> None:
    create(server, manifest(NAMESPACE, "team"), NAMESPACE)
    create(server, manifest(POD, "p", "team"), POD)
    create(server, manifest(CONFIG_MAP, "held", "team", metadata={"finalizers": ["e.com/hold"]}), CONFIG_MAP)
    answer = server.delete(NAMESPACE, "", "team").object
    assert answer["status"]["phase"] == "Terminating"
    assert server.list(POD, "team").records == []
    with pytest.raises(
        Forbidden, match="unable to create new content in namespace team because it is being terminated"
    ) as refused:
        create(server, manifest(CONFIG_MAP, "late", "team"), CONFIG_MAP)
    assert refused.value.details["causes"][0]["reason"] == "NamespaceTerminating"
    assert server.get(NAMESPACE, "", "team")
    server.patch(CONFIG_MAP, "team", "held", {"metadata": {"finalizers": None}}, patch_types.MERGE)
    with pytest.raises(NotFound):
        server.get(NAMESPACE, "", "team")


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
