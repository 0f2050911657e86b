"""The phases of materialization, and the shape of a policy that takes part in some of them.

A policy is a small object with only the methods it needs; each is called for every TrainJob, in the order of
`trainwright.materialize.assembly.POLICIES`, and does nothing where it does not apply.
"""

from __future__ import annotations

from typing import Protocol

VALIDATE = "validate"
"""`validate(draft) -> Iterator[Problem]`: what is wrong, seen on the patched template, before any policy has changed it."""
ENFORCE = ("enforce_ml_policy", "enforce_pod_group", "enforce_pod_spec", "before_build")
"""`phase(draft) -> None`: changes to the draft, one phase after the other; within one, policies run in the order of their list."""
CHECK = "check"
"""`check(draft) -> Iterator[Problem]`: what is wrong once all policies have had their say."""
BUILD = "build"
"""`build(draft) -> None`: adds objects to the draft's companions; the JobSet comes last."""


class Policy(Protocol):
    """`name` is what errors call it; all phases are optional."""

    name: str
