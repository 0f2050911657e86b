"""Rejects TrainJob updates that its JobSet could not accept; upstream admits them and then fails every reconcile."""

from __future__ import annotations

from trainwright.api.admission.admit import Lookup
from trainwright.api.errors import Invalid
from trainwright.api.objects import Obj, is_controlled_by, name_of, namespace_of
from trainwright.materialize import load_snapshot, snapshot_name, update_problems


def check_trainjob_update(old: Obj, new: Obj, lookup: Lookup) -> None:
    """Validate an admitted update. Without a JobSet or a snapshot of the runtime all changes are allowed.

    Raises Invalid.
    """
    if new["spec"] == old["spec"]:
        return
    namespace = namespace_of(old)
    jobset = lookup("JobSet", namespace, name_of(old))
    snapshot = lookup("ConfigMap", namespace, snapshot_name(old))
    if jobset is None or snapshot is None or not is_controlled_by(jobset, old) or not is_controlled_by(snapshot, old):
        return
    if found := list(update_problems(old, new, load_snapshot(snapshot, old))):
        raise Invalid.of("TrainJob", name_of(old), found, "trainer.kubeflow.org")
