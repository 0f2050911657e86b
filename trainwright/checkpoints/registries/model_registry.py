"""Registers an export in the Kubeflow Model Registry, by reference: registered model, version, artifact, in that order.

These are three requests and no transaction, so each step looks before it creates: what a crash has left is completed by the next
run. Of the official client only the generated API is used: the layer above it creates a version once and then fails, patches
asyncio's loop, and configures logging.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from trainwright.checkpoints.registries.export_facts import ExportFacts
from trainwright.checkpoints.registries.registration import (
    Registration,
    RegistrationConflict,
    RegistrationError,
    RegistrationOptions,
    RegistryTarget,
)
from trainwright.storage.errors import StorageError, Transient, Unreachable, UnsafeFile
from trainwright.storage.plain_files import read_plain
from trainwright.text.foreign_texts import one_line, without_credentials

log = logging.getLogger(__name__)
T = TypeVar("T")
TOKEN, TOKEN_PATH = "MODEL_REGISTRY_TOKEN", "KF_PIPELINES_SA_TOKEN_PATH"
"""The token itself, and a file with it, which pods of Kubeflow Pipelines have. The token of a pod's service account is not sent."""
MANIFEST = "manifest_digest"
_API = "/api/model_registry/v1"
_SECONDS = 60.0
"""For one request."""
_MAX_TOKEN = 16 * 1024
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})


def register_in_model_registry(
    facts: ExportFacts, target: RegistryTarget, options: RegistrationOptions, environ: Mapping[str, str]
) -> Registration:
    """Register an export as a version of the model of `target`; its artifact refers to the export's URI.

    The version is `RUN-step-STEP` unless it is given. A second registration of the same export returns the first.
    Raises RegistrationConflict for a version of another export, RegistrationError, StorageError.
    """
    import mr_openapi

    configuration = mr_openapi.Configuration(host=target.address, access_token=_token(environ) or None)

    async def register() -> Registration:
        async with mr_openapi.ApiClient(configuration) as client:
            return await _Registering(mr_openapi.ModelRegistryServiceApi(client), facts, target, options).run()

    with ThreadPoolExecutor(1, thread_name_prefix="model-registry") as thread:  # the caller's may have a loop of its own
        return thread.submit(lambda: asyncio.run(register())).result()


class _Registering:
    def __init__(self, api: Any, facts: ExportFacts, target: RegistryTarget, options: RegistrationOptions):
        self._api, self._facts, self._target = api, facts, target
        self._version = options.version or facts.default_version
        self._created = False

    async def run(self) -> Registration:
        model = await self._get_or_create(self._find_model, self._create_model)
        version = await self._get_or_create(lambda: self._find_version(model.id), lambda: self._create_version(model.id))
        found = (version.custom_properties or {}).get(MANIFEST)
        digest = getattr(getattr(found, "actual_instance", None), "string_value", "")
        if digest != self._facts.digest:
            raise RegistrationConflict(
                f"{self._target} has a version {one_line(self._version)!r} of another export, "
                f"{one_line(digest) or 'without a digest'}, not {self._facts.digest}; choose another version"
            )
        await self._get_or_create(lambda: self._find_artifact(version.id), lambda: self._create_artifact(version.id))
        uri = f"{self._target.address}{_API}/model_versions/{quote(version.id, safe='')}"
        log.info("event=export_registered uri=%s version=%s existed=%s", uri, version.name, not self._created)
        return Registration(
            "model-registry", self._target.model, version.name, uri, self._facts.digest, existed=not self._created
        )

    async def _get_or_create(self, find: Callable[[], Awaitable[T | None]], create: Callable[[], Awaitable[T]]) -> T:
        """Return what is there, or create it. If another process creates it at the same time, that is returned."""
        with self._errors():
            found = await find()
            if found is not None:  # registered by an earlier try
                return found
        try:
            with self._errors():
                made = await create()
        except (RegistrationError, StorageError):  # another process may have created it meanwhile
            with self._errors():
                found = await find()
            if found is None:
                raise
            log.info("event=already_registered registry=%s reason=%r", self._target, "created meanwhile")
            return found
        self._created = True
        return made

    async def _find_model(self) -> Any:
        return await _or_none(self._api.find_registered_model(name=self._target.model, _request_timeout=_SECONDS))

    async def _create_model(self) -> Any:
        from mr_openapi import RegisteredModelCreate

        return await self._api.create_registered_model(RegisteredModelCreate(name=self._target.model), _request_timeout=_SECONDS)

    async def _find_version(self, model_id: str) -> Any:
        return await _or_none(
            self._api.find_model_version(name=self._version, parent_resource_id=model_id, _request_timeout=_SECONDS)
        )

    async def _create_version(self, model_id: str) -> Any:
        from mr_openapi import ModelVersionCreate

        version = ModelVersionCreate(
            name=self._version,
            registeredModelId=model_id,
            description=f"Step {self._facts.step}" + (f" of the run {self._facts.run}" if self._facts.run else ""),
            customProperties=_properties(self._facts),
        )
        return await self._api.create_model_version(version, _request_timeout=_SECONDS)

    async def _find_artifact(self, version_id: str) -> Any:
        return await _or_none(
            self._api.find_model_artifact(name=self._target.model, parent_resource_id=version_id, _request_timeout=_SECONDS)
        )

    async def _create_artifact(self, version_id: str) -> Any:
        from mr_openapi import Artifact, ModelArtifact

        artifact = ModelArtifact(
            artifactType="model-artifact",
            name=self._target.model,
            uri=self._facts.uri,
            modelFormatName=self._facts.format,
            modelFormatVersion="1",
            customProperties=_properties(self._facts),
        )
        return await self._api.upsert_model_version_artifact(version_id, Artifact(artifact), _request_timeout=_SECONDS)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Convert the errors of the client. Their texts have the headers and the body of the answer."""
        import aiohttp
        from mr_openapi.exceptions import ApiException, OpenApiException
        from pydantic import ValidationError

        try:
            yield
        except ApiException as error:
            raise self._converted(error.status, _message(error)) from None
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"{self._target}: the registry cannot be reached: {without_credentials(error)}") from None
        except (OpenApiException, ValidationError, ValueError) as error:
            raise StorageError(f"{self._target}: the registry's answer is not valid: {without_credentials(error)}") from None

    def _converted(self, status: int | None, said: str) -> Exception:
        if status in (401, 403):
            return RegistrationError(f"{self._target}: the registry denies access, status {status}; set {TOKEN}: {said}")
        if status == 409:
            return RegistrationConflict(f"{self._target}: the registry reports a conflict: {said}")
        text = f"{self._target}: the registry answers with status {status}: {said}"
        return Transient(text) if status in _TRANSIENT else RegistrationError(text)


async def _or_none(request: Awaitable[T]) -> T | None:
    from mr_openapi.exceptions import NotFoundException

    try:
        return await request
    except NotFoundException:
        return None


def _properties(facts: ExportFacts) -> dict[str, Any]:
    from mr_openapi import MetadataDoubleValue, MetadataIntValue, MetadataStringValue, MetadataValue

    texts = {
        MANIFEST: facts.digest,
        "export_uri": facts.uri,
        "run": facts.run,
        "trainjob": facts.trainjob,
        "dataset_digest": facts.origin.get("dataset", ""),
        "model_digest": facts.origin.get("model", ""),
        "data_findings": ", ".join(facts.finding_names),
    }
    values: dict[str, Any] = {
        name: MetadataStringValue(string_value=text, metadataType="MetadataStringValue") for name, text in texts.items() if text
    }
    values["step"] = MetadataIntValue(int_value=str(facts.step), metadataType="MetadataIntValue")
    for name, number in facts.metrics.items():
        values[f"metrics.{name}"] = MetadataDoubleValue(double_value=number, metadataType="MetadataDoubleValue")
    return {name: MetadataValue(value) for name, value in values.items()}


def _message(error: Any) -> str:
    """Return what the registry says, which is JSON with a `message`, without the headers."""
    said = getattr(error.data, "message", None) or error.body or error.reason or ""
    return without_credentials(said)


def _token(environ: Mapping[str, str]) -> str:
    if token := environ.get(TOKEN, "").strip():
        return token
    path = environ.get(TOKEN_PATH, "").strip()
    if not path:
        return ""
    try:
        return read_plain(Path(path), _MAX_TOKEN).decode("ascii").strip()
    except (OSError, UnsafeFile, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        raise RegistrationError(f"the token in {path}, from {TOKEN_PATH}, cannot be read: {reason}") from None
