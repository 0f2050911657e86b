"""The pipeline `retrain`."""

from trainwright.pipelines.retrain_pipeline.pipeline import retrain

__all__ = ["retrain"]
