"""What is registered, and what came of it. It imports no registry, so that every registry can import it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from trainwright.storage.plain_files import ProgressCallback, no_progress

Registry = Literal["hub", "model-registry", "mlflow"]
DrawCurve = Callable[[Sequence[dict[str, Any]]], str]
"""Returns the loss curve of a log history as an SVG. Raises ValueError without a training loss."""


@dataclass(frozen=True)
class Registration:
    """An export in a registry.

    `version` is the commit in the Hub, the name of the version in the Model Registry, its number in MLflow. `uri` is where the
    registry has it, `digest` that of the export's manifest. `existed` is whether an earlier registration had been complete.
    """

    registry: Registry
    name: str
    version: str
    uri: str
    digest: str
    existed: bool


@dataclass(frozen=True)
class RegistrationOptions:
    """How an export is registered. A registry refuses what it cannot do."""

    version: str = ""
    """The name of the version: by default RUN-step-STEP in the Model Registry, no tag in the Hub. MLflow numbers its versions."""
    alias: str = ""
    """A name that is moved to this version last: a tag in the Hub, an alias in MLflow."""
    training_state: bool = False
    """Upload optimizer and random states, too. Hub only; the others refer to the whole export."""
    log_run: bool = False
    """Log the training metrics as a run. MLflow only."""
    base_model: str = ""
    """The model that was fine-tuned, `org/name` on the Hub, for the model card; by default what the configuration says."""
    datasets: tuple[str, ...] = ()
    """The datasets that it was trained on, `org/name` on the Hub, for the model card."""
    draw_curve: DrawCurve | None = None
    """Draws the loss curve of the model card."""
    scratch: Path | None = None
    """The folder in which files are fetched before they are uploaded; by default that for temporary files."""
    start_progress: Callable[[int], ProgressCallback] = field(default=lambda _total: no_progress)
    """Called with the number of bytes to fetch."""
