"""What a submission would create: the TrainJob, and the objects that are built from it. Creates nothing, and needs no cluster."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.api.kinds import JOBSET, SECRET
from trainwright.api.objects import Obj
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.state.identity import Identity
from trainwright.jobs.submit.api_compat import served_form
from trainwright.jobs.submit.code_volume import code_config_maps
from trainwright.jobs.submit.plan import plan_submission
from trainwright.jobs.submit.resolve import resolve_with
from trainwright.jobs.submit.workspace_claim import claim_manifest
from trainwright.materialize import materialize
from trainwright.materialize.keys import PlaceholderKeys
from trainwright.submission.jobs_client import JobsClient, Mode, served_trainjob


@dataclass(frozen=True)
class Preview:
    """The first attempt of a step: its TrainJob, and the objects that the `builder` builds from it. Secrets have no data.

    `needed` are the new claim and the packed code, which are created before the TrainJob if they do not exist.
    """

    trainjob: Obj
    objects: tuple[Obj, ...]
    needed: tuple[Obj, ...]
    mode: Mode
    builder: str
    runtime: str
    warnings: tuple[str, ...]


def preview_submission(request: TrainRequest, identity: Identity, namespace: str, cluster: Cluster | None) -> Preview:
    """Return what `submit_or_adopt` would create for a step without earlier attempts.

    Without a cluster the bundled runtimes and the newest version of Trainer count. Raises RuntimeNotFound, IncompatibleRuntime,
    PolicyMissing, Invalid, ValueError (bad workspace, BadCode), and ApiError of reading the runtime.
    """
    client = JobsClient.of(cluster) if cluster is not None else None
    resolved, choice = resolve_with(client, request, namespace, bundled=client is None or client.uses_bundled_runtimes)
    plan = plan_submission(resolved, identity, namespace)
    trainjob = plan.trainjob
    if client is not None:
        client.check_plugins(trainjob, resolved.runtime, namespace)
        trainjob = served_form(trainjob, served_trainjob(client)).trainjob
        objects = client.build(plan.trainjob, trainjob, resolved.runtime, keys=PlaceholderKeys()).objects
    else:
        objects = materialize(plan.trainjob, resolved.runtime)
    needed = list(code_config_maps(trainjob, resolved.code)) if resolved.code is not None else []
    if (workspace := request.workspace) is not None and workspace.new is not None:
        needed.insert(0, claim_manifest(workspace, workspace.new, identity, namespace, resolved.nodes))
    return Preview(
        trainjob,
        tuple(map(_without_data, objects)),
        tuple(needed),
        (client or JobsClient).mode,
        (client or JobsClient).builder,
        str(choice),
        (*resolved.warnings, *plan.warnings),
    )


def applicable_manifests(
    request: TrainRequest, identity: Identity, namespace: str, client: JobsClient
) -> tuple[list[Obj], list[str]]:
    """Return the manifests of a step as a person would create them with kubectl, in this order and without owners; and warnings.

    The last one is the TrainJob, or its JobSet on a cluster without a controller. Raises the errors of `preview_submission`.
    """
    preview = preview_submission(request, identity, namespace, client)
    objects, warnings = [preview.trainjob], list(preview.warnings)
    if client.job_kind == JOBSET:
        objects = [each for each in preview.objects if each["kind"] != SECRET.kind]
        if len(objects) < len(preview.objects):
            warnings.append("the Secrets of this runtime are not written here: each job has other keys")
    return [*preview.needed, *objects], warnings


def _without_data(obj: Obj) -> Obj:
    if obj["kind"] != SECRET.kind:
        return obj
    return {name: value for name, value in obj.items() if name not in ("data", "stringData")}
