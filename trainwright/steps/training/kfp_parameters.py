"""What a component of Kubeflow Pipelines was asked: typed at this door, from its parameters and the run that it is part of."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from trainwright.jobs.request.groups import Ending
from trainwright.jobs.request.invalid_settings import InvalidSettings
from trainwright.jobs.request.setting import Settings
from trainwright.jobs.request.setting_values import parse_group
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.request.typed_parameters import typed_parameters, unmarked
from trainwright.steps.requests import InitializeDataset, Run, RunPlace
from trainwright.storage.uri import SCHEMES, StorageUri

S = TypeVar("S", bound=Settings)
RUN = ("run_id", "run")
"""Parameters of which a step needs one if it has jobs or files of a run."""
WITHOUT_RUN = ("run_id", "required: dsl.PIPELINE_JOB_ID_PLACEHOLDER gives each run an id; or give run, of start_run")
"""The problem of a step that needs a run and has none."""
LOCATION = "location"
"""Metadata of an artifact that is a receipt: where that is which it is about."""


def run_of(run: Any, *, needs_id: bool = False, **given: Any) -> Run:
    """Return the run of a component: what its first step has returned, and what the component was given of it apart, which wins.

    Raises InvalidSettings, also for a run without an id if the component `needs_id`.
    """
    found = Run.of_step(unmarked(run or {}, "run"), **given)
    if needs_id and not found.run_id:
        raise InvalidSettings([WITHOUT_RUN])
    return found


def asked(cls: type[S], parameters: Mapping[str, Any], rest: S | None = None) -> S:
    """Return the request of a component; `rest` are the settings that its run has for it. Raises InvalidSettings, LiteralSecret."""
    return cls.parse(typed_parameters(cls, parameters), rest=rest)


def place_of(training: Mapping[str, Any]) -> tuple[RunPlace, Ending]:
    """Return where a run is done and how its jobs end, from the settings of its training as a person wrote them, for its exit handler.

    A setting that is invalid has ended the first step of the run, and must not end this one: the default holds instead.
    """
    place, ending = RunPlace(), Ending()
    with suppress(InvalidSettings):
        training = unmarked(training, "training")
    for name in ("run_id", "namespace", "submission_mode"):
        with suppress(InvalidSettings):
            place = place.joined(RunPlace.parse({name: training.get(name)}))
    with suppress(InvalidSettings):
        ending = Ending.parse(parse_group(training.get("ending")) or {})
    return place, ending


def of_artifacts(dataset: Any = None, model: Any = None) -> TrainRequest:
    """Return the settings of a training that artifacts of earlier steps say: what is in them, or where it is.

    One that `initialize_dataset` or `initialize_model` has made names what it has prepared in the workspace. Any other is read from
    its address. Raises InvalidSettings for an address that no step reads, and for an export instead of a base model.
    """
    found: dict[str, Any] = {}
    for name, artifact in (("dataset", dataset), ("model", model)):
        if artifact is None:
            continue
        about = artifact.metadata or {}
        if is_prepared(artifact):
            found |= {f"{name}_uri": about["source"], f"{name}_digest": about["digest"]}
            if name == "model" and (shape := about.get("shape")):
                found["data"] = {"model_shape": shape}
        elif name == "model" and (location := about.get(LOCATION)):
            raise InvalidSettings(
                [("model", f"{location} is an export; to start from its weights, set resume=weights:{location}")]
            )
        else:
            found[f"{name}_uri"] = address_of(artifact, name, f"{name}_uri")
    return TrainRequest.parse_some(found)


def of_source(source: Any = None) -> InitializeDataset:
    """Return the settings of the preparation of a dataset that an artifact of an earlier step says: where it is.

    A step has a copy of each of its artifacts, from whatever store; without one, the address is read.
    Raises InvalidSettings for a dataset that is prepared already, and for an address that no step reads.
    """
    if source is None:
        return InitializeDataset()
    if is_prepared(source):
        raise InvalidSettings([("source", "the dataset is prepared already; give it to train as dataset")])
    copy = Path(source.path) if source.path and LOCATION not in (source.metadata or {}) else None
    if copy is not None and copy.exists():
        return InitializeDataset.parse_some({"dataset_uri": str(StorageUri.from_path(copy))})
    return InitializeDataset.parse_some({"dataset_uri": address_of(source, "source", "dataset_uri")})


def is_prepared(artifact: Any) -> bool:
    """Whether an artifact is the receipt of what `initialize_dataset` or `initialize_model` has prepared in the workspace."""
    about = artifact.metadata or {}
    return LOCATION not in about and all(about.get(name) for name in ("source", "revision", "digest"))


def address_of(artifact: Any, name: str, instead: str) -> str:
    """Return the address of what an artifact is about, which steps and pods can read. A local run has a path.

    Raises InvalidSettings naming the parameter of the artifact, and the one to set `instead`.
    """
    uri = str((artifact.metadata or {}).get(LOCATION) or artifact.uri or "")
    scheme, has_scheme, rest = uri.partition("://")
    if not uri:
        raise InvalidSettings([(name, f"the artifact has no address; the step that makes it must write to it, or set {instead}")])
    if not has_scheme:
        return str(StorageUri.from_path(Path(uri)))
    if scheme == "minio":
        prepared = "prepare it with initialize_dataset(source=...), or " if name == "dataset" else ""
        reason = f"the artifact is at {uri}, in the store of Kubeflow Pipelines, for which pods have no credentials"
        advice = f"{prepared}set {instead}=s3://{rest} and a store_secret whose AWS_ENDPOINT_URL is that store"
        raise InvalidSettings([(name, f"{reason}; {advice}")])
    if scheme not in SCHEMES:
        known = ", ".join(f"{one}://" for one in SCHEMES)
        raise InvalidSettings(
            [(name, f"the artifact is at {uri}, and {scheme}:// is not read here; set {instead}, one of {known}")]
        )
    return uri
