"""Sessions of the page: a random token stands for a connection to the cluster with a user's rights.

The browser keeps the token in its tab and sends it in a header: a cookie would also reach other servers on this machine, since
cookies do not distinguish ports. The server stores only a digest of it. Those of an owner outlive a restart of the server.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainwright.submission.jobs_client import JobsClient
from trainwright.ui.private_file import write_private

SESSION_SECONDS = 12 * 3600
IDLE_SECONDS = 4 * 3600
_MAX_SESSIONS = 200
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Session:
    """A user's connection. `key` is the same for sessions with the same credentials, which share their watches."""

    cluster: JobsClient
    user: str
    key: str
    expires: float

    @property
    def owner(self) -> str:
        """Whose session it is, for limits: the user where the server tells, else the credentials."""
        return self.user or self.key


class Sessions:
    """The sessions of one server. Thread-safe.

    With a `file`, which is for sessions of one owner, those that a server before has opened go on: see `resume`.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time, file: Path | None = None):
        self._clock, self._file = clock, file
        self._lock = threading.Lock()
        self._earlier = _read(file) if file is not None else {}
        """When sessions of an earlier server end, by the digest of their token."""
        self._known: dict[str, tuple[Session, float]] = {}
        """By the digest of the token: the session, and when it was last used. The least recently used comes first."""

    def open(self, cluster: JobsClient, user: str, key: str) -> tuple[str, Session]:
        """Begin a session; returns its token. Beyond the limit, the least recently used session of the user with the most ends."""
        token, now = secrets.token_urlsafe(32), self._clock()
        session = Session(cluster, user, key, now + SESSION_SECONDS)
        with self._lock:
            self._drop_ended(now)
            while len(self._known) >= _MAX_SESSIONS:
                [(most, _)] = Counter(known.owner for known, _ in self._known.values()).most_common(1)
                del self._known[next(digest for digest, (known, _) in self._known.items() if known.owner == most)]
            self._known[_digest(token)] = (session, now)
            self._write()
        return token, session

    def resume(self, token: str, connect: Callable[[], tuple[JobsClient, str]]) -> Session | None:
        """Return the session that an earlier server has opened, on a new connection and its key; None if there is none."""
        digest, now = _digest(token), self._clock()
        with self._lock:
            expires = self._earlier.get(digest, 0.0)
        if expires <= now:
            return None
        cluster, key = connect()
        session = Session(cluster, "", key, expires)
        with self._lock:
            self._earlier.pop(digest, None)
            self._known[digest] = (session, now)
        return session

    def find(self, token: str) -> Session | None:
        """Return the session of a token, or None if it has ended or never existed."""
        digest, now = _digest(token), self._clock()
        with self._lock:
            self._drop_ended(now)
            session, _ = self._known.pop(digest, (None, 0.0))
            if session is not None:
                self._known[digest] = (session, now)
            return session

    def proof(self, name: str, message: str) -> str | None:
        """Return the keyed digest of a message by which this server proves that it has a session, to the browser that has its token.

        `name` is the digest of the token's digest, and tells neither. None if there is no such session.
        """
        now = self._clock()
        with self._lock:
            self._drop_ended(now)
            known = [*self._known, *(digest for digest, expires in self._earlier.items() if now < expires)]
        digest = next((each for each in known if _digest(each) == name), None)
        return hmac.digest(digest.encode(), message.encode(), "sha256").hex() if digest is not None else None

    def end(self, token: str) -> None:
        """End a session. Idempotent."""
        with self._lock:
            self._known.pop(_digest(token), None)
            self._earlier.pop(_digest(token), None)
            self._write()

    def _write(self) -> None:
        """Note the sessions for a later server. One that cannot be noted ends with this server."""
        if self._file is None:
            return
        ends = {**self._earlier, **{digest: session.expires for digest, (session, _) in self._known.items()}}
        noted = {digest: end for digest, end in ends.items() if end > self._clock()}
        try:
            write_private(self._file, json.dumps(noted).encode())
        except OSError as error:
            log.warning("event=page_sessions_not_noted error=%s", error.strerror)

    def _drop_ended(self, now: float) -> None:
        self._known = {
            digest: (session, used)
            for digest, (session, used) in self._known.items()
            if now < session.expires and now < used + IDLE_SECONDS
        }


def _read(file: Path) -> dict[str, float]:
    """Return what a server has noted; nothing if it cannot be read."""
    try:
        noted = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    if not isinstance(noted, dict):
        return {}
    return {digest: float(end) for digest, end in noted.items() if isinstance(end, int | float)}


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
