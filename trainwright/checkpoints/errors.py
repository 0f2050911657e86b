"""What can be wrong with a checkpoint or with an export of one."""

from __future__ import annotations


class CheckpointError(Exception):
    """A checkpoint or an export is not what it should be; the message says which file."""


class NoCheckpoint(CheckpointError):
    """There is no whole checkpoint where one was looked for."""
