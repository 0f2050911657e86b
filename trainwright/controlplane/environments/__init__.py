"""Python environments in which the node runs images that it knows: defined by name, made on first use, kept for all clusters."""

from trainwright.controlplane.environments.definition import EnvironmentDefinition, EnvironmentsFileError
from trainwright.controlplane.environments.preparations import Failed, Preparations, Preparing
from trainwright.controlplane.environments.store import EnvironmentFailed, EnvironmentStore, Prepared

__all__ = [
    "EnvironmentDefinition",
    "EnvironmentFailed",
    "EnvironmentStore",
    "EnvironmentsFileError",
    "Failed",
    "Preparations",
    "Prepared",
    "Preparing",
]
