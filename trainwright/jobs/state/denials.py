"""What a client may not read, for a minute: a permission may be granted while it waits, and an API server may refuse for a moment."""

from __future__ import annotations

import time

ASKED_AGAIN_SECONDS = 60.0
"""After this time what was refused is asked for again."""


class Denials:
    """The resources that were refused within the last minute. Not thread-safe."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def note(self, what: str) -> None:
        """Note that `what` was refused just now."""
        self._until[what] = time.monotonic() + ASKED_AGAIN_SECONDS

    def __contains__(self, what: str) -> bool:
        return time.monotonic() < self._until.get(what, float("-inf"))
