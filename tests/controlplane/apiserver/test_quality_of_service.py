"""The QoS class of a pod from the resources of its containers, or of the pod as a whole."""

from __future__ import annotations

from typing import Any

import pytest

from trainwright.controlplane.apiserver.resources.registry import qos_class

BOTH = {"cpu": "1", "memory": "1Gi"}


def limited(limits: dict[str, Any], **requests: Any) -> dict[str, Any]:
    return {"limits": limits, "requests": {**limits, **requests}}


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([{}], "BestEffort"),
        ([{"requests": {"cpu": "1m"}}], "Burstable"),
        ([limited(BOTH)], "Guaranteed"),
        ([{"limits": BOTH}], "Guaranteed"),
        ([{"limits": BOTH, "requests": {"cpu": "0"}}], "Burstable"),
        ([limited(BOTH), {}], "Burstable"),
        ([limited(BOTH, cpu="500m")], "Burstable"),
        ([limited(BOTH, cpu="1000m")], "Guaranteed"),
        ([limited({"cpu": "1"})], "Burstable"),
        ([limited({"cpu": "0", "memory": 0})], "BestEffort"),
        ([limited({"ephemeral-storage": "1Gi", "nvidia.com/gpu": 1})], "BestEffort"),
        ([limited({**BOTH, "ephemeral-storage": "1Gi"}, **{"ephemeral-storage": "1Mi"})], "Guaranteed"),
        ([{"requests": {"cpu": "much"}}, {"limits": ["cpu"]}, {"limits": {"cpu": None}}], "BestEffort"),
    ],
)
def test_class_by_containers(containers: list[Any], expected: str) -> None:
    assert qos_class({"containers": [{"resources": resources} for resources in containers]}) == expected
    as_init = {"initContainers": [{"resources": resources} for resources in containers[1:]]}
    assert qos_class({"containers": [{"resources": containers[0]}], **as_init}) == expected


@pytest.mark.parametrize(
    ("whole", "container", "expected"),
    [
        ({"limits": BOTH}, {}, "Guaranteed"),
        ({"limits": BOTH}, limited(BOTH), "Burstable"),
        ({"limits": BOTH, "requests": BOTH}, {"requests": {"cpu": "1m"}}, "Guaranteed"),
        ({"requests": BOTH}, limited(BOTH), "Burstable"),
    ],
)
def test_class_by_the_resources_of_the_pod(whole: Any, container: Any, expected: str) -> None:
    assert qos_class({"resources": whole, "containers": [{"resources": container}]}) == expected
