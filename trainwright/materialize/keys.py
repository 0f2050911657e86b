"""Key material for Secrets, passed to `materialize` by the caller, because `materialize` is deterministic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

NO_KEY = "placeholder: the key is made where the object is created\n"
"""Deliberately not a key: objects that are only printed or checked must not contain usable keys."""


@dataclass(frozen=True)
class SshKeyPair:
    """`private` is PEM text, `public` a line of authorized_keys with a newline."""

    private: str
    public: str


class Keys(Protocol):
    """A source of keys, called once for a TrainJob that needs one."""

    def ssh(self) -> SshKeyPair:
        """Return the key pair for ssh from an MPI launcher to its workers."""
        ...

    def curve_certificate(self, name: str) -> str:
        """Return a ZeroMQ CURVE certificate, as text, shared by the Flux brokers of a job."""
        ...

    def tls(self, host: str) -> str:
        """Return a self-signed certificate for a name and its private key, both as PEM in one text."""
        ...

    def token(self) -> str:
        """Return a token of 256 random bits, as hexadecimal digits."""
        ...


class PlaceholderKeys:
    """A constant text, so that materialization is a pure function."""

    def ssh(self) -> SshKeyPair:
        return SshKeyPair(NO_KEY, NO_KEY)

    def curve_certificate(self, name: str) -> str:
        return f"# {name}\n{NO_KEY}"

    def tls(self, host: str) -> str:
        return f"# {host}\n{NO_KEY}"

    def token(self) -> str:
        return NO_KEY
