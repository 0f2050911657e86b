"""Settings of a TrainJob that its runtime does not use are said where it is written: by validate, a submission, the API server."""

from __future__ import annotations

from typing import Any

import pytest
from factories import replicated_job, runtime, trainjob

from trainwright.api.admission.admit import AdmissionContext, admit
from trainwright.api.objects import name_of
from trainwright.api.rules.trainjob import idle_settings
from trainwright.runtimes import bundled_runtimes


def with_trainer(**trainer: Any) -> dict[str, Any]:
    return trainjob("job", runtime="rt", trainer=trainer)


def runtime_of(*, step: str | None = "trainer", container: str = "node", gpus: int = 0) -> dict[str, Any]:
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    pod = {"containers": [{"name": container, "image": "example.com/t:1", "resources": resources}]}
    return runtime("rt", replicated_job(step=step, pod_spec=pod))


@pytest.mark.parametrize(
    ("given", "trainer", "said"),
    [
        ({"step": None}, {"numNodes": 2, "image": "i"}, ["spec.trainer.numNodes takes no effect", "spec.trainer.image takes no"]),
        ({"container": "main"}, {"numNodes": 2, "command": ["c"]}, ["spec.trainer.command takes no effect: .*'node' .main."]),
        ({}, {"numNodes": 0}, ["numNodes is 0: no node is started"]),
        ({"gpus": 4}, {"resourcesPerNode": {"limits": {"memory": "1Gi"}}}, ["requests nvidia.com/gpu: 4"]),
        ({"gpus": 4}, {"resourcesPerNode": {"limits": {"memory": "1Gi", "nvidia.com/gpu": "4"}}}, []),
        ({"gpus": 4}, {"resourcesPerNode": {"limits": {"memory": "1Gi"}}, "numProcPerNode": 4}, []),
        ({}, {"numNodes": 2, "image": "i", "command": ["c"], "env": [{"name": "A", "value": "1"}]}, []),
        ({"step": None}, {}, []),
    ],
)
def test_settings_without_effect_are_warned_of_and_no_others(
    given: dict[str, Any], trainer: dict[str, Any], said: list[str]
) -> None:
    import re

    found = list(idle_settings(with_trainer(**trainer), runtime_of(**given)))
    assert len(found) == len(said), found
    assert all(re.search(pattern, text) for pattern, text in zip(said, found, strict=True)), found


def test_admission_warns_of_it() -> None:
    context = AdmissionContext(lookup=lambda _kind, _namespace, _name: runtime_of(step=None))
    assert any("numNodes takes no effect" in text for text in admit(with_trainer(numNodes=2), context=context).warnings)


@pytest.mark.parametrize("used", bundled_runtimes(), ids=name_of)
def test_no_bundled_runtime_ignores_a_setting(used: dict[str, Any]) -> None:
    trainer = {"numNodes": 2, "image": "i", "env": [{"name": "A", "value": "1"}]}
    assert not list(idle_settings(with_trainer(**trainer), used))


@pytest.mark.parametrize("policy", [{"mpi": {"runLauncherAsNode": True}}, {"flux": {}}])
def test_policies_that_count_nodes_by_themselves_are_believed(policy: dict[str, Any]) -> None:
    used = runtime_of(step=None)
    used["spec"]["mlPolicy"] = policy
    assert not list(idle_settings(with_trainer(numNodes=0), used))
