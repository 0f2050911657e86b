"""Which step of which run a TrainJob is: a deterministic name, so that a retry finds the job instead of making a second one."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

from trainwright.jobs.run_folder import run_folder

NAME_LIMIT = 33
"""So that `NAME-dataset-initializer-0-0-abcde`, the longest pod name of a bundled runtime, stays a DNS label of 63."""
_SLUG = 20


@dataclass(frozen=True)
class Identity:
    """`owner` is who asks (`kfp`, `airflow/dag`, a person), `run` and `step` where; `map_index` tells mapped steps apart."""

    owner: str
    run: str
    step: str
    map_index: int = -1
    within: str = field(default="", compare=False)
    """Folder below the run's own that the step alone writes to; empty is the run's own."""

    def name(self, generation: int = 1) -> str:
        """A DNS label of at most 33 characters; generations after the first end in their number."""
        base = f"{_slug(self.run)}-{self.digest()[:8]}"
        return base if generation == 1 else f"{base}-{generation}"

    @property
    def folder(self) -> str:
        """Where the step writes, relative to its workspace: `runs/NAME`, or below it. No two runs have the same."""
        own = run_folder(self.run, self.map_index)
        return f"{own}/{self.within}" if self.within else own

    def digest(self) -> str:
        return hashlib.sha256(str(self).encode()).hexdigest()

    def __str__(self) -> str:
        mapped = f"[{self.map_index}]" if self.map_index >= 0 else ""
        return f"{self.owner}/{self.run}/{self.step}{mapped}"


def _slug(text: str) -> str:
    """The readable part of a name: lower case letters, digits and dashes, beginning with a letter."""
    cleaned = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if not cleaned or not cleaned[0].isalpha():
        cleaned = f"job-{cleaned}".rstrip("-")
    return cleaned[:_SLUG].rstrip("-")
