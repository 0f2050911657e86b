"""What the random fire of `test_controllers_property` has found, each once more as a story."""

from __future__ import annotations

import factories
import pytest
from stepped import Obj, Stepped, sized_jobset, sized_pod

from trainwright.api.kinds import CONFIG_MAP, JOB, NODE, POD
from trainwright.controlplane.apiserver.wire.api_errors import StorageFailed
from trainwright.controlplane.controllers.loop import StoreInformer


def test_a_job_that_expires_does_not_spin_while_its_pods_go() -> None:
    with Stepped() as world:
        spec = sized_jobset()["spec"]["replicatedJobs"][0]["template"]["spec"] | {"ttlSecondsAfterFinished": 5}
        world.cluster.create(factories.job(**spec))
        world.settle()
        for pod in world.pods():
            pod["metadata"]["finalizers"].append("example.com/keeps-it")
            world.cluster.update(pod)
            world.end_pod(pod, 0)
        world.settle_in_time(20)
        job = world.get(JOB, "j")
        assert job is not None
        assert job["metadata"]["deletionTimestamp"]
        assert world.next_due() is None


def test_a_pod_that_is_deleted_before_it_has_a_node_is_replaced_by_a_job_that_waits_for_failures() -> None:
    with Stepped() as world:
        world.cluster.patch(NODE, "local", {"spec": {"unschedulable": True}})
        world.cluster.create(
            sized_jobset(steps=[("a", 1, 1, "1", {"job": {"podReplacementPolicy": "Failed", "backoffLimit": 3}})])
        )
        world.settle()
        (first,) = world.pods()
        world.cluster.delete(POD, first["metadata"]["name"], "default")
        world.settle_in_time(30)
        (second,) = world.pods()
        assert second["metadata"]["uid"] != first["metadata"]["uid"]
        assert second["status"]["phase"] == "Pending"


def test_a_finalizer_that_could_not_be_taken_off_is_taken_off_later() -> None:
    """The pod in memory lost it before the write had succeeded, and was never looked at again."""
    with Stepped() as world:
        world.cluster.create(sized_jobset(steps=[("a", 1, 1, "1", {})]))
        world.settle()
        (pod,) = world.pods()
        world.end_pod(pod, 0)
        world.deliver()
        world.advance(1)

        def refuse(what: str) -> None:
            if what == "patch Pod":
                raise StorageFailed("disk full")

        world.writing.before = refuse
        while not world.errors:
            assert world.deliver() or world.step()
        assert world.own_objects_changed() == []
        world.writing.before = lambda _what: None
        world.settle_in_time(10)
        assert world.pods()[0]["metadata"].get("finalizers") is None


@pytest.mark.medium
def test_a_jobset_of_two_thousand_million_jobs_leaves_time_for_others() -> None:
    """Each reconcile creates a part of the Jobs, and the scheduler looks only at those that exist."""
    with Stepped() as world:
        huge = sized_jobset("huge")
        huge["spec"]["replicatedJobs"][0] |= {"replicas": 2**31 - 1}
        huge["spec"]["replicatedJobs"][0]["template"]["spec"] |= {"parallelism": 1, "completions": 1}
        world.cluster.create(huge)
        world.cluster.create(sized_pod("other"))
        for number in range(12):
            while world.deliver():
                pass
            world.step(number)
        assert [found["metadata"]["name"] for found in world.pods() if found["spec"].get("nodeName")] == ["other"]
        assert 0 < world.store.size(JOB.resource) <= 500 * 12


def test_a_handler_that_fails_on_one_object_gets_the_others() -> None:
    with Stepped() as world:
        seen: list[str] = []

        def handle(_event: str, obj: Obj) -> None:
            if obj["metadata"]["name"] == "broken":
                raise ValueError("a number of 5,000 digits")
            seen.append(obj["metadata"]["name"])

        world.cluster.create(sized_pod("broken"))
        informer = StoreInformer(world.server, POD, [handle], lambda _: None)
        world.cluster.create(sized_pod("later"))
        informer.deliver()
        informer.close()
        assert seen == ["later"]


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("together", [False, True])
def test_foreground_deletion_of_objects_that_own_each_other_in_a_circle_ends(count: int, together: bool) -> None:
    with Stepped() as world:
        made = [
            world.cluster.create(
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"m{at}", "namespace": "default"}}
            )
            for at in range(count)
        ]
        for at, obj in enumerate(made):
            owner = made[at - 1]["metadata"]
            reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["name"], "uid": owner["uid"]}
            patch = {"metadata": {"ownerReferences": [{**reference, "blockOwnerDeletion": True}]}}
            world.cluster.patch(CONFIG_MAP, obj["metadata"]["name"], patch, "default")
        world.settle()
        for at in range(count if together else 1):
            world.cluster.delete(CONFIG_MAP, f"m{at}", "default", propagation="Foreground")
        world.settle_in_time(20)
        assert [world.get(CONFIG_MAP, f"m{at}") for at in range(count)] == [None] * count
