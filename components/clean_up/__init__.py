"""The component clean_up."""

from trainwright.components.clean_up.component import clean_up

__all__ = ["clean_up"]
