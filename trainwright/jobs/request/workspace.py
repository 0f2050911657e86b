"""The volume that initializers, nodes and exporter share, as one argument: an existing claim, or one that is to be made. Pure."""

from __future__ import annotations

import re
from typing import Literal, get_args
from urllib.parse import parse_qsl

from pydantic import BaseModel, ConfigDict

from trainwright.api.quantities import parse_quantity

Access = Literal["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"]
Retain = Literal["keep", "delete"]
_CLAIM = re.compile(r"pvc://([a-z0-9]([-a-z0-9.]*[a-z0-9])?)(?:/([^?\n]*))?(?:\?(.*))?")
_CLASS = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_WISHES = ("size", "class", "access", "retain")
_FORMS = "pvc://CLAIM, pvc://CLAIM/FOLDER, or with ?size=20Gi&class=NAME&access=MODE&retain=keep for a claim that is to be made"


class NewClaim(BaseModel):
    """What a claim should be that is made where there is none; empty values leave it to the cluster or to the job."""

    model_config = ConfigDict(frozen=True)

    size: str
    storage_class: str = ""
    access: Access | Literal[""] = ""
    """Empty: ReadWriteMany for several nodes, else ReadWriteOnce."""
    retain: Retain = "keep"
    """`delete`: it goes with its jobs."""


class Workspace(BaseModel):
    """A claim, and a folder in it."""

    model_config = ConfigDict(frozen=True)

    claim: str
    path: str = ""
    new: NewClaim | None = None

    @classmethod
    def parse(cls, uri: str, field: str = "workspace") -> Workspace:
        """From `pvc://CLAIM[/FOLDER]`, or with `?size=...` and more for a claim to be made. Raises ValueError naming the field."""
        match = _CLAIM.fullmatch(uri)
        path = (match[3] or "").strip("/") if match else ""
        if not match or len(match[1]) > 253 or ".." in path.split("/"):
            raise ValueError(f"{field}: {uri!r} is not of the form {_FORMS}")
        return cls(claim=match[1], path=path, new=None if match[4] is None else _wish(match[4], field))


def _wish(query: str, field: str) -> NewClaim:
    pairs = parse_qsl(query, keep_blank_values=True)
    said = dict(pairs)
    if unknown := sorted(set(said) - set(_WISHES)):
        raise ValueError(f"{field}: {unknown[0]!r} is nothing that a new claim has; known: {', '.join(_WISHES)}")
    if len(said) != len(pairs):
        raise ValueError(f"{field}: {query!r} says something twice")
    if "size" not in said:
        raise ValueError(f"{field}: size: a new claim needs one, as in ?size=20Gi")
    return NewClaim(
        size=_size(said["size"], field),
        storage_class=_class(said.get("class", ""), field),
        access=_one_of(said.get("access", ""), ("", *get_args(Access)), f"{field}: access"),  # type: ignore[arg-type]
        retain=_one_of(said.get("retain", "keep"), get_args(Retain), f"{field}: retain"),  # type: ignore[arg-type]
    )


def _size(text: str, field: str) -> str:
    try:
        positive = parse_quantity(text) > parse_quantity(0)
    except ValueError as error:
        raise ValueError(f"{field}: size: {error}") from None
    if not positive:
        raise ValueError(f"{field}: size: {text!r} is not more than nothing")
    return text


def _class(text: str, field: str) -> str:
    if text and not _CLASS.fullmatch(text):
        raise ValueError(f"{field}: class: {text!r} is no name of a StorageClass")
    return text


def _one_of(text: str, known: tuple[str, ...], field: str) -> str:
    if text not in known:
        raise ValueError(f"{field}: {text!r}: expected {', '.join(filter(None, known))}")
    return text
