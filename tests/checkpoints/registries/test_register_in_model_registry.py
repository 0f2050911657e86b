"""A registration in the Model Registry is one model, one version and one artifact, whatever fails in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from failures import failure_of
from model_registry_server import FAILED, ModelRegistryServer, When

from trainwright.checkpoints.catalog import read_pins
from trainwright.checkpoints.exported import open_export
from trainwright.checkpoints.registries.register import register_export
from trainwright.checkpoints.registries.registration import (
    Registration,
    RegistrationConflict,
    RegistrationError,
    RegistrationOptions,
)
from trainwright.storage.errors import BadUri, Unreachable

pytest.importorskip("mr_openapi", reason="needs the extra `model-registry`")
pytestmark = pytest.mark.medium

MakeExport = Callable[..., str]


@pytest.fixture
def server() -> Iterator[ModelRegistryServer]:
    server = ModelRegistryServer()
    yield server
    server.stop()


@pytest.fixture
def register(server: ModelRegistryServer, export_uri: str) -> Callable[..., Registration]:
    def run(uri: str = export_uri, *, environ: dict[str, str] | None = None, **options: Any) -> Registration:
        to = f"model-registry://127.0.0.1:{server.port}/llama"
        return register_export(uri, to, options=RegistrationOptions(**options), environ=environ or {})

    return run


def test_model_version_and_artifact_refer_to_the_export(server: ModelRegistryServer, register: Any, export_uri: str) -> None:
    registration = register()
    export = open_export(export_uri)
    (model,), (version,), (artifact,) = server.models, server.versions, server.artifacts
    assert (model["name"], version["name"]) == ("llama", "llama-sft-step-5")
    properties = {
        name: next(value for key, value in entry.items() if key != "metadataType")
        for name, entry in version["customProperties"].items()
    }
    assert properties == {
        "manifest_digest": export.manifest.digest,
        "export_uri": export_uri,
        "run": "llama-sft",
        "trainjob": "llama-sft-0",
        "dataset_digest": f"sha256:{'d' * 64}",
        "model_digest": f"sha256:{'e' * 64}",
        "step": "5",
        **{f"metrics.{name}": value for name, value in export.manifest.metrics.items()},
    }
    assert (artifact["uri"], artifact["modelFormatName"], artifact["modelVersionId"]) == (export_uri, "hf-trainer", version["id"])
    expected = ("model-registry", "llama", "llama-sft-step-5", export.manifest.digest, False)
    assert (registration.registry, registration.name, registration.version, registration.digest, registration.existed) == expected
    assert registration.uri.endswith(f"/api/model_registry/v1/model_versions/{version['id']}")


def test_the_official_client_finds_it(server: ModelRegistryServer, register: Any, export_uri: str) -> None:
    from model_registry import ModelRegistry

    register()
    client = ModelRegistry(f"http://127.0.0.1:{server.port}", author="somebody", is_secure=False)
    version = client.get_model_version("llama", "llama-sft-step-5")
    artifact = client.get_model_artifact("llama", "llama-sft-step-5")
    assert version is not None
    assert artifact is not None
    assert artifact.uri == export_uri
    assert version.custom_properties is not None
    assert (version.custom_properties["step"], version.custom_properties["metrics.eval_loss"]) == (5, 1.5)


def test_a_second_registration_returns_the_first(server: ModelRegistryServer, register: Any) -> None:
    first = register()
    before = len(server.asked)
    assert register() == Registration(**{**vars(first), "existed": True})
    assert [request for request in server.asked[before:] if not request.startswith("GET")] == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_whichever_request_fails_the_next_registration_completes_it(
    server: ModelRegistryServer, register: Any, when: When
) -> None:
    register()
    requests = len(server.asked)
    assert requests == 6
    for number in range(requests):
        server.forget()
        server.faults = lambda count, _request, number=number: when if count == number else ""  # type: ignore[misc]
        failure = failure_of(register)
        assert not failure or str(FAILED) in failure
        server.faults = lambda _count, _request: ""
        register()
        assert [len(each) for each in (server.models, server.versions, server.artifacts)] == [1, 1, 1]
    assert register().existed


@pytest.mark.parametrize("what", ["model", "version", "artifact"])
def test_objects_created_concurrently_are_adopted(server: ModelRegistryServer, register: Any, what: str) -> None:
    registered = register()
    created = {"model": list(server.models), "version": list(server.versions), "artifact": list(server.artifacts)}
    server.forget()

    def create_first(kind: str) -> None:
        if kind == what:
            {"model": server.models, "version": server.versions, "artifact": server.artifacts}[kind].extend(created[kind])

    server.before_create = create_first
    assert register().uri == registered.uri
    assert [len(each) for each in (server.models, server.versions, server.artifacts)] == [1, 1, 1]


def test_a_version_of_another_export_is_a_conflict(server: ModelRegistryServer, register: Any, make_export: MakeExport) -> None:
    register(version="v1")
    other = make_export(6)
    with pytest.raises(RegistrationConflict, match=r"has a version 'v1' of another export, sha256:.*; choose another version"):
        register(other, version="v1")
    assert [each["name"] for each in server.versions] == ["v1"]
    register(other)
    assert [each["name"] for each in server.versions] == ["v1", "llama-sft-step-6"]
    assert len(server.models) == 1


def test_a_superseding_export_of_the_same_step_is_a_version_of_its_own(
    server: ModelRegistryServer, register: Any, make_export: MakeExport
) -> None:
    register()
    superseding = make_export(5, weights=b"others!")
    register(superseding)
    digest = open_export(superseding).manifest.digest.partition(":")[2]
    assert [each["name"] for each in server.versions] == ["llama-sft-step-5", f"llama-sft-step-5-{digest[:8]}"]


def test_a_registered_export_is_pinned_once(server: ModelRegistryServer, register: Any, export_uri: str) -> None:
    register()
    run = open_export(export_uri).store.parent()
    pins = read_pins(run)
    assert list(pins["checkpoint-5"]) == [f"registered in model-registry://127.0.0.1:{server.port}/llama"]
    register()
    assert read_pins(run) == pins


def test_the_token_is_sent_and_not_shown(
    server: ModelRegistryServer, register: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.token = "a-secret-token"
    with pytest.raises(RegistrationError, match="denies access, status 401; set MODEL_REGISTRY_TOKEN") as refused:
        register(environ={"MODEL_REGISTRY_TOKEN": "another-secret"})
    (tmp_path / "token").write_text("a-secret-token\n", "ascii")
    register(environ={"KF_PIPELINES_SA_TOKEN_PATH": str(tmp_path / "token")})
    assert "secret" not in f"{refused.value}{caplog.text}"
    with pytest.raises(RegistrationError, match=r"the token in .*nothing.*cannot be read: No such file"):
        register(environ={"KF_PIPELINES_SA_TOKEN_PATH": str(tmp_path / "nothing")})


def test_registration_works_inside_a_running_event_loop(server: ModelRegistryServer, register: Any) -> None:
    async def inside() -> Registration:
        result: Registration = register()
        return result

    assert asyncio.run(inside()).version == "llama-sft-step-5"


def test_a_registry_that_is_not_there_is_said_to_be_unreachable(server: ModelRegistryServer, register: Any) -> None:
    server.stop()
    with pytest.raises(Unreachable, match="the registry cannot be reached"):
        register()


def test_plain_http_to_another_machine_has_to_be_allowed(export_uri: str) -> None:
    with pytest.raises(BadUri, match=r"plain http is refused.*TRAINWRIGHT_ALLOW_HTTP"):
        register_export(export_uri, "model-registry+http://registry.example.com:8080/llama", environ={})
