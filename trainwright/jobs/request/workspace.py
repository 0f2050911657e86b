"""Parses the settings of where a run keeps its files and where it starts: the workspace, as an existing or a new claim, and
`resume`. Pure.

The workspace is the volume that initializers, nodes and exporter share. A new job resumes from `auto`, `last`, `never`, an exported
checkpoint, or only its weights.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args
from urllib.parse import parse_qsl

from trainwright.api import names
from trainwright.api.quantities import parse_quantity

Access = Literal["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"]
Retain = Literal["keep", "delete"]
_CLAIM = re.compile(r"pvc://([a-z0-9]([-a-z0-9.]*[a-z0-9])?)(?:/([^?\n]*))?(?:\?(.*))?")
_CLASS = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_OPTIONS = ("size", "class", "access", "retain")
_EXPECTED = "pvc://CLAIM, pvc://CLAIM/FOLDER, or with ?size=20Gi&class=NAME&access=MODE&retain=keep for a new claim"
AUTO, LAST, NEVER, WEIGHTS = "auto", names.RESUME_LAST, "never", names.RESUME_WEIGHTS
SCHEMES = ("az", "file", "gs", "pvc", "s3")
"""URI schemes of exports; `pvc://CLAIM/FOLDER` is mounted as a volume."""
_URI = re.compile(r"^([a-z0-9]+)://(.+)$")


@dataclass(frozen=True)
class NewClaim:
    """Properties of a claim to create if it does not exist; empty values use defaults of the cluster or the job."""

    size: str
    storage_class: str = ""
    access: Access | Literal[""] = ""
    """Defaults to ReadWriteMany for several nodes, else ReadWriteOnce."""
    retain: Retain = "keep"
    """With `delete` the claim is deleted with its jobs."""


@dataclass(frozen=True)
class Workspace:
    """A PersistentVolumeClaim, and a folder on it. `uri` is how a person has written it."""

    claim: str
    path: str = ""
    new: NewClaim | None = None
    uri: str = field(default="", compare=False)

    def __str__(self) -> str:
        return self.uri

    @classmethod
    def parse(cls, uri: str, name: str = "workspace") -> Workspace:
        """Parse `pvc://CLAIM[/FOLDER]`, with `?size=...` and further options for a new claim. Raises ValueError naming the setting."""
        match = _CLAIM.fullmatch(uri)
        path = (match[3] or "").strip("/") if match else ""
        if not match or len(match[1]) > 253 or ".." in path.split("/"):
            raise ValueError(f"{name}: {uri!r} is not of the form {_EXPECTED}")
        return cls(claim=match[1], path=path, new=None if match[4] is None else _parse_new_claim(match[4], name), uri=uri)


def _parse_new_claim(query: str, field: str) -> NewClaim:
    pairs = parse_qsl(query, keep_blank_values=True)
    options = dict(pairs)
    if unknown := sorted(set(options) - set(_OPTIONS)):
        raise ValueError(f"{field}: {unknown[0]!r} is not an option of a new claim; expected {', '.join(_OPTIONS)}")
    if len(options) != len(pairs):
        raise ValueError(f"{field}: {query!r} contains an option twice")
    if "size" not in options:
        raise ValueError(f"{field}: size: required for a new claim, as in ?size=20Gi")
    return NewClaim(
        size=_size(options["size"], field),
        storage_class=_class(options.get("class", ""), field),
        access=_one_of(options.get("access", ""), ("", *get_args(Access)), f"{field}: access"),  # type: ignore[arg-type]
        retain=_one_of(options.get("retain", "keep"), get_args(Retain), f"{field}: retain"),  # type: ignore[arg-type]
    )


def _size(text: str, field: str) -> str:
    try:
        positive = parse_quantity(text) > parse_quantity(0)
    except ValueError as error:
        raise ValueError(f"{field}: size: {error}") from None
    if not positive:
        raise ValueError(f"{field}: size: {text!r} must be greater than zero")
    return text


def _class(text: str, field: str) -> str:
    if text and not _CLASS.fullmatch(text):
        raise ValueError(f"{field}: class: {text!r} is not the name of a StorageClass")
    return text


def _one_of(text: str, known: tuple[str, ...], field: str) -> str:
    if text not in known:
        raise ValueError(f"{field}: {text!r}: expected {', '.join(filter(None, known))}")
    return text


def claim_of_volume(volume: Mapping[str, Any]) -> str:
    """Return the claim of a volume, an empty string if it is of another type."""
    return str((volume.get("persistentVolumeClaim") or {}).get("claimName") or "")


def is_claim_of(workspace: Workspace | None, claim: str) -> bool:
    """Whether a claim is that of the workspace, and so has to be mounted through the workspace's volume `initializer`.

    Kubelets up to Kubernetes 1.34 never start a pod with two volumes of one claim (kubernetes/kubernetes#122140).
    """
    return workspace is not None and workspace.claim == claim


def validate_resume(value: str) -> str:
    """Return the value of `resume` if it is valid. Raises ValueError."""
    if value in (AUTO, LAST, NEVER):
        return value
    uri = export_uri_of(value)
    match = _URI.match(uri)
    if not match or match[1] not in SCHEMES or (match[1] == "file" and not match[2].startswith("/")):
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise ValueError(
            f"resume: {value!r}: expected auto, last, never, the URI of an exported checkpoint ({known}), or {WEIGHTS} and such a URI"
        )
    if match[1] == "pvc" and Workspace.parse(uri, "resume").new is not None:
        raise ValueError(f"resume: {value!r}: a new claim contains no export")
    return value


def export_uri_of(resume: str) -> str:
    """Return the URI of the export that the value of `resume` names, with or without `weights:`; "" for the others."""
    return "" if resume in (AUTO, LAST, NEVER) else resume.removeprefix(WEIGHTS)


def prefers_own_checkpoint(resume: str) -> bool:
    """Whether a new job resumes from the run's own last checkpoint, if there is one: with `auto`, `last` and `weights:URI`."""
    return resume in (AUTO, LAST) or resume.startswith(WEIGHTS)
