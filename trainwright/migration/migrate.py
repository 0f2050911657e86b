"""Selects the migration of a manifest by its kind and version.

Claims, ConfigMaps and Services beside the jobs of a file pass through unchanged, with notes on what they refer to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable

from trainwright.api.errors import BadRequest
from trainwright.api.objects import Obj, name_of
from trainwright.migration.framework_jobs import migrate_jax_job, migrate_paddle_job, migrate_tf_job, migrate_xgboost_job
from trainwright.migration.legacy_trainjob import TRAINER_KINDS, VERSIONS, is_legacy, migrate_legacy
from trainwright.migration.mpi import migrate_mpi_job
from trainwright.migration.notes import MigrationResult, Note
from trainwright.migration.placement import OPERATOR_LABELS
from trainwright.migration.pytorch import migrate_pytorch_job

KINDS: dict[tuple[str, str], Callable[[Obj], MigrationResult]] = {
    ("kubeflow.org/v1", "PyTorchJob"): migrate_pytorch_job,
    ("kubeflow.org/v1", "TFJob"): migrate_tf_job,
    ("kubeflow.org/v1", "MPIJob"): migrate_mpi_job,
    ("kubeflow.org/v2beta1", "MPIJob"): migrate_mpi_job,
    ("kubeflow.org/v1", "XGBoostJob"): migrate_xgboost_job,
    ("kubeflow.org/v1", "PaddleJob"): migrate_paddle_job,
    ("kubeflow.org/v1", "JAXJob"): migrate_jax_job,
}
_OLD_GROUPS = ("kubeflow.org", "trainer.kubeflow.org")


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


def is_training_kind(obj: Obj) -> bool:
    """Whether the object belongs to a training operator, in any version: it is migrated, or refused."""
    group = str(obj.get("apiVersion")).partition("/")[0]
    kind = str(obj.get("kind"))
    return group in _OLD_GROUPS and (kind.endswith(("Job", "TrainingRuntime"))) and kind != "OptimizationJob"


def pass_through(obj: Obj, jobs: Iterable[Obj], kinds: Iterable[str]) -> MigrationResult:
    """Return the object unchanged.

    Args:
        obj: an object of another kind.
        jobs: the old jobs of the same files, whose pods have new names and labels.
        kinds: the old kinds, which a template in the object may have.
    """
    text = json.dumps(obj, default=str)
    notes = [Note("kind", f"{obj['kind']} {name_of(obj)} is passed through unchanged")]
    if inside := [kind for kind in kinds if re.search(rf"\b{kind}\b", text)]:
        notes.append(Note("kind", f"{obj['kind']} {name_of(obj)} contains a {', '.join(inside)}, which is not migrated"))
    if OPERATOR_LABELS in text:
        what = f"{obj['kind']} {name_of(obj)} refers to labels {OPERATOR_LABELS}*, which pods of TrainJobs do not have"
        notes.append(Note("kind", f"{what}; their label jobset.sigs.k8s.io/jobset-name is the name of the TrainJob"))
    for job in jobs:
        if found := re.search(rf"(?<![\w.-]){re.escape(name_of(job))}-(?:master|worker|chief|ps|launcher)\b(?:-\d+)?", text):
            what = f"{obj['kind']} {name_of(obj)} mentions {found.group(0)}"
            notes.append(Note("kind", f"{what}: if this is a host name, change it; pods of {name_of(job)} have new names"))
    return MigrationResult([obj], notes)
