"""Tests sessions: their tokens, their end, and their number."""

from __future__ import annotations

import hashlib
import hmac
import stat
from pathlib import Path
from typing import Any

import pytest
from support.manual_clock import ManualClock

from trainwright.ui.sessions import IDLE_SECONDS, SESSION_SECONDS, Sessions

CLUSTER: Any = object()


def test_token_finds_its_session_until_it_ends() -> None:
    sessions = Sessions()
    token, session = sessions.open(CLUSTER, "ada", "key")
    assert sessions.find(token) is session
    assert sessions.find(token + "x") is None
    sessions.end(token)
    sessions.end(token)
    assert sessions.find(token) is None


def test_session_ends_when_it_is_not_used() -> None:
    clock = ManualClock(1_000_000.0)
    sessions = Sessions(clock=clock)
    token, _ = sessions.open(CLUSTER, "", "key")
    clock.now += IDLE_SECONDS - 1
    assert sessions.find(token) is not None
    clock.now += IDLE_SECONDS - 1
    assert sessions.find(token) is not None
    clock.now += IDLE_SECONDS
    assert sessions.find(token) is None


def test_session_ends_however_much_it_is_used() -> None:
    clock = ManualClock(1_000_000.0)
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


def test_sessions_of_one_user_end_no_session_of_others() -> None:
    sessions = Sessions()
    of_b, _ = sessions.open(CLUSTER, "b", "key of b")
    of_c, _ = sessions.open(CLUSTER, "", "key of c")
    for number in range(300):
        sessions.open(CLUSTER, "a", f"key {number}")
    assert sessions.find(of_b) is not None
    assert sessions.find(of_c) is not None


def test_sessions_outlive_a_restart_until_they_end(tmp_path: Path) -> None:
    file, clock = tmp_path / "page" / "sessions.json", ManualClock(1_000_000.0)
    token, session = Sessions(clock=clock, file=file).open(CLUSTER, "", "old")
    assert token not in file.read_text("utf-8")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    later = Sessions(clock=clock, file=file)
    assert later.find(token) is None
    resumed = later.resume(token, lambda: (CLUSTER, "new"))
    assert resumed is not None
    assert (resumed.key, resumed.expires) == ("new", session.expires)
    assert later.find(token) is resumed
    assert later.resume("another", lambda: (CLUSTER, "new")) is None
    clock.now += SESSION_SECONDS
    assert Sessions(clock=clock, file=file).resume(token, lambda: (CLUSTER, "new")) is None


def test_session_that_was_ended_stays_ended_after_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "sessions.json"
    first = Sessions(file=file)
    token, _ = first.open(CLUSTER, "", "key")
    other, _ = first.open(CLUSTER, "", "key")
    first.end(token)
    later = Sessions(file=file)
    assert later.resume(token, lambda: (CLUSTER, "key")) is None
    assert later.resume(other, lambda: (CLUSTER, "key")) is not None


def test_proof_is_given_for_known_sessions_by_who_opened_them_and_later(tmp_path: Path) -> None:
    file, clock = tmp_path / "sessions.json", ManualClock(1_000_000.0)
    first = Sessions(clock=clock, file=file)
    token, _ = first.open(CLUSTER, "", "key")
    digest = hashlib.sha256(token.encode()).hexdigest()
    name = hashlib.sha256(digest.encode()).hexdigest()
    expected = hmac.digest(digest.encode(), b"abc\n80", "sha256").hex()
    assert first.proof(name, "abc\n80") == expected
    assert Sessions(clock=clock, file=file).proof(name, "abc\n80") == expected
    assert first.proof(digest, "abc\n80") is None
    assert Sessions().proof(name, "abc\n80") is None
    clock.now += SESSION_SECONDS
    assert Sessions(clock=clock, file=file).proof(name, "abc\n80") is None


@pytest.mark.parametrize("content", ["", "[]", "{", '{"a": "b"}', '{"a": null}'])
def test_unreadable_notes_are_no_sessions(tmp_path: Path, content: str) -> None:
    file = tmp_path / "sessions.json"
    file.write_text(content, "utf-8")
    assert Sessions(file=file).resume("a", lambda: (CLUSTER, "key")) is None
