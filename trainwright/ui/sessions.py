"""Sessions of the page: a random token stands for a connection to the cluster with a user's rights.

The browser keeps the token in its tab and sends it in a header: a cookie would also reach other servers on this machine, since
cookies do not distinguish ports. The server stores only a digest of it.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from trainwright.submission.jobs_client import JobsClient

SESSION_SECONDS = 12 * 3600
IDLE_SECONDS = 4 * 3600
_MAX_SESSIONS = 200


@dataclass(frozen=True)
class Session:
    """A user's connection. `key` is the same for sessions with the same credentials, which share their watches."""

    cluster: JobsClient
    user: str
    key: str
    expires: float


class Sessions:
    """The sessions of one server. Thread-safe."""

    def __init__(self, *, clock: Callable[[], float] = time.time):
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, tuple[Session, float]] = {}
        """By the digest of the token: the session, and when it was last used. The least recently used comes first."""

    def open(self, cluster: JobsClient, user: str, key: str) -> tuple[str, Session]:
        """Begin a session; returns its token. Beyond the limit, the session that was not used for longest ends."""
        token, now = secrets.token_urlsafe(32), self._clock()
        session = Session(cluster, user, key, now + SESSION_SECONDS)
        with self._lock:
            self._drop_ended(now)
            while len(self._known) >= _MAX_SESSIONS:
                del self._known[next(iter(self._known))]
            self._known[_digest(token)] = (session, now)
        return token, session

    def find(self, token: str) -> Session | None:
        """Return the session of a token, or None if it has ended or never existed."""
        digest, now = _digest(token), self._clock()
        with self._lock:
            self._drop_ended(now)
            session, _ = self._known.pop(digest, (None, 0.0))
            if session is not None:
                self._known[digest] = (session, now)
            return session

    def end(self, token: str) -> None:
        """End a session. Idempotent."""
        with self._lock:
            self._known.pop(_digest(token), None)

    def _drop_ended(self, now: float) -> None:
        self._known = {
            digest: (session, used)
            for digest, (session, used) in self._known.items()
            if now < session.expires and now < used + IDLE_SECONDS
        }


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
