"""A change of a pod that the node cannot take: the others are taken, and this one is tried again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.waiting import eventually

from trainwright.backoff import Backoff
from trainwright.controlplane.node import pod_changes as module
from trainwright.controlplane.node.pod_changes import REASON, PodChanges


def pod(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", "uid": f"uid-of-{name}"}, "spec": {}}


class Node:
    """Fails for pods as long as it is told to."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, str]] = []
        self.failing: dict[str, Exception] = {}
        self.tries: list[str] = []
        self.told: list[tuple[str, str]] = []
        self.stop = threading.Event()
        self.changes = PodChanges(self.take, lambda pod, event: self.told.append((event.reason, event.message)), self.stop)

    def take(self, event: str, pod: dict[str, Any]) -> None:
        name = pod["metadata"]["name"]
        self.tries.append(name)
        if error := self.failing.get(name):
            raise error
        self.taken.append((event, name))


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(module, "_BACKOFF", Backoff(0.001, 0.01))
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.005)
    node = Node()
    node.changes.start()
    yield node
    node.stop.set()


@pytest.mark.parametrize(
    "error",
    [TypeError("an odd object"), OSError(28, "No space left on device"), OSError(24, "EMFILE"), RuntimeError("no thread")],
)
def test_a_change_that_fails_is_tried_again_and_keeps_nobody(node: Node, error: Exception) -> None:
    node.failing["odd"] = error
    node.changes.handle("ADDED", pod("odd"))
    node.changes.handle("ADDED", pod("next"))
    assert node.taken == [("ADDED", "next")]
    eventually(lambda: node.tries.count("odd") >= 3)
    node.failing.clear()
    eventually(lambda: ("ADDED", "odd") in node.taken)
    ((reason, message),) = node.told
    assert reason == REASON
    assert str(error) in message
    assert node.changes.problems() == []


def test_a_newer_change_takes_the_place_of_one_that_failed(node: Node) -> None:
    node.failing["odd"] = ValueError("odd")
    node.changes.handle("ADDED", pod("odd"))
    with node.changes._lock:  # else the old change may be tried between the two lines, which is right
        node.failing.clear()
        node.changes.handle("DELETED", pod("odd"))
    tried = node.tries.count("odd")
    node.failing["last"] = ValueError("last")
    node.changes.handle("ADDED", pod("last"))
    eventually(lambda: node.tries.count("last") >= 3)
    assert node.taken == [("DELETED", "odd")]
    assert node.tries.count("odd") == tried


def test_accepted_change_that_fails_is_retried(node: Node) -> None:
    node.changes.handle("DELETED", pod("gone"))
    node.changes.fail("DELETED", pod("gone"), OSError(28, "No space left on device"))
    eventually(lambda: node.taken == [("DELETED", "gone")] * 2)
    assert node.told == [], "there is no pod any more to tell of"


def test_an_event_that_cannot_be_written_ends_nothing(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(node.changes, "_tell", full)
    node.failing["odd"] = TypeError("odd")
    node.changes.handle("ADDED", pod("odd"))
    node.failing.clear()
    eventually(lambda: node.taken == [("ADDED", "odd")])
