"""A command whose launcher would make several worlds is refused with one that works; one without a launcher is warned of."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from factories import catalogue_runtime, program_request

from trainwright.jobs.submit.resolve import IncompatibleRuntime, resolve

TORCH, MPI, JAX = "torch-distributed", "deepspeed-distributed", "jax-distributed"


@pytest.fixture
def code(tmp_path: Path) -> str:
    (tmp_path / "main.py").write_text("print()", "utf-8")
    return str(tmp_path)


def found(runtime: str, command: str | list[str], **fields: Any) -> tuple[str, str]:
    """Return the problem of a request on two nodes, and its warning about launchers."""
    given = {"num_nodes": 2, "num_proc_per_node": 1, **fields}
    words = shlex.split(command) if isinstance(command, str) else command
    request = program_request(runtime=runtime, command=words, **given)
    try:
        resolved = resolve(request, catalogue_runtime(runtime))
    except IncompatibleRuntime as error:
        return error.problems[0].message, ""
    warnings = [warning for warning in resolved.warnings if "launcher" in warning or "one world" in warning]
    assert len(warnings) <= 1
    return "", "".join(warnings)


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


@pytest.mark.parametrize(
    "command",
    [
        "torchrun --nproc-per-node 2 main.py",
        "accelerate launch main.py",
        "deepspeed main.py",
        "mpirun -n 2 torchrun --nproc_per_node=2 main.py",
        "mpirun -np 2 -x A=1 --mca btl tcp accelerate launch --num_processes 2 main.py",
        "mpirun --allow-run-as-root bash -c 'cd x && torchrun --nnodes=1 main.py'",
        "horovodrun -np 2 torchrun main.py",
    ],
)
def test_launcher_in_the_pod_of_mpirun_alone_is_refused_without_code(command: str) -> None:
    problem, _ = found(MPI, command)
    assert "the launcher's pod only; use command 'mpirun --hostfile /etc/mpi/hostfile python main.py'" in problem


@pytest.mark.parametrize(
    ("runtime", "command", "fields"),
    [
        (TORCH, "torchrun main.py --standalone", {}),
        (TORCH, "/usr/local/bin/torchrun --nnodes 2 main.py", {}),
        (TORCH, "env X=1 python -m torch.distributed.run main.py", {}),
        (TORCH, "accelerate launch --num_machines 2 main.py", {"resources_per_node": {"nvidia.com/gpu": 1}}),
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
    "command",
    [
        "timeout 3600 torchrun main.py",
        "timeout -k 10 --signal=TERM 1h torchrun main.py",
        "nice -n 10 torchrun main.py",
        "env -u FOO A=1 torchrun main.py",
        "env -S 'torchrun main.py'",
        "stdbuf -oL torchrun main.py",
        "numactl -N 0 --membind=0 torchrun main.py",
        "tini -- torchrun main.py",
        "sudo -E -u me torchrun main.py",
        "uv run --with torch torchrun main.py",
        "conda run --no-capture-output -n x torchrun main.py",
        "nohup setsid torchrun main.py",
        "python -um torch.distributed.run main.py",
        "python -mtorch.distributed.run main.py",
        "python --check-hash-based-pycs always -m torch.distributed.run main.py",
        "python /usr/local/bin/torchrun main.py",
        "python -m accelerate launch main.py",
        "python -m accelerate.commands.accelerate_cli launch main.py",
        "ds main.py",
        "mpiexec.hydra -n 2 python main.py",
        "mpirun.mpich -n 2 python main.py",
        "busybox sh -c 'torchrun main.py'",
        "bash -lc -- 'torchrun main.py'",
        "bash -euo pipefail -c 'torchrun main.py'",
        "bash -c -e 'torchrun main.py'",
        ["bash", "-c", "bash -c 'torchrun main.py'"],
    ],
)
def test_launcher_behind_another_program_is_read(code: str, command: str | list[str]) -> None:
    problem, _ = found(JAX, command, code=code)
    assert "does not make one world" in problem
    assert "main.py'" in problem.partition("use command")[2]


@pytest.mark.parametrize(
    "script",
    [
        "# it's the start\ntorchrun main.py",
        "set -e  # strict\ntorchrun main.py",
        "echo '# no comment' a#b; torchrun main.py",
        "cd x && { torchrun main.py; }",
        "if true; then torchrun main.py; fi",
        "for i in 1; do torchrun main.py; done",
        "! torchrun main.py",
        "eval torchrun main.py",
        "eval 'torchrun main.py'",
        "command torchrun main.py",
        "2>&1 torchrun main.py",
        "> log torchrun main.py 2>/dev/null",
        "pip install deepspeed && torchrun main.py 2>&1 | tee log",
        "cat > x <<'E' && torchrun main.py\n# it's\nE",
        "cat > x <<-E\nit's\n\tE\ntorchrun main.py",
        "torchrun \\\n  main.py",
    ],
)
def test_launcher_in_a_script_is_read(code: str, script: str) -> None:
    problem, _ = found(JAX, ["bash", "-c", script], code=code)
    assert "'torchrun main.py" in problem
    assert "use command 'torchrun main.py" in problem


@pytest.mark.parametrize(
    "command",
    [
        "torchrun --nn=1 main.py",
        "torchrun --nnodes=01 main.py",
        "torchrun --nnodes 1:1 main.py",
        "torchrun --stand main.py",
        "torchrun -m --standalone main.py",
        "torchrun --nnodes=2 --rdzv-endpoint=localhost:0 main.py",
        "torchrun --nnodes=2 --rdzv-endpoint [::1]:29400 main.py",
        "torchrun --master-addr 127.0.0.1 main.py",
        "bash -c 'PET_NNODES=1 torchrun main.py'",
        "bash -c 'export PET_NNODES=1; torchrun main.py'",
        "bash -c 'unset PET_NNODES; torchrun main.py'",
        "env PET_STANDALONE=1 torchrun main.py",
        "env -i torchrun main.py",
        "env -u PET_NNODES torchrun main.py",
    ],
)
def test_options_and_variables_that_leave_torchrun_alone_are_refused(code: str, command: str) -> None:
    assert "does not make one world" in found(TORCH, command, code=code)[0]
    assert found(TORCH, command, code=code, num_nodes=1) == ("", "")


@pytest.mark.parametrize(
    ("runtime", "command"),
    [
        (TORCH, "torchrun --nnodes 1:2 main.py"),
        (TORCH, "accelerate launch --num_machines 2 --main_process_ip $PET_MASTER_ADDR main.py"),
        (TORCH, "bash -c 'torchrun --standalone prepare.py && torchrun main.py'"),
        (TORCH, "bash -c 'if [ $N = 1 ]; then torchrun --standalone main.py; else torchrun main.py; fi'"),
        (TORCH, "./start.sh torchrun --standalone main.py"),
        (TORCH, "./start.sh 'PET_NNODES=1 torchrun main.py'"),
        (JAX, "./start.sh torchrun main.py"),
        (JAX, "firejail --quiet torchrun main.py"),
        (JAX, "bash -c '$(which torchrun) main.py'"),
        (JAX, "bash -c 'LAUNCH=torchrun; $LAUNCH main.py'"),
        (JAX, "bash -c '${LAUNCH:-torchrun} main.py'"),
        (JAX, ["bash", "-c", "bash <<E\ntorchrun main.py\nE"]),
        (JAX, ["bash", "-c", '"$0" "$@"', "torchrun", "main.py"]),
        (JAX, ["python", "-c", "import os; os.system('torchrun main.py')"]),
        (JAX, ["python", "-c", "import subprocess; subprocess.run(['torchrun', 'main.py'])"]),
        (MPI, "bash -c '$PY -mtorch.distributed.run main.py'"),
    ],
)
def test_launcher_that_is_not_read_with_certainty_is_warned_of(code: str, runtime: str, command: str | list[str]) -> None:
    problem, warning = found(runtime, command, code=code)
    assert not problem
    assert "may not make one world" in warning


@pytest.mark.parametrize(
    ("runtime", "command"),
    [
        (JAX, "bash -c 'torchrun \\\n --nnodes=2 \\\n --rdzv-endpoint=h:1 main.py'"),
        (JAX, "env PET_NNODES=2 torchrun main.py"),
        (JAX, "torchrun --help"),
        (JAX, "accelerate env"),
        (JAX, "bash -c 'command -v torchrun; torchrun --nnodes=2 main.py'"),
        (JAX, "bash -c 'pip install deepspeed  # for torchrun\n./start'"),
        (JAX, "conda run -n deepspeed python main.py"),
        (JAX, "bash -c 'conda activate deepspeed; python main.py'"),
        (MPI, "python main.py --strategy deepspeed --epochs 3"),
        (TORCH, "./start.sh torchrun main.py"),
        (TORCH, "torchrun train --standalone"),
        (TORCH, "torchrun --no-python /app/train --standalone"),
        (TORCH, "torchrun --max-restarts 0 -m pkg.train --standalone"),
        (TORCH, "torchrun --nproc-per-node=2 -- train --nnodes=1"),
        (TORCH, "env PET_NNODES=1 torchrun --nnodes=2 main.py"),
        (TORCH, "bash -c 'python -m pip install x && ./start'"),
    ],
)
def test_command_that_only_looks_like_several_worlds_is_accepted(code: str, runtime: str, command: str) -> None:
    assert found(runtime, command, code=code) == ("", "")
