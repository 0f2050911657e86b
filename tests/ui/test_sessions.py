"""Tests sessions: their tokens, their end, and their number."""

from __future__ import annotations

from typing import Any

from trainwright.ui.sessions import IDLE_SECONDS, SESSION_SECONDS, Sessions

CLUSTER: Any = object()


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def test_token_finds_its_session_until_it_ends() -> None:
    sessions = Sessions()
    token, session = sessions.open(CLUSTER, "ada", "key")
    assert sessions.find(token) is session
    assert sessions.find(token + "x") is None
    sessions.end(token)
    sessions.end(token)
    assert sessions.find(token) is None


def test_session_ends_when_it_is_not_used() -> None:
    clock = Clock()
    sessions = Sessions(clock=clock)
    token, _ = sessions.open(CLUSTER, "", "key")
    clock.now += IDLE_SECONDS - 1
    assert sessions.find(token) is not None
    clock.now += IDLE_SECONDS - 1
    assert sessions.find(token) is not None
    clock.now += IDLE_SECONDS
    assert sessions.find(token) is None


def test_session_ends_however_much_it_is_used() -> None:
    clock = Clock()
    sessions = Sessions(clock=clock)
    token, _ = sessions.open(CLUSTER, "", "key")
    for _ in range(int(SESSION_SECONDS // 3600) - 1):
        clock.now += 3600
        assert sessions.find(token) is not None
    clock.now += 3600
    assert sessions.find(token) is None


def test_least_recently_used_session_ends_beyond_the_limit() -> None:
    sessions = Sessions()
    first, _ = sessions.open(CLUSTER, "", "key")
    second, _ = sessions.open(CLUSTER, "", "key")
    for _ in range(198):
        sessions.open(CLUSTER, "", "key")
    assert sessions.find(first) is not None
    sessions.open(CLUSTER, "", "key")
    assert sessions.find(second) is None
    assert sessions.find(first) is not None
