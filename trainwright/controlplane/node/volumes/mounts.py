"""What a container mounts: paths in the container and the files or folders of its pod's volumes that are found there.

Source of rules and messages: `makeMounts` in pkg/kubelet/kubelet_pods.go of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trainwright.api.objects import Obj, named
from trainwright.controlplane.node.expansion import expand_references, references_in
from trainwright.controlplane.node.isolation.plan import ContainerMount, clean_target
from trainwright.controlplane.node.isolation.root_paths import is_reserved
from trainwright.controlplane.node.volumes.atomic_files import DATA
from trainwright.controlplane.node.volumes.errors import ConfigError
from trainwright.controlplane.node.volumes.maker import MadeVolume
from trainwright.controlplane.node.volumes.sub_paths import SubPathEscape, find_sub_path


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
    except SubPathEscape as error:
        raise ConfigError(f"failed to prepare subPath {where}: it leads out of the volume") from error
    except (OSError, ValueError) as error:  # a NUL in a variable is a ValueError
        raise ConfigError(f"failed to prepare subPath {where}") from error
    return _lasting(volume, found) if volume.is_projected else found


def _lasting(volume: MadeVolume, found: Path) -> Path:
    """Return a path through `..data`: the folder behind it, whose name begins alike, is replaced as soon as the content changes."""
    top = volume.path.resolve()
    version, *names = (*found.relative_to(top).parts, "")
    return top.joinpath(DATA, *names) if version.startswith("..") else found
