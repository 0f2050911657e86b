"""The component `train`, and components made of training functions."""

from trainwright.components.train_component.component import train
from trainwright.components.train_component.function import train_function

__all__ = ["train", "train_function"]
