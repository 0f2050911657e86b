"""The workflow of a pipeline whose step submits a job."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.api.objects import Obj


@dataclass(frozen=True)
class Workflow:
    """`reference` is the owner reference for the workflow's object, which is in `namespace`."""

    name: str
    namespace: str
    reference: Obj
