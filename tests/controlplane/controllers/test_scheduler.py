"""The scheduler of the one-node cluster: which pods run, in which order, what the others are told, and what runs only together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from stepped import Crash, Stepped, failing, sized_jobset, sized_pod, sized_trainjob, told

from trainwright.api.errors import Forbidden
from trainwright.api.kinds import CLAIM, EVENT, JOBSET, NODE, POD, TRAINJOB
from trainwright.controlplane.controllers.scheduler.cycle import obstacle
from trainwright.runtimes import bundled_runtimes

NO_VICTIMS = "no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
HELPLESS = "no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."


@pytest.fixture
def world() -> Iterator[Stepped]:
    with Stepped(cpu="4") as stepped:
        yield stepped


def placed(world: Stepped) -> list[str]:
    return sorted(found["metadata"]["name"] for found in world.pods() if found["spec"].get("nodeName"))


def create(world: Stepped, *objects: dict[str, Any]) -> None:
    """One after the other, each a second younger."""
    for obj in objects:
        world.cluster.create(obj)
        world.settle()
        world.advance(1)


def message(world: Stepped, name: str) -> str:
    return told(world.cluster.get(POD, name, "default"))


# -- one pod


def test_a_pod_that_fits_is_bound_and_one_that_does_not_says_what_is_lacking(world: Stepped) -> None:
    create(world, sized_pod("a", "3"), sized_pod("b", "3"), sized_pod("c", "5"), sized_pod("d", "1"), sized_pod("e", "1"))
    assert placed(world) == ["a", "d"]
    assert message(world, "b") == f"0/1 nodes are available: 1 Insufficient cpu. {NO_VICTIMS}"
    assert message(world, "c") == f"0/1 nodes are available: 1 Insufficient cpu. {HELPLESS}"
    events = [event for event in world.cluster.list(EVENT).items if event["reason"] == "FailedScheduling"]
    assert {event["involvedObject"]["name"] for event in events} == {"b", "c", "e"}


def test_room_that_becomes_free_is_used_at_once(world: Stepped) -> None:
    create(world, sized_pod("a", "4"), sized_pod("b", "4"))
    world.end_pod(world.cluster.get(POD, "a", "default"), 0)
    world.settle()
    assert placed(world) == ["a", "b"]


def test_a_pod_that_is_being_deleted_keeps_its_room_until_it_is_gone(world: Stepped) -> None:
    create(world, sized_pod("a", "4"), sized_pod("b", "4"))
    world.cluster.delete(POD, "a", "default")
    world.settle()
    assert placed(world) == ["a"]
    world.gone_pods()
    world.settle()
    assert placed(world) == ["b"]


def test_init_containers_sidecars_and_overhead_count_as_kubernetes_counts_them(world: Stepped) -> None:
    sidecar = {"name": "side", "image": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    first = {"name": "first", "image": "i", "resources": {"requests": {"cpu": "3"}}}
    create(world, sized_pod("a", "1", initContainers=[sidecar, first]), sized_pod("b", "1"))
    assert placed(world) == ["a"]  # 1 of the sidecar and 3 of the init container after it


def test_priority_comes_before_age(world: Stepped) -> None:
    world.cluster.patch(NODE, "local", {"spec": {"unschedulable": True}})
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100}
    create(world, priority, sized_pod("old", "3"))
    create(world, sized_pod("young", "3", priorityClassName="high"))
    assert placed(world) == []
    assert message(world, "old") == f"0/1 nodes are available: 1 node(s) were unschedulable. {HELPLESS}"
    world.cluster.patch(NODE, "local", {"spec": {"unschedulable": None}})
    world.settle()
    assert placed(world) == ["young"]


def test_a_pod_waits_for_its_claim_its_gates_and_a_node() -> None:
    with Stepped(node=False) as world:
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
        create(world, sized_pod("a", volumes=[volume]), sized_pod("gated", schedulingGates=[{"name": "example.com/wait"}]))
        assert message(world, "a") == "no nodes available to schedule pods"
        world.add_node()
        world.settle()
        assert message(world, "a").startswith('0/1 nodes are available: persistentvolumeclaim "data" not found.')
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        metadata = {"name": "data", "namespace": "default"}
        create(world, {"apiVersion": "v1", "kind": CLAIM.kind, "metadata": metadata, "spec": spec})
        assert placed(world) == ["a"]
        world.cluster.patch(POD, "gated", {"spec": {"schedulingGates": None}}, "default")
        world.settle()
        assert placed(world) == ["a", "gated"]


@pytest.mark.medium
def test_thousands_of_pods_are_placed_in_one_pass(world: Stepped) -> None:
    world.cluster.patch(NODE, "local", {"status": {"allocatable": {"pods": "3000", "cpu": "3000"}}}, subresource="status")
    world.settle()
    for number in range(1500):
        world.cluster.create(sized_pod(f"p-{number}"))
    while world.deliver():
        pass
    passes = 0
    while world.step():
        passes += 1
    assert len(placed(world)) == 1500
    assert passes == 1


NODE_A = {
    "metadata": {"name": "a", "labels": {"zone": "x", "cores": "8"}},
    "spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}, {"key": "soft", "effect": "PreferNoSchedule"}]},
}
GPU = {"tolerations": [{"key": "gpu", "operator": "Exists"}]}


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    return {**GPU, "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def term(key: str, operator: str, *values: str, part: str = "matchExpressions") -> dict[str, Any]:
    return {part: [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({}, "untolerated taint {gpu: yes}"),
        (GPU, ""),
        ({"tolerations": [{"operator": "Exists"}]}, ""),
        ({"tolerations": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}, ""),
        ({"tolerations": [{"key": "gpu", "value": "no", "effect": "NoSchedule"}]}, "untolerated taint"),
        ({"tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}]}, "untolerated taint"),
        ({**GPU, "nodeSelector": {"zone": "x"}}, ""),
        ({**GPU, "nodeSelector": {"zone": "y"}}, "affinity/selector"),
        (affinity(term("zone", "In", "x", "y")), ""),
        (affinity(term("zone", "In", "y")), "affinity/selector"),
        (affinity(term("zone", "NotIn", "x")), "affinity/selector"),
        (affinity(term("other", "NotIn", "x")), ""),
        (affinity(term("zone", "Exists")), ""),
        (affinity(term("zone", "DoesNotExist")), "affinity/selector"),
        (affinity(term("cores", "Gt", "4")), ""),
        (affinity(term("cores", "Lt", "8")), "affinity/selector"),
        (affinity(term("zone", "Gt", "1")), "affinity/selector"),
        (affinity(term("cores", "Gt", "²")), "affinity/selector"),
        (affinity(term("cores", "Lt", "9" * 5000)), "affinity/selector"),
        (affinity(term("zone", "In", "y"), term("zone", "In", "x")), ""),
        (affinity(term("metadata.name", "In", "a", part="matchFields")), ""),
        (affinity(term("metadata.name", "NotIn", "a", part="matchFields")), "affinity/selector"),
        (affinity({}), "affinity/selector"),
    ],
)
def test_whether_a_node_will_do(spec: dict[str, Any], why: str) -> None:
    found = obstacle(spec, NODE_A)
    assert why in found
    assert bool(found) is bool(why)


# -- gangs


def test_a_jobset_is_placed_whole_or_not_at_all(world: Stepped) -> None:
    create(world, sized_pod("other", "2"), sized_jobset("big", steps=[("main", 2, 2, "1", {})]))
    assert placed(world) == ["other"]
    messages = {told(found) for found in world.pods() if found["metadata"]["name"] != "other"}
    sentence = "The pods of JobSet default/big are placed together or not at all."
    assert messages == {f"0/1 nodes are available: 1 Insufficient cpu. {NO_VICTIMS} {sentence}"}
    create(world, sized_jobset("small", steps=[("main", 1, 2, "1", {})]))
    assert len(placed(world)) == 3  # who fits goes ahead, as on any cluster
    world.end_pod(world.cluster.get(POD, "other", "default"), 0)
    for found in world.pods():
        if found["metadata"]["name"].startswith("small"):
            world.end_pod(found, 0)
    world.settle_in_time(10)
    assert sum(name.startswith("big") for name in placed(world)) == 4


@pytest.mark.parametrize(
    ("order", "depends"),  # not both: JobSet refuses that
    [({}, []), ({"startupPolicy": {"startupPolicyOrder": "InOrder"}}, []), ({}, [{"name": "first", "status": "Ready"}])],
)
def test_two_jobsets_that_fit_one_at_a_time_run_one_after_the_other(
    world: Stepped, order: dict[str, Any], depends: list[dict[str, Any]]
) -> None:
    more = {"dependsOn": depends} if depends else {}
    for name in ("one", "two"):
        world.cluster.create(sized_jobset(name, steps=[("first", 1, 1, "2", {}), ("second", 1, 1, "2", more)], **order))
    for _ in range(12):
        world.settle_in_time(5)
        for found in world.pods():
            if found["spec"].get("nodeName") and found["status"]["phase"] == "Pending":
                ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                world.set_pod(found["metadata"]["name"], phase="Running", conditions=[ready])
        world.settle_in_time(5)
        running = [found for found in world.pods() if found["status"]["phase"] == "Running"]
        owners = {found["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] for found in running}
        assert len(owners) <= 1
        if len(running) == 2:
            for found in running:
                world.end_pod(found, 0)
    for name in ("one", "two"):
        assert world.cluster.get(JOBSET, name, "default")["status"]["terminalState"] == "Completed"


def test_a_step_that_waits_for_another_to_complete_asks_for_nothing_yet(world: Stepped) -> None:
    after = {"dependsOn": [{"name": "prepare", "status": "Complete"}]}
    create(world, sized_jobset("chain", steps=[("prepare", 1, 1, "4", {}), ("train", 1, 2, "2", after)]))
    assert len(placed(world)) == 1
    world.end_pod(world.pods()[0], 0)
    world.settle_in_time(10)
    assert sum("train" in name for name in placed(world)) == 2


def test_restarting_pod_keeps_its_reserved_resources(world: Stepped) -> None:
    steps = [("main", 1, 2, "2", {"job": {"backoffLimit": 3}})]
    create(world, sized_jobset("again", steps=steps), sized_pod("other", "1"))
    assert len(placed(world)) == 2
    failed = next(found for found in world.pods() if found["metadata"]["name"].startswith("again"))
    world.end_pod(failed, 1)
    world.settle()
    assert "other" not in placed(world)
    world.settle_in_time(30)
    assert "other" not in placed(world)
    live = [found for found in world.pods() if found["status"]["phase"] == "Pending" and found["spec"].get("nodeName")]
    assert len(live) == 2


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("which", range(1, 5))
def test_a_crash_in_the_midst_of_a_jobset_leaves_no_half(which: int, after: bool) -> None:
    with Stepped(cpu="4") as world:
        world.cluster.create(sized_jobset("first", steps=[("main", 1, 3, "1", {})]))
        while world.deliver():
            pass
        while len(world.pods()) < 3:
            assert world.deliver() or world.step()
        while world.deliver():
            pass
        setattr(world.writing, "after" if after else "before", failing(which, Crash()))
        with pytest.raises(Crash):
            world.settle()
        world.cluster.create(sized_jobset("second", steps=[("main", 1, 2, "1", {})]))
        world.start()
        world.settle()
        bound = [found for found in world.pods() if found["spec"].get("nodeName")]
        sets = [found["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] for found in bound]
        assert sets in (["first"] * 3, ["second"] * 2)
        assert all(told(found) == "" for found in bound)


# -- too large


def test_a_trainjob_that_never_fits_is_told_at_once(world: Stepped) -> None:
    for runtime in bundled_runtimes():
        world.cluster.create(runtime)
    create(world, sized_trainjob(nodes=3, cpu="2"))
    conditions = {entry["type"]: entry for entry in world.cluster.get(TRAINJOB, "train", "default")["status"]["conditions"]}
    found = conditions["FitsCluster"]
    assert (found["status"], found["reason"]) == ("False", "ExceedsCluster")
    assert found["message"] == "this cluster cannot hold it: node (3 pods): 6 of cpu asked for, the node has 4"
    events = [event for event in world.cluster.list(EVENT).items if event["reason"] == "ExceedsCluster"]
    assert [event["involvedObject"]["kind"] for event in events] == ["TrainJob"]
    world.cluster.patch(NODE, "local", {"status": {"allocatable": {"cpu": "6"}}}, subresource="status")
    world.settle()
    assert len(placed(world)) == 3
    conditions = {entry["type"]: entry for entry in world.cluster.get(TRAINJOB, "train", "default")["status"]["conditions"]}
    assert conditions["FitsCluster"]["status"] == "True"


# -- priorities, as admission sets them


def priority_class(name: str, value: int, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value, **more}


def test_a_pod_gets_the_priority_of_its_class(world: Stepped) -> None:
    create(world, priority_class("never", 7, preemptionPolicy="Never"), sized_pod("before"))
    create(world, priority_class("usual", 5, globalDefault=True))
    create(
        world,
        sized_pod("named", priorityClassName="never"),
        sized_pod("plain"),
        sized_pod("system", priorityClassName="system-node-critical"),
    )
    found = {entry["metadata"]["name"]: entry["spec"] for entry in world.pods()}
    assert [found[name]["priority"] for name in ("before", "named", "plain", "system")] == [0, 7, 5, 2_000_001_000]
    assert found["named"]["preemptionPolicy"] == "Never"
    assert found["plain"]["priorityClassName"] == "usual"


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"priorityClassName": "nobody"}, "no PriorityClass with name nobody was found"),
        ({"priority": 5}, r"the integer value of priority \(5\) must not be provided in pod spec"),
        ({"preemptionPolicy": "Never"}, r"the string value of PreemptionPolicy \(Never\) must not be provided"),
    ],
)
def test_a_priority_that_no_class_gives_is_refused(world: Stepped, spec: dict[str, Any], why: str) -> None:
    with pytest.raises(Forbidden, match=why):
        world.cluster.create(sized_pod("a", **spec))
