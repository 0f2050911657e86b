"""The addresses and names of the pods of this node: each has an address of its own, and a hosts file with the names of the others."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from trainwright.api.objects import Obj, labels_of, name_of, namespace_of, uid_of
from trainwright.controlplane.node.network.host_names import short_host_name
from trainwright.controlplane.node.network.hosts_file import PodName, ServiceName, hosts_file
from trainwright.controlplane.node.network.pod_addresses import PodAddresses
from trainwright.controlplane.node.network.service_names import selects, service_names

HOSTS_FILE = "hosts"
"""In the folder of a pod."""
_MACHINE = Path("/etc/hosts")
log = logging.getLogger(__name__)


class _Known(NamedTuple):
    """The names of all pods and Services."""

    pods: list[PodName]
    services: list[ServiceName]


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
            except Exception as error:
                self._stale.add(uid_of(pod))
                log.warning("event=hosts_file_not_written pod=%s/%s error=%s", namespace_of(pod), name_of(pod), error)

    def _write(self, pod: Obj, known: _Known) -> None:
        machine = _MACHINE.read_text("utf-8", "replace") if pod["spec"].get("hostNetwork") and _MACHINE.exists() else ""
        api = self._api_address()
        address = api[0] if api else None
        text = hosts_file(pod, self.address_of(pod), known.pods, known.services, api_address=address, host_file=machine)
        if self._written.get(uid_of(pod)) != text:
            _rewrite(self._pods_folder / uid_of(pod) / HOSTS_FILE, text.encode())
            self._written[uid_of(pod)] = text

    def _known(self) -> _Known:
        pods = self._pods.values()
        named = [self._name(pod) for pod in pods if pod["spec"].get("subdomain")]
        return _Known(named, service_names(self._services.values(), [(pod, self.address_of(pod)) for pod in pods]))

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
