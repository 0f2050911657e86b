"""What controllers count: results and times by controller, phases as they change, and that a scrape stays quick."""

from __future__ import annotations

import time
from typing import Any

import pytest
from prometheus_client.core import Metric

from trainwright.api.errors import ApiError, Conflict
from trainwright.api.kinds import JOBSET, POD, TRAINJOB
from trainwright.controlplane.controllers.controller import Controller, TerminalError
from trainwright.controlplane.controllers.metrics import ObjectMetrics, metric_families
from trainwright.controlplane.controllers.queue import Key
from trainwright.controlplane.exposition import exposition


def obj(uid: str, status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": uid, "namespace": "ns", "uid": uid}, "spec": spec, "status": status or {}}


def true(kind: str) -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": "True"}]}


def value_of(families: list[Metric], name: str, **labels: str) -> float:
    (value,) = [
        sample.value for family in families for sample in family.samples if (sample.name, sample.labels) == (name, labels)
    ]
    return value


@pytest.mark.parametrize(
    ("outcome", "result", "retries"),
    [
        (None, "success", 0),
        (5.0, "requeue_after", 0),
        (Conflict("first"), "conflict", 1),
        (TerminalError("waits"), "terminal", 0),
        (ApiError("no"), "error", 1),
        (ValueError("ours"), "panic", 1),
    ],
)
def test_every_way_to_end_is_told_apart(outcome: float | Exception | None, result: str, retries: int) -> None:
    def reconcile(key: Key) -> float | None:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    controller = Controller("demo", reconcile, {})
    controller.queue.add(("ns", "a"))
    controller.finish(controller.process(controller.queue.take() or ("", "")))
    families = metric_families([controller])
    told = {sample.labels["result"]: sample.value for sample in families[1].samples}
    assert {name: value for name, value in told.items() if value} == {result: 1}
    assert value_of(families, "trainwright_queue_retries_total", controller="demo") == retries
    assert value_of(families, "trainwright_queue_failing", controller="demo") == retries
    text = exposition(families)
    assert 'trainwright_reconcile_seconds_bucket{controller="demo",le="+Inf"} 1.0\n' in text
    assert 'trainwright_reconcile_seconds_count{controller="demo"} 1.0\n' in text


def test_phases_and_restarts_follow_what_happens() -> None:
    object_metrics = ObjectMetrics(pods=True)
    jobs, jobsets, pods = (object_metrics.handlers()[kind] for kind in (TRAINJOB, JOBSET, POD))
    jobs("ADDED", obj("a"))
    jobs("ADDED", obj("b", suspend=True))
    jobs("MODIFIED", obj("a", true("Complete")))
    jobs("ADDED", obj("a", true("Complete")))  # told twice, as after a new list
    jobs("DELETED", obj("b", suspend=True))
    jobs("DELETED", obj("never seen"))
    jobsets("ADDED", obj("a", {"restarts": 3}))
    jobsets("MODIFIED", obj("a", {"restarts": 5}))
    pods("ADDED", obj("p"))
    pods("MODIFIED", obj("p", {"phase": "Running", "containerStatuses": [{"restartCount": 2}, {}]}))
    pods("ADDED", obj("q", {"phase": "Odd"}))
    families = object_metrics.families()
    counts = {sample.labels["phase"]: sample.value for sample in families[0].samples}
    assert {phase: count for phase, count in counts.items() if count} == {"Succeeded": 1}
    assert value_of(families, "trainwright_jobset_restarts_total") == 2
    assert value_of(families, "trainwright_container_restarts_total") == 2
    assert value_of(families, "trainwright_pods", phase="Running") == 1
    assert value_of(families, "trainwright_pods", phase="Unknown") == 1


def test_ten_thousand_finished_jobs_make_no_scrape_slow() -> None:
    object_metrics = ObjectMetrics(pods=False)
    see = object_metrics.handlers()[TRAINJOB]
    for number in range(10_000):
        see("ADDED", obj(str(number), true("Complete")))
    began = time.process_time()
    for _ in range(100):
        text = exposition(object_metrics.families())
    assert 'trainwright_trainjobs{phase="Succeeded"} 10000.0' in text
    assert (time.process_time() - began) / 100 < 0.002
    assert len(text.splitlines()) < 20
