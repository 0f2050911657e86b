"""What a request wants to do, for the authorizer."""

from __future__ import annotations

from trainwright.api.errors import BadRequest
from trainwright.api.selectors.selection import field_terms
from trainwright.controlplane.apiserver.auth.authorizer import Access
from trainwright.controlplane.apiserver.endpoints.reviews import review_at
from trainwright.controlplane.apiserver.http.request_metrics import VERBS
from trainwright.controlplane.apiserver.resources.paths import CONNECT_SUBRESOURCES, NoSuchPath, Target, parse_target
from trainwright.controlplane.apiserver.wire.list_options import parse_boolean
from trainwright.controlplane.apiserver.wire.requests import Request

_NAME = "metadata.name"
_SELECTING = ("list", "watch", "deletecollection")
"""The verbs whose field selector can name an object. With others it selects nothing, and grants nothing."""


def access_of(request: Request, path: str, parts: list[str]) -> Access:
    """Return what a request asks for; a path that is no resource is asked for as a path."""
    if review := review_at(parts):
        return Access(VERBS.get(request.method, request.method.lower()), review.group, review.plural)
    try:
        if parts[:1] not in (["api"], ["apis"]) or len(parts) < (3 if parts[0] == "api" else 4):
            raise NoSuchPath(text=True)
        target = parse_target(parts)
    except NoSuchPath:
        return Access(VERBS.get(request.method, request.method.lower()), path=path)
    resource = target.kind.plural + (f"/{target.subresource}" if target.subresource else "")
    verb = _verb(request, target)
    name = target.name or (_selected_name(request) if verb in _SELECTING else "")
    return Access(verb, target.kind.group, resource, name, target.namespace_key)


def _verb(request: Request, target: Target) -> str:
    if target.subresource in CONNECT_SUBRESOURCES:
        return "create"
    if target.name or request.method not in ("GET", "HEAD", "DELETE"):
        return VERBS.get(request.method, request.method.lower())
    if request.method == "DELETE":
        return "deletecollection"
    return "watch" if parse_boolean(request.query_params.get("watch")) else "list"


def _selected_name(request: Request) -> str:
    """The name that a field selector requires: rules with names grant it."""
    try:
        terms = field_terms(request.query_params.get("fieldSelector") or "")
    except BadRequest:
        return ""
    return next((value for path, value, is_equal in terms if path == _NAME and is_equal), "")
