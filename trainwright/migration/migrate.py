"""Selects the migration of a manifest by its kind and version."""

from __future__ import annotations

from collections.abc import Callable

from trainwright.api.errors import BadRequest
from trainwright.api.objects import Obj
from trainwright.migration.jax import migrate_jax_job
from trainwright.migration.legacy_trainjob import TRAINER_KINDS, VERSIONS, is_legacy, migrate_legacy
from trainwright.migration.mpi import migrate_mpi_job
from trainwright.migration.notes import MigrationResult
from trainwright.migration.other_objects import is_training_kind, pass_through
from trainwright.migration.paddle import migrate_paddle_job
from trainwright.migration.pytorch import migrate_pytorch_job
from trainwright.migration.tensorflow import migrate_tf_job
from trainwright.migration.xgboost import migrate_xgboost_job

KINDS: dict[tuple[str, str], Callable[[Obj], MigrationResult]] = {
    ("kubeflow.org/v1", "PyTorchJob"): migrate_pytorch_job,
    ("kubeflow.org/v1", "TFJob"): migrate_tf_job,
    ("kubeflow.org/v1", "MPIJob"): migrate_mpi_job,
    ("kubeflow.org/v2beta1", "MPIJob"): migrate_mpi_job,
    ("kubeflow.org/v1", "XGBoostJob"): migrate_xgboost_job,
    ("kubeflow.org/v1", "PaddleJob"): migrate_paddle_job,
    ("kubeflow.org/v1", "JAXJob"): migrate_jax_job,
}


def is_outdated(obj: Obj) -> bool:
    """Whether `migrate` would change the object."""
    return is_legacy(obj) or (str(obj.get("apiVersion")), str(obj.get("kind"))) in KINDS


def migrate_all(objects: list[Obj]) -> list[MigrationResult]:
    """Migrate the objects of one or several files. Other kinds pass through, if any of the objects is of a training operator.

    The given objects are not modified. Raises BadRequest and Invalid as `migrate` does.
    """
    jobs = [obj for obj in objects if is_training_kind(obj)]
    kinds = sorted({kind for _, kind in KINDS})

    def result(obj: Obj) -> MigrationResult:
        is_other = jobs and obj.get("kind") and not is_training_kind(obj)
        return pass_through(obj, jobs, kinds) if is_other else migrate(obj)

    return [result(obj) for obj in objects]


def migrate(obj: Obj) -> MigrationResult:
    """Migrate a manifest. A current one is returned unchanged. The given object is not modified.

    Raises BadRequest for an unknown kind, Invalid for a manifest that its operator would have rejected.
    """
    version, kind = str(obj.get("apiVersion") or ""), str(obj.get("kind") or "")
    migration = KINDS.get((version, kind))
    if migration is not None:
        return migration(obj)
    if is_legacy(obj):
        return migrate_legacy(obj)
    if kind in TRAINER_KINDS and version in VERSIONS:
        return MigrationResult([obj], [])
    known = ", ".join(sorted({f"{name} ({group})" for group, name in KINDS}))
    raise BadRequest(
        f"kind: {kind or 'nothing'} ({version or 'no apiVersion'}) cannot be migrated; supported are {known}, "
        "and TrainJobs of before Trainer 2.2"
    )
