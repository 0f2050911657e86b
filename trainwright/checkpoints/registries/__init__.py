"""Registers a published export in the Hugging Face Hub, the Kubeflow Model Registry, or MLflow."""

from trainwright.checkpoints.registries.errors import MissingExtra, RegistrationConflict, RegistrationError
from trainwright.checkpoints.registries.register import register_export
from trainwright.checkpoints.registries.registration import Registration, RegistrationOptions

__all__ = [
    "MissingExtra",
    "Registration",
    "RegistrationConflict",
    "RegistrationError",
    "RegistrationOptions",
    "register_export",
]
