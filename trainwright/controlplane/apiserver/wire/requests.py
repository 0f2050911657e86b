"""Requests: a Starlette request with headers decoded once, and the query parameters of lists, watches, writes and Tables.

Parameters are parsed and validated with kube-apiserver's error messages. With the options of a write goes what admission needs to know
of its sender: some writes give rights away, which the sender must have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

import orjson
from starlette import requests

from trainwright.api.errors import BadRequest, Invalid, Problem, Timeout
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.resources.registry import Target
from trainwright.controlplane.apiserver.wire import media
from trainwright.controlplane.apiserver.wire.api_errors import UnknownReasonError

_MATCH = "resourceVersionMatch"
_INTEGER = re.compile(r"[+-]?[0-9]+")
_MAX_DIGITS = 100
"""Maximum digits of a number: leading zeros are allowed, but parsing thousands of digits takes long."""
_VERSION_PREFIX = 'resourceVersion: Invalid value: "{}": '
IncludeObject = Literal["None", "Metadata", "Object"]
"""The part of the object that each row of a Table includes."""
_MAX_MANAGER_BYTES = 128
_OPTIONS_OF = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}


class Request(requests.Request):
    """A request with its headers in a dict; the first of repeated headers wins."""

    target: Target | None = None
    """The resource that its path names, once resolved."""
    sender: Requester | None = None
    """Who sends it, once authenticated."""

    @cached_property
    def headers(self) -> Mapping[str, str]:  # type: ignore[override]
        return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(self.scope["headers"])}


@dataclass(frozen=True)
class ListOptions:
    """The parameters of a list or watch. An empty `resource_version` means the latest one."""

    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    watch: bool = False
    timeout_seconds: int | None = None
    allow_bookmarks: bool = False
    send_initial_events: bool | None = None
    """Whether a watch begins with the objects that there are; None does so where it begins at no certain version."""

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> ListOptions:
        """Parse query parameters. Raises BadRequest for malformed values, Invalid for conflicting parameters."""
        initial = query.get("sendInitialEvents")
        options = cls(
            label_selector=query.get("labelSelector", ""),
            field_selector=query.get("fieldSelector", ""),
            limit=parse_integer(query.get("limit")) or 0,
            continue_token=query.get("continue", ""),
            resource_version=query.get("resourceVersion", ""),
            resource_version_match=query.get(_MATCH, ""),
            watch=parse_boolean(query.get("watch")),
            timeout_seconds=parse_integer(query.get("timeoutSeconds")),
            allow_bookmarks=parse_boolean(query.get("allowWatchBookmarks")),
            send_initial_events=None if initial is None else parse_boolean(initial),
        )
        problems = _watch_problems(options, initial) if options.watch else _list_problems(options, initial)
        if problems:
            raise Invalid.of("ListOptions", "", problems, "meta.k8s.io")
        if options.continue_token and options.resource_version not in ("", "0"):
            raise BadRequest("specifying resource version is not allowed when using continue")
        return options

    def start_revision(self) -> int | None:
        """The revision to watch from; None to start with the current objects. Raises ApiError for an invalid version."""
        if self.resource_version in ("", "0") or self.send_initial_events:
            return None
        return parse_resource_version(self.resource_version)


def _watch_problems(options: ListOptions, initial: str | None) -> list[Problem]:
    if initial is None:
        return (
            [_forbidden(_MATCH, f"{_MATCH} is forbidden for watch unless sendInitialEvents is provided")]
            if options.resource_version_match
            else []
        )
    if options.resource_version_match == "NotOlderThan":
        return []
    found = [_forbidden(_MATCH, f"sendInitialEvents requires setting {_MATCH} to NotOlderThan")]
    if options.resource_version_match:
        found.append(
            Problem(
                _MATCH,
                f'Unsupported value: "{options.resource_version_match}": supported values: "NotOlderThan"',
                "FieldValueNotSupported",
            )
        )
    return found


def _forbidden(field: str, why: str) -> Problem:
    return Problem(field, f"Forbidden: {why}", "FieldValueForbidden")


def _list_problems(options: ListOptions, initial: str | None) -> list[Problem]:
    if initial is not None:
        return [_forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")]
    if not options.resource_version_match:
        return []
    found = []
    if not options.resource_version:
        found.append(_forbidden(_MATCH, f"{_MATCH} is forbidden unless resourceVersion is provided"))
    if options.continue_token:
        found.append(_forbidden(_MATCH, f"{_MATCH} is forbidden when continue is provided"))
    if options.resource_version_match not in ("Exact", "NotOlderThan"):
        message = f'Unsupported value: "{options.resource_version_match}": supported values: "Exact", "NotOlderThan", ""'
        found.append(Problem(_MATCH, message, "FieldValueNotSupported"))
    elif options.resource_version_match == "Exact" and options.resource_version == "0":
        found.append(_forbidden(_MATCH, f'{_MATCH} "exact" is forbidden for resourceVersion "0"'))
    return found


def parse_boolean(text: str | None) -> bool:
    """Parse a boolean parameter: true unless absent, `false` or `0`, as kube-apiserver does (`watch=maybe` is true)."""
    return text is not None and text.lower() not in ("false", "0")


def parse_integer(text: str | None) -> int | None:
    """Parse an integer parameter; None if empty. Raises BadRequest."""
    if not text:
        return None
    if not _INTEGER.fullmatch(text):
        raise BadRequest(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    if len(text) > _MAX_DIGITS or not -(2**63) <= int(text) < 2**63:
        raise BadRequest(f'strconv.ParseInt: parsing "{text}": value out of range')
    return int(text)


def parse_resource_version(text: str, prefix: str = _VERSION_PREFIX) -> int:
    """Parse a resourceVersion. Raises Unspecified, the 500 that kube-apiserver returns."""
    syntax = text.isascii() and text.isdigit()
    if syntax and len(text) <= _MAX_DIGITS and int(text) < 2**64:
        return int(text)
    why = "value out of range" if syntax else "invalid syntax"
    raise UnknownReasonError(f'{prefix.format(text)}strconv.ParseUint: parsing "{text}": {why}')


def resource_version_too_large(wanted: int, current: int) -> Timeout:
    """The error for a read at a resource version that does not exist yet."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return Timeout(
        f"Timeout: Too large resource version: {wanted}, current: {current}",
        details={"causes": [cause], "retryAfterSeconds": 1},
        retry_after=1,
    )


def write_options(request: Request, *, status: bool = False) -> WriteOptions:
    """Parse the write options of a request. Raises Invalid for unsupported values."""
    field_validation = request.query_params.get("fieldValidation") or "Warn"
    if field_validation not in ("Strict", "Warn", "Ignore"):
        _reject_value(request, "fieldValidation", f'"{field_validation}"', '"Ignore", "Strict", "Warn"')
    force = parse_boolean(request.query_params.get("force"))
    manager = request.query_params.get("fieldManager", "")
    applies = media.media_type(request.headers.get("content-type")) == media.APPLY
    if "force" in request.query_params and request.method == "PATCH" and not applies:
        problem = Problem("force", "Forbidden: may not be specified for non-apply patch", "FieldValueForbidden")
        raise Invalid.of("PatchOptions", "", [problem], "meta.k8s.io")
    if len(manager) > _MAX_MANAGER_BYTES:
        problem = Problem("fieldManager", f"Too long: may not be more than {_MAX_MANAGER_BYTES} bytes", "FieldValueTooLong")
        raise Invalid.of(_OPTIONS_OF.get(request.method, "Options"), "", [problem], "meta.k8s.io")
    return WriteOptions(
        dry_run(request),
        field_validation,  # type: ignore[arg-type]  # one of the three values
        status,
        _field_manager(request),
        force,
        sender=request.sender,
    )


def _reject_value(request: Request, field: str, value: str, supported: str) -> None:
    problem = Problem(field, f"Unsupported value: {value}: supported values: {supported}", "FieldValueNotSupported")
    raise Invalid.of(_OPTIONS_OF.get(request.method, "Options"), "", [problem], "meta.k8s.io")


def _field_manager(request: Request) -> str:
    """The field manager of a request; defaults to the product name of its User-Agent."""
    named = request.query_params.get("fieldManager") or request.headers.get("user-agent", "").partition("/")[0]
    return "".join(letter for letter in named if letter.isprintable())[:_MAX_MANAGER_BYTES] or "unknown"


def dry_run(request: Request) -> bool:
    """Whether the request is a dry run. Raises Invalid."""
    values = request.query_params.getlist("dryRun")
    if any(value != "All" for value in values):
        _reject_value(request, "dryRun", orjson.dumps(values).decode(), '"All"')
    return bool(values)


def parse_include_object(request: Request) -> IncludeObject:
    """Parse `includeObject` of a Table request. Raises BadRequest."""
    wanted = request.query_params.get("includeObject") or "Metadata"
    if wanted not in ("None", "Metadata", "Object"):
        why = "must be 'Metadata', 'Object', 'None', or empty"
        raise BadRequest(f'Unable to convert to Table as requested: includeObject: Invalid value: "{wanted}": {why}')
    return wanted  # type: ignore[return-value]  # checked above


@dataclass(frozen=True)
class WriteOptions:
    """The options of a write. `status` selects the status subresource, which writes only the status."""

    dry_run: bool = False
    field_validation: Literal["Strict", "Warn", "Ignore"] = "Warn"
    status: bool = False
    field_manager: str = "trainwright"
    """The field manager that owns the written fields."""
    force: bool = False
    """Apply takes over fields of other managers instead of reporting a conflict."""
    duplicate_fields: tuple[str, ...] = ()
    """Paths of duplicate fields in the request body."""
    sender: Requester | None = None
    """Who sends the write; None for controllers of this process."""
    is_checked: bool = False
    """The sender of an update that creates may create: checked for the kind of the request, not for the one it is stored as."""


class Requester(Protocol):
    """The sender of a request. The controllers of this process have none."""

    @property
    def name(self) -> str: ...

    @property
    def groups(self) -> tuple[str, ...]: ...

    @property
    def is_administrator(self) -> bool: ...

    def may(self, verb: str, kind: Kind, namespace: str, name: str) -> bool:
        """Whether the sender has a verb on an object."""

    def require(self, verb: str, kind: Kind, namespace: str, name: str) -> None:
        """Raises Forbidden if the sender does not have a verb on an object."""

    def rules(self, namespace: str) -> Iterable[Obj]:
        """The sender's RBAC rules in a namespace; those for the whole cluster if it is empty."""
