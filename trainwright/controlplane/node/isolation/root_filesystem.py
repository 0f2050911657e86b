"""Builds a container's root file system from the host's: a writable layer over it, with own /tmp, /run, /dev and /proc.

Standard library only, because a container's supervisor loads this file. Runs in the container's first process, in its new
namespaces, before the command. All targets are opened component by component below the new root, and mounts are attached to
open files, so that no symbolic link of a container leads out of it. /dev has harmless devices and accelerators of the host, an own
/dev/pts and /dev/shm, and nothing else.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator

from trainwright.controlplane.node.isolation import namespaces
from trainwright.controlplane.node.isolation.host_folders import HostFolders, bind_tree
from trainwright.controlplane.node.isolation.namespaces import NODEV, NOEXEC, NOSUID, READ_ONLY
from trainwright.controlplane.node.isolation.root_paths import is_in, is_reserved, names_devices

_OWN = {"tmp": 0o1777, "run": 0o755, "root": 0o700, "home": 0o755, "dev": 0o755, "proc": 0o555, "sys": 0o555}
"""Folders of the root that are not taken from the host, with their modes."""
_LEFT_OUT = {"mnt", "media", "boot", "lost+found"}
_SHM, _VAR_TMP = "/dev/shm", "/var/tmp"  # noqa: S108  (paths of the container)
_READ_ONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
_NESTED_NAMESPACES = ("sys/user/max_user_namespaces", "sys/user/max_cgroup_namespaces")
"""Settings below /proc of the user namespace that opens them. Raising them again needs CAP_SYS_RESOURCE, which no container has."""
_MASKED_PATHS = (
    *(f"/proc/{name}" for name in ("acpi", "asound", "kcore", "keys", "latency_stats", "sched_debug", "scsi", "timer_list")),
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
)
"""As in containerd. Needed where the container's root is the host's: the kernel checks some of them by user, not by capability."""
_DEVICES = re.compile(r"null|zero|full|random|urandom|tty|nvidia[\w-]*|infiniband|dri|kfd|dxg|accel\d*|neuron\d+")
_DEV_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}
_SHM_BYTES = 64 * 1024 * 1024
"""The size of /dev/shm in containerd."""
_TTY_GROUP = "5"


class RootFilesystem:
    """`step` says what is being done, for the message of an OSError that any method may raise."""

    def __init__(self, plan: dict):  # type: ignore[type-arg]
        self.plan, self.step = plan, ""
        self.visible = {path for path in plan["visible"] if os.path.exists(path)}
        self.hidden = set(plan["hidden"])
        shared = {path for path in plan["shared"] if os.path.exists(path)}
        self.shared = shared | set(_kept_in_place(self.hidden, shared))
        self.layer = os.path.realpath(plan["layer"])
        self.host = HostFolders(self.layer, keeps_owners=plan["map_all_ids"], hidden=frozenset(self.hidden))
        self.paths = self.host.paths
        self.masks: list[int] = []
        self.nesting: list[int] = []
        self.sources: list[int | None] = []

    def build(self, cwd: str) -> None:
        """Build it with all mounts of the plan and the folder `cwd`, and make it this process's root."""
        self.step = f"make the writable layer {self.layer}"
        os.mkdir(self.layer, 0o700)
        os.chdir(self.layer)  # overlays name their folders relative to it
        for name in ("upper", "work", "root"):
            os.mkdir(name, 0o755)
        self.step = "make a root of its own"
        namespaces.make_mounts_private()
        self._take_sources()
        self.step = "make a root of its own"
        self.host.make_root("root")
        self._make_system()
        self._make_targets(cwd)
        self._hide_and_show()
        for mount, source in zip(self.plan["mounts"], self.sources, strict=True):
            self._mount(mount, source)
        self.step = f"create the working directory {cwd}"
        os.close(self.paths.locate(cwd, "folder"))
        self.step = "make the root file system read-only"
        for cover in (*self.masks, *(self.host.image if self.plan["read_only_root"] else ())):
            namespaces.restrict_mount(cover, READ_ONLY, recursive=False)
        self.step = "enter the root file system"
        os.fchdir(self.paths.root)
        namespaces.pivot_root()

    def forbid_nested_namespaces(self) -> None:
        """Let no process of the container make user namespaces: with one, it could mount the control groups of others."""
        self.step = "forbid nested namespaces"
        for file in self.nesting:
            os.write(file, b"0")
            os.close(file)

    def _make_system(self) -> None:
        for name, mode in _OWN.items():
            os.mkdir(f"root/{name}")
            is_passed = name == "root" and any(path.startswith("/root/") for path in self.visible)
            os.chmod(f"root/{name}", 0o711 if is_passed else mode)
        self._take_from_host()
        self.step = "mount /proc"
        proc = namespaces.filesystem("proc", {}, NOSUID | NODEV | NOEXEC)
        self.nesting = [os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc) for name in _NESTED_NAMESPACES]
        namespaces.attach_mount(proc, self.paths.existing("/proc"))
        self.step = "mount /sys"
        try:
            system = bind_tree("/sys")
            namespaces.restrict_mount(system, READ_ONLY | NOSUID | NODEV | NOEXEC, recursive=True)
            namespaces.attach_mount(system, self.paths.existing("/sys"))
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EINVAL):
                raise
        if self.plan["map_all_ids"]:
            self._restrict_system()
        self.step = "make /dev"
        has_own_shm = all(mount["target"] != _SHM for mount in self.plan["mounts"])
        make_dev(self.paths.existing("/dev"), tty_group=self.plan["map_all_ids"], shm=has_own_shm)
        self._keep_resolver()

    def _take_from_host(self) -> None:
        """Recreate the other entries of the host's root: symbolic links, and folders with a writable layer. Files are left out."""
        with os.scandir("/") as entries:
            for entry in entries:
                self.step = f"make {entry.path}"
                if entry.name in _OWN or entry.name in _LEFT_OUT:
                    continue  # made anew, or of no use to a container
                if entry.is_symlink():
                    os.symlink(os.readlink(entry.path), f"root/{entry.name}")
                elif entry.is_dir(follow_symlinks=False):
                    self.host.take(entry.path)
        self.host.cover_with_empty(_VAR_TMP, 0o1777)

    def _restrict_system(self) -> None:
        null = os.open("/dev/null", os.O_PATH | os.O_CLOEXEC)
        for path in (*_READ_ONLY_PATHS, *_MASKED_PATHS):
            self.step = f"restrict {path}"
            if (place := self.paths.find(path)) is None:
                continue  # missing in this kernel, or unreadable
            if path in _READ_ONLY_PATHS:
                cover = namespaces.clone_tree(place)
                namespaces.restrict_mount(cover, READ_ONLY, recursive=True)
            elif stat.S_ISDIR(os.fstat(place).st_mode):
                cover = namespaces.filesystem("tmpfs", {"size": "4k"}, READ_ONLY)
            else:
                cover = namespaces.clone_tree(null)
            namespaces.attach_mount(cover, place)
            os.close(place)

    def _keep_resolver(self) -> None:
        """Keep the text of /etc/resolv.conf readable where it is a link into a folder that is not shown, such as /run."""
        real = os.path.realpath("/etc/resolv.conf")
        top = real.split("/")[1]
        if (top not in _OWN and top not in _LEFT_OUT) or not os.access(real, os.R_OK):
            return  # in a folder that is shown, or unreadable
        self.step = f"copy {real}"
        with open(real, "rb") as source:
            text = source.read()
        folder = self.paths.locate(os.path.dirname(real), "folder")
        copy = os.open(os.path.basename(real), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644, dir_fd=folder)
        os.write(copy, text)
        os.close(copy)

    def _make_targets(self, cwd: str) -> None:
        """Create missing targets of mounts before anything is mounted, because this may cover folders with an overlay."""
        covered = [*self.hidden, *self.visible, *self.shared, *(mount["target"] for mount in self.plan["mounts"])]
        wanted = [(path, "folder" if os.path.isdir(path) else "file") for path in (*self.visible, *self.shared)]
        wanted += [(mount["target"], _kind(source)) for mount, source in zip(self.plan["mounts"], self.sources, strict=True)]
        for path, kind in (*wanted, (cwd, "folder")):
            self.step = f"create {path}"
            if not any(path.startswith(other.rstrip("/") + "/") for other in covered):
                os.close(self.paths.locate(path, kind, may_cover=True))

    def _hide_and_show(self) -> None:
        """Hide the hidden folders, and show the visible and the shared ones; of one inside another, the inner one counts."""
        for path in sorted(self.hidden | self.visible | self.shared, key=len):
            if path in self.shared:
                self.step = f"share {path}"
                target = self.paths.locate(path, "folder")
                namespaces.attach_mount(bind_tree(path), target)
                os.close(target)
            elif path not in self.hidden:
                self.step = f"show {path}"
                target = self.paths.locate(path, "folder" if os.path.isdir(path) else "file")
                if not os.path.isdir(path) or not self.host.overlay(path, target):
                    self.host.show_read_only(path)
                os.close(target)
            elif path[1:] not in _OWN and (place := self.paths.find(path)) is not None:
                self.step = f"hide {path}"
                mask = namespaces.filesystem("tmpfs", {"size": "1m", "mode": "0755"}, NOSUID | NODEV)
                namespaces.attach_mount(mask, place)
                self.masks.append(mask)

    def _mount(self, mount: dict, source: int | None) -> None:  # type: ignore[type-arg]
        """Mount a volume of the pod. Paths in it may have been changed by another container of the pod."""
        target, path = mount["target"], mount["source"]
        self.step = f"mount {target}" if path is None else f"mount {path} at {target}"
        place, real = self.paths.locate_real(target, _kind(source))
        if is_reserved(real, path, is_volume=mount["volume"] is not None):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM), f"no volume may cover {real}")
        if source is None:
            options = {"mode": "1777"} | ({"size": str(mount["tmpfs_bytes"])} if mount["tmpfs_bytes"] else {})
            tree = namespaces.filesystem("tmpfs", options, NOSUID | NODEV)
        else:
            tree = source
            namespaces.restrict_mount(tree, NOSUID if names_devices(path) else NOSUID | NODEV, recursive=True)
        if mount["read_only"]:
            namespaces.restrict_mount(tree, READ_ONLY, recursive=True)
        namespaces.attach_mount(tree, place)
        if path is not None:
            self._protect_settings(path, tree)
        os.close(tree)
        os.close(place)

    def _protect_settings(self, path: str, tree: int) -> None:
        """Make read-only what shows settings of the machine in the attached mount of a host path, such as control groups."""
        if any(is_in(path, mounted) for mounted in self.host.kernel_mounts):
            namespaces.restrict_mount(tree, READ_ONLY, recursive=True)
            return  # all of the source shows settings
        for mounted in self.host.kernel_mounts:
            if is_in(mounted, path):
                self.step = f"make {mounted} read-only in a volume"
                found = namespaces.open_without_symlinks(os.path.relpath(mounted, path), tree)
                namespaces.restrict_mount(found, READ_ONLY, recursive=True)
                os.close(found)

    def _take_sources(self) -> None:
        """Copy the mounts of all sources first: what was opened is what is mounted, whatever becomes of its path."""
        for mount in self.plan["mounts"]:
            if mount["source"] is None:
                self.sources.append(None)
                continue  # a tmpfs, which has no source
            self.step = f"mount {mount['source']} at {mount['target']}"
            origin = self._open_source(mount["source"], mount["volume"])
            self.sources.append(namespaces.clone_tree(origin))
            os.close(origin)

    def _open_source(self, path: str, volume: str | None) -> int:
        """Open a mount's source. In a pod's volume links are followed, but never out of it; elsewhere they are refused.

        Of the path of the volume, or of another source, what it has in common with the layer's path is trusted.
        """
        top = volume or path
        trusted = os.path.commonpath([self.plan["layer"], top])
        start = os.open(trusted, os.O_PATH | os.O_CLOEXEC)
        try:
            found = namespaces.open_without_symlinks(os.path.relpath(top, trusted), start)
        finally:
            os.close(start)
        if top == path:
            return found  # the volume itself, or a path outside of volumes
        try:
            return namespaces.open_beneath(os.path.relpath(path, top), found)
        finally:
            os.close(found)


def _kept_in_place(hidden: set[str], shared: set[str]) -> Iterator[str]:
    """Yield the folders between a shared folder and what is hidden in it: a folder cannot be renamed where it is a mount point."""
    for path in hidden:
        while (path := os.path.dirname(path)) != "/":
            if any(is_in(path, each) and path != each for each in shared) and not any(is_in(path, each) for each in hidden):
                yield path


def _kind(source: int | None) -> str:
    return "folder" if source is None or stat.S_ISDIR(os.fstat(source).st_mode) else "file"


def make_dev(target: int, *, tty_group: bool, shm: bool) -> None:
    """Mount a new /dev on the open folder `target`. Raises OSError.

    `tty_group`: terminals belong to the group tty, if it is mapped. `shm`: with an own /dev/shm.
    """
    dev = namespaces.filesystem("tmpfs", {"mode": "0755", "size": "64k"}, NOSUID | NOEXEC)
    namespaces.attach_mount(dev, target)
    for name in os.listdir("/dev"):
        if _DEVICES.fullmatch(name):
            _bind_device(name, dev)
    for name, destination in _DEV_LINKS.items():
        os.symlink(destination, name, dir_fd=dev)
    os.mkdir("pts", 0o755, dir_fd=dev)
    _attach_in(_terminals(tty_group=tty_group), "pts", dev)
    os.mkdir("shm", 0o755, dir_fd=dev)
    if shm:
        options = {"mode": "1777", "size": str(_SHM_BYTES)}
        _attach_in(namespaces.filesystem("tmpfs", options, NOSUID | NODEV | NOEXEC), "shm", dev)


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
    _attach_in(namespaces.clone_tree(source), name, dev)
    os.close(source)


def _attach_in(mount: int, name: str, dev: int) -> None:
    target = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dev)
    namespaces.attach_mount(mount, target)
    os.close(target)
    os.close(mount)


def _terminals(*, tty_group: bool) -> int:
    options = {"newinstance": None, "ptmxmode": "0666", "mode": "0620"}
    if tty_group:
        try:
            return namespaces.filesystem("devpts", {**options, "gid": _TTY_GROUP}, NOSUID | NOEXEC)
        except OSError as error:  # the group is not mapped, where this machine is a container itself
            if error.errno != errno.EINVAL:
                raise
    return namespaces.filesystem("devpts", options, NOSUID | NOEXEC)
