"""The exception of a container that cannot be started for now."""

from __future__ import annotations


class CannotStart(Exception):
    """A container cannot be started for now. `reason` is that of its waiting state, the text its message.

    `retry_seconds` says when to try again; None leaves that to the growing pauses after failures.
    """

    def __init__(self, reason: str, message: str, *, retry_seconds: float | None = None):
        super().__init__(message)
        self.reason, self.retry_seconds = reason, retry_seconds
