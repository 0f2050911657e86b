"""The folders of exports that the page can open: those of its settings, those that TrainJobs name, and those that runs exported to.

What jobs and runs name was written by others, so such a folder is only offered: nothing is sent to its store before a user opens it.
Local folders that the runs of this machine have exported to are listed at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TypedDict

from trainwright.api import names
from trainwright.api.errors import ApiError
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.jobs.request.workspace import export_uri_of
from trainwright.storage.errors import StorageError
from trainwright.storage.uri import StorageUri
from trainwright.submission.jobs_client import JobsClient
from trainwright.ui.call import Json, Page
from trainwright.ui.models.foreign_json import shown_text
from trainwright.ui.models.places import Places
from trainwright.ui.models.workspaces import WorkspaceFolder, find_workspaces, variables_of
from trainwright.workspace.layout import RUNS
from trainwright.workspace.run_record import read_run

_MAX_JOBS, _MAX_RUNS, _MAX_SOURCES = 2_000, 2_000, 100
_VARIABLES = (names.RESUME_EXPORT_VARIABLE, names.RESUME_VARIABLE)


class Source(TypedDict):
    """A folder of exports: `origin` is given, job or run, and `of` names the job or run."""

    uri: str
    origin: str
    of: str


def list_sources(page: Page, cluster: JobsClient, namespace: str) -> Json:
    """Return the folders of exports, the given ones first; `problems` says which part could not be looked at."""
    places, problems, found = Places(page), list[str](), dict[str, Source]()
    for uri in page.exports:
        found.setdefault(uri.rstrip("/"), Source(uri=uri.rstrip("/"), origin="given", of=""))
    for workspace in find_workspaces(page):
        for uri, run in _of_runs(workspace):
            _add(found, places, uri, "run", run)
    try:
        for uri, job in _of_jobs(cluster, namespace):
            _add(found, places, uri, "job", job)
    except ApiError as error:
        problems.append(f"TrainJobs cannot be listed, so their exports are not offered: {error.message}")
    return {"sources": [*found.values()][:_MAX_SOURCES], "problems": problems, "mayChange": page.may_read_files}


def exports_named_by(trainjob: Obj) -> list[str]:
    """Return the URIs of exports that a job's pods get to resume from. Pure."""
    given = [(name, value) for name, value in variables_of(trainjob) if name in _VARIABLES]
    found = [export_uri_of(value) if name == names.RESUME_VARIABLE else value for name, value in given]
    return [uri for uri in dict.fromkeys(found) if uri]


def root_of(export: str) -> str:
    """Return the folder of all exports of an export EXPORT_URI/RUN/checkpoint-N; "" if it is in none. Pure."""
    try:
        uri = StorageUri.parse(export)
    except StorageError:
        return ""
    root = uri.location.rstrip("/").rsplit("/", 2)
    return str(StorageUri(uri.scheme, root[0])) if len(root) == 3 and root[0] else ""


def _add(found: dict[str, Source], places: Places, export: str, origin: str, of: str) -> None:
    root = root_of(export)
    if not root or root in found:
        return
    try:
        places.allowed(root)
    except (ApiError, StorageError):  # a scheme without stores, or a local path of another machine
        return
    found[root] = Source(uri=root, origin=origin, of=shown_text(of, 300))


def list_jobs(cluster: JobsClient, namespace: str) -> Iterator[Obj]:
    """Yield the first 2,000 TrainJobs or a few more, of all namespaces if `namespace` is empty. Raises ApiError."""
    seen = 0
    for listing in cluster.pages(TRAINJOB, namespace or None):
        yield from listing.items
        seen += len(listing.items)
        if seen >= _MAX_JOBS:
            return


def _of_jobs(cluster: JobsClient, namespace: str) -> Iterator[tuple[str, str]]:
    for job in list_jobs(cluster, namespace):
        for uri in exports_named_by(job):
            yield uri, f"{namespace_of(job)}/{name_of(job)}"


def _of_runs(workspace: WorkspaceFolder) -> Iterator[tuple[str, str]]:
    folder = workspace.path / RUNS
    try:
        with os.scandir(folder) as entries:
            found = [
                entry.name for _, entry in zip(range(_MAX_RUNS), entries, strict=False) if entry.is_dir(follow_symlinks=False)
            ]
    except OSError:  # removed meanwhile
        return
    for name in sorted(found):
        record = read_run(folder / name)
        for exported in record.all_of("exported") if record is not None else ():
            yield exported, name
