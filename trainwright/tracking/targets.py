"""Where metrics go, a tool and the server, project or folder that it writes to, and what it shows of a run.

A run is shown with its settings as parameters, and where it comes from as tags.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.state.identity import Identity
from trainwright.text.foreign_texts import without_user

REQUIREMENTS = {
    "mlflow": ("mlflow-skinny>=3.1,<3.18", "sqlalchemy>=2,<3", "alembic>=1.13,<2"),
    "wandb": ("wandb>=0.22,<0.32",),
    "tensorboard": ("tensorboard>=2.18,<2.22",),
}
"""The tools, and what their environments need. SQLAlchemy and Alembic are for MLflow's SQLite file."""
VARIABLES = {
    "mlflow": ("MLFLOW_*", "AWS_*", "GOOGLE_APPLICATION_CREDENTIALS", "AZURE_*"),
    "wandb": ("WANDB_*",),
    "tensorboard": (),
}
"""The variables of the step that each tool gets besides the common ones: its settings and credentials."""
_PARAMETERS = ("runtime", "builtin", "num_nodes", "num_proc_per_node", "image")
_TAGS = ("dataset_uri", "model_uri", "dataset_digest", "model_digest", "code")


@dataclass(frozen=True)
class TrackingTarget:
    """`tool` is mlflow, wandb or tensorboard. `address` is MLflow's tracking URI, W&B's [ENTITY/]PROJECT, TensorBoard's folder."""

    tool: str
    address: str

    def __str__(self) -> str:
        return f"{self.tool}:{without_user(self.address)}"


def parse_targets(texts: Sequence[str], environ: Mapping[str, str], folder: Path | None = None) -> tuple[TrackingTarget, ...]:
    """Parse targets of the form TOOL or TOOL:ADDRESS.

    Args:
        texts: The targets.
        environ: Without an address, MLFLOW_TRACKING_URI and WANDB_PROJECT of these variables count.
        folder: Where tools without a server write: MLflow to `mlflow.db`, W&B's offline runs to `wandb`, TensorBoard to `tensorboard`.

    Raises ValueError for an unknown tool, credentials in an address, or a tool that has neither an address nor a folder.
    """
    found = [_parse(text, environ, folder) for text in texts]
    for position, target in enumerate(found):
        if target in found[:position]:
            raise ValueError(f"tracking[{position}]: {target} is listed twice")
    return tuple(found)


def sqlite_address(folder: Path) -> str:
    """Return the address of the file in which MLflow keeps runs and models without a server."""
    return f"sqlite:///{folder.absolute() / 'mlflow.db'}"


def _parse(text: str, environ: Mapping[str, str], folder: Path | None) -> TrackingTarget:
    tool, _, address = text.strip().partition(":")
    if tool not in REQUIREMENTS:
        raise ValueError(f"tracking: {tool[:40]!r} is unknown; expected {', '.join(REQUIREMENTS)}, each also as TOOL:ADDRESS")
    if address and without_user(address) != address:
        raise ValueError(f"tracking: {tool}: no credentials in an address; set the variables of {tool} from a Secret")
    target = TrackingTarget(tool, address or _default(tool, environ, folder))
    if not target.address:
        where = "MLFLOW_TRACKING_URI" if tool == "mlflow" else "a folder"
        raise ValueError(f"tracking: {tool} has no address; set {tool}:ADDRESS, {where}, or workspace_path for a file there")
    return target


def _default(tool: str, environ: Mapping[str, str], folder: Path | None) -> str:
    match tool:
        case "mlflow":
            return environ.get("MLFLOW_TRACKING_URI") or (sqlite_address(folder) if folder else "")
        case "wandb":
            return environ.get("WANDB_PROJECT") or "trainwright"
        case _:
            return str(folder.absolute() / "tensorboard") if folder else ""


@dataclass(frozen=True)
class TrackedRun:
    """`step` is the same for each try of a step; `id` is a short form of it."""

    name: str
    step: str
    id: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    project: str = "trainwright"


def tracked_run(identity: Identity, request: TrainRequest) -> TrackedRun:
    """Return what is shown of the job of a step. No values of environment variables, which may be secret, are among it."""
    settings = dict(_flat("", {**request.settings, **request.func_args}))
    chosen = {name: value for name in _PARAMETERS if (value := getattr(request, name))}
    sources = {name: without_user(str(value)) for name in _TAGS if (value := getattr(request, name))}
    return TrackedRun(
        name=identity.name(),
        step=str(identity),
        id=identity.digest()[:16],
        parameters={**chosen, **settings},
        tags={"trainwright.run": identity.run, **{f"trainwright.{name}": value for name, value in sources.items()}},
    )


def _flat(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values of nested objects under names with dots."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value
