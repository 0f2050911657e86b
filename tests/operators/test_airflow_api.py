"""What a trigger asks of Airflow is asked on the event loop, to its end, and no more often than needed."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from support.on_first_use import OnFirstUse

from trainwright.backoff import Backoff

airflow_api = OnFirstUse("trainwright.operators.values.airflow_api")
hook = OnFirstUse("trainwright.operators.hook")


def test_a_request_ends_although_whoever_asks_is_cancelled() -> None:
    ended: list[str] = []

    async def request() -> None:
        await asyncio.sleep(0.05)
        ended.append("answer taken")

    async def cancel_amid() -> None:
        asking = asyncio.create_task(airflow_api.undisturbed(request()))
        await asyncio.sleep(0.01)
        asking.cancel()
        await asyncio.wait({asking})
        assert asking.cancelled()
        await asyncio.sleep(0.1)

    asyncio.run(cancel_amid())
    assert ended == ["answer taken"]


@pytest.mark.parametrize(("failures", "is_known"), [(0, True), (2, True), (3, False)])
def test_a_state_is_asked_for_again_and_not_for_ever(monkeypatch: pytest.MonkeyPatch, failures: int, is_known: bool) -> None:
    asked: list[int] = []

    def state(_task: Any) -> str:
        asked.append(1)
        if len(asked) <= failures:
            raise airflow_api.StateUnknown("no answer")
        return "failed"

    monkeypatch.setattr(airflow_api, "_attempts", 3)
    monkeypatch.setattr(airflow_api, "_backoff", Backoff(0.0, 0.0))
    monkeypatch.setattr(airflow_api.TaskId, "state", state)
    if is_known:
        assert asyncio.run(airflow_api.state_of(airflow_api.TaskId("d", "train", "r"))) == "failed"
    else:
        with pytest.raises(airflow_api.StateUnknown, match="no answer"):
            asyncio.run(airflow_api.state_of(airflow_api.TaskId("d", "train", "r")))
    assert len(asked) == min(failures + 1, 3)


def test_an_answer_that_does_not_come_is_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = threading.Event()
    monkeypatch.setattr(airflow_api, "_ANSWER_SECONDS", 0.05)
    monkeypatch.setattr(airflow_api.TaskId, "state", lambda _task: str(waits.wait(20)))

    async def ask() -> None:
        with pytest.raises(airflow_api.StateUnknown, match="did not answer"):
            await airflow_api.state_of(airflow_api.TaskId("d", "train", "r"))
        waits.set()

    asyncio.run(ask())


def test_a_connection_is_read_once_for_all_triggers_and_on_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    errors: list[Exception] = [LookupError("away")]

    async def connection(_hook: hook.TrainwrightHook, _conn_id: str) -> Any:
        threads.append(threading.get_ident())
        await asyncio.sleep(0)
        if errors:
            raise errors.pop()
        return SimpleNamespace(conn_type="trainwright", extra_dejson={"namespace": "team"})

    monkeypatch.setattr(hook.TrainwrightHook, "aget_connection", connection)
    monkeypatch.setattr(hook.TrainwrightHook, "connect", lambda _hook, settings: (settings.namespace, threading.get_ident()))

    async def read() -> None:
        with pytest.raises(LookupError):
            await hook.TrainwrightHook("c").recent_settings()
        found = await asyncio.gather(*(hook.TrainwrightHook("c").aget_conn() for _ in range(100)))
        assert {namespace for namespace, _ in found} == {"team"}
        assert threading.get_ident() not in {thread for _, thread in found}, "connecting blocks"
        assert threads == [threading.get_ident()] * 2

    asyncio.run(read())
