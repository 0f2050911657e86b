"""What the parameters of a request say of how it is meant: tried or done, by whom, with how much in the answer."""

from __future__ import annotations

from typing import Literal

import orjson

from trainwright.api.errors import BadRequest, Invalid, Problem
from trainwright.controlplane.apiserver.wire import media, patch_types
from trainwright.controlplane.apiserver.wire.list_options import flag
from trainwright.controlplane.apiserver.wire.requests import Request
from trainwright.controlplane.apiserver.wire.write_options import WriteOptions

Include = Literal["None", "Metadata", "Object"]
"""What of its object each row of a Table carries."""
_LONGEST_MANAGER = 128
_OPTIONS_OF = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}


def write_options(request: Request, *, status: bool = False) -> WriteOptions:
    """How a write is meant, by the parameters of its request. Raises Invalid for those that make no sense."""
    strictness = request.query_params.get("fieldValidation") or "Warn"
    if strictness not in ("Strict", "Warn", "Ignore"):
        _unsupported_value(request, "fieldValidation", f'"{strictness}"', '"Ignore", "Strict", "Warn"')
    force = flag(request.query_params.get("force"))
    manager = request.query_params.get("fieldManager", "")
    applies = media.media_type(request.headers.get("content-type")) == patch_types.APPLY
    if "force" in request.query_params and request.method == "PATCH" and not applies:
        problem = Problem("force", "Forbidden: may not be specified for non-apply patch", "FieldValueForbidden")
        raise Invalid.of("PatchOptions", "", [problem], "meta.k8s.io")
    if len(manager) > _LONGEST_MANAGER:
        problem = Problem("fieldManager", f"Too long: may not be more than {_LONGEST_MANAGER} bytes", "FieldValueTooLong")
        raise Invalid.of(_OPTIONS_OF.get(request.method, "Options"), "", [problem], "meta.k8s.io")
    return WriteOptions(dry_run(request), strictness, status, _manager(request), force)  # type: ignore[arg-type]


def _manager(request: Request) -> str:
    """Who owns what the request writes: the manager that it names, otherwise the program that sent it."""
    named = request.query_params.get("fieldManager") or request.headers.get("user-agent", "").partition("/")[0]
    return "".join(letter for letter in named if letter.isprintable())[:_LONGEST_MANAGER] or "unknown"


def dry_run(request: Request) -> bool:
    """Whether a write is only tried. Raises Invalid."""
    values = request.query_params.getlist("dryRun")
    if any(value != "All" for value in values):
        _unsupported_value(request, "dryRun", orjson.dumps(values).decode(), '"All"')
    return bool(values)


def _unsupported_value(request: Request, field: str, value: str, supported: str) -> None:
    problem = Problem(field, f"Unsupported value: {value}: supported values: {supported}", "FieldValueNotSupported")
    raise Invalid.of(_OPTIONS_OF.get(request.method, "Options"), "", [problem], "meta.k8s.io")


def include(request: Request) -> Include:
    """What the rows of a Table hold. Raises BadRequest."""
    wanted = request.query_params.get("includeObject") or "Metadata"
    if wanted not in ("None", "Metadata", "Object"):
        why = "must be 'Metadata', 'Object', 'None', or empty"
        raise BadRequest(f'Unable to convert to Table as requested: includeObject: Invalid value: "{wanted}": {why}')
    return wanted  # type: ignore[return-value]
