"""From a request to a manifest: the workspace, the digest, and requests that are refused."""

from __future__ import annotations

from typing import Any

import pytest
from factories import catalogue_runtime, program_request, train_request, trainjob

from trainwright.api.admission.admit import admit
from trainwright.jobs import Identity, trainjob_manifest
from trainwright.jobs.manifest.resolved_request import ResolvedRequest
from trainwright.jobs.request.invalid_settings import InvalidSettings
from trainwright.jobs.submit.resolve import resolve
from trainwright.jobs.wait.waiting import deadlines_of
from trainwright.materialize import materialize

STEP = Identity("kfp", "run", "train")


def test_a_workspace_takes_the_place_of_the_runtimes_claim_in_every_step() -> None:
    request = train_request(runtime="trl-sft", workspace="pvc://mine/team/one/")
    manifest = trainjob_manifest(resolve(request, catalogue_runtime("trl-sft")), STEP, "team")
    jobset = next(obj for obj in materialize(admit(manifest).object, catalogue_runtime("trl-sft")) if obj["kind"] == "JobSet")
    steps = {job["name"]: job["template"]["spec"]["template"]["spec"] for job in jobset["spec"]["replicatedJobs"]}
    assert set(steps) == {"dataset-initializer", "model-initializer", "node"}
    for step, spec in steps.items():
        (claim,) = [volume["persistentVolumeClaim"] for volume in spec["volumes"] if volume["name"] == "initializer"]
        assert claim == {"claimName": "mine"}, step
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            (mount,) = [mount for mount in container["volumeMounts"] if mount["mountPath"] == "/workspace"]
            assert (mount["name"], mount["subPathExpr"]) == ("initializer", "team/one/runs/run"), (step, container["name"])


def test_the_manifest_is_one_that_the_api_accepts_and_leaves_out_what_was_not_asked_for() -> None:
    manifest = trainjob_manifest(
        ResolvedRequest(train_request(runtime="torch-distributed"), catalogue_runtime("torch-distributed")), STEP, "team"
    )
    admit(manifest)
    assert manifest["spec"] == {
        "runtimeRef": {"name": "torch-distributed", "kind": "ClusterTrainingRuntime", "apiGroup": "trainer.kubeflow.org"},
        "trainer": {},
        "activeDeadlineSeconds": 7 * 24 * 3600,
    }


def test_every_job_has_a_deadline_unless_there_is_to_be_none() -> None:
    def deadline(**fields: Any) -> Any:
        made = trainjob_manifest(ResolvedRequest(train_request(**fields), catalogue_runtime("torch-distributed")), STEP, "team")
        return made["spec"].get("activeDeadlineSeconds")

    assert deadline(runtime="torch-distributed", run_timeout_seconds=0) is None
    assert deadline(runtime="torch-distributed", run_timeout_seconds=60) == 60
    assert deadline(manifest=trainjob()) == 7 * 24 * 3600
    assert deadline(manifest=trainjob(activeDeadlineSeconds=5)) == 5


WEEK = 7 * 24 * 3600


@pytest.mark.parametrize(
    ("given", "of_manifest", "seconds", "is_asked_for"),
    [
        ({}, None, WEEK, False),
        ({"run_timeout_seconds": ""}, 5, 5, True),
        ({}, 30 * WEEK, 30 * WEEK, True),
        ({"run_timeout_seconds": WEEK}, 5, WEEK, True),
        ({"run_timeout_seconds": WEEK}, None, WEEK, True),
        ({"run_timeout_seconds": 0}, None, None, True),
    ],
)
def test_deadline_that_equals_the_default_is_still_the_one_that_was_asked_for(
    given: dict[str, Any], of_manifest: int | None, seconds: int | None, is_asked_for: bool
) -> None:
    manifest = trainjob(**({} if of_manifest is None else {"activeDeadlineSeconds": of_manifest}))
    request = train_request(**{"manifest": manifest, **given})
    made = trainjob_manifest(ResolvedRequest(request, catalogue_runtime("torch-distributed")), STEP, "team")
    assert made["spec"].get("activeDeadlineSeconds") == request.run_deadline == deadlines_of(request).run == seconds
    assert request.asks_for_deadline is is_asked_for


def test_everything_in_a_request_reaches_the_manifest() -> None:
    request = train_request(
        runtime="trl-sft",
        dataset_uri="hf://org/data",
        dataset_env={"A": "1"},
        dataset_secret="hub",
        model_uri="hf://org/model",
        image="img",
        command=["c"],
        args=["a"],
        env={"B": "2"},
        num_nodes=2,
        num_proc_per_node=3,
        resources_per_node={"limits": {"cpu": "1"}},
        run_timeout_seconds=60,
        labels={"kueue.x-k8s.io/queue-name": "q", "trainwright.dev/run": "not-yours"},
    )
    manifest = trainjob_manifest(resolve(request, catalogue_runtime("trl-sft")), STEP, "team", attempt=2)
    spec = manifest["spec"]
    assert spec["initializer"] == {
        "dataset": {"storageUri": "hf://org/data", "env": [{"name": "A", "value": "1"}], "secretRef": {"name": "hub"}},
        "model": {"storageUri": "hf://org/model"},
    }
    assert spec["trainer"] == {
        "image": "img",
        "command": ["c"],
        "args": ["a"],
        "env": [{"name": "B", "value": "2"}],
        "numNodes": 2,
        "numProcPerNode": 3,
        "resourcesPerNode": {"limits": {"cpu": "1"}},
    }
    assert spec["activeDeadlineSeconds"] == 60
    assert manifest["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "q"
    assert manifest["metadata"]["labels"]["trainwright.dev/run"] == "run"
    assert manifest["metadata"]["name"].endswith("-2")


def test_the_digest_tells_requests_apart_but_not_generations() -> None:
    def digest(attempt: int = 1, **fields: Any) -> str:
        request = train_request(runtime="trl-sft", **fields)
        manifest = trainjob_manifest(resolve(request, catalogue_runtime("trl-sft")), STEP, "team", attempt)
        return str(manifest["metadata"]["annotations"]["trainwright.dev/spec-digest"])

    assert digest() == digest(attempt=2) == digest(labels={"a": "b"})
    assert (
        len({digest(), digest(args=["x"]), digest(workspace="pvc://a"), digest(workspace="pvc://b"), digest(env={"A": ""})}) == 5
    )


@pytest.mark.parametrize(
    "uri",
    [
        "pvc://",
        "pvc:///x",
        "pvc://A",
        "pvc://-a",
        "pvc://a-",
        "mine",
        "s3://a",
        "pvc://a/../b",
        "pvc://a/..",
        "pvc://a\n",
        "pvc://a/b\nc",
    ],
)
def test_a_workspace_that_is_none_is_refused_with_the_form(uri: str) -> None:
    with pytest.raises(InvalidSettings, match="pvc://CLAIM/FOLDER"):
        train_request(runtime="trl-sft", workspace=uri)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("runtime", "x" * 254),
        ("runtime_kind", "Deployment"),
        ("num_nodes", -1),
        ("num_proc_per_node", "many"),
        ("run_timeout_seconds", -5),
        ("dataset_uri", "./folder"),
        ("model_uri", "hf://"),
        ("nonsense", 1),
    ],
)
def test_a_bad_field_is_named(field: str, value: Any) -> None:
    with pytest.raises(InvalidSettings, match=field):
        train_request(**{"runtime": "trl-sft", field: value})


def test_a_bare_name_is_one_of_the_hub() -> None:
    made = program_request(dataset_uri="tatsu-lab/alpaca", model_uri="hf://a/b")
    assert (made.dataset_uri, made.model_uri) == ("hf://tatsu-lab/alpaca", "hf://a/b")
