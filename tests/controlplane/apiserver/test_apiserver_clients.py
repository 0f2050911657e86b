"""The official Python client and kubectl, unmodified, against the server."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from trainwright.api.kinds import CONFIG_MAP, JOB, POD, TRAINING_RUNTIME, TRAINJOB
from trainwright.controlplane.apiserver.auth.credentials import load_credentials, write_kubeconfig
from trainwright.controlplane.apiserver.auth.tokens import Tokens
from trainwright.controlplane.apiserver.http.app import Api
from trainwright.controlplane.apiserver.http.serve import serve
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.streaming.sessions import PodStreams
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire import patch_types
from trainwright.controlplane.apiserver.wire.write_options import WriteOptions

pytestmark = pytest.mark.medium
Manifest = Callable[..., dict[str, Any]]
KUBECTL = shutil.which("kubectl")
needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")


@pytest.fixture
def client(peer: Any) -> Any:
    kubernetes = pytest.importorskip("kubernetes", reason="the kubernetes client is not installed")
    return kubernetes.config.new_client_from_config(str(peer.kubeconfig))


def test_dynamic_client(client: Any, manifest: Manifest) -> None:
    from kubernetes.dynamic import DynamicClient
    from kubernetes.dynamic.exceptions import ConflictError, NotFoundError, UnprocessibleEntityError

    jobs = DynamicClient(client).resources.get(api_version="trainer.kubeflow.org/v1alpha1", kind="TrainJob")
    created = jobs.create(body=manifest(TRAINJOB, "a"), namespace="default")
    assert created.metadata.generation == 1
    with pytest.raises(ConflictError):
        jobs.create(body=manifest(TRAINJOB, "a"), namespace="default")
    with pytest.raises(UnprocessibleEntityError):
        jobs.create(body={**manifest(TRAINJOB, "b"), "spec": {}}, namespace="default")
    patched = jobs.patch(
        name="a", namespace="default", body={"spec": {"suspend": True}}, content_type="application/merge-patch+json"
    )
    assert (patched.spec.suspend, patched.metadata.generation) == (True, 2)
    body = {**manifest(TRAINJOB, "c"), "metadata": {"name": "c"}}
    assert jobs.server_side_apply(body=body, name="c", namespace="default", field_manager="me").metadata.name == "c"
    assert [item.metadata.name for item in jobs.get(namespace="default").items] == ["a", "c"]
    jobs.delete(name="a", namespace="default")
    with pytest.raises(NotFoundError):
        jobs.get(name="a", namespace="default")


def test_typed_client_and_its_watch(client: Any, peer: Any, manifest: Manifest) -> None:
    from kubernetes import client as api
    from kubernetes.watch import Watch

    core = api.CoreV1Api(client)
    version = core.list_namespaced_pod("default").metadata.resource_version
    core.create_namespaced_pod("default", manifest(POD, "a"))
    core.patch_namespaced_pod_status("a", "default", {"status": {"phase": "Running"}})
    core.delete_namespaced_pod("a", "default", propagation_policy="Background")
    stream = Watch().stream(core.list_namespaced_pod, "default", resource_version=version, timeout_seconds=1)
    found = [(event["type"], event["object"].status.phase) for event in stream]
    assert found == [("ADDED", "Pending"), ("MODIFIED", "Running"), ("DELETED", "Running")]


def test_client_sees_an_expired_version_as_410(client: Any, peer: Any) -> None:
    from kubernetes import client as api
    from kubernetes.watch import Watch

    peer.server.store._history._floor = peer.server.store.revision + 5
    core = api.CoreV1Api(client)
    with pytest.raises(api.ApiException) as failed:
        list(Watch().stream(core.list_namespaced_config_map, "default", resource_version="1", timeout_seconds=1))
    assert failed.value.status == 410


NOW = "2026-01-02T03:04:05Z"
RUNTIME = {"apiVersion": TRAINING_RUNTIME.api_version, "kind": TRAINING_RUNTIME.kind}


class Lines:
    """A log with something in it."""

    def open(self, pod: dict[str, Any], container: str | None, **options: Any) -> Iterator[bytes]:
        yield f"log of {pod['metadata']['name']}/{container}\n".encode()


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """kubectl as a function: arguments and standard input to standard output; `kubectl.server` is behind it."""
    home = tmp_path_factory.mktemp("kubectl")
    store = Store(":memory:")
    server = ResourceServer(store)
    server.create(TRAINING_RUNTIME, "default", {**RUNTIME, "metadata": {"name": "rt"}})
    credentials = load_credentials(home / "credentials")
    app = Api(server, Tokens(credentials.admin_token, credentials.signing_key), PodStreams(Lines()))
    with serve(app, cert=credentials.certificate, key=credentials.key) as serving:
        write_kubeconfig(home / "kubeconfig", serving.url, credentials)
        environment = {**os.environ, "KUBECONFIG": str(home / "kubeconfig"), "HOME": str(home)}

        def run(*arguments: str, given: str = "", fails: bool = False) -> str:
            assert KUBECTL
            done = subprocess.run([KUBECTL, *arguments], input=given, capture_output=True, text=True, timeout=60, env=environment)
            assert bool(done.returncode) is fails, done.stderr
            return done.stderr if fails else done.stdout

        run.server = server  # type: ignore[attr-defined]
        run.environment = environment  # type: ignore[attr-defined]
        yield run
    store.close()


@needs_kubectl
def test_kubectl_create_get_label_describe_delete(kubectl: Any, manifest: Manifest) -> None:
    assert (
        kubectl("create", "-f", "-", given=yaml.safe_dump(manifest(TRAINJOB, "a"))) == "trainjob.trainer.kubeflow.org/a created\n"
    )
    header, row = kubectl("get", "trainjobs").splitlines()
    assert header.split() == ["NAME", "STATE", "AGE"]
    assert row.split()[0] == "a"
    assert "trainjob.trainer.kubeflow.org/a labeled" in kubectl("label", "trainjob", "a", "x=y")
    assert kubectl("get", "trainjob", "-l", "x=y", "-o", "name") == "trainjob.trainer.kubeflow.org/a\n"
    assert yaml.safe_load(kubectl("get", "trainjob", "a", "-o", "yaml"))["metadata"]["labels"] == {"x": "y"}
    assert "Name:         a" in kubectl("describe", "trainjob", "a")
    assert "deleted" in kubectl("delete", "trainjob", "a")
    assert 'trainjobs.trainer.kubeflow.org "a" not found' in kubectl("get", "trainjob", "a", fails=True)


@needs_kubectl
def test_kubectl_apply_both_ways(kubectl: Any, manifest: Manifest) -> None:
    job = manifest(JOB, "applied")
    assert kubectl("apply", "-f", "-", given=yaml.safe_dump(job)) == "job.batch/applied created\n"
    assert kubectl("apply", "-f", "-", given=yaml.safe_dump(job)) == "job.batch/applied unchanged\n"
    job["spec"]["parallelism"] = 3
    assert kubectl("apply", "-f", "-", given=yaml.safe_dump(job)) == "job.batch/applied configured\n"
    assert orjson.loads(kubectl("get", "job", "applied", "-o", "json"))["spec"]["parallelism"] == 3
    maps = yaml.safe_dump(manifest(CONFIG_MAP, "applied", data={"k": "v"}))
    assert kubectl("apply", "--server-side", "-f", "-", given=maps) == "configmap/applied serverside-applied\n"
    assert kubectl("apply", "-f", "-", given=yaml.safe_dump({**job, "spec": {**job["spec"], "bogus": 1}}), fails=True).count(
        "bogus"
    )


@needs_kubectl
def test_kubectl_pods_logs_and_resources(kubectl: Any, manifest: Manifest) -> None:
    kubectl("create", "-f", "-", given=yaml.safe_dump(manifest(POD, "p")))
    kubectl.server.bind("default", "p", "n1")
    header, row = kubectl("get", "pods").splitlines()
    assert header.split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row.split()[:4] == ["p", "0/1", "Pending", "0"]
    assert kubectl("logs", "-f", "p") == "log of p/main\n"
    assert "Node:" in kubectl("describe", "pod", "p")
    kubectl("delete", "pod", "p", "--force", "--grace-period=0")
    resources = kubectl("api-resources", "-o", "name").split()
    assert {"pods", "jobs.batch", "jobsets.jobset.x-k8s.io", "trainjobs.trainer.kubeflow.org"} <= set(resources)
    for path, text in (("trainjob.spec.trainer", "number of training nodes."), ("pod.spec.containers", "Container image name.")):
        explained = kubectl("explain", path)
        assert text in " ".join(explained.split())
        assert "<no description>" not in explained


@needs_kubectl
def test_kubectl_waits_and_watches(kubectl: Any, manifest: Manifest) -> None:
    kubectl.server.create(TRAINJOB, "default", manifest(TRAINJOB, "w"))
    done: list[str] = []
    waiting = threading.Thread(
        target=lambda: done.append(kubectl("wait", "trainjob/w", "--for=condition=Complete", "--timeout=30s"))
    )
    waiting.start()
    stream = subprocess.Popen(
        [str(KUBECTL), "get", "trainjobs", "-w", "-o", "name"], stdout=subprocess.PIPE, text=True, env=kubectl.environment
    )
    try:
        assert stream.stdout
        assert stream.stdout.readline() == "trainjob.trainer.kubeflow.org/w\n"
        status = {
            "status": {
                "conditions": [{"type": "Complete", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": NOW}]
            }
        }
        kubectl.server.patch(TRAINJOB, "default", "w", status, patch_types.MERGE, WriteOptions(status=True))
        assert stream.stdout.readline() == "trainjob.trainer.kubeflow.org/w\n"
    finally:
        stream.kill()
        stream.wait()
        if stream.stdout:
            stream.stdout.close()
    waiting.join(40)
    assert done == ["trainjob.trainer.kubeflow.org/w condition met\n"]


def test_kubeconfig_is_private(peer: Any) -> None:
    path: Path = peer.kubeconfig
    assert path.stat().st_mode & 0o777 == 0o600
    config = yaml.safe_load(path.read_text())
    assert config["current-context"] == "trainwright"
    assert config["contexts"][0]["context"]["namespace"] == "default"
