"""The component roll_back_model."""

from trainwright.components.roll_back_model.component import roll_back_model

__all__ = ["roll_back_model"]
