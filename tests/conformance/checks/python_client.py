"""What programs do with the official Python client, oldest and newest alike: each check one use, in a namespace of its own."""

from __future__ import annotations

import base64
import json
import random
import time
from collections.abc import Callable
from typing import Any

import running
from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic import exceptions as dynamic_errors

GROUP, VERSION = "trainer.kubeflow.org", "v1alpha1"
IMAGE = "busybox:1.36"
SOMEBODY_ELSE = "kueue.x-k8s.io/multikueue"
"""Whom the TrainJobs of these checks belong to, so that no controller touches them."""
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


class Context:
    """A connection, and a namespace that goes with it."""

    def __init__(self, kubeconfig: str):
        self.kubeconfig = kubeconfig
        self.api = config.new_client_from_config(kubeconfig)
        self.core, self.batch = client.CoreV1Api(self.api), client.BatchV1Api(self.api)
        self.custom = client.CustomObjectsApi(self.api)
        self.dynamic = DynamicClient(self.api)
        self.namespace = "c-" + "".join(random.choice("bcdfghjklmnpqrstvwxz") for _ in range(8))
        self.core.create_namespace({"metadata": {"name": self.namespace}})
        self.custom.create_namespaced_custom_object(GROUP, VERSION, self.namespace, "trainingruntimes", runtime("rt"))

    def close(self) -> None:
        self.core.delete_namespace(self.namespace)

    def map(self, name: str, **fields: Any) -> Any:
        return self.core.create_namespaced_config_map(self.namespace, {"metadata": {"name": name}, **fields})

    def resource(self, kind: str, api_version: str = "v1") -> Any:
        return self.dynamic.resources.get(api_version=api_version, kind=kind)


def runtime(name: str) -> dict[str, Any]:
    container = {"name": "node", "image": IMAGE, "command": ["true"]}
    job = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {"spec": {"containers": [container]}}},
        },
    }
    spec = {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [job]}}}
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "TrainingRuntime", "metadata": {"name": name}, "spec": spec}


def trainjob(name: str, **spec: Any) -> dict[str, Any]:
    spec = {"managedBy": SOMEBODY_ELSE, "runtimeRef": {"kind": "TrainingRuntime", "name": "rt"}, **spec}
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "TrainJob", "metadata": {"name": name}, "spec": spec}


def pod(name: str, script: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": IMAGE, "command": ["sh", "-c", script]}
    return {"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "containers": [container], **spec}}


def refused(call: Callable[[], Any], status: int, error: type[Exception] = ApiException) -> dict[str, Any]:
    """The Status body with which a call is refused."""
    try:
        call()
    except error as refusal:
        assert refusal.status == status, refusal
        body = refusal.body.decode() if isinstance(refusal.body, bytes) else refusal.body
        answer: dict[str, Any] = json.loads(body)
        assert (answer["kind"], answer["code"], answer["status"]) == ("Status", status, "Failure"), answer
        return answer
    raise AssertionError(f"not refused; {status} was expected")


def eventually(look: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < deadline, f"not within {seconds} s; last seen: {seen!r}"
        time.sleep(0.05)
    return seen


# ---------- configuration and version


def check_config_loading(at: Context) -> None:
    """Into a Configuration, from a dictionary and from the contexts' list."""
    contexts, active = config.list_kube_config_contexts(at.kubeconfig)
    assert active in contexts
    loaded = client.Configuration()
    config.load_kube_config(at.kubeconfig, client_configuration=loaded)
    assert client.CoreV1Api(client.ApiClient(loaded)).list_namespace(limit=1).items
    assert loaded.host == at.api.configuration.host


def check_version(at: Context) -> None:
    found = client.VersionApi(at.api).get_code()
    assert int(found.major) == 1
    assert int(found.minor.rstrip("+")) >= 27
    assert found.git_version.startswith("v1.")


def check_api_groups(at: Context) -> None:
    groups = {group.name for group in client.ApisApi(at.api).get_api_versions().groups}
    assert {"batch", GROUP, "jobset.x-k8s.io"} <= groups
    resources = {resource.name for resource in at.core.get_api_resources().resources}
    assert {"pods", "pods/log", "pods/status", "configmaps", "events"} <= resources


def check_a_wrong_token_is_401(at: Context) -> None:
    loaded = client.Configuration()
    config.load_kube_config(at.kubeconfig, client_configuration=loaded)
    loaded.api_key = {"authorization": "Bearer wrong"}
    loaded.refresh_api_key_hook = None
    loaded.cert_file = loaded.key_file = None
    assert refused(client.CoreV1Api(client.ApiClient(loaded)).list_namespace, 401)["reason"] == "Unauthorized"


# ---------- DynamicClient


def check_dynamic_create_get_list_delete(at: Context) -> None:
    jobs = at.resource("TrainJob", f"{GROUP}/{VERSION}")
    created = jobs.create(body=trainjob("dynamic"), namespace=at.namespace)
    assert (created.metadata.generation, created.spec.runtimeRef.name) == (1, "rt")
    assert jobs.get(name="dynamic", namespace=at.namespace).metadata.uid == created.metadata.uid
    refused(lambda: jobs.create(body=trainjob("dynamic"), namespace=at.namespace), 409, dynamic_errors.ConflictError)
    assert [item.metadata.name for item in jobs.get(namespace=at.namespace).items] == ["dynamic"]
    assert jobs.get(namespace=at.namespace, label_selector="a=b").items == []
    deleted = jobs.delete(name="dynamic", namespace=at.namespace)
    assert deleted.to_dict()["status"] == "Success"
    refused(lambda: jobs.get(name="dynamic", namespace=at.namespace), 404, dynamic_errors.NotFoundError)


def check_dynamic_replace_conflicts(at: Context) -> None:
    maps = at.resource("ConfigMap")
    body = maps.create(body={"metadata": {"name": "replaced"}, "data": {"k": "1"}}, namespace=at.namespace).to_dict()
    newer = maps.replace(body={**body, "data": {"k": "2"}}, namespace=at.namespace)
    assert newer.data.k == "2"
    refused(lambda: maps.replace(body={**body, "data": {"k": "3"}}, namespace=at.namespace), 409, dynamic_errors.ConflictError)


def check_dynamic_json_patch(at: Context) -> None:
    at.map("json", data={"k": "1"})
    maps = at.resource("ConfigMap")
    operations = [{"op": "test", "path": "/data/k", "value": "1"}, {"op": "add", "path": "/data/n", "value": "2"}]
    patched = maps.patch(body=operations, name="json", namespace=at.namespace, content_type=JSON_PATCH)
    assert patched.data.to_dict() == {"k": "1", "n": "2"}
    wrong = [{"op": "test", "path": "/data/k", "value": "other"}]
    refused(
        lambda: maps.patch(body=wrong, name="json", namespace=at.namespace, content_type=JSON_PATCH),
        422,
        dynamic_errors.UnprocessibleEntityError,
    )


def check_dynamic_merge_patch(at: Context) -> None:
    jobs = at.resource("TrainJob", f"{GROUP}/{VERSION}")
    jobs.create(body=trainjob("merged"), namespace=at.namespace)
    patched = jobs.patch(
        body={"metadata": {"labels": {"a": "b"}}, "spec": {"suspend": True}},
        name="merged",
        namespace=at.namespace,
        content_type=MERGE,
    )
    assert (patched.spec.suspend, patched.metadata.labels.a, patched.metadata.generation) == (True, "b", 2)
    patched = jobs.patch(body={"metadata": {"labels": None}}, name="merged", namespace=at.namespace, content_type=MERGE)
    assert (patched.metadata.labels, patched.metadata.generation) == (None, 2)


def check_dynamic_strategic_patch(at: Context) -> None:
    """The dynamic client's own default: a list of containers is merged by name; custom resources do not take it."""
    pods = at.resource("Pod")
    # Held back by a gate, so that nobody runs it.
    pods.create(body=pod("strategic", "true", schedulingGates=[{"name": "e.com/held"}]), namespace=at.namespace)
    change = {"spec": {"containers": [{"name": "main", "image": "busybox:1.37"}]}, "metadata": {"labels": {"a": "b"}}}
    patched = pods.patch(body=change, name="strategic", namespace=at.namespace)
    (container,) = patched.spec.containers
    assert (container.image, container.command[0]) == ("busybox:1.37", "sh")
    at.core.delete_namespaced_pod("strategic", at.namespace, grace_period_seconds=0)
    jobs = at.resource("TrainJob", f"{GROUP}/{VERSION}")
    jobs.create(body=trainjob("strategic"), namespace=at.namespace)
    refused(
        lambda: jobs.patch(body={"spec": {}}, name="strategic", namespace=at.namespace, content_type=STRATEGIC),
        415,
        dynamic_errors.DynamicApiError,
    )


def check_dynamic_server_side_apply(at: Context) -> None:
    """Two managers: a conflict names its field, force takes it over, and what is no longer applied goes."""
    maps = at.resource("ConfigMap")

    def applied(manager: str, data: dict[str, str], **options: Any) -> Any:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": data}
        return maps.server_side_apply(body=body, name="applied", namespace=at.namespace, field_manager=manager, **options)

    created = applied("one", {"a": "1", "b": "1"})
    assert created.metadata.managedFields[0].manager == "one"
    body = refused(lambda: applied("two", {"a": "2"}), 409, dynamic_errors.ConflictError)
    assert body["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.a"}
    ], body
    assert applied("two", {"a": "2"}, force_conflicts=True).data.to_dict() == {"a": "2", "b": "1"}
    assert applied("one", {}).data.to_dict() == {"a": "2"}


def check_dynamic_watch_from_a_version(at: Context) -> None:
    maps = at.resource("ConfigMap")
    version = maps.get(namespace=at.namespace).metadata.resourceVersion
    at.map("watched", metadata={"name": "watched", "labels": {"watched": "yes"}})
    at.core.delete_namespaced_config_map("watched", at.namespace)
    events = maps.watch(namespace=at.namespace, resource_version=version, label_selector="watched=yes", timeout=2)
    assert [(event["type"], event["object"].metadata.name) for event in events] == [("ADDED", "watched"), ("DELETED", "watched")]


def check_dynamic_watch_resumes_after_410(at: Context) -> None:
    """A version that is forgotten ends the watch with 410; after another list it goes on."""
    maps = at.resource("ConfigMap")
    try:
        list(maps.watch(namespace=at.namespace, resource_version="1", timeout=1))
        raise running.CannotBeTold("this cluster still knows its first version")
    except (ApiException, dynamic_errors.DynamicApiError) as gone:
        assert gone.status == 410, gone
    version = maps.get(namespace=at.namespace).metadata.resourceVersion
    at.map("after-410")
    (event,) = maps.watch(namespace=at.namespace, resource_version=version, timeout=1)
    assert event["object"].metadata.name == "after-410"


def check_dynamic_subresources_and_kinds(at: Context) -> None:
    jobs = at.resource("TrainJob", f"{GROUP}/{VERSION}")
    jobs.create(body=trainjob("sub"), namespace=at.namespace)
    condition = {
        "type": "Suspended",
        "status": "True",
        "reason": "Test",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    body = {"status": {"conditions": [condition]}}
    patched = jobs.status.patch(body=body, name="sub", namespace=at.namespace, content_type=MERGE)
    assert (patched.status.conditions[0].type, patched.metadata.generation) == ("Suspended", 1)
    assert at.dynamic.resources.get(name="configmaps", api_version="v1").kind == "ConfigMap"
    assert {found.kind for found in at.dynamic.resources.search(group=GROUP)} >= {"TrainJob", "TrainingRuntime"}


# ---------- CustomObjectsApi


def check_custom_objects_verbs(at: Context) -> None:
    where = (GROUP, VERSION, at.namespace, "trainjobs")
    created = at.custom.create_namespaced_custom_object(*where, trainjob("custom"))
    assert at.custom.get_namespaced_custom_object(*where, "custom")["metadata"]["uid"] == created["metadata"]["uid"]
    replaced = at.custom.replace_namespaced_custom_object(
        *where, "custom", {**created, "spec": {**created["spec"], "suspend": True}}
    )
    assert replaced["spec"]["suspend"] is True
    patched = at.custom.patch_namespaced_custom_object(*where, "custom", {"spec": {"suspend": False}})
    assert patched["metadata"]["generation"] == 3
    refused(lambda: at.custom.replace_namespaced_custom_object(*where, "custom", created), 409)
    listed = at.custom.list_namespaced_custom_object(*where, field_selector="metadata.name=custom")
    assert (listed["kind"], len(listed["items"]), listed["items"][0]["kind"]) == ("TrainJobList", 1, "TrainJob")
    everywhere = at.custom.list_cluster_custom_object(GROUP, VERSION, "trainjobs")["items"]
    assert created["metadata"]["uid"] in [item["metadata"]["uid"] for item in everywhere]
    dry = at.custom.create_namespaced_custom_object(*where, trainjob("dry"), dry_run="All")
    assert dry["metadata"]["uid"]
    refused(lambda: at.custom.get_namespaced_custom_object(*where, "dry"), 404)
    assert at.custom.delete_namespaced_custom_object(*where, "custom")["status"] == "Success"
    refused(lambda: at.custom.delete_namespaced_custom_object(*where, "custom"), 404)


def check_custom_objects_status(at: Context) -> None:
    where = (GROUP, VERSION, at.namespace, "trainjobs")
    created = at.custom.create_namespaced_custom_object(*where, trainjob("status"))
    job = {"name": "node", "ready": 0, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
    body = {**created, "status": {"jobsStatus": [job]}, "spec": {**created["spec"], "suspend": True}}
    replaced = at.custom.replace_namespaced_custom_object_status(*where, "status", body)
    assert (replaced["status"]["jobsStatus"], replaced["spec"].get("suspend")) == ([job], created["spec"].get("suspend"))
    assert at.custom.get_namespaced_custom_object_status(*where, "status")["status"] == replaced["status"]
    patched = at.custom.patch_namespaced_custom_object_status(
        *where, "status", {"status": {"jobsStatus": [{**job, "active": 2}]}}
    )
    assert patched["status"]["jobsStatus"][0]["active"] == 2


def check_custom_objects_scale(at: Context) -> None:
    """None of these kinds has a scale: 404, not another answer."""
    where = (GROUP, VERSION, at.namespace, "trainjobs")
    at.custom.create_namespaced_custom_object(*where, trainjob("scaled"))
    refused(lambda: at.custom.get_namespaced_custom_object_scale(*where, "scaled"), 404)


def check_custom_objects_delete_collection(at: Context) -> None:
    where = (GROUP, VERSION, at.namespace, "trainjobs")
    for name in ("x", "y"):
        at.custom.create_namespaced_custom_object(*where, {**trainjob(name), "metadata": {"name": name, "labels": {"all": "go"}}})
    at.custom.delete_collection_namespaced_custom_object(*where, label_selector="all=go")
    eventually(lambda: not at.custom.list_namespaced_custom_object(*where, label_selector="all=go")["items"])


def check_custom_objects_cluster_scoped(at: Context) -> None:
    name = f"{at.namespace}-runtime"
    where = (GROUP, VERSION, "clustertrainingruntimes")
    at.custom.create_cluster_custom_object(*where, {**runtime(name), "kind": "ClusterTrainingRuntime"})
    try:
        patched = at.custom.patch_cluster_custom_object(*where, name, {"metadata": {"labels": {"a": "b"}}})
        assert patched["metadata"]["labels"] == {"a": "b"}
    finally:
        at.custom.delete_cluster_custom_object(*where, name)
    eventually(lambda: name not in [item["metadata"]["name"] for item in at.custom.list_cluster_custom_object(*where)["items"]])


# ---------- CoreV1Api


def check_core_config_maps_and_secrets(at: Context) -> None:
    at.core.create_namespaced_config_map(
        at.namespace, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="typed"), data={"k": "v"})
    )
    found = at.core.read_namespaced_config_map("typed", at.namespace)
    assert (found.data, found.metadata.creation_timestamp.tzinfo is not None) == ({"k": "v"}, True)
    found.data["k"] = "w"
    assert at.core.replace_namespaced_config_map("typed", at.namespace, found).data == {"k": "w"}
    secret = client.V1Secret(metadata=client.V1ObjectMeta(name="typed"), string_data={"k": "v"})
    created = at.core.create_namespaced_secret(at.namespace, secret)
    assert (created.type, base64.b64decode(created.data["k"])) == ("Opaque", b"v")


def check_core_pages(at: Context) -> None:
    for index in range(5):
        at.map(f"page-{index}", metadata={"name": f"page-{index}", "labels": {"paged": "yes"}})
    names, token = [], None
    while token != "":
        page = at.core.list_namespaced_config_map(at.namespace, label_selector="paged=yes", limit=2, _continue=token)
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue or ""
    assert names == [f"page-{index}" for index in range(5)]
    refused(lambda: at.core.list_namespaced_config_map(at.namespace, limit=2, _continue="nonsense"), 400)


def check_core_selectors(at: Context) -> None:
    for name, labels in (("s1", {"x": "1"}), ("s2", {"x": "2", "y": ""}), ("s3", {})):
        at.map(name, metadata={"name": name, "labels": {**labels, "selected": "yes"}})

    def names(**options: Any) -> list[str]:
        return [item.metadata.name for item in at.core.list_namespaced_config_map(at.namespace, **options).items]

    assert names(label_selector="selected,x in (1,2),!y") == ["s1"]
    assert names(label_selector="selected,x notin (1)") == ["s2", "s3"]
    assert names(field_selector="metadata.name=s3") == ["s3"]
    assert "s3" not in names(field_selector="metadata.name!=s3")
    assert refused(lambda: names(label_selector="x in 1"), 400)["reason"] == "BadRequest"
    assert refused(lambda: names(field_selector="data.k=v"), 400)["reason"] == "BadRequest"


def check_core_generate_name(at: Context) -> None:
    made = [at.core.create_namespaced_config_map(at.namespace, {"metadata": {"generateName": "gen-"}}) for _ in range(2)]
    names = {item.metadata.name for item in made}
    assert len(names) == 2
    assert all(name.startswith("gen-") and len(name) == 9 for name in names)


def check_core_delete_options(at: Context) -> None:
    created = at.map("gone")
    wrong = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="another"))
    assert refused(lambda: at.core.delete_namespaced_config_map("gone", at.namespace, body=wrong), 409)["reason"] == "Conflict"
    at.core.delete_namespaced_config_map("gone", at.namespace, dry_run="All")
    assert at.core.read_namespaced_config_map("gone", at.namespace).metadata.uid == created.metadata.uid
    right = client.V1DeleteOptions(
        preconditions=client.V1Preconditions(uid=created.metadata.uid), propagation_policy="Background"
    )
    deleted = at.api.sanitize_for_serialization(at.core.delete_namespaced_config_map("gone", at.namespace, body=right))
    assert (deleted["status"], deleted["details"]["uid"]) == ("Success", created.metadata.uid)


def check_core_finalizers(at: Context) -> None:
    at.map("held", metadata={"name": "held", "finalizers": ["e.com/hold"]})
    at.core.delete_namespaced_config_map("held", at.namespace)
    assert at.core.read_namespaced_config_map("held", at.namespace).metadata.deletion_timestamp
    at.core.patch_namespaced_config_map("held", at.namespace, {"metadata": {"finalizers": None}})
    refused(lambda: at.core.read_namespaced_config_map("held", at.namespace), 404)


def check_core_owners_and_garbage(at: Context) -> None:
    owner = at.map("owner")
    reference = client.V1OwnerReference(api_version="v1", kind="ConfigMap", name="owner", uid=owner.metadata.uid)
    at.core.create_namespaced_config_map(
        at.namespace, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="owned", owner_references=[reference]))
    )
    at.core.delete_namespaced_config_map("owner", at.namespace, propagation_policy="Foreground")
    names = lambda: [item.metadata.name for item in at.core.list_namespaced_config_map(at.namespace).items]  # noqa: E731
    eventually(lambda: not {"owner", "owned"} & set(names()))


def check_core_events(at: Context) -> None:
    about = client.V1ObjectReference(kind="Pod", name="nobody", namespace=at.namespace, api_version="v1")
    now = "2026-01-02T03:04:05Z"
    event = {
        "metadata": {"generateName": "nobody."},
        "involvedObject": {"kind": "Pod", "name": "nobody", "namespace": at.namespace, "apiVersion": "v1"},
        "reason": "Tested",
        "message": "a message",
        "type": "Warning",
        "source": {"component": "test"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    at.core.create_namespaced_event(at.namespace, event)
    (found,) = at.core.list_namespaced_event(at.namespace, field_selector="involvedObject.name=nobody,reason=Tested").items
    assert (found.involved_object.kind, found.type, found.count) == (about.kind, "Warning", 1)
    assert at.core.list_namespaced_event(at.namespace, field_selector="involvedObject.name=nobody,type=Normal").items == []


def check_core_pod_log_options(at: Context) -> None:
    """Lines, times, tail, bytes and follow of a pod that runs."""
    script = "for i in 1 2 3; do echo line $i; done; sleep 1; echo last"
    at.core.create_namespaced_pod(at.namespace, pod("logs", script))
    read = lambda **options: at.core.read_namespaced_pod_log("logs", at.namespace, **options)  # noqa: E731
    eventually(lambda: at.core.read_namespaced_pod("logs", at.namespace).status.phase in ("Running", "Succeeded"))
    followed = read(follow=True, _preload_content=False).data.decode()
    assert followed == "line 1\nline 2\nline 3\nlast\n"
    eventually(lambda: at.core.read_namespaced_pod("logs", at.namespace).status.phase == "Succeeded")
    assert read(container="main") == followed
    assert read(tail_lines=1) == "last\n"
    assert read(limit_bytes=6) == "line 1"
    assert "other" in refused(lambda: read(container="other"), 400)["message"]
    refused(lambda: read(tail_lines=-1), 422)
    refused(lambda: read(previous=True), 400)


def check_core_pod_log_times(at: Context) -> None:
    """A time before each line, and only what is younger than that."""
    at.core.create_namespaced_pod(at.namespace, pod("times", "echo one; echo two"))
    eventually(lambda: at.core.read_namespaced_pod("times", at.namespace).status.phase == "Succeeded")
    stamped = at.core.read_namespaced_pod_log("times", at.namespace, timestamps=True).splitlines()
    assert [line.partition("Z ")[2] for line in stamped] == ["one", "two"]
    assert at.core.read_namespaced_pod_log("times", at.namespace, since_seconds=3600) == "one\ntwo\n"


def check_core_pod_status(at: Context) -> None:
    at.core.create_namespaced_pod(at.namespace, pod("status", "true", schedulingGates=[{"name": "e.com/held"}]))
    patched = at.core.patch_namespaced_pod_status("status", at.namespace, {"status": {"message": "told"}})
    assert (patched.status.phase, patched.status.message) == ("Pending", "told")
    at.core.delete_namespaced_pod("status", at.namespace, grace_period_seconds=0)


def check_core_pod_deleted_with_grace(at: Context) -> None:
    at.core.create_namespaced_pod(at.namespace, pod("graceful", "trap 'exit 0' TERM; while :; do sleep 0.1; done"))
    eventually(lambda: at.core.read_namespaced_pod("graceful", at.namespace).status.phase == "Running")
    deleted = at.core.delete_namespaced_pod("graceful", at.namespace, grace_period_seconds=5)
    assert (deleted.kind, deleted.metadata.deletion_grace_period_seconds) == ("Pod", 5)

    def gone() -> bool:
        try:
            at.core.read_namespaced_pod("graceful", at.namespace)
        except ApiException as error:
            return bool(error.status == 404)
        return False

    eventually(gone)


def check_core_namespaces(at: Context) -> None:
    name = f"{at.namespace}-more"
    assert at.core.create_namespace({"metadata": {"name": name}}).status.phase == "Active"
    at.core.create_namespaced_config_map(name, {"metadata": {"name": "a"}})
    at.core.delete_namespace(name)
    eventually(lambda: name not in [item.metadata.name for item in at.core.list_namespace().items])


# ---------- BatchV1Api


def check_batch_job_runs(at: Context) -> None:
    template = {"spec": pod("", "exit 0")["spec"]}
    at.batch.create_namespaced_job(
        at.namespace, {"metadata": {"name": "runs"}, "spec": {"template": template, "backoffLimit": 0}}
    )

    def complete() -> Any:
        found = at.batch.read_namespaced_job_status("runs", at.namespace)
        return found if any(entry.type == "Complete" for entry in found.status.conditions or []) else None

    done = eventually(complete)
    assert (done.status.succeeded, done.spec.parallelism, done.spec.completion_mode) == (1, 1, "NonIndexed")
    (made,) = at.core.list_namespaced_pod(at.namespace, label_selector="job-name=runs").items
    assert made.metadata.owner_references[0].uid == done.metadata.uid
    at.batch.delete_namespaced_job("runs", at.namespace, propagation_policy="Background")
    eventually(lambda: not at.core.list_namespaced_pod(at.namespace, label_selector="job-name=runs").items)


def check_batch_job_suspended_and_refused(at: Context) -> None:
    template = {"spec": pod("", "exit 0")["spec"]}
    held = {"metadata": {"name": "held"}, "spec": {"suspend": True, "template": template}}
    made = at.batch.create_namespaced_job(at.namespace, held)
    assert made.spec.suspend is True
    assert at.batch.patch_namespaced_job("held", at.namespace, {"spec": {"parallelism": 0}}).spec.parallelism == 0
    change = {"spec": {"template": {"spec": {"restartPolicy": "OnFailure"}}}}
    body = refused(lambda: at.batch.patch_namespaced_job("held", at.namespace, change), 422)
    assert body["details"]["causes"][0]["field"].startswith("spec.template"), body
    always = {"spec": {**template["spec"], "restartPolicy": "Always"}}
    wrong = {"metadata": {"name": "b"}, "spec": {"template": always}}
    body = refused(lambda: at.batch.create_namespaced_job(at.namespace, wrong), 422)
    assert (body["reason"], body["details"]["causes"][0]["field"]) == ("Invalid", "spec.template.spec.restartPolicy"), body


# ---------- Watch


def check_watch_stream_and_stop(at: Context) -> None:
    stream, seen = watch.Watch(), []
    version = at.core.list_namespaced_config_map(at.namespace).metadata.resource_version
    at.map("streamed")
    at.core.patch_namespaced_config_map("streamed", at.namespace, {"data": {"k": "v"}})
    at.core.delete_namespaced_config_map("streamed", at.namespace)
    for event in stream.stream(
        at.core.list_namespaced_config_map,
        at.namespace,
        field_selector="metadata.name=streamed",
        resource_version=version,
        timeout_seconds=10,
    ):
        seen.append((event["type"], event["object"].data))
        if event["type"] == "DELETED":
            stream.stop()
    assert seen == [("ADDED", None), ("MODIFIED", {"k": "v"}), ("DELETED", {"k": "v"})]


def check_watch_timeout_ends_it(at: Context) -> None:
    began = time.monotonic()
    list(watch.Watch().stream(at.core.list_namespaced_service_account, at.namespace, timeout_seconds=1))
    assert 0.9 <= time.monotonic() - began < 5


def check_watch_bookmarks(at: Context) -> None:
    """The initial state as a stream ends with the bookmark that says so."""
    at.map("bookmarked")
    answer = at.core.list_namespaced_config_map(
        at.namespace,
        watch=True,
        send_initial_events=True,
        resource_version_match="NotOlderThan",
        allow_watch_bookmarks=True,
        timeout_seconds=1,
        _preload_content=False,
    )
    events = [json.loads(line) for line in answer.data.decode().splitlines() if line]
    last = next(event for event in events if event["type"] == "BOOKMARK")
    assert last["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert "bookmarked" in [event["object"]["metadata"]["name"] for event in events if event["type"] == "ADDED"]


def check_watch_expired_is_410(at: Context) -> None:
    try:
        list(watch.Watch().stream(at.core.list_namespaced_config_map, at.namespace, resource_version="1", timeout_seconds=1))
        raise running.CannotBeTold("this cluster still knows its first version")
    except ApiException as gone:
        assert gone.status == 410, gone


def check_watch_custom_objects(at: Context) -> None:
    where = (GROUP, VERSION, at.namespace, "trainjobs")
    version = at.custom.list_namespaced_custom_object(*where)["metadata"]["resourceVersion"]
    at.custom.create_namespaced_custom_object(*where, trainjob("watched"))
    stream = watch.Watch().stream(
        at.custom.list_namespaced_custom_object,
        *where,
        field_selector="metadata.name=watched",
        resource_version=version,
        timeout_seconds=1,
    )
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in stream] == [("ADDED", "watched")]


# ---------- errors


def check_errors_have_bodies(at: Context) -> None:
    """Reason, details and causes, as programs read them."""
    missing = refused(lambda: at.core.read_namespaced_pod("none", at.namespace), 404)
    assert (missing["reason"], missing["details"]) == ("NotFound", {"name": "none", "kind": "pods"})
    assert missing["message"] == 'pods "none" not found'
    at.map("twice")
    assert refused(lambda: at.map("twice"), 409)["reason"] == "AlreadyExists"
    invalid = refused(lambda: at.map("Not_A_Name"), 422)
    assert invalid["details"]["causes"][0]["field"] == "metadata.name"
    where = (GROUP, VERSION, at.namespace, "trainjobs")
    wrong = refused(lambda: at.custom.create_namespaced_custom_object(*where, trainjob("wrong", managedBy="nobody")), 422)
    assert wrong["details"]["causes"][0]["field"] == "spec.managedBy", wrong
    nowhere = refused(lambda: at.core.create_namespaced_config_map("no-such-namespace", {"metadata": {"name": "a"}}), 404)
    assert nowhere["details"] == {"name": "no-such-namespace", "kind": "namespaces"}


def check_errors_of_unknown_resources(at: Context) -> None:
    try:
        at.custom.list_namespaced_custom_object(GROUP, VERSION, at.namespace, "nonsense")
    except ApiException as error:
        assert error.status == 404, error
    else:
        raise AssertionError("an unknown resource was listed")


def check_field_validation(at: Context) -> None:
    """Unknown fields: refused, told, or ignored, as the request says."""
    where = (GROUP, VERSION, at.namespace, "trainjobs")
    body = {**trainjob("strict"), "bogus": 1}
    wrong = refused(lambda: at.custom.create_namespaced_custom_object(*where, body, field_validation="Strict"), 400)
    assert 'unknown field "bogus"' in wrong["message"]
    made, _, headers = at.custom.create_namespaced_custom_object_with_http_info(*where, body, field_validation="Warn")
    assert "bogus" not in made
    assert 'unknown field \\"bogus\\"' in headers["Warning"]


if __name__ == "__main__":
    running.main(running.only_here(), Context)
