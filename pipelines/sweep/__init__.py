"""The pipeline `sweep`."""

from trainwright.pipelines.sweep_pipeline.pipeline import sweep

__all__ = ["sweep"]
