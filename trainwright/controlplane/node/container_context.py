"""The context of a container's processes: variables, working directory, and host folders of mounts.

Commands of exec sessions get the same context.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainwright.api import names
from trainwright.api.objects import Obj, labels_of, name_of, namespace_of
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.node.environment import VariableResolver, base_environment, expand_references
from trainwright.controlplane.node.path_mapping import PathMapping
from trainwright.controlplane.node.rendezvous import RendezvousPorts
from trainwright.controlplane.node.volumes import VolumeError, VolumeMaker


@dataclass(frozen=True)
class NodeServices:
    """The services of the node that workers use."""

    cluster: Cluster
    volumes: VolumeMaker
    ports: RendezvousPorts
    pods_folder: Path
    threads_for: Callable[[Obj], int]
    """Returns the number of OpenMP threads for a pod's processes."""


@dataclass(frozen=True)
class ContainerContext:
    """`rewrite` maps container paths and host names in a command word to those of the host."""

    env: dict[str, str]
    cwd: Path
    rewrite: Callable[[str], str]
    mounts: tuple[tuple[str, Path], ...]
    """Pairs of container path and host path."""


def create_context(pod: Obj, container: Obj, folder: Path, services: NodeServices) -> ContainerContext:
    """Create the volumes and folders of a container whose pod's files are in `folder`, and return its context.

    Raises VolumeError for a missing volume, object or key, OSError.
    """
    volume_paths = services.volumes.make(pod, folder)
    work, temporary, user_home = folder / "work", folder / "tmp", folder / "home"
    for host_path in (work, temporary, user_home):
        host_path.mkdir(mode=0o700, parents=True, exist_ok=True)
    mapping = _path_mapping(pod, container, volume_paths, services)
    hostname = str(pod["spec"].get("hostname") or name_of(pod))
    port = rendezvous_port(pod, services.ports)
    base = base_environment(pod, hostname, temporary, user_home, threads=services.threads_for(pod), port=port)
    env = VariableResolver(services.cluster, pod).variables(container, base, mapping.rewrite)
    directory = container.get("workingDir")
    cwd = (mapping.host_path(directory) or Path(directory)) if directory else work
    return ContainerContext(mapping.variables(env), cwd if cwd.is_dir() else work, mapping.rewrite, mapping.mounts)


def rendezvous_port(pod: Obj, ports: RendezvousPorts) -> int | None:
    """Return the port that replaces Trainer's fixed rendezvous port for the pods of this JobSet."""
    jobset = labels_of(pod).get(names.JOBSET_UID_LABEL)
    return ports.port_for(jobset) if jobset else None


def _path_mapping(pod: Obj, container: Obj, volume_paths: dict[str, Path], services: NodeServices) -> PathMapping:
    """Return the mapping of this container. Creates sub-paths, and checks that they are inside of their volume."""
    mounts = []
    for mount in container.get("volumeMounts") or []:
        volume = volume_paths.get(mount["name"])
        if volume is None:
            raise VolumeError(f"container {container['name']!r} mounts the volume {mount['name']!r}, which the pod does not have")
        sub = mount.get("subPath") or expand_references(mount.get("subPathExpr") or "", _own_variables(pod, container, services))
        host_path = (volume / sub).resolve() if sub else volume
        if not host_path.is_relative_to(volume.resolve()) and host_path != volume:
            raise VolumeError(f"container {container['name']!r}: the subPath {sub!r} is outside of the volume {mount['name']!r}")
        if sub:
            host_path.mkdir(mode=0o700, parents=True, exist_ok=True)
        mounts.append((mount["mountPath"], host_path))
    port = rendezvous_port(pod, services.ports)
    return PathMapping(tuple(mounts), pod["spec"].get("subdomain", ""), namespace_of(pod), port)


def _own_variables(pod: Obj, container: Obj, services: NodeServices) -> dict[str, str]:
    return VariableResolver(services.cluster, pod).variables(container, {}, lambda text: text)
