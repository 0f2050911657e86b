"""How long a service account token may be valid, in requests for tokens and in the volumes of pods.

Sources: `ValidateTokenRequest` and `validateProjectionSources` of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.api.errors import Problem

_SHORTEST, _LONGEST = 600, 1 << 32
"""In seconds."""
DEFAULT_MAXIMUM = 24 * 3600
"""The longest life, in seconds, that the embedded API server gives a token unless its operator chooses another one."""


def token_life_problems(seconds: int, where: str) -> Iterator[Problem]:
    """Problems of an `expirationSeconds`."""
    if seconds < _SHORTEST:
        yield Problem(where, f"Invalid value: {seconds}: may not specify a duration less than 10 minutes")
    if seconds > _LONGEST:
        yield Problem(where, f"Invalid value: {seconds}: may not specify a duration larger than 2^32 seconds")
