"""Decides which containers get programs in place of sshd and ssh, and the variables by which mpirun finds them. Pure.

An entry of images.yaml says that an image's programs are replaced: `programs: {/usr/sbin/sshd: [trainwright-sshd]}`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainwright.api import names
from trainwright.api.objects import Obj
from trainwright.controlplane.node.images import ImageEnvironment

SSHD = "trainwright-sshd"
"""The name in `programs` of what stands in for sshd."""

_FOLDER = Path(__file__).parent
_PYTHON = (sys.executable, "-S", "-E", "-P")
_REMOTE_SHELL = " ".join((*_PYTHON, str(_FOLDER / "remote_shell.py")))
_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
_LAUNCHER = {
    # Open MPI 5 does not know the names that Trainer sets, and would start all ranks on the launcher.
    "PRTE_MCA_plm_ssh_agent": _REMOTE_SHELL,
    "OMPI_MCA_plm_rsh_agent": _REMOTE_SHELL,
    # Daemons stay children of the remote shell, and so end with the launcher, however it ends.
    "PRTE_MCA_prte_leave_session_attached": "1",
    "OMPI_MCA_orte_leave_session_attached": "1",
    # Each daemon takes the machine for its own: the ranks of all pods would be bound to the same first cores.
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    # A worker that starts daemons on others would need these variables, which Trainer's hostfile makes the launcher's.
    "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
    "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
}
_EVERYWHERE = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    # Ranks of several pods talk over the loopback interface. The daemons have no such setting, nor one for what they listen on.
    "OMPI_MCA_pml": "ob1",
    # All pods share the cores: six ranks on two cores took 8 to 11 s while waiting ranks kept theirs busy, and 3.6 s with this.
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_btl_tcp_if_include": _LOOPBACK,
}


def replace_program(words: Sequence[str], programs: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the command of a container, with its program replaced if `programs` says so."""
    replacement = programs.get(words[0], words[:1])
    if replacement[0] == SSHD:
        replacement = [*_PYTHON, str(_FOLDER / "sshd.py"), *replacement[1:]]
    return [*replacement, *words[1:]]


def has_key(container: Obj) -> bool:
    """Whether a container has the ssh key of an MPI job, and so takes part in it."""
    return any(mount["name"] == names.SSH_VOLUME for mount in container.get("volumeMounts") or [])


def is_served(container: Obj, image: ImageEnvironment | None) -> bool:
    """Whether the node stands in for ssh in a container."""
    return image is not None and has_key(container) and any(words[0] == SSHD for words in image.programs.values())


def mpi_variables(image: ImageEnvironment, own: Mapping[str, str], address: str) -> dict[str, str]:
    """Return the variables of a served container.

    `own` are the variables that the pod sets; they win, as do those of the image. `address` is that of the pod.
    """
    found = {"TRAINWRIGHT_POD_IP": address} | _EVERYWHERE
    if (hostfile := own.get("OMPI_MCA_orte_default_hostfile")) is not None:
        found |= _LAUNCHER | {"PRTE_MCA_prte_default_hostfile": hostfile}
    return {name: value for name, value in found.items() if name not in image.env}
