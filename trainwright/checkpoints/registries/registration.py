"""What is registered, where, and what came of it. It imports no registry, so that every registry can import it.

The URI of a model in a registry is parsed and checked before anything is contacted. No error contains a token, nor the query or the
user of an address.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from trainwright.checkpoints.errors import CheckpointError
from trainwright.storage.errors import BadUri
from trainwright.storage.plain_files import ProgressCallback, no_progress
from trainwright.storage.uri import StorageUri, checked_address, is_loopback
from trainwright.text.foreign_texts import shown_uri

Registry = Literal["hub", "model-registry", "mlflow"]
DrawCurve = Callable[[Sequence[dict[str, Any]]], str]
"""Returns the loss curve of a log history as an SVG. Raises ValueError without a training loss."""
_EXPECTED = "expected hf://org/name[@branch], model-registry://host[:port]/model, or mlflow://model"
_SCHEMES = ("model-registry", "model-registry+http", "model-registry+https")
_MODEL = re.compile(r"[^\s/:'\"\\`%\x00-\x1f\x7f](?:[^/:'\"\\`%\x00-\x1f\x7f]{0,198}[^\s/:'\"\\`%\x00-\x1f\x7f])?")
"""Without what MLflow does not allow in names, and what would need quoting in its queries."""
_ORG_AND_NAME = 2


@dataclass(frozen=True)
class Registration:
    """An export in a registry.

    `version` is the commit in the Hub, the name of the version in the Model Registry, its number in MLflow. `uri` is where the
    registry has it, `digest` that of the export's manifest. `existed` is whether an earlier registration had been complete.
    """

    registry: Registry
    name: str
    version: str
    uri: str
    digest: str
    existed: bool


@dataclass(frozen=True)
class RegistrationOptions:
    """How an export is registered. A registry refuses what it cannot do."""

    version: str = ""
    """The name of the version: by default RUN-step-STEP in the Model Registry, no tag in the Hub. MLflow numbers its versions."""
    alias: str = ""
    """A name that is moved to this version last: a tag in the Hub, an alias in MLflow."""
    training_state: bool = False
    """Upload optimizer and random states, too. Hub only; the others refer to the whole export."""
    log_run: bool = False
    """Log the training metrics as a run. MLflow only."""
    base_model: str = ""
    """The model that was fine-tuned, `org/name` on the Hub, for the model card; by default what the configuration says."""
    datasets: tuple[str, ...] = ()
    """The datasets that it was trained on, `org/name` on the Hub, for the model card."""
    draw_curve: DrawCurve | None = None
    """Draws the loss curve of the model card."""
    scratch: Path | None = None
    """The folder in which files are fetched before they are uploaded; by default that for temporary files."""
    start_progress: Callable[[int], ProgressCallback] = field(default=lambda _total: no_progress)
    """Called with the number of bytes to fetch."""


@dataclass(frozen=True)
class RegistryTarget:
    """A model in a registry. `address` is that of a Model Registry, `branch` that of a repository of the Hub."""

    registry: Registry
    model: str
    address: str = ""
    branch: str = ""

    @classmethod
    def parse(cls, text: str, name: str, environ: Mapping[str, str]) -> RegistryTarget:
        """Parse `hf://org/name[@branch]`, `model-registry://host[:port]/model` or `mlflow://model`.

        The model may be left out and given as `name`. Plain http to other machines has to be allowed. Raises BadUri.
        """
        scheme, separator, rest = text.strip().partition("://")
        scheme = scheme.lower()
        if separator and scheme == "hf":
            uri = StorageUri.parse(text)
            if uri.kind == "dataset" or uri.folder or len(uri.location.split("/")) != _ORG_AND_NAME:
                raise BadUri(f"{shown_uri(text)} is not a model repository: expected hf://org/name[@branch]")
            if name and name != uri.location:
                raise BadUri(f"{shown_uri(text)} names the repository; it cannot have the name {shown_uri(name)}, too")
            if uri.revision.startswith("refs/"):
                raise BadUri(f"{shown_uri(text)}: expected the name of a branch after @")
            return RegistryTarget("hub", uri.location, branch=uri.revision)
        if separator and scheme == "mlflow":
            return cls("mlflow", _model(text, rest.rstrip("/"), name))
        if separator and scheme in _SCHEMES:
            host, _, model = rest.partition("/")
            return cls("model-registry", _model(text, model.rstrip("/"), name), address=_address(text, scheme, host, environ))
        raise BadUri(f"{shown_uri(text)} names no registry; {_EXPECTED}")

    def __str__(self) -> str:
        if self.registry == "hub":
            return f"hf://{self.model}{'@' + self.branch if self.branch else ''}"
        if self.registry == "mlflow":
            return f"mlflow://{self.model}"
        return f"model-registry://{self.address.partition('://')[2]}/{self.model}"


def _model(text: str, quoted: str, name: str) -> str:
    model = unquote(quoted)
    if name and model and name != model:
        raise BadUri(f"{shown_uri(text)} names the model {model!r}, and the name is {name!r}: leave one of them out")
    model = model or name
    if not model:
        raise BadUri(f"{shown_uri(text)} names no model; {_EXPECTED}")
    if not _MODEL.fullmatch(model) or not model.isprintable():
        raise BadUri(f"{model[:200]!r} cannot be the name of a model: up to 200 characters, without / : % \\ and quotes")
    return model


def _address(text: str, scheme: str, host: str, environ: Mapping[str, str]) -> str:
    """Return the address of a Model Registry: with TLS, except on loopback, or if the scheme says otherwise."""
    _, _, protocol = scheme.partition("+")
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        name = ""
    protocol = protocol or ("http" if is_loopback(name) else "https")
    if "?" in host or "#" in host:
        raise BadUri(f"{shown_uri(text)}: {_EXPECTED}")
    try:
        return checked_address(f"{protocol}://{host}", environ).geturl().rstrip("/")
    except BadUri as error:
        raise BadUri(f"{shown_uri(text)}: {error}") from None


class RegistrationError(CheckpointError):
    """The registry refused the registration, or cannot represent what was asked for. A retry alone does not help."""


class RegistrationConflict(RegistrationError):
    """The registry has something else under this name, or was changed meanwhile. Nothing of others was changed."""


class MissingExtra(RegistrationError):
    """The client library of the registry is not installed."""

    def __init__(self, registry: str, extra: str):
        super().__init__(f"{registry} needs a client that is not installed: pip install 'trainwright[{extra}]'")
