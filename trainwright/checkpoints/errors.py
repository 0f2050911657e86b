"""Errors of checkpoints and exports."""

from __future__ import annotations


class CheckpointError(Exception):
    """A checkpoint or an export is invalid. The message names the file."""


class NoCheckpoint(CheckpointError):
    """No complete checkpoint or export was found."""


class PromotionConflict(CheckpointError):
    """Another export was promoted meanwhile. The decision has to be made again, against that one."""


class DivergedCheckpoint(CheckpointError, ValueError):
    """The training of a checkpoint had diverged when it was written: its weights are of no use. Every retry would find the same."""


class FigureNotFinite(CheckpointError, ValueError):
    """A figure that is to justify a promotion is NaN or infinite. Every retry would find the same."""
