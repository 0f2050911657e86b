"""Finds complete checkpoints, exports them with a manifest, and verifies and restores exports."""

from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.export_run import export_run
from trainwright.checkpoints.find import Checkpoint, find_checkpoints, latest_checkpoint
from trainwright.checkpoints.manifest import Manifest
from trainwright.checkpoints.pointers import Metric
from trainwright.checkpoints.publish import ExportOptions, ExportResult, export_checkpoint
from trainwright.checkpoints.restore import restore_checkpoint
from trainwright.checkpoints.verify import verify_export

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "ExportOptions",
    "ExportResult",
    "Manifest",
    "Metric",
    "NoCheckpoint",
    "export_checkpoint",
    "export_run",
    "find_checkpoints",
    "latest_checkpoint",
    "restore_checkpoint",
    "verify_export",
]
