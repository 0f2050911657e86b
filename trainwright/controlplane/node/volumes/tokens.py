"""Service account tokens of pods, kept until 80 % of their life is over: a new one for each look would rewrite volumes all the time.

Source of the times: pkg/kubelet/token/token_manager.go of Kubernetes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from trainwright.api.objects import Obj, uid_of

IssueToken = Callable[[str, Obj, int], str]
"""Maps `(audience, pod, validity in seconds)` to a token. Raises ApiError, as a request for a token may."""
DEFAULT_SECONDS = 3600
_LONGEST_SECONDS = 24 * 3600
"""A token is renewed after a day, however long it would be valid."""
_USED = 0.8


@dataclass
class TokenCache:
    """The tokens that were issued, in memory only. `clock` returns seconds of any origin. Thread-safe.

    `longest` is the most seconds that the API server makes a token valid for.
    """

    issue: IssueToken
    clock: Callable[[], float] = time.monotonic
    longest: int | None = None
    _tokens: dict[tuple[str, str, int], tuple[str, float]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def token(self, pod: Obj, audience: str, seconds: int) -> str:
        """Return a token for the audience (empty: the API server) that is valid for at least a fifth of `seconds`. Raises ApiError."""
        seconds = seconds if self.longest is None else min(seconds, self.longest)
        key = (uid_of(pod), audience, seconds)
        with self._lock:
            token, renewal = self._tokens.get(key, ("", 0.0))
            if not token or self.clock() >= renewal:
                token = self.issue(audience, pod, seconds)
                self._tokens[key] = (token, self.clock() + min(seconds * _USED, _LONGEST_SECONDS))
            return token

    def forget(self, pod_uid: str) -> None:
        """Drop the tokens of a pod that is gone."""
        with self._lock:
            for key in [key for key in self._tokens if key[0] == pod_uid]:
                del self._tokens[key]
