"""Which migration a manifest takes, by its kind and version."""

from __future__ import annotations

from collections.abc import Callable

from trainwright.api.errors import BadRequest
from trainwright.api.objects import Obj
from trainwright.migration.early_trainjob import OURS, VERSIONS, is_early, migrate_early
from trainwright.migration.jax import migrate_jax_job
from trainwright.migration.mpi import migrate_mpi_job
from trainwright.migration.notes import Migrated
from trainwright.migration.paddle import migrate_paddle_job
from trainwright.migration.pytorch import migrate_pytorch_job
from trainwright.migration.tensorflow import migrate_tf_job
from trainwright.migration.xgboost import migrate_xgboost_job

KINDS: dict[tuple[str, str], Callable[[Obj], Migrated]] = {
    ("kubeflow.org/v1", "PyTorchJob"): migrate_pytorch_job,
    ("kubeflow.org/v1", "TFJob"): migrate_tf_job,
    ("kubeflow.org/v1", "MPIJob"): migrate_mpi_job,
    ("kubeflow.org/v2beta1", "MPIJob"): migrate_mpi_job,
    ("kubeflow.org/v1", "XGBoostJob"): migrate_xgboost_job,
    ("kubeflow.org/v1", "PaddleJob"): migrate_paddle_job,
    ("kubeflow.org/v1", "JAXJob"): migrate_jax_job,
}


def is_outdated(obj: Obj) -> bool:
    """Whether `migrate` has something to change."""
    return is_early(obj) or (obj.get("apiVersion"), obj.get("kind")) in KINDS


def migrate(obj: Obj) -> Migrated:
    """What a manifest becomes; one in today's form stays as it is. The given object is not changed.

    Raises BadRequest for a kind that is none of ours, Invalid for a manifest that its own operator would have refused.
    """
    version, kind = str(obj.get("apiVersion") or ""), str(obj.get("kind") or "")
    migration = KINDS.get((version, kind))
    if migration is not None:
        return migration(obj)
    if is_early(obj):
        return migrate_early(obj)
    if kind in OURS and version in VERSIONS:
        return Migrated([obj], [])
    known = ", ".join(sorted({f"{name} ({group})" for group, name in KINDS}))
    raise BadRequest(
        f"kind: {kind or 'nothing'} ({version or 'no apiVersion'}) cannot be migrated; known are {known}, and early TrainJobs"
    )
