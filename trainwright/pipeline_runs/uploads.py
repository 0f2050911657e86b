"""What runs and schedules refer to on a server: the experiment, the pipeline, and its version, looked up by name or created.

The name of a version has the digest of the pipeline's text: the same pipeline is uploaded once, and another is another version.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainwright.api.objects import Obj
from trainwright.pipeline_runs.compiled import CompiledPipeline
from trainwright.pipeline_runs.errors import BadPipeline, ServerError
from trainwright.pipeline_runs.server import PipelineServer

DEFAULT_EXPERIMENT_VARIABLE = "KF_PIPELINES_DEFAULT_EXPERIMENT_NAME"
_DEFAULT_EXPERIMENT = "Default"
_MAX_NAME = 127
_DIGEST_CHARS = 16
_CONFLICT = 409


@dataclass(frozen=True)
class UploadedPipeline:
    """A version of a pipeline on a server."""

    pipeline_id: str
    version_id: str
    version_name: str

    @property
    def reference(self) -> Obj:
        """As runs and recurring runs refer to it."""
        return {"pipeline_id": self.pipeline_id, "pipeline_version_id": self.version_id}


def checked_name(name: str, what: str) -> str:
    """Return a name that a server can keep. Raises BadPipeline."""
    if not 1 <= len(name) <= _MAX_NAME or not name.isprintable() or name != name.strip():
        raise BadPipeline(f"{what}: a name has 1 to {_MAX_NAME} printable characters, without spaces around them")
    return name


def experiment_name(name: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the name of the experiment to use: the given one, else that of the environment, else kfp's default."""
    return checked_name(name or environ.get(DEFAULT_EXPERIMENT_VARIABLE) or _DEFAULT_EXPERIMENT, "experiment")


def experiment_id(server: PipelineServer, name: str) -> str:
    """Return the id of an experiment, which is created if there is none. Raises ServerError."""
    api = server.client.experiments
    found = _get_or_create(
        server,
        lambda: server.named(
            api.experiment_service_list_experiments, "experiments", "V2beta1ListExperimentsResponse", name, **server.in_namespace
        ),
        lambda: server.send(
            api.experiment_service_create_experiment, {"display_name": name, **server.in_namespace}, answer="V2beta1Experiment"
        ),
    )
    return _id_of(server, found, "experiment_id")


def upload(server: PipelineServer, pipeline: CompiledPipeline) -> UploadedPipeline:
    """Return the version of a pipeline with exactly this text, which is uploaded if there is none. Raises ServerError."""
    api, name = server.client.pipelines, checked_name(pipeline.name, "pipeline")
    owner = _get_or_create(
        server,
        lambda: server.named(
            api.pipeline_service_list_pipelines, "pipelines", "V2beta1ListPipelinesResponse", name, **server.in_namespace
        ),
        lambda: server.send(
            api.pipeline_service_create_pipeline, {"display_name": name, **server.in_namespace}, answer="V2beta1Pipeline"
        ),
    )
    pipeline_id = _id_of(server, owner, "pipeline_id")
    version_name = f"sha256-{pipeline.digest[:_DIGEST_CHARS]}"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "pipeline.yaml")
        file.write_text(pipeline.text, "utf-8")
        version = _get_or_create(
            server,
            lambda: server.named(
                api.pipeline_service_list_pipeline_versions,
                "pipeline_versions",
                "V2beta1ListPipelineVersionsResponse",
                version_name,
                pipeline_id=pipeline_id,
            ),
            lambda: server.send(
                server.client.pipeline_uploads.upload_pipeline_version,
                str(file),
                name=version_name,
                pipelineid=pipeline_id,
                answer="V2beta1PipelineVersion",
            ),
        )
    return UploadedPipeline(pipeline_id, _id_of(server, version, "pipeline_version_id"), version_name)


def _get_or_create(server: PipelineServer, find: Callable[[], list[Obj]], create: Callable[[], Obj]) -> Obj:
    """Return what has this name. Another client may create it at the same time, or an earlier attempt have lost its answer."""

    def attempt() -> Obj:
        if found := find():
            return _first(found)
        try:
            return create()
        except ServerError as error:
            if error.status != _CONFLICT or not (found := find()):
                raise
            return _first(found)

    return server.retried(attempt)


def _first(found: list[Obj]) -> Obj:
    """Return the oldest, in case that a server allows several of one name."""
    return min(found, key=lambda each: str(each.get("created_at", "")))


def _id_of(server: PipelineServer, obj: Obj, field: str) -> str:
    found = obj.get(field)
    if not isinstance(found, str) or not found:
        raise ServerError(f"{server.address}: the answer has no {field}", status=200)
    return found
