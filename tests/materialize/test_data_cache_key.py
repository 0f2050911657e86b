"""The key of a data cache: who has it, and that it stands in a Secret only."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from factories import catalogue_runtime, trainjob

from trainwright.api.objects import Obj
from trainwright.materialize import RandomKeys, Settings, materialize

RUNTIME = "torch-distributed-with-cache"
CACHES = Settings(cache_keys=True)


def made(uri: str = "cache://shop/orders", *, settings: Settings = CACHES, **env: str) -> list[Obj]:
    dataset = {"storageUri": uri, "env": [{"name": name, "value": value} for name, value in env.items()]}
    job = trainjob(initializer={"dataset": dataset}, trainer={"numNodes": 2})
    return materialize(job, catalogue_runtime(RUNTIME), settings=settings, keys=RandomKeys())


def variables(objects: list[Obj], step: str) -> dict[str, Any]:
    jobs = objects[-1]["spec"]["replicatedJobs"]
    container = next(job for job in jobs if job["name"] == step)["template"]["spec"]["template"]["spec"]["containers"][0]
    return {entry["name"]: entry for entry in container.get("env") or []}


def secrets(objects: list[Obj]) -> list[Obj]:
    return [obj for obj in objects if obj["kind"] == "Secret"]


def test_trainer_refers_to_the_key_and_the_initializer_does_not() -> None:
    objects = made()
    reference = {"secretKeyRef": {"name": "demo-cache-key", "key": "key.pem"}}
    assert variables(objects, "node")["TRAINWRIGHT_CACHE_KEY"] == {"name": "TRAINWRIGHT_CACHE_KEY", "valueFrom": reference}
    assert not {"TRAINWRIGHT_CACHE_KEY", "TRAINWRIGHT_CACHE_ASSIGN_TOKEN"} & set(variables(objects, "dataset-initializer"))
    assert "TRAINWRIGHT_CACHE_ASSIGN_TOKEN" not in variables(objects, "node")


def test_secret_is_owned_immutable_and_new_for_each_cache() -> None:
    one, other = (secrets(made())[0] for _ in range(2))
    assert (one["immutable"], one["metadata"]["ownerReferences"][0]["kind"]) == (True, "TrainJob")
    values = [{name: b64decode(text) for name, text in secret["data"].items()} for secret in (one, other)]
    assert len({text for secret in values for text in secret.values()}) == 4
    assert len(bytes.fromhex(values[0]["assign-token"].decode())) == 32
    certificate, key = x509.load_pem_x509_certificate(values[0]["key.pem"]), load_pem_private_key(values[0]["key.pem"], None)
    assert certificate.public_key() == key.public_key()


def test_values_of_the_secret_stand_in_no_other_object() -> None:
    objects = made()
    others = str([obj for obj in objects if obj["kind"] != "Secret"])
    for text in secrets(objects)[0]["data"].values():
        assert text not in others
        for line in b64decode(text).decode().splitlines():
            assert line not in others


def test_open_cache_gives_its_readers_no_key() -> None:
    objects = made(CACHE_OPEN="true")
    assert "TRAINWRIGHT_CACHE_KEY" not in variables(objects, "node")
    assert len(secrets(objects)) == 1  # the head's token
    assert "TRAINWRIGHT_CACHE_KEY" in variables(made(CACHE_OPEN="false"), "node")


@pytest.mark.parametrize(
    "given",
    [{"settings": Settings()}, {"uri": "hf://a/b"}, {"STORAGE_URI": "hf://a/b"}],
    ids=["a cache of Trainer", "another source", "another source in its variables"],
)
def test_job_without_a_cache_of_trainwright_gets_no_key(given: dict[str, Any]) -> None:
    objects = made(**given)
    assert "TRAINWRIGHT_CACHE_KEY" not in variables(objects, "node")
    assert secrets(objects) == []


def test_placeholder_is_no_key() -> None:
    job = trainjob(initializer={"dataset": {"storageUri": "cache://shop/orders"}})
    (secret,) = secrets(materialize(job, catalogue_runtime(RUNTIME), settings=CACHES))
    assert all(b"placeholder" in b64decode(text) for text in secret["data"].values())
