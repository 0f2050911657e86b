"""The component register_model."""

from trainwright.components.register_model_component.component import register_model

__all__ = ["register_model"]
