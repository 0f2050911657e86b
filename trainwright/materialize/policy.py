"""The phases of materialization, and the shape of a policy that takes part in some of them.

A policy is a small object with only the methods it needs; each is called for every TrainJob, in the order of
`trainwright.materialize.assembly.POLICIES`, and does nothing where it does not apply.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from trainwright.api.errors import Problem
from trainwright.materialize.draft import Draft

PHASES = ("enforce_ml_policy", "enforce_pod_group", "enforce_pod_spec", "before_build", "build")
"""In the order in which they run; within a phase, policies run in the order of their list."""


class Policy(Protocol):
    """`name` is what errors call it. All phases are optional; `validate` runs before any of them, on the patched template."""

    name: str


class Validates(Policy, Protocol):
    def validate(self, draft: Draft) -> Iterator[Problem]: ...
