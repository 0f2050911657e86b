"""What a submission would create: the TrainJob, and the objects that are built from it. Creates nothing, and needs no cluster."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.api.kinds import SECRET
from trainwright.api.objects import Obj
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.manifest.code_patch import config_map_names
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.state.identity import Identity
from trainwright.jobs.submit.api_compat import served_form
from trainwright.jobs.submit.plan import plan_submission
from trainwright.jobs.submit.resolve import resolve_with
from trainwright.materialize import materialize
from trainwright.materialize.keys import PlaceholderKeys
from trainwright.submission.jobs_client import JobsClient
from trainwright.submission.mode import Mode
from trainwright.submission.served_schema import served_trainjob


@dataclass(frozen=True)
class Preview:
    """The first attempt of a step: its TrainJob, and the objects that the `builder` builds from it. Secrets have no data.

    `also_created` names further objects that a submission creates.
    """

    trainjob: Obj
    objects: tuple[Obj, ...]
    mode: Mode
    builder: str
    runtime: str
    also_created: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


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
    also = [f"ConfigMap {name}" for name in config_map_names(plan.name, resolved.code)] if resolved.code is not None else []
    if request.workspace_volume is not None and request.workspace_volume.new is not None:
        also.append(f"PersistentVolumeClaim {request.workspace_volume.claim}, if it does not exist")
    return Preview(
        trainjob,
        tuple(map(_without_data, objects)),
        (client or JobsClient).mode,
        (client or JobsClient).builder,
        str(choice),
        tuple(also),
        (*resolved.warnings, *plan.warnings),
    )


def _without_data(obj: Obj) -> Obj:
    if obj["kind"] != SECRET.kind:
        return obj
    return {name: value for name, value in obj.items() if name not in ("data", "stringData")}
