"""Errors of the API, from the Status objects of servers."""

from __future__ import annotations

from trainwright.api.errors import Invalid, error_from_status


def test_rejection_by_a_policy_names_the_object() -> None:
    """A ValidatingAdmissionPolicy answers 422 with a cause that has no field."""
    denied = "ValidatingAdmissionPolicy 'team-label' with binding 'all' denied request: the label team is missing"
    status = {
        "message": f'trainjobs.trainer.kubeflow.org "llama" is forbidden: {denied}',
        "reason": "Invalid",
        "code": 422,
        "details": {"name": "llama", "group": "trainer.kubeflow.org", "kind": "trainjobs", "causes": [{"message": denied}]},
    }
    error = error_from_status(status)
    assert isinstance(error, Invalid)
    assert [str(problem) for problem in error.problems] == [f"trainjobs llama: {denied}"]
