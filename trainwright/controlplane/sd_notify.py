"""Tells systemd when the control plane is ready, and when it stops: the protocol of services with `Type=notify`.

Source: sd_notify(3). Without systemd, which names its socket in NOTIFY_SOCKET, nothing is sent.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import MutableMapping
from dataclasses import dataclass

VARIABLE = "NOTIFY_SOCKET"
_SECONDS = 2.0
"""A full socket of a busy service manager must not keep the control plane from stopping."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServiceManager:
    """The service manager that listens at this address, or none."""

    address: str = ""

    @classmethod
    def take_from(cls, environment: MutableMapping[str, str]) -> ServiceManager:
        """Return the one that the environment names, and remove it there: child processes must not report for this one."""
        return cls(environment.pop(VARIABLE, ""))

    def notify(self, *assignments: str) -> None:
        """Send assignments such as `READY=1`. A failure is logged: the control plane works without its service manager."""
        if not self.address:
            return
        address = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address  # @: the abstract namespace
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(_SECONDS)
                sender.connect(address)
                sender.send("\n".join(assignments).encode())
        except OSError as error:
            log.warning("event=service_manager_not_notified error=%s", error)
