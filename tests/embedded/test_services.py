"""The files for systemd and launchd, installed by the commands of docs/home.md, and run as those two would run them.

Neither systemd nor launchd runs here: their files are parsed, and their commands get the signals that they would send.
"""

from __future__ import annotations

import os
import plistlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from configparser import ConfigParser
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from factories import pod
from support.client_environments import ROOT
from support.container_processes import has_ended
from support.waiting import eventually

from trainwright.api.kinds import POD
from trainwright.cluster import connect
from trainwright.embedded.__main__ import DATABASE_UNREADABLE, HOME_LOCKED
from trainwright.embedded.home import Home
from trainwright.embedded.lifecycle import START_SECONDS, TERMINATE_SECONDS, control_planes, stop

LABEL = "org.trainwright.controlplane"
_AGAINST_NAMESPACES = ("Private", "Protect", "Restrict", "SystemCall", "Dynamic", "Inaccessible", "ReadOnly", "TemporaryFile")
"""Beginnings of settings by which pods could not have namespaces of their own."""


@dataclass(frozen=True)
class Installed:
    """The files as the documentation's commands install them, for a user whose home this is."""

    user: Path

    @property
    def unit_file(self) -> Path:
        return self.user / ".config/systemd/user/trainwright.service"

    @property
    def unit(self) -> ConfigParser:
        parser = ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#",))
        parser.optionxform = str  # type: ignore[method-assign, assignment]
        parser.read_string(self.unit_file.read_text("utf-8"))
        return parser

    @property
    def agent(self) -> dict[str, Any]:
        found: dict[str, Any] = plistlib.loads((self.user / f"Library/LaunchAgents/{LABEL}.plist").read_bytes())
        return found

    @property
    def home(self) -> Home:
        return Home(self.user / ".trainwright")


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Installed]:
    user, checkout = tmp_path / "user", tmp_path / "checkout"
    (checkout / ".venv").mkdir(parents=True)
    (checkout / ".venv/bin").symlink_to(Path(sys.executable).parent)
    (checkout / "deploy").symlink_to(ROOT / "deploy")
    user.mkdir()
    commands = re.findall(r"^\$ ((?:mkdir|sed) .*)$", (ROOT / "docs/home.md").read_text("utf-8"), re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        subprocess.run(["bash", "-c", command], cwd=checkout, env={"HOME": str(user), "PATH": os.environ["PATH"]}, check=True)
    found = Installed(user)
    yield found
    stop(found.home)


def children_of(pid: int) -> set[int]:
    """The processes that a process has started, and those that they have."""
    listed = subprocess.run(["ps", "-ax", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in map(str.split, listed.splitlines())}
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def run_a_pod(home: Home) -> None:
    cluster = connect(home.kubeconfig)
    cluster.create(pod("demo", script="env; trap exit TERM; sleep 1000 & wait", restartPolicy="Always"))
    eventually(lambda: (cluster.get(POD, "demo", "default").get("status") or {}).get("phase") == "Running")
    eventually(lambda: b"HOSTNAME" in (log := b"".join(cluster.logs("demo", "default"))) and b"NOTIFY_SOCKET" not in log)


def environment(user: Path, more: Mapping[str, str]) -> dict[str, str]:
    return {"HOME": str(user), "PATH": "/usr/local/bin:/usr/bin:/bin", **more}


@pytest.mark.medium
def test_the_command_of_the_unit_is_ready_when_it_says_so_and_ends_with_its_pods(installed: Installed, tmp_path: Path) -> None:
    command = shlex.split(installed.unit["Service"]["ExecStart"])
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd, (tmp_path / "journal").open("wb") as journal:
        systemd.bind(str(tmp_path / "n"))
        systemd.settimeout(START_SECONDS)
        env = environment(installed.user, {"NOTIFY_SOCKET": str(tmp_path / "n")})
        process = subprocess.Popen(command, env=env, stderr=journal)
        ready = systemd.recv(1000).decode().splitlines()
        running = installed.home.running()
        assert running is not None
        assert ready == ["READY=1", f"STATUS=Serving {running.url}"]
        assert running.pid == process.pid, "systemd accepts messages of the main process only, and signals no other"
        run_a_pod(installed.home)
        left = children_of(process.pid)
        assert left
        process.send_signal(signal.SIGTERM)
        assert process.wait(int(installed.unit["Service"]["TimeoutStopSec"])) == 0, (tmp_path / "journal").read_text("utf-8")
        assert systemd.recv(1000) == b"STOPPING=1"
    assert all(map(has_ended, left))
    assert control_planes(installed.home) == []
    assert "event=control_plane_ready" in (tmp_path / "journal").read_text("utf-8")


@pytest.mark.medium
def test_the_command_of_the_launch_agent_ends_with_its_pods(installed: Installed) -> None:
    agent = installed.agent
    assert agent["StandardOutPath"] == agent["StandardErrorPath"] == str(installed.home.log)
    with open(agent["StandardErrorPath"], "ab") as log:
        process = subprocess.Popen(
            agent["ProgramArguments"], env=environment(installed.user, agent["EnvironmentVariables"]), stdout=log, stderr=log
        )
    eventually(installed.home.running)
    run_a_pod(installed.home)
    left = children_of(process.pid)
    assert left
    process.send_signal(signal.SIGTERM)
    assert process.wait(agent["ExitTimeOut"]) == 0
    assert all(map(has_ended, left))
    assert installed.home.log.read_text("utf-8").count("event=control_plane_ready") == 1


@pytest.mark.medium
def test_a_home_that_is_used_is_no_reason_to_try_again(installed: Installed) -> None:
    lock = installed.home.lock()
    command = shlex.split(installed.unit["Service"]["ExecStart"])
    done = subprocess.run(command, env=environment(installed.user, {}), capture_output=True, text=True, check=False, timeout=60)
    os.close(lock)
    assert str(done.returncode) in installed.unit["Service"]["RestartPreventExitStatus"].split()
    assert "another control plane runs" in done.stderr


def test_the_unit_has_the_times_and_codes_of_the_control_plane(installed: Installed) -> None:
    unit = installed.unit
    assert unit.sections() == ["Unit", "Service", "Install"]
    service = unit["Service"]
    assert (service["Type"], service["KillMode"], service["Restart"]) == ("notify", "mixed", "on-failure")
    assert service["Delegate"] == "yes"
    assert {int(code) for code in service["RestartPreventExitStatus"].split()} == {HOME_LOCKED, DATABASE_UNREADABLE}
    assert int(service["TimeoutStartSec"]) > START_SECONDS
    assert int(service["TimeoutStopSec"]) > TERMINATE_SECONDS
    bursts, interval = int(unit["Unit"]["StartLimitBurst"]), int(unit["Unit"]["StartLimitIntervalSec"])
    assert bursts * (int(service["RestartSec"]) + 5) < interval, "a command that cannot start is not tried for ever"
    assert not [name for name in service if name.startswith(_AGAINST_NAMESPACES)]


def test_both_services_agree(installed: Installed) -> None:
    agent, service = installed.agent, installed.unit["Service"]
    program, *options = shlex.split(service["ExecStart"])
    assert [program, *options, "--home", str(installed.home.path)] == agent["ProgramArguments"]
    assert agent["ExitTimeOut"] == int(service["TimeoutStopSec"])
    assert agent["KeepAlive"] == {"SuccessfulExit": False}
    assert agent["Label"] == LABEL


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_knows_every_setting(installed: Installed, tmp_path: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "--user", "--man=no", "verify", str(installed.unit_file)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    about_it = [line for line in done.stderr.splitlines() if "trainwright" in line]
    assert (done.returncode, about_it) == (0, []), done.stderr
