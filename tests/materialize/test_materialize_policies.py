"""The rules of each policy, one table or one small case each; the recordings say that they are the real ones."""

from __future__ import annotations

import subprocess

import pytest
from built_objects import Obj, env, mpi, of_kind, pod_spec_of, refused, replicated_job_of
from factories import IMAGE, replicated_job, runtime, trainjob

from trainwright.materialize import materialize
from trainwright.materialize.flux_scripts import FluxJob, entrypoint_script, init_script, numbered

# JAX


def test_jax_lets_the_trainjob_override_what_it_sets() -> None:
    job = trainjob(trainer={"numNodes": 3, "env": [{"name": "JAX_NUM_PROCESSES", "value": "9"}]})
    built = materialize(job, runtime(policy={"jax": {}}))
    assert env(built) == {
        "JAX_NUM_PROCESSES": "9",
        "JAX_PROCESS_ID": None,
        "JAX_COORDINATOR_ADDRESS": "demo-node-0-0.demo:29500",
    }
    assert pod_spec_of(built)["containers"][0]["ports"] == [{"containerPort": 29500}]


@pytest.mark.parametrize("policy", ["jax", "xgboost"])
def test_without_a_trainer_nothing_is_set(policy: str) -> None:
    assert env(materialize(trainjob(), runtime(policy={policy: {}}))) == {}


# XGBoost


@pytest.mark.parametrize(
    ("trainer", "workers"),
    [
        ({"numNodes": 2}, "2"),
        ({"numNodes": 2, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 3}}}, "6"),
        ({"numNodes": 2, "numProcPerNode": 5}, "2"),
    ],
)
def test_xgboost_has_a_worker_for_each_gpu(trainer: Obj, workers: str) -> None:
    assert env(materialize(trainjob(trainer=trainer), runtime(policy={"xgboost": {}})))["DMLC_NUM_WORKER"] == workers


def test_xgboost_refuses_each_reserved_variable_by_itself() -> None:
    variables = [{"name": "DMLC_TASK_ID", "value": "1"}, {"name": "A"}, {"name": "DMLC_NUM_WORKER", "value": "2"}]
    assert refused({"env": variables}, runtime(policy={"xgboost": {}})) == {"spec.trainer.env[0]", "spec.trainer.env[2]"}


# MPI


@pytest.mark.parametrize(
    ("as_node", "nodes", "workers", "hosts"),
    [(True, 1, 1, 2), (True, 2, 1, 2), (True, 10, 9, 10), (True, 0, 1, 2), (False, 2, 2, 2), (True, None, 1, 2)],
)
def test_mpi_counts_the_launcher_where_it_works_too(as_node: bool, nodes: int | None, workers: int, hosts: int) -> None:
    trainer: Obj = {} if nodes is None else {"numNodes": nodes}
    built = materialize(trainjob(trainer=trainer), mpi(runLauncherAsNode=as_node))
    assert replicated_job_of(built, "node")["template"]["spec"]["parallelism"] == workers
    assert len(of_kind(built, "ConfigMap")["data"]["hostfile"].splitlines()) == hosts


@pytest.mark.parametrize(
    ("policy", "trainer", "slots"),
    [
        ({}, {}, "1"),
        ({"numProcPerNode": 4}, {}, "4"),
        ({"numProcPerNode": 4}, {"resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}}}, "4"),
        ({}, {"resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}}}, "8"),
        ({}, {"numProcPerNode": 2, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}}}, "2"),
    ],
)
def test_mpi_slots(policy: Obj, trainer: Obj, slots: str) -> None:
    built = materialize(trainjob(trainer=trainer), mpi(**policy))
    assert env(built, "launcher")["OMPI_MCA_orte_set_default_slots"] == slots
    assert of_kind(built, "ConfigMap")["data"]["hostfile"].splitlines()[0].endswith(f" slots={slots}")


def test_mpi_workers_get_variables_only_where_the_launcher_is_a_node() -> None:
    trainer = {"env": [{"name": "A", "value": "1"}], "image": "other:1"}
    built = materialize(trainjob(trainer=trainer), mpi())
    assert env(built) == {"A": "1"}
    assert pod_spec_of(built)["containers"][0]["image"] == IMAGE
    assert pod_spec_of(built, "launcher")["containers"][0]["image"] == "other:1"
    assert env(materialize(trainjob(trainer=trainer), mpi(runLauncherAsNode=False))) == {}


def test_mpi_host_names_follow_the_subdomain_and_the_replicas() -> None:
    rt = mpi(replicated_job("node") | {"replicas": 2}, replicated_job("launcher", step="trainer"))
    rt["spec"]["template"]["spec"]["network"] = {"subdomain": "net"}
    hosts = of_kind(materialize(trainjob(trainer={"numNodes": 2}), rt), "ConfigMap")["data"]["hostfile"].split()[::2]
    assert hosts == ["demo-node-0-0.net", "demo-node-1-0.net", "demo-launcher-0-0.net"]


def test_mpi_refusals() -> None:
    assert refused({"numNodes": 2}, mpi(replicated_job("launcher", step="trainer"))) == {"spec.trainer.numNodes"}
    assert refused({"env": [{"name": "OMPI_MCA_plm_rsh_args"}]}, mpi()) == {"spec.trainer.env"}


# torchtune


TUNE = ["tune", "run"]
LORA, QLORA = "model.lora_attn_modules=['q']", "model.quantize_base=True"


def tuned(trainer: Obj, name: str = "torchtune-llama3.2-1b", command: list[str] | None = None) -> list[str]:
    rt = runtime(policy={"torch": {}}, name=name)
    rt["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["command"] = (
        command or []
    )
    built = materialize(trainjob(trainer={"command": TUNE} | trainer, runtime=name), rt)
    words: list[str] = pod_spec_of(built)["containers"][0]["command"]
    return words


@pytest.mark.parametrize(
    ("trainer", "recipe", "config"),
    [
        ({}, "full_finetune_single_device", "_full_single_device"),
        ({"numProcPerNode": 2}, "full_finetune_distributed", "_full"),
        ({"args": [LORA]}, "lora_finetune_single_device", "_lora_single_device"),
        ({"args": [LORA], "numProcPerNode": 2}, "lora_finetune_distributed", "_lora"),
        ({"args": [QLORA]}, "lora_finetune_single_device", "_qlora_single_device"),
        ({"args": [QLORA, "model.use_dora=true"]}, "full_finetune_single_device", "_full_single_device"),
        ({"args": ["model.quantize_base=no"]}, "full_finetune_single_device", "_full_single_device"),
    ],
)
def test_torchtune_recipes(trainer: Obj, recipe: str, config: str) -> None:
    trainer = {"numProcPerNode": 1} | trainer
    words = tuned(trainer)
    assert recipe in words
    assert words[words.index("--config") + 1] == f"llama3_2/1B{config}"
    assert any(word.startswith("--rdzv_endpoint=demo-node-0-0.demo:29500") for word in words) == (trainer["numProcPerNode"] > 1)


def test_torchtune_keeps_what_the_runtime_decides() -> None:
    words = tuned({"numNodes": 2}, "torchtune-llama3.3-70b", [*TUNE, "x", "dataset=d", "output_dir=/o", "tokenizer.path=/t"])
    assert words[3:] == [
        "full_finetune_distributed",
        "--config",
        "llama3_3/70B_full_multinode",
        "output_dir=/o",
        "tokenizer.path=/t",
    ]


@pytest.mark.parametrize(
    ("trainer", "name", "fields"),
    [
        ({}, "my-torchtune-llama3.2-1b", {"spec.runtimeRef.name"}),
        ({"numNodes": 2}, "torchtune-llama3.2-1b", {"spec.trainer.numNodes"}),
        ({"numNodes": 2, "args": [LORA]}, "torchtune-llama3.3-70b", {"spec.trainer.numNodes"}),
        ({"args": [QLORA]}, "torchtune-qwen2.5-1.5b", {"spec.runtimeRef.name"}),
        ({"args": [QLORA]}, "torchtune-llama3.2-3b", {"spec.trainer.numProcPerNode", "spec.trainer.resourcesPerNode"}),
        ({"args": ["x=1", "output_dir=/o"]}, "torchtune-llama3.2-1b", {"spec.trainer.args[1]"}),
    ],
)
def test_torchtune_refusals(trainer: Obj, name: str, fields: set[str]) -> None:
    assert refused({"command": TUNE} | trainer, runtime(policy={"torch": {}}, name=name)) == fields


# Pod groups


def test_a_pod_group_adds_up_all_pods() -> None:
    wants = [{"name": "node", "image": "i", "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}}}]
    jobs = (
        replicated_job("node", step="trainer", pod_spec={"containers": wants}),
        replicated_job("other", pod_spec={"containers": wants, "priorityClassName": "high"}),
    )
    rt = runtime(
        "rt", *jobs, policy={"torch": {}}, podGroupPolicy={"volcano": {"networkTopology": {"mode": "soft"}}, "coscheduling": {}}
    )
    rt["spec"]["template"]["metadata"] = {"annotations": {"scheduling.volcano.sh/queue-name": "q"}}
    built = materialize(trainjob(trainer={"numNodes": 3}), rt)
    coscheduling, volcano = (obj["spec"] for obj in built if obj["kind"] == "PodGroup")
    needed = {"minMember": 4, "minResources": {"cpu": "2", "memory": "2Gi"}}
    assert coscheduling == needed | {"scheduleTimeoutSeconds": 60}
    topology = {"mode": "soft", "highestTierAllowed": 1}
    assert volcano == needed | {"queue": "q", "priorityClassName": "high", "networkTopology": topology}
    marked = replicated_job_of(built, "other")["template"]["spec"]["template"]["metadata"]
    assert marked == {
        "labels": {"scheduling.x-k8s.io/pod-group": "demo"},
        "annotations": {"scheduling.k8s.io/group-name": "demo"},
    }


def test_an_empty_queue_is_refused() -> None:
    rt = runtime(policy={"torch": {}}, podGroupPolicy={"volcano": {}})
    rt["spec"]["template"]["metadata"] = {"annotations": {"scheduling.volcano.sh/queue-name": ""}}
    assert refused({}, rt) == {"spec.annotations[scheduling.volcano.sh/queue-name]"}


# Flux


FLUX = FluxJob("demo", "ns", nodes=3, tasks=2, gpus=1, device="eth0", queue_policy="fcfs")


@pytest.mark.parametrize("script", [init_script(FLUX), entrypoint_script(FLUX)])
def test_flux_scripts_are_shell(script: str) -> None:
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_flux_wraps_the_command_and_takes_settings_from_variables() -> None:
    trainer = {
        "numNodes": 2,
        "command": ["lmp", "-in", "a b"],
        "args": ["-v"],
        "env": [{"name": "FLUX_VIEW_IMAGE", "value": "v:2"}],
    }
    built = materialize(trainjob(trainer=trainer), runtime(policy={"flux": {}}))
    container = pod_spec_of(built)["containers"][0]
    assert container["command"] == ["/bin/bash", "/etc/flux-config/entrypoint.sh", "lmp -in a b -v"]
    assert "args" not in container
    assert [c["image"] for c in pod_spec_of(built)["initContainers"]] == ["v:2"]
    assert numbered(1) == "0"
    assert 'flags="-N 3 -n 6 -g 1  "' in entrypoint_script(FLUX)


def test_flux_refusals() -> None:
    installer = [{"name": "flux-installer", "image": "i"}]
    assert refused({"command": ["x"]}, runtime(policy={"flux": {}})) == {"spec.trainer.numNodes"}
    taken = runtime("rt", replicated_job("node", step="trainer", pod_spec={"initContainers": installer}), policy={"flux": {}})
    assert refused({"numNodes": 1}, taken) == {"spec.trainer.initContainers"}


# What no policy can mend


def test_ports_that_would_overwrite_each_other_are_refused() -> None:
    two = [{"name": "node", "image": "i", "ports": [{"containerPort": 8080}, {"containerPort": 9090}]}]
    [field] = refused(
        {}, runtime("rt", replicated_job("node", step="trainer", pod_spec={"containers": two}), policy={"torch": {}})
    )
    assert field == "spec.template.spec.replicatedJobs[0].template.spec.template.spec.containers[0].ports"
    named_ports = [{"name": "node", "image": "i", "ports": [{"containerPort": 8080, "name": "a"}, {"containerPort": 9090}]}]
    job = replicated_job("node", step="trainer", pod_spec={"containers": named_ports})
    built = materialize(trainjob(trainer={}), runtime("rt", job, policy={"torch": {}}))
    assert [port["containerPort"] for port in pod_spec_of(built)["containers"][0]["ports"]] == [8080, 29500]


def test_a_variable_whose_source_gets_lost_is_refused() -> None:
    source = {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}}
    assert refused({"env": [{"name": "A", "valueFrom": source}]}, runtime(policy={"torch": {}})) == {
        "spec.trainer.env[0].valueFrom"
    }
