"""The component promote_model."""

from trainwright.components.promote_model.component import promote_model

__all__ = ["promote_model"]
