"""Servers for these tests: one in memory without HTTP, and one behind TLS with credentials of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import urllib3
from entered_cluster import Entered
from manifests import manifest
from support.running_plane import running_plane

from trainwright.api.kinds import TRAINING_RUNTIME
from trainwright.controlplane.apiserver.auth.credentials import Credentials, load_credentials, write_kubeconfig
from trainwright.controlplane.apiserver.auth.tokens import Tokens
from trainwright.controlplane.apiserver.http.app import Api
from trainwright.controlplane.apiserver.http.serve import Serving, serve
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.trainer.webhooks import VALIDATORS


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@dataclass
class Result:
    status: int
    body: Any
    headers: Any


@dataclass
class Peer:
    """A running server and the ways to it."""

    server: ResourceServer
    serving: Serving
    credentials: Credentials
    kubeconfig: Path
    tokens: Tokens

    def __post_init__(self) -> None:
        self._pool = urllib3.PoolManager(ca_certs=str(self.credentials.authority), retries=False)

    def send(
        self, method: str, path: str, body: bytes | None = None, *, token: str | None = "", stream: bool = False, **headers: str
    ) -> Any:
        """The raw answer; `token` is the admin's unless given, None for none."""
        if token is not None:
            headers = {"Authorization": f"Bearer {token or self.credentials.admin_token}", **headers}
        return self._pool.request(
            method, self.serving.url + path, body=body, headers=headers, preload_content=not stream, timeout=20
        )

    def json(self, method: str, path: str, obj: Any = None, *, token: str | None = "", **headers: str) -> Result:
        import orjson

        body = None if obj is None else obj if isinstance(obj, bytes) else orjson.dumps(obj)
        answer = self.send(method, path, body, token=token, **{"Content-Type": "application/json", **headers})
        content = answer.data
        return Result(answer.status, orjson.loads(content) if content[:1] in (b"{", b"[") else content.decode(), answer.headers)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store(":memory:")
    yield store
    store.close()


@pytest.fixture
def server(store: Store, clock: Clock) -> ResourceServer:
    return with_runtime(ResourceServer(store, clock=clock, validators=VALIDATORS))


def with_runtime(server: ResourceServer) -> ResourceServer:
    """The server with the runtime that the TrainJobs of these tests refer to: without it they would be refused."""
    server.create(TRAINING_RUNTIME, "default", manifest(TRAINING_RUNTIME, "rt"))
    return server


@pytest.fixture
def cluster(server: ResourceServer) -> Iterator[EmbeddedCluster]:
    cluster = EmbeddedCluster(server)
    yield cluster
    cluster.close()


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Peer]:
    store = Store(tmp_path / "cluster.db")
    server = with_runtime(ResourceServer(store, validators=VALIDATORS))
    credentials = load_credentials(tmp_path / "home")
    tokens = Tokens(credentials.admin_token, credentials.signing_key)
    with serve(Api(server, tokens), cert=credentials.certificate, key=credentials.key) as serving:
        kubeconfig = tmp_path / "kubeconfig"
        write_kubeconfig(kubeconfig, serving.url, credentials)
        yield Peer(server, serving, credentials, kubeconfig, tokens)
    store.close()


@pytest.fixture(name="manifest")
def manifest_fixture() -> Callable[..., dict[str, Any]]:
    return manifest


@pytest.fixture(scope="module")
def entered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Entered]:
    with running_plane(tmp_path_factory.mktemp("entered")) as control_plane:
        yield Entered(control_plane, control_plane._home)
