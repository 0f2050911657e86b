"""What a request wants to do, for the authorizer, and the error if it may not, in kube-apiserver's words."""

from __future__ import annotations

from trainwright.api.errors import Forbidden
from trainwright.controlplane.apiserver.auth.authorizer import Access
from trainwright.controlplane.apiserver.endpoints.reviews import review_at
from trainwright.controlplane.apiserver.http.request_metrics import VERBS
from trainwright.controlplane.apiserver.resources.paths import CONNECT_SUBRESOURCES, NoSuchPath, Target, parse_target
from trainwright.controlplane.apiserver.wire.list_options import parse_boolean
from trainwright.controlplane.apiserver.wire.requests import Request

_ONE_NAME = "metadata.name="


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
    name = target.name or _selected_name(request)
    return Access(_verb(request, target), target.kind.group, resource, name, target.namespace_key)


def _verb(request: Request, target: Target) -> str:
    if target.subresource in CONNECT_SUBRESOURCES:
        return "create"
    if target.name or request.method not in ("GET", "DELETE"):
        return VERBS.get(request.method, request.method.lower())
    if request.method == "DELETE":
        return "deletecollection"
    return "watch" if parse_boolean(request.query_params.get("watch")) else "list"


def _selected_name(request: Request) -> str:
    """The name in a field selector of a list or watch: rules with names grant it."""
    terms = (request.query_params.get("fieldSelector") or "").split(",")
    return next((term.removeprefix(_ONE_NAME) for term in terms if term.startswith(_ONE_NAME)), "")


def forbidden_error(access: Access, user: str = "system:anonymous") -> Forbidden:
    """The error for an access that the user does not have."""
    who = f'User "{user}"'
    if access.path:
        return Forbidden(f'forbidden: {who} cannot {access.verb} path "{access.path}"')
    where = f' in the namespace "{access.namespace}"' if access.namespace else " at the cluster scope"
    plural = access.resource.partition("/")[0]
    resource = f"{plural}.{access.group}" if access.group else plural
    subject = f'{resource} "{access.name}"' if access.name else resource
    text = f'{subject} is forbidden: {who} cannot {access.verb} resource "{access.resource}" in API group "{access.group}"{where}'
    details = {key: value for key, value in (("name", access.name), ("group", access.group), ("kind", plural)) if value}
    return Forbidden(text, details=details)
