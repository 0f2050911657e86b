"""The component `evaluate`."""

from trainwright.components.evaluate_component.component import evaluate

__all__ = ["evaluate"]
