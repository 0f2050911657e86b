"""The reflector against a cluster in memory whose connections drop and whose versions expire as the test says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from factories import pod
from hypothesis import given
from hypothesis import strategies as st
from support.waiting import eventually

from trainwright.api.errors import ApiError, Expired, Forbidden, ServiceUnavailable, TooManyRequests
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
        if isinstance(step, ApiError):
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


@pytest.fixture
def follow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[Reflector, list[tuple[str, str]]]]]:
    monkeypatch.setattr(module, "BACKOFF", Backoff(0.001, 0.002))
    started: list[tuple[Scripted, Reflector, threading.Thread]] = []

    def start(cluster: Scripted) -> tuple[Reflector, list[tuple[str, str]]]:
        told: list[tuple[str, str]] = []
        reflector = Reflector(cluster, POD, handler=lambda event, obj: told.append((event, obj["metadata"]["name"])))  # type: ignore[arg-type]
        started.append((cluster, reflector, reflector.start()))
        return reflector, told

    yield start
    for cluster, reflector, thread in started:
        reflector.stop.set()
        cluster.over.set()
        thread.join(10)
        assert not thread.is_alive()


Follow = Callable[[Scripted], tuple[Reflector, list[tuple[str, str]]]]


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


def test_an_error_below_the_cluster_is_a_failure_that_passes(follow: Follow, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Scripted([Listing([pod_at("first", 1)], "1")], [])
    listed, errors = cluster.list, [OSError(28, "No space left on device")]

    def full(*arguments: Any, **more: Any) -> Listing:
        if errors:
            raise errors.pop()
        return listed(*arguments, **more)

    monkeypatch.setattr(cluster, "list", full)
    reflector, told = follow(cluster)
    eventually(lambda: told == [("ADDED", "first")])
    assert reflector.failure is None


def test_a_closed_watch_is_resumed_from_the_last_version_also_of_a_bookmark(follow: Follow) -> None:
    bookmark = WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": "9"}})
    cluster = Scripted([Listing([pod_at("a", 1)], "3")], [[WatchEvent("ADDED", pod_at("b", 5))], [], [bookmark], []])
    reflector, told = follow(cluster)
    eventually(lambda: len(cluster.watched) == 5)
    assert cluster.watched == ["3", "5", "5", "9", "9"]
    assert len(cluster.listed) == 1
    assert told == [("ADDED", "a"), ("ADDED", "b")]
    assert set(reflector.known) == {("ns", "a"), ("ns", "b")}


def test_after_an_expiry_only_differences_are_told(follow: Follow) -> None:
    lists = [
        Listing([pod_at("same", 1), pod_at("gone", 1), pod_at("new", 1)], "3"),
        Listing([pod_at("same", 1), pod_at("new", 8), pod_at("more", 7)], "9"),
    ]
    cluster = Scripted(lists, [Expired("too old")])
    reflector, told = follow(cluster)
    eventually(lambda: cluster.watched == ["3", "9"])
    assert told[3:] == [("DELETED", "gone"), ("MODIFIED", "new"), ("ADDED", "more")]
    assert reflector.known[("ns", "new")]["metadata"]["resourceVersion"] == "8"


def test_an_error_is_retried_and_forgotten_after_success(follow: Follow) -> None:
    cluster = Scripted([ServiceUnavailable("down")] * 3 + [Listing([], "3")], [ServiceUnavailable("the connection broke")])
    reflector, _ = follow(cluster)
    eventually(lambda: len(cluster.watched) == 2)
    assert len(cluster.listed) == 5
    assert reflector.synced.is_set()
    assert reflector.failure is None


def test_a_failure_that_lasts_is_shown_with_its_beginning(follow: Follow) -> None:
    cluster = Scripted([ServiceUnavailable("down")], [])
    before = time.monotonic()
    reflector, _ = follow(cluster)
    eventually(lambda: len(cluster.listed) > 3)
    assert reflector.failure is not None
    since, error = reflector.failure
    assert before <= since <= cluster.listed[1]
    assert error.message == "down"
    assert not reflector.synced.is_set()


def test_the_back_off_grows_up_to_its_limit_and_begins_again_after_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.uniform", lambda low, high: 1.0)
    cluster = Scripted(
        [ServiceUnavailable("down")] * 8 + [Listing([], "3")], [[WatchEvent("ADDED", pod_at("a", 4)), ServiceUnavailable("x")]]
    )
    reflector, waits = waits_of(cluster, 9)
    reflector.run()
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30, 0.5]


def test_retry_after_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    reflector, waits = waits_of(Scripted([TooManyRequests("slow down", retry_after=17.0)], []), 2)
    reflector.run()
    assert waits == [17.0, 17.0]


def test_connections_that_close_at_once_are_not_opened_in_a_tight_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.uniform", lambda low, high: 1.0)
    reflector, waits = waits_of(Scripted([Listing([], "3")], [[] for _ in range(9)]), 5)
    reflector.run()
    assert waits == [0, 0.5, 1, 2, 4]


def test_versions_that_expire_at_once_are_not_listed_in_a_tight_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.uniform", lambda low, high: 1.0)
    reflector, waits = waits_of(Scripted([Listing([], "3")], [Expired("too old") for _ in range(9)]), 4)
    reflector.run()
    assert waits == [0, 0.5, 1, 2]


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


def test_stop_ends_it_with_the_next_event_which_is_not_told() -> None:
    cluster = Scripted([Listing([], "3")], [[WatchEvent("ADDED", pod_at("a", 4)), WatchEvent("ADDED", pod_at("b", 5))]])
    told: list[str] = []

    def handler(_event: str, obj: dict[str, Any]) -> None:
        told.append(obj["metadata"]["name"])
        reflector.stop.set()

    reflector = Reflector(cluster, POD, handler=handler)  # type: ignore[arg-type]
    thread = reflector.start()
    thread.join(10)
    assert not thread.is_alive()
    assert told == ["a"]


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


def test_a_server_that_asks_for_an_hour_gets_the_most_that_is_given(
    follow: Callable[..., tuple[Reflector, list[tuple[str, str]]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_RETRY_AFTER_SECONDS", 0.05)
    cluster = Scripted([TooManyRequests("slowly", retry_after=3600), Listing([pod_at("a", 1)], "1")], [])
    reflector, _ = follow(cluster)
    assert reflector.synced.wait(10)
