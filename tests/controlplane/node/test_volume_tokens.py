"""Tokens are issued for an audience and a life, and renewed before their end, not each time somebody looks."""

from __future__ import annotations

from typing import Any

import pytest

from trainwright.controlplane.node.volumes.projections import TokenCache

POD = {"metadata": {"uid": "u"}}


class Issuer:
    def __init__(self) -> None:
        self.now, self.calls = 1000.0, 0

    def issue(self, audience: str, pod: dict[str, Any], seconds: int) -> str:
        self.calls += 1
        return f"{audience}/{pod['metadata']['uid']}/{seconds}/{self.calls}"


@pytest.mark.parametrize(
    ("seconds", "later", "calls"),
    [(600, 479, 1), (600, 480, 2), (3600, 2879, 1), (3600, 2880, 2), (10**7, 86399, 1), (10**7, 86400, 2)],
)
def test_renewal_after_80_percent_or_a_day(seconds: int, later: float, calls: int) -> None:
    issuer = Issuer()
    cache = TokenCache(issuer.issue, clock=lambda: issuer.now)
    first = cache.token(POD, "a", seconds)
    issuer.now += later
    assert cache.token(POD, "a", seconds) == first.rpartition("/")[0] + f"/{calls}"


def test_a_token_that_the_server_shortens_is_renewed_before_its_end() -> None:
    issuer = Issuer()
    cache = TokenCache(issuer.issue, clock=lambda: issuer.now, longest=86400)
    first = cache.token(POD, "a", 4_000_000_000)
    assert first == "a/u/86400/1"
    issuer.now += 0.8 * 86400
    assert cache.token(POD, "a", 4_000_000_000) == "a/u/86400/2"


def test_tokens_differ_by_pod_audience_and_life_and_are_forgotten_with_the_pod() -> None:
    issuer = Issuer()
    cache = TokenCache(issuer.issue)
    other = {"metadata": {"uid": "o"}}
    tokens = {cache.token(pod, audience, seconds) for pod in (POD, other) for audience in ("a", "b") for seconds in (600, 700)}
    assert len(tokens) == 8
    kept = cache.token(other, "a", 600)
    cache.forget("u")
    assert cache.token(other, "a", 600) == kept
    assert cache.token(POD, "a", 600) not in tokens
