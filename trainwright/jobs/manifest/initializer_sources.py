"""Finds the sources that the initializers of a runtime cannot fetch, before a job is submitted for them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.api.errors import Problem
from trainwright.api.objects import Obj, name_of, named
from trainwright.datacache.settings import SCHEME
from trainwright.jobs.manifest.resolved_request import ANCESTOR_OF_KIND, ResolvedRequest, initializer_container
from trainwright.jobs.manifest.workspace_mounts import is_own_initializer
from trainwright.jobs.state.run_folder import Kind
from trainwright.storage.errors import BadUri
from trainwright.storage.uri import StorageUri

_OF_TRAINER = re.compile(r"(^|/)kubeflow/trainer/(dataset|model)-initializer([:@].*)?$")
"""The images of Trainer's initializers."""
_OTHERS = "use a runtime with an initializer of Trainwright, which reads every source of docs/sources.md"


def source_problems(resolved: ResolvedRequest) -> Iterator[Problem]:
    """Yield the sources of the request that the runtime's initializers cannot fetch. What another's initializer reads is unknown."""
    for kind, ancestor in ANCESTOR_OF_KIND.items():
        uri, container = resolved.request.source(kind).uri, initializer_container(resolved.runtime, ancestor)
        if not uri or container is None or kind in resolved.inputs:
            continue
        if uri.startswith(SCHEME) and kind == "dataset":
            problem = _starts_no_cache(container, resolved.runtime)
        elif is_own_initializer(container):
            problem = _malformed(kind, uri)
        elif _OF_TRAINER.search(str(container.get("image") or "")):
            problem = _unknown_to_trainer(kind, uri, resolved.runtime)
        else:
            continue
        if problem:
            yield Problem(f"{kind}_uri", problem)


def _starts_no_cache(container: Obj, runtime: Obj) -> str:
    if named(container.get("env"), "CACHE_IMAGE") is not None:
        return ""
    return f"the dataset initializer of the runtime {name_of(runtime)!r} starts no data cache; use torch-distributed-with-cache"


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
