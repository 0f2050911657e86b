"""Starts isolated containers as the node does, warm and cold, for tests that compare what they do."""

from __future__ import annotations

import re
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.supervised_containers import refusal
from support.waiting import eventually
from trainwright.api.objects import Obj
from trainwright.controlplane.node.container import ContainerRun
from trainwright.controlplane.node.environment import machine_variables
from trainwright.controlplane.node.isolation.layers import remove_layer
from trainwright.controlplane.node.isolation.mounts import ContainerMount
from trainwright.controlplane.node.isolation.plan import CONTAINER_UMASK, container_identity, isolation_plan
from trainwright.controlplane.node.isolation.visible import python_folders
from trainwright.controlplane.node.shutdown import stop_runs
from trainwright.controlplane.node.supervisor.start_supervisor import start_directly
from trainwright.controlplane.node.warm_start.warm_parents import WarmParents

CODE = "/code"
"""Where containers find the files of `Containers.code`; their working directory."""
READY_SECONDS = 120.0
_RANDOM = re.compile(
    r"(?<=trainwright-)\w{8}|(?<=torchelastic_)\w{8}|(?<=none_)\w{8}|pid[: ]+\d+|\[rank\d\]:|\b[EWI]\d{4} [\d:.]+ \d+|time +: \S+"
    r"|process \d+|Process \d+|(?<=by PID )\d+"
)


@dataclass
class Containers:
    """Starts containers that see the folder `code`; `parents` is the node's warm start."""

    folder: Path
    parents: WarmParents = field(default_factory=lambda: WarmParents(start_directly))
    runs: list[ContainerRun] = field(default_factory=list)

    @property
    def code(self) -> Path:
        return self.folder / "code"

    def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        warm: bool = True,
        container: Obj | None = None,
        mounts: Sequence[ContainerMount] = (),
        **more: object,
    ) -> ContainerRun:
        """Start a container with these additional variables; `container` is its spec, `more` are further keys of the run's spec."""
        run = ContainerRun("node", len(self.runs), self.folder / "runs" / str(len(self.runs)))
        run.folder.parent.mkdir(parents=True, exist_ok=True)
        variables = {**variables_of_pods(), **(env or {})}
        plan = isolation_plan(
            {},
            container or {},
            [ContainerMount(CODE, self.code), *mounts],
            hostname="localhost",
            identity=container_identity({}, container or {}, is_root=True),
            layer=run.folder / "layer",
            visible=python_folders(),
            is_root=True,
        )
        starter = self.parents.starter(argv, variables, plan) if warm else start_directly
        run.start(
            list(argv), variables, Path(CODE), {"umask": CONTAINER_UMASK, "isolation": plan, **more}, start_supervisor=starter
        )
        self.runs.append(run)
        return run

    def wait_until_ready(self, env: Mapping[str, str] | None = None) -> None:
        """Have a parent started for containers with these variables, and wait for it."""
        ended(self.start(["torchrun", "--help"], env))
        self.wait_for_parent(env)

    def wait_for_parent(self, env: Mapping[str, str] | None = None) -> None:
        """Wait for the parent that the last container has not found."""
        variables = {**variables_of_pods(), **(env or {})}
        eventually(lambda: self.parents.is_ready(variables), seconds=READY_SECONDS, what="a parent that is ready")


def variables_of_pods() -> dict[str, str]:
    """The variables of a pod that runs one rank alone."""
    pet = {"NNODES": "1", "NPROC_PER_NODE": "1", "NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    own = {
        "HOME": "/root",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        **{f"PET_{name}": value for name, value in pet.items()},
    }
    return {**machine_variables(isolated=True), **own}


def free_port() -> int:
    """A port that no other program has now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


def ended(run: ContainerRun, seconds: float = 60.0) -> int:
    """Wait for the end of a run, and return its exit code."""
    end = eventually(run.termination, seconds=seconds, what="the end of the run")
    assert end is not None
    eventually(lambda: not run.is_alive(), what="the end of the supervisor")
    return end.code


def printed(run: ContainerRun) -> str:
    """What a run has printed, without what differs from run to run."""
    lines = [line.split(" ", 3)[3] for line in run.log.read_text("utf-8").split("\n") if line]
    return _RANDOM.sub("*", "".join(f"{line}\n" for line in lines))


@contextmanager
def warm_containers() -> Iterator[Containers]:
    """Give a folder for containers; ends them and removes it. Skips where the kernel refuses isolation, and without torch."""
    pytest.importorskip("torch")
    if reason := refusal():
        pytest.skip(reason)
    found = Containers(Path(tempfile.mkdtemp(prefix="warm-")))
    found.code.mkdir()
    try:
        yield found
    finally:
        found.parents.stop()
        stop_runs(found.runs, 0)
        remove_layer(str(found.folder))
        shutil.rmtree(found.folder, ignore_errors=True)
