"""The four ways to patch an object, each from the stored object and the patch to the object that is wanted."""

from __future__ import annotations

from typing import Any

from trainwright.api.errors import ApiError, BadRequest, Invalid, UnsupportedMediaType
from trainwright.api.json_patch import PatchFailed, apply_json_patch
from trainwright.api.merge_patch import merge
from trainwright.api.objects import Obj
from trainwright.api.strategic_merge import strategic_merge
from trainwright.controlplane.apiserver.registry import Strategy

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
WRONG_TYPE = "415: Unsupported Media Type"
_CUSTOM = (JSON_PATCH, MERGE, APPLY)
_BUILT_IN = (*_CUSTOM, STRATEGIC)


def check_media_type(strategy: Strategy, media_type: str) -> None:
    """Raises UnsupportedMediaType for a patch that this kind does not take."""
    if media_type in (_CUSTOM if strategy.custom else _BUILT_IN):
        return
    if strategy.custom:
        accepted = ", ".join(_CUSTOM)
        raise UnsupportedMediaType(f"the body of the request was in an unknown format - accepted media types include: {accepted}")
    raise UnsupportedMediaType(WRONG_TYPE)


def patched(strategy: Strategy, stored: Obj, patch: Any, media_type: str) -> Obj:
    """The object that the patch makes of the stored one; neither is changed. Raises BadRequest, Invalid."""
    if media_type == JSON_PATCH:
        if not isinstance(patch, list):
            raise BadRequest("error decoding patch: a JSON patch is a list of operations")
        try:
            result = apply_json_patch(stored, patch)
        except PatchFailed as error:
            raise Invalid(f"the server rejected our request due to an error in our request: {error}") from error
    elif not isinstance(patch, dict):
        raise BadRequest(f"error decoding patch: an object was expected, not {type(patch).__name__}")
    elif media_type == STRATEGIC or (media_type == APPLY and not strategy.custom):
        try:
            result = strategic_merge(stored, patch)
        except ValueError as error:
            raise ApiError(str(error)) from error
    else:
        result = merge(stored, patch)
    if not isinstance(result, dict):
        raise Invalid("the patch leaves no object")
    return result
