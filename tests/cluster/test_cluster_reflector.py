"""The reflector against a cluster in memory whose connections drop and whose versions expire as the test says."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from factories import pod
from hypothesis import given
from hypothesis import strategies as st
from support.waiting import eventually

from trainwright.api.errors import ApiError, Expired, Forbidden, ServiceUnavailable
from trainwright.api.kinds import POD
from trainwright.backoff import Backoff
from trainwright.cluster import Listing, Reflector, WatchEvent
from trainwright.cluster import reflector as module


def pod_at(name: str, version: int) -> dict[str, Any]:
    return pod(name, namespace="ns", metadata={"resourceVersion": str(version)})


class Scripted:
    """Lists and watches that do what they are told: a step is a listing, a list of events, or an error; the last repeats."""

    def __init__(self, lists: list[Any], watches: list[Any]):
        self.lists, self.watches = lists, watches
        self.listed: list[float] = []
        self.watched: list[str] = []
        self.over = threading.Event()

    def list(self, *_: Any, **__: Any) -> Listing:
        self.listed.append(time.monotonic())
        step = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
        if isinstance(step, Exception):
            raise step
        return step

    def watch(self, *_: Any, resource_version: str, **__: Any) -> Iterator[WatchEvent]:
        self.watched.append(resource_version)
        if not self.watches:
            self.over.wait(20)
            return
        step = self.watches.pop(0)
        for event in [step] if isinstance(step, ApiError) else step:
            if isinstance(event, ApiError):
                raise event
            yield event


def test_an_error_below_the_cluster_is_a_failure_that_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKOFF", Backoff(0.001, 0.002))
    cluster = Scripted([OSError(28, "No space left on device"), Listing([pod_at("first", 1)], "1")], [])
    told: list[str] = []
    reflector = Reflector(cluster, POD, handler=lambda _event, obj: told.append(obj["metadata"]["name"]))
    thread = reflector.start()
    eventually(lambda: told == ["first"])
    assert reflector.failure is None
    reflector.stop.set()
    cluster.over.set()
    thread.join(10)


def test_an_error_of_a_handler_concerns_one_change(caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []

    def handler(_event: str, obj: dict[str, Any]) -> None:
        told.append(obj["metadata"]["name"])
        if obj["metadata"]["name"] == "odd":
            raise TypeError("hostAliases[0] is None")

    events = [WatchEvent("ADDED", pod_at("odd", 2)), WatchEvent("ADDED", pod_at("next", 3))]
    cluster = Scripted([Listing([pod_at("odd", 1), pod_at("first", 1)], "1")], [events])
    reflector = Reflector(cluster, POD, handler=handler)  # type: ignore[arg-type]
    thread = reflector.start()
    eventually(lambda: told == ["odd", "first", "odd", "next"])
    assert set(reflector.known) == {("ns", "odd"), ("ns", "first"), ("ns", "next")}
    assert "object=ns/odd change=ADDED" in caplog.text
    reflector.stop.set()
    cluster.over.set()
    thread.join(10)


def test_connections_that_close_at_once_are_not_opened_in_a_tight_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.uniform", lambda low, high: 1.0)
    reflector, waits = waits_of(Scripted([Listing([], "3")], [[] for _ in range(9)]), 5)
    reflector.run()
    assert waits == [0, 0.5, 1, 2, 4]


def test_who_may_list_but_not_watch_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Scripted([Listing([pod_at("a", 1)], "3"), Listing([], "4")], [Forbidden("no watch")] * 5)
    reflector, waits = waits_of(cluster, 2)
    reflector.run()
    assert waits == [module.POLL_SECONDS] * 2
    assert reflector.known == {}
    assert len(cluster.listed) == 2


def waits_of(cluster: Scripted, count: int) -> tuple[Reflector, list[float]]:
    """A reflector that does not really wait, and stops after so many waits."""
    waits: list[float] = []

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0)
            if len(waits) == count:
                self.set()
            return self.is_set()

    return Reflector(cluster, POD, handler=lambda event, obj: None, stop=Stop()), waits  # type: ignore[arg-type]


class Memory:
    """A cluster in memory with a history; faults are taken from a list, one for each connection."""

    def __init__(self, changes: list[tuple[str, str]], faults: list[str]):
        self.changes, self.faults = changes, faults
        self.objects: dict[str, dict[str, Any]] = {}
        self.history: list[WatchEvent] = []
        self.stop = threading.Event()

    def change(self) -> None:
        what, name = self.changes.pop(0)
        version = len(self.history) + 1
        if what == "delete":
            gone = self.objects.pop(name, None)
            if gone is not None:
                self.history.append(WatchEvent("DELETED", pod_at(name, version)))
        else:
            kind = "MODIFIED" if name in self.objects else "ADDED"
            self.objects[name] = pod_at(name, version)
            self.history.append(WatchEvent(kind, self.objects[name]))

    def list(self, *_: Any, **__: Any) -> Listing:
        return Listing([dict(obj) for obj in self.objects.values()], str(len(self.history)))

    def watch(self, *_: Any, resource_version: str, **__: Any) -> Iterator[WatchEvent]:
        fault = self.faults.pop(0) if self.faults else "none"
        if fault == "expire":
            for _ in range(min(2, len(self.changes))):
                self.change()
            raise Expired("too old")
        at = int(resource_version)
        for number in range(10_000):
            if fault == "drop" and number == 1:
                raise ServiceUnavailable("the connection broke")
            if fault == "close" and number == 1:
                return
            if at < len(self.history):
                yield self.history[at]
                at += 1
            elif self.changes:
                self.change()
            else:
                self.stop.set()
                return


names = st.sampled_from("abc")


@given(
    st.lists(st.tuples(st.sampled_from(["put", "delete"]), names), max_size=20),
    st.lists(st.sampled_from(["drop", "close", "expire", "none"]), max_size=12),
)
def test_property_after_any_changes_and_faults_known_equals_the_cluster(
    changes: list[tuple[str, str]], faults: list[str]
) -> None:
    cluster = Memory(list(changes), faults)
    told: dict[str, str] = {}

    def handler(event: str, obj: dict[str, Any]) -> None:
        name = obj["metadata"]["name"]
        if event == "DELETED":
            told.pop(name)
        else:
            assert (event == "MODIFIED") == (name in told)
            told[name] = obj["metadata"]["resourceVersion"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BACKOFF", Backoff(0.0, 0.0))
        reflector = Reflector(cluster, POD, handler=handler, stop=cluster.stop)  # type: ignore[arg-type]
        reflector.run()
    assert {name for _, name in reflector.known} == set(cluster.objects)
    versions = {name: obj["metadata"]["resourceVersion"] for name, obj in cluster.objects.items()}
    assert {key[1]: obj["metadata"]["resourceVersion"] for key, obj in reflector.known.items()} == versions
    assert told == versions
