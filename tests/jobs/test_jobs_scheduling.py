"""Queue, topology, selectors and tolerations reach the pods that train, and what a TrainJob cannot say is refused by field."""

from __future__ import annotations

from typing import Any

import pytest
from factories import catalogue_runtime, train_request
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.admission.admit import admit
from trainwright.jobs import Identity, trainjob_manifest
from trainwright.jobs.manifest.resolved_request import ResolvedRequest
from trainwright.jobs.request.invalid_settings import InvalidSettings
from trainwright.jobs.request.setting_values import Topology
from trainwright.materialize import materialize

STEP = Identity("kfp", "run", "train")
GPU = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
ZONE = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
        }
    }
}


def built(found: dict[str, Any], **fields: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The manifest, the JobSet, and its pod templates by step."""
    request = train_request(**{"runtime": found["metadata"]["name"], **fields})
    manifest = admit(trainjob_manifest(ResolvedRequest(request, found), STEP, "team")).object
    jobset = next(obj for obj in materialize(manifest, found) if obj["kind"] == "JobSet")
    return manifest, jobset, {job["name"]: job["template"]["spec"]["template"] for job in jobset["spec"]["replicatedJobs"]}


def test_training_pods_are_placed_and_initializers_are_not() -> None:
    found = catalogue_runtime("trl-sft")
    own = {"key": "own", "operator": "Exists"}
    for job in found["spec"]["template"]["spec"]["replicatedJobs"]:
        job["template"]["spec"]["template"]["spec"]["tolerations"] = [own]
    _, _, pods = built(found, node_selector={"gpu": "h100"}, tolerations=[GPU, own], affinity=ZONE, workspace="pvc://w")
    node = pods["node"]["spec"]
    assert (node["nodeSelector"], node["tolerations"], node["affinity"]) == ({"gpu": "h100"}, [own, GPU], ZONE)
    for step in ("dataset-initializer", "model-initializer"):
        assert "nodeSelector" not in pods[step]["spec"]
        assert pods[step]["spec"]["tolerations"] == [own]


def test_a_queue_starts_the_job_and_keeps_its_topology() -> None:
    manifest, _, pods = built(
        catalogue_runtime("trl-sft"), queue_name="gpus", priority_class="high", topology="required:cloud.example/rack"
    )
    labels = manifest["metadata"]["labels"]
    assert (labels["kueue.x-k8s.io/queue-name"], labels["kueue.x-k8s.io/priority-class"]) == ("gpus", "high")
    assert manifest["spec"]["suspend"] is True
    assert pods["node"]["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"] == "cloud.example/rack"
    assert "annotations" not in pods["dataset-initializer"].get("metadata", {})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"priority_class": "high"}, "priority_class: requires a queue"),
        ({"topology": "preferred:rack"}, "topology: 'preferred:rack' requires a queue"),
        ({"topology": "rack"}, "is not one of required:KEY"),
        ({"queue_name": "Big Queue"}, "queue_name: 'Big Queue' is not the name of a queue"),
        ({"queue_name": "a", "labels": {"kueue.x-k8s.io/queue-name": "b"}}, "queue_name: 'a' differs from the label"),
        ({"tolerations": [{"kee": "a"}]}, r"tolerations\[0\].kee: unknown field; did you mean key"),
        ({"tolerations": [{"key": 1}]}, r"tolerations\[0\].key: "),
        ({"affinity": {"nodeAfinity": {}}}, "affinity.nodeAfinity: unknown field; did you mean nodeAffinity"),
        (
            {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}},
            "affinity.nodeAffinity.*nodeSelectorTerms: Required value",
        ),
    ],
)
def test_invalid_placement_is_refused_by_field(fields: Any, words: str) -> None:
    with pytest.raises(InvalidSettings, match=f"^placement.*{words}"):
        train_request(**{"runtime": "trl-sft", **fields})


@given(st.text(max_size=30) | st.from_regex(r"(required|preferred|exclusive):[a-z./-]{1,20}", fullmatch=True))
def test_a_topology_is_read_or_refused_and_says_itself_once(text: str) -> None:
    try:
        topology = Topology.parse(text)
    except ValueError:
        return
    assert text == (f"{topology.mode}:{topology.key}" if topology.key else topology.mode)
    assert len(topology.pod_annotations()) + len(topology.jobset_annotations()) == 1
