"""Tests the timeline of a job, also where pods are gone, restarted, suspended, or too many."""

from __future__ import annotations

from typing import Any

from factories import trainjob

from trainwright.ui.jobs.timeline import Transition, timeline_of


def at(second: int) -> str:
    return f"2026-11-01T00:{second // 60:02d}:{second % 60:02d}Z"


def run(since: int, until: int | None = None, code: int | None = None, reason: str = "") -> dict[str, Any]:
    ended = at(until) if until is not None else ""
    return {"started": at(since), "ended": ended, "code": code, "reason": reason, "message": ""}


def pod(name: str = "node", index: int = 0, *, created: int = 0, runs: tuple[Any, ...] = (), **more: Any) -> Any:
    container = {"name": name, "init": False, "state": "running", "detail": "", "restarts": 0, "runs": list(runs)}
    row = {
        "uid": f"{name}{index}{created}",
        "name": f"demo-{name}-0-{index}",
        "step": name,
        "job": 0,
        "index": index,
        "attempt": 0,
    }
    state = {"phase": "Running", "detail": "", "node": "n", "restarts": 0, "created": at(created), "scheduled": at(created)}
    return {**row, **state, "gone": False, "deleting": False, "containers": [container], **more}


def job(**status: Any) -> Any:
    made = trainjob("demo", status=status)
    made["metadata"]["creationTimestamp"] = at(0)
    return made


def ended(kind: str, second: int) -> dict[str, str]:
    return {"type": kind, "status": "True", "reason": "R", "message": "", "lastTransitionTime": at(second)}


def kinds(lane: Any) -> list[str]:
    return [span["kind"] for span in lane["spans"]]


def test_steps_come_in_the_order_of_the_runtime() -> None:
    pods = [pod("node", 0, runs=(run(10),)), pod("dataset-initializer", runs=(run(1, 9, 0),)), pod("node", 1, runs=(run(10),))]
    found = timeline_of(job(), pods, [], [], steps=("dataset-initializer", "node"))
    assert [lane["name"] for lane in found["lanes"]] == ["TrainJob", "dataset-initializer", "node-0-0", "node-0-1"]
    assert kinds(found["lanes"][1]) == ["waiting", "succeeded"]
    assert kinds(found["lanes"][2]) == ["waiting", "running"]


def test_job_that_ended_has_no_open_span() -> None:
    pods = [pod(created=1, runs=(run(5, 20, 0),))]
    found = timeline_of(job(conditions=[ended("Complete", 21)]), pods, [], [])
    assert found["until"] == at(21)
    assert kinds(found["lanes"][0]) == ["waiting", "starting", "running", "succeeded"]
    assert all(span["until"] for lane in found["lanes"] for span in lane["spans"])


def test_runs_of_a_restarted_container_are_spans_of_their_own() -> None:
    pods = [pod(runs=(run(1, 2, 137, "OOMKilled"), run(4)))]
    (_, lane) = timeline_of(job(), pods, [], [])["lanes"]
    assert kinds(lane) == ["waiting", "failed", "running"]
    assert lane["spans"][1]["note"] == "exit code 137 (OOMKilled)"


def test_pods_of_earlier_attempts_share_the_lane_of_their_place() -> None:
    pods = [pod(created=0, runs=(run(1, 9, 1),), gone=True), pod(created=10, runs=(run(12),))]
    (_, lane) = timeline_of(job(), pods, [], [])["lanes"]
    assert kinds(lane) == ["waiting", "failed", "waiting", "running"]


def test_pod_that_was_deleted_while_it_ran_has_an_end() -> None:
    pods = [pod(runs=(run(3),), gone=True)]
    (_, lane) = timeline_of(job(), pods, [], [])["lanes"]
    assert lane["spans"][0]["until"]
    assert all(span["until"] for span in lane["spans"])


def test_seen_phases_outrank_what_is_concluded() -> None:
    transitions = [
        Transition(phase="Running", since=""),
        Transition(phase="Suspended", since=at(30)),
        Transition(phase="Running", since=at(50)),
    ]
    pods = [pod(runs=(run(1, 30, 0),)), pod(created=45, runs=(run(50),))]
    found = timeline_of(job(), pods, [], transitions)
    assert [(span["kind"], span["since"]) for span in found["lanes"][0]["spans"]][-2:] == [
        ("suspended", at(30)),
        ("running", at(50)),
    ]


def test_job_whose_container_waits_to_be_restarted_is_not_running() -> None:
    pods = [pod(runs=(run(1, 2, 1),))]
    found = timeline_of(job(), pods, [], [Transition(phase="Starting", since="")])
    assert kinds(found["lanes"][0])[-1] == "starting"


def test_many_pods_of_a_step_are_one_lane() -> None:
    pods = [pod(index=index, runs=(run(1, 5, 1 if index == 7 else 0),)) for index in range(128)]
    found = timeline_of(job(), pods, [], [])
    assert [lane["name"] for lane in found["lanes"]] == ["TrainJob", "node (128 pods)"]
    assert found["lanes"][1]["spans"][-1]["note"] == "1 of 128 runs failed"


def test_pods_that_nobody_saw_are_known_by_their_events() -> None:
    subject = {"kind": "Pod", "name": "demo-node-0-0-old"}
    events = [{"involvedObject": subject, "firstTimestamp": at(1), "lastTimestamp": at(second)} for second in (1, 8)]
    found = timeline_of(job(), [pod(created=10)], events, [])
    assert found["lanes"][-1]["name"] == "demo-node-0-0-old (gone)"
    assert (found["lanes"][-1]["spans"][0]["since"], found["lanes"][-1]["spans"][0]["until"]) == (at(1), at(8))


def test_suspended_job_without_pods_has_one_open_span() -> None:
    suspended = {"type": "Suspended", "status": "True", "lastTransitionTime": at(0)}
    found = timeline_of(job(conditions=[suspended]), [], [], [Transition(phase="Suspended", since="")])
    assert kinds(found["lanes"][0]) == ["suspended"]
