"""The component `train`, and `train_function` for components from training functions."""

from trainwright.components.train.component import train
from trainwright.components.train.function import train_function

__all__ = ["train", "train_function"]
