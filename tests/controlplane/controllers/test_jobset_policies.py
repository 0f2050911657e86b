"""The policies of JobSets, as tables: pure functions over objects."""

from __future__ import annotations

from trainwright.controlplane.controllers.jobset.reconciler import resume_patch


def test_resuming_adds_and_never_removes() -> None:
    present = {"spec": {"template": {"spec": {"tolerations": [{"key": "a"}]}}}}
    template = {"metadata": {"labels": {"x": "1"}}, "spec": {"nodeSelector": {"pool": "p"}, "tolerations": [{"key": "b"}]}}
    assert resume_patch(present, {"template": {"spec": {"template": template}}}) == {
        "suspend": False,
        "template": {
            "metadata": {"labels": {"x": "1"}},
            "spec": {"nodeSelector": {"pool": "p"}, "tolerations": [{"key": "a"}, {"key": "b"}]},
        },
    }
    assert resume_patch(present, {"template": {"spec": {"template": {}}}}) == {"suspend": False}
