"""TrainJobCompletionTrigger: one event for each TrainJob that succeeds, across lost watches and restarts of the triggerer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from factories import train_request
from support.on_first_use import OnFirstUse

from trainwright import operators
from trainwright.api.errors import Expired, Forbidden, ServiceUnavailable
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import name_of
from trainwright.backoff import Backoff
from trainwright.cluster import reflector
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Submission, submit_or_adopt

sdk = OnFirstUse("airflow.sdk")
triggers = OnFirstUse("airflow.triggers.base")


train_job_watcher = OnFirstUse("trainwright.operators.train_job_watcher")

pytestmark = pytest.mark.medium
Job = dict[str, Any]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "BACKOFF", Backoff(0.01, 30.0))
    monkeypatch.setattr(reflector, "POLL_SECONDS", 0.05)


class Store:
    """The state store of the watched asset."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    async def aget(self, key: str) -> Any:
        return json.loads(self.values[key]) if key in self.values else None

    async def aset(self, key: str, value: Any) -> None:
        self.values[key] = json.dumps(value)


@pytest.fixture
def submit(connected: EmbeddedCluster) -> Callable[..., Job]:
    def make(run: str, **labels: str) -> Job:
        request = train_request(runtime="torch-distributed", command=["true"], labels=labels)
        return submit_or_adopt(Submission(connected, request, Identity("me", run, "train"), "default")).trainjob

    return make


@pytest.fixture
def complete(connected: EmbeddedCluster) -> Callable[..., Job]:
    def write(job: Job, at: str = "2026-01-01T00:00:00Z", kind: str = "Complete") -> Job:
        condition = {"type": kind, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": at}
        reported = {"lastUpdatedTime": at, "metrics": [{"name": "loss", "value": "0.3"}]}
        patch = {"status": {"conditions": [condition], "trainerStatus": reported}}
        return connected.patch(TRAINJOB, name_of(job), patch, "default", subresource="status")

    return write


class Events:
    """The events of a running trigger, in the order in which they come."""

    def __init__(self, trigger: operators.TrainJobCompletionTrigger):
        self._stream = trigger.run()
        self._next: asyncio.Task[Any] | None = None

    async def next(self) -> dict[str, Any]:
        task = self._begin()
        payload: dict[str, Any] = (await asyncio.wait_for(task, 20)).payload
        self._next = None
        return payload

    def _begin(self) -> asyncio.Task[Any]:
        self._next = self._next or asyncio.ensure_future(anext(self._stream))
        return self._next

    async def until(self, condition: Callable[[], Any]) -> None:
        """Run the trigger until something has happened; it must not fire before."""
        task = self._begin()
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.01)
        assert not task.done()

    async def close(self) -> None:
        if self._next is not None:
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)
        await self._stream.aclose()  # type: ignore[attr-defined]


@asynccontextmanager
async def watching(store: Store | None, **options: Any) -> AsyncIterator[Events]:
    trigger = operators.TrainJobCompletionTrigger(**options)
    path, arguments = trigger.serialize()
    assert path == "trainwright.operators.train_job_watcher.TrainJobCompletionTrigger"
    trigger = operators.TrainJobCompletionTrigger(**json.loads(json.dumps(arguments)))
    trigger.asset_state_store = store  # type: ignore[assignment]
    events = Events(trigger)
    try:
        yield events
    finally:
        await events.close()


def test_asset_watcher_trigger_hashes_the_same_at_every_parsing() -> None:
    def watcher() -> sdk.AssetWatcher:
        return sdk.AssetWatcher(
            name="models", trigger=operators.TrainJobCompletionTrigger(namespace="team", label_selector="a=b")
        )

    sdk.Asset("trained", watchers=[watcher()])
    hashes = {triggers.BaseEventTrigger.hash(*watcher().trigger.serialize()) for _ in range(2)}
    assert len(hashes) == 1


def test_a_job_that_succeeds_is_reported_once(submit: Callable[..., Job], complete: Callable[..., Job], connected: Any) -> None:
    complete(submit("before"))
    running, failing, other = submit("running", team="nlp"), submit("failing"), submit("other")

    async def scenario() -> None:
        store = Store()
        async with watching(store) as events:
            await events.until(lambda: store.values)
            complete(failing, kind="Failed")
            done = complete(running, "2026-01-01T00:00:10Z")
            event = await events.next()
            assert {name: event[name] for name in ("name", "namespace", "uid")} == {
                name: done["metadata"][name] for name in ("name", "namespace", "uid")
            }
            assert (event["metrics"], event["completed"]) == ({"loss": "0.3"}, "2026-01-01T00:00:10Z")
            assert event["labels"]["team"] == "nlp"
            assert json.loads(json.dumps(event)) == event
            connected.patch(TRAINJOB, name_of(done), {"metadata": {"annotations": {"a": "b"}}}, "default")
            complete(other, "2026-01-01T00:00:11Z")
            assert (await events.next())["name"] == name_of(other)

    asyncio.run(scenario())


def test_only_jobs_with_the_labels_are_reported(submit: Callable[..., Job], complete: Callable[..., Job]) -> None:
    mine, other = submit("mine", team="nlp"), submit("other", team="vision")

    async def scenario() -> None:
        store = Store()
        async with watching(store, label_selector="team in (nlp)") as events:
            await events.until(lambda: store.values)
            complete(other)
            complete(mine)
            assert (await events.next())["name"] == name_of(mine)

    asyncio.run(scenario())


@pytest.mark.parametrize("has_store", [True, False])
def test_successes_while_no_triggerer_runs_are_reported_later_with_a_store(
    connected: EmbeddedCluster, submit: Callable[..., Job], complete: Callable[..., Job], has_store: bool
) -> None:
    plain, lists = connected.list, list[Any]()

    def counted(*arguments: Any, **options: Any) -> Any:
        found = plain(*arguments, **options)
        lists.append(found)
        return found

    old, first, second, third = (submit(name) for name in ("old", "first", "second", "third"))
    complete(old, "2026-01-01T00:00:00Z")

    async def scenario() -> None:
        store = Store()
        async with watching(store) as events:
            await events.until(lambda: store.values)
            complete(first, "2026-01-01T01:00:00Z")
            assert (await events.next())["name"] == name_of(first)
            latest = json.dumps("2026-01-01T01:00:00Z")
            await events.until(lambda: any(latest in value for value in store.values.values()))
        complete(second, "2026-01-01T01:00:00Z")
        connected.list = counted  # type: ignore[method-assign]
        async with watching(store if has_store else None) as events:
            if has_store:
                assert (await events.next())["name"] == name_of(second)
            else:
                await events.until(lambda: lists)
            complete(third, "2026-01-01T02:00:00Z")
            assert (await events.next())["name"] == name_of(third)

    asyncio.run(scenario())


def test_a_watch_that_expires_and_a_server_that_is_away_lose_nothing(
    connected: EmbeddedCluster, submit: Callable[..., Job], complete: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [submit(f"run-{number}") for number in range(3)]
    watch, plain = connected.watch, connected.list
    outages: list[Exception] = []

    def broken(*arguments: Any, **options: Any) -> Any:
        if outages:
            raise outages.pop()
        return watch(*arguments, **{**options, "timeout_seconds": 1})

    def listing(*arguments: Any, **options: Any) -> Any:
        if outages:
            raise outages.pop()
        return plain(*arguments, **options)

    monkeypatch.setattr(connected, "watch", broken)
    monkeypatch.setattr(connected, "list", listing)

    async def scenario() -> None:
        store = Store()
        async with watching(store) as events:
            await events.until(lambda: store.values)
            for number, error in enumerate([Expired("too old"), ServiceUnavailable("away"), Forbidden("no watch")]):
                outages.append(error)
                await events.until(lambda: not outages)
                complete(jobs[number], f"2026-01-01T00:0{number}:00Z")
                assert (await events.next())["name"] == name_of(jobs[number])

    asyncio.run(scenario())


class BrokenStore(Store):
    async def aget(self, key: str) -> Any:
        raise RuntimeError("no answer")

    async def aset(self, key: str, value: Any) -> None:
        self.values[key] = ""
        raise RuntimeError("no answer")


@pytest.mark.parametrize(
    ("kind", "errors"), [(Store, [ServiceUnavailable("away"), Forbidden("not yet")]), (BrokenStore, [])], ids=["cluster", "store"]
)
def test_events_outlast_a_cluster_that_was_away_and_a_store_that_fails(
    connected: EmbeddedCluster,
    submit: Callable[..., Job],
    complete: Callable[..., Job],
    monkeypatch: pytest.MonkeyPatch,
    kind: type[Store],
    errors: list[Exception],
) -> None:
    left = list(errors)

    def connect(*_: Any) -> EmbeddedCluster:
        if left:
            raise left.pop()
        return connected

    monkeypatch.setattr(operators.TrainJobCompletionTrigger, "backoff", Backoff(0.01, 0.02))
    monkeypatch.setattr("trainwright.operators.hook.TrainwrightHook.connect", connect)
    job = submit("run")

    async def scenario() -> None:
        store = kind()
        async with watching(store) as events:
            await events.until(lambda: store.values)
            complete(job)
            assert (await events.next())["name"] == name_of(job)

    asyncio.run(scenario())


def change(uid: str, at: str = "", *, kind: str = "MODIFIED", later: bool = True) -> train_job_watcher._Change:
    conditions = [{"type": "Complete", "status": "True", "lastTransitionTime": f"2026-01-01T{at}Z"}] if at else []
    return train_job_watcher._Change(kind, {"metadata": {"uid": uid, "name": uid}, "status": {"conditions": conditions}}, later)


def uids(jobs: list[Job]) -> list[str]:
    return [job["metadata"]["uid"] for job in jobs]


def test_a_restart_reports_what_came_later_and_nothing_twice() -> None:
    known = train_job_watcher.Completions()
    known.skip([change("old", "00:30:00", later=False)])
    known.new_among([change("a", "01:00:00"), change("b", "01:00:30")])
    again = train_job_watcher.Completions.from_dict(json.loads(json.dumps(known.as_dict())))
    listed = [change(uid, at) for uid, at in (("old", "00:30:00"), ("a", "01:00:00"), ("b", "01:00:30"))]
    missed = [change("slow", "01:00:15"), change("c", "03:00:00")]
    assert uids(again.new_among([*listed, *missed])) == ["slow", "c"]


def test_the_stored_state_stays_small() -> None:
    known = train_job_watcher.Completions()
    known.new_among([change(f"{number:036}", "01:00:00") for number in range(5000)])
    assert len(json.dumps(known.as_dict())) < 64 * 1024
    known.new_among([change("x", "02:00:00")])
    assert set(known.as_dict()["recent"]) == {"x"}
