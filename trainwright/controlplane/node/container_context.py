"""The context of a container's processes: variables, working directory, mounts, and what its supervisor must set up for it.

Commands of exec sessions, probes and hooks get the same context. The file of the termination message is one of the mounts; it is read
back here, when a run has ended.
"""

from __future__ import annotations

import functools
import os
import stat
import subprocess
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainwright.api import names
from trainwright.api.objects import Obj, copy_of, labels_of, namespace_of, uid_of
from trainwright.api.quantities import parse_quantity
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.environments import Preparations
from trainwright.controlplane.node.container import RUN_MARK, ContainerRun, run_mark
from trainwright.controlplane.node.container_logs import read_blocks, strip_headers, tail_position
from trainwright.controlplane.node.environment import VariableResolver, base_environment
from trainwright.controlplane.node.event_recorder import EventRecorder
from trainwright.controlplane.node.expansion import PathMapping
from trainwright.controlplane.node.images import ImageCatalogue
from trainwright.controlplane.node.isolation.plan import (
    CONTAINER_UMASK,
    ContainerMount,
    clean_target,
    container_identity,
    isolation_plan,
)
from trainwright.controlplane.node.isolation.root_paths import is_reserved
from trainwright.controlplane.node.isolation.support import Support
from trainwright.controlplane.node.isolation.visible import python_folders, python_folders_of
from trainwright.controlplane.node.lifecycle.container_state import Termination
from trainwright.controlplane.node.lifecycle.termination_message import DEFAULT_PATH, FILE_BYTES, LOG_LINES, termination_message
from trainwright.controlplane.node.limits.control_groups import ControlGroups
from trainwright.controlplane.node.mpi import remote_shell
from trainwright.controlplane.node.mpi.stand_in import is_served, mpi_variables
from trainwright.controlplane.node.network.host_names import host_name
from trainwright.controlplane.node.network.pod_network import RendezvousPorts, network_mounts
from trainwright.controlplane.node.supervisor.start_supervisor import StartSupervisor, start_directly
from trainwright.controlplane.node.volumes.maker import VolumeMaker
from trainwright.controlplane.node.volumes.mounts import container_mounts
from trainwright.controlplane.node.volumes.projections import API_ACCESS_VOLUME, api_access_mounts
from trainwright.controlplane.node.volumes.references import ConfigError
from trainwright.controlplane.node.warm_start.warm_parent import WarmParent


@dataclass(frozen=True)
class ContainerContext:
    """`rewrite` maps container paths and host names in a command word to those of the host."""

    env: dict[str, str]
    cwd: Path
    rewrite: Callable[[str], str]
    mounts: tuple[tuple[str, Path], ...]
    """Pairs of container path and host path; empty where the container's own paths are real."""
    references: dict[str, str]
    """The variables to which `$(NAME)` refers in commands."""
    more: Obj = field(default_factory=dict)
    """Further keys of the supervisor's spec."""

    @property
    def is_isolated(self) -> bool:
        """Whether the processes have namespaces of their own."""
        return "isolation" in self.more


@dataclass(frozen=True)
class NodeServices:
    """The services of the node that workers use."""

    cluster: Cluster
    volumes: VolumeMaker
    ports: RendezvousPorts
    pods_folder: Path
    threads_for: Callable[[Obj], int]
    """Returns the number of OpenMP threads for a pod's processes."""
    events: EventRecorder
    images: ImageCatalogue
    environments: Preparations
    isolation: Support
    pool: Executor
    """For probes and hooks."""
    address_of: Callable[[Obj], str]
    """Returns the pod's address; allocates it on the first call."""
    api_address: Callable[[], tuple[str, int] | None]
    """Returns host and port of the API server."""
    mpi_folder_of: Callable[[Obj], Path | None]
    """Returns the folder with the socket of the pod's MPI job, for its pods only; None without a JobSet."""
    hidden: tuple[Path, ...] = ()
    """Folders of the host that no container may see."""
    shared: tuple[Path, ...] = ()
    """Folders of the host that all containers may see and change."""
    cgroups: ControlGroups | None = None
    """None where this user may create none: supervisors then watch over memory limits."""
    fifo: Path | None = None
    """Where supervisors say that something has changed; None if workers poll."""
    start_supervisor: StartSupervisor = start_directly
    warm_parent: WarmParent | None = None


def create_context(pod: Obj, container: Obj, run: ContainerRun, folder: Path, services: NodeServices) -> ContainerContext:
    """Create the files of a run of a container, whose pod's files are in `folder`, and return its context.

    Raises VolumeError, ConfigError for what the container refers to and is not there, OSError.
    """
    pod = _with_address(pod, services)
    volumes = services.volumes.make(pod, folder)
    isolated = services.isolation.available
    port = rendezvous_port(pod, services.ports)
    scratch = {name: folder / name for name in ("work", "tmp", "home")}
    if not isolated:
        for path in scratch.values():
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
    image = services.images.find(str(container.get("image") or ""))
    image_user = image.user if image is not None else None
    identity = container_identity(pod["spec"], container, is_root=os.geteuid() == 0, image_user=image_user)
    base = base_environment(
        pod,
        container,
        scratch["tmp"],
        scratch["home"],
        threads=services.threads_for(pod),
        port=port,
        isolated=isolated,
        uid=identity.uid,
        image=image,
    )
    resolver = VariableResolver(services.cluster, pod, services.api_address(), volumes)
    mounts = [
        *container_mounts(pod, container, volumes, resolver.own_variables(container)),
        *_own_mounts(container, run),
        *api_access_mounts(container, volumes[API_ACCESS_VOLUME].path if API_ACCESS_VOLUME in volumes else None),
    ]
    if isolated:
        mounts += network_mounts(pod, container, folder)
        if is_served(container, image) and (mpi_folder := services.mpi_folder_of(pod)) is not None:
            mounts.append(ContainerMount(remote_shell.FOLDER, mpi_folder, read_only=True))
    mapped = () if isolated else tuple((m.container_path, m.host_path) for m in mounts if m.host_path is not None)
    mapping = PathMapping(
        mapped,
        pod["spec"].get("subdomain", ""),
        namespace_of(pod),
        port,
        lambda host: rendezvous_port(pod, services.ports, host),
        keeps_names=isolated,
    )
    own = mapping.variables(resolver.own_variables(container, mapping.rewrite))
    marks = {} if isolated else {RUN_MARK: run_mark(run, uid_of(pod))}
    mpi = mpi_variables(image, own, pod["status"]["podIP"]) if image is not None and is_served(container, image) else {}
    env = {**base, **{name: mapping.rewrite(value) for name, value in mpi.items()}, **own, **marks}
    directory = container.get("workingDir") or (image.working_dir if image is not None else None)
    more: Obj = {"notify": str(services.fifo), "notify_name": uid_of(pod)} if services.fifo is not None else {}
    if (memory := ((container.get("resources") or {}).get("limits") or {}).get("memory")) is not None:
        more["memory_limit"] = parse_quantity(memory).ceiling()
    if isolated:
        more["umask"] = CONTAINER_UMASK
        more["isolation"] = isolation_plan(
            pod["spec"],
            container,
            mounts,
            hostname=host_name(pod),
            identity=identity,
            layer=run.folder / "layer",
            visible=_visible(image.environment if image is not None else None),
            hidden=services.hidden,
            shared=services.shared,
            is_root=os.geteuid() == 0,
        )
        return ContainerContext(env, Path(directory or "/"), mapping.rewrite, (), own, more)
    cwd = (mapping.host_path(directory) or Path(directory)) if directory else scratch["work"]
    return ContainerContext(env, cwd if cwd.is_dir() else scratch["work"], mapping.rewrite, mapped, own, more)


def _with_address(pod: Obj, services: NodeServices) -> Obj:
    """Return the pod with its address, which its variables may refer to before its status has been published."""
    pod = copy_of(pod)
    address = services.address_of(pod)
    pod.setdefault("status", {}).update(podIP=address, podIPs=[{"ip": address}])
    return pod


def _own_mounts(container: Obj, run: ContainerRun) -> list[ContainerMount]:
    """Return the mount of the termination message, which a pod's author does not name."""
    path = container.get("terminationMessagePath") or DEFAULT_PATH
    if is_reserved(clean_target(path), None, is_volume=False):
        raise ConfigError(f"terminationMessagePath of container {container['name']!r}: no file can be mounted at {path}")
    message = message_file(run)
    message.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    message.touch(0o666)
    message.chmod(0o666)
    return [ContainerMount(path, message)]


@functools.cache
def _visible(environment: Path | None) -> tuple[Path, ...]:
    """Return the folders of the Python environment in which a container's programs are found. Raises ConfigError, OSError."""
    own = python_folders()
    if environment is None:
        return tuple(own)  # the image is unknown, and runs in the environment of the node
    python = environment / "bin" / "python"
    try:
        return (*own, *python_folders_of(python), environment)
    except (subprocess.SubprocessError, ValueError) as error:  # its Python does not run, or prints something else
        raise ConfigError(f"the environment that images.yaml names cannot be used: {python}: {error}") from error


def rendezvous_port(pod: Obj, ports: RendezvousPorts, host: str = "") -> int | None:
    """Return the port that replaces Trainer's fixed rendezvous port for the pods of this JobSet, or where `host` listens."""
    jobset = labels_of(pod).get(names.JOBSET_UID_LABEL)
    return ports.port_for(jobset, host) if jobset else None


def with_message(container: Obj, run: ContainerRun, ended: Termination) -> Termination:
    """Return `ended` with the run's termination message, unless the node itself has one for it."""
    if ended.message:
        return ended  # such as the error of its start: the container has written none
    log_end = b""
    if ended.code and container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
        log_end = b"".join(
            strip_headers(block) for block in read_blocks(run.log, tail_position(run.log, LOG_LINES), lambda: True)
        )
    message = termination_message(container, ended.code, _end_of(message_file(run)), log_end)
    return replace(ended, message=message)


def _end_of(path: Path) -> bytes:
    """The end of a file that the container has written. It may have replaced it by anything: only a regular file is read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # removed by the container, or with its pod
        return b""
    try:
        found = os.fstat(descriptor)
        return os.pread(descriptor, FILE_BYTES, max(found.st_size - FILE_BYTES, 0)) if stat.S_ISREG(found.st_mode) else b""
    finally:
        os.close(descriptor)


def message_file(run: ContainerRun) -> Path:
    """Return the file that is mounted at the container's terminationMessagePath; beside the run's folder, as it is made first."""
    return run.folder.with_name(f"{run.attempt}.termination-log")
