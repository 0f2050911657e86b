"""What JobSet's feature gates allow and demand at admission."""

from __future__ import annotations

from typing import Any

import pytest
from factories import jobset, replicated_job

from trainwright.api.errors import Invalid
from trainwright.api.objects import copy_of
from trainwright.controlplane.apiserver.admission.jobset_gates import check_gates, with_mutable_sizes
from trainwright.controlplane.gates import FeatureGates, GateError, parse_gates


def jobset_of_one(size: tuple[int | None, int | None] = (2, 2), mode: str = "Indexed", **spec: Any) -> dict[str, Any]:
    sizes = {"parallelism": size[0], "completions": size[1], "completionMode": mode}
    return jobset("js", replicated_job("a", **sizes, **spec.pop("job", {})), **spec)


IN_PLACE = {"maxRestarts": 1, "restartStrategy": "InPlaceRestart"}
ONE_BY_ONE = {"rules": [{"name": "r", "action": "RestartJob"}]}


@pytest.mark.parametrize(
    ("new", "gates", "fields"),
    [
        (jobset_of_one(failurePolicy=ONE_BY_ONE), "", ["spec.failurePolicy.rules[0].action"]),
        (jobset_of_one(failurePolicy=ONE_BY_ONE), "RestartJob=true", []),
        (jobset_of_one(failurePolicy=IN_PLACE), "", ["spec.failurePolicy.restartStrategy"]),
        (
            jobset_of_one((None, 2), failurePolicy=IN_PLACE),
            "InPlaceRestart=true",
            ["backoffLimit", "podReplacementPolicy", "parallelism"],
        ),
        (
            jobset_of_one(failurePolicy=IN_PLACE, job={"backoffLimit": 2147483647, "podReplacementPolicy": "Failed"}),
            "InPlaceRestart=true",
            [],
        ),
    ],
)
def test_new_jobsets(new: dict[str, Any], gates: str, fields: list[str]) -> None:
    assert _refused(None, new, gates) == [
        field if field.startswith("spec.") else f"spec.replicatedJobs[0].template.spec.{field}" for field in fields
    ]


@pytest.mark.parametrize(
    ("size", "mode", "refused", "seen"),
    [
        ((3, 3), "Indexed", [], (3, 3)),
        ((3, 2), "Indexed", ["completions"], (3, 2)),
        ((0, 0), "Indexed", ["parallelism"], (0, 0)),
        ((3, 3), "NonIndexed", [], (2, 2)),
    ],
)
def test_changed_sizes(size: tuple[int, int], mode: str, refused: list[str], seen: tuple[int, int]) -> None:
    old, new, gates = jobset_of_one(mode=mode), jobset_of_one(size, mode), FeatureGates(ElasticJobSet=True)
    assert [field.rpartition(".")[2] for field in _refused(old, new, "ElasticJobSet=true")] == refused
    spec = with_mutable_sizes(old, new, gates)["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (spec["parallelism"], spec["completions"]) == seen
    assert with_mutable_sizes(old, new, FeatureGates()) == old


@pytest.mark.parametrize("jobs", [None, "x", [], ["x"], [{"template": 3}], [{"template": {"spec": []}}]])
def test_what_has_no_shape_yet_changes_no_size(jobs: Any) -> None:
    old = jobset_of_one()
    assert with_mutable_sizes(old, {"spec": {"replicatedJobs": jobs}}, FeatureGates(ElasticJobSet=True)) == copy_of(old)


def test_gates_are_named_as_upstream_names_them() -> None:
    assert parse_gates("RestartJob=true,TrainJobStatus=false") == FeatureGates(TrainJobStatus=False, RestartJob=True)
    with pytest.raises(GateError, match="unknown feature gate 'Restart'"):
        parse_gates("Restart=true")


def _refused(old: dict[str, Any] | None, new: dict[str, Any], gates: str) -> list[str]:
    try:
        check_gates(old, new, parse_gates(gates))
    except Invalid as error:
        return [problem.field for problem in error.problems]
    return []
