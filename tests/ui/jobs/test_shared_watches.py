"""Tests watches that several pages share: who starts and stops them, and that nobody reads one that has ended without a notice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest

from trainwright.api.errors import ServiceUnavailable
from trainwright.ui.jobs.job_feed import SharedWatches
from trainwright.ui.subscription import Subscribers


class Watch:
    """Yields a first message, then the keys that change."""

    def __init__(self) -> None:
        self.subscribers = Subscribers()
        self.is_stopped = False

    @property
    def idle_seconds(self) -> float:
        return self.subscribers.idle_seconds

    async def updates(self) -> AsyncGenerator[dict[str, Any], None]:
        with self.subscribers.joined() as subscription:
            yield {"type": "beat"}
            async for keys in subscription.changes(merge_seconds=0):
                yield {"keys": keys}

    def stop(self) -> None:
        self.is_stopped = True
        self.subscribers.close()


def watches(limit: int = 2) -> SharedWatches[str, Watch]:
    return SharedWatches(limit, "there are many")


def test_readers_of_a_key_share_a_watch() -> None:
    shared = watches()
    one = shared.of("a", Watch)
    assert shared.of("a", Watch) is one
    assert shared.of("b", Watch) is not one


def test_further_watches_are_refused_and_open_ones_are_read() -> None:
    shared = watches(limit=1)
    one = shared.of("a", Watch)
    with pytest.raises(ServiceUnavailable, match="there are many; close some pages"):
        shared.of("b", Watch)
    assert shared.of("a", Watch) is one


def test_watch_stops_a_while_after_its_last_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("trainwright.ui.subscription.time", SimpleNamespace(monotonic=lambda: now[0]))
    shared, watch = watches(), Watch()

    def after(seconds: float) -> bool:
        now[0] += seconds
        shared.stop_idle()
        return watch.is_stopped

    async def read() -> None:
        updates = shared.updates("a", lambda: watch)
        await anext(updates)
        assert not after(100), "it is read"
        await updates.aclose()

    asyncio.run(read())
    assert not after(59)
    assert after(1)


def test_every_reader_hears_of_a_change_in_another_thread() -> None:
    shared = watches()

    async def read(count: int) -> list[Any]:
        readers = [shared.updates("a", Watch) for _ in range(count)]
        for each in readers:
            await anext(each)
        threading.Thread(target=shared.of("a", Watch).subscribers.mark, args=("key",)).start()
        return [await anext(each) for each in readers]

    assert asyncio.run(asyncio.wait_for(read(3), 10)) == [{"keys": {"key"}}] * 3


@pytest.mark.parametrize("when", ["before", "while it is read"])
def test_updates_end_when_the_server_stops(when: str) -> None:
    shared = watches()
    if when == "before":
        shared.close()

    async def read() -> list[Any]:
        found = []
        async for update in shared.updates("a", Watch):
            found.append(update)
            await asyncio.to_thread(shared.close)
        return found

    assert asyncio.run(asyncio.wait_for(read(), 10)) == [{"type": "beat"}]
