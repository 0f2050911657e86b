"""The addresses and names of the pods of this node: each has an address of its own, and a hosts file with the names of the others."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from trainwright.api.objects import Obj, labels_of, namespace_of, uid_of
from trainwright.controlplane.node.network.host_names import short_host_name
from trainwright.controlplane.node.network.hosts_file import PodName, hosts_file
from trainwright.controlplane.node.network.pod_addresses import PodAddresses
from trainwright.controlplane.node.network.service_names import selects, service_names

HOSTS_FILE = "hosts"
"""In the folder of a pod."""
_MACHINE = Path("/etc/hosts")


class PodNetwork:
    """The network of the pods below `pods_folder`, whose addresses are kept below `home`. Thread-safe."""

    def __init__(self, home: Path, pods_folder: Path, api_address: Callable[[], tuple[str, int] | None]):
        self._addresses = PodAddresses(home / "addresses.json", home)
        self._pods_folder, self._api_address = pods_folder, api_address
        self._pods: dict[str, Obj] = {}
        self._services: dict[str, Obj] = {}
        self._written: dict[str, str] = {}
        """Texts by the pods' UIDs: what is unchanged is not written again."""
        self._lock = threading.Lock()

    def address_of(self, pod: Obj) -> str:
        """Return the pod's address; allocates it on the first call. Raises OSError."""
        return self._addresses.address_for(uid_of(pod))

    def add(self, pod: Obj) -> None:
        """Write the pod's hosts file, and add its name to those of the others. Raises OSError."""
        with self._lock:
            self._pods[uid_of(pod)] = pod
            (self._pods_folder / uid_of(pod)).mkdir(mode=0o700, parents=True, exist_ok=True)
            self._write(self._pods.values() if self._is_named(pod) else [pod])

    def remove(self, pod: Obj) -> None:
        """Forget a pod that is gone. Raises OSError."""
        with self._lock:
            self._written.pop(uid_of(pod), None)
            if self._pods.pop(uid_of(pod), None) is not None and self._is_named(pod):
                self._write(self._pods.values())
        self._addresses.release(uid_of(pod))

    def set_service(self, service: Obj, *, exists: bool) -> None:
        """Add or change the names of a Service, or remove them. Raises OSError."""
        with self._lock:
            if exists:
                self._services[uid_of(service)] = service
            else:
                self._services.pop(uid_of(service), None)
            self._write(self._pods.values())

    def release_others(self, known: set[str]) -> None:
        """Free the addresses of all pods but those with the UIDs `known`. Raises OSError."""
        self._addresses.release_others(known)

    def _write(self, pods: Iterable[Obj]) -> None:
        named = [self._name(pod) for pod in self._pods.values() if pod["spec"].get("subdomain")]
        api = self._api_address()
        services = service_names(self._services.values(), [(pod, self.address_of(pod)) for pod in self._pods.values()])
        for pod in pods:
            machine = _MACHINE.read_text("utf-8", "replace") if pod["spec"].get("hostNetwork") and _MACHINE.exists() else ""
            address = api[0] if api else None
            text = hosts_file(pod, self.address_of(pod), named, services, api_address=address, host_file=machine)
            if self._written.get(uid_of(pod)) != text:
                _rewrite(self._pods_folder / uid_of(pod) / HOSTS_FILE, text.encode())
                self._written[uid_of(pod)] = text

    def _is_named(self, pod: Obj) -> bool:
        """Whether other pods have names for this one."""
        of_services = (service for service in self._services.values() if namespace_of(service) == namespace_of(pod))
        return bool(pod["spec"].get("subdomain")) or any(selects(service, labels_of(pod)) for service in of_services)

    def _name(self, pod: Obj) -> PodName:
        return namespace_of(pod), short_host_name(pod), pod["spec"]["subdomain"], self.address_of(pod)


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
