"""The component `train`."""

from trainwright.components.train_component.component import train

__all__ = ["train"]
