"""Prepares datasets and models: downloads them, verifies them, converts them to the training layout, and writes a receipt.

The same functions run in a TrainJob's initializer step and in the standalone component and operator.
"""

from trainwright.initializers.dataset import DatasetOptions, initialize_dataset, prepare_dataset
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.model import initialize_model, prepare_model
from trainwright.workspace.prepared import Prepared
from trainwright.workspace.receipt import Receipt

__all__ = [
    "DatasetOptions",
    "InitializerError",
    "Prepared",
    "Receipt",
    "initialize_dataset",
    "initialize_model",
    "prepare_dataset",
    "prepare_model",
]
