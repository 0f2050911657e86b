"""Errors of workspace folders. Every message names the folder and a fix."""

from __future__ import annotations


class WorkspaceError(Exception):
    """A folder of the workspace is invalid. A retry cannot succeed."""


class PreparedMismatch(WorkspaceError):
    """A folder does not contain the expected prepared dataset or model."""
