"""The objects that are built from a TrainJob of the cluster, with who contributed each value, and the runtime that they are from."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from trainwright.api import names
from trainwright.api.errors import ApiError, Forbidden, Invalid, NotFound
from trainwright.api.kinds import CONFIG_MAP, JOBSET
from trainwright.api.objects import Obj, is_controlled_by, name_of, namespace_of
from trainwright.materialize import ProgressReports, Settings, load_snapshot, snapshot_name
from trainwright.materialize.contributions import Contribution, materialize_with_contributors
from trainwright.submission.jobs_client import JobsClient
from trainwright.submission.runtime_lookup import resolve_in_cluster

_URL = "KUBEFLOW_TRAINER_SERVER_URL"


@dataclass(frozen=True)
class UsedRuntime:
    """The runtime of a TrainJob: the snapshot from which its objects were built, or the one that its reference names now.

    `note` says why it is not the snapshot.
    """

    runtime: Obj
    source: Literal["snapshot", "cluster", "bundled"]
    note: str = ""


def used_runtime(cluster: JobsClient, trainjob: Obj) -> UsedRuntime:
    """Return the runtime of a TrainJob. Raises RuntimeNotFound, ApiError."""
    try:
        snapshot = cluster.get(CONFIG_MAP, snapshot_name(trainjob), namespace_of(trainjob))
        return UsedRuntime(load_snapshot(snapshot, trainjob), "snapshot")
    except NotFound:
        note = "there is no snapshot of the runtime: this is the runtime as it is now, which may have changed since the job was built"
    except Forbidden as error:
        note = f"the snapshot of the runtime may not be read ({error.message}): this is the runtime as it is now"
    except Invalid as error:
        note = f"{error.message}: this is the runtime as it is now"
    has_bundled = cluster.uses_bundled_runtimes
    with suppress(ApiError):  # without an answer, only the runtimes of the cluster count
        has_bundled = has_bundled or cluster.is_embedded()
    resolved = resolve_in_cluster(cluster, trainjob["spec"]["runtimeRef"], namespace_of(trainjob), bundled=has_bundled)
    return UsedRuntime(resolved.runtime, resolved.source, note)


def built_objects(cluster: JobsClient, trainjob: Obj, runtime: Obj) -> list[Contribution]:
    """Return the objects of a TrainJob; keys in its Secrets are placeholders. Raises Invalid, ApiError."""
    return materialize_with_contributors(trainjob, runtime, settings=Settings(progress=_progress_reports(cluster, trainjob)))


def _progress_reports(cluster: JobsClient, trainjob: Obj) -> ProgressReports | None:
    """Return where the controller that built the TrainJob lets it report progress, as its objects say; None if they do not."""
    name, namespace = name_of(trainjob), namespace_of(trainjob)
    try:
        config = cluster.get(CONFIG_MAP, f"{name}{names.TLS_CONFIG_SUFFIX}", namespace)
        jobset = cluster.get(JOBSET, name, namespace)
    except ApiError:
        return None
    certificate = (config.get("data") or {}).get("ca.crt")
    path = f"/apis/{names.progress_audience(namespace, name)}"
    if certificate is None or not is_controlled_by(config, trainjob):
        return None
    for job in jobset["spec"].get("replicatedJobs") or []:
        for container in job["template"]["spec"]["template"]["spec"].get("containers") or []:
            for variable in container.get("env") or []:
                if variable.get("name") == _URL and str(variable.get("value")).endswith(path):
                    return ProgressReports(str(variable["value"]).removesuffix(path), str(certificate))
    return None
