"""Checkpoint formats: which folders are checkpoints, when one is complete, and which files only serve to resume."""

from trainwright.checkpoints.formats.format import CheckpointFormat, OutputFormat
from trainwright.checkpoints.formats.registry import checkpoint_format, checkpoint_formats, weights_only_files

__all__ = ["CheckpointFormat", "OutputFormat", "checkpoint_format", "checkpoint_formats", "weights_only_files"]
