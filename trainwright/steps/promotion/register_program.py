"""Registers an export: called in this process, or as a program whose environment has the registry's client besides our packages."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.registries.register import register_export
from trainwright.checkpoints.registries.registration import Registration, RegistrationOptions
from trainwright.evaluation.loss_curve import loss_curve_svg
from trainwright.storage.errors import StorageError
from trainwright.storage.progress_log import log_progress


class NotRegistered(Exception):
    """An error whose message says all."""

    is_expected = True


def main(request: dict[str, Any]) -> dict[str, Any]:
    """Register, and return the registration as an object. Raises NotRegistered."""
    try:
        return asdict(register(request))
    except (CheckpointError, StorageError, ValueError) as error:
        raise NotRegistered(str(error)) from error


def register(request: dict[str, Any]) -> Registration:
    """Register with the arguments of `register_export`, its options under `options`. Raises its errors."""
    given = request["options"]
    options = RegistrationOptions(
        **{**given, "datasets": tuple(given["datasets"])},
        draw_curve=lambda history: loss_curve_svg(history, None, None),
        start_progress=log_progress("register", write=print),
    )
    return register_export(request["uri"], request["to"], name=request["name"], digest=request["digest"], options=options)
