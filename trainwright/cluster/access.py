"""What a refused request would have needed: the verb and the resource of the missing right, read from the request itself.

A server with RBAC says so, a proxy before it, or a webhook authorizer, often only says no.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainwright.api.errors import ApiError, Forbidden

_PATH = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>.+))?)?"
)
_VERBS = {"post": "create", "put": "update", "patch": "patch", "delete": "delete"}
_RULES = re.compile(r"admission webhook|denied the request|violates PodSecurity|ValidatingAdmissionPolicy")
_OTHER_REASONS = re.compile(rf"{_RULES.pattern}|exceeded quota|unable to create new content")


@dataclass(frozen=True)
class Right:
    """One right as RBAC grants it."""

    verb: str
    resource: str
    """`plural` or `plural/subresource`, with the group after a dot where there is one, as `kubectl auth can-i` takes it."""
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f" in the namespace {self.namespace}" if self.namespace else "")


class AccessDenied(Forbidden):
    """A right is missing: `right` says which."""

    def __init__(self, message: str, right: Right, **more: Any):
        super().__init__(message, **more)
        self.right = right


def breaks_a_rule(error: BaseException) -> bool:
    """Whether what was sent is refused for what it says, which a server may word as Forbidden."""
    return isinstance(error, Forbidden) and bool(_RULES.search(error.message))


def right_for(method: str, path: str, query: Sequence[tuple[str, Any]] = ()) -> Right | None:
    """The right that a request needs; None for a path that is no resource."""
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    verb = _VERBS.get(method.lower()) or ("get" if match["name"] else "list")
    if verb == "list" and ("watch", "true") in query:
        verb = "watch"
    group = f".{match['group']}" if match["group"] else ""
    sub = f"/{match['sub']}" if match["sub"] else ""
    return Right(verb, f"{match['plural']}{group}{sub}", match["namespace"] or "")


def told_what_is_missing(error: ApiError, method: str, path: str, query: Sequence[tuple[str, Any]]) -> ApiError:
    """A Forbidden with the right that was missing, also in its words; every other error as it is."""
    right = right_for(method, path, query)
    if not isinstance(error, Forbidden) or right is None or _OTHER_REASONS.search(error.message):
        return error
    said = f'cannot {right.verb} resource "' in error.message
    message = error.message if said else f"{error.message} (missing right: {right})"
    return AccessDenied(message, right, details=error.details, code=error.code, retry_after=error.retry_after)
