"""Registers a published export wherever a URI says: reads what is known about it, and protects what is registered by reference."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping

from trainwright.checkpoints.catalog import NAME, pin_export, read_pins
from trainwright.checkpoints.exported import open_export
from trainwright.checkpoints.registries.export_facts import read_facts
from trainwright.checkpoints.registries.registration import (
    MissingExtra,
    Registration,
    RegistrationError,
    RegistrationOptions,
    Registry,
    RegistryTarget,
)

REGISTERED_IN = "registered in "
"""How the reason of a pin begins that protects what a registry refers to."""
_CLIENTS: dict[Registry, tuple[str, str, str]] = {
    "hub": ("the Hugging Face Hub", "huggingface_hub", "hub"),
    "model-registry": ("the Kubeflow Model Registry", "mr_openapi", "model-registry"),
    "mlflow": ("MLflow", "mlflow", "mlflow"),
}
"""For each registry its name in a message, the module of its client, and our extra that installs it."""


def register_export(
    uri: str,
    to: str,
    *,
    name: str = "",
    digest: str = "",
    options: RegistrationOptions | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Registration:
    """Register the export at `uri` in `to`: hf://org/name[@branch], model-registry://host[:port]/model, or mlflow://model.

    `name` is the model, if `to` does not name it. With `digest`, the manifest is checked. The Hub gets a copy of the model; the other
    registries refer to the export, which is pinned before, so that retention does not delete it. Every step looks before it
    creates, so a registration that was interrupted is completed by the next one, and a second one returns the first.
    `environ` has the credentials and addresses. Raises BadUri, NoCheckpoint, CheckpointError, MissingExtra, RegistrationConflict if
    the registry has something else there or was changed meanwhile, RegistrationError, StorageError.
    """
    options = options or RegistrationOptions()
    target = RegistryTarget.parse(to, name, environ)
    _check_options(target, options)
    shown, module, extra = _CLIENTS[target.registry]
    if importlib.util.find_spec(module) is None:
        raise MissingExtra(shown, extra)
    export = open_export(uri, digest)
    facts = read_facts(export)
    # Imported only now: each brings its HTTP client or an event loop, and the command line imports this module at every start.
    if target.registry == "hub":
        from trainwright.checkpoints.registries.hub import register_in_hub

        return register_in_hub(export, facts, target, options, environ)
    if NAME.fullmatch(export.name):  # retention deletes only exports in the folder of a run
        run, reason = export.store.parent(), f"{REGISTERED_IN}{target}"
        if reason not in read_pins(run).get(export.name, {}):
            pin_export(run, export.name, reason)
    if target.registry == "mlflow":
        from trainwright.checkpoints.registries.mlflow import register_in_mlflow

        return register_in_mlflow(facts, target, options, environ)
    from trainwright.checkpoints.registries.model_registry import register_in_model_registry

    return register_in_model_registry(facts, target, options, environ)


def _check_options(target: RegistryTarget, options: RegistrationOptions) -> None:
    if options.training_state and target.registry != "hub":
        raise RegistrationError(
            f"{target} refers to the export, which is registered with all that it has; only the hub gets a copy"
        )
    if options.log_run and target.registry != "mlflow":
        raise RegistrationError(f"{target}: only MLflow has runs; leave the run out")
    if options.version and target.registry == "mlflow":
        raise RegistrationError(f"{target}: MLflow numbers its versions; leave the version out, or set an alias")
    if options.alias and target.registry == "model-registry":
        raise RegistrationError(f"{target}: the Model Registry has no aliases; leave the alias out")
