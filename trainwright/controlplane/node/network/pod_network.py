"""The addresses, names and ports of the pods of this node: each has its own address, and a hosts file with the names of the others.

Addresses are of 127.0.0.0/8, so that all pods can listen on the same port of this machine. Their second number comes from the node's
home, so that several clusters on one machine stay out of each other's way. A Service's name leads to the pods that it selects, at the
ports that they listen on: nothing on this node translates ports, so that also Services with an address are reached directly.
Where names are not resolved, JobSets get other rendezvous ports than Trainer's fixed one.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Set
from pathlib import Path
from typing import NamedTuple

from trainwright.api.objects import Obj, labels_of, name_of, namespace_of, uid_of
from trainwright.controlplane.node.downward import NODE_ADDRESS
from trainwright.controlplane.node.isolation.plan import ContainerMount
from trainwright.controlplane.node.network.host_names import (
    PodName,
    ServiceName,
    host_name,
    hosts_file,
    resolver_file,
    short_host_name,
)

HOSTS_FILE = "hosts"
"""In the folder of a pod."""
_MACHINE_HOSTS = Path("/etc/hosts")
_MACHINE_RESOLVER = Path("/etc/resolv.conf")
_NETWORKS = 254
"""Of the form 127.N.0.0, from N = 1: 127.0.0.0 has the machine's own names and resolvers."""
_HOSTS = 254
"""In 127.N.M.0/24, without the two ends, which some programs take for a network and a broadcast."""
_SIZE = 256 * _HOSTS
_FIRST_POD = "-0-0"
log = logging.getLogger(__name__)


class PodNetwork:
    """The network of the pods below `pods_folder`, whose addresses are kept below `home`. Thread-safe."""

    def __init__(self, home: Path, pods_folder: Path, api_address: Callable[[], tuple[str, int] | None]):
        self._addresses = PodAddresses(home / "addresses.json", home)
        self._pods_folder, self._api_address = pods_folder, api_address
        self._pods: dict[str, Obj] = {}
        self._services: dict[str, Obj] = {}
        self._written: dict[str, str] = {}
        """Texts by the pods' UIDs: what is unchanged is not written again."""
        self._stale: set[str] = set()
        """UIDs of the pods whose file could not be written when another pod or a Service changed."""
        self._lock = threading.Lock()

    def address_of(self, pod: Obj) -> str:
        """Return the pod's address; allocates it on the first call. Raises OSError."""
        return self._addresses.address_for(uid_of(pod))

    def add(self, pod: Obj) -> None:
        """Write the pod's hosts file, and add its name to those of the others. Raises OSError for its own file only."""
        with self._lock:
            self.address_of(pod)  # without one it would keep the files of the others from being written
            self._pods[uid_of(pod)] = pod
            (self._pods_folder / uid_of(pod)).mkdir(mode=0o700, parents=True, exist_ok=True)
            self._write(pod, known := self._known())
            if self._is_named(pod):
                self._write_each(self._pods.values(), known)

    def remove(self, pod: Obj) -> None:
        """Forget a pod that is gone. Raises OSError."""
        with self._lock:
            self._written.pop(uid_of(pod), None)
            self._stale.discard(uid_of(pod))
            if self._pods.pop(uid_of(pod), None) is not None and self._is_named(pod):
                self._write_each(self._pods.values())
        self._addresses.release(uid_of(pod))

    def set_service(self, service: Obj, *, exists: bool) -> None:
        """Add or change the names of a Service, or remove them."""
        with self._lock:
            if exists:
                self._services[uid_of(service)] = service
            else:
                self._services.pop(uid_of(service), None)
            self._write_each(self._pods.values())

    def write_again(self) -> None:
        """Write the files that could not be written when something changed, as on a full disk."""
        with self._lock:
            if self._stale:
                self._write_each([pod for uid, pod in self._pods.items() if uid in self._stale])

    def release_others(self, known: set[str]) -> None:
        """Free the addresses of all pods but those with the UIDs `known`. Raises OSError."""
        self._addresses.release_others(known)

    def _write_each(self, pods: Iterable[Obj], known: _Known | None = None) -> None:
        """Write the files of pods which did not change themselves: what fails for one is kept for later, and keeps nobody."""
        known = known or self._known()
        for pod in pods:
            try:
                self._write(pod, known)
                self._stale.discard(uid_of(pod))
            except Exception as error:  # kept for `write_again`; the others are written all the same
                self._stale.add(uid_of(pod))
                log.warning("event=hosts_file_not_written pod=%s/%s error=%s", namespace_of(pod), name_of(pod), error)

    def _write(self, pod: Obj, known: _Known) -> None:
        machine = (
            _MACHINE_HOSTS.read_text("utf-8", "replace") if pod["spec"].get("hostNetwork") and _MACHINE_HOSTS.exists() else ""
        )
        api = self._api_address()
        address = api[0] if api else None
        text = hosts_file(pod, self.address_of(pod), known.pods, known.services, api_address=address, host_file=machine)
        if self._written.get(uid_of(pod)) != text:
            _rewrite(self._pods_folder / uid_of(pod) / HOSTS_FILE, text.encode())
            self._written[uid_of(pod)] = text

    def _known(self) -> _Known:
        pods = self._pods.values()
        named: list[PodName] = [
            (namespace_of(pod), short_host_name(pod), pod["spec"]["subdomain"], self.address_of(pod))
            for pod in pods
            if pod["spec"].get("subdomain")
        ]
        return _Known(named, service_names(self._services.values(), [(pod, self.address_of(pod)) for pod in pods]))

    def _is_named(self, pod: Obj) -> bool:
        """Whether other pods have names for this one."""
        of_services = (service for service in self._services.values() if namespace_of(service) == namespace_of(pod))
        return bool(pod["spec"].get("subdomain")) or any(selects(service, labels_of(pod)) for service in of_services)


class _Known(NamedTuple):
    """The names of all pods and Services."""

    pods: list[PodName]
    services: list[ServiceName]


def _rewrite(path: Path, data: bytes) -> None:
    """Write a file in place, since it is mounted in containers: one that replaced it would not be seen there."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except FileNotFoundError:  # the pod is being removed
        return
    try:
        os.fchmod(descriptor, 0o644)
        os.pwrite(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))
    finally:
        os.close(descriptor)


def network_mounts(pod: Obj, container: Obj, folder: Path) -> list[ContainerMount]:
    """Return the mounts of these files from `folder`, that of the pod, except where the container mounts something else.

    Raises ValueError for a host name that the kernel does not take, OSError.
    """
    files = {"/etc/hosts": folder / HOSTS_FILE, "/etc/hostname": _written(folder / "hostname", f"{host_name(pod)}\n")}
    machine = _MACHINE_RESOLVER.read_text("utf-8", "replace") if _MACHINE_RESOLVER.exists() else ""
    resolver = resolver_file(pod["spec"], machine)
    if resolver is not None:
        files[str(_MACHINE_RESOLVER)] = _written(folder / "resolv.conf", resolver)
    taken = {mount["mountPath"].rstrip("/") for mount in container.get("volumeMounts") or []}
    return [ContainerMount(place, path) for place, path in files.items() if place not in taken]


def _written(path: Path, text: str) -> Path:
    """Write a file once: others may have mounted it."""
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")
        path.chmod(0o644)
    return path


class PodAddresses:
    """Allocates addresses and stores them in a file, so that they survive a restart of the node. Thread-safe.

    Only Linux has all of 127.0.0.0/8 without configuration; elsewhere all pods share 127.0.0.1. Raises ValueError for a damaged file.
    """

    def __init__(self, file: Path, home: Path, platform: str = sys.platform):
        self._file = file
        self._lock = threading.Lock()
        digest = hashlib.sha256(os.fsencode(home.absolute())).digest()
        self._network = digest[0] % _NETWORKS + 1
        self._is_shared = platform != "linux" or not _can_listen(self._address(0))
        self._next = int.from_bytes(digest[1:5]) % _SIZE  # two homes of one network start in different places
        self._addresses: dict[str, str] = {}
        if not file.exists():
            return  # the first start of this node
        try:
            stored = json.loads(file.read_bytes())
            self._addresses = {str(uid): str(address) for uid, address in stored["addresses"].items()}
            self._next = int(stored["next"]) % _SIZE
        except (ValueError, KeyError, TypeError, AttributeError) as error:  # a new one would give running pods' addresses away
            raise ValueError(f"{file} is damaged: {error}; stop all pods and remove it") from error

    def address_for(self, pod_uid: str) -> str:
        """Return the address of a pod, allocated on the first call. Raises OSError if none is left or the file cannot be written."""
        if self._is_shared:
            return NODE_ADDRESS
        with self._lock:
            if pod_uid not in self._addresses:
                self._addresses[pod_uid] = self._free()
                self._save()
            return self._addresses[pod_uid]

    def release(self, pod_uid: str) -> None:
        """Free the address of a pod that is gone. It is the last one to be used again."""
        with self._lock:
            if self._addresses.pop(pod_uid, None) is not None:
                self._save()

    def release_others(self, known: Set[str]) -> None:
        """Free the addresses of all pods but those with the UIDs `known`."""
        with self._lock:
            kept = {uid: address for uid, address in self._addresses.items() if uid in known}
            if kept != self._addresses:
                self._addresses = kept
                self._save()

    def _free(self) -> str:
        taken = set(self._addresses.values())
        for _ in range(_SIZE):
            address = self._address(self._next)
            self._next = (self._next + 1) % _SIZE
            if address not in taken:
                return address
        raise OSError(f"all {_SIZE} addresses of pods are in use")

    def _address(self, index: int) -> str:
        return f"127.{self._network}.{index // _HOSTS}.{index % _HOSTS + 1}"

    def _save(self) -> None:
        _replace(self._file, {"next": self._next, "addresses": self._addresses})


def _can_listen(address: str) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError:  # not an address of this machine, such as on macOS
            return False
    return True


def service_names(services: Iterable[Obj], pods: Iterable[tuple[Obj, str]]) -> list[ServiceName]:
    """Return a name for each pod of each Service, in the order of the Services. `pods` have their addresses with them.

    Services without a selector have no pods, and an ExternalName leads out of the cluster.
    """
    known = [(namespace_of(pod), labels_of(pod), address) for pod, address in pods]
    return [
        (namespace_of(service), name_of(service), address)
        for service in services
        for namespace, labels, address in known
        if namespace == namespace_of(service) and selects(service, labels)
    ]


def selects(service: Obj, labels: dict[str, str]) -> bool:
    """Whether a Service selects a pod of its namespace with these labels."""
    spec = service.get("spec") or {}
    selector = spec.get("selector") or {}
    if spec.get("type") == "ExternalName" or not selector:
        return False  # its addresses are not those of pods
    return all(labels.get(key) == value for key, value in selector.items())


class RendezvousPorts:
    """Allocates rendezvous ports of JobSets and stores them in a file, so that they survive a restart of the node.

    Two local jobs on Trainer's fixed port 29500 would fail, or with JAX silently join. A JobSet has one port, that of its first pods.
    Frameworks in which every node listens, such as TensorFlow, name the port of each: all pods share this machine, so every other
    pod has another port.
    """

    def __init__(self, file: Path):
        self._file = file
        self._lock = threading.Lock()
        self._ports: dict[str, int] = json.loads(file.read_bytes()) if file.exists() else {}

    def port_for(self, jobset: str, host: str = "") -> int:
        """Return the port of a JobSet (by UID), or of one of its pods (by short host name), allocated on the first call.

        The first pod of a replicated job has the JobSet's. Raises OSError if no port is free.
        """
        owner = f"{jobset}/{host}" if host and not host.endswith(_FIRST_POD) else jobset
        with self._lock:
            if owner not in self._ports:
                self._ports[owner] = self._free_port()
                _replace(self._file, self._ports)
            return self._ports[owner]

    def release(self, jobset: str) -> None:
        """Give up the ports of a JobSet and its pods."""
        with self._lock:
            kept = {owner: port for owner, port in self._ports.items() if owner.partition("/")[0] != jobset}
            if len(kept) < len(self._ports):
                self._ports = kept
                _replace(self._file, self._ports)

    def _free_port(self) -> int:
        """Find a port that is free on all addresses, since torch's store binds all."""
        for _ in range(64):
            with socket.socket() as probe:
                probe.bind(("", 0))
                port: int = probe.getsockname()[1]
            if port not in self._ports.values():
                return port
        raise OSError("no free rendezvous port after 64 attempts")


def _replace(file: Path, content: object) -> None:
    """Replace a file at once, with one that only the node's user may read. Raises OSError."""
    temporary = file.with_suffix(".new")
    with open(temporary, "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as opened:
        json.dump(content, opened)
    os.replace(temporary, file)
