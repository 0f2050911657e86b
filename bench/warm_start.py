"""Benchmarks warm start: from the request for a training pod to its first optimizer step, warm against cold, on the same cluster.

The program is a function with torch's DDP, as the launcher and torchrun start it: one rank, two ranks in one pod, two pods with one
rank each. Prints the seconds of both ways, their ratio, and those from the start of the container. Losses must be equal, bit for bit.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainwright.api.kinds import POD
from trainwright.api.objects import Obj
from trainwright.cluster import connect
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.controlplane.node.warm_start.warm_parent import SETTING
from trainwright.embedded.home import Home
from trainwright.jobs.manifest.training_program import escape_expansion
from trainwright.runtimes.launcher_text import launcher_text

GOAL_SECONDS = 0.3
LAYOUTS = {"1 x 1": (1, 1), "1 x 2": (1, 2), "2 x 1": (2, 1)}
"""Pods, and ranks of each."""
ROUNDS, COLD_ROUNDS = 5, 2
PREPARATIONS, PAUSE_SECONDS = 12, 3.0
TIMEOUT_SECONDS = 120.0
FUNCTION = """
def fit(steps):
    import hashlib, time
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Dropout(0.1), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-3)
    torch.manual_seed(100 + dist.get_rank())
    for step in range(steps):
        x = torch.randn(32, 64)
        optimizer.zero_grad()
        ddp(x).square().mean().backward()
        optimizer.step()
        if step == 0 and dist.get_rank() == 0:
            print("STEP", time.time(), flush=True)
    digest = hashlib.sha256(b"".join(value.numpy().tobytes() for value in model.state_dict().values())).hexdigest()
    if dist.get_rank() == 0:
        print("DIGEST", digest, flush=True)
"""


@contextmanager
def control_plane(folder: Path, setting: str) -> Iterator[tuple[KubernetesCluster, Home]]:
    """A client of a fresh cluster with this setting of warm start, and its home."""
    home = Home(folder / setting)
    command = [sys.executable, "-m", "trainwright.cli"]
    subprocess.run(
        [*command, "up", "--home", str(home.path)], env={**os.environ, SETTING: setting}, check=True, capture_output=True
    )
    try:
        yield connect(home.kubeconfig), home
    finally:
        subprocess.run([*command, "down", "--home", str(home.path)], check=True, capture_output=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


def pods(name: str, nodes: int, ranks: int) -> list[Obj]:
    """The pods of a training."""
    program = ["python3", "-c", escape_expansion(launcher_text()), "--function", "fit", "--source", FUNCTION]
    program += ["--arguments", '{"steps": 20}', "--", "torchrun"]
    port = str(free_port())
    found = []
    for rank in range(nodes):
        variables = {"NNODES": str(nodes), "NPROC_PER_NODE": str(ranks), "NODE_RANK": str(rank), "MASTER_ADDR": "127.0.0.1"}
        env = [{"name": f"PET_{key}", "value": value} for key, value in {**variables, "MASTER_PORT": port}.items()]
        cpu = {"requests": {"cpu": "1"}}
        container = {"name": "node", "image": "bench.local/torch:1", "command": program, "env": env, "resources": cpu}
        spec = {"restartPolicy": "Never", "containers": [container]}
        found.append(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{name}-{rank}", "namespace": "default"}, "spec": spec}
        )
    return found


def first_step(cluster: KubernetesCluster, home: Home, name: str, nodes: int, ranks: int) -> tuple[float, float, str]:
    """Seconds from the requests, and from the start of the last container, to the first step; and the digest of the weights."""
    wanted = pods(name, nodes, ranks)
    began = time.time()
    uids = [cluster.create(each)["metadata"]["uid"] for each in wanted]
    for each in wanted:
        wait_for_end(cluster, each["metadata"]["name"])
    printed = b"".join(cluster.logs(f"{name}-0", "default")).decode().splitlines()
    lines = dict(line.split() for line in printed if line.startswith(("STEP ", "DIGEST ")))
    started = max(started_at(home, uid) for uid in uids)
    step = float(lines["STEP"])
    return step - began, step - started, lines["DIGEST"]


def started_at(home: Home, uid: str) -> float:
    """When the folder of the container's run was made: before its supervisor was started."""
    return (home.path / "node/pods" / uid / "containers/node/0/run.json").stat().st_mtime


def wait_for_end(cluster: KubernetesCluster, name: str) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while (phase := cluster.get(POD, name, "default")["status"].get("phase")) != "Succeeded":
        if phase == "Failed" or time.monotonic() > deadline:
            sys.exit(f"{name} has not succeeded: {b''.join(cluster.logs(name, 'default')).decode()}")
        time.sleep(0.02)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with control_plane(folder, "on") as warm, control_plane(folder, "off") as cold:
            prepare(*warm)
            for layout in LAYOUTS:
                print_layout(warm, cold, layout, rounds)


def prepare(cluster: KubernetesCluster, home: Home) -> None:
    """Start trainings until one starts warm: the first has a parent prepared, which rests and then imports for some seconds."""
    cold = first_step(cluster, home, "prepare", 1, 1)[0]
    for number in range(PREPARATIONS):
        time.sleep(PAUSE_SECONDS)
        if first_step(cluster, home, f"prepare-{number}", 1, 1)[0] < cold / 2:
            return
    sys.exit(f"no training has started warm; the first took {cold} s")


def print_layout(warm: tuple[KubernetesCluster, Home], cold: tuple[KubernetesCluster, Home], layout: str, rounds: int) -> None:
    nodes, ranks = LAYOUTS[layout]
    times: dict[str, list[float]] = {"warm": [], "cold": [], "started": []}
    digests = set()
    for number in range(rounds):
        name = f"{layout.replace(' ', '')}-{number}"
        asked, started, digest = first_step(*warm, name, nodes, ranks)
        times["warm"].append(asked)
        times["started"].append(started)
        digests.add(digest)
        if number < COLD_ROUNDS:
            asked, _, digest = first_step(*cold, name, nodes, ranks)
            times["cold"].append(asked)
            digests.add(digest)
    found = {key: statistics.median(values) for key, values in times.items()}
    weights = "equal" if len(digests) == 1 else "DIFFER"
    print(
        f"{layout}   warm {found['warm']:.3f} s   cold {found['cold']:.3f} s   ratio {found['cold'] / found['warm']:.1f}   "
        f"from the container's start {found['started']:.3f} s (goal: {GOAL_SECONDS})   weights {weights}"
    )


if __name__ == "__main__":
    main()
