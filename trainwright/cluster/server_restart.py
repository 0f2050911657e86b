"""Tells a missing permission from the 403 of an API server that has just been started.

Until it has read the rules of RBAC, for some seconds, an API server answers 403 to everybody. Before that its connections were refused
for a minute or more, which a client that begins now has not seen. Such a server refuses even `/version`, which any user may read.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from trainwright.api.errors import Forbidden, ServiceUnavailable
from trainwright.cluster.permissions import is_admission_rejection

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
        if not self._is_starting(is_refusing):
            raise error
        log.info("event=api_server_starting error=%s", error.message)
        time.sleep(_POLL_SECONDS)

    def _is_starting(self, is_refusing: Callable[[], bool]) -> bool:
        now = time.monotonic()
        if not self._is_ready and is_refusing():
            self._refusing_since = now if self._refusing_since is None else self._refusing_since
            self._is_ready = now - self._refusing_since >= STARTING_SECONDS
        else:
            self._is_ready = True
        return not self._is_ready


def state_of_server(host: str) -> ServerState:
    """Return the state of the API server with this address, the same for all clients of the process."""
    with _lock:
        return _servers.setdefault(host, ServerState())
