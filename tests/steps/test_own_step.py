"""A step of a pipeline knows its place: another one in each task, loop and sub-pipeline, the same in each try."""

from __future__ import annotations

import json
from typing import Any

import pytest
from factories import pod
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.errors import Forbidden, ServiceUnavailable
from trainwright.api.objects import uid_of
from trainwright.cluster.retrying import RetryingCluster
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs.state.waiters import POD_NODE_ANNOTATION as NODE_NAME
from trainwright.jobs.state.waiters import WaitingPod
from trainwright.steps.training.own_step import (
    RUN,
    WORKFLOW_LABEL,
    OwnStep,
    ServerRetries,
    own_step,
    path_of_node,
    server_retries,
)
from trainwright.submission.jobs_client import JobsClient

UUID = "0d3f8f0e-2f3f-4f0e-9f3b-2a61a4f6f0aa"


def told(**outputs: Any) -> list[str]:
    """The arguments of kfp's executor."""
    return ["executor_main.py", "--executor_input", json.dumps({"outputs": outputs}), "--function_to_execute", "train"]


@pytest.fixture
def client(cluster: EmbeddedCluster) -> JobsClient:
    return JobsClient.of(cluster)


@pytest.mark.parametrize(
    ("node", "path"),
    [
        ("flow.root.train(0)", "train"),
        ("flow(0).root(0).train(0).executor(0)", "train"),
        ("flow(0).root(0).train(0).executor(2)", "train"),
        (
            "flow(0).root(0).for-loop-2(0).iteration-iterations(0:0)(0).iteration-item(0).for-loop-4(0)"
            ".iteration-iterations(1:1)(0).iteration-item(0).probe-4(0).executor(0)",
            "for-loop-2[0]/for-loop-4[1]/probe-4",
        ),
        ("flow.root.for-loop-2.iteration-iterations(10:10).iteration-item.train-2(1)", "for-loop-2[10]/train-2"),
        ("flow(0).root(0).inner-2(0).train(0).executor(0)", "inner-2/train"),
        ("flow(0).root(0).exit-handler-1(0).condition-2(0).train(0).executor(0)", "exit-handler-1/condition-2/train"),
        ("", ""),
    ],
)
def test_the_name_of_a_node_tells_the_place_and_no_try(node: str, path: str) -> None:
    assert path_of_node(node, "flow") == path


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("flow(0).root(0).train(0).executor(0)", ServerRetries.lost_pods),
        ("flow.root.train(0)", ServerRetries.failures),
        ("flow.root.train.executor", ServerRetries.failures),
        ("", ServerRetries.unknown),
        ("other(0).root(0)", ServerRetries.unknown),
    ],
)
def test_the_name_of_a_node_tells_what_the_server_retries(node: str, expected: ServerRetries) -> None:
    assert server_retries(node, "flow") is expected


@given(st.lists(st.integers(0, 9), min_size=4, max_size=4), st.lists(st.integers(0, 9), min_size=4, max_size=4))
def test_property_the_place_is_the_same_in_every_try(one: list[int], other: list[int]) -> None:
    def node(tries: list[int]) -> str:
        names = ("root", "for-loop-2", "iteration-item", "train")
        return ".".join(["flow", *(f"{name}({number})" for name, number in zip(names, tries, strict=True))])

    assert path_of_node(node(one), "flow") == path_of_node(node(other), "flow")


def test_a_step_on_a_backend_is_who_its_pod_is(client: JobsClient) -> None:
    labels = {RUN: UUID, WORKFLOW_LABEL: "fine-tune-x2k4p"}
    annotations = {NODE_NAME: "fine-tune-x2k4p.root.for-loop-2.iteration-iterations(3:3).iteration-item.train(1)"}
    made = client.create(pod("step", labels=labels, metadata={"annotations": annotations}))
    found = own_step(client, {"KFP_POD_NAME": "step"}, told())
    note = WaitingPod("default", "step", uid_of(made), UUID, annotations[NODE_NAME].removesuffix("(1)")).as_text()
    assert found == OwnStep("for-loop-2[3]/train", "fine-tune", UUID, waiting_pod=note, retries=ServerRetries.failures)
    made = found.identity(UUID, "train")
    assert made.name().startswith("fine-tune-train-")
    assert made.submitter.label_values() == {
        "trainwright.dev/pipeline": "fine-tune",
        "trainwright.dev/pipeline_run": UUID,
        "trainwright.dev/pipeline_task": made.submitter.label_values()["trainwright.dev/pipeline_task"],
    }


class Refusing:
    """A cluster on which a pod cannot be read."""

    default_namespace = "default"

    def __init__(self, error: Exception):
        self.error = error

    def get(self, *_: Any) -> Any:
        raise self.error


def refusing(error: Exception) -> Any:
    return JobsClient(Refusing(error))  # type: ignore[arg-type]


def test_a_step_that_must_not_read_its_pod_is_who_its_outputs_are() -> None:
    unique = "aa6a" + UUID[4:]
    uri = f"minio://mlpipeline/v2/artifacts/fine-tune/{UUID}/train/{unique}/metrics"
    found = own_step(
        refusing(Forbidden("not you")), {"KFP_POD_NAME": "step"}, told(artifacts={"metrics": {"artifacts": [{"uri": uri}]}})
    )
    assert (found.path, found.run_instance, found.is_certain) == (f"train/{unique}", UUID, True)


def test_a_step_that_cannot_know_who_it_is_says_so() -> None:
    found = own_step(refusing(Forbidden("not you")), {"KFP_POD_NAME": "step"}, told(outputFile="/tmp/kfp/output.json"))
    assert (found.path, found.is_certain) == ("", False)
    assert not found.identity("run", "train").submitter.is_certain


def test_a_step_whose_pod_cannot_be_read_now_does_not_become_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RetryingCluster, "with_retries", lambda _self, call: call())
    with pytest.raises(ServiceUnavailable):
        own_step(refusing(ServiceUnavailable("overloaded")), {"KFP_POD_NAME": "step"}, told())


@pytest.mark.parametrize(
    ("folder", "path"),
    [
        ("who-is-2026-11-25-21-51-25-286719/train", "train"),
        (
            "who-is-2026-11-25-21-51-25-286719/for-loop-4-iteration-1/for-loop-6-iteration-0/train-6",
            "for-loop-4[1]/for-loop-6[0]/train-6",
        ),
        ("somewhere/train", ""),
    ],
)
def test_a_local_step_is_who_its_folder_is(client: JobsClient, folder: str, path: str) -> None:
    found = own_step(client, {}, told(outputFile=f"/home/ann/local_outputs/{folder}/executor_output.json"))
    assert found.path == path
    assert bool(found.pipeline) == bool(path)


def test_a_program_that_calls_a_component_is_the_run_that_it_names(client: JobsClient) -> None:
    made = own_step(client, {}, ["program.py"]).identity("mine", "train")
    assert (str(made), made.folder, made.submitter.is_certain) == ("kfp/mine/train", "runs/mine", True)


def test_trainings_of_one_run_have_a_folder_each_and_the_only_one_that_of_the_run() -> None:
    paths = [
        "exit-handler-1/condition-2/train",
        "train-2",
        "for-loop-2[0]/train",
        "for-loop-2[1]/train",
        "sft/train",
        "dpo/train",
    ]
    made = [OwnStep(path).identity("run", "train") for path in paths]
    assert made[0].folder == "runs/run"
    assert (
        len({one.folder for one in made}) == len({one.exports for one in made}) == len({str(one) for one in made}) == len(paths)
    )
