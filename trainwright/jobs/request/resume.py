"""Parses the setting `resume`, where a new job starts: `auto`, `last`, `never`, an exported checkpoint, or only its weights. Pure."""

from __future__ import annotations

import re

from trainwright.api import names
from trainwright.jobs.request.workspace import Workspace

AUTO, LAST, NEVER, WEIGHTS = "auto", names.RESUME_LAST, "never", names.RESUME_WEIGHTS
SCHEMES = ("az", "file", "gs", "pvc", "s3")
"""URI schemes of exports; `pvc://CLAIM/FOLDER` is mounted as a volume."""
_URI = re.compile(r"^([a-z0-9]+)://(.+)$")


def validate_resume(value: str) -> str:
    """Return the value of `resume` if it is valid. Raises ValueError."""
    if value in (AUTO, LAST, NEVER):
        return value
    uri = export_uri_of(value)
    match = _URI.match(uri)
    if not match or match[1] not in SCHEMES or (match[1] == "file" and not match[2].startswith("/")):
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise ValueError(
            f"resume: {value!r}: expected auto, last, never, the URI of an exported checkpoint ({known}), or {WEIGHTS} and such a URI"
        )
    if match[1] == "pvc" and Workspace.parse(uri, "resume").new is not None:
        raise ValueError(f"resume: {value!r}: a new claim contains no export")
    return value


def export_uri_of(resume: str) -> str:
    """Return the URI of the export that the value of `resume` names, with or without `weights:`; "" for the others."""
    return "" if resume in (AUTO, LAST, NEVER) else resume.removeprefix(WEIGHTS)


def prefers_own_checkpoint(resume: str) -> bool:
    """Whether a new job resumes from the run's own last checkpoint, if there is one: with `auto`, `last` and `weights:URI`."""
    return resume in (AUTO, LAST) or resume.startswith(WEIGHTS)
