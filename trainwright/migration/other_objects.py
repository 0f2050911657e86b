"""Objects beside the jobs of a file: claims, ConfigMaps, Services. They pass through unchanged, with notes on what they refer to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from trainwright.api.objects import Obj, name_of
from trainwright.migration.notes import MigrationResult, Note
from trainwright.migration.placement import OPERATOR_LABELS

_OLD_GROUPS = ("kubeflow.org", "trainer.kubeflow.org")


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
