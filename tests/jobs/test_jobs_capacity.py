"""A request that no node could hold is a warning on a cluster and a refusal on a machine that is all there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from factories import program_request

from trainwright.api import names
from trainwright.api.errors import Forbidden, Invalid
from trainwright.api.kinds import NODE, TRAINJOB
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Submission, submit_or_adopt

STEP = Identity("kfp", "run", "train")


@pytest.fixture
def add_node(cluster: EmbeddedCluster) -> Callable[..., None]:
    def add(name: str, *, whole: bool = False, **allocatable: str) -> None:
        annotations = {names.SINGLE_NODE_ANNOTATION: "true"} if whole else {}
        cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": annotations}})
        amounts = {key.replace("gpu", "nvidia.com/gpu"): value for key, value in allocatable.items()}
        cluster.patch(NODE, name, {"status": {"allocatable": amounts}}, subresource="status")

    return add


def submit(cluster: EmbeddedCluster, **limits: str) -> None:
    amounts = {key.replace("gpu", "nvidia.com/gpu"): value for key, value in limits.items()}
    submit_or_adopt(Submission(cluster, program_request(resources_per_node={"limits": amounts}), STEP, "default"))


def test_on_one_machine_it_is_refused_with_what_there_is(cluster: EmbeddedCluster, add_node: Any) -> None:
    add_node("here", whole=True, cpu="2", memory="8Gi")
    with pytest.raises(Invalid) as raised:
        submit(cluster, cpu="3", memory="1Gi", gpu="1")
    assert [str(problem) for problem in raised.value.problems] == [
        "spec.trainer.resourcesPerNode: Invalid value: a pod of the step node requests 3 of cpu; the largest node has 2",
        "spec.trainer.resourcesPerNode: Invalid value: a pod of the step node requests 1 of nvidia.com/gpu; the largest node has 0",
    ]
    assert not cluster.list(TRAINJOB).items
    submit(cluster, cpu="2", memory="8192Mi")


def test_on_a_cluster_it_is_a_warning(cluster: EmbeddedCluster, add_node: Any, caplog: pytest.LogCaptureFixture) -> None:
    add_node("small", cpu="2", memory="8Gi")
    add_node("large", cpu="64", memory="8Gi")
    submit(cluster, cpu="32", gpu="8")
    assert "requests 8 of nvidia.com/gpu; the largest node has 0" in caplog.text
    assert "of cpu" not in caplog.text
    assert len(cluster.list(TRAINJOB).items) == 1


def test_submission_needs_no_permission_to_list_nodes(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = cluster.list

    def refuse_nodes(kind: Any, *arguments: Any, **more: Any) -> Any:
        if kind is NODE:
            raise Forbidden("not you")
        return plain(kind, *arguments, **more)

    monkeypatch.setattr(cluster, "list", refuse_nodes)
    submit(cluster, gpu="8")
    assert len(cluster.list(TRAINJOB).items) == 1
