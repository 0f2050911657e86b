"""Changes a small file that several processes change: it is written only if it is as it was read, and read again otherwise."""

from __future__ import annotations

from collections.abc import Callable

from trainwright.backoff import Backoff
from trainwright.storage.errors import NotFound, StorageError
from trainwright.storage.store import Store

_ATTEMPTS, _BACKOFF = 12, Backoff(0.05, 1.0, jitter=1.0)
"""An attempt fails only if another process has succeeded meanwhile."""


def read_if_present(store: Store, key: str) -> bytes | None:
    """Return the contents of a small file, or None if it does not exist. Raises StorageError."""
    try:
        return store.read(key)
    except NotFound:
        return None


def change_file(store: Store, key: str, change: Callable[[bytes | None], bytes | None], *, advice: str = "try again") -> None:
    """Write what `change` returns for the contents (None: there is no file). If it returns None, nothing is written.

    Raises StorageError, with the advice, if other processes have changed the file at every attempt.
    """
    for _ in _BACKOFF.attempts(_ATTEMPTS):
        old = read_if_present(store, key)
        new = change(old)
        if new is None or new == old or store.compare_and_swap(key, old, new):
            return
    raise StorageError(f"{store.uri.join(key)}: changed by others at every attempt; {advice}")
