"""Admission of TrainJobs: validated on every write against the policies of their runtime, as Trainer's webhook does.

Updates that the JobSet could not accept are rejected; upstream admits them and then fails every reconcile.
"""

from __future__ import annotations

from trainwright.api.admission.specs import ADMISSION_SPECS
from trainwright.api.errors import Denied, Invalid
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, is_controlled_by, name_of, namespace_of
from trainwright.api.rules.problems import Lookup
from trainwright.controlplane.apiserver.admission.webhooks import Validator
from trainwright.materialize import load_snapshot, policy_problems, snapshot_name, update_problems


def validate_trainjob(trainjob: Obj, old: Obj | None, lookup: Lookup) -> None:
    """Validate an admitted TrainJob, and what an update of `old` changes. Raises Denied, Invalid."""
    _check_policies(trainjob, lookup)
    if old is not None and trainjob["spec"] != old["spec"]:
        _check_update(old, trainjob, lookup)


VALIDATORS: dict[str, Validator] = {TRAINJOB.kind: validate_trainjob}
"""For an API server: those of Trainer's webhooks that need other objects than the one that is written."""


def _check_policies(trainjob: Obj, lookup: Lookup) -> None:
    """Validate a TrainJob against the policies of its runtime; skipped if that does not exist."""
    reference = trainjob["spec"]["runtimeRef"]
    runtime = lookup(reference["kind"], namespace_of(trainjob), reference["name"])
    problems = policy_problems(trainjob, runtime) if runtime is not None else []
    if problems:
        messages = [str(problem) for problem in problems]
        message = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
        raise Denied(
            f'admission webhook "{ADMISSION_SPECS["TrainJob"].validator}" denied the request: {message}', problems=problems
        )


def _check_update(old: Obj, new: Obj, lookup: Lookup) -> None:
    """Refuse what the JobSet could not accept. Without a JobSet or a snapshot of the runtime all changes are allowed."""
    namespace = namespace_of(old)
    jobset = lookup("JobSet", namespace, name_of(old))
    snapshot = lookup("ConfigMap", namespace, snapshot_name(old))
    if jobset is None or snapshot is None or not is_controlled_by(jobset, old) or not is_controlled_by(snapshot, old):
        return
    if found := list(update_problems(old, new, load_snapshot(snapshot, old))):
        raise Invalid.of("TrainJob", name_of(old), found, "trainer.kubeflow.org")
