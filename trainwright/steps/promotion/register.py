"""Registers an export as a step of a pipeline: with the registry's client of this environment, else with one that is installed.

MLflow without a server keeps its models in a file of SQLite on the workspace.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.registries.registration import Registration, Registry, RegistryTarget
from trainwright.steps.promotion import register_program
from trainwright.steps.requests import RegisterModel
from trainwright.storage.open import check_mounted
from trainwright.tools.environment import tool_environment
from trainwright.tools.errors import ToolFailed
from trainwright.tools.run_tool import run_tool
from trainwright.tracking.targets import REQUIREMENTS as TRACKING_REQUIREMENTS
from trainwright.tracking.targets import sqlite_address

_CLIENTS: dict[Registry, tuple[str, ...]] = {
    "hub": ("huggingface_hub>=1.0,<3",),
    "model-registry": ("model-registry>=0.3.15,<0.4",),
    "mlflow": TRACKING_REQUIREMENTS["mlflow"][:1],
}
_ADDRESS = "MLFLOW_TRACKING_URI"
_VARIABLES = ("HF_*", "MLFLOW_*", "MODEL_REGISTRY_*", "AWS_*", "GOOGLE_*", "STORAGE_EMULATOR_HOST", "AZURE_*", "TRAINWRIGHT_*")


class RegistrationFailed(CheckpointError):
    """The registration in the environment of the client failed."""


def register_run_export(asked: RegisterModel, *, folder: Path | None = None, on_line: Callable[[str], None]) -> Registration:
    """Register an export, see `register_export`.

    Args:
        asked: The export, the registry, and how it is registered there.
        folder: Where MLflow keeps `mlflow.db` if MLFLOW_TRACKING_URI names no server.
        on_line: Called with lines about the progress.

    Raises the errors of `register_export`, NotMounted, RegistrationFailed, ToolError.
    """
    check_mounted(asked.checkpoint_uri)
    registry = RegistryTarget.parse(asked.registry, asked.name, os.environ).registry  # fails before anything is installed
    options = asked.by_name("version", "alias", "log_run", "base_model", "datasets")
    request = {
        "uri": asked.checkpoint_uri,
        "to": asked.registry,
        "name": asked.name,
        "digest": asked.checkpoint_digest,
        "options": {**options, "training_state": asked.with_training_state},
    }
    requirements, variables = _CLIENTS[registry], dict[str, str]()
    if registry == "mlflow" and folder is not None and not os.environ.get(_ADDRESS):
        folder.mkdir(parents=True, exist_ok=True)
        requirements, variables = TRACKING_REQUIREMENTS["mlflow"], {_ADDRESS: sqlite_address(folder)}
    python = tool_environment(requirements, name=f"register-{registry}", system_packages=True)
    if str(python) == sys.executable and not variables:  # this process has what it needs
        return register_program.register(request)
    program = Path(register_program.__file__)
    try:
        done = run_tool(program, request, python=python, variables=_VARIABLES, environment=variables, on_line=on_line)
    except ToolFailed as error:
        raise RegistrationFailed(str(error)) from error
    return Registration(**done)
