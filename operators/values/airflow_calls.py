"""What a trigger asks Airflow, on the event loop and where cancellations do not reach.

A thread that asks by itself, or a request that is cancelled half way, leaves an answer that nobody takes. The triggerers of Airflow
3.1 and 3.2 read it as the answer to the next request, and end with all their triggers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from trainwright.backoff import Backoff
from trainwright.operators.values.task_state import StateUnknown, TaskId

_T = TypeVar("_T")
_ANSWER_SECONDS = 60.0
_attempts, _backoff = 5, Backoff(0.5, 4.0)
"""To read a state."""
_under_way: set[asyncio.Task[Any]] = set()
"""The event loop itself keeps only weak references."""


def apart(work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
    """Begin the work as a task that nothing cancels but the end of the event loop."""
    task = asyncio.get_running_loop().create_task(work)
    _under_way.add(task)
    task.add_done_callback(_under_way.discard)
    return task


async def undisturbed(work: Coroutine[Any, Any, _T]) -> _T:
    """Await the work, which goes on to its end even if whoever awaits it is cancelled."""
    return await asyncio.shield(apart(work))


async def state_of(task: TaskId) -> str:
    """The state of a task, see `TaskId.state`; asked again if that fails. Raises StateUnknown."""
    from asgiref.sync import sync_to_async  # its threads ask on the event loop, as the Task SDK expects; Airflow depends on it

    for attempt in range(1, _attempts + 1):
        try:
            return await asyncio.wait_for(undisturbed(sync_to_async(task.state)()), _ANSWER_SECONDS)
        except StateUnknown:
            if attempt == _attempts:
                raise
            await asyncio.sleep(_backoff.pause(attempt))
        except TimeoutError:
            raise StateUnknown(f"Airflow did not answer within {_ANSWER_SECONDS:g} s") from None
    raise AssertionError
