"""The in-process cluster: same answers, own copies, watches that end."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from trainwright.api.errors import AlreadyExists, BadRequest, Conflict, Expired, NotFound, ServiceUnavailable
from trainwright.api.kinds import CONFIG_MAP, JOB, NAMESPACE, POD
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.embedded import EmbeddedCluster

Manifest = Callable[..., dict[str, Any]]


def test_embedded_cluster_implements_the_protocol(cluster: EmbeddedCluster) -> None:
    checked: Cluster = cluster
    assert checked.get(NAMESPACE, "default")["kind"] == "Namespace"


def test_verbs(cluster: EmbeddedCluster, manifest: Manifest) -> None:
    created = cluster.create(manifest(JOB, "a"))
    with pytest.raises(AlreadyExists):
        cluster.create(manifest(JOB, "a"))
    created["spec"]["parallelism"] = 2
    updated = cluster.update(created)
    assert updated["metadata"]["generation"] == 2
    with pytest.raises(Conflict):
        cluster.update(created)
    updated["status"] = {"active": 2}
    assert cluster.update_status(updated)["status"] == {"active": 2}
    assert cluster.patch(JOB, "a", {"status": {"active": 1}}, "default", subresource="status")["status"] == {"active": 1}
    operations = [{"op": "replace", "path": "/spec/suspend", "value": True}]
    assert cluster.patch(JOB, "a", operations, "default", patch_type="json")["spec"]["suspend"] is True
    assert cluster.patch(CONFIG_MAP, "c", manifest(CONFIG_MAP, "c", data={"k": "v"}), "default", patch_type="apply")["data"] == {
        "k": "v"
    }
    assert [item["metadata"]["name"] for item in cluster.list(JOB, "default", field_selector="metadata.name=a").items] == ["a"]
    cluster.delete(JOB, "a", "default", uid=created["metadata"]["uid"])
    with pytest.raises(NotFound):
        cluster.get(JOB, "a", "default")


def test_unknown_kinds_and_missing_namespaces_are_named(cluster: EmbeddedCluster, manifest: Manifest) -> None:
    with pytest.raises(BadRequest, match=r"does not serve (kind )?Widget of example\.com/v1"):
        cluster.create({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}})
    pod = manifest(POD, "a")
    del pod["metadata"]["namespace"]
    with pytest.raises(BadRequest, match="a namespace is required"):
        cluster.create(pod)


def test_returned_objects_are_copies(cluster: EmbeddedCluster, manifest: Manifest) -> None:
    for obj in (cluster.create(manifest(CONFIG_MAP, "a", data={"k": "v"})), cluster.get(CONFIG_MAP, "a", "default")):
        obj["data"]["k"] = "changed"
    cluster.list(CONFIG_MAP, "default").items[0]["data"]["k"] = "changed"
    for event in cluster.watch(CONFIG_MAP, resource_version="0", timeout_seconds=0):
        event.object.get("data", {})["k"] = "changed"
    assert cluster.get(CONFIG_MAP, "a", "default")["data"] == {"k": "v"}


def test_watch_from_a_list(cluster: EmbeddedCluster, manifest: Manifest) -> None:
    cluster.create(manifest(CONFIG_MAP, "a"))
    version = cluster.list(CONFIG_MAP, "default").resource_version
    cluster.patch(CONFIG_MAP, "a", {"metadata": {"labels": {"on": "yes"}}}, "default")
    cluster.patch(CONFIG_MAP, "a", {"data": {"k": "1"}}, "default")
    cluster.patch(CONFIG_MAP, "a", {"metadata": {"labels": {"on": "no"}}, "data": {"k": "2"}}, "default")
    cluster.delete(CONFIG_MAP, "a", "default")
    seen = lambda **selector: [  # noqa: E731
        (event.type, event.object.get("data", {}).get("k"))
        for event in cluster.watch(CONFIG_MAP, "default", resource_version=version, timeout_seconds=0, **selector)
        if event.type != "BOOKMARK"
    ]
    assert seen() == [("MODIFIED", None), ("MODIFIED", "1"), ("MODIFIED", "2"), ("DELETED", "2")]
    # One that leaves the selection goes as it was last seen.
    assert seen(label_selector="on=yes") == [("ADDED", None), ("MODIFIED", "1"), ("DELETED", "1")]
    assert seen(field_selector="metadata.name=other") == []


def test_watch_ends_with_a_bookmark_to_resume_from(cluster: EmbeddedCluster, manifest: Manifest) -> None:
    cluster.create(manifest(CONFIG_MAP, "a"))
    *_, last = cluster.watch(POD, resource_version="1", timeout_seconds=0)
    assert (last.type, last.resource_version) == ("BOOKMARK", cluster.list(POD).resource_version)


def test_old_version_expires(tmp_path: Any, manifest: Manifest) -> None:
    from trainwright.controlplane.apiserver.storage.store import Store

    store = Store(":memory:", ring_size=2)
    cluster = EmbeddedCluster(ResourceServer(store))
    for name in "abc":
        cluster.create(manifest(CONFIG_MAP, name))
    with pytest.raises(Expired, match="too old resource version: 2"):
        cluster.watch(CONFIG_MAP, resource_version="2")


def test_blocked_watches_hear_of_writes_and_of_the_end(cluster: EmbeddedCluster, manifest: Manifest) -> None:
    heard, first = [], threading.Event()

    def listen() -> None:
        for event in cluster.watch(CONFIG_MAP, resource_version=cluster.list(CONFIG_MAP).resource_version):
            heard.append(event.type)
            first.set()

    listener = threading.Thread(target=listen)
    listener.start()
    while not first.wait(0.01):  # the listener may not have begun yet
        cluster.patch(CONFIG_MAP, "a", manifest(CONFIG_MAP, "a", data={"n": str(len(heard))}), "default", patch_type="apply")
        cluster.delete(CONFIG_MAP, "a", "default")
    cluster.close()
    listener.join(10)
    assert not listener.is_alive()
    with pytest.raises(ServiceUnavailable):
        cluster.watch(CONFIG_MAP, resource_version="1")


@pytest.mark.medium
def test_a_watch_that_nobody_reads_leaves_nothing_behind(cluster: EmbeddedCluster, server: ResourceServer) -> None:
    cluster.watch(CONFIG_MAP, resource_version="1")
    gc.collect()
    assert not any(server.store._watchers.counts().values())


class FakeLogs:
    def __init__(self) -> None:
        self.asked: list[Any] = []

    def open(self, pod: dict[str, Any], container: str | None, **options: Any) -> Iterator[bytes]:
        self.asked.append((pod["metadata"]["name"], container, options))
        yield from (b"one\n", b"", b"two\n")


def test_logs(server: ResourceServer, manifest: Manifest) -> None:
    logs = FakeLogs()
    cluster = EmbeddedCluster(server, logs)
    cluster.create(manifest(POD, "a"))
    assert list(cluster.logs("a", "default")) == []
    server.bind("default", "a", "n1")
    assert list(cluster.logs("a", "default", tail_lines=3, follow=True)) == [b"one\n", b"two\n"]
    name, container, options = logs.asked[0]
    assert (name, container, options["tail_lines"], options["follow"]) == ("a", "main", 3, True)
    with pytest.raises(BadRequest, match="container none is not valid for pod a"):
        cluster.logs("a", "default", container="none")
