"""The stream of what happens to a job: from its status, its log, and what began anew; and the lines that are made of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from factories import trainjob
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.names import FITS_CLUSTER
from trainwright.jobs import Phase, Progress
from trainwright.jobs.logs.log_options import LogLine
from trainwright.jobs.state.progress import progress_of
from trainwright.jobs.wait.job_events import (
    EventTracker,
    LogOutput,
    Metrics,
    PodFailed,
    Progressed,
    Restarted,
    apply_event,
)
from trainwright.jobs.wait.waiting import EventPrinter

RANK_0, RANK_1, INITIALIZER = "node-0-0", "node-0-1", "dataset-initializer-0-0"
LOSS = "{'loss': 1.5, 'epoch': 0.5}"


def job_with(ready: int = 1, end: str = "", percent: int | None = None, note: str = "", **metrics: str) -> dict[str, Any]:
    conditions = [{"type": end, "status": "True"}] if end else []
    if note:
        conditions.append({"type": FITS_CLUSTER, "status": "False", "message": note})
    status: dict[str, Any] = {"conditions": conditions, "jobsStatus": [{"name": "node", "ready": ready}]}
    if percent is not None:
        values = [{"name": name, "value": value} for name, value in metrics.items()]
        status["trainerStatus"] = {"progressPercentage": percent, "estimatedRemainingSeconds": 9, "metrics": values}
    return trainjob(status=status)


def line(text: str, source: str = RANK_0) -> LogLine:
    return LogLine(source, text)


def test_the_log_tells_where_the_training_reports_nothing() -> None:
    tracker = EventTracker()
    tracker.observe_status(job_with())
    assert tracker.observe_line(line(LOSS)) == (LogOutput(line(LOSS)), Metrics((("loss", "1.5"), ("epoch", "0.5"))))
    assert tracker.observe_line(line("50%|█████     | 5/10 [00:01<00:02, 1it/s]"))[1:] == (Progressed(50, 2),)
    assert tracker.observe_line(line("10%|█   | 1/4 [00:01<00:02, 1it/s]"))[1:] == (), "an evaluation within the training"
    assert tracker.observe_status(job_with()) == (), "what the log told still holds"
    assert tracker.observe_line(line("{'loss': 9.0}", RANK_1))[1:] == ()
    assert tracker.observe_line(line("100%|██████████| 99/99 [00:01<00:00, 1it/s]", INITIALIZER))[1:] == ()
    assert tracker.observe_status(job_with(percent=60)) == (Progressed(60, 9), Metrics(()))
    assert tracker.observe_line(line(LOSS)) == (LogOutput(line(LOSS)),), "now it reports itself"


def test_the_lines_that_people_read() -> None:
    said: list[str] = []
    tracker, event_printer = EventTracker(), EventPrinter(said.append)
    for happened in (
        tracker.observe_status(job_with(0, note="no node is large enough")),
        tracker.observe_status(job_with()),
        tracker.observe_line(line("\r 50%|██   | 1/2 [00:01<00:01, 1it/s]")),
        tracker.observe_line(line(LOSS)),
        (Restarted(1, 3), Restarted(2, container=True), PodFailed("pod p exited 1")),
        tracker.observe_status(job_with(end="Complete")),
    ):
        event_printer(happened)
    assert said == [
        "Starting: no node is large enough",
        "Running",
        "[node-0-0]  50%|██   | 1/2 [00:01<00:01, 1it/s]",
        "Running 50 % (1 s left)",
        f"[node-0-0] {LOSS}",
        "Running 50 % (1 s left) loss=1.5 epoch=0.5",
        "Restarting: restart 1 of 3",
        "Restarting: 2 restarts of containers so far",
        "pod p exited 1",
        "Succeeded loss=1.5 epoch=0.5",
    ]
    assert event_printer.progress == tracker.progress


JOBS = st.lists(
    st.builds(
        job_with,
        ready=st.integers(0, 1),
        end=st.sampled_from(["", "", "Complete", "Failed"]),
        percent=st.integers(0, 3),
        note=st.sampled_from(["", "a", "b"]),
        loss=st.sampled_from(["1", "2"]),
    ),
    min_size=1,
    max_size=12,
)


@given(JOBS)
def test_property_what_happened_adds_up_to_what_is_seen(jobs: list[dict[str, Any]]) -> None:
    tracker = EventTracker()
    folded: Progress | None = None
    for seen in jobs:
        for event in tracker.observe_status(seen):
            before, folded = folded, apply_event(folded, event)
            assert folded != before, "each tells something new"
        assert folded == tracker.progress
        assert folded is not None
        expected = progress_of(seen)
        assert replace(folded, phase=expected.phase) == expected
        assert folded.phase is expected.phase or (folded.phase, expected.phase) == (Phase.Running, Phase.Starting)
