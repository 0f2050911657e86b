"""The pipeline `sweep`."""

from trainwright.pipelines.sweep.pipeline import sweep

__all__ = ["sweep"]
