"""The Lease: one holder at a time, by clocks that need not agree, whatever becomes of requests and answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from factories import cluster_in_memory
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.errors import ServiceUnavailable
from trainwright.api.kinds import CONFIG_MAP, LEASE
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.trainer.standalone.leader_election import FencedCluster, LeaderElector, LeaseLost


@dataclass
class Time:
    now: float = 1000.0


@dataclass
class Line:
    """A connection on which requests and answers take time, or are lost."""

    cluster: EmbeddedCluster
    time: Time
    there: float = 0.0
    back: float = 0.0
    lost: str = ""

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            self.time.now += self.there
            if self.lost == "request":
                raise ServiceUnavailable("lost")
            try:
                return getattr(self.cluster, verb)(*given, **named)
            finally:
                self.time.now += self.back
                if self.lost == "answer" and verb != "get":
                    raise ServiceUnavailable("lost")

        return call


@dataclass
class World:
    cluster: EmbeddedCluster
    time: Time = field(default_factory=Time)
    lines: dict[str, Line] = field(default_factory=dict)

    def candidate(self, identity: str, skew_hours: float = 0) -> LeaderElector:
        line = self.lines[identity] = Line(self.cluster, self.time)
        start = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=skew_hours)
        return LeaderElector(
            line,  # type: ignore[arg-type]
            "it",
            "default",
            identity,
            monotonic=lambda: self.time.now,
            clock=lambda: start + timedelta(seconds=self.time.now),
        )

    def lease(self) -> dict[str, Any]:
        return self.cluster.get(LEASE, "it", "default")["spec"]


def worlds() -> Iterator[World]:
    with cluster_in_memory() as cluster:
        yield World(cluster)


@pytest.fixture
def world() -> Iterator[World]:
    yield from worlds()


@pytest.mark.parametrize("skew", [-5.0, 0.0, 5.0], ids=["behind", "equal", "ahead"])
def test_a_candidate_waits_for_as_long_as_the_lease_says_by_its_own_clock(world: World, skew: float) -> None:
    first, second = world.candidate("first"), world.candidate("second", skew)
    assert first.try_acquire_or_renew()
    assert not second.try_acquire_or_renew()
    world.time.now += 14.9
    assert not second.try_acquire_or_renew()
    assert not first.is_held()  # since five seconds
    world.time.now += 0.2
    assert second.try_acquire_or_renew()
    lease = world.lease()
    assert (lease["holderIdentity"], lease["leaseTransitions"], lease["leaseDurationSeconds"]) == ("second", 1, 15)
    assert not first.try_acquire_or_renew()


def test_a_release_hands_over_at_once(world: World) -> None:
    first, second = world.candidate("first"), world.candidate("second")
    assert first.try_acquire_or_renew()
    assert not second.try_acquire_or_renew()
    assert first.release()
    assert not first.is_held()
    assert second.try_acquire_or_renew()
    assert not first.release()
    assert world.lease()["holderIdentity"] == "second"


def test_who_cannot_renew_may_not_write(world: World) -> None:
    first = world.candidate("first")
    fenced = FencedCluster(world.cluster, first)
    thing = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}}
    assert first.try_acquire_or_renew()
    fenced.create(thing)
    world.lines["first"].lost = "request"
    world.time.now += 9
    assert not first.try_acquire_or_renew()
    fenced.patch(CONFIG_MAP, "a", {"data": {"x": "y"}}, "default")
    world.time.now += 1
    for write in (
        lambda: fenced.create(thing),
        lambda: fenced.update(thing),
        lambda: fenced.update_status(thing),
        lambda: fenced.patch(CONFIG_MAP, "a", {}, "default"),
        lambda: fenced.delete(CONFIG_MAP, "a", "default"),
    ):
        with pytest.raises(LeaseLost, match="could not be renewed"):
            write()
    assert fenced.get(CONFIG_MAP, "a", "default")["data"] == {"x": "y"}


def test_the_time_is_counted_from_when_a_renewal_was_sent(world: World) -> None:
    first = world.candidate("first")
    world.lines["first"].back = 4.0
    assert first.try_acquire_or_renew()
    assert first.until == 1000.0 + 10.0


def test_a_write_of_our_own_whose_answer_was_lost_is_no_rival(world: World) -> None:
    first = world.candidate("first")
    assert first.try_acquire_or_renew()
    world.lines["first"].lost = "answer"
    assert not first.try_acquire_or_renew()
    world.lines["first"].lost = ""
    assert first.try_acquire_or_renew()
    assert world.lease()["leaseTransitions"] == 0


STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from([0.0, 0.1, 2.0, 5.1, 8.0, 10.0, 14.9, 15.1]),
        st.sampled_from([0.0, 0.0, 0.1, 3.0, 6.0]),
        st.sampled_from([0.0, 0.0, 0.1, 3.0, 6.0]),
        st.sampled_from(["", "", "", "", "request", "answer", "release"]),
    ),
    min_size=10,
    max_size=40,
)
"""Who, after which pause, how long the request and its answer are on their way, and what goes wrong."""


@pytest.mark.medium
@given(STEPS)
def test_property_never_two_at_a_time(steps: list[tuple[int, float, float, float, str]]) -> None:
    for world in worlds():
        candidates = [world.candidate(str(number), skew_hours=number * 7.0) for number in range(3)]
        for who, pause, there, back, fault in steps:
            world.time.now += pause
            line = world.lines[str(who)]
            line.there, line.back, line.lost = there, back, "" if fault == "release" else fault
            if fault == "release":
                candidates[who].release()
            else:
                candidates[who].try_acquire_or_renew()
            assert sum(candidate.is_held() for candidate in candidates) <= 1
