"""The settings of a cache, from its initializer's variables, and the objects that are made of them."""

from __future__ import annotations

import pytest
from support.on_first_use import OnFirstUse

from trainwright.api.admission.admit import admit
from trainwright.api.objects import copy_of
from trainwright.datacache import objects
from trainwright.datacache.objects import cache_objects
from trainwright.datacache.settings import CacheError, read_settings

flight = OnFirstUse("trainwright.datacache.flight")

VARIABLES = {
    "STORAGE_URI": "cache://shop/orders",
    "METADATA_LOC": "s3://lake/orders/metadata/1.metadata.json",
    "TRAIN_JOB_NAME": "orders-sft",
    "CACHE_IMAGE": "ghcr.io/kubeflow/trainer/data-cache:latest",
}
TRAINJOB = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "orders-sft", "namespace": "default", "uid": "u-1"},
    "spec": {
        "initializer": {
            "dataset": {
                "storageUri": "cache://shop/orders",
                "secretRef": {"name": "lake"},
                "env": [{"name": "METADATA_LOC", "value": "s3://lake/"}, {"name": "AWS_REGION", "value": "eu-central-1"}],
            }
        }
    },
}


def test_settings_have_the_defaults_of_trainer() -> None:
    settings = read_settings(VARIABLES | {"CLUSTER_SIZE": "", "IAM_ROLE": "arn:aws:iam::1:role/r"})
    assert (settings.schema, settings.table, settings.size) == ("shop", "orders", 3)
    assert (settings.head_mem, settings.worker_mem, settings.head_cpu) == ("1Gi", "2Gi", "")
    assert (settings.name, settings.service) == ("orders-sft-cache", "orders-sft-cache-service")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("STORAGE_URI", "cache://orders", "cache://SCHEMA/TABLE"),
        ("STORAGE_URI", "cache://a/b/c", "cache://SCHEMA/TABLE"),
        ("METADATA_LOC", "", "METADATA_LOC is not set"),
        ("TRAIN_JOB_NAME", "", "TRAIN_JOB_NAME is not set"),
        ("CACHE_IMAGE", "", "CACHE_IMAGE is not set"),
        ("CLUSTER_SIZE", "1", "CLUSTER_SIZE=1 must be a number of at least 2"),
        ("CLUSTER_SIZE", "three", "CLUSTER_SIZE=three must be"),
        ("WORKER_MEM", "2 GB", "WORKER_MEM: '2 GB' is not a quantity"),
        ("HEAD_CPU", "-1", "HEAD_CPU: '-1' must be greater than zero"),
        ("CACHE_OPEN", "yes", "CACHE_OPEN=yes must be true or false"),
    ],
)
def test_invalid_variable_is_named(name: str, value: str, message: str) -> None:
    with pytest.raises(CacheError) as caught:
        read_settings(VARIABLES | {name: value})
    assert message in str(caught.value)


def test_objects_are_admitted_and_end_with_their_trainjob() -> None:
    made = cache_objects(read_settings(VARIABLES | {"CLUSTER_SIZE": "4", "WORKER_MEM": "1500Mi"}), TRAINJOB)
    jobset, service = (admit(obj).object for obj in made)
    assert {obj["metadata"]["ownerReferences"][0]["uid"] for obj in (jobset, service)} == {"u-1"}
    head, worker = (job["template"]["spec"] for job in jobset["spec"]["replicatedJobs"])
    assert (head["completions"], worker["completions"]) == (1, 3)
    assert service["spec"]["selector"].items() <= head["template"]["metadata"]["labels"].items()
    assert not service["spec"]["selector"].items() <= worker["template"]["metadata"]["labels"].items()
    env = {entry["name"]: entry.get("value") for entry in worker["template"]["spec"]["containers"][0]["env"]}
    assert env["WORKER_MEM_BYTES"] == str(1500 * 1024**2)
    assert env["METADATA_LOC"] == VARIABLES["METADATA_LOC"]
    container = head["template"]["spec"]["containers"][0]
    workers = next(entry["value"] for entry in container["env"] if entry["name"] == "WORKERS").split(",")
    assert workers == [f"orders-sft-cache-worker-0-{index}.orders-sft-cache:50051" for index in range(3)]


def test_pods_have_the_variables_and_secret_of_the_initializer() -> None:
    jobset, _ = cache_objects(read_settings(VARIABLES), TRAINJOB)
    for job in jobset["spec"]["replicatedJobs"]:
        container = job["template"]["spec"]["template"]["spec"]["containers"][0]
        assert container["envFrom"] == [{"secretRef": {"name": "lake"}}]
        values = [entry.get("value") for entry in container["env"] if entry["name"] in ("AWS_REGION", "METADATA_LOC")]
        assert values == ["eu-central-1", VARIABLES["METADATA_LOC"]]


@pytest.mark.parametrize(("switch", "has_key"), [("", True), ("false", True), ("true", False)])
def test_pods_refer_to_the_secret_of_their_cache_and_have_no_other_key(switch: str, has_key: bool) -> None:
    trainjob = copy_of(TRAINJOB)
    given = [{"name": name, "value": "stranger"} for name in ("TRAINWRIGHT_CACHE_KEY", "TRAINWRIGHT_CACHE_ASSIGN_TOKEN")]
    trainjob["spec"]["initializer"]["dataset"]["env"] += [*given, {"name": "CACHE_OPEN", "value": switch}]
    jobset, _ = cache_objects(read_settings(VARIABLES | {"CACHE_OPEN": switch}), trainjob)
    assert "stranger" not in str(jobset)
    for job in jobset["spec"]["replicatedJobs"]:
        env = job["template"]["spec"]["template"]["spec"]["containers"][0]["env"]
        found = {entry["name"]: entry.get("valueFrom", entry.get("value")) for entry in env}
        secret = {"secretKeyRef": {"name": "orders-sft-cache-key", "key": "assign-token"}}
        assert found["TRAINWRIGHT_CACHE_ASSIGN_TOKEN"] == secret
        key = {"secretKeyRef": {"name": "orders-sft-cache-key", "key": "key.pem"}}
        assert (found.get("TRAINWRIGHT_CACHE_KEY"), found.get("CACHE_OPEN")) == ((key, None) if has_key else (None, "true"))


def test_ports_are_those_of_the_programs() -> None:
    assert (objects.PORT, objects.HEALTH_PORT) == (flight.PORT, flight.HEALTH_PORT)
