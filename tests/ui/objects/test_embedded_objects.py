"""The objects of a TrainJob that the embedded cluster's controller has built: the page builds the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from calls import call
from factories import trainjob
from support.cluster_under_test import embedded
from support.waiting import eventually

from trainwright.submission import connect_for_jobs
from trainwright.ui.job_objects import show_live_object, show_objects

PATH = {"namespace": "default", "name": "demo"}


def differences(built: Any, live: Any, path: str = "") -> list[str]:
    """Paths of `built` whose values the live object does not have."""
    if isinstance(built, dict):
        missing = live if isinstance(live, dict) else {}
        return [each for key, value in built.items() for each in differences(value, missing.get(key), f"{path}.{key}")]
    if isinstance(built, list) and isinstance(live, list) and len(built) == len(live):
        return [each for index, value in enumerate(built) for each in differences(value, live[index], f"{path}[{index}]")]
    return [] if built in (live, {}, []) else [f"{path}: {built!r}, not {live!r}"]


@pytest.mark.medium
def test_built_objects_are_those_of_the_controller(tmp_path: Path) -> None:
    with embedded(tmp_path, node=False) as kubeconfig:
        cluster = connect_for_jobs(kubeconfig)
        job = trainjob(suspend=True, trainer={"numNodes": 2, "command": ["true"], "env": [{"name": "A", "value": "é: 1"}]})
        cluster.create(job)
        request = call(cluster, PATH)
        eventually(lambda: "JobSet" in [each["kind"] for each in show_objects(request)["live"]])
        answer = show_objects(request)
        assert answer["problem"] is None
        assert answer["runtime"]["source"] == "snapshot"
        assert [each["kind"] for each in answer["built"]] == ["ConfigMap", "JobSet"]
        for each in answer["built"]:
            live = show_live_object(call(cluster, PATH, type=each["type"], object=each["name"]))
            assert differences(yaml.safe_load(each["yaml"]["text"]), yaml.safe_load(live["text"])) == []
        assert {"runtime", "job", "torch", "trainjobstatus", "jobset"} <= set(answer["built"][-1]["yaml"]["contributors"])
