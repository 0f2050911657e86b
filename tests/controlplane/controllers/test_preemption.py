"""Preemption: which pods have to go for one of a higher priority, what is said of them, and who gets their place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepped import Crash, Stepped, failing, sized_jobset, sized_pod, told

from trainwright.api.kinds import EVENT, POD
from trainwright.api.quantities import parse_quantity
from trainwright.controlplane.controllers.scheduler.node_resources import NodeResources
from trainwright.controlplane.controllers.scheduler.preemption import find_victims
from trainwright.controlplane.controllers.scheduler.scheduler_cache import PodInfo

INSUFFICIENT = "0/1 nodes are available: 1 Insufficient cpu."
NO_VICTIMS = "no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
NEVER = "no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never."


@pytest.fixture
def world() -> Iterator[Stepped]:
    with Stepped(cpu="4") as stepped:
        add_classes(stepped)
        yield stepped


def add_classes(world: Stepped) -> None:
    for name, value, more in (("high", 100, {}), ("middle", 50, {}), ("polite", 100, {"preemptionPolicy": "Never"})):
        world.cluster.create(
            {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value, **more}
        )


def create(world: Stepped, *objects: dict[str, Any]) -> None:
    """One after the other, each a second younger."""
    for obj in objects:
        world.cluster.create(obj)
        world.settle()
        world.advance(1)


def by_name(world: Stepped) -> dict[str, dict[str, Any]]:
    return {found["metadata"]["name"]: found for found in world.pods()}


def placed(world: Stepped) -> list[str]:
    return sorted(name for name, found in by_name(world).items() if found["spec"].get("nodeName"))


def ending(world: Stepped) -> list[str]:
    return sorted(name for name, found in by_name(world).items() if found["metadata"].get("deletionTimestamp"))


def events(world: Stepped, reason: str) -> list[tuple[str, str]]:
    found = [event for event in world.cluster.list(EVENT).items if event["reason"] == reason]
    return [(event["involvedObject"]["name"], event["message"]) for event in found]


def test_a_pod_of_higher_priority_takes_the_place_of_another(world: Stepped) -> None:
    """As recorded on a real cluster."""
    create(world, sized_pod("usual", "3"), sized_pod("important", "3", priorityClassName="high"))
    found = by_name(world)
    waits, victim = found["important"], found["usual"]
    assert (told(waits), waits["status"]["nominatedNodeName"]) == (INSUFFICIENT, "local")
    assert events(world, "FailedScheduling") == [("important", INSUFFICIENT)]
    (disrupted,) = [entry for entry in victim["status"]["conditions"] if entry["type"] == "DisruptionTarget"]
    assert (disrupted["status"], disrupted["reason"]) == ("True", "PreemptionByScheduler")
    assert disrupted["message"] == "default-scheduler: preempting to accommodate a higher priority pod"
    assert events(world, "Preempted") == [("usual", f"Preempted by pod {waits['metadata']['uid']} on node local")]
    assert (placed(world), ending(world)) == (["usual"], ["usual"])
    world.settle_in_time(60)
    assert len(events(world, "Preempted")) == len(events(world, "FailedScheduling")) == 1, "it is said and done once"
    world.gone_pods()
    world.settle()
    assert placed(world) == ["important"]
    assert "nominatedNodeName" not in by_name(world)["important"]["status"]


def test_no_more_pods_go_than_must_and_the_less_important_ones_first(world: Stepped) -> None:
    create(
        world,
        sized_pod("middle", "1", priorityClassName="middle"),
        sized_pod("old", "1"),
        sized_pod("young", "1"),
        sized_pod("youngest", "1"),
    )
    create(world, sized_pod("important", "2", priorityClassName="high"))
    assert ending(world) == ["young", "youngest"]


def test_the_place_that_was_made_is_kept(world: Stepped) -> None:
    create(
        world,
        sized_pod("usual", "3"),
        sized_pod("important", "3", priorityClassName="high"),
        sized_pod("small", "1"),
        sized_pod("late", "1"),
    )
    world.gone_pods()
    create(world, sized_pod("later", "3"))
    assert placed(world) == ["important", "small"]


def test_what_a_job_makes_in_place_of_a_victim_does_not_take_its_place(world: Stepped) -> None:
    create(world, sized_jobset("train", failurePolicy={"maxRestarts": 5}, steps=[("node", 1, 2, "2", {})]))
    assert len(placed(world)) == 2
    create(world, sized_pod("important", "2", priorityClassName="high"))
    for _ in range(3):
        world.gone_pods()
        world.settle_in_time(60)
    assert "important" in placed(world)
    assert len(events(world, "Preempted")) == 1


def test_a_gang_makes_room_for_all_of_it(world: Stepped) -> None:
    create(world, sized_pod("a", "2"), sized_pod("b", "2"))
    create(world, sized_jobset("train", steps=[("node", 1, 2, "2", {"pod": {"priorityClassName": "high"}})]))
    assert ending(world) == ["a", "b"]
    world.cluster.delete(POD, "a", "default", grace_period_seconds=0)
    world.settle()
    assert placed(world) == ["b"], "together or not at all"
    world.gone_pods()
    world.settle()
    assert [name.rpartition("-")[0] for name in placed(world)] == ["train-node-0-0", "train-node-0-1"]


@pytest.mark.parametrize(
    ("usual", "spec", "why"),
    [
        ({}, {}, NO_VICTIMS),
        ({"priorityClassName": "high"}, {"priorityClassName": "high"}, NO_VICTIMS),
        ({}, {"priorityClassName": "polite"}, NEVER),
    ],
    ids=["no priority", "the same priority", "a class that preempts nobody"],
)
def test_nobody_goes(world: Stepped, usual: dict[str, Any], spec: dict[str, Any], why: str) -> None:
    create(world, sized_pod("usual", "3", **usual), sized_pod("other", "3", **spec))
    assert ending(world) == []
    assert told(by_name(world)["other"]) == f"{INSUFFICIENT} {why}"
    assert "nominatedNodeName" not in by_name(world)["other"]["status"]


def test_nobody_goes_for_a_pod_that_would_not_fit_all_the_same(world: Stepped) -> None:
    create(world, sized_pod("important", "2", priorityClassName="high"), sized_pod("usual", "2"))
    create(
        world,
        sized_pod("large", "3", priorityClassName="middle"),
        sized_pod("elsewhere", "3", priorityClassName="high", nodeSelector={"a": "b"}),
    )
    assert ending(world) == []


def test_what_is_ending_already_is_waited_for(world: Stepped) -> None:
    create(world, sized_pod("a", "2"), sized_pod("b", "2"))
    world.cluster.delete(POD, "b", "default")
    create(world, sized_pod("important", "2", priorityClassName="high"))
    assert ending(world) == ["b"]
    assert told(by_name(world)["important"]) == INSUFFICIENT


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("which", range(5))
def test_a_death_of_the_scheduler_at_any_write_changes_nothing(world: Stepped, which: int, after: bool) -> None:
    create(world, sized_pod("usual", "3"))
    world.cluster.create(sized_pod("important", "3", priorityClassName="high"))
    setattr(world.writing, "after" if after else "before", failing(which, Crash()))
    try:
        world.settle()
    except Crash:
        world.start()
        world.settle()
    assert ending(world) == ["usual"]
    world.gone_pods()
    world.settle()
    assert placed(world) == ["important"]
    assert "nominatedNodeName" not in by_name(world)["important"]["status"]


def entry(index: int, cpu: int, priority: int, is_bound: bool = True) -> PodInfo:
    made = {"metadata": {"creationTimestamp": f"2026-01-01T00:00:{index:02}Z"}, "spec": {}}
    return PodInfo(
        ("default", f"p{index}"), str(index), made, {"cpu": parse_quantity(cpu)}, is_bound, False, priority, "", None, None
    )


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), max_size=8), st.integers(1, 8), st.integers(0, 4))
def test_property_victims_are_enough_needed_and_less_important(pods: list[tuple[int, int]], cpu: int, priority: int) -> None:
    bound = [entry(index, size, of) for index, (size, of) in enumerate(pods)]
    used = sum(size for size, _ in pods)
    node = {"status": {"allocatable": {"cpu": str(max(used, 8))}}}
    resources = NodeResources(node, {"cpu": parse_quantity(used)})
    incoming = entry(99, cpu, priority, is_bound=False)
    victims = find_victims([incoming], incoming.requests, bound, resources)
    free = max(used, 8) - used
    lower = [one for one in bound if one.priority < priority]
    sizes = {one.key: size for one, (size, _) in zip(bound, pods, strict=True)}
    if victims is None:
        assert free + sum(sizes[one.key] for one in lower) < cpu
        return
    assert all(victim.priority < priority for victim in victims)
    freed = sum(sizes[victim.key] for victim in victims)
    assert free + freed >= cpu
    assert all(free + freed - sizes[victim.key] < cpu for victim in victims), "none goes that might stay"
