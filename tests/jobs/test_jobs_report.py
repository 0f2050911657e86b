"""Why it failed: exit codes, signals, memory, missing pods, logs that are forbidden."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from factories import container_status, event, program_request, terminated

from trainwright.api.errors import BadRequest
from trainwright.cluster.protocol import DelegatingCluster
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Submission, submit_or_adopt
from trainwright.jobs.diagnosis.report import report_of
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
