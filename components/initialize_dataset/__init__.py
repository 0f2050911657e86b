"""The component `initialize_dataset`."""

from trainwright.components.initialize_dataset.component import initialize_dataset

__all__ = ["initialize_dataset"]
