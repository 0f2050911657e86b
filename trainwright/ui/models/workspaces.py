"""The workspaces that this machine reads: folders with `runs`, found below the folders of the settings, and in claims elsewhere;
and the folders in them that TrainJobs write to.

Links are not followed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwright.api import names
from trainwright.api.errors import NotFound
from trainwright.api.objects import Obj, annotations_of, labels_of, namespace_of
from trainwright.jobs.state.run_folder import label_value
from trainwright.storage.errors import StorageError
from trainwright.storage.uri import StorageUri
from trainwright.ui.call import Page
from trainwright.workspace.layout import RUNS, WorkspaceError, containing_run, step_path
from trainwright.workspace.run_record import RunRecord

_MAX_DEPTH, _MAX_FOLDERS, _MAX_WORKSPACES = 4, 5_000, 200
_NEVER = (RUNS, "datasets", "models")
"""Folders of a workspace, below which there is none."""
_RUN = re.compile(rf"(?:^|/)({RUNS}/)")
_MAX_SPEC_DEPTH = 30


@dataclass(frozen=True)
class WorkspaceFolder:
    """A workspace. `id` names it in requests: the number of the setting, or a claim, and the path below that."""

    id: str
    path: Path

    @property
    def claim_path(self) -> str:
        """The claim and the path in it, `NAMESPACE/CLAIM[/PATH]`; of a folder in the settings, the path below that."""
        base, _, path = self.id.partition(":")
        return path if base.isdecimal() else "/".join(filter(None, (base, path)))


def find_workspaces(page: Page) -> list[WorkspaceFolder]:
    """Return the workspaces, at most 200; none for a server that may read no files."""
    if not page.may_read_files:
        return []
    found: list[WorkspaceFolder] = []
    bases = [(str(number), base) for number, base in enumerate(page.workspaces)]
    for name, base in [*bases, *sorted(page.claims().items())]:
        for path in _below(base):
            if len(found) == _MAX_WORKSPACES:
                return found
            relative = path.relative_to(base).as_posix()
            found.append(WorkspaceFolder(f"{name}:{'' if relative == '.' else relative}", path))
    return found


def _below(base: Path) -> Iterator[Path]:
    """Yield the workspaces at and below a folder, level by level."""
    level, seen = [base], 0
    for depth in range(_MAX_DEPTH + 1):
        following = []
        for folder in level:
            seen += 1
            if seen > _MAX_FOLDERS:
                return
            names = _folders(folder)
            if RUNS in names:
                yield folder
            if depth < _MAX_DEPTH:
                following += [folder / name for name in names if name not in _NEVER and not name.startswith(".")]
        level = following


def _folders(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:  # no such folder, or none that may be read
        return []


def workspace_named(page: Page, name: str) -> WorkspaceFolder:
    """Return a workspace by its id. Only those that were found have one. Raises NotFound."""
    for each in find_workspaces(page):
        if each.id == name:
            return each
    raise NotFound(f"this page has no workspace {name[:200]!r}")


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


def variables_of(trainjob: Obj) -> Iterator[tuple[str, str]]:
    """Yield name and value of all variables with a literal value in the `env` lists of a job's spec. Pure."""
    for entry in _entries(trainjob.get("spec"), 0):
        name, value = entry.get("name"), entry.get("value")
        if isinstance(name, str) and isinstance(value, str):
            yield name, value


def _entries(value: object, depth: int) -> Iterator[Mapping[str, object]]:
    if depth > _MAX_SPEC_DEPTH:
        return
    if isinstance(value, Mapping):
        for name, each in value.items():
            if name == "env" and isinstance(each, list):
                yield from (entry for entry in each if isinstance(entry, Mapping))
            else:
                yield from _entries(each, depth + 1)
    elif isinstance(value, list):
        for each in value:
            yield from _entries(each, depth + 1)
