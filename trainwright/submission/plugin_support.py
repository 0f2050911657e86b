"""Whether the policies of plugins run for the TrainJobs of a client: Trainer's own controller does not know them.

Without a policy that a runtime needs, every node of a job trains alone, and the job succeeds.
"""

from __future__ import annotations

from trainwright.api.errors import Invalid, Problem
from trainwright.api.objects import Obj, name_of
from trainwright.materialize.frameworks.labelled_runtime import MARKS, framework_without_peers
from trainwright.submission.jobs_client import JobsClient

NO_POLICY = "Trainer has no policy for {}"
ADVICE = "use the submission mode jobset, or `trainwright controller` in place of Trainer's (docs/controller.md)"


class PolicyMissing(Invalid):
    """The controller of the cluster does not run the policy that the runtime needs."""


def check_plugin_support(client: JobsClient, trainjob: Obj, runtime: Obj, namespace: str) -> None:
    """Check that the nodes of a TrainJob will find each other. Raises PolicyMissing, ApiError."""
    framework = framework_without_peers(trainjob, runtime)
    reason = client.why_no_plugins(namespace) if framework else ""
    if reason:
        message = (
            f"{NO_POLICY.format(framework)}, so that each of several nodes would train alone and succeed ({reason}): {ADVICE}, or set "
            f"{MARKS[framework][-1]} in env"
        )
        raise PolicyMissing.of("TrainJob", name_of(trainjob), [Problem("spec.runtimeRef", message)], "trainer.kubeflow.org")
