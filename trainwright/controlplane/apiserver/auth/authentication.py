"""Authenticates service account tokens: the signature, and the objects that a token is bound to, which must still be there.

Source of the rules: `Validate` in pkg/serviceaccount/claims.go of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from trainwright.api.errors import Unauthorized
from trainwright.api.kinds import POD, SECRET, SERVICE_ACCOUNT
from trainwright.api.objects import Obj, uid_of
from trainwright.api.times import parse_time
from trainwright.controlplane.apiserver.auth.tokens import Tokens
from trainwright.controlplane.apiserver.storage.store import Store

DELETED_LEEWAY = timedelta(seconds=60)
"""How long a token outlives the deletionTimestamp of an object that still exists; a pod's includes its grace period."""
_BOUND = ((SERVICE_ACCOUNT, True), (POD, False), (SECRET, False))
"""The kinds that a token is bound to, and whether every token is."""


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
