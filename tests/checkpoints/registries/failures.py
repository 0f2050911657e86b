"""How an action ended: a registration that fails is part of the tests."""

from __future__ import annotations

from collections.abc import Callable

from trainwright.checkpoints.registries.registration import RegistrationError
from trainwright.storage.errors import StorageError


def failure_of(action: Callable[[], object]) -> str:
    """The text of the typed error of an action, or an empty string if it succeeds."""
    try:
        action()
    except (RegistrationError, StorageError) as error:
        return str(error)
    return ""
