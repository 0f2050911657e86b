"""Adds the missing permission to 403 errors, derived from the request.

An API server with RBAC names it in its message; a proxy or a webhook authorizer often does not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainwright.api.errors import ApiError, Forbidden

_PATH = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<subresource>.+))?)?"
)
_VERBS = {"post": "create", "put": "update", "patch": "patch", "delete": "delete"}
_RULES = re.compile(r"admission webhook|denied the request|violates PodSecurity|ValidatingAdmissionPolicy")
_OTHER_REASONS = re.compile(rf"{_RULES.pattern}|exceeded quota|unable to create new content")


@dataclass(frozen=True)
class Permission:
    """A permission as RBAC grants it."""

    verb: str
    resource: str
    """`PLURAL[.GROUP][/SUBRESOURCE]`, as in `kubectl auth can-i`."""
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f" in the namespace {self.namespace}" if self.namespace else "")


class AccessDenied(Forbidden):
    """A permission is missing; `permission` is the missing one."""

    def __init__(self, message: str, permission: Permission, **more: Any):
        super().__init__(message, **more)
        self.permission = permission


def is_admission_denial(error: BaseException) -> bool:
    """Whether an admission webhook or policy denied the request because of its content, which may be a 403 error."""
    return isinstance(error, Forbidden) and bool(_RULES.search(error.message))


def permission_for(method: str, path: str, query: Sequence[tuple[str, Any]] = ()) -> Permission | None:
    """Return the permission that a request needs; None for a path that is not a resource."""
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    verb = _VERBS.get(method.lower()) or ("get" if match["name"] else "list")
    if verb == "list" and ("watch", "true") in query:
        verb = "watch"
    group = f".{match['group']}" if match["group"] else ""
    subresource = f"/{match['subresource']}" if match["subresource"] else ""
    return Permission(verb, f"{match['plural']}{group}{subresource}", match["namespace"] or "")


def with_missing_permission(error: ApiError, method: str, path: str, query: Sequence[tuple[str, Any]]) -> ApiError:
    """Return a Forbidden as AccessDenied, with the missing permission in its message; other errors unchanged."""
    permission = permission_for(method, path, query)
    if not isinstance(error, Forbidden) or permission is None or _OTHER_REASONS.search(error.message):
        return error
    is_named = f'cannot {permission.verb} resource "' in error.message
    message = error.message if is_named else f"{error.message} (missing permission: {permission})"
    return AccessDenied(message, permission, details=error.details, code=error.code, retry_after=error.retry_after)
