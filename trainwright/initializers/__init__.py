"""Prepares datasets and models: downloads them, verifies them, converts them to the training layout, and writes a receipt.

The same functions run in a TrainJob's initializer step and in the standalone component and operator. Modules are imported lazily
(PEP 562), because components and operators import this package where nothing is prepared.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
_MODULES = {
    "DatasetOptions": "trainwright.initializers.dataset",
    "InitializerError": "trainwright.initializers.errors",
    "Prepared": "trainwright.workspace.prepared",
    "Receipt": "trainwright.workspace.receipt",
    "initialize_dataset": "trainwright.initializers.dataset",
    "initialize_model": "trainwright.initializers.model",
    "prepare_dataset": "trainwright.initializers.dataset",
    "prepare_model": "trainwright.initializers.model",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
