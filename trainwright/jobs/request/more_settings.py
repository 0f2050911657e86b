"""Merges `more` into the parameters; pipelines pass the settings that their first step has checked this way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwright.jobs.request.setting_values import parse_structure
from trainwright.text.suggest import suggest

COMPONENT_DEFAULTS: dict[str, Any] = {"waiter_lease_seconds": 600, "run_timeout_seconds": -1}
"""What a component passes for a setting that nobody has given, where kfp has no word for it or another default suits it better.

A pod that waits is seldom cut off from its cluster for long; a triggerer may be.
"""


def with_more(parameters: Mapping[str, Any], more: Any, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters with those of `more`, an object or its JSON. `defaults` are those of all that may be in it.

    Raises ValueError for one that is unknown, or that both have, with other values.
    """
    added = parse_structure(more) or {}
    if not isinstance(added, Mapping):
        raise ValueError("more: expected an object with settings by name")
    result = dict(parameters)
    for name, value in added.items():
        if name not in defaults:
            raise ValueError(f"more.{str(name)[:80]}: unknown; {suggest(str(name), list(defaults))}")
        given = parameters.get(name)
        if given and given not in (defaults[name], COMPONENT_DEFAULTS.get(name), value):
            raise ValueError(f"{name}: given twice, as a parameter and in more; give it once")
        result[name] = value
    return result
