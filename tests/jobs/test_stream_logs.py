"""Logs beside a wait, and logs that are looked at now and then: each line once, within bytes and requests."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.scripted_logs import Log, WithLogs
from support.virtual_time import VirtualClock
from support.waiting import eventually

from trainwright.api.errors import Forbidden, ServiceUnavailable
from trainwright.api.kinds import POD
from trainwright.api.names import REPLICATED_JOB_LABEL
from trainwright.backoff import Backoff
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import LogStreamOptions, TrainJobFailed, wait_for
from trainwright.jobs.logs import container_log, follow_logs, poll_logs
from trainwright.jobs.logs.log_options import Budget
from trainwright.jobs.logs.poll_logs import PolledLogs
from trainwright.jobs.state import pods
from trainwright.jobs.wait.job_events import JobEvent, LogOutput, Metrics
from trainwright.jobs.wait.job_observer import WaitSettings

Job = dict[str, Any]
READY = [{"name": "node", "ready": 1, "active": 1, "succeeded": 0, "failed": 0, "suspended": 0}]
LINES = tuple(f"line {number}" for number in range(12))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_log, "POLL_SECONDS", 0.02)


def drained(polled: PolledLogs) -> list[str]:
    return [line.text for portion in polled.drain() for line in portion]


class WaitInThread:
    """`wait_for` with logs in a thread of its own."""

    def __init__(self, source: Any, job: Job, live: LogStreamOptions | None = None):
        self.told: list[JobEvent] = []
        self.outcome: Any = None
        self._call = lambda: wait_for(source, job, WaitSettings(logs=live or LogStreamOptions()), on_event=self.told.extend)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.outcome = self._call()
        except TrainJobFailed as error:
            self.outcome = error

    @property
    def printed(self) -> list[str]:
        return [one.line.text for one in tuple(self.told) if isinstance(one, LogOutput)]

    def end(self) -> Any:
        self._thread.join(20)
        assert not self._thread.is_alive()
        return self.outcome


def test_a_wait_shows_the_log_as_it_grows_and_to_its_end(
    cluster: EmbeddedCluster, job: Job, add_pod: Any, set_status: Any
) -> None:
    log = Log("a", "{'loss': 1.5}")
    log.until.clear()
    source: Any = WithLogs(cluster, log)
    waiting = WaitInThread(source, job)
    pod = add_pod(job, 0, phase="Running")
    set_status(job, jobsStatus=READY)
    eventually(lambda: waiting.printed == ["a", "{'loss': 1.5}"])
    assert Metrics((("loss", "1.5"),)) in waiting.told
    log.entries.append(("1970-01-01T00:00:09.000000000Z", "the end"))
    cluster.patch(POD, pod["metadata"]["name"], {"status": {"phase": "Failed"}}, "default", subresource="status")
    set_status(job, "Failed", jobsStatus=READY)
    log.until.set()
    assert isinstance(waiting.end(), TrainJobFailed)
    assert waiting.printed == ["a", "{'loss': 1.5}", "the end"]


@pytest.mark.medium
def test_pods_are_looked_for_when_something_changes_and_not_all_the_time(
    cluster: EmbeddedCluster, job: Job, add_pod: Any, set_status: Any
) -> None:
    log = Log("a")
    log.until.clear()
    source: Any = WithLogs(cluster, log)
    lists: list[Any] = []
    source.list = lambda kind, *arguments, **more: (lists.append(kind), cluster.list(kind, *arguments, **more))[1]
    pod = add_pod(job, 0, phase="Running")
    waiting = WaitInThread(source, job)
    eventually(lambda: waiting.printed)
    set_status(job, jobsStatus=READY)
    threading.Event().wait(1.5)  # three ticks
    assert lists.count(POD) <= 3
    cluster.patch(POD, pod["metadata"]["name"], {"status": {"phase": "Succeeded"}}, "default", subresource="status")
    set_status(job, "Complete", jobsStatus=READY)
    log.until.set()
    waiting.end()


@pytest.mark.medium
def test_a_job_that_prints_faster_than_it_is_shown_loses_no_line(
    cluster: EmbeddedCluster, job: Job, add_pod: Any, set_status: Any
) -> None:
    """Of a short job all lines are shown at its end: the rate is bounded only while it runs."""
    lines = [f"line {number} " + "x" * 1000 for number in range(500)]
    pod = add_pod(job, 0, phase="Running")
    log = Log(*lines)
    log.until.clear()
    waiting = WaitInThread(WithLogs(cluster, log), job)
    eventually(lambda: waiting.printed)
    cluster.patch(POD, pod["metadata"]["name"], {"status": {"phase": "Succeeded"}}, "default", subresource="status")
    set_status(job, "Complete")
    log.until.set()
    waiting.end()
    assert waiting.printed == lines


@pytest.mark.medium
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tick=st.integers(1, 200),
    steps=st.lists(st.integers(0, 12), max_size=6),
    cuts=st.lists(st.integers(-1, 400), max_size=3),
    handovers=st.sets(st.integers(1, 8)),
)
def test_property_looks_show_every_line_once_whatever_they_have_a_place_for_and_whoever_looks(
    tick: int, steps: list[int], cuts: list[int], handovers: set[int]
) -> None:
    log = Log(*LINES, cuts=tuple(cuts))
    entries, log.entries = log.entries, []
    pod = {
        "metadata": {"name": "x-node-0-0-a", "namespace": "default", "uid": "u", "labels": {REPLICATED_JOB_LABEL: "node"}},
        "spec": {"containers": [{"name": "node"}]},
        "status": {"phase": "Running"},
    }
    source: Any = WithLogs(None, log)  # type: ignore[arg-type]
    source.list = lambda *_, **__: type("L", (), {"items": [pod]})
    job, options = {"metadata": {"name": "x", "namespace": "default"}}, LogStreamOptions(budget=Budget(tick, None))
    polled = PolledLogs(source, job, options)
    seen: list[str] = []
    for number, step in enumerate((*sorted(steps), *[12] * 40)):
        if number in handovers:
            polled = PolledLogs(source, job, options, polled.shown_until)
        log.entries = entries[:step]
        lines = [line.text for line in polled.poll()]
        assert sum(len(line) + 1 for line in lines[:-1]) < tick
        seen += lines
    assert list(dict.fromkeys(seen)) == list(LINES)
    assert len(seen) - len(LINES) <= len(handovers), "only the lines of one moment are shown again, by another who looks"


def test_looks_end_with_the_last_lines_where_there_was_too_much(cluster: EmbeddedCluster, job: Job, add_pod: Any) -> None:
    add_pod(job, 0, phase="Succeeded")
    source: Any = WithLogs(cluster, Log(*LINES))
    polled = PolledLogs(source, job, LogStreamOptions(budget=Budget(14, 27, tail_lines=2)))
    assert [line.text for line in polled.poll()] == ["line 0", "line 1"]
    assert [line.text for line in polled.poll()] == [
        "line 2",
        "(21 bytes shown, the limit is reached; the last lines follow when the job ends)",
    ]
    assert polled.poll() == []
    assert drained(polled) == ["... 7 lines not shown", "line 10", "line 11"]
    portions = list(PolledLogs(source, job, LogStreamOptions(budget=Budget(14, None))).drain())
    assert [line.text for portion in portions for line in portion] == list(LINES)
    assert [len(portion) for portion in portions] == [2, 2, 2, 2, 2, 2, 0]


def test_lines_that_were_rotated_away_are_not_dropped_without_a_word(cluster: EmbeddedCluster, job: Job, add_pod: Any) -> None:
    add_pod(job, 0, phase="Running")
    log = Log(*LINES)
    entries, log.entries = log.entries, log.entries[:4]
    source: Any = WithLogs(cluster, log)
    polled = PolledLogs(source, job, LogStreamOptions())
    assert [line.text for line in polled.poll()] == list(LINES[:4])
    log.entries = entries[2:6]
    assert [line.text for line in polled.poll()] == list(LINES[4:6])
    log.entries = entries[9:]
    assert [line.text for line in polled.poll()] == [container_log.NOT_KEPT, *LINES[9:]]
    limited = PolledLogs(source, job, LogStreamOptions(budget=Budget(None, 20, tail_lines=1)))
    log.entries = entries[:3]
    assert [line.text for line in limited.poll()][:-1] == list(LINES[:2])
    log.entries = entries[9:]
    assert drained(limited) == ["... 3 lines not shown, besides those that the node has not kept", "line 11"]


def test_the_last_look_outlasts_a_lost_connection(
    cluster: EmbeddedCluster, job: Job, add_pod: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poll_logs, "_BACKOFF", Backoff(0.01, 0.01))
    add_pod(job, 0, phase="Succeeded")
    source: Any = WithLogs(cluster, Log(*LINES, cuts=(100, -1)))
    assert drained(PolledLogs(source, job, LogStreamOptions())) == list(LINES)
    away: Any = WithLogs(cluster, ServiceUnavailable("down"))
    assert drained(PolledLogs(away, job, LogStreamOptions())) == ["(the rest of the log cannot be shown: down)"]


@pytest.mark.medium
@pytest.mark.parametrize("what", ["pods", "log"])
def test_a_log_that_was_forbidden_is_asked_for_again(
    cluster: EmbeddedCluster, job: Job, add_pod: Any, set_status: Any, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    for module, name in (
        (pods, "ASKED_AGAIN_SECONDS"),
        (follow_logs, "ASKED_AGAIN_SECONDS"),
        (follow_logs, "_IDLE_POLL_SECONDS"),
        (follow_logs, "_READING_POLL_SECONDS"),
    ):
        monkeypatch.setattr(module, name, 0.05)
    log, is_granted = Log("a", "b"), threading.Event()
    log.until.clear()
    source: Any = WithLogs(cluster, log)
    plain = {"pods": cluster.list, "log": source.logs}[what]

    def refusing(*arguments: Any, **options: Any) -> Any:
        if not is_granted.is_set() and (what == "log" or arguments[0] == POD):
            raise Forbidden("not you")
        return plain(*arguments, **options)

    setattr(source, {"pods": "list", "log": "logs"}[what], refusing)
    pod = add_pod(job, 0, phase="Running")
    waiting = WaitInThread(source, job)
    eventually(lambda: "not you" in "".join(waiting.printed))
    is_granted.set()
    eventually(lambda: waiting.printed[1:] == ["a", "b"])
    cluster.patch(POD, pod["metadata"]["name"], {"status": {"phase": "Succeeded"}}, "default", subresource="status")
    set_status(job, "Complete")
    log.until.set()
    waiting.end()


def test_a_poll_asks_again_for_what_was_forbidden(cluster: EmbeddedCluster, job: Job, add_pod: Any) -> None:
    add_pod(job, 0, phase="Running")
    clock, source = VirtualClock(), cast(Any, WithLogs(cluster, Forbidden("not you")))
    polled = PolledLogs(source, job, LogStreamOptions())
    with clock.installed():
        assert len(polled.poll()) == 1
        source._logs = (Log("a"),)
        assert polled.poll() == []
        clock.jump(pods.ASKED_AGAIN_SECONDS)
        assert [line.text for line in polled.poll()] == ["a"]


def test_looks_outlast_a_cluster_that_is_away_and_say_what_is_forbidden(cluster: EmbeddedCluster, job: Job, add_pod: Any) -> None:
    add_pod(job, 0, phase="Running")
    away = PolledLogs(WithLogs(cluster, ServiceUnavailable("down")), job, LogStreamOptions())  # type: ignore[arg-type]
    assert away.poll() == []
    refused = PolledLogs(WithLogs(cluster, Forbidden("not you")), job, LogStreamOptions())  # type: ignore[arg-type]
    assert [line.text for line in refused.poll()] == ["(the log cannot be shown: not you)"]
    assert refused.poll() == drained(refused) == []
