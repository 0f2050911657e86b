"""Errors of tools: one that cannot be installed, refuses its input, fails, or takes too long. No message contains a credential."""

from __future__ import annotations


class ToolError(Exception):
    """The base of all errors of tools."""


class ToolUnavailable(ToolError):
    """The environment of a tool is missing and cannot be built. The message says what to do."""


class BadToolInput(ToolError, ValueError):
    """The tool's input or options are unusable. A retry cannot succeed."""


class ToolFailed(ToolError):
    """The tool ended without a result. `lines` are the last ones of its output."""

    def __init__(self, message: str, lines: tuple[str, ...] = ()):
        super().__init__("\n  ".join((message, *lines)))
        self.lines = lines


class ToolTimeout(ToolError):
    """The tool did not end in time, and was ended with everything that it had started."""
