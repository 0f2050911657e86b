"""Where to register is understood as it is written, or refused before anything is contacted."""

from __future__ import annotations

from typing import Any

import pytest

from trainwright.checkpoints.registries import register
from trainwright.checkpoints.registries.register import register_export
from trainwright.checkpoints.registries.registration import MissingExtra, RegistrationError, RegistrationOptions, RegistryTarget
from trainwright.storage.errors import BadUri


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("hf://acme/model", "", RegistryTarget("hub", "acme/model")),
        ("hf://models/acme/model@dev", "", RegistryTarget("hub", "acme/model", branch="dev")),
        ("hf://acme/model", "acme/model", RegistryTarget("hub", "acme/model")),
        ("mlflow://llama", "", RegistryTarget("mlflow", "llama")),
        ("mlflow://", "llama sft", RegistryTarget("mlflow", "llama sft")),
        ("MLFLOW://llama%20sft/", "", RegistryTarget("mlflow", "llama sft")),
        ("model-registry://r.example.com/m", "", RegistryTarget("model-registry", "m", "https://r.example.com")),
        ("model-registry://r.example.com:8443", "m", RegistryTarget("model-registry", "m", "https://r.example.com:8443")),
        ("model-registry://localhost:8080/m", "", RegistryTarget("model-registry", "m", "http://localhost:8080")),
        ("model-registry://[::1]:8080/m", "", RegistryTarget("model-registry", "m", "http://[::1]:8080")),
        ("model-registry+https://127.0.0.1/m", "", RegistryTarget("model-registry", "m", "https://127.0.0.1")),
    ],
)
def test_a_target_is_parsed(text: str, name: str, expected: RegistryTarget) -> None:
    assert RegistryTarget.parse(text, name, {}) == expected


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("acme/model", "", "names no registry; expected hf://org/name"),
        ("s3://bucket/model", "", "names no registry"),
        ("hf://gpt2", "", "is not a model repository"),
        ("hf://datasets/acme/data", "", "is not a model repository"),
        ("hf://acme/model/folder", "", "is not a model repository"),
        ("hf://acme/model", "other", "names the repository"),
        ("hf://acme/model@refs/pr/1", "", "expected the name of a branch"),
        ("mlflow://", "", "names no model"),
        ("mlflow://a", "b", "names the model 'a', and the name is 'b'"),
        ("mlflow://a/b", "", "cannot be the name of a model"),
        ("mlflow://", "a'b", "cannot be the name of a model"),
        ("mlflow://", "a\u202eb", "cannot be the name of a model"),
        ("mlflow://", "a" * 201, "cannot be the name of a model"),
        ("model-registry:///m", "", "is not an http:// or https:// address"),
        ("model-registry://u:secret@r.example.com/m", "", "remove the user name"),
        ("model-registry://r.example.com?a=b/m", "", "expected hf://org/name"),
        ("model-registry+http://r.example.com/m", "", "plain http is refused"),
    ],
)
def test_anything_else_is_refused(text: str, name: str, words: str) -> None:
    with pytest.raises(BadUri, match=words) as refused:
        RegistryTarget.parse(text, name, {})
    assert "secret" not in str(refused.value)


def test_plain_http_can_be_allowed() -> None:
    target = RegistryTarget.parse("model-registry+http://r.svc:8080/m", "", {"TRAINWRIGHT_ALLOW_HTTP": "true"})
    assert target.address == "http://r.svc:8080"


@pytest.mark.parametrize(
    ("to", "options", "words"),
    [
        ("mlflow://m", {"version": "v1"}, "MLflow numbers its versions"),
        ("mlflow://m", {"training_state": True}, "only the hub gets a copy"),
        ("model-registry://localhost/m", {"alias": "champion"}, "the Model Registry has no aliases"),
        ("model-registry://localhost/m", {"log_run": True}, "only MLflow has runs"),
        ("hf://acme/model", {"log_run": True}, "only MLflow has runs"),
    ],
)
def test_a_registry_refuses_what_it_cannot_do(to: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(RegistrationError, match=words):
        register_export("file:///nowhere", to, options=RegistrationOptions(**options), environ={})


@pytest.mark.parametrize(
    ("to", "extra"),
    [("hf://acme/model", "hub"), ("model-registry://localhost/m", "model-registry"), ("mlflow://m", "mlflow")],
)
def test_without_the_client_it_says_what_to_install(to: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(MissingExtra, match=rf"pip install 'trainwright\[{extra}\]'"):
        register_export("file:///nowhere", to, environ={})


@pytest.mark.parametrize("tag", ["a b", "-a", "a..b", "a.lock", "a/b", "a" * 101, "0" * 40, "ä"])
@pytest.mark.parametrize("option", ["version", "alias"])
def test_a_tag_that_git_does_not_allow_is_refused(tag: str, option: str, export_uri: str) -> None:
    pytest.importorskip("huggingface_hub")
    options = RegistrationOptions(**{option: tag})  # type: ignore[arg-type]
    with pytest.raises(RegistrationError, match="cannot be a tag"):
        register_export(export_uri, "hf://acme/model", options=options, environ={"HF_TOKEN": "t"})
