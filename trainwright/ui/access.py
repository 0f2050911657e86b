"""Who may use the page: people with a one-time link, as its owner, or people with a token of the cluster, as themselves."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable
from typing import Protocol

from trainwright.api.errors import ApiError, Forbidden, MethodNotAllowed, NotFound, Unauthorized
from trainwright.submission.jobs_client import JobsClient
from trainwright.ui.call import Json
from trainwright.ui.links import LinkRefused, Links
from trainwright.ui.sessions import Session, Sessions

_MAX_TOKEN = 64 * 1024
_REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


class Login(Protocol):
    """A way to begin a session."""

    kind: str
    """`link` or `token`: what the page asks a user for."""

    def open(self, sessions: Sessions, body: Json) -> tuple[str, Session]:
        """Begin a session with what the browser sent. Raises Unauthorized, ApiError, NoCluster."""

    def reopen(self, sessions: Sessions, token: str) -> Session | None:
        """Return a session that an earlier server has opened; None if there is none, or if users have to log in again."""


class LinkLogin:
    """The owner of the page opens a one-time link; all sessions share one connection."""

    kind = "link"

    def __init__(self, links: Links, connect: Callable[[], JobsClient]):
        self._links, self._connect = links, connect
        self._cluster: JobsClient | None = None
        self._key = secrets.token_hex(8)
        self._lock = threading.Lock()

    def open(self, sessions: Sessions, body: Json) -> tuple[str, Session]:
        try:
            self._links.redeem(str(body.get("code") or ""))
        except LinkRefused as error:
            raise Unauthorized(f"{error}; run `trainwright ui` for a new one") from None
        cluster, key = self._connection()
        return sessions.open(cluster, "", key)

    def reopen(self, sessions: Sessions, token: str) -> Session | None:
        return sessions.resume(token, self._connection)

    def _connection(self) -> tuple[JobsClient, str]:
        with self._lock:
            if self._cluster is None:
                self._cluster = self._connect()
            return self._cluster, self._key


class TokenLogin:
    """Users log in with tokens of the cluster, and have their own rights only. The token stays in this server's memory."""

    kind = "token"

    def __init__(self, connect: Callable[[str], JobsClient]):
        self._connect = connect

    def open(self, sessions: Sessions, body: Json) -> tuple[str, Session]:
        token = str(body.get("token") or "").strip()
        if not token or len(token) > _MAX_TOKEN or not token.isascii() or any(not each.isprintable() for each in token):
            raise Unauthorized("this is no token; print one with `kubectl create token NAME`")
        cluster = self._connect(token)
        user = _user_of(cluster)
        return sessions.open(cluster, user, hashlib.sha256(token.encode()).hexdigest())

    def reopen(self, _sessions: Sessions, _token: str) -> Session | None:
        """Return None: tokens of users are stored nowhere, so they log in again."""
        return None


def _user_of(cluster: JobsClient) -> str:
    """Return the name of the token's user, "" if an older API server does not tell. Raises Unauthorized, ApiError."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        review = cluster.request("POST", _REVIEW, body)
    # the API server does not answer who somebody is: the token may be good all the same
    except (Forbidden, MethodNotAllowed, NotFound):
        return ""
    except Unauthorized:
        raise Unauthorized("the cluster does not accept this token") from None
    except ApiError:
        raise
    return str(((review.get("status") or {}).get("userInfo") or {}).get("username") or "")
