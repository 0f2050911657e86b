"""Errors of registrations. No message contains a token, nor the query or the user of an address."""

from __future__ import annotations

from trainwright.checkpoints.errors import CheckpointError


class RegistrationError(CheckpointError):
    """The registry refused the registration, or cannot represent what was asked for. A retry alone does not help."""


class RegistrationConflict(RegistrationError):
    """The registry has something else under this name, or was changed meanwhile. Nothing of others was changed."""


class MissingExtra(RegistrationError):
    """The client library of the registry is not installed."""

    def __init__(self, registry: str, extra: str):
        super().__init__(f"{registry} needs a client that is not installed: pip install 'trainwright[{extra}]'")
