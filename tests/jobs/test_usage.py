"""Node-hours, GPU-hours and cost of a job: of pods that run, ended, are gone; of several attempts; and prices that are none."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from trainwright.api import names
from trainwright.jobs.state import pod_history
from trainwright.jobs.state.pod_history import PodHistory
from trainwright.jobs.state.usage import BadPrice, Usage, prices_in, usage_of

START, NOW = "2026-01-01T00:00:00Z", datetime(2026, 1, 1, 10, tzinfo=UTC).timestamp()
NODE, GPU = names.NODE_PRICE_ANNOTATION, names.GPU_PRICE_ANNOTATION


def pod(name: str, *, gpus: int = 0, ended: str = "", step: str = "trainer", phase: str = "Running") -> dict[str, Any]:
    state = {"terminated": {"finishedAt": ended, "exitCode": 0}} if ended else {"running": {}}
    return {
        "metadata": {"name": name, "uid": name, "labels": {names.REPLICATED_JOB_LABEL: step, names.COMPLETION_INDEX: "0"}},
        "spec": {"containers": [{"name": "node", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}}]},
        "status": {"phase": phase, "startTime": START, "containerStatuses": [{"name": "node", "state": state}]},
    }


def job(**annotations: str) -> dict[str, Any]:
    return {"metadata": {"name": "job", "annotations": annotations}}


def history(*looks: tuple[str, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch) -> PodHistory:
    """What several looks saw, each at its time."""
    seen = PodHistory()
    for moment, pods in looks:
        at = datetime.fromisoformat(moment).timestamp()
        monkeypatch.setattr(pod_history.time, "time", lambda at=at: at)
        seen.observe(pods)
    return seen


def test_pods_count_until_they_end_or_now(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = pod("a", gpus=8, ended="2026-01-01T02:00:00Z", phase="Succeeded")
    seen = history(("2026-01-01T02:00:00+00:00", [ended, pod("b"), pod("c", step="model-initializer")]), monkeypatch=monkeypatch)
    assert usage_of(seen, job(), NOW) == Usage(12.0, 16.0)


def test_a_pod_that_is_gone_counts_until_it_was_last_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart replaced it: it did not run until the end of the job."""
    looks = [("2026-01-01T01:00:00+00:00", [pod("a")]), ("2026-01-01T03:00:00+00:00", [pod("a")])]
    seen = history(*looks, ("2026-01-01T09:00:00+00:00", [pod("b")]), monkeypatch=monkeypatch)
    assert usage_of(seen, job(), NOW) == Usage(3.0 + 10.0, 0.0)


def test_cost_is_that_of_nodes_and_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = history(("2026-01-01T01:00:00+00:00", [pod("a", gpus=2)]), monkeypatch=monkeypatch)
    used = usage_of(seen, job(**{NODE: "0.5 USD", GPU: "2 USD"}), NOW)
    assert used == Usage(10.0, 20.0, 45.0, "USD")
    assert str(used) == "10.00 node-hours, 20.00 GPU-hours, cost 45.00 USD"
    assert used.figures() == {"node_hours": 10.0, "gpu_hours": 20.0, "cost": 45.0}
    assert Usage.from_dict(used.as_dict()) == used
    assert usage_of(seen, job(**{GPU: "much"}), NOW) == Usage(10.0, 20.0)


@pytest.mark.parametrize("text", ["2,50", "-1", "nan", "1e3", "2 US Dollars", "٣ USD", "USD 2", "1" * 20])
def test_invalid_prices_are_refused(text: str) -> None:
    with pytest.raises(BadPrice, match="is no price; expected a number"):
        prices_in({GPU: text})
    with pytest.raises(BadPrice, match="in different currencies"):
        prices_in({NODE: "1 EUR", GPU: "1 USD"})
