"""What the cluster stores and does not enforce is reported once, when it is created."""

from __future__ import annotations

from typing import Any

import pytest

from trainwright.controlplane.apiserver.admission.webhooks import not_enforced_warnings


def obj(kind: str, **metadata: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": "mine", **metadata}}


@pytest.mark.parametrize("kind", ["ResourceQuota", "LimitRange", "PodGroup"])
def test_warning_at_creation_only(kind: str) -> None:
    assert not_enforced_warnings(obj(kind), None) == [f"{kind} mine: this cluster stores it, and does not enforce it"]
    assert not_enforced_warnings(obj(kind), obj(kind)) == []


def test_no_warning_of_the_pod_group_of_a_trainjob() -> None:
    owner = {"kind": "TrainJob", "name": "job", "uid": "1", "controller": True}
    assert not_enforced_warnings(obj("PodGroup", ownerReferences=[owner]), None) == []


def test_no_warning_of_other_kinds() -> None:
    assert not_enforced_warnings(obj("Secret"), None) == []
