"""JobSet's alpha gates: what they would allow is refused, and nobody can open them."""

from __future__ import annotations

from typing import Any

import pytest
from factories import jobset, replicated_job

from trainwright.api.errors import Invalid
from trainwright.controlplane.apiserver.admission.webhooks import refuse_gated_fields
from trainwright.embedded.options import FeatureGates, GateError, parse_gates


@pytest.mark.parametrize(
    ("policy", "field", "value", "gate"),
    [
        ({"rules": [{"name": "r", "action": "RestartJob"}]}, "rules[0].action", "RestartJob", "RestartJob"),
        ({"maxRestarts": 1, "restartStrategy": "InPlaceRestart"}, "restartStrategy", "InPlaceRestart", "InPlaceRestart"),
    ],
)
def test_gated_fields_are_refused(policy: dict[str, Any], field: str, value: str, gate: str) -> None:
    with pytest.raises(Invalid) as refused:
        refuse_gated_fields(jobset("js", replicated_job("a"), failurePolicy=policy))
    said = f'spec.failurePolicy.{field}: Invalid value: "{value}": feature gate {gate} must be enabled'
    assert refused.value.message.startswith('admission webhook "vjobset.kb.io" denied the request: ')
    assert said in refused.value.message


def test_other_policies_are_not_refused() -> None:
    refuse_gated_fields(jobset("js", replicated_job("a"), failurePolicy={"maxRestarts": 1, "restartStrategy": "Recreate"}))


def test_gates_are_named_as_upstream_names_them() -> None:
    assert parse_gates("TrainJobStatus=false") == FeatureGates(TrainJobStatus=False)
    with pytest.raises(GateError, match="unknown feature gate 'RestartJob'; known: TrainJobStatus"):
        parse_gates("RestartJob=true")
