"""The component `initialize_model`."""

from trainwright.components.initialize_model.component import initialize_model

__all__ = ["initialize_model"]
