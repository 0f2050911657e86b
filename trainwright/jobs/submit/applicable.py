"""The manifests of a training step as a person would create them with kubectl: all that a submission creates, without its owners."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.api.kinds import JOBSET, SECRET
from trainwright.api.objects import Obj
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.state.identity import Identity
from trainwright.jobs.submit.api_compat import served_form
from trainwright.jobs.submit.code_volume import code_config_maps
from trainwright.jobs.submit.plan import plan_submission
from trainwright.jobs.submit.resolve import resolve_with
from trainwright.jobs.submit.workspace_claim import claim_manifest
from trainwright.materialize.keys import PlaceholderKeys
from trainwright.submission.jobs_client import JobsClient
from trainwright.submission.served_schema import served_trainjob


@dataclass(frozen=True)
class Applicable:
    """Objects in the order in which they can be created."""

    objects: tuple[Obj, ...]
    warnings: tuple[str, ...] = ()


def applicable_manifests(request: TrainRequest, identity: Identity, namespace: str, client: JobsClient) -> Applicable:
    """Return the claim if a new one is asked for, the packed code, and the TrainJob, or its JobSet on a cluster without a controller.

    Raises RuntimeNotFound, IncompatibleRuntime, Invalid, ValueError, and ApiError of reading the runtime.
    """
    resolved, _ = resolve_with(client, request, namespace, bundled=client.uses_bundled_runtimes)
    plan = plan_submission(resolved, identity, namespace)
    trainjob = served_form(plan.trainjob, served_trainjob(client)).trainjob
    objects: list[Obj] = []
    workspace = request.workspace_volume
    if workspace is not None and workspace.new is not None:
        objects.append(claim_manifest(workspace, workspace.new, identity, namespace, request.num_nodes or 1))
    if resolved.code is not None:
        objects += code_config_maps(trainjob, resolved.code)
    warnings = [*resolved.warnings, *plan.warnings]
    if client.job_kind == JOBSET:
        made = client.build(plan.trainjob, trainjob, resolved.runtime, keys=PlaceholderKeys()).objects
        if any(each["kind"] == SECRET.kind for each in made):
            warnings.append("the Secrets that this runtime needs have keys of their own for each job, and are not written here")
        objects += [each for each in made if each["kind"] != SECRET.kind]
    else:
        objects.append(trainjob)
    return Applicable(tuple(objects), tuple(warnings))
