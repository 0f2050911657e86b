"""Watches over HTTP: first what there is, then what changes; bookmarks, timeouts, expiry, and every way to end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import urllib3

from trainwright.api.errors import NotFound
from trainwright.api.kinds import CONFIG_MAP, POD, TRAINING_RUNTIME, TRAINJOB
from trainwright.controlplane.apiserver.auth.tokens import Tokens
from trainwright.controlplane.apiserver.http.app import Api
from trainwright.controlplane.apiserver.http.serve import serve
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.streaming import watches
from trainwright.controlplane.apiserver.streaming.sessions import PodStreams
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer

pytestmark = pytest.mark.medium
Manifest = Callable[..., dict[str, Any]]
MAPS = "/api/v1/namespaces/default/configmaps"


def lines(answer: Any) -> Iterator[dict[str, Any]]:
    pending = b""
    for chunk in answer.stream(65536):
        pending += chunk
        *whole, pending = pending.split(b"\n")
        yield from map(orjson.loads, whole)


def watch(peer: Any, query: str = "", path: str = MAPS, **headers: str) -> tuple[Any, Iterator[dict[str, Any]]]:
    answer = peer.send("GET", f"{path}?watch=true&{query}", stream=True, **headers)
    assert answer.status == 200
    return answer, lines(answer)


def test_bookmarks_come_by_themselves(peer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "BOOKMARK_SECONDS", 0.05)
    _, events = watch(peer, "allowWatchBookmarks=1&resourceVersion=1")
    assert [next(events)["type"] for _ in range(3)] == ["BOOKMARK"] * 3


@pytest.mark.parametrize("version", ["", "&resourceVersion=0"])
def test_watch_without_initial_events_shows_changes_only(version: str, peer: Any, manifest: Manifest) -> None:
    peer.server.create(CONFIG_MAP, "default", manifest(CONFIG_MAP, "there"))
    _, events = watch(peer, f"sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true{version}")
    peer.server.create(CONFIG_MAP, "default", manifest(CONFIG_MAP, "new"))
    first = next(events)
    assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "new")


def test_a_client_that_goes_is_forgotten(peer: Any) -> None:
    answer, _ = watch(peer)
    assert sum(peer.server.store._watchers.counts().values()) == 1
    ended = threading.Event()
    unsubscribe = peer.server.store.unsubscribe
    peer.server.store.unsubscribe = lambda subscription: (unsubscribe(subscription), ended.set())
    answer.close()
    assert ended.wait(10)
    assert not any(peer.server.store._watchers.counts().values())


def test_a_slow_client_is_cut_off_and_nobody_waits(peer: Any, manifest: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    peer.server.store._watchers.queue_size = 1
    monkeypatch.setattr("trainwright.controlplane.apiserver.streaming.watches.PACE", (1.0, 1.0))
    _, events = watch(peer)
    peer.server.create(CONFIG_MAP, "default", manifest(CONFIG_MAP, "heard"))
    assert next(events)["object"]["metadata"]["name"] == "heard"
    # The reader is busy for a second; one more event may wait for it, and no third.
    for number in range(3):
        peer.server.create(CONFIG_MAP, "default", manifest(CONFIG_MAP, f"m{number}"))
    assert list(events) == []


def test_stopping_the_server_ends_watches_at_once(peer: Any) -> None:
    _, events = watch(peer, "resourceVersion=1")
    peer.serving.stop()
    assert list(events) == []


def test_idle_connections_of_several_clients_do_not_delay_a_stop(peer: Any) -> None:
    clients = [urllib3.PoolManager(ca_certs=str(peer.credentials.authority), retries=False) for _ in range(3)]
    for client in clients:
        assert client.request("GET", peer.serving.url + "/version", timeout=20).status == 200
    began = time.monotonic()
    peer.serving.stop()
    assert time.monotonic() - began < 4  # it waits five seconds for requests that are being answered


def test_versions_from_before_a_restart_are_expired_and_objects_are_kept(tmp_path: Path, manifest: Manifest) -> None:
    path, pool, token = tmp_path / "store.db", urllib3.PoolManager(), "t" * 32
    tokens = Tokens(token, b"k" * 32)
    headers = {"Authorization": f"Bearer {token}"}
    store = Store(path)
    server = ResourceServer(store)
    server.create(TRAINING_RUNTIME, "default", manifest(TRAINING_RUNTIME, "rt"))
    with serve(Api(server, tokens)) as serving:
        body = orjson.dumps(manifest(TRAINJOB, "a"))
        url = serving.url + TRAINJOB.path("default")
        created = pool.request("POST", url, body=body, headers={**headers, "Content-Type": "application/json"}).json()
    store.close()
    store = Store(path)
    with serve(Api(ResourceServer(store), tokens)) as serving:
        url = serving.url + TRAINJOB.path("default")
        listed = pool.request("GET", url, headers=headers).json()
        assert listed["items"] == [created]
        old = pool.request("GET", f"{url}?watch=1&resourceVersion={created['metadata']['resourceVersion']}", headers=headers)
        assert orjson.loads(old.data)["object"]["reason"] == "Expired"
        version = listed["metadata"]["resourceVersion"]
        new = pool.request("GET", f"{url}?watch=1&timeoutSeconds=1&resourceVersion={version}", headers=headers)
        assert new.data == b""
    store.close()


class Endless:
    """A log that goes on until its reader stops, with heartbeats in between."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    def open(self, pod: dict[str, Any], container: str | None, **options: Any) -> Iterator[bytes]:
        try:
            yield f"{container} {options['follow']} {options['tail_lines']}\n".encode()
            while True:
                yield b""
        finally:
            self.closed.set()


@pytest.mark.parametrize("end", ["client", "server"])
def test_a_followed_log_ends_with_its_reader_or_the_server(manifest: Manifest, end: str) -> None:
    import urllib3

    logs, token = Endless(), "t" * 32
    store = Store(":memory:")
    server = ResourceServer(store)
    server.create(POD, "default", manifest(POD, "a"))
    server.bind("default", "a", "n1")
    with serve(Api(server, Tokens(token, b"k" * 32), PodStreams(logs))) as serving:
        url = f"{serving.url}/api/v1/namespaces/default/pods/a/log?follow=true&tailLines=5"
        answer = urllib3.PoolManager().request("GET", url, headers={"Authorization": f"Bearer {token}"}, preload_content=False)
        assert answer.headers["Content-Type"].startswith("text/plain")
        assert next(answer.stream(100)) == b"main True 5\n"
        if end == "client":
            answer.close()
        else:
            serving.stop()
        assert logs.closed.wait(10)
    store.close()


class Missing:
    """A log that turns out not to be there when it is read."""

    def open(self, pod: dict[str, Any], container: str | None, **options: Any) -> Iterator[bytes]:
        raise NotFound("the log is gone")
        yield b""


def test_a_log_that_cannot_be_read_is_an_error_not_an_empty_log(manifest: Manifest) -> None:
    import urllib3

    token, store = "t" * 32, Store(":memory:")
    server = ResourceServer(store)
    server.create(POD, "default", manifest(POD, "a"))
    server.bind("default", "a", "n1")
    with serve(Api(server, Tokens(token, b"k" * 32), PodStreams(Missing()))) as serving:
        url = f"{serving.url}/api/v1/namespaces/default/pods/a/log"
        answer = urllib3.PoolManager().request("GET", url, headers={"Authorization": f"Bearer {token}"})
    assert (answer.status, answer.json()["message"]) == (404, "the log is gone")
    store.close()
