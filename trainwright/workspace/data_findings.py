"""The verdict on a run's dataset as others read it: the export of its checkpoints, their evaluation, the model card, the page.

The folder and the manifest of an export may be written by anybody with access to the volume, so that what is read is bounded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainwright.storage.errors import StorageError, UnsafeFile
from trainwright.storage.plain_files import read_plain
from trainwright.text.foreign_texts import one_line
from trainwright.workspace.run_record import DATASET_REPORTS

FINDINGS = "data_findings"
"""In the metadata of a manifest, and in the result of an evaluation."""
FIGURES = DATASET_REPORTS[2]
_SEVERITIES = ("refused", "warning", "not checked", "note")
_MAX_BYTES = 1024 * 1024
_MAX_FINDINGS = 20
_MAX_TEXT = 600

Finding = dict[str, str]
"""`severity`, `name` for programs, and `text`."""


def recorded_findings(*folders: Path) -> list[Finding]:
    """Return the findings in the first of these folders of a run that has a report; none without one."""
    for folder in folders:
        try:
            figures = json.loads(read_plain(folder / FIGURES, _MAX_BYTES, folder))
        except (OSError, StorageError, UnsafeFile, ValueError, RecursionError):  # no report, or one that is not ours
            continue
        return checked_findings(figures.get("findings") if isinstance(figures, dict) else None)
    return []


def checked_findings(found: Any) -> list[Finding]:
    """Return what of a value is a list of findings."""
    return [
        {name: one_line(each[name])[:_MAX_TEXT] for name in ("severity", "name", "text")}
        for each in (found if isinstance(found, list) else [])[:_MAX_FINDINGS]
        if isinstance(each, dict)
        and each.get("severity") in _SEVERITIES
        and all(isinstance(each.get(name), str) for name in ("name", "text"))
    ]


def finding_lines(found: Any) -> list[str]:
    """Return a line for each finding that a reader of figures must know: all but notes."""
    return [f"{each['severity']}: {each['text']}" for each in checked_findings(found) if each["severity"] != "note"]


def finding_names(found: Any) -> list[str]:
    """Return the names of those findings, as marks of a figure."""
    return [each["name"] for each in checked_findings(found) if each["severity"] != "note"]
