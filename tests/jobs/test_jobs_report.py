"""Why it failed: exit codes, signals, memory, missing pods, logs that are forbidden."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from factories import container_status, event, program_request, terminated

from trainwright.api.errors import BadRequest, Forbidden, ServiceUnavailable
from trainwright.cluster.delegating import DelegatingCluster
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Submission, submit_or_adopt
from trainwright.jobs.diagnosis.report import last_seen, report_of
from trainwright.jobs.state.describe import description_of

LOG = b"one\n\xfftwo\n"


class WithLogs(DelegatingCluster):
    """The cluster with logs that the test wrote."""

    def __init__(self, cluster: EmbeddedCluster, log: bytes | Exception = LOG):
        super().__init__(cluster)
        self._log = log

    def logs(self, *_: Any, **__: Any) -> Iterator[bytes]:
        if isinstance(self._log, Exception):
            raise self._log
        yield self._log


@pytest.fixture
def failed(cluster: EmbeddedCluster, set_status: Any) -> dict[str, Any]:
    job: dict[str, Any] = set_status(
        submit_or_adopt(Submission(cluster, program_request(), Identity("o", "r", "s"), "default")).trainjob, "Failed"
    )
    return job


def ended(code: int, reason: str = "Error", at: str = "2026-01-01T00:00:00Z", **more: Any) -> dict[str, Any]:
    return container_status(terminated(code, reason, at, **more))


CONDITION = "FailedReason: the Failed message"


def report(cluster: Any, failed: dict[str, Any]) -> list[str]:
    """The lines of the report, without that of the condition, which follows the headline of a pod."""
    return [line for line in str(report_of(cluster, failed)).splitlines() if line != CONDITION]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (ended(7), "exited 7"),
        (ended(1, message="no such file"), "exited 1: no such file"),
        (ended(137, "OOMKilled"), "exited 137 (out of memory)"),
        (ended(139), "exited 139 (ended by signal 11)"),
    ],
)
def test_how_a_pod_ended_and_its_last_lines(
    cluster: EmbeddedCluster, failed: dict[str, Any], add_pod: Any, status: Any, words: str
) -> None:
    pod = add_pod(failed, phase="Failed", containerStatuses=[status])
    lines = report(WithLogs(cluster), failed)
    assert lines[0].startswith(f"TrainJob default/{failed['metadata']['name']} failed: pod {pod['metadata']['name']} {words}")
    assert str(report_of(WithLogs(cluster), failed)).splitlines()[1] == CONDITION
    assert lines[1] == f"pod {pod['metadata']['name']} (step node, container node) {words}"
    assert lines[2:] == ["    one", "    \ufffdtwo"]


def test_the_cause_stands_before_its_consequences_and_the_rest_is_counted(
    cluster: EmbeddedCluster, failed: dict[str, Any], add_pod: Any
) -> None:
    for index in range(6):
        add_pod(failed, index, phase="Failed", containerStatuses=[ended(143, at="2026-01-01T00:00:01Z")])
    add_pod(failed, 6, phase="Failed", containerStatuses=[ended(1, at="2026-01-01T00:00:05Z")])
    add_pod(failed, 7, phase="Failed", containerStatuses=[ended(9, at="2026-01-01T00:00:01Z")])
    pods = [line for line in report(WithLogs(cluster), failed) if line.startswith("pod ")]
    assert [line.split("-node-0-")[1][0] for line in pods] == ["7", "6", "0", "1"]
    assert report(WithLogs(cluster), failed)[-1] == "... and 4 more pods"


def test_recovered_pods_are_not_reported(cluster: EmbeddedCluster, failed: dict[str, Any], add_pod: Any) -> None:
    recovered = {**ended(0, "Completed"), "lastState": ended(3)["state"]}
    crashed = {**ended(0), "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ended(4)["state"]}
    add_pod(failed, 0, phase="Succeeded", containerStatuses=[recovered])
    add_pod(failed, 1, phase="Running", containerStatuses=[crashed])
    pods = [line for line in report(WithLogs(cluster), failed) if line.startswith("pod ")]
    assert len(pods) == 1
    assert "exited 4" in pods[0]


class WithRuns(WithLogs):
    """What the run before the last restart has printed, and what the one after it."""

    def __init__(self, cluster: EmbeddedCluster, now: bytes, before: bytes | None):
        super().__init__(cluster)
        self._now, self._before = now, before

    def logs(self, *_: Any, previous: bool = False, **__: Any) -> Iterator[bytes]:
        if previous and self._before is None:
            raise BadRequest("previous terminated container not found")
        yield (self._before or b"") if previous else self._now


@pytest.mark.parametrize(
    ("is_earlier", "now", "before", "line"),
    [
        (True, b"anew", b"why", "why"),
        (True, b"anew", None, "anew"),
        (True, b"", b"", "(the log is empty)"),
        (False, b"why", b"earlier", "why"),
        (False, b"", b"earlier", "earlier"),
        (False, b"", None, "(the log is empty)"),
    ],
)
def test_the_log_of_a_container_that_was_restarted_is_that_of_the_run_that_failed(
    cluster: EmbeddedCluster, failed: dict[str, Any], add_pod: Any, is_earlier: bool, now: bytes, before: bytes | None, line: str
) -> None:
    status = {**ended(3), "restartCount": 1}
    if is_earlier:
        status |= {"state": {"running": {}}, "lastState": ended(3)["state"]}
    add_pod(failed, phase="Running" if is_earlier else "Failed", containerStatuses=[status])
    assert report(WithRuns(cluster, now, before), failed)[2] == f"    {line}"


def test_every_container_that_failed_is_told_with_its_last_lines(
    cluster: EmbeddedCluster, failed: dict[str, Any], add_pod: Any
) -> None:
    pod = add_pod(failed, phase="Failed", containerStatuses=[ended(7), {**ended(137, "OOMKilled"), "name": "sidecar"}])
    lines = report(WithLogs(cluster), failed)
    name = pod["metadata"]["name"]
    assert lines[1::3] == [
        f"pod {name} (step node, container node) exited 7",
        f"pod {name} (step node, container sidecar) exited 137 (out of memory)",
    ]
    assert lines[2:4] == lines[5:7] == ["    one", "    \ufffdtwo"]
    (told,) = report_of(WithLogs(cluster), failed).as_dict()["pods"]
    assert [other["container"] for other in told["alsoFailed"]] == ["sidecar"]


def test_without_pods_the_last_warning_is_told(cluster: EmbeddedCluster, failed: dict[str, Any]) -> None:
    assert report(cluster, failed)[1:] == ["last seen: no pod is waiting and there is no warning event"]
    name = failed["metadata"]["name"]
    for number, kind in enumerate(("Warning", "Warning", "Normal")):
        at = f"2100-01-01T00:00:0{number}Z"
        cluster.create(event("TrainJob", name, f"Reason{number}", f"message {number}", at, type=kind))
    cluster.create(event("TrainJob", name, "Reason2", "of an earlier job of that name", "2020-01-01T00:00:00Z", type="Warning"))
    assert report(cluster, failed)[1:] == [f"last seen: TrainJob {name}: Reason1: message 1", "event: Reason0: message 0"]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes: no GPU"}]},
            "is waiting: 0/1 nodes: no GPU",
        ),
        (
            {
                "phase": "Pending",
                "containerStatuses": [
                    {**ended(0), "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
                ],
            },
            "is waiting: ImagePullBackOff: no such image",
        ),
    ],
)
def test_last_seen_names_the_reason_of_a_waiting_pod(
    cluster: EmbeddedCluster, failed: dict[str, Any], add_pod: Any, status: Any, words: str
) -> None:
    add_pod(failed, **status)
    assert words in last_seen(cluster, failed)[0]


def test_forbidden_reads_are_noted_beside_the_rest(cluster: EmbeddedCluster, failed: dict[str, Any], add_pod: Any) -> None:
    add_pod(failed, phase="Failed", containerStatuses=[ended(7)])
    lines = report(WithLogs(cluster, Forbidden("pods/log is forbidden")), failed)
    assert "exited 7" in lines[1]
    assert lines[2:] == ["    (the log cannot be read: pods/log is forbidden)"]
    assert report(WithLogs(cluster, b""), failed)[2:] == ["    (the log is empty)"]

    class NoPods:
        def list(self, *_: Any, **__: Any) -> None:
            raise Forbidden("pods is forbidden")

        get = cluster.get

    unread = [f"({what} cannot be listed: pods is forbidden)" for what in ("the Jobs", "the pods")]
    assert report(NoPods(), failed)[1:] == unread
    assert last_seen(NoPods(), failed) == ("last seen: nothing (pods is forbidden)", None)  # type: ignore[arg-type]


def test_a_long_log_is_cut_to_its_last_lines(cluster: EmbeddedCluster, failed: dict[str, Any], add_pod: Any) -> None:
    add_pod(failed, phase="Failed", containerStatuses=[ended(7)])
    lines = report(WithLogs(cluster, b"\n".join(b"line %d" % n for n in range(50))), failed)
    assert lines[2:] == [f"    line {n}" for n in range(30, 50)]


def test_a_description_tells_steps_pods_and_only_its_own_events(
    cluster: EmbeddedCluster, failed: dict[str, Any], add_pod: Any
) -> None:
    add_pod(failed, phase="Failed", containerStatuses=[{**ended(7), "restartCount": 2}])
    name = failed["metadata"]["name"]
    for about in (name, f"{name}-node-0-3-gone", f"{name}-2", f"{name}-2-node-0-0-x", "other"):
        cluster.create(event("Pod", about, "Seen", f"at {about}."))
    text = description_of(cluster, failed)
    assert "Phase:      Failed" in text
    assert "Failed=True FailedReason: the Failed message" in text
    assert f"{name}-node-0-0-abcde  node[0]  Failed  2 restarts" in text
    assert f"at {name}." in text
    assert f"at {name}-node-0-3-gone." in text
    assert text.count("Seen:") == 2


def test_report_reads_again_after_a_transient_error(cluster: EmbeddedCluster, failed: dict[str, Any], add_pod: Any) -> None:
    add_pod(failed, phase="Failed", containerStatuses=[ended(7)])
    busy = iter([ServiceUnavailable("busy")])

    class Busy(WithLogs):
        def list(self, *args: Any, **more: Any) -> Any:
            for error in busy:
                raise error
            return self._cluster.list(*args, **more)

    text = str(report_of(Busy(cluster), failed))
    assert "exited 7" in text
    assert "cannot be listed" not in text
