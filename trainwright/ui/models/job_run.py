"""Finds the folders that TrainJobs write to among the workspaces of this machine, and the jobs of a run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from trainwright.api import names
from trainwright.api.objects import Obj, annotations_of, labels_of, namespace_of
from trainwright.jobs.state.run_folder import label_value
from trainwright.storage.errors import StorageError
from trainwright.storage.uri import StorageUri
from trainwright.ui.models.workspaces import WorkspaceFolder
from trainwright.workspace.layout import RUNS, WorkspaceError, containing_run, step_path
from trainwright.workspace.run_record import RunRecord

_RUN = re.compile(rf"(?:^|/)({RUNS}/)")


@dataclass(frozen=True)
class JobFolder:
    """A folder of a workspace, `runs/NAME` or one below it."""

    workspace: WorkspaceFolder
    folder: str

    @property
    def run(self) -> str:
        return containing_run(self.folder)


class RunJobs:
    """The TrainJobs of runs: those that write to a run's folder, and those with its id whose folder is on no known workspace."""

    def __init__(self, jobs: Iterable[Obj], workspaces: Sequence[WorkspaceFolder]):
        self._by_folder: dict[tuple[str, str], list[Obj]] = {}
        self._others: dict[str, list[Obj]] = {}
        for job in jobs:
            place = find_folder(job, workspaces)
            if place is not None:
                self._by_folder.setdefault((place.workspace.id, place.run), []).append(job)
            elif (run := labels_of(job).get(names.RUN_LABEL)) is not None:
                self._others.setdefault(run, []).append(job)

    def of(self, workspace: WorkspaceFolder, name: str, record: RunRecord) -> list[Obj]:
        """Return the jobs of the run in the folder `runs/NAME`."""
        owner = f"{record.owner}/{record.run}/"
        others = self._others.get(label_value(record.run), [])
        named = [job for job in others if annotations_of(job).get(names.OWNER_ANNOTATION, "").startswith(owner)]
        return [*self._by_folder.get((workspace.id, name), []), *named]


def find_folder(trainjob: Obj, workspaces: Sequence[WorkspaceFolder]) -> JobFolder | None:
    """Return the folder that a job writes to; None if it has none, or none of the workspaces is on its claim.

    In the folder of all claims, the claim of the job's namespace is meant; other workspaces count if one only has the folder.
    """
    text = annotations_of(trainjob).get(names.RUN_FOLDER_ANNOTATION, "")
    exact, others = list[JobFolder](), list[JobFolder]()
    for claim, path, folder in _splits(text):
        wanted = "/".join(filter(None, (namespace_of(trainjob), claim, path)))
        for workspace in workspaces:
            if workspace.claim_path == wanted and _exists(workspace, folder):
                exact.append(JobFolder(workspace, folder))
            elif not workspace.claim_path and _exists(workspace, folder):
                others.append(JobFolder(workspace, folder))
    if exact:
        return exact[0]
    return others[0] if len(others) == 1 else None


def _splits(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield claim, path of the workspace on it, and folder of the run, for each way to read a URI of a run's folder."""
    try:
        uri = StorageUri.parse(text)
    except StorageError:
        return
    if uri.scheme != "pvc":
        return
    for match in _RUN.finditer(uri.key):
        path, folder = uri.key[: match.start(1)].strip("/"), uri.key[match.start(1) :]
        try:
            containing_run(folder)
        except WorkspaceError:
            continue
        yield uri.bucket, path, folder


def _exists(workspace: WorkspaceFolder, folder: str) -> bool:
    try:
        return step_path(workspace.path, folder).is_dir()
    except (WorkspaceError, OSError):
        return False
