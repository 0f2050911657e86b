"""Signs, reads and authenticates bearer tokens: the administrator's token in the kubeconfig, and service account tokens.

A service account token is a JWT with an audience, an expiry and the objects that it is bound to, as on a cluster. These objects must
still be there. Source of the rules: `Validate` in pkg/serviceaccount/claims.go of Kubernetes.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt

from trainwright.api.errors import Unauthorized
from trainwright.api.kinds import POD, SECRET, SERVICE_ACCOUNT
from trainwright.api.objects import Obj, uid_of
from trainwright.api.rules.token_life import DEFAULT_MAXIMUM
from trainwright.api.times import parse_time
from trainwright.controlplane.apiserver.storage.store import Store

ISSUER = "https://kubernetes.default.svc.cluster.local"
API_AUDIENCE = ISSUER
"""The default audience of a token: this API server."""
_ALGORITHM = "HS256"
_LEEWAY = 5
"""Tolerated clock skew in seconds; server and pods share a clock, but it may be set back."""
DELETED_LEEWAY = timedelta(seconds=60)
"""How long a token outlives the deletionTimestamp of an object that still exists; a pod's includes its grace period."""
_BOUND = ((SERVICE_ACCOUNT, True), (POD, False), (SECRET, False))
"""The kinds that a token is bound to, and whether every token is."""


class Tokens:
    """Issues and verifies tokens. Its repr hides the secrets. Longer lives than `longest_seconds` are shortened to it."""

    def __init__(self, admin_token: str, signing_key: bytes, longest_seconds: int = DEFAULT_MAXIMUM):
        if len(admin_token) < 16 or len(signing_key) < 32:
            raise ValueError("the admin token needs at least 16 characters, the signing key at least 32 bytes")
        self._admin_token = admin_token.encode()
        self._signing_key = signing_key
        self.longest_seconds = longest_seconds

    def __repr__(self) -> str:
        return "Tokens(...)"

    def is_admin(self, token: str) -> bool:
        """Whether this is the admin token; compares in constant time."""
        return hmac.compare_digest(token.encode("utf-8", "surrogateescape"), self._admin_token)

    def issue(self, audiences: list[str], namespace: str, account: str, bound: Obj, ttl_seconds: int, now: datetime) -> str:
        """Issue a token of a service account for the audiences, bound to the objects in `bound`, as in the claim `kubernetes.io`."""
        issued = int(now.timestamp())
        claims = {
            "iss": ISSUER,
            "aud": audiences,
            "iat": issued,
            "nbf": issued,
            "exp": issued + ttl_seconds,
            "sub": f"system:serviceaccount:{namespace}:{account}",
            "kubernetes.io": {"namespace": namespace, **bound},
        }
        return jwt.encode(claims, self._signing_key, algorithm=_ALGORITHM)

    def verify(self, token: str, audience: str) -> dict[str, Any]:
        """Return the claims of a signed token for `audience`; `Authenticator` also looks up the objects that it is bound to.

        Raises Unauthorized without a reason.
        """
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                self._signing_key,
                algorithms=[_ALGORITHM],
                audience=audience,
                issuer=ISSUER,
                leeway=_LEEWAY,
                options={"require": ["exp", "iat", "aud", "iss"]},
            )
        except (jwt.PyJWTError, ValueError):
            # `from None`: the message of the cause could quote the token.
            raise Unauthorized("Unauthorized") from None
        return claims


def bearer_token(header: str | None) -> str | None:
    """The bearer token of an Authorization header; None if it is missing or has another scheme.

    The scheme is case-insensitive and may be followed by any white space; more than one credential is invalid.
    """
    parts = (header or "").split()
    return parts[1] if len(parts) == 2 and parts[0].lower() == "bearer" else None


class Authenticator:
    """Verifies tokens at every use. Reads only the objects that a token names, so it is cheap."""

    def __init__(self, tokens: Tokens, store: Store, clock: Callable[[], datetime] = lambda: datetime.now(UTC)):
        self.tokens, self._store, self._clock = tokens, store, clock

    def is_admin(self, token: str) -> bool:
        """Whether this is the administrator's token."""
        return self.tokens.is_admin(token)

    def verify(self, token: str, audience: str) -> Obj:
        """Return the claims of a token for `audience`. Raises Unauthorized without a reason."""
        claims = self.tokens.verify(token, audience)
        bound: Any = claims.get("kubernetes.io")
        if not isinstance(bound, dict):
            raise Unauthorized("Unauthorized")
        for kind, is_required in _BOUND:
            reference = bound.get(kind.kind.lower())
            if reference is None and not is_required:
                continue
            namespace, name, uid = bound.get("namespace", ""), (reference or {}).get("name", ""), (reference or {}).get("uid", "")
            record = self._store.get(kind.resource, namespace, name)
            if record is None or not uid or uid_of(record.object) != uid or self._is_gone(record.object):
                raise Unauthorized("Unauthorized")
        return claims

    def _is_gone(self, obj: Obj) -> bool:
        deleted = obj["metadata"].get("deletionTimestamp")
        return deleted is not None and parse_time(deleted) + DELETED_LEEWAY < self._clock()
