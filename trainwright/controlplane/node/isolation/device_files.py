"""A container's /dev: harmless devices and accelerators of the host, an own /dev/pts and /dev/shm, and nothing else.

Standard library only, because a container's supervisor loads this file.
"""

from __future__ import annotations

import errno
import os
import re
import stat

from trainwright.controlplane.node.isolation import namespaces
from trainwright.controlplane.node.isolation.namespaces import NODEV, NOEXEC, NOSUID

_DEVICES = re.compile(r"null|zero|full|random|urandom|tty|nvidia[\w-]*|infiniband|dri|kfd|dxg|accel\d*|neuron\d+")
_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}
_SHM_BYTES = 64 * 1024 * 1024
"""The size of /dev/shm in containerd."""
_TTY_GROUP = "5"


def make_dev(target: int, *, tty_group: bool, shm: bool) -> None:
    """Mount a new /dev on the open folder `target`. Raises OSError.

    `tty_group`: terminals belong to the group tty, if it is mapped. `shm`: with an own /dev/shm.
    """
    dev = namespaces.filesystem("tmpfs", {"mode": "0755", "size": "64k"}, NOSUID | NOEXEC)
    namespaces.attach_mount(dev, target)
    for name in os.listdir("/dev"):
        if _DEVICES.fullmatch(name):
            _bind_device(name, dev)
    for name, destination in _LINKS.items():
        os.symlink(destination, name, dir_fd=dev)
    os.mkdir("pts", 0o755, dir_fd=dev)
    _attach(_terminals(tty_group=tty_group), "pts", dev)
    os.mkdir("shm", 0o755, dir_fd=dev)
    if shm:
        options = {"mode": "1777", "size": str(_SHM_BYTES)}
        _attach(namespaces.filesystem("tmpfs", options, NOSUID | NODEV | NOEXEC), "shm", dev)


def _terminals(*, tty_group: bool) -> int:
    options = {"newinstance": None, "ptmxmode": "0666", "mode": "0620"}
    if tty_group:
        try:
            return namespaces.filesystem("devpts", {**options, "gid": _TTY_GROUP}, NOSUID | NOEXEC)
        except OSError as error:  # the group is not mapped, where this machine is a container itself
            if error.errno != errno.EINVAL:
                raise
    return namespaces.filesystem("devpts", options, NOSUID | NOEXEC)


def _bind_device(name: str, dev: int) -> None:
    source = os.open(f"/dev/{name}", os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    kind = os.fstat(source).st_mode
    if stat.S_ISDIR(kind):
        os.mkdir(name, 0o755, dir_fd=dev)
    elif stat.S_ISCHR(kind):
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644, dir_fd=dev))
    else:
        os.close(source)
        return
    _attach(namespaces.clone_tree(source), name, dev)
    os.close(source)


def _attach(mount: int, name: str, dev: int) -> None:
    target = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dev)
    namespaces.attach_mount(mount, target)
    os.close(target)
    os.close(mount)
