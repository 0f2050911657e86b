"""How Kubernetes' types write a template: a table of what vanishes, what stays and what is always there."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.patching.strategic_merge import strategic_merge
from trainwright.api.schema.published import struct_named
from trainwright.materialize.go_serialization import CONTAINER, JOBSET_SPEC, PATCH_SPEC, POD_SPEC, quantity_problems, serialize


def test_a_template_has_its_structs_and_a_patch_does_not() -> None:
    job = {"name": "n", "template": {"spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}}}
    [whole] = serialize(JOBSET_SPEC, {"replicatedJobs": [job]})["replicatedJobs"]
    assert whole["template"]["metadata"] == whole["template"]["spec"]["template"]["metadata"] == {}
    assert serialize(PATCH_SPEC, {"replicatedJobs": [job]}, complete=False) == {"replicatedJobs": [job]}


def test_an_empty_service_account_of_a_patch_takes_the_runtimes_away() -> None:
    def spec(account: str) -> dict[str, Any]:
        pods = {"serviceAccountName": account, "containers": [{"name": "c"}]}
        return {"replicatedJobs": [{"name": "n", "template": {"spec": {"template": {"spec": pods}}}}]}

    base, patch = serialize(JOBSET_SPEC, spec("base")), serialize(PATCH_SPEC, spec(""), complete=False)
    merged = strategic_merge(base, patch, struct_named("JobSetSpec"))
    [job] = serialize(JOBSET_SPEC, merged)["replicatedJobs"]
    assert "serviceAccountName" not in job["template"]["spec"]["template"]["spec"]


def test_invalid_quantities_are_named_with_their_path() -> None:
    pods = {"containers": [{"name": "c", "resources": {"limits": {"cpu": "x", "memory": "1Gi"}}}], "overhead": {"cpu": "y"}}
    found = [problem.field for problem in quantity_problems(POD_SPEC, pods, "spec")]
    assert found == ["spec.containers[0].resources.limits[cpu]", "spec.overhead[cpu]"]


values = st.recursive(
    st.sampled_from(["", "a", 0, 1, False, True, None]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["name", "labels", "x", "args"]), inner, max_size=3)
    ),
    max_leaves=8,
)


fields = st.fixed_dictionaries(
    {},
    optional={
        "args": st.lists(st.sampled_from(["", "a"]), max_size=2),
        "stdin": st.booleans() | st.none(),
        "image": st.sampled_from(["", "i"]),
        "securityContext": st.dictionaries(st.sampled_from(["name", "labels", "x"]), values, max_size=3),
    },
)


@given(fields)
def test_property_writing_twice_changes_nothing(container: dict[str, Any]) -> None:
    once = serialize(CONTAINER, container)
    assert serialize(CONTAINER, once) == once
