"""Refuses what JobSet accepts behind an alpha gate only, in the words of a cluster where these gates are off."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.api.errors import Invalid, Problem
from trainwright.api.kinds import JOBSET
from trainwright.api.objects import Obj, name_of
from trainwright.api.schema.check import as_json

_IN_PLACE = "InPlaceRestart"
_DENIED = 'admission webhook "vjobset.kb.io" denied the request: '


def refuse_gated_fields(new: Obj) -> None:
    """Validate an admitted new JobSet. Raises Invalid."""
    if found := list(_gated(new)):
        error = Invalid.of(JOBSET.kind, name_of(new), found, JOBSET.group)
        error.message = _DENIED + error.message
        raise error


def _gated(new: Obj) -> Iterator[Problem]:
    policy = new["spec"].get("failurePolicy") or {}
    for number, rule in enumerate(policy.get("rules") or []):
        if rule["action"] in ("RestartJob", "RestartJobAndIgnoreMaxRestarts"):
            where = f"spec.failurePolicy.rules[{number}].action"
            yield Problem(where, f"Invalid value: {as_json(rule['action'])}: feature gate RestartJob must be enabled")
            return
    if policy.get("restartStrategy") == _IN_PLACE:
        where = "spec.failurePolicy.restartStrategy"
        yield Problem(where, f"Invalid value: {as_json(_IN_PLACE)}: feature gate InPlaceRestart must be enabled")
