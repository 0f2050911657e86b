"""Calls to stores have a time limit, and a store that hangs keeps neither other stores nor the server waiting."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.waiting import eventually

from trainwright.storage.errors import NotFound
from trainwright.storage.uri import StorageUri
from trainwright.ui.models.places import SlowStore, StoreCalls, place_of


def test_results_and_errors_are_passed_on() -> None:
    calls = StoreCalls()
    assert calls.call("s3://a", lambda: 5) == 5

    def fail() -> None:
        raise NotFound("gone")

    with pytest.raises(NotFound, match="gone"):
        calls.call("s3://a", fail)


def test_a_timeout_of_the_action_is_no_slow_store() -> None:
    def fail() -> None:
        raise TimeoutError("inner")

    with pytest.raises(TimeoutError, match="inner"):
        StoreCalls().call("s3://a", fail)


def test_a_hanging_store_blocks_only_itself() -> None:
    calls, release = StoreCalls(seconds=0.2, at_once=1), threading.Event()
    with pytest.raises(SlowStore, match=r"s3://slow has not answered within 0\.2 s"):
        calls.call("s3://slow", release.wait)
    began = time.monotonic()
    assert calls.call("s3://other", lambda: "answer") == "answer"
    assert time.monotonic() - began < 0.15
    with pytest.raises(SlowStore, match="1 earlier requests have not been answered"):
        calls.call("s3://slow", lambda: "answer")
    assert time.monotonic() - began < 0.15  # a store of which all calls hang is not waited for
    release.set()
    eventually(lambda: _answers(calls), 5)


def _answers(calls: StoreCalls) -> bool:
    try:
        return calls.call("s3://slow", lambda: True)
    except SlowStore:
        return False


@pytest.mark.parametrize(
    ("uri", "place"), [("s3://bucket/a/b", "s3://bucket"), ("file:///a/b", "file://"), ("gs://models", "gs://models")]
)
def test_the_place_of_a_uri_is_its_bucket(uri: str, place: str) -> None:
    assert place_of(StorageUri.parse(uri)) == place


def test_calls_beyond_the_limit_wait_for_a_free_one() -> None:
    calls, seen, lock = StoreCalls(at_once=2), list[int](), threading.Lock()
    running, pair = 0, threading.Barrier(2)

    def act() -> None:
        nonlocal running
        with lock:
            running += 1
            seen.append(running)
        pair.wait(10)
        with lock:
            running -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _number: calls.call("s3://a", act), range(16)))
    assert len(seen) == 16
    assert max(seen) == 2
