"""Parses the query parameters of writes (dryRun, fieldManager, fieldValidation, force) and of Tables (includeObject)."""

from __future__ import annotations

from typing import Literal

import orjson

from trainwright.api.errors import BadRequest, Invalid, Problem
from trainwright.controlplane.apiserver.wire import media, patch_types
from trainwright.controlplane.apiserver.wire.list_options import parse_boolean
from trainwright.controlplane.apiserver.wire.requests import Request
from trainwright.controlplane.apiserver.wire.write_options import WriteOptions

IncludeObject = Literal["None", "Metadata", "Object"]
"""The part of the object that each row of a Table includes."""
_MAX_MANAGER_BYTES = 128
_OPTIONS_OF = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}


def write_options(request: Request, *, status: bool = False) -> WriteOptions:
    """Parse the write options of a request. Raises Invalid for unsupported values."""
    field_validation = request.query_params.get("fieldValidation") or "Warn"
    if field_validation not in ("Strict", "Warn", "Ignore"):
        _reject_value(request, "fieldValidation", f'"{field_validation}"', '"Ignore", "Strict", "Warn"')
    force = parse_boolean(request.query_params.get("force"))
    manager = request.query_params.get("fieldManager", "")
    applies = media.media_type(request.headers.get("content-type")) == patch_types.APPLY
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


def _reject_value(request: Request, field: str, value: str, supported: str) -> None:
    problem = Problem(field, f"Unsupported value: {value}: supported values: {supported}", "FieldValueNotSupported")
    raise Invalid.of(_OPTIONS_OF.get(request.method, "Options"), "", [problem], "meta.k8s.io")


def parse_include_object(request: Request) -> IncludeObject:
    """Parse `includeObject` of a Table request. Raises BadRequest."""
    wanted = request.query_params.get("includeObject") or "Metadata"
    if wanted not in ("None", "Metadata", "Object"):
        why = "must be 'Metadata', 'Object', 'None', or empty"
        raise BadRequest(f'Unable to convert to Table as requested: includeObject: Invalid value: "{wanted}": {why}')
    return wanted  # type: ignore[return-value]
