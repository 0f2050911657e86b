"""HTTP endpoints of discovery, OpenAPI and health checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson
from starlette.responses import Response
from starlette.types import ASGIApp

from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.discovery import documents, openapi
from trainwright.controlplane.apiserver.resources.registry import NoSuchPath
from trainwright.controlplane.apiserver.wire import media
from trainwright.controlplane.apiserver.wire.media import Media
from trainwright.controlplane.apiserver.wire.requests import Request
from trainwright.controlplane.apiserver.wire.responses import cacheable_response, json_response

HEALTH = ("/readyz", "/livez", "/healthz")
_CHECKS = ("ping", "log", "store")


def discovery_response(request: Request, parts: list[str]) -> ASGIApp | None:
    """The response for a discovery or OpenAPI path; None for other paths."""
    if request.method != "GET":
        return None
    match parts:
        case [""] | []:
            paths = ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
            return json_response(orjson.dumps({"paths": paths}))
        case ["api"] | ["apis"]:
            core = parts == ["api"]
            if Media.negotiate(request.headers.get("accept")).view == "APIGroupDiscoveryList":
                return cacheable_response(request, orjson.dumps(documents.aggregated(core=core)), documents.AGGREGATED)
            return json_response(orjson.dumps(documents.api_versions() if core else documents.api_groups()))
        case ["apis", group]:
            return _found(documents.api_group(group), text=True)
        case ["api", version]:
            return _found(documents.api_resources("", version), text=False)
        case ["apis", group, version]:
            return _found(documents.api_resources(group, version), text=True)
        case ["openapi", "v3"]:
            return cacheable_response(request, openapi.index(), "text/plain; charset=utf-8")
        case ["openapi", "v2"]:
            return cacheable_response(request, *openapi.openapi_v2(request.headers.get("accept", "")))
        case ["openapi", "v3", "api", version]:
            return _document(request, "", version)
        case ["openapi", "v3", "apis", group, version]:
            return _document(request, group, version)
    return None


def _document(request: Request, group: str, version: str) -> ASGIApp:
    document = openapi.document(group, version)
    if document is None:
        raise NoSuchPath(text=True)
    return cacheable_response(request, document, media.JSON, immutable="hash" in request.query_params)


def _found(description: Obj | None, *, text: bool) -> ASGIApp:
    if description is None:
        raise NoSuchPath(text=text)
    return json_response(orjson.dumps(description))


def health(path: str, problems: Mapping[str, Sequence[str]], *, is_verbose: bool) -> Response:
    """The response of a health check, as of a real API server.

    `problems` are those of the other parts of the control plane, by name. They make it unready and unhealthy; it stays alive, since
    a restart is for a person to decide.
    """
    root = next(root for root in HEALTH if path.startswith(root))
    checks: dict[str, Sequence[str]] = {**dict.fromkeys(_CHECKS, ()), **({} if root == "/livez" else problems)}
    if check := path.removeprefix(root).strip("/"):
        if check not in checks:
            return Response("404 page not found\n", 404, media_type="text/plain")
        checks = {check: checks[check]}
    has_failed = any(checks.values())
    if not has_failed and not is_verbose:
        return Response("ok", media_type="text/plain")
    lines = [f"[-]{name} failed: {'; '.join(found)}" if found else f"[+]{name} ok" for name, found in checks.items()]
    text = "\n".join([*lines, f"{root[1:]} check {'failed' if has_failed else 'passed'}", ""])
    return Response(text, 500 if has_failed else 200, media_type="text/plain")
