"""The component `evaluate`."""

from trainwright.components.evaluate.component import evaluate

__all__ = ["evaluate"]
