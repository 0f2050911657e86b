"""The functions that stand for the CEL rules of CustomResourceDefinitions hold for the same values as the published text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.on_first_use import OnFirstUse

from trainwright.api import names
from trainwright.api.schema.rules import HOLDS, UNCHANGED, published_rule

cel = OnFirstUse("cel")

_NAMES = st.one_of(
    st.sampled_from(
        ["", "a", "a-b9", "A", "-a", "a-", "9a", "a\n", "é", "a" * 63, "a" * 64, "hf://org/name", "s3:/x", "file:///a\nb"]
    ),
    st.from_regex(r"[a-z]([-a-z0-9]*[a-z0-9])?", fullmatch=True),
    st.from_regex(r"[A-Za-z][A-Za-z0-9+.-]{0,5}:/{1,2}.{0,3}", fullmatch=True),
    st.sampled_from([names.TRAINJOB_CONTROLLER, names.MULTIKUEUE_CONTROLLER, names.NODE]),
    st.text(max_size=5),
)
_ORDER = st.sampled_from([{}, {"startupPolicyOrder": "InOrder"}, {"startupPolicyOrder": "AnyOrder"}])
_REPLICATED_JOB = st.sampled_from([{}, {"dependsOn": []}, {"dependsOn": [{"name": "a"}]}])
_METADATA = st.sampled_from([{}, {"namespace": ""}, {"namespace": "a"}])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "self >= 1": st.integers(-(2**31), 2**31 - 1),
    "self == ''": _NAMES,
    "self in [": _NAMES,
    "!self.exists": st.lists(_NAMES, max_size=3),
    "self.metadata.name": _NAMES.map(lambda name: {"metadata": {"name": name}}),
    "size(self.metadata.name)": _NAMES.map(lambda name: {"metadata": {"name": name}}),
    "has(self.lastUpdatedTime)": st.sampled_from([{}, {"lastUpdatedTime": "2026-01-01T00:00:00Z"}]),
    "[has(self.torch)": st.dictionaries(st.sampled_from(["torch", "mpi", "jax", "xgboost", "flux"]), st.just({})),
    "!(has(self.startupPolicy)": st.fixed_dictionaries(
        {"replicatedJobs": st.lists(_REPLICATED_JOB, max_size=3)}, optional={"startupPolicy": _ORDER.filter(bool)}
    ),
    "self.templates.all": st.fixed_dictionaries(
        {"templates": st.lists(_METADATA.map(lambda metadata: {"metadata": metadata}), max_size=3)}
    ),
}
"""Values that the schema around a rule permits, by how the rule begins."""


@pytest.mark.parametrize("rule", HOLDS)
@given(data=st.data())
def test_property_function_holds_for_the_values_for_which_the_published_rule_holds(rule: str, data: st.DataObject) -> None:
    (values,) = (values for beginning, values in VALUES.items() if rule.startswith(beginning))
    value = data.draw(values)
    assert HOLDS[rule](value) is cel.evaluate(rule, {"self": value})


@pytest.mark.medium
@given(st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=2), st.lists, max_leaves=4), st.data())
def test_property_unchanged_values_are_those_that_are_equal_in_cel(old: Any, data: st.DataObject) -> None:
    new = data.draw(st.just(old) | st.integers(-9, 9) | st.text(max_size=2))
    keeps = published_rule({"rule": UNCHANGED, "message": ""}).keeps
    assert keeps is not None
    assert keeps(old, new) is cel.evaluate(UNCHANGED, {"self": new, "oldSelf": old})
