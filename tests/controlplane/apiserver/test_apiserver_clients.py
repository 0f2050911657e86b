"""The official Python client and kubectl, unmodified, against the server."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainwright.api.kinds import POD, TRAINING_RUNTIME, TRAINJOB
from trainwright.controlplane.apiserver.auth.credentials import load_credentials, write_kubeconfig
from trainwright.controlplane.apiserver.auth.tokens import Tokens
from trainwright.controlplane.apiserver.http.app import Api
from trainwright.controlplane.apiserver.http.serve import serve
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.streaming.sessions import PodStreams
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer

pytestmark = pytest.mark.medium
Manifest = Callable[..., dict[str, Any]]
KUBECTL = shutil.which("kubectl")


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


def test_kubeconfig_is_private(peer: Any) -> None:
    path: Path = peer.kubeconfig
    assert path.stat().st_mode & 0o777 == 0o600
    config = yaml.safe_load(path.read_text())
    assert config["current-context"] == "trainwright"
    assert config["contexts"][0]["context"]["namespace"] == "default"
