"""Mounts the claims of sources, `dataset_uri` or `model_uri` of `pvc://CLAIM/path`, read-only in the steps that read them. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.errors import Problem
from trainwright.api.objects import Obj, name_of
from trainwright.jobs.manifest.resolved_request import (
    ANCESTOR_OF_KIND,
    ResolvedRequest,
    initializer_container,
    replicated_jobs,
    step_of_job,
)
from trainwright.jobs.manifest.runtime_patch import claim_volume, runtime_patch
from trainwright.jobs.manifest.workspace_mounts import is_own_initializer
from trainwright.jobs.request.workspace import Workspace
from trainwright.jobs.state.run_folder import Kind

PATCH_MANAGER = "trainwright.dev/source"


def claim_source_patches(resolved: ResolvedRequest) -> Iterator[Obj]:
    """Yield a patch for each initializer that reads from a claim."""
    for kind, claim in _claims(resolved).items():
        container = initializer_container(resolved.runtime, ANCESTOR_OF_KIND[kind])
        if container is None:
            continue
        volume, volumes = claim_volume(f"{kind}-source", claim, resolved.request.workspace, read_only=True)
        mount = {"name": volume, "mountPath": _path_of(claim), "readOnly": True}
        pod: Obj = {"containers": [{"name": container["name"], "volumeMounts": [mount]}], **volumes}
        jobs = [job["name"] for job in replicated_jobs(resolved.runtime) if step_of_job(job) == ANCESTOR_OF_KIND[kind]]
        yield runtime_patch(f"{PATCH_MANAGER}-{kind}", dict.fromkeys(jobs, pod))


def claim_variables(resolved: ResolvedRequest, kind: Kind) -> list[Obj]:
    """Return the variable that tells an initializer where its claim is mounted; none for other sources."""
    claim = _claims(resolved).get(kind)
    return [{"name": names.CLAIMS_VARIABLE, "value": f"{claim}={_path_of(claim)}"}] if claim else []


def claim_source_problems(resolved: ResolvedRequest) -> Iterator[Problem]:
    """Yield the sources on claims that the runtime's initializers cannot read: third-party ones know no `pvc://`."""
    for kind in _claims(resolved):
        container = initializer_container(resolved.runtime, ANCESTOR_OF_KIND[kind])
        if container is not None and not is_own_initializer(container):
            yield Problem(
                f"{kind}_uri",
                f"the initializer of the runtime {name_of(resolved.runtime)!r} cannot read pvc://; those of Trainwright can",
            )


def _claims(resolved: ResolvedRequest) -> dict[Kind, str]:
    """Return the claims by kind, of inputs that are not prepared yet."""
    uris = {kind: resolved.request.source(kind).uri for kind in ANCESTOR_OF_KIND if kind not in resolved.inputs}
    return {kind: Workspace.parse(uri, f"{kind}_uri").claim for kind, uri in uris.items() if uri.startswith("pvc://")}


def _path_of(claim: str) -> str:
    return f"{names.CLAIMS_FOLDER}/{claim}"
