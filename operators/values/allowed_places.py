"""Checks paths, buckets and claims of a task against an allow-list, since whoever may trigger a DAG may set them as parameters.

The list is the Variable `trainwright_allowed_places`, and `allowed_places` in the extra of the task's connection: prefixes such as
`s3://bucket/team`, `hf://org`, `file:///data` and `pvc://claim`, as a JSON list or separated by commas. With both, both must allow a
place; with neither, all are allowed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from airflow.sdk import BaseHook, Variable

from trainwright.api.errors import ApiError
from trainwright.jobs.request.checks import manifest_documents, manifest_file
from trainwright.jobs.request.setting import Settings, options_of, settings_of
from trainwright.jobs.request.setting_values import parse_group, parse_structure
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.request.workspace import AUTO, LAST, NEVER, export_uri_of
from trainwright.operators.values.airflow_api import AirflowFailException
from trainwright.operators.values.connections import defined_connection
from trainwright.text.foreign_texts import without_user
from trainwright.text.hub_names import with_scheme

VARIABLE = "trainwright_allowed_places"
EXTRA = "allowed_places"
_URI = re.compile(r"(?i:s3|gs|az|hf|pvc|file)://[^\s\"',;]*")
"""A place in a text inside of a structure: addresses of trackers and package indexes are not meant."""
_VOLUMES = frozenset({"name", "emptyDir", "configMap", "secret", "downwardAPI", "projected", "persistentVolumeClaim", "hostPath"})
"""Fields of a volume: those without data of others, and those whose place is checked. No prefix names the data of another one."""


class PlaceNotAllowed(AirflowFailException):
    """A parameter names a place that is not on the list. A retry cannot succeed."""


def check_places(conn_ids: Iterable[str | None], **places: Any) -> None:
    """Raise PlaceNotAllowed for the first place that a list does not allow, ConnectionNotDefined for an unknown connection.

    `conn_ids` are the connections of the task; empty ones are skipped. `places` are parameters of the operators with their values,
    rendered: URIs, claims, local paths, code, or structures such as a TrainJob manifest, whose sources and volumes are checked. Empty
    ones are skipped.
    """
    lists = dict(_lists(conn_ids))
    if not lists:  # without a list all places are allowed
        return
    for parameter, uri in ((name, uri) for name, given in places.items() for uri in _uris(name, given)):
        place = _parts(uri)
        for source, allowed in lists.items():
            if not place or not any(place[: len(above)] == above for above in map(_parts, allowed)):
                raise PlaceNotAllowed(
                    f"{parameter}: {without_user(uri)} is not allowed by {source}; allowed: {', '.join(allowed) or 'nothing'}"
                )


def places_given(settings: Mapping[str, Any], cls: type[Settings] = TrainRequest, within: str = "") -> dict[str, Any]:
    """Return the settings that name places, by path, as they were given: those of groups, too. `cls` is the class of the settings."""
    found: dict[str, Any] = {}
    for name, one in settings_of(cls).items():
        if one.of is None:
            found |= {within + name: settings[name]} if one.place and name in settings else {}
            continue
        with suppress(ValueError):  # what cannot be parsed is rejected later, with its reason
            if isinstance(group := parse_group(settings.get(name)), Mapping):
                found |= places_given(group, one.of, f"{within}{name}.")
    return found


def _lists(conn_ids: Iterable[str | None]) -> Iterator[tuple[str, list[str]]]:
    given = Variable.get(VARIABLE, default=None)
    if given is not None:
        yield f"the Variable {VARIABLE}", _parsed(given, f"the Variable {VARIABLE}")
    for conn_id in dict.fromkeys(filter(None, conn_ids)):
        with defined_connection(conn_id):
            extra = dict(BaseHook.get_connection(conn_id).extra_dejson or {})
        if EXTRA in extra:
            yield f"the connection {conn_id!r}", _parsed(extra[EXTRA], f"{EXTRA} of the connection {conn_id!r}")


def _parsed(given: Any, source: str) -> list[str]:
    """Return the prefixes. A list that cannot be read allows nothing: raises PlaceNotAllowed."""
    if isinstance(given, str) and given.lstrip().startswith("["):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):  # no list: it allows nothing
            given = None
    if isinstance(given, str):
        given = [entry.strip() for entry in given.split(",") if entry.strip()]
    if not isinstance(given, list) or not all(isinstance(entry, str) and "://" in entry for entry in given):
        raise PlaceNotAllowed(f"{source} is not a list of prefixes like s3://bucket/team, so no place is allowed; correct it")
    return given


def _uris(parameter: str, given: Any) -> Iterator[str]:
    """Yield the places that a parameter names, as URIs."""
    name = parameter.rpartition(".")[2]
    if not given or (name == "resume" and given in (AUTO, LAST, NEVER)):  # these words name no export
        return
    if name == "manifest":
        yield from _manifest_uris(given)
        return
    if (setting := options_of(TrainRequest).get(name)) is not None and setting.place == "inside":
        with suppress(ValueError):  # what cannot be parsed is rejected later, with its reason
            yield from _sources_and_volumes({name: parse_structure(given)})
        return
    text = str(given).strip()
    text = with_scheme(export_uri_of(text) if name == "resume" else text)
    if "://" in text:
        yield text
    elif name == "workspace":
        yield f"pvc://{text}"
    else:
        yield f"file://{quote(str(Path(text).expanduser().absolute()))}"


def _manifest_uris(given: Any) -> Iterator[str]:
    """Yield the file of a manifest, and the sources and volumes in it. An unreadable manifest is rejected later, with its reason."""
    if file := manifest_file(given):
        yield from _uris("manifest file", file)
    try:
        documents = manifest_documents(given)
    except (ApiError, ValueError):  # it is rejected later, with its reason
        return
    for document in documents:
        yield from _sources_and_volumes(document)


def _sources_and_volumes(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        volumes = value.get("volumes")
        for volume in volumes if isinstance(volumes, list) else ():
            yield from (f"a volume of type {kind}" for kind in volume if kind not in _VOLUMES) if isinstance(volume, dict) else ()
        for key, inner in value.items():
            if key == "storageUri":
                yield with_scheme(str(inner))
            elif key == "claimName":
                yield f"pvc://{inner}"
            elif key == "hostPath" and isinstance(inner, dict) and inner.get("path"):
                yield f"file://{quote(str(inner['path']))}"
            else:
                yield from _sources_and_volumes(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _sources_and_volumes(inner)
    elif isinstance(value, str):
        yield from _URI.findall(value)


def _parts(uri: str) -> list[str]:
    """Return scheme and path segments; empty for a URI that leads upwards. Links in a local path are resolved."""
    scheme, _, rest = uri.partition("://")
    scheme = scheme.lower()
    if scheme == "file":  # links must not lead around the list
        path = unquote(rest.removeprefix("localhost"))
        return ["file", *(part for part in os.path.realpath(f"/{path.lstrip('/')}").split("/") if part)]
    segments = [segment for segment in rest.partition("?")[0].split("/") if segment]
    if any(unquote(segment) in (".", "..") for segment in segments):
        return []
    if scheme not in ("s3", "gs", "az"):  # a revision is not part of the place; a key of an object store may contain @
        segments = [segment.partition("@")[0] if number else segment for number, segment in enumerate(segments)]
    if scheme == "hf" and len(segments) > 2 and segments[0] in ("datasets", "models"):
        segments = segments[1:]
    return [scheme, *segments]
