"""The component `preprocess_dataset`."""

from trainwright.components.preprocess_dataset.component import preprocess_dataset

__all__ = ["preprocess_dataset"]
