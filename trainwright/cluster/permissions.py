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
_QUOTA = re.compile(r"exceeded quota: (?P<quota>[^\s,]+)")
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


class QuotaExceeded(Forbidden):
    """A ResourceQuota of the namespace does not allow the object."""


def is_admission_denial(error: BaseException) -> bool:
    """Whether an admission webhook or policy denied the request because of its content, which may be a 403 error."""
    return isinstance(error, Forbidden) and bool(_RULES.search(error.message))


def is_admission_rejection(error: BaseException) -> bool:
    """Whether a 403 error is a rejection by admission, no missing permission: also by a quota, or by a namespace that is deleted.

    Unlike an `is_admission_denial`, another try of the same request may succeed.
    """
    return isinstance(error, Forbidden) and bool(_OTHER_REASONS.search(error.message))


def with_quota_hint(error: ApiError) -> ApiError:
    """Return a Forbidden because of a quota as QuotaExceeded, which says what to do; other errors unchanged."""
    quota = _QUOTA.search(error.message) if isinstance(error, Forbidden) else None
    if quota is None:
        return error
    hint = (
        f"the ResourceQuota {quota['quota']} is used up: delete what counts against it, such as finished jobs, or have it raised"
    )
    return QuotaExceeded(f"{error.message} ({hint})", details=error.details, code=error.code, retry_after=error.retry_after)


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
