"""Which containers get programs in place of sshd and ssh, what these programs are asked for, and which variables mpirun finds."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import Any

import pytest
from support.ports import free_port
from support.waiting import eventually

from trainwright.controlplane.node.images import ImageEnvironment
from trainwright.controlplane.node.mpi import remote_shell
from trainwright.controlplane.node.mpi.stand_in import SSHD, is_served, mpi_variables, replace_program

PROGRAMS = {"/usr/sbin/sshd": (SSHD,), "/opt/tool": ("python", "-m", "tool")}
IMAGE = ImageEnvironment("x", programs=PROGRAMS, env={"OMPI_MCA_pml": "ucx"})
KEY_MOUNT = {"name": "mpi-ssh-auth", "mountPath": "/home/mpiuser/.ssh"}


def test_containers_of_mpi_jobs_whose_sshd_is_replaced_are_served() -> None:
    assert replace_program(["/opt/tool", "-x"], PROGRAMS) == ["python", "-m", "tool", "-x"]
    assert replace_program(["/opt/tool2"], PROGRAMS) == ["/opt/tool2"]
    assert is_served({"volumeMounts": [KEY_MOUNT]}, IMAGE)
    assert not is_served({"volumeMounts": [KEY_MOUNT]}, ImageEnvironment("x"))
    assert not is_served({}, IMAGE)


def test_a_launcher_finds_hostfile_and_remote_shell_in_the_words_of_open_mpi_5() -> None:
    worker = mpi_variables(IMAGE, {}, "127.1.2.3")
    assert "OMPI_MCA_pml" not in worker, "the image's variable counts"
    assert not [name for name in worker if "agent" in name or "hostfile" in name]
    launcher = mpi_variables(IMAGE, {"OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile"}, "127.1.2.3")
    assert launcher["PRTE_MCA_prte_default_hostfile"] == "/etc/mpi/hostfile"
    assert launcher["PRTE_MCA_plm_ssh_agent"] == launcher["OMPI_MCA_plm_rsh_agent"]
    assert launcher["PRTE_MCA_plm_ssh_agent"].endswith("remote_shell.py")


@pytest.mark.parametrize(
    ("line", "host", "command", "tries"),
    [
        ("host true", "host", "true", 1),
        ("-o ConnectionAttempts=10 host prted -mca x y", "host", "prted -mca x y", 10),
        ("-xqp2300 -oconnectionattempts=3 me@host.job -- sh -l", "host.job", "-- sh -l", 3),
    ],
)
def test_command_lines_of_ssh(line: str, host: str, command: str, tries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(sys, "argv", ["ssh", *line.split()])
    monkeypatch.setattr(remote_shell, "ask", lambda request: {"error": f"{asked.append(request)}"})
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert remote_shell.main() == 255
    assert [(each["host"], each["command"][1:]) for each in asked] == [(host, ["-c", command])] * tries


@pytest.mark.medium
def test_sshd_is_open_for_probes_and_ends_with_0() -> None:
    command = replace_program(
        ["/usr/sbin/sshd", "-De", "-f", "/home/mpiuser/.sshd_config", "-p", str(port := free_port())], PROGRAMS
    )
    with subprocess.Popen(command, env={"TRAINWRIGHT_POD_IP": "127.0.0.1"}) as process, socket.socket() as probe:
        try:
            eventually(lambda: probe.connect_ex(("127.0.0.1", port)) == 0)
            assert probe.recv(1) == b""
            process.terminate()
            assert process.wait(10) == 0
        finally:
            process.kill()
