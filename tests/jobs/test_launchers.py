"""A command whose launcher would make several worlds is refused with one that works; one without a launcher is warned of."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from factories import catalogue_runtime, train_request

from trainwright.api.kinds import TRAINJOB
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, submit_or_adopt
from trainwright.jobs.submit.compatibility import IncompatibleRuntime
from trainwright.jobs.submit.resolve import resolve

TORCH, MPI, JAX = "torch-distributed", "deepspeed-distributed", "jax-distributed"


@pytest.fixture
def code(tmp_path: Path) -> str:
    (tmp_path / "main.py").write_text("print()", "utf-8")
    return str(tmp_path)


def found(runtime: str, command: str, **fields: Any) -> tuple[str, str]:
    """Return the problem of a request on two nodes, and its warning about launchers."""
    given = {"num_nodes": 2, "num_proc_per_node": 1, **fields}
    request = train_request(runtime=runtime, command=shlex.split(command), **given)
    try:
        resolved = resolve(request, catalogue_runtime(runtime))
    except IncompatibleRuntime as error:
        return error.problems[0].message, ""
    return "", next((warning for warning in resolved.warnings if "launcher" in warning or "one world" in warning), "")


@pytest.mark.parametrize(
    ("runtime", "command", "working"),
    [
        (MPI, "mpirun -np 2 python main.py --lr 1", "command 'python main.py --lr 1'; num_nodes and num_proc_per_node"),
        (MPI, "/opt/openmpi/bin/mpiexec -n 2 python main.py", "command 'python main.py'"),
        (MPI, "horovodrun -np 2 python main.py", "command 'python main.py'"),
        (MPI, "deepspeed --num_gpus 2 main.py", "command 'main.py'"),
        (MPI, "accelerate launch --num_processes 2 main.py", "command 'main.py'"),
        (MPI, "env X=1 torchrun --nproc-per-node 2 main.py", "command 'main.py'"),
        (MPI, "python -u -m torch.distributed.run -m pkg.train", "command 'python -m pkg.train'"),
        (MPI, "bash -c 'cd x && torchrun main.py'", "command 'main.py'"),
        (TORCH, "mpirun -np 2 python main.py", "command 'torchrun main.py', or, for a program of MPI, command 'python main.py'"),
        (TORCH, "deepspeed main.py", "command 'torchrun main.py'"),
        (TORCH, "accelerate launch main.py", "command 'torchrun main.py'"),
        (TORCH, "accelerate launch --num_machines=1 main.py", "command 'torchrun main.py'"),
        (TORCH, "torchrun --standalone --nproc-per-node 2 main.py", "command 'torchrun main.py'"),
        (TORCH, "torchrun --nnodes 1 main.py", "command 'torchrun main.py'"),
        (TORCH, "python -m accelerate.commands.launch main.py", "command 'torchrun main.py'"),
        (JAX, "torchrun main.py", "command 'torchrun main.py' in a runtime with the torch policy"),
        (JAX, "mpirun -np 2 python main.py", "in a runtime with the MPI policy, such as deepspeed-distributed"),
    ],
)
def test_launcher_of_several_worlds_is_refused_with_a_working_command(
    code: str, runtime: str, command: str, working: str
) -> None:
    problem, _ = found(runtime, command, code=code)
    assert "does not make one world" in problem
    assert working in problem


@pytest.mark.parametrize("command", ["torchrun --nproc-per-node 2 main.py", "accelerate launch main.py", "deepspeed main.py"])
def test_launcher_in_the_pod_of_mpirun_alone_is_refused_without_code(command: str) -> None:
    problem, _ = found(MPI, command)
    assert "the launcher's pod only; use command 'mpirun --hostfile /etc/mpi/hostfile main.py'" in problem


@pytest.mark.parametrize(
    ("runtime", "command", "fields"),
    [
        (TORCH, "torchrun main.py --standalone", {}),
        (TORCH, "/usr/local/bin/torchrun --nnodes 2 main.py", {}),
        (TORCH, "env X=1 python -m torch.distributed.run main.py", {}),
        (TORCH, "accelerate launch --num_machines 2 main.py", {}),
        (TORCH, "mpirun -np 2 python main.py", {"num_nodes": 1}),
        (TORCH, "bash -c 'pip list; exec torchrun main.py'", {}),
        (TORCH, "bash -c 'cat <<E\nit is\nE\n./start'", {}),
        (TORCH, "main.py", {}),
        (TORCH, "python main.py", {"num_nodes": 1}),
        (JAX, "python main.py", {}),
        (JAX, "torchrun --nnodes=2 --master-addr x main.py", {}),
        (MPI, "python main.py", {}),
        (MPI, "main.py", {}),
        (MPI, "mpirun --hostfile /etc/mpi/hostfile python train.py", {"code": ""}),
        (MPI, "deepspeed --hostfile /etc/mpi/hostfile --launcher openmpi train.py", {"code": ""}),
        (MPI, "./start.sh", {"code": ""}),
    ],
)
def test_command_that_makes_one_world_is_neither_refused_nor_warned_of(
    code: str, runtime: str, command: str, fields: dict[str, Any]
) -> None:
    assert found(runtime, command, **{"code": code, **fields}) == ("", "")


@pytest.mark.parametrize(
    ("runtime", "command", "fields", "words"),
    [
        (TORCH, "python main.py", {}, "no launcher for 2 nodes: each node trains alone with one process"),
        (TORCH, "python main.py", {"num_nodes": 1, "num_proc_per_node": 4}, "no launcher for 4 processes"),
        (TORCH, "bash -c 'pip list && python3 main.py'", {}, "use command 'torchrun main.py'"),
        (MPI, "python3 train.py", {"code": ""}, "it runs in the launcher's pod only"),
    ],
)
def test_program_without_a_launcher_is_warned_of(
    code: str, runtime: str, command: str, fields: dict[str, Any], words: str
) -> None:
    problem, warning = found(runtime, command, **{"code": code, **fields})
    assert not problem
    assert words in warning


def test_launcher_in_a_manifest_is_warned_of() -> None:
    trainer = {"numNodes": 2, "command": ["mpirun"], "args": ["-np", "2", "python", "main.py"]}
    manifest = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "own"},
        "spec": {"runtimeRef": {"name": TORCH}, "trainer": trainer},
    }
    resolved = resolve(train_request(manifest=manifest, command=[], runtime=""), catalogue_runtime(TORCH))
    assert any(
        "spec.trainer.command: 'mpirun -np 2 python main.py' does not make one world" in warning for warning in resolved.warnings
    )


def test_nothing_is_created_for_a_launcher_of_several_worlds(cluster: EmbeddedCluster, code: str) -> None:
    request = train_request(runtime=MPI, command=["mpirun", "-np", "2", "python", "main.py"], code=code, num_nodes=2)
    with pytest.raises(IncompatibleRuntime, match="does not make one world"):
        submit_or_adopt(cluster, request, Identity("o", "r", "s"), "default")
    assert not cluster.list(TRAINJOB).items
