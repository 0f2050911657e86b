"""The component clean_up."""

from trainwright.components.clean_up_component.component import clean_up

__all__ = ["clean_up"]
