"""The component register_model."""

from trainwright.components.register_model.component import register_model

__all__ = ["register_model"]
