"""Identity of a step of a run. It determines the TrainJob's name, so that a retry finds the job instead of creating a second one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trainwright.jobs.state.run_folder import STEP_DIGITS, export_name, later_subfolder, run_folder, step_subfolder
from trainwright.jobs.state.submitter import NOBODY, Submitter

NAME_LIMIT = 33
"""Keeps `NAME-dataset-initializer-0-0-abcde`, the longest pod name of a bundled runtime, within the 63 characters of a DNS label."""
_SLUG, _SLUG_OF_STEP = 20, 13
_ALONE = "train"
"""The place of the only training of a pipeline or DAG run: it has the run's folder."""


@dataclass(frozen=True)
class Identity:
    """`owner` is the submitter (`kfp`, `airflow/dag`, a person); `map_index` distinguishes mapped tasks, -1 for others."""

    owner: str
    run: str
    step: str
    map_index: int = -1
    subfolder: str = field(default="", compare=False)
    """Subfolder of the run's folder that only this step writes to; empty for the run's folder itself."""
    may_resume: bool = field(default=True, compare=False)
    """Whether an attempt continues with what the one before has left in the folder: a training does, an evaluation does not."""
    folder_since: str = field(default="", compare=False)
    """What begins the folder, as an attempt and a random text that no other attempt has; empty for the first folder of the step."""
    submitter: Submitter = field(default=NOBODY, compare=False)

    def at(self, place: str) -> Identity:
        """Return the same identity of a training at a place in its pipeline or DAG, which decides on its folder.

        One that may not be the only training of the run has a folder below that of the run.
        """
        return self if place in ("", _ALONE) else replace(self, subfolder=step_subfolder(place, self.digest()[:STEP_DIGITS]))

    def name(self, attempt: int = 1) -> str:
        """Return the TrainJob's name: a DNS label of at most 33 characters, with a numeric suffix from the second attempt on."""
        base = f"{self._readable()}-{self.digest()[:STEP_DIGITS]}"
        return base if attempt == 1 else f"{base}-{attempt}"

    @property
    def folder(self) -> str:
        """Folder that the step writes to, relative to its workspace: `runs/NAME` or a subfolder of it. Unique for each run."""
        own = run_folder(self.run, self.map_index)
        if not self.folder_since:
            return f"{own}/{self.subfolder}" if self.subfolder else own
        return f"{own}/{later_subfolder(self.subfolder, self.digest()[:STEP_DIGITS], self.folder_since)}"

    def of_attempt(self, trainjob: Mapping[str, Any]) -> Identity:
        """Return the same identity with the folder of the attempt that this TrainJob is."""
        from trainwright.api import names  # a DAG file that is parsed needs neither

        return replace(self, folder_since=(trainjob["metadata"].get("annotations") or {}).get(names.FOLDER_SINCE_ANNOTATION, ""))

    @property
    def exports(self) -> str:
        """The name of the folder of its exports, below the URI that all runs share. Unique like `folder`."""
        return export_name(self.folder)

    def _readable(self) -> str:
        """The DAG or pipeline, the task and its index; the run where there is none."""
        if not self.submitter.pipeline:
            return _slug(self.run)
        index = f"-{self.map_index}" if self.map_index >= 0 else ""
        step = _slug(re.split(r"[./]", self.step)[-1], _SLUG_OF_STEP - len(index)) + index
        return f"{_slug(self.submitter.pipeline, _SLUG - 1 - len(step))}-{step}"

    def digest(self) -> str:
        return hashlib.sha256(str(self).encode()).hexdigest()

    def __str__(self) -> str:
        mapped = f"[{self.map_index}]" if self.map_index >= 0 else ""
        return f"{self.owner}/{self.run}/{self.step}{mapped}"


def _slug(text: str, length: int = _SLUG) -> str:
    """Return the readable part of a name: lower-case letters, digits and dashes, starting with a letter."""
    cleaned = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if not cleaned or not cleaned[0].isalpha():
        cleaned = f"job-{cleaned}".rstrip("-")
    return cleaned[:length].rstrip("-")
