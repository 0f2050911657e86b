"""What a container's processes find around them: variables, working folder, mount paths that lead to folders of the host.

A command that is executed in a running container later finds the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainwright.api import names
from trainwright.api.objects import Obj, labels_of, name_of, namespace_of
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.node.environment import VariableResolver, base_environment, expanded
from trainwright.controlplane.node.rendezvous import RendezvousPorts
from trainwright.controlplane.node.rewriting import Rewriting
from trainwright.controlplane.node.volumes import VolumeError, VolumeMaker


@dataclass(frozen=True)
class NodeServices:
    """What a worker needs of its node."""

    cluster: Cluster
    volumes: VolumeMaker
    ports: RendezvousPorts
    pods_folder: Path
    threads_for: Callable[[Obj], int]
    """OpenMP threads for a pod's processes."""


@dataclass(frozen=True)
class Surroundings:
    """`rewrite` makes of a word of a command what the process needs."""

    env: dict[str, str]
    cwd: Path
    rewrite: Callable[[str], str]
    mounts: tuple[tuple[str, Path], ...]
    """Paths in the container and on the host."""


def surroundings(pod: Obj, container: Obj, folder: Path, services: NodeServices) -> Surroundings:
    """Those of a container whose pod has its files in `folder`; makes the volumes and folders that it needs.

    Raises VolumeError for a volume or reference that leads nowhere, OSError.
    """
    made = services.volumes.make(pod, folder)
    work, temporary = folder / "work", folder / "tmp"
    for place in (work, temporary):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    rewriting = _rewriting(pod, container, made, services)
    hostname = str(pod["spec"].get("hostname") or name_of(pod))
    base = base_environment(pod, hostname, temporary, threads=services.threads_for(pod))
    env = VariableResolver(services.cluster, pod).variables(container, base, rewriting.text)
    directory = container.get("workingDir")
    cwd = (rewriting.host_path(directory) or Path(directory)) if directory else work
    return Surroundings(rewriting.variables(env), cwd if cwd.is_dir() else work, rewriting.text, rewriting.mounts)


def rendezvous_port(pod: Obj, ports: RendezvousPorts) -> int | None:
    """What stands in for Trainer's fixed rendezvous port in the pods of this one's JobSet."""
    jobset = labels_of(pod).get(names.JOBSET_UID_LABEL)
    return ports.port_for(jobset) if jobset else None


def _rewriting(pod: Obj, container: Obj, made: dict[str, Path], services: NodeServices) -> Rewriting:
    """Mount paths and names of this container; makes sure that sub-paths exist and stay in their volume."""
    mounts = []
    for mount in container.get("volumeMounts") or []:
        volume = made.get(mount["name"])
        if volume is None:
            raise VolumeError(f"container {container['name']!r} mounts the volume {mount['name']!r}, which the pod does not have")
        sub = mount.get("subPath") or expanded(mount.get("subPathExpr") or "", _own_variables(pod, container, services))
        place = (volume / sub).resolve() if sub else volume
        if not place.is_relative_to(volume.resolve()) and place != volume:
            raise VolumeError(f"container {container['name']!r}: the subPath {sub!r} leads out of the volume {mount['name']!r}")
        if sub:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        mounts.append((mount["mountPath"], place))
    port = rendezvous_port(pod, services.ports)
    return Rewriting(tuple(mounts), pod["spec"].get("subdomain", ""), namespace_of(pod), port)


def _own_variables(pod: Obj, container: Obj, services: NodeServices) -> dict[str, str]:
    return VariableResolver(services.cluster, pod).variables(container, {}, lambda text: text)
