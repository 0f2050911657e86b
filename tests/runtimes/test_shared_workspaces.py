"""The project's own runtimes: pods of any user, writing where others go on, with a home and shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from trainwright.runtimes import bundled_runtime

OURS = ("trl-dpo", "trl-kto", "trl-sft", "causal-lm-evaluation", "workspace-step")


def pods(name: str) -> Iterator[dict[str, Any]]:
    runtime = bundled_runtime(name)
    assert runtime is not None
    for job in runtime["spec"]["template"]["spec"]["replicatedJobs"]:
        yield job["template"]["spec"]["template"]["spec"]


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod.get("initContainers", []), *pod["containers"]]


@pytest.mark.parametrize("name", OURS)
def test_every_pod_writes_for_its_group(name: str) -> None:
    for pod in pods(name):
        assert pod["securityContext"].items() >= {"fsGroup": 1000, "fsGroupChangePolicy": "OnRootMismatch"}.items()
        for container in containers(pod):
            assert {"name": "TRAINWRIGHT_UMASK", "value": "0002"} in container["env"]


@pytest.mark.parametrize("name", OURS)
def test_every_container_has_a_home_that_any_user_can_write_to(name: str) -> None:
    for pod in pods(name):
        assert {"name": "home", "emptyDir": {}} in pod["volumes"]
        for container in containers(pod):
            assert {"name": "HOME", "value": "/home/trainwright"} in container["env"]
            assert {"name": "home", "mountPath": "/home/trainwright"} in container["volumeMounts"]


@pytest.mark.parametrize("name", [name for name in OURS if name.startswith("trl-")])
def test_training_has_shared_memory_of_the_nodes_size(name: str) -> None:
    *_, pod = pods(name)
    assert {"name": "shm", "emptyDir": {"medium": "Memory"}} in pod["volumes"]
    assert {"name": "shm", "mountPath": "/dev/shm"} in pod["containers"][0]["volumeMounts"]


@pytest.mark.parametrize("name", OURS)
def test_every_mount_is_of_a_volume_of_the_pod(name: str) -> None:
    for pod in pods(name):
        mounted = {mount["name"] for container in containers(pod) for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
