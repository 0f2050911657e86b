"""A patient cluster asks again for what passes, and makes and deletes once whatever becomes of the answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from trainwright.api.errors import (
    AlreadyExists,
    ApiError,
    NotFound,
    ServiceUnavailable,
    TooManyRequests,
)
from trainwright.api.kinds import CONFIG_MAP
from trainwright.cluster.retrying import RetryingCluster

MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "team"}}


class Lossy:
    """A cluster with one object, that fails as the test says: a request that is `lost` was carried out and not answered."""

    def __init__(self, *faults: ApiError | str) -> None:
        self.faults, self.there, self.asked = list(faults), False, 0

    def create(self, obj: dict[str, Any]) -> dict[str, Any]:
        def make() -> dict[str, Any]:
            if self.there:
                raise AlreadyExists("it is there")
            self.there = True
            return obj

        return self._answered(make)

    def get(self, *_: Any) -> dict[str, Any]:
        return self._answered(lambda: MAP)

    def delete(self, *_: Any, **__: Any) -> None:
        def remove() -> None:
            if not self.there:
                raise NotFound("it is gone")
            self.there = False

        self._answered(remove)

    def _answered(self, act: Callable[[], Any]) -> Any:
        self.asked += 1
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, ApiError):
            raise fault
        done = act()
        if fault == "lost":
            raise ServiceUnavailable("the connection broke")
        return done


def test_a_create_whose_answer_is_lost_finds_what_it_made() -> None:
    cluster = Lossy("lost", ServiceUnavailable("still"))
    assert RetryingCluster(cluster).create(MAP) == MAP  # type: ignore[arg-type]
    assert cluster.asked == 4  # made, refused, there already, read


def test_a_delete_whose_answer_is_lost_is_done() -> None:
    cluster = Lossy("lost")
    cluster.there = True
    RetryingCluster(cluster).delete(CONFIG_MAP, "a", "team")  # type: ignore[arg-type]
    assert not cluster.there
    with pytest.raises(NotFound):
        RetryingCluster(cluster).delete(CONFIG_MAP, "a", "team")  # type: ignore[arg-type]


def test_patience_ends_after_its_seconds_whatever_the_server_asks_for() -> None:
    cluster = Lossy(*[TooManyRequests("slowly", retry_after=3600)] * 9)
    began = time.monotonic()
    with pytest.raises(TooManyRequests):
        RetryingCluster(cluster, seconds=0.1).get(CONFIG_MAP, "a", "team")  # type: ignore[arg-type]
    assert 0.1 <= time.monotonic() - began < 5
    assert cluster.asked == 2
