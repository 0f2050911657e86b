"""The files by which a container with a file system of its own knows its host name and the names of others.

The hosts file is kept by `pod_network`; the others do not change while the pod runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainwright.api.objects import Obj
from trainwright.controlplane.node.isolation.plan import ContainerMount
from trainwright.controlplane.node.network.host_names import host_name
from trainwright.controlplane.node.network.pod_network import HOSTS_FILE
from trainwright.controlplane.node.network.resolver_file import resolver_file

_MACHINE = Path("/etc/resolv.conf")


def network_mounts(pod: Obj, container: Obj, folder: Path) -> list[ContainerMount]:
    """Return the mounts of these files from `folder`, that of the pod, except where the container mounts something else.

    Raises ValueError for a host name that the kernel does not take, OSError.
    """
    taken = {mount["mountPath"].rstrip("/") for mount in container.get("volumeMounts") or []}
    return [ContainerMount(place, path) for place, path in _files(pod, folder) if place not in taken]


def _files(pod: Obj, folder: Path) -> Iterator[tuple[str, Path]]:
    yield "/etc/hosts", folder / HOSTS_FILE
    yield "/etc/hostname", _written(folder / "hostname", f"{host_name(pod)}\n")
    machine = _MACHINE.read_text("utf-8", "replace") if _MACHINE.exists() else ""
    resolver = resolver_file(pod["spec"], machine)
    if resolver is not None:
        yield str(_MACHINE), _written(folder / "resolv.conf", resolver)


def _written(path: Path, text: str) -> Path:
    """Write a file once: others may have mounted it."""
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")
        path.chmod(0o644)
    return path
