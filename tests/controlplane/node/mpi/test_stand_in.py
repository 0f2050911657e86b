"""Which containers get the launch agent in place of sshd, and which variables mpirun finds."""

from __future__ import annotations

from typing import Any

import pytest

from trainwright.controlplane.node.images import ImageEnvironment
from trainwright.controlplane.node.mpi.stand_in import AGENT, SSHD, mpi_variables, replace_program

PROGRAMS = {SSHD: (AGENT,), "/opt/tool": ("python", "-m", "tool")}
IMAGE = ImageEnvironment("x", programs=PROGRAMS, env={"OMPI_MCA_pml": "ucx"})
KEY_MOUNT = {"name": "mpi-ssh-auth", "mountPath": "/home/mpiuser/.ssh"}
STOCK = [SSHD, "-De", "-f", "/home/mpiuser/.sshd_config"]


@pytest.mark.parametrize(
    ("words", "mounts", "is_replaced"),
    [
        (STOCK, [KEY_MOUNT], True),
        ([SSHD, "-D"], [KEY_MOUNT], True),
        (STOCK, [KEY_MOUNT, {"name": "own", "mountPath": "/home/mpiuser/.sshd_config"}], False),
        (STOCK, [KEY_MOUNT, {"name": "own", "mountPath": "/home/mpiuser/"}], False),
        ([SSHD, "-D", "-f/etc/own/config"], [{"name": "own", "mountPath": "/etc/own"}], False),
        ([SSHD, "-D", "-f/etc/own/config"], [{"name": "own", "mountPath": "/etc/ow"}], True),
        (["sh", "-c", "/usr/sbin/sshd -D"], [KEY_MOUNT], False),
    ],
)
def test_sshd_is_replaced_unless_the_pod_brings_its_configuration(words: list[str], mounts: list[Any], is_replaced: bool) -> None:
    found = replace_program(words, PROGRAMS, {"volumeMounts": mounts})
    if is_replaced:
        assert found[-len(words) :] == [found[-len(words)], *words[1:]]
        assert found[-len(words)].endswith("launch_agent.py")
    else:
        assert found == words


def test_replace_program_keeps_arguments_of_any_program() -> None:
    assert replace_program(["/opt/tool", "-x"], PROGRAMS, {}) == ["python", "-m", "tool", "-x"]
    assert replace_program(["/opt/tool2"], PROGRAMS, {}) == ["/opt/tool2"]


def test_only_containers_of_mpi_jobs_whose_sshd_is_replaced_get_variables() -> None:
    assert mpi_variables({"volumeMounts": [KEY_MOUNT]}, ImageEnvironment("x"), {}, "127.1.2.3") == {}
    assert mpi_variables({"volumeMounts": []}, IMAGE, {}, "127.1.2.3") == {}
    worker = mpi_variables({"volumeMounts": [KEY_MOUNT | {"mountPath": "/root/.ssh/"}]}, IMAGE, {}, "127.1.2.3")
    assert worker["TRAINWRIGHT_MPI_KEY"] == "/root/.ssh/id_rsa"
    assert worker["TRAINWRIGHT_POD_IP"] == "127.1.2.3"
    assert "OMPI_MCA_pml" not in worker, "the image's variable counts"
    assert not [name for name in worker if "agent" in name or "hostfile" in name]


def test_a_launcher_finds_hostfile_and_agent_in_the_words_of_open_mpi_5() -> None:
    own = {"OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile"}
    launcher = mpi_variables({"volumeMounts": [KEY_MOUNT]}, IMAGE, own, "127.1.2.3")
    assert launcher["PRTE_MCA_prte_default_hostfile"] == "/etc/mpi/hostfile"
    assert launcher["PRTE_MCA_plm_ssh_agent"] == launcher["OMPI_MCA_plm_rsh_agent"]
    assert launcher["PRTE_MCA_plm_ssh_agent"].endswith("remote_shell.py")
    assert launcher["PRTE_MCA_hwloc_default_binding_policy"] == "none"
