"""Shows the folders of the host's root in a container's, each with a writable layer over it where the kernel allows.

Standard library only, because a container's supervisor loads this file. The working directory is the layer's folder; its `root` is
the new root. The layer is removed after the container's end. Facts about overlays: Documentation/filesystems/overlayfs.rst.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from trainwright.controlplane.node.isolation import namespaces
from trainwright.controlplane.node.isolation.namespaces import NODEV, READ_ONLY
from trainwright.controlplane.node.isolation.root_paths import KERNEL_FILE_SYSTEMS, RootPaths

_DEPTH, _ENTRIES, _COPIED_BYTES = 3, 300, 64 * 1024
"""Bounds for a folder whose entries are taken one by one; a larger file is mounted read-only, not copied."""


class HostFolders:
    """`layer` is the path of the layer's folder. `keeps_owners`: whether ids of the host are mapped, so that owners can be kept.

    Of the folders `hidden`, which will be covered, nothing is taken but their place.
    """

    def __init__(self, layer: str, *, keeps_owners: bool, hidden: frozenset[str] = frozenset()):
        self.paths = RootPaths(self._cover)
        self.image: list[int] = []
        """Mounts that are part of the container's root file system, like files of an image."""
        self._layer, self._keeps_owners, self._hidden = layer, keeps_owners, hidden
        self._count = 0
        mounted = _mount_points()
        self._mount_points = [path for path, _ in mounted]
        self.kernel_mounts = [path for path, kind in mounted if kind in KERNEL_FILE_SYSTEMS]
        """Mounts of the host whose files are settings of the machine."""

    def make_root(self, folder: str) -> None:
        """Make a folder of the layer the root: a mount of its own."""
        under = os.open(folder, os.O_PATH | os.O_CLOEXEC)
        self._attach(namespaces.clone_tree(under), under)
        os.close(under)
        self.paths.root = os.open(folder, os.O_PATH | os.O_CLOEXEC)

    def take(self, path: str, depth: int = 1) -> None:
        """Show a host folder at the same path.

        An overlay is refused for a folder with other mounts below, or with the layer itself: then its entries are taken one by one.
        """
        os.mkdir(f"root{path}")
        self._copy_owner(path, f"root{path}")
        if path in self._hidden or _is_empty(path):
            return  # the empty folder is all that is to be seen
        below = path + "/"
        if not any(other.startswith(below) for other in (*self._mount_points, self._layer)):
            if self.overlay(path, self.paths.existing(path)):
                return
        elif depth <= _DEPTH and self._expand(path, depth):
            return
        self.show_read_only(path)

    def overlay(self, lower: str, target: int) -> bool:
        """Cover `target` with a writable layer over the host's folder `lower`. Returns False where the kernel does not allow it."""
        if self._layer.startswith(lower + "/") or ":" in lower or "\\" in lower or "," in lower:
            return False  # an overlay in itself, or a path that its options cannot name
        upper, work = f"upper/{self._count}", f"work/{self._count}"
        self._count += 1
        os.mkdir(upper)
        os.mkdir(work)
        self._copy_owner(lower, upper)
        # volatile: no fsync of the host's file system when the container ends; the layer is never mounted again.
        options = {"lowerdir": lower, "upperdir": upper, "workdir": work, "userxattr": None, "volatile": None}
        try:
            mount = namespaces.filesystem("overlay", options)
        except OSError:  # some file systems cannot be the lower layer
            return False
        self._attach(mount, target)
        return True

    def show_read_only(self, path: str) -> None:
        """Mount a folder or file of the host at the same path, which must exist in the container, with all mounts below it."""
        tree = bind_tree(path)
        namespaces.restrict_mount(tree, READ_ONLY | NODEV, recursive=True)
        place = self.paths.existing(path)
        self._attach(tree, place)
        os.close(place)

    def cover_with_empty(self, path: str, mode: int) -> None:
        """Cover a folder of the host, if there is one, with an empty, writable one."""
        if (target := self.paths.find(path)) is None:
            return  # the host has no such folder
        folder = f"upper/{self._count}"
        self._count += 1
        os.mkdir(folder)
        os.chmod(folder, mode)
        self._attach(bind_tree(folder), target)
        os.close(target)

    def _expand(self, path: str, depth: int) -> bool:
        with os.scandir(path) as scan:
            entries = list(scan)
        if len(entries) > _ENTRIES:
            return False  # too many to take one by one: shown read-only
        for entry in entries:
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), f"root{entry.path}")
            elif entry.is_dir(follow_symlinks=False):
                self.take(entry.path, depth + 1)
            elif entry.is_file(follow_symlinks=False):
                self._take_file(entry.path, is_mounted=entry.path in self._mount_points)
        return True

    def _take_file(self, path: str, *, is_mounted: bool) -> None:
        target = f"root{path}"
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        if is_mounted or os.stat(path).st_size > _COPIED_BYTES or not os.access(path, os.R_OK):
            self.show_read_only(path)
            return  # not copied: mounted from elsewhere, large, or not readable
        with open(path, "rb") as source, open(target, "wb") as copy:
            copy.write(source.read())
        self._copy_owner(path, target)

    def _cover(self, path: str, target: int) -> bool:
        """Make a folder of the host writable at its first level, for targets of mounts that are missing in it."""
        return os.path.isdir(path) and self.overlay(path, target)

    def _copy_owner(self, source: str, target: str) -> None:
        status = os.stat(source)
        if self._keeps_owners:
            try:
                os.chown(target, status.st_uid, status.st_gid)
            except OSError as error:  # a user that is not mapped, where this machine is a container itself
                if error.errno not in (errno.EINVAL, errno.EPERM):
                    raise
        os.chmod(target, stat.S_IMODE(status.st_mode))

    def _attach(self, mount: int, target: int) -> None:
        namespaces.attach_mount(mount, target)
        self.image.append(mount)


def _mount_points() -> list[tuple[str, str]]:
    """Return the paths and kinds of all mounts of the host. Source: mountinfo in proc(5), with octal escapes."""
    found = []
    with open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            left, _, right = line.partition(b" - ")
            path = os.fsdecode(left.split()[4].decode("unicode_escape").encode("latin-1"))
            found.append((path, right.split()[0].decode("ascii")))
    return found


def _is_empty(path: str) -> bool:
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is None
    except PermissionError:
        return True  # to the container as well


def bind_tree(path: str) -> int:
    """Return a copy of the mounts at and below a path of the host that is not attached yet."""
    source = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        return namespaces.clone_tree(source)
    finally:
        os.close(source)


def remove_layer(folder: str) -> None:
    """Remove a folder, also where its own folders may not be listed, as those of overlays and some of containers.

    What cannot be removed is left. Call it after the last process of the container has ended.
    """
    pending = [folder]
    found = []
    while pending:
        current = pending.pop()
        found.append(current)
        try:
            if not os.access(current, os.R_OK | os.W_OK | os.X_OK):  # to remove files takes all rights to their folder
                os.chmod(current, 0o700)
            with os.scandir(current) as scan:
                entries = list(scan)
        except OSError:  # of another user, or gone: what cannot be removed is left
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)
    for current in reversed(found):  # a folder is found before those in it
        with contextlib.suppress(OSError):
            os.rmdir(current)
