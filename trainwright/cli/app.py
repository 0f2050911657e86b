"""The Typer application, assembled from the modules with its commands."""

from __future__ import annotations

import typer

from trainwright.cli import (
    clean,
    controller,
    controlplane,
    crds,
    diff,
    doctor,
    jobs,
    logs,
    materialize,
    migrate,
    rbac,
    runtimes,
    submit,
    validate,
    waiting,
)
from trainwright.cli.checkpoint_commands import catalog, register, transfer
from trainwright.cli.pipeline_commands import pipelines, schedules

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,  # they print local variables, credentials among them
    help="Fine-tuning on Kubeflow Trainer v2.",
)
_MODULES = (
    controlplane,
    controller,
    doctor,
    submit,
    jobs,
    waiting,
    clean,
    diff,
    logs,
    runtimes,
    validate,
    materialize,
    migrate,
    crds,
    rbac,
    transfer,
    catalog,
    register,
    pipelines,
    schedules,
)
for module in _MODULES:
    module.register(app)


@app.callback()
def trainwright() -> None:
    """Fine-tuning on Kubeflow Trainer v2, on a laptop or on any cluster."""
