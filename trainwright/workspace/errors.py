"""What can be wrong with a workspace folder; every message names the folder and what to do."""

from __future__ import annotations


class WorkspaceError(Exception):
    """A folder of the workspace is not what it should be; running again does not help."""


class PreparedMismatch(WorkspaceError):
    """A folder does not hold the prepared dataset or model that it should."""
