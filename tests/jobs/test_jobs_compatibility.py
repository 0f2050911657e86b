"""What a runtime cannot serve is refused by field before anything is created; what is odd is a warning."""

from __future__ import annotations

from typing import Any

import pytest
from factories import catalogue_runtime, program_request, train_request

from trainwright.api.errors import Invalid
from trainwright.api.kinds import TRAINJOB
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Submission, submit_or_adopt
from trainwright.jobs.submit.plan import preview_submission
from trainwright.jobs.submit.resolve import resolve
from trainwright.submission.jobs_client import JobsClient, PolicyMissing


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"dataset_uri": "hf://a/b"}, "dataset_uri", "has no step 'dataset-initializer' that uses it (its steps: trainer)"),
        ({"model_uri": "hf://a/b"}, "model_uri", "no step 'model-initializer'"),
        ({"dataset_secret": "hub"}, "secrets.dataset_secret", "no step 'dataset-initializer'"),
        ({"resources_per_node": {"limits": {"cpu": "many"}}}, "resources_per_node.limits.cpu", "'many' is not a quantity"),
        ({"resources_per_node": {"limit": {"cpu": "1"}}}, "resources_per_node.limit", "expected limits or requests"),
        (
            {"resources_per_node": {"limits": {"memory": "1Gi"}, "requests": {"memory": "1.5Gi"}}},
            "resources_per_node.requests.memory",
            "1536Mi is more than the limit of 1Gi",
        ),
    ],
)
def test_unsupported_settings_are_refused_before_creation(cluster: EmbeddedCluster, fields: Any, field: str, words: str) -> None:
    with pytest.raises(Invalid) as raised:
        submit_or_adopt(Submission(cluster, program_request(**fields), Identity("o", "r", "s"), "default"))
    (problem,) = raised.value.problems
    assert problem.field == field
    assert words in problem.message
    assert not cluster.list(TRAINJOB).items


def test_nodes_that_would_not_find_each_other_are_refused_before_anything_is_created(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobsClient, "why_no_plugins", lambda *_: "another controller")
    request = program_request(runtime="paddle-distributed", num_nodes=2)
    with pytest.raises(PolicyMissing, match=r"no policy for paddle.*another controller"):
        submit_or_adopt(Submission(cluster, request, Identity("o", "r", "s"), "default"))
    with pytest.raises(PolicyMissing):
        preview_submission(request, Identity("o", "r", "s"), "default", cluster)
    assert not cluster.list(TRAINJOB).items


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, ["has no label trainer.kubeflow.org/framework"]),
        ({"num_nodes": 2}, ["no label", "has no mlPolicy"]),
        (
            {"resources_per_node": {"limits": {"nvidia.com/gpu": "2"}}, "num_proc_per_node": 4},
            ["no label", "no mlPolicy", "num_proc_per_node=4 is more than the 2 GPUs"],
        ),
    ],
)
def test_suspicious_settings_are_warnings(fields: Any, words: list[str]) -> None:
    odd = catalogue_runtime("torch-distributed")
    odd["metadata"].pop("labels")
    odd["spec"].pop("mlPolicy")
    warnings = resolve(train_request(**{"runtime": "torch-distributed", "command": ["true"], **fields}), odd).warnings
    assert len(warnings) == len(words)
    assert all(word in warning for word, warning in zip(words, warnings, strict=True))
