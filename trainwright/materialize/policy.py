"""The phases of materialization, and the protocol of policies.

A policy is a small object with only the phases that it needs. They are called for every TrainJob, in the order of
`trainwright.materialize.assembly.POLICIES`, and must do nothing if the policy does not apply.
"""

from __future__ import annotations

from typing import Protocol

VALIDATE = "validate"
"""`validate(draft) -> Iterator[Problem]`: problems in the patched template, before any policy has modified it."""
ENFORCE = ("enforce_ml_policy", "enforce_pod_group", "enforce_pod_spec", "before_build")
"""`phase(draft) -> None`: modifies the draft. All policies run one phase, in list order, before the next phase starts."""
CHECK = "check"
"""`check(draft) -> Iterator[Problem]`: problems in the draft after all policies have modified it."""
BUILD = "build"
"""`build(draft) -> None`: adds objects to the draft's companions; the JobSet is last."""


class Policy(Protocol):
    """`name` is used in errors; all phases are optional."""

    name: str
