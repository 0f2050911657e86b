"""One watch for all who wait: begun with the first, ended with the last, nobody hears of another's object."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.waiting import eventually

from trainwright.api.kinds import CONFIG_MAP
from trainwright.cluster.reflector import SharedWatches, Watched
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.trainer.webhooks import VALIDATORS


class Counting(EmbeddedCluster):
    """Counts the connections that are made and those that are open."""

    def __init__(self) -> None:
        super().__init__(ResourceServer(Store(":memory:"), validators=VALIDATORS))
        self.lists = 0
        self.made = 0

    def connect(self) -> Counting:
        self.made += 1
        return self

    def list(self, *arguments: Any, **more: Any) -> Any:
        self.lists += 1
        return super().list(*arguments, **more)

    def put(self, name: str, value: str) -> None:
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": {"v": value}}
        if value == "0":
            self.create(made)
        else:
            self.patch(CONFIG_MAP, name, {"data": {"v": value}}, "default")


def follow(watches: SharedWatches, cluster: Counting, name: str) -> tuple[Any, list[str]]:
    heard: list[str] = []

    def told(event: str, obj: dict[str, Any]) -> None:
        heard.append("gone" if event == "DELETED" else obj["data"]["v"])

    return watches.subscribe("c", cluster.connect, Watched(CONFIG_MAP, "default"), name, told), heard


def test_all_share_one_list_and_each_hears_of_its_own() -> None:
    cluster, watches = Counting(), SharedWatches()
    followers = [follow(watches, cluster, name) for name in ("a", "b", "a")]
    eventually(followers[0][0].is_absent)
    cluster.put("a", "0")
    cluster.put("b", "0")
    cluster.put("a", "1")
    eventually(lambda: [heard[-1:] for _, heard in followers] == [["1"], ["0"], ["1"]])
    late, heard = follow(watches, cluster, "a")
    assert heard == ["1"]  # at once, from what is known
    cluster.delete(CONFIG_MAP, "a", "default")
    eventually(lambda: heard[-1] == "gone" and late.is_absent())
    assert (cluster.made, cluster.lists) == (1, 1)


def test_the_last_to_leave_ends_the_watch_and_the_next_begins_another() -> None:
    cluster, watches = Counting(), SharedWatches()
    (first, _), (second, _) = follow(watches, cluster, "a"), follow(watches, cluster, "a")
    watches.unsubscribe(first)
    watches.unsubscribe(first)
    assert not second.reflector.stop.is_set()
    watches.unsubscribe(second)
    assert second.reflector.stop.is_set()
    third, heard = follow(watches, cluster, "a")
    cluster.put("a", "0")
    eventually(lambda: heard == ["0"])
    assert third.reflector is not second.reflector
    assert cluster.made == 2


@pytest.mark.medium
@given(st.lists(st.integers(min_value=1, max_value=30), max_size=5))
def test_property_who_joins_while_it_changes_never_hears_old_news_after_new(joins: list[int]) -> None:
    cluster, watches = Counting(), SharedWatches()
    heard: list[list[str]] = []
    joined: list[Any] = []
    cluster.put("a", "0")

    def write() -> None:
        for value in range(1, 31):
            if value in joins:
                moment[value].set()
            cluster.put("a", str(value))

    moment: dict[int, threading.Event] = {value: threading.Event() for value in joins}
    writer = threading.Thread(target=write)
    writer.start()
    for value in joins:
        moment[value].wait(10)
        follower, said = follow(watches, cluster, "a")
        joined.append(follower)
        heard.append(said)
    writer.join(20)
    for said in heard:
        last: Callable[[], bool] = lambda said=said: said[-1:] == ["30"]  # type: ignore[misc]  # noqa: E731
        eventually(last)
        assert [int(value) for value in said] == sorted(int(value) for value in said)
    for follower in joined:
        watches.unsubscribe(follower)
