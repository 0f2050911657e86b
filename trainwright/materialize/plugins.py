"""Policies of third parties: every entry point of the group `trainwright.plugins` names a class with some of the phases.

They run after the built-in policies and before the JobSet is written; among each other in the order of their names.
"""

from __future__ import annotations

from trainwright.materialize.policy import BUILD, CHECK, ENFORCE, VALIDATE, Policy

GROUP = "trainwright.plugins"
PHASES = (VALIDATE, *ENFORCE, CHECK, BUILD)


def installed_plugins() -> tuple[Policy, ...]:
    """One instance of each. Raises TypeError naming the entry point that is no policy."""
    from importlib.metadata import entry_points  # slow to import, and most processes never build anything

    found = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        policy = entry.load()()
        if not isinstance(getattr(policy, "name", None), str) or not any(hasattr(policy, phase) for phase in PHASES):
            expected = f"a `name` and one of {', '.join(PHASES)}"
            raise TypeError(f"entry point {entry.name} = {entry.value} of {GROUP} is no policy: expected {expected}")
        found.append(policy)
    return tuple(found)
