"""Programs that are forked from a warm parent do what executed ones do: state of the process, results, messages, limits, signals."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.supervised_containers import refusal
from support.waiting import eventually

from trainwright.controlplane.node.container import ContainerRun, stop_runs
from trainwright.controlplane.node.environment import machine_variables
from trainwright.controlplane.node.isolation.host_folders import remove_layer
from trainwright.controlplane.node.isolation.plan import CONTAINER_UMASK, ContainerMount, container_identity, isolation_plan
from trainwright.controlplane.node.isolation.visible import python_folders
from trainwright.controlplane.node.supervisor.start_supervisor import start_directly
from trainwright.controlplane.node.warm_start.warm_parent import WarmParent
from trainwright.runtimes.launcher_text import launcher_text

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")]
CODE = "/code"
"""Where containers find the files of `Containers.code`; their working directory."""
VARIABLES = {
    **{"HOME": "/root", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
    **{"PET_NNODES": "1", "PET_NPROC_PER_NODE": "1", "PET_NODE_RANK": "0", "PET_MASTER_ADDR": "127.0.0.1"},
}
TWO_RANKS = {"PET_NPROC_PER_NODE": "2"}
RESTRICTED = {"runAsUser": 1234, "runAsGroup": 77, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
WAY = f"""
import os, sys
with open("{CODE}/ways", "a") as _file:
    _file.write("warm " if "transformers" in vars(sys)["modules"] else "cold ")
"""
"""How a script that imports nothing else notes its start."""
STATE = (Path(__file__).parent / "process_state.py").read_text("utf-8")
DDP = """
import atexit, hashlib, threading, time, torch
import torch.distributed as dist
from torch.utils.data import DataLoader

dist.init_process_group("gloo")
torch.manual_seed(7)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Dropout(0.1), torch.nn.ReLU(), torch.nn.Linear(64, 1))
ddp = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-3)
for batch in DataLoader(torch.randn(64, 64), batch_size=8, num_workers=1, shuffle=True):
    optimizer.zero_grad()
    ddp(batch).square().mean().backward()
    optimizer.step()
if dist.get_rank() == 0:
    print(hashlib.sha256(b"".join(value.numpy().tobytes() for value in model.state_dict().values())).hexdigest())
    atexit.register(print, "atexit")
    threading.Thread(target=lambda: (time.sleep(0.3), print("late"))).start()
"""
RANDOM = """
import random, numpy, torch
os.write(1, f"{random.random()} {numpy.random.rand()} {torch.rand(1).item()}\\n".encode())
"""
SIGTERM = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: (print("saved", flush=True), sys.exit(5)))
open(f"/code/up-{os.environ['RANK']}", "w")
time.sleep(60)
"""
FAILURES = {
    "chained exceptions": "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise RuntimeError('x') from error\n",
    "interrupt": "print('begun')\nos.kill(os.getpid(), 2)\n",
}
_RANDOM = re.compile(
    r"(?<=trainwright-)\w{8}|(?<=torchelastic_)\w{8}|(?<=none_)\w{8}|pid[: ]+\d+|\[rank\d\]:|\b[EWI]\d{4} [\d:.]+ \d+|time +: \S+"
    r"|(?<=by PID )\d+"
)


@dataclass
class Containers:
    """Starts containers as the node does, which see the folder `code`; `parent` is the node's warm start."""

    folder: Path
    parent: WarmParent = field(default_factory=lambda: WarmParent(start_directly, rest_seconds=0, launcher=launcher_text))
    runs: list[ContainerRun] = field(default_factory=list)

    @property
    def code(self) -> Path:
        return self.folder / "code"

    def start(self, argv: list[str], env: dict[str, str] | None = None, *, warm: bool = True) -> ContainerRun:
        """Start a container of a restricted user with additional variables."""
        run = ContainerRun("node", len(self.runs), self.folder / "runs" / str(len(self.runs)))
        run.folder.parent.mkdir(parents=True, exist_ok=True)
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = str(probe.getsockname()[1])
        variables = {**machine_variables(isolated=True), **VARIABLES, "PET_MASTER_PORT": port, **(env or {})}
        container = {"securityContext": RESTRICTED}
        identity, layer = container_identity({}, container, is_root=True), run.folder / "layer"
        mounts, visible = [ContainerMount(CODE, self.code)], python_folders()
        plan = isolation_plan(
            {}, container, mounts, hostname="localhost", identity=identity, layer=layer, visible=visible, is_root=True
        )
        starter = self.parent.starter(argv, variables, plan) if warm else start_directly
        spec = {"umask": CONTAINER_UMASK, "isolation": plan}
        run.start(argv, variables, Path(CODE), spec, start_supervisor=starter)
        self.runs.append(run)
        return run

    def write(self, text: str) -> list[str]:
        """Write a script that notes how it was started, and return the command that runs it."""
        (self.code / "ways").write_text("", "utf-8")
        (self.code / "ways").chmod(0o666)
        (self.code / "train.py").write_text(WAY + text, "utf-8")
        return ["torchrun", "train.py"]

    def ways(self) -> list[str]:
        return sorted((self.code / "ways").read_text("utf-8").split())

    def both(self, argv: list[str], env: dict[str, str] | None = None) -> dict[str, tuple[int, str]]:
        """Exit code and output, warm and cold."""
        runs = {way: self.start(argv, env, warm=way == "warm") for way in ("warm", "cold")}
        return {way: (ended(run), printed(run)) for way, run in runs.items()}


def ended(run: ContainerRun) -> int:
    """Wait for the end of a run, and return its exit code."""
    end = eventually(run.termination, seconds=60, what="the end of the run")
    assert end is not None
    eventually(lambda: not run.is_alive(), what="the end of the supervisor")
    return end.code


def printed(run: ContainerRun) -> str:
    """What a run has printed, without what differs from run to run."""
    lines = [line.split(" ", 3)[3] for line in run.log.read_text("utf-8").split("\n") if line]
    return _RANDOM.sub("*", "".join(f"{line}\n" for line in lines))


@pytest.fixture(scope="module")
def containers() -> Iterator[Containers]:
    """Containers of a node whose warm parent is ready."""
    pytest.importorskip("peft")
    if reason := refusal():
        pytest.skip(reason)
    found = Containers(Path(tempfile.mkdtemp(prefix="warm-")))
    found.code.mkdir()
    found.code.chmod(0o777)
    ended(found.start(["torchrun"], {"PATH": "/nothing"}))
    eventually(found.parent.is_ready, seconds=120, what="a parent that is ready")
    yield found
    found.parent.stop()
    stop_runs(found.runs, 0)
    remove_layer(str(found.folder))
    shutil.rmtree(found.folder, ignore_errors=True)


def test_process_has_the_state_of_an_executed_one(containers: Containers) -> None:
    source = f"def fit():\n    exec(bytes.fromhex({STATE.encode().hex()!r}).decode(), {{}})\n"  # which mentions sys.path
    argv = ["python3", "-c", launcher_text(), "--function", "fit", "--source", source, "--", "torchrun"]
    ran = containers.both(argv)
    states = {way: json.loads(text.partition("STATE ")[2].splitlines()[0]) for way, (_, text) in ran.items()}
    assert (states["warm"].pop("warm"), states["cold"].pop("warm")) == (True, False)
    assert states["warm"] == states["cold"]


def test_ddp_has_the_same_weights_and_output(containers: Containers) -> None:
    ran = containers.both(containers.write(DDP), TWO_RANKS)
    assert ran["warm"] == ran["cold"]
    assert ran["warm"][0] == 0
    assert containers.ways() == ["cold"] * 2 + ["warm"] * 2


@pytest.mark.parametrize("scene", FAILURES)
def test_failure_is_that_of_an_executed_program(containers: Containers, scene: str) -> None:
    ran = containers.both(containers.write(FAILURES[scene]))
    assert ran["warm"] == ran["cold"]
    assert ran["warm"][0] == 1
    assert containers.ways() == ["cold", "warm"]


def test_random_numbers_differ_without_a_seed(containers: Containers) -> None:
    run = containers.start(containers.write(RANDOM), TWO_RANKS)
    assert ended(run) == 0
    assert len(set(printed(run).split())) == 6
    assert containers.ways() == ["warm"] * 2


def test_sigterm_reaches_the_ranks(containers: Containers) -> None:
    run = containers.start(containers.write(SIGTERM), TWO_RANKS)
    eventually(lambda: len(list(containers.code.glob("up-*"))) == 2, what="two ranks")
    run.signal(signal.SIGTERM)
    assert ended(run) == 1
    assert printed(run).count("saved") == 2
    assert "Received 15 death signal, shutting down workers" in printed(run)
    assert containers.ways() == ["warm"] * 2


def test_stale_parent_is_replaced_and_starts_nothing(containers: Containers) -> None:
    import peft

    argv, path = containers.write(""), Path(peft.__file__)
    before = path.stat()
    try:
        path.touch()
        assert ended(containers.start(argv)) == 0
    finally:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert containers.ways() == ["cold"]
    eventually(containers.parent.is_ready, seconds=120, what="another parent")
    assert ended(containers.start(argv)) == 0
    assert containers.ways() == ["cold", "warm"]


def test_container_outlives_its_parent(containers: Containers) -> None:
    run = containers.start(containers.write("import time\nprint('begun')\ntime.sleep(60)\n"))
    eventually(lambda: "begun" in printed(run), what="the program")
    containers.parent.stop()
    assert run.is_alive()
    run.signal(signal.SIGKILL)
    assert ended(run) == 128 + signal.SIGKILL
