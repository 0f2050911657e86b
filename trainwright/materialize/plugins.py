"""The phases of materialization, the protocol of policies, and third-party policies.

A policy is a small object with only the phases that it needs. They are called for every TrainJob, in the order of
`trainwright.materialize.assembly.POLICIES`, and must do nothing if the policy does not apply. Every entry point of the group
`trainwright.plugins` names a class with some of the phases. These run after the built-in policies and before the JobSet is built,
ordered by entry point name. Their exceptions are reported with the name of the plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from trainwright.api.errors import ApiError, Problem
from trainwright.materialize.draft import Draft

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


GROUP = "trainwright.plugins"
PHASES = (VALIDATE, *ENFORCE, CHECK, BUILD)


def installed_plugins() -> tuple[Policy, ...]:
    """Return one instance of each plugin. Raises TypeError, which names the entry point, for an invalid policy."""
    from importlib.metadata import entry_points  # slow to import, and most processes do not need it

    found = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        policy = entry.load()()
        if not isinstance(getattr(policy, "name", None), str) or not any(hasattr(policy, phase) for phase in PHASES):
            expected = f"a `name` and one of {', '.join(PHASES)}"
            raise TypeError(f"entry point {entry.name} = {entry.value} of {GROUP} is not a policy: expected {expected}")
        found.append(policy)
    return tuple(found)


def wrap_phase(policy: Policy, phase: str) -> Callable[[Draft], Any]:
    """Wrap a plugin's phase so that its errors name the plugin, the phase and the TrainJob. API errors are not wrapped."""
    step = getattr(policy, phase)

    def run(draft: Draft) -> list[Problem]:
        try:
            found = step(draft)
            return list(found) if isinstance(found, Iterator) else list(found or [])
        except ApiError:
            raise
        except Exception as error:
            where = f"TrainJob {draft.namespace}/{draft.name}"
            problem = f"{type(error).__name__}: {error}"
            raise ApiError(f"the plugin {policy.name!r} failed in phase {phase} for {where}: {problem}") from error

    return run
