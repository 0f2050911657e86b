"""Key material that goes into Secrets: what a caller hands to `materialize`, which itself knows nothing random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

NO_KEY = "placeholder: the key is made where the object is created\n"
"""Deliberately no key: objects that were only printed or checked must not open any door."""


@dataclass(frozen=True)
class SshKeyPair:
    """`private` as PEM text, `public` as one line of authorized_keys with its newline."""

    private: str
    public: str


class Keys(Protocol):
    """Where keys come from. Called once for a TrainJob that needs one."""

    def ssh(self) -> SshKeyPair:
        """The key pair with which an MPI launcher reaches its workers."""
        ...

    def curve_certificate(self, name: str) -> str:
        """A ZeroMQ CURVE certificate, as text, with which Flux brokers trust each other."""
        ...


class PlaceholderKeys:
    """The same text every time, so that materialization stays a pure function."""

    def ssh(self) -> SshKeyPair:
        return SshKeyPair(NO_KEY, NO_KEY)

    def curve_certificate(self, name: str) -> str:
        return f"# {name}\n{NO_KEY}"
