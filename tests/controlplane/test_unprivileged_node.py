"""The usual user is not root: what a pod cannot do holds for a cluster of a user without any rights, too."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from factories import pod
from support.session_key import SEARCH, make_session_key
from support.supervised_containers import OTHER_USER, interpreter, refusal
from support.waiting import eventually

import trainwright
from trainwright.api.kinds import EVENT, POD
from trainwright.cluster.connect import connect
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.node.isolation.credentials import landlock_version

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

_PACKAGES = [str(Path(trainwright.__file__).parents[1]), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
"""The other user's Python may be another installation: only packages are shared."""
TRY = """
import os, socket, subprocess, sys
def tell(name, said): print(name, said, flush=True)
def run(*argv): return subprocess.run(argv, capture_output=True, text=True, errors="replace")
tell("user-namespace", run("unshare", "-Ur", "true").returncode)
tell("cgroup-namespace", run("unshare", "-UrmC", "true").returncode)
tell("limits", *[open("/proc/sys/user/max_user_namespaces").read().strip()])
try:
    client = socket.socket(socket.AF_UNIX); client.connect("\\0" + sys.argv[1]); tell("abstract-socket", "connected")
except OSError as error:
    tell("abstract-socket", error.strerror)
tell("home", os.path.exists(sys.argv[2]))
tell("token", run("stat", "-f", "-c", "%T", "/var/run/secrets/kubernetes.io/serviceaccount").stdout.strip())
tell("processes", run("bash", "-c", "ulimit -u").stdout.strip())
groups = [line.split() for line in open("/proc/self/mountinfo") if " - cgroup" in line]
tell("writable-groups", sum("ro" not in fields[5].split(",") for fields in groups))
tell("host-process", os.path.exists("/proc/" + sys.argv[3]))
"""


@pytest.fixture
def cluster_and_home() -> Iterator[tuple[Cluster, Path]]:
    """A cluster of a user without rights, whose login has a key, and the user's home; of this user if it is not root."""
    user = OTHER_USER if os.geteuid() == 0 else None
    if reason := refusal():
        pytest.skip(reason)
    python, identity = interpreter(user), {} if user is None else {"user": user, "group": user, "extra_groups": []}
    home = Path(tempfile.mkdtemp(prefix="unprivileged-"))
    environment = {
        "HOME": str(home),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": os.pathsep.join(_PACKAGES),
    }

    def command_line(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [python, "-m", "trainwright.cli", *arguments]
        given: Any = {"env": environment, "cwd": "/", "capture_output": True, "text": True, **identity}
        return subprocess.run(command, check=False, timeout=60, **given)

    if user is not None:
        os.chown(home, user, user)
    make_session_key()
    try:
        if command_line("--version").returncode:
            pytest.skip("another user cannot run this checkout and its packages")
        started = command_line("up", "--port", "0", "--home", str(home / "tw"))
        assert started.returncode == 0, started.stderr
        yield connect(home / "tw/kubeconfig"), home
    finally:
        command_line("down", "--home", str(home / "tw"))
        shutil.rmtree(home, ignore_errors=True)


def test_pods_of_an_unprivileged_user_cannot_do_more_than_those_of_root(cluster_and_home: tuple[Cluster, Path]) -> None:
    cluster, home = cluster_and_home
    memory: dict[str, Any] = {"resources": {"limits": {"memory": "60Mi"}}}
    eat = "python3 -c \"x = [b'x' * 1000000 for _ in range(200)]; import time; time.sleep(2); print('survived')\""
    link = "ln -s .. /v/..data; ln -s ../.. /v/up"
    empty = {"volumes": [{"name": "v", "emptyDir": {}}]}
    swap = {"initContainers": [{"name": "i", "image": "x", "command": ["bash", "-c", link], "volumeMounts": [_mount("/v")]}]}
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0unprivileged-{os.getpid()}")
        server.listen()
        arguments = [server.getsockname().decode()[1:], str(home / "tw/kubeconfig"), str(os.getpid())]
        for made in (
            pod("tries", container={"command": ["python3", "-I", "-c", TRY, *arguments]}),
            pod("keys", container={"command": ["python3", "-I", "-c", SEARCH]}),
            pod("eats", script=eat, container=memory),
            pod("over-proc", script="id", container={"volumeMounts": [_mount("/proc")]}, **empty),
            pod(
                "data-link", script="ls /k", container={"volumeMounts": [{**_mount("/k"), "subPath": "..data"}]}, **swap, **empty
            ),
            pod("up-link", script="ls /k", container={"volumeMounts": [{**_mount("/k"), "subPath": "up/x"}]}, **swap, **empty),
        ):
            cluster.create(made)
        told = dict(line.split(" ", 1) for line in _output(cluster, "tries").splitlines())
    assert told["user-namespace"] != "0"
    assert told["cgroup-namespace"] != "0"
    assert {name: told[name] for name in ("limits", "home", "writable-groups", "host-process")} == {
        "limits": "0",
        "home": "False",
        "writable-groups": "0",
        "host-process": "False",
    }
    assert told["abstract-socket"] == ("Operation not permitted" if landlock_version() >= 6 else "connected")
    assert told["token"] == "tmpfs"
    assert int(told["processes"]) <= 4096
    assert _output(cluster, "keys").strip().isdigit()
    assert _terminated(cluster, "eats")["reason"] == "OOMKilled"
    for name in ("over-proc", "data-link", "up-link"):
        message = eventually(lambda name=name: _warnings(cluster, name), what=f"a warning of {name}")[0]  # type: ignore[misc]  # its default binds the name
        assert "Error: " in message


def _mount(path: str) -> dict[str, str]:
    return {"name": "v", "mountPath": path}


def _status(cluster: Cluster, name: str) -> dict[str, Any]:
    status: dict[str, Any] = cluster.get(POD, name, "default").get("status") or {}
    return status


def _output(cluster: Cluster, name: str) -> str:
    eventually(lambda: _status(cluster, name).get("phase") in ("Succeeded", "Failed"), what=f"the end of {name}")
    return b"".join(cluster.logs(name, "default")).decode()


def _terminated(cluster: Cluster, name: str) -> dict[str, Any]:
    _output(cluster, name)
    terminated: dict[str, Any] = _status(cluster, name)["containerStatuses"][0]["state"]["terminated"]
    return terminated


def _warnings(cluster: Cluster, name: str) -> list[str]:
    events = cluster.list(EVENT, "default").items
    return [event["message"] for event in events if event["type"] == "Warning" and event["involvedObject"]["name"] == name]
