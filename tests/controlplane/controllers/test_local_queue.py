"""The local queue: who starts, in which order, what the others are told, and that a restart changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from stepped import Crash, Stepped, all_controllers, failing, sized_trainjob

from trainwright.api.conditions import condition
from trainwright.api.kinds import CONFIG_MAP, EVENT, JOBSET, TRAINJOB
from trainwright.controlplane.controllers.controller import Controller
from trainwright.controlplane.controllers.local_queue import QueueError, local_queue, parse_queues, queues_map
from trainwright.jobs.diagnosis.report import last_seen
from trainwright.jobs.state.cancel import suspend_job
from trainwright.jobs.state.progress import progress_of
from trainwright.runtimes import bundled_runtimes

QUEUES = "queues:\n- name: research\n  quota: {cpu: 4, nvidia.com/gpu: 1}\n"


def with_queue(cluster: Any, world: Stepped) -> list[Controller]:
    return [*all_controllers(cluster, world), local_queue(cluster)]


@pytest.fixture
def world() -> Iterator[Stepped]:
    with Stepped(with_queue, cpu="16") as stepped:
        for runtime in bundled_runtimes():
            stepped.cluster.create(runtime)
        stepped.cluster.create(queues_map(QUEUES))
        stepped.settle()
        yield stepped


def queued(world: Stepped, name: str, nodes: int = 2, cpu: str = "1", queue: str = "research", **labels: str) -> None:
    """A second younger than the one before."""
    metadata = {"labels": {"kueue.x-k8s.io/queue-name": queue, **labels}}
    world.cluster.create(sized_trainjob(name, nodes, cpu, suspend=True, metadata=metadata))
    world.settle()
    world.advance(1)


def is_running(world: Stepped) -> list[str]:
    return [job["metadata"]["name"] for job in world.cluster.list(TRAINJOB).items if not job["spec"].get("suspend")]


def says(world: Stepped, name: str) -> tuple[str, str, str]:
    found = condition(world.cluster.get(TRAINJOB, name, "default"), "QuotaReserved") or {}
    return found.get("status", ""), found.get("reason", ""), found.get("message", "")


def finish(world: Stepped, name: str) -> None:
    for found in world.pods():
        if found["metadata"]["name"].startswith(f"{name}-"):
            world.end_pod(found, 0)
    world.settle_in_time(10)
    assert condition(world.cluster.get(TRAINJOB, name, "default"), "Complete")


@pytest.mark.medium
def test_queue_starts_jobs_that_fit_and_numbers_the_others(world: Stepped) -> None:
    queued(world, "first", nodes=3)
    queued(world, "second", nodes=2)
    queued(world, "third", nodes=1)
    assert is_running(world) == ["first"]
    assert says(world, "first") == ("True", "Admitted", "admitted by queue research")
    lacking = "1 more of cpu needed (2 asked for, 3 of 4 in use)"
    assert says(world, "second") == ("False", "Pending", f"position 1 of 2 in queue research: {lacking}")
    assert says(world, "third") == ("False", "Pending", "position 2 of 2 in queue research, behind default/second")
    finish(world, "first")
    assert is_running(world) == ["first", "second", "third"]


@pytest.mark.medium
def test_a_client_that_waits_is_shown_what_the_queue_says(world: Stepped) -> None:
    queued(world, "first", nodes=4)
    queued(world, "second", nodes=2)
    job = world.cluster.get(TRAINJOB, "second", "default")
    message = "position 1 of 1 in queue research: 2 more of cpu needed (2 asked for, 4 of 4 in use)"
    assert last_seen(world.cluster, job)[0] == f"last seen: queue: Pending: {message}"
    assert progress_of(job).note == message
    events = [event for event in world.cluster.list(EVENT).items if event["source"].get("component") == "trainwright-queue"]
    told = {(event["involvedObject"]["name"], event["reason"]) for event in events}
    assert ("second", "Pending") in told


@pytest.mark.medium
def test_priority_comes_before_age(world: Stepped) -> None:
    metadata = {"name": "high"}
    world.cluster.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": 9})
    queued(world, "first", nodes=4)
    queued(world, "old", nodes=4)
    queued(world, "young", nodes=4, **{"kueue.x-k8s.io/priority-class": "high"})
    finish(world, "first")
    assert is_running(world) == ["first", "young"]


def test_jobs_that_never_fit_do_not_block_the_queue(world: Stepped) -> None:
    queued(world, "huge", nodes=5)
    queued(world, "lost", queue="nowhere")
    queued(world, "small", nodes=1)
    assert is_running(world) == ["small"]
    assert says(world, "huge")[1] == "ExceedsQuota"
    assert "it asks for 5 of cpu, the queue has 4; it never fits" in says(world, "huge")[2]
    assert says(world, "lost") == ("False", "QueueNotFound", "there is no queue nowhere; there are: research")


@pytest.mark.medium
def test_a_job_that_is_suspended_gives_its_share_back_and_stays_suspended(world: Stepped) -> None:
    queued(world, "first", nodes=4)
    queued(world, "second", nodes=4)
    world.cluster.patch(TRAINJOB, "first", {"spec": {"suspend": True}}, "default")
    world.settle_in_time(10)
    assert is_running(world) == ["second"]
    assert says(world, "first")[1] == "Suspended"
    world.start()
    world.settle_in_time(10)
    finish(world, "second")
    assert is_running(world) == ["second"]


@pytest.mark.medium
def test_a_step_that_was_cancelled_while_it_waited_stays_where_it_is(world: Stepped) -> None:
    queued(world, "first", nodes=4)
    queued(world, "second", nodes=4)
    suspend_job(world.cluster, world.cluster.get(TRAINJOB, "first", "default"))
    world.settle_in_time(10)
    assert is_running(world) == ["second"]


def test_without_queues_a_job_just_stays_suspended(world: Stepped) -> None:
    world.cluster.delete(CONFIG_MAP, "trainwright-queues", "kubeflow-system")
    world.settle()
    queued(world, "first")
    assert is_running(world) == []
    assert condition(world.cluster.get(TRAINJOB, "first", "default"), "QuotaReserved") is None
    world.cluster.create(queues_map(QUEUES))
    world.settle()
    assert is_running(world) == ["first"]


@pytest.mark.medium
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("which", range(1, 9))
def test_a_crash_neither_loses_nor_admits_too_much(world: Stepped, which: int, after: bool) -> None:
    for name in ("a", "b", "c"):
        metadata = {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "research"}}
        world.cluster.create(sized_trainjob(name, 2, "1", suspend=True, metadata=metadata))
        world.advance(1)
    queue = next(controller for controller in world.controllers if controller.name == "local-queue")
    others = [controller for controller in world.controllers if controller is not queue]
    world.controllers = others
    world.settle()
    world.controllers = [queue]
    setattr(world.writing, "after" if after else "before", failing(which, Crash()))
    with pytest.raises(Crash):
        world.settle()
    world.start()
    world.settle()
    assert is_running(world) == ["a", "b"]
    assert [says(world, name)[0] for name in ("a", "b", "c")] == ["True", "True", "False"]
    assert len(world.cluster.list(JOBSET).items) == 3


@pytest.mark.medium
def test_a_settled_queue_is_not_written_to(world: Stepped) -> None:
    for name in ("a", "b", "c"):
        queued(world, name)
    world.start()
    before = list(world.writing.writes)
    world.settle_in_time(60)
    assert world.writing.writes == before


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("queues: {}", "expected a list"),
        ("- a", "expected a list"),
        ("queues: [{quota: {cpu: 1}}]", r"queues\[0\].name"),
        ("queues: [{name: a, quota: {cpu: lots}}]", r"queues\[0\].quota.cpu: 'lots' is not a quantity"),
        ("queues: [{name: a, quota: {cpu: -1}}]", "must not be negative"),
        ("queues: [{name: a, cpu: 1}]", "unknown field cpu"),
        ("queues: [{name: a}, {name: a}]", "duplicate name a"),
        ("queues: [", "not valid YAML"),
    ],
)
def test_queues_that_cannot_be_are_refused(text: str, why: str) -> None:
    with pytest.raises(QueueError, match=why):
        parse_queues(text)
