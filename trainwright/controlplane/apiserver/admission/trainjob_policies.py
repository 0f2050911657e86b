"""Validates TrainJobs against the policies of their runtime on every write, as Trainer's webhook does."""

from __future__ import annotations

from trainwright.api.admission.admit import Lookup
from trainwright.api.admission.specs import ADMISSION_SPECS
from trainwright.api.errors import Denied
from trainwright.api.objects import Obj, namespace_of
from trainwright.materialize import policy_problems


def check_trainjob_policies(trainjob: Obj, lookup: Lookup) -> None:
    """Validate an admitted TrainJob; skipped if its runtime does not exist. Raises Denied."""
    reference = trainjob["spec"]["runtimeRef"]
    runtime = lookup(reference["kind"], namespace_of(trainjob), reference["name"])
    problems = policy_problems(trainjob, runtime) if runtime is not None else []
    if problems:
        messages = [str(problem) for problem in problems]
        message = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
        raise Denied(
            f'admission webhook "{ADMISSION_SPECS["TrainJob"].validator}" denied the request: {message}', problems=problems
        )
