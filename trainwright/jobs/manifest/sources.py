"""The sources of a training, `dataset_uri` and `model_uri`: mounts the claims among them, and finds those that the initializers of
a runtime cannot fetch. Pure.

The claim of `pvc://CLAIM/path` is mounted read-only in the steps that read it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.errors import Problem
from trainwright.api.objects import Obj, name_of, named
from trainwright.jobs.manifest.mounts import is_own_initializer
from trainwright.jobs.manifest.resolved_request import (
    ANCESTOR_OF_KIND,
    ResolvedRequest,
    initializer_container,
    replicated_jobs,
    step_of_job,
)
from trainwright.jobs.manifest.runtime_patch import claim_volume, runtime_patch
from trainwright.jobs.request.workspace import Workspace
from trainwright.jobs.state.run_folder import Kind
from trainwright.storage.errors import BadUri
from trainwright.storage.uri import StorageUri

_OF_TRAINER = re.compile(r"(^|/)kubeflow/trainer/(dataset|model)-initializer([:@].*)?$")
"""The images of Trainer's initializers."""
_OTHERS = "use a runtime with an initializer of Trainwright, which reads every source of docs/sources.md"
PATCH_MANAGER = "trainwright.dev/source"


def source_problems(resolved: ResolvedRequest) -> Iterator[Problem]:
    """Yield the sources of the request that the runtime's initializers cannot fetch. What another's initializer reads is unknown."""
    for kind, ancestor in ANCESTOR_OF_KIND.items():
        uri, container = resolved.request.source(kind).uri, initializer_container(resolved.runtime, ancestor)
        if not uri or container is None or kind in resolved.inputs:  # no initializer fetches it
            continue
        if uri.startswith(names.CACHE_SCHEME) and kind == "dataset":
            starts_cache = named(container.get("env"), "CACHE_IMAGE") is not None
            advice = "starts no data cache; use torch-distributed-with-cache"
            problem = "" if starts_cache else f"the dataset initializer of the runtime {name_of(resolved.runtime)!r} {advice}"
        elif is_own_initializer(container):
            problem = _malformed(kind, uri)
        elif _OF_TRAINER.search(str(container.get("image") or "")):
            problem = _unknown_to_trainer(kind, uri, resolved.runtime)
        else:
            continue
        if problem:
            yield Problem(f"{kind}_uri", problem)


def _malformed(kind: Kind, uri: str) -> str:
    try:
        parsed = StorageUri.parse(uri)
    except BadUri as error:
        return str(error)
    if parsed.kind and parsed.kind != kind:
        return f"{uri} names a {parsed.kind}, but a {kind} is needed"
    if parsed.is_web and kind == "model":
        return f"{parsed}: an address is a single file, but a model is a folder; use hf://, s3:// or another store"
    return ""


def _unknown_to_trainer(kind: Kind, uri: str, runtime: Obj) -> str:
    """Trainer's initializers read `hf://` without revisions, and `s3://`."""
    if problem := _malformed(kind, uri):
        return problem
    parsed, of = StorageUri.parse(uri), f"the {kind} initializer of the runtime {name_of(runtime)!r}"
    if parsed.scheme not in ("hf", "s3", "pvc"):  # claims have their own rule
        return f"{of} reads only hf:// and s3://, not {parsed.scheme}://; {_OTHERS}"
    if parsed.scheme != "hf":
        return ""
    wrong = {
        f"the revision {parsed.revision!r}": parsed.revision,
        f"the prefix {parsed.kind}s/": parsed.kind,
        "a repository without an owner": "/" not in parsed.location,
        "a folder of a repository": kind == "model" and parsed.folder,
    }
    if found := [words for words, is_there in wrong.items() if is_there]:
        path = "" if kind == "model" else "[/path]"
        return f"{of} reads only hf://org/name{path}, without {found[0]}; {_OTHERS}"
    return ""


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


def _claims(resolved: ResolvedRequest) -> dict[Kind, str]:
    """Return the claims by kind, of inputs that are not prepared yet."""
    uris = {kind: resolved.request.source(kind).uri for kind in ANCESTOR_OF_KIND if kind not in resolved.inputs}
    return {kind: Workspace.parse(uri, f"{kind}_uri").claim for kind, uri in uris.items() if uri.startswith("pvc://")}


def _path_of(claim: str) -> str:
    return f"{names.CLAIMS_FOLDER}/{claim}"


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
