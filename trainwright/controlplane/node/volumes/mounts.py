"""What a container mounts: paths in the container and the files or folders of its pod's volumes that are found there.

A subPath is found without ever leaving the volume, whatever links the containers of other pods have put there: each step is taken from
an open folder and follows no link, so that nothing can be swapped in between. Sources of rules and messages: `makeMounts` in
pkg/kubelet/kubelet_pods.go, and pkg/volume/util/subpath of Kubernetes.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path, PurePosixPath

from trainwright.api.objects import Obj, named
from trainwright.controlplane.node.expansion import expand_references, references_in
from trainwright.controlplane.node.isolation.plan import ContainerMount, clean_target
from trainwright.controlplane.node.isolation.root_paths import is_reserved
from trainwright.controlplane.node.volumes.files import DATA
from trainwright.controlplane.node.volumes.maker import MadeVolume
from trainwright.controlplane.node.volumes.references import ConfigError

_MOST_LINKS = 40
"""As in the kernel."""
_Missing = Callable[[int, str], os.stat_result]
"""Deals with a name that its folder (a descriptor) does not have: makes it, or raises FileNotFoundError."""


def container_mounts(
    pod: Obj, container: Obj, volumes: Mapping[str, MadeVolume], variables: Mapping[str, str]
) -> list[ContainerMount]:
    """Return the mounts of a container in the order of its spec. Missing folders of subPaths are made.

    `volumes` are those made for the pod; `variables` are the container's own, which a subPathExpr may refer to.
    Raises ConfigError for an unknown volume, a variable without a value, and a subPath that leads out of its volume; ArgumentsTooLong.
    """
    known = {name: made for name, made in volumes.items() if named(pod["spec"].get("volumes"), name) is not None}
    return [_mount(container["name"], mount, known, variables) for mount in container.get("volumeMounts") or []]


def _mount(container: str, mount: Obj, volumes: Mapping[str, MadeVolume], variables: Mapping[str, str]) -> ContainerMount:
    name = mount["name"]
    volume = volumes.get(name)
    if volume is None:
        raise ConfigError(f'cannot find volume "{name}" to mount into container "{container}"')
    path = volume.path
    if sub_path := _sub_path(mount, variables):
        path = _path_in(volume, sub_path, f'for volumeMount "{name}" of container "{container}"')
    container_path = mount["mountPath"]
    if is_reserved(clean_target(container_path), str(path), is_volume=True):
        raise ConfigError(f'volumeMount "{name}" of container "{container}": no volume can be mounted at {container_path}')
    return ContainerMount(
        container_path if container_path.startswith("/") else f"/{container_path}",
        path,
        read_only=bool(mount.get("readOnly")) or volume.read_only,
        volume=volume.path,
    )


def _sub_path(mount: Obj, variables: Mapping[str, str]) -> str:
    """Return the checked subPath, or an empty string for the whole volume."""
    sub_path = str(mount.get("subPath") or "")
    if expression := mount.get("subPathExpr"):
        if missing := sorted({name for name in references_in(expression) if not variables.get(name)}):
            raise ConfigError(f"missing value for {', '.join(missing)}")
        sub_path = expand_references(expression, variables, f'the subPathExpr of the volumeMount "{mount["name"]}"')
    if sub_path.startswith("/"):
        raise ConfigError(f"error SubPath `{sub_path}` must not be an absolute path")
    if ".." in sub_path.split("/"):
        raise ConfigError(f"unable to provision SubPath `{sub_path}`: must not contain '..'")
    return sub_path


def _path_in(volume: MadeVolume, sub_path: str, where: str) -> Path:
    """Return the path of a subPath. The messages name no path of the machine, as containers could learn about it from them."""
    try:
        found = find_sub_path(volume.path, sub_path)
    except SubPathEscape as error:  # without the path that it leads to
        raise ConfigError(f"failed to prepare subPath {where}: it leads out of the volume") from error
    except (OSError, ValueError) as error:  # a NUL in a variable is a ValueError
        raise ConfigError(f"failed to prepare subPath {where}") from error
    if not volume.is_projected:
        return found  # its files stay where they are
    # Through `..data`: the folder behind it, whose name begins alike, is replaced as soon as the content changes.
    top = volume.path.resolve()
    version, *names = (*found.relative_to(top).parts, "")
    return top.joinpath(DATA, *names) if version.startswith("..") else found


class SubPathEscape(Exception):
    """A subPath leads out of its volume."""


def find_sub_path(volume: Path, sub_path: str) -> Path:
    """Return the file or folder of the volume, without links in it. What is missing is made as folders of the volume's own mode.

    Raises SubPathEscape, and OSError for a file that is used as a folder, too many links, or missing rights.
    """
    top = volume.resolve(strict=True)
    mode = stat.S_IMODE(top.stat().st_mode)
    with ExitStack() as opened:
        names, _ = _walk(opened, top, sub_path, lambda folder, name: _make_folder(folder, name, mode))
        return top.joinpath(*names)


def _walk(opened: ExitStack, top: Path, path: str, missing: _Missing) -> tuple[list[str], int]:
    """Return the names from `top` to the end of the path, and the opened folder that contains the last of them."""
    folders = [_open(opened, str(top), None)]
    names: list[str] = []
    pending, links = deque(_parts(path)), 0
    while pending:
        name = pending.popleft()
        if name == "..":
            if not names:
                raise SubPathEscape(f"{path!r} is outside of its volume")
            names.pop()
            folders.pop()
            continue  # up among the opened folders, whatever the disk says now
        try:
            found = os.stat(name, dir_fd=folders[-1], follow_symlinks=False)
        except FileNotFoundError:  # made, or refused, as the caller wants
            found = missing(folders[-1], name)
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > _MOST_LINKS:
                raise OSError(f"too many links in {path!r}")
            pending.extendleft(reversed(_parts(os.readlink(name, dir_fd=folders[-1]))))
        else:
            names.append(name)
            if pending:
                folders.append(_open(opened, name, folders[-1]))
    return names, folders[-1]


def _open(opened: ExitStack, name: str, folder: int | None) -> int:
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    opened.callback(os.close, descriptor)
    return descriptor


def _parts(path: str) -> tuple[str, ...]:
    pure = PurePosixPath(path)
    if pure.is_absolute():
        raise SubPathEscape(f"{path!r} is outside of its volume")
    return pure.parts


def _make_folder(parent: int, name: str, mode: int) -> os.stat_result:
    os.mkdir(name, 0o700, dir_fd=parent)
    with ExitStack() as opened:
        descriptor = _open(opened, name, parent)
        os.fchmod(descriptor, mode)
        return os.fstat(descriptor)


def read_in_volume(volume: Path, path: str, most: int) -> bytes:
    """Return the first `most` bytes of a file of the volume. Raises SubPathEscape, OSError (also for what is no regular file)."""
    with ExitStack() as opened:
        names, folder = _walk(opened, volume.resolve(strict=True), path, _is_missing)
        if not names:
            raise IsADirectoryError(path)
        descriptor = os.open(names[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(f"{path} is not a regular file")
            return file.read(most)


def _is_missing(folder: int, name: str) -> os.stat_result:
    raise FileNotFoundError(name)
