"""Spooled logs of a server: within limits, closed when nobody looks."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from log_cluster import key
from support.waiting import eventually

from trainwright.api.errors import TooManyRequests
from trainwright.ui.logs.line_splitter import Lines
from trainwright.ui.logs.spool import LogSpool, LogState
from trainwright.ui.logs.spools import LogSpools, SpoolLimits

MEBI = 1024 * 1024


def lines(size: int) -> Lines:
    return Lines([b""], [b"x" * size])


def wait_for_end(_cluster: Any, spool: LogSpool) -> None:
    while not spool.is_closed:
        spool.wait(spool.version, 10)


def open_spools(limits: SpoolLimits) -> LogSpools:
    return LogSpools(limits, read=wait_for_end)


def opened(spools: LogSpools, number: int, session: str = "k") -> LogSpool:
    return spools.open(None, key(number, session=session))  # type: ignore[arg-type]


def unused(spool: LogSpool) -> None:
    spool.used = time.monotonic() - 1000


def test_a_log_is_read_once_for_all_who_look() -> None:
    spools = open_spools(SpoolLimits())
    assert opened(spools, 0) is opened(spools, 0)
    assert opened(spools, 0) is not opened(spools, 0, "another user")
    spools.close()
    assert len(spools) == 0


def test_a_log_that_nobody_looks_at_is_closed() -> None:
    spools = open_spools(SpoolLimits(idle_seconds=0.05))
    spool = opened(spools, 0)
    spool.append(lines(100))
    eventually(lambda: spool.is_closed)
    assert spool.texts.size == 100 + 1
    assert spool.total == 0
    assert opened(spools, 0) is not spool
    spools.close()


def test_the_oldest_unused_log_makes_room_for_another() -> None:
    spools = open_spools(SpoolLimits(logs=2))
    first, second = opened(spools, 0), opened(spools, 1)
    with pytest.raises(TooManyRequests, match="2 logs are open"):
        opened(spools, 2)
    unused(second)
    opened(spools, 2)
    assert (first.is_closed, second.is_closed) == (False, True)
    spools.close()


def test_one_user_cannot_take_all_logs() -> None:
    spools = open_spools(SpoolLimits(logs_of_session=1))
    opened(spools, 0, "a")
    opened(spools, 0, "b")
    with pytest.raises(TooManyRequests):
        opened(spools, 1, "a")
    spools.close()


def test_a_log_beyond_its_limit_is_truncated() -> None:
    spools = open_spools(SpoolLimits(log_bytes=MEBI))
    spool = opened(spools, 0)
    assert spool.append(lines(MEBI - 100))
    assert not spool.append(lines(200))
    assert spool.state == LogState("truncated", "only the first 1 MiB of this log are shown, the limit")
    spools.close()


def test_unused_logs_give_their_space_to_others() -> None:
    spools = open_spools(SpoolLimits(total_bytes=MEBI))
    first, second = opened(spools, 0), opened(spools, 1)
    assert first.append(lines(600_000))
    assert not second.append(lines(600_000))
    assert "1 MiB" in second.state.message
    unused(first)
    third = opened(spools, 2)
    assert third.append(lines(600_000))
    assert first.is_closed
    spools.close()


def test_a_full_disk_truncates_the_log() -> None:
    spools = open_spools(SpoolLimits(free_bytes=1 << 62))
    spool = opened(spools, 0)
    assert not spool.append(lines(1))
    assert "almost full" in spool.state.message
    spools.close()


def test_a_log_that_ended_is_read_anew_on_request() -> None:
    spools = open_spools(SpoolLimits())
    spool = opened(spools, 0)
    spools.forget(spool.key)
    assert not spool.is_closed
    spool.set_state(LogState("forbidden", "no"))
    spools.forget(spool.key)
    assert spool.is_closed
    assert opened(spools, 0) is not spool
    spools.close()


def test_a_reader_that_fails_closes_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[BaseException] = []
    monkeypatch.setattr(threading, "excepthook", lambda arguments: failed.append(arguments.exc_value))

    def fail(_cluster: Any, _spool: LogSpool) -> None:
        raise RuntimeError("a defect")

    spools = LogSpools(SpoolLimits(), read=fail)
    spool = opened(spools, 0)
    eventually(lambda: spool.is_closed)
    eventually(lambda: [str(error) for error in failed] == ["a defect"])
    spools.close()


def test_nothing_is_opened_while_the_server_stops() -> None:
    spools = open_spools(SpoolLimits())
    spools.close()
    with pytest.raises(TooManyRequests, match="stopping"):
        opened(spools, 0)
