"""A patient cluster asks again for what passes, and makes and deletes once whatever becomes of the answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from trainwright.api.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Expired,
    Forbidden,
    NotFound,
    ServiceUnavailable,
    Timeout,
    TooManyRequests,
    Unauthorized,
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


@pytest.mark.parametrize(
    ("error", "passing"),
    [
        (TooManyRequests("x"), True),
        (ServiceUnavailable("x"), True),
        (Timeout("x"), True),
        (Expired("x"), True),
        (ApiError("x", code=500), True),
        (ApiError("x", code=418), False),
        (Conflict("x"), False),
        (NotFound("x"), False),
        (Forbidden("x"), False),
        (Unauthorized("x"), False),
    ],
)
def test_api_errors_know_if_they_are_retryable(error: ApiError, passing: bool) -> None:
    assert error.retryable is passing


def test_a_create_whose_answer_is_lost_finds_what_it_made() -> None:
    cluster = Lossy("lost", ServiceUnavailable("still"))
    assert RetryingCluster(cluster).create(MAP) == MAP  # type: ignore[arg-type]
    assert cluster.asked == 4  # made, refused, there already, read


def test_create_of_an_existing_object_raises_already_exists() -> None:
    cluster = Lossy()
    cluster.there = True
    with pytest.raises(AlreadyExists):
        RetryingCluster(cluster).create(MAP)  # type: ignore[arg-type]


def test_a_delete_whose_answer_is_lost_is_done() -> None:
    cluster = Lossy("lost")
    cluster.there = True
    RetryingCluster(cluster).delete(CONFIG_MAP, "a", "team")  # type: ignore[arg-type]
    assert not cluster.there
    with pytest.raises(NotFound):
        RetryingCluster(cluster).delete(CONFIG_MAP, "a", "team")  # type: ignore[arg-type]


def test_wrapped_again_the_last_budget_counts_alone() -> None:
    cluster = Lossy(*[ServiceUnavailable("away")] * 99)
    inner = RetryingCluster(cluster, seconds=0.5)  # type: ignore[arg-type]
    with pytest.raises(ServiceUnavailable):
        RetryingCluster(inner, seconds=0).get(CONFIG_MAP, "a", "team")
    assert cluster.asked == 1


def test_patience_ends_after_its_seconds_whatever_the_server_asks_for() -> None:
    cluster = Lossy(*[TooManyRequests("slowly", retry_after=3600)] * 9)
    began = time.monotonic()
    with pytest.raises(TooManyRequests):
        RetryingCluster(cluster, seconds=0.1).get(CONFIG_MAP, "a", "team")  # type: ignore[arg-type]
    assert 0.1 <= time.monotonic() - began < 5
    assert cluster.asked == 2


def test_who_is_told_to_stop_waits_no_more() -> None:
    stop = threading.Event()
    stop.set()
    cluster = Lossy(ServiceUnavailable("down"))
    with pytest.raises(ServiceUnavailable):
        RetryingCluster(cluster, stop=stop).get(CONFIG_MAP, "a", "team")  # type: ignore[arg-type]
    assert cluster.asked == 1
