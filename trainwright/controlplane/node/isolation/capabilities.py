"""Which capabilities a container's processes can have."""

from __future__ import annotations

from trainwright.api.objects import Obj
from trainwright.controlplane.node.isolation.credentials import DEFAULT_CAPABILITIES

_NUMBERS = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "FOWNER": 3,
    "FSETID": 4,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "SETPCAP": 8,
    "NET_BIND_SERVICE": 10,
    "NET_RAW": 13,
    "IPC_OWNER": 15,
    "SYS_CHROOT": 18,
    "SYS_PTRACE": 19,
    "MKNOD": 27,
    "AUDIT_WRITE": 29,
    "SETFCAP": 31,
}
"""Capabilities that a container may have, from linux/capability.h: none changes mounts.

Beyond the defaults these are two that only reach into the container's own namespaces.
"""


def kept_capabilities(setting: Obj) -> set[int]:
    """Return the numbers of the capabilities of a container whose `securityContext.capabilities` is `setting`.

    Added ones that cannot be granted are left out; `refused_capabilities` names them.
    """
    added, dropped = _names(setting.get("add")), _names(setting.get("drop"))
    kept = set() if "ALL" in dropped else {*DEFAULT_CAPABILITIES} - {_NUMBERS.get(name) for name in dropped}
    return kept | {number for name, number in _NUMBERS.items() if name in added or "ALL" in added}


def refused_capabilities(setting: Obj) -> list[str]:
    """Return the names of added capabilities that no container gets here."""
    return [name for name in _names(setting.get("add")) if name not in _NUMBERS]


def _names(given: list[str] | None) -> list[str]:
    return [name.upper().removeprefix("CAP_") for name in given or []]
