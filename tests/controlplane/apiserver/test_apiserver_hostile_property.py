"""Whatever is sent, the answer is one that a real server could give, nothing hangs, nothing grows, and the store stays whole."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import hostile
import orjson
import pytest
from hostile import ADMIN, WRITTEN, Ask, InProcess, path_of, served, valid
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainwright.api.kinds import NAMESPACE
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.storage.views import stored_kind

MOST_OBJECTS, LARGE_OBJECT = 400, 50_000
PER_EXAMPLE = 5
"""Requests of one example: with the 5,000 examples of `make fuzz`, the four tests below send 100,000."""
TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
FEW = 25
"""Examples of the everyday tests; `make fuzz` has its own number."""
hostile_settings = settings(
    suppress_health_check=list(HealthCheck), max_examples=settings().max_examples if settings().max_examples > 100 else FEW
)


@pytest.fixture(scope="module")
def peer() -> Iterator[InProcess]:
    with served() as peer:
        yield peer


def furnish(peer: InProcess) -> None:
    """One object of every kind, where the examples before have left none."""
    for kind in WRITTEN:
        if peer.server.store.get(stored_kind(kind).resource, "default" if kind.namespaced else "", "a") is None:
            made = peer.send(Ask("POST", path_of(kind), body=orjson.dumps(valid(kind))))
            assert made.status == 201, (kind, made)


def check(peer: InProcess, ask: Ask) -> None:
    before = peer.server.store.revision
    reply = peer.send(ask)
    assert 200 <= reply.status < 600, ask
    if reply.status >= 400 and ask.method != "HEAD":
        text = reply.headers["content-type"].startswith("text/plain")
        assert text or reply.status_object["kind"] == "Status" or reply.status_object["status"] == "Failure", (ask, reply)
        assert not text or reply.status == 404, (ask, reply)
    assert b"see the log of the server" not in reply.body
    assert peer.server.store.revision >= before
    if ask.token != ADMIN and reply.status < 400:
        assert ask.path.startswith(("/readyz", "/livez", "/healthz", "/version")), (ask, reply)


def check_store(peer: InProcess) -> None:
    """Every object can be read, in every view, and is what the store says that it is."""
    store = peer.server.store
    seen = set()
    for kind in WRITTEN:
        for record in store.list(kind.resource)[0]:
            metadata = record.object["metadata"]
            assert orjson.loads(record.data) == record.object
            assert record.revision == int(metadata["resourceVersion"]) <= store.revision
            assert record.revision not in seen
            seen.add(record.revision)
            assert record.object["kind"] == kind.kind
            assert store.get(kind.resource, metadata.get("namespace", ""), metadata["name"]) is record
            assert not kind.namespaced or store.get(NAMESPACE.resource, "", metadata["namespace"])
        assert peer.send(Ask("GET", kind.path(), headers=TABLE)).status == 200
        assert peer.send(Ask("GET", kind.path())).status == 200
    tidy(store)
    assert not store.watchers()


def tidy(store: Store) -> None:
    """Away with what has grown, and with everything when there is too much: the next examples shall not wait for it."""
    crowded = sum(store.sizes().values()) > MOST_OBJECTS
    for kind in WRITTEN:
        for record in store.list(kind.resource)[0] if kind != NAMESPACE else []:
            if record.key[1] != "rt" and (crowded or len(record.data) > LARGE_OBJECT):
                store.delete(kind.resource, *record.key)


def run(peer: InProcess, asks: list[Ask]) -> None:
    furnish(peer)
    threads = threading.active_count()
    for ask in asks:
        check(peer, ask)
    check_store(peer)
    assert threading.active_count() <= threads + 40  # the workers of writes


@pytest.mark.medium
@hostile_settings
@given(asks=st.lists(hostile.writes(), min_size=PER_EXAMPLE, max_size=PER_EXAMPLE))
def test_property_hostile_writes(peer: InProcess, asks: list[Ask]) -> None:
    run(peer, asks)


@pytest.mark.medium
@hostile_settings
@given(asks=st.lists(hostile.patched(), min_size=PER_EXAMPLE, max_size=PER_EXAMPLE))
def test_property_hostile_patches(peer: InProcess, asks: list[Ask]) -> None:
    run(peer, asks)


@pytest.mark.medium
@hostile_settings
@given(asks=st.lists(hostile.reads(), min_size=PER_EXAMPLE, max_size=PER_EXAMPLE))
def test_property_hostile_reads(peer: InProcess, asks: list[Ask]) -> None:
    run(peer, asks)


@pytest.mark.medium
@hostile_settings
@given(asks=st.lists(hostile.strays(), min_size=PER_EXAMPLE, max_size=PER_EXAMPLE))
def test_property_strays(peer: InProcess, asks: list[Ask]) -> None:
    run(peer, asks)
