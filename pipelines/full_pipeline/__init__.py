"""The pipeline full_pipeline."""

from trainwright.pipelines.full_pipeline.pipeline import full_pipeline

__all__ = ["full_pipeline"]
