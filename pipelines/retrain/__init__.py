"""The pipeline `retrain`."""

from trainwright.pipelines.retrain.pipeline import retrain

__all__ = ["retrain"]
