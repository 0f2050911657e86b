"""The workspaces that this machine reads: folders with `runs`, found below the folders of the settings, and in claims elsewhere.

Links are not followed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainwright.api.errors import NotFound
from trainwright.ui.call import Page
from trainwright.workspace.layout import RUNS

_MAX_DEPTH, _MAX_FOLDERS, _MAX_WORKSPACES = 4, 5_000, 200
_NEVER = (RUNS, "datasets", "models")
"""Folders of a workspace, below which there is none."""


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


def workspace_named(page: Page, name: str) -> WorkspaceFolder:
    """Return a workspace by its id. Only those that were found have one. Raises NotFound."""
    for each in find_workspaces(page):
        if each.id == name:
            return each
    raise NotFound(f"this page has no workspace {name[:200]!r}")


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
