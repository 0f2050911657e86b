"""Why an API server refuses a request: a missing permission, a quota, a missing namespace, or a start that has not ended.

An API server with RBAC names the missing permission in its message; a proxy or a webhook authorizer often does not: it is derived from
the request. An API server that has just been started answers 403 to everybody for some seconds, until it has read the rules of RBAC.
Before that its connections were refused for a minute or more, which a client that begins now has not seen. Such a server refuses even
`/version`, which any user may read.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trainwright.api.errors import ApiError, Forbidden, NotFound, ServiceUnavailable
from trainwright.api.kinds import NAMESPACE

_PATH = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<subresource>.+))?)?"
)
_VERBS = {"post": "create", "put": "update", "patch": "patch", "delete": "delete"}
_RULES = re.compile(r"admission webhook|denied the request|violates PodSecurity|ValidatingAdmissionPolicy")
_QUOTA = re.compile(r"exceeded quota: (?P<quota>[^\s,]+)")
_OTHER_REASONS = re.compile(rf"{_RULES.pattern}|exceeded quota|unable to create new content")
PASSING_SECONDS = 60.0
"""Seconds after the last failed connection for which a 403 may pass."""
STARTING_SECONDS = 8.0
"""Seconds for which a server that refuses everything is taken for one that starts, without a failed connection."""
_POLL_SECONDS = 0.5
GATEWAY_ERRORS = frozenset({502, 503, 504})
"""Answers of a load balancer in front of a server that does not run."""
log = logging.getLogger(__name__)
_servers: dict[str, ServerState] = {}
_lock = threading.Lock()


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
    if quota is None:  # another reason, for which freeing a quota would not help
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
    # no permission would change it
    if not isinstance(error, Forbidden) or permission is None or _OTHER_REASONS.search(error.message):
        return error
    is_named = f'cannot {permission.verb} resource "' in error.message
    message = error.message if is_named else f"{error.message} (missing permission: {permission})"
    return AccessDenied(message, permission, details=error.details, code=error.code, retry_after=error.retry_after)


class NotYetAuthorized(ServiceUnavailable):
    """The API server has been restarted, and does not know the permissions of anybody yet. A retry may succeed."""


class ServerState:
    """What this process has seen of one API server, in all its connections."""

    def __init__(self) -> None:
        self._lost_at = float("-inf")
        self._is_ready = False
        """Whether it is known to decide on permissions."""
        self._refusing_since: float | None = None

    def note_lost(self) -> None:
        """Note a connection that failed."""
        self._lost_at, self._is_ready, self._refusing_since = time.monotonic(), False, None

    def note_authorized(self) -> None:
        """Note a request that was permitted."""
        self._lost_at, self._is_ready = float("-inf"), True

    def check(self, error: Forbidden, is_refusing: Callable[[], bool]) -> None:
        """Return if the refused request is to be sent again. Raises NotYetAuthorized if its caller may retry later, else `error`.

        `is_refusing` tells whether the server refuses what anybody may read.
        """
        if is_admission_rejection(error):
            raise error
        if time.monotonic() - self._lost_at < PASSING_SECONDS:
            raise NotYetAuthorized(f"the API server was not reachable before, and may not know permissions yet: {error.message}")
        now = time.monotonic()
        if not self._is_ready and is_refusing():
            self._refusing_since = now if self._refusing_since is None else self._refusing_since
            self._is_ready = now - self._refusing_since >= STARTING_SECONDS
        else:
            self._is_ready = True
        if self._is_ready:
            raise error
        log.info("event=api_server_starting error=%s", error.message)
        time.sleep(_POLL_SECONDS)


def state_of_server(host: str) -> ServerState:
    """Return the state of the API server with this address, the same for all clients of the process."""
    with _lock:
        return _servers.setdefault(host, ServerState())


class NamespaceNotFound(NotFound):
    """The namespace of the request does not exist."""


def is_missing_namespace(error: BaseException) -> bool:
    """Whether an object could not be created because its namespace does not exist."""
    return isinstance(error, NotFound) and error.details.get("kind") == NAMESPACE.plural


def with_namespace_hint(error: ApiError, method: str) -> ApiError:
    """Return the error of a creation in a missing namespace as NamespaceNotFound, which says what to do; others unchanged."""
    if method.lower() != "post" or not is_missing_namespace(error):  # only a creation fails because of its namespace
        return error
    name = error.details.get("name") or "NAME"
    hint = f"create it (`kubectl create namespace {name}`), or correct the name that the step, its connection or -n gives"
    return NamespaceNotFound(f"{error.message}: {hint}", details=error.details, code=error.code)
