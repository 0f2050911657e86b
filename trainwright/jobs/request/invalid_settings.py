"""The error of settings that cannot be used: every problem with its path."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class InvalidSettings(ValueError):
    """Settings that cannot be used. `problems` has a path, such as `limits.run_timeout_seconds`, and a message for each."""

    def __init__(self, problems: list[tuple[str, str]]):
        self.problems = problems
        super().__init__("; ".join(f"{path}: {message}" if path else message for path, message in problems))


@contextmanager
def within(path: str, separator: str = ".") -> Iterator[None]:
    """Put a path before those of the problems of settings that are parsed in the block."""
    try:
        yield
    except InvalidSettings as error:
        raise InvalidSettings(
            [(f"{path}{separator}{inner}" if inner else path, message) for inner, message in error.problems]
        ) from None
