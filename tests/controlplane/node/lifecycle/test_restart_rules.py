"""Which containers are started again after which exit codes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lifecycle_states import pod_with, state

from trainwright.controlplane.node.lifecycle.container_state import Role
from trainwright.controlplane.node.lifecycle.restarts import is_restarted

POLICIES = ("Always", "OnFailure", "Never")


def rule(operator: str, *values: int, action: str = "Restart") -> dict[str, Any]:
    return {"action": action, "exitCodes": {"operator": operator, "values": list(values)}}


@pytest.mark.parametrize(
    ("rules", "policy", "codes"),
    [
        ([rule("In", 42)], "Never", {42}),
        ([rule("In", 0, 42)], "Never", {0, 42}),
        ([rule("In", 42)], "OnFailure", {1, 42, 137}),
        ([rule("NotIn", 0, 1)], "Never", {42, 137}),
        ([rule("NotIn", 42)], "Never", {0, 1, 137}),
        ([rule("In", 1), rule("In", 42)], "Never", {1, 42}),
        ([rule("In", 42, action="Other"), rule("NotIn", 1)], "Never", {0, 137}),
        ([rule("In", 42, action="Other")], "OnFailure", {1, 42, 137}),
        ([rule("Near", 42)], "Never", set()),
        ([{"action": "Restart"}], "Never", set()),
        ([], "Never", set()),
    ],
)
def test_the_first_rule_that_matches_decides(rules: list[dict[str, Any]], policy: str, codes: set[int]) -> None:
    container = state(spec={"restartPolicy": policy, "restartPolicyRules": rules})
    assert {code for code in (0, 1, 42, 137) if is_restarted(pod_with("Always"), container, code)} == codes


def test_rules_count_only_beside_a_policy_of_the_containers_own() -> None:
    assert not is_restarted(pod_with("Never"), state(spec={"restartPolicyRules": [rule("In", 42)]}), 42)


def test_an_init_container_that_succeeded_is_never_repeated() -> None:
    container = state(Role.INIT, spec={"restartPolicy": "OnFailure", "restartPolicyRules": [rule("In", 0, 42)]})
    assert not is_restarted(pod_with("Always"), container, 0)
    assert is_restarted(pod_with("Always"), container, 42)


@given(
    policy=st.sampled_from(POLICIES),
    values=st.sets(st.integers(0, 255), max_size=5),
    code=st.integers(0, 255),
)
def test_property_in_and_not_in_are_opposites_where_the_policy_is_never(policy: str, values: set[int], code: int) -> None:
    def found(operator: str, own: str) -> bool:
        return is_restarted(
            pod_with(policy), state(spec={"restartPolicy": own, "restartPolicyRules": [rule(operator, *values)]}), code
        )

    assert found("In", "Never") == (code in values)
    assert found("NotIn", "Never") == (code not in values)
    assert found("In", "Always")
    assert found("NotIn", "Always")
