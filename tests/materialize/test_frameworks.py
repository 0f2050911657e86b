"""The policies of TensorFlow and Paddle, as installed: by the runtime's label, unless something else has set what they set."""

from __future__ import annotations

import json
from typing import Any

import pytest
from built_objects import Obj, env, pod_spec_of, refused, replicated_job_of
from factories import catalogue_runtime, runtime, trainjob

from trainwright.materialize import materialize
from trainwright.materialize.frameworks.labelled_runtime import framework_without_peers

MARKS = ["TF_CONFIG", "PADDLE_TRAINER_ENDPOINTS"]
FRAMEWORKS = ["tensorflow", "paddle"]


def of_framework(framework: str, **policy: Any) -> Obj:
    return runtime(policy=policy, labels={"trainer.kubeflow.org/framework": framework})


def built(framework: str, runtime_name: str = "", **trainer: Any) -> list[Obj]:
    name = runtime_name or f"{framework}-distributed"
    return materialize(trainjob(runtime=name, trainer=trainer), catalogue_runtime(name))


def test_tensorflow_gets_tf_config_with_the_index_of_the_pod() -> None:
    objects = built("tensorflow", numNodes=3)
    variables = env(objects)
    assert list(variables) == ["TF_WORKER_INDEX", "TF_CONFIG"]  # a reference leads to an earlier variable
    workers = [f"demo-node-0-{index}.demo:29500" for index in range(3)]
    expanded = json.loads(variables["TF_CONFIG"].replace("$(TF_WORKER_INDEX)", "2"))
    assert expanded == {"cluster": {"worker": workers}, "task": {"type": "worker", "index": 2}}
    assert replicated_job_of(objects, "node")["template"]["spec"]["parallelism"] == 3
    container = pod_spec_of(objects)["containers"][0]
    path = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    assert container["env"][0]["valueFrom"] == {"fieldRef": {"fieldPath": path}}
    assert container["ports"] == [{"containerPort": 29500}]


def test_paddle_gets_endpoints_and_no_master() -> None:
    assert env(built("paddle", numNodes=2)) == {
        "PADDLE_TRAINER_ID": None,
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_TRAINER_ENDPOINTS": "demo-node-0-0.demo:29500,demo-node-0-1.demo:29500",
        "PADDLE_CURRENT_ENDPOINT": "demo-node-0-$(PADDLE_TRAINER_ID).demo:29500",
    }


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_single_node_gets_no_peers(framework: str) -> None:
    assert env(built(framework)) == {}


def test_variables_of_the_trainjob_win() -> None:
    given = [{"name": "TF_CONFIG", "value": "{}"}]
    assert env(built("tensorflow", numNodes=2, env=given)) == {"TF_CONFIG": "{}"}
    paddle = env(built("paddle", numNodes=2, env=[{"name": "PADDLE_TRAINERS_NUM", "value": "9"}]))
    assert paddle["PADDLE_TRAINERS_NUM"] == "9"
    assert "PADDLE_TRAINER_ENDPOINTS" in paddle


@pytest.mark.parametrize("policy", ["torch", "jax", "xgboost"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_label_beside_a_policy_of_trainer_changes_nothing(framework: str, policy: str) -> None:
    job = trainjob(trainer={"numNodes": 2})
    assert not {*MARKS} & env(materialize(job, of_framework(framework, **{policy: {}}))).keys()


def test_a_runtime_that_names_the_peers_itself_keeps_them() -> None:
    own = of_framework("tensorflow")
    container = own["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "TF_CONFIG", "value": "chief and ps"}]
    job = trainjob(trainer={"numNodes": 2})
    assert env(materialize(job, own)) == {"TF_CONFIG": "chief and ps"}
    assert framework_without_peers(job, own) == ""


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_several_processes_on_a_node_are_refused(framework: str) -> None:
    assert refused({"numNodes": 2, "numProcPerNode": 2}, of_framework(framework)) == {"spec.trainer.numProcPerNode"}


@pytest.mark.parametrize(
    ("name", "trainer", "framework"),
    [
        ("tensorflow-distributed", {"numNodes": 2}, "tensorflow"),
        ("paddle-distributed", {"numNodes": 2}, "paddle"),
        ("paddle-distributed", {"numNodes": 1}, ""),
        ("paddle-distributed", {"numNodes": 2, "env": [{"name": "PADDLE_MASTER"}]}, ""),
        ("jax-distributed", {"numNodes": 2}, ""),
    ],
)
def test_nodes_that_would_train_alone_without_the_policy(name: str, trainer: Obj, framework: str) -> None:
    assert framework_without_peers(trainjob(trainer=trainer), catalogue_runtime(name)) == framework


def test_horovod_runs_by_the_mpi_policy_with_an_image_of_the_user() -> None:
    command = ["horovodrun", "-np", "2", "--hostfile", "/etc/mpi/hostfile", "python", "train.py"]
    objects = built("", "deepspeed-distributed", numNodes=2, image="horovod/horovod:0.28.1", command=command)
    launcher = pod_spec_of(objects, "launcher")["containers"][0]
    assert (launcher["image"], launcher["command"]) == ("horovod/horovod:0.28.1", command)
    assert {"mountPath": "/etc/mpi", "name": "mpi-hostfile"}.items() <= launcher["volumeMounts"][-1].items()
