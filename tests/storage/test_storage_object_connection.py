"""An outage is waited out once the store has answered; a wrong address is not; new credentials are taken up."""

import threading
from collections.abc import Callable

import pytest

from trainwright.storage.errors import ExpiredCredentials, NoAccess, StorageError, Transient
from trainwright.storage.objects.connection import ObjectConnection, waiting_as_a_step
from trainwright.storage.parallel import Stop, TransferStopped, for_each
from trainwright.storage.store import Capabilities
from trainwright.storage.uri import StorageUri

URI = StorageUri.parse("s3://bucket/key")


class Opened:
    """Counts how often the bucket was opened, and with which settings."""

    def __init__(self) -> None:
        self.settings: list[tuple[float, bool]] = []

    def __call__(self, retry_seconds: float, sends_checksums: bool) -> object:
        self.settings.append((retry_seconds, sends_checksums))
        return object()


def failing(times: int, error: StorageError) -> Callable[[], str]:
    left = [times]

    def action() -> str:
        if left[0]:
            left[0] -= 1
            raise error
        return "done"

    return action


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made, in a time that passes only by them."""
    made: list[float] = []
    monkeypatch.setattr("time.sleep", made.append)
    monkeypatch.setattr("time.monotonic", lambda: sum(made))
    return made


def test_a_store_that_has_never_answered_is_tried_for_seconds(pauses: list[float]) -> None:
    connection = ObjectConnection("s3://bucket", Opened(), first_seconds=5, outage_seconds=600)
    with pytest.raises(Transient, match="away"):
        connection.retry(failing(10_000, Transient("away")), URI)
    assert 1.4 <= sum(pauses) <= 5


def test_a_store_that_has_never_answered_is_tried_for_a_minute_in_a_step(pauses: list[float]) -> None:
    with waiting_as_a_step():
        assert ObjectConnection("s3://bucket", Opened()).retry(failing(8, Transient("slow")), URI) == "done"
        before = sum(pauses)
        with pytest.raises(Transient, match="away"):
            ObjectConnection("s3://bucket", Opened()).retry(failing(10_000, Transient("away")), URI)
        assert 44 <= sum(pauses) - before <= 60
    before = sum(pauses)
    with pytest.raises(Transient, match="away"):
        ObjectConnection("s3://bucket", Opened()).retry(failing(10_000, Transient("away")), URI)
    assert sum(pauses) - before <= 5


def test_a_store_that_has_answered_is_waited_for(pauses: list[float]) -> None:
    opened = Opened()
    connection = ObjectConnection("s3://bucket", opened, first_seconds=5, outage_seconds=600)
    assert connection.retry(failing(0, Transient("")), URI) == "done"
    assert opened.settings == [(0, True), (5, True), (0, True), (600, True)], "only parts of uploads are retried below it"
    assert connection.retry(failing(20, Transient("away")), URI) == "done"
    assert max(pauses) <= 15
    before = sum(pauses)
    with pytest.raises(Transient, match="away"):
        connection.retry(failing(10_000, Transient("away")), URI)
    assert 500 <= sum(pauses) - before <= 600


def test_an_error_that_stays_is_not_tried_again(pauses: list[float]) -> None:
    connection = ObjectConnection("s3://bucket", Opened())
    for error in (NoAccess("denied"), StorageError("no")):
        with pytest.raises(type(error)):
            connection.retry(failing(1, error), URI)
    assert pauses == []


def test_credentials_that_have_expired_are_read_again_but_not_for_long(pauses: list[float]) -> None:
    opened = Opened()
    connection = ObjectConnection("s3://bucket", opened, outage_seconds=600)
    assert connection.retry(failing(2, ExpiredCredentials("expired")), URI) == "done"
    assert len(opened.settings) == 2 * (1 + 2 + 1)  # twice at first, for each failure, after the first success
    with pytest.raises(ExpiredCredentials):
        connection.retry(failing(10_000, ExpiredCredentials("expired")), URI)
    assert sum(pauses) < 70


def test_capabilities_are_found_out_once_and_checksums_can_be_switched_off() -> None:
    opened, asked = Opened(), []
    connection = ObjectConnection("s3://bucket", opened, first_seconds=5)

    def find_out() -> Capabilities:
        asked.append(True)
        return Capabilities(conditional_writes=True, checks_uploads=False)

    assert connection.capabilities(find_out) is connection.capabilities(find_out)
    assert asked == [True]
    connection.send_no_checksums()
    assert opened.settings[-1] == (5, False)


def test_after_an_error_no_further_item_is_begun_and_those_that_run_are_told() -> None:
    stop, begun, ended = Stop(), threading.Barrier(2), []
    seen: list[int] = []

    def work(item: int) -> None:
        seen.append(item)
        if item == 0:
            begun.wait(10)
            raise StorageError("first")
        if item == 1:
            begun.wait(10)
            report = stop.watch(lambda _count: None)
            try:
                while True:
                    report(1)
            except TransferStopped:
                ended.append(item)
                raise

    with pytest.raises(StorageError, match="first"):
        for_each(range(100), work, at_once=2, stop=stop)
    assert ended == [1]
    assert len(seen) < 10
    assert for_each([3, 1, 2], lambda item: item * 2, at_once=3) == [6, 2, 4]
    assert for_each([], work, at_once=3) == []
