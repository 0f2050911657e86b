"""Why a job makes no progress: from its queue, its pods, and the events of what could not be created."""

from __future__ import annotations

import re
from typing import Any

import pytest
from factories import event, pod, terminated
from recorders.recorded_cluster import RecordedCluster, Recording
from recording_archives import recordings_of
from support.virtual_time import VirtualClock

from trainwright.api.errors import Forbidden, NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.cluster.protocol import DelegatingCluster, Listing
from trainwright.jobs.diagnosis.reason_finder import ReasonFinder
from trainwright.jobs.diagnosis.waiting_reason import WaitingReason, node_reason, pods_reason
from trainwright.jobs.state.pods import pods_of

OLD = "2020-01-01T00:00:00Z"


def container(state: dict[str, Any], name: str = "node", last: dict[str, Any] | None = None, restarts: int = 0) -> dict[str, Any]:
    return {"name": name, "state": state, "lastState": last or {}, "restartCount": restarts}


def pod_on_node(*containers: dict[str, Any], name: str = "p", phase: str = "Pending", **metadata: Any) -> dict[str, Any]:
    status = {"containerStatuses": list(containers)}
    return pod(name, nodeName="n1", restartPolicy="OnFailure", phase=phase, metadata=metadata, status=status)


def waiting(reason: str, message: str = "m") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def ended(code: int, reason: str = "Error", message: str = "") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message, "finishedAt": OLD}}


NO_COMMAND = ended(128, "StartError", 'exec: "/no": stat /no: no such file or directory')


@pytest.mark.parametrize(
    ("pods", "words", "part", "cannot_recover"),
    [
        ([pod_on_node(container(waiting("ImagePullBackOff")))], "ImagePullBackOff: m", "image", True),
        ([pod_on_node(container(waiting("InvalidImageName")))], "InvalidImageName: m", "image", True),
        ([pod_on_node(container(waiting("ErrImageNeverPull")))], "ErrImageNeverPull", "image", True),
        ([pod_on_node(container(waiting("CreateContainerConfigError")))], "CreateContainerConfigError: m", "config", True),
        (
            [pod_on_node(container(waiting("CrashLoopBackOff"), last=ended(7), restarts=2), phase="Running")],
            "after 3 runs: container node exited 7",
            "container",
            False,
        ),
        ([pod_on_node(container(ended(7)), phase="Running")], "after its first run: container node exited 7", "container", False),
        ([pod_on_node(container(waiting("CrashLoopBackOff"), last=NO_COMMAND), phase="Running")], "stat /no", "container", True),
        (
            [
                pod_on_node(container(waiting("CrashLoopBackOff"), last=NO_COMMAND), phase="Running"),
                pod_on_node(container({"running": {}}), phase="Running"),
            ],
            "stat /no",
            "container",
            False,  # another node has the command
        ),
        (
            [pod_on_node(container({"running": {}}), phase="Running", deletionTimestamp=OLD)],
            f"its node n1 has been lost since {OLD}",
            "node",
            False,
        ),
    ],
)
def test_the_reason_in_the_status_of_a_pod(pods: list[dict[str, Any]], words: str, part: str, cannot_recover: bool) -> None:
    reason = pods_reason(pods)
    assert reason is not None
    assert words in reason.text
    assert (reason.part, reason.cannot_recover) == (part, cannot_recover)


@pytest.mark.parametrize(
    "pods",
    [
        [],
        [pod_on_node(container(waiting("ContainerCreating", "")))],
        [pod_on_node(container(ended(7)), phase="Failed")],
        [pod_on_node(container({"running": {}}), phase="Running", deletionTimestamp="2100-01-01T00:00:00Z")],
        [pod_on_node(container(ended(0)), phase="Succeeded", deletionTimestamp=OLD)],
    ],
)
def test_a_pod_that_starts_ends_or_has_ended_says_nothing(pods: list[dict[str, Any]]) -> None:
    assert pods_reason(pods) is None


def test_a_lost_pod_that_was_replaced_holds_nothing_up() -> None:
    lost = pod_on_node(container({"running": {}}), phase="Running", uid="a", creationTimestamp=OLD, deletionTimestamp=OLD)
    assert node_reason([lost]) is not None
    successor = pod_on_node(container(waiting("ErrImagePull")), uid="b", creationTimestamp="2026-01-01T00:00:00Z")
    assert node_reason([lost, successor]) is None
    reason = pods_reason([lost, successor])
    assert reason is not None
    assert reason.part == "image", "what its successor waits for"


def add_event(
    cluster: Any, kind: str, name: str, reason: str, message: str, *, warning: bool = True, second: int = 0, place: str = ""
) -> None:
    about = {"type": "Warning" if warning else "Normal", "involvedObject": {"fieldPath": place}}
    cluster.create(event(kind, name, reason, message, f"2100-01-01T00:00:{second:02}Z", **about))


def found(cluster: Any, job: dict[str, Any]) -> WaitingReason | None:
    return ReasonFinder(cluster, job).reason(job, pods_of(cluster, job))


def test_image_that_is_being_pulled_again_may_take_its_time(cluster: Any, job: dict[str, Any], add_pod: Any) -> None:
    entry = container(waiting("ErrImagePull", "connection reset")) | {"image": "", "imageID": "", "ready": False}
    name = add_pod(job, phase="Pending", containerStatuses=[entry])["metadata"]["name"]
    add_event(cluster, "Pod", name, "Failed", "Failed to pull image", second=1)
    reason = found(cluster, job)
    assert reason is not None
    assert (reason.cannot_recover, reason.confirmed_after) == (True, 600.0)
    add_event(cluster, "Pod", name, "Pulling", 'Pulling image "a/b:1"', warning=False, second=2)
    reason = found(cluster, job)
    assert reason is not None
    assert not reason.cannot_recover


def test_refusal_from_before_a_resumption_is_over(cluster: Any, job: dict[str, Any], set_status: Any) -> None:
    job = set_status(job, jobsStatus=[{"name": "node", "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}])
    name = f"{job['metadata']['name']}-node-0"
    add_event(
        cluster, "Job", name, "FailedCreate", 'Error creating: pods "x" is forbidden: violates PodSecurity "restricted:latest"'
    )
    reason = found(cluster, job)
    assert reason is not None
    assert reason.is_final
    resumed = {"type": "Suspended", "status": "False", "reason": "Resumed", "lastTransitionTime": "2100-01-01T00:00:30Z"}
    job["status"]["conditions"] = [resumed]
    assert found(cluster, job) is None


def test_hook_that_kills_a_container_is_named(cluster: Any, job: dict[str, Any], add_pod: Any) -> None:
    """As recorded in goldens/kubelet/cases/stop-poststart-fails."""
    killed = terminated(137)
    entry = container(waiting("CrashLoopBackOff"), last=killed) | {"image": "", "imageID": "", "ready": False, "restartCount": 1}
    name = add_pod(job, phase="Running", containerStatuses=[entry])["metadata"]["name"]
    add_event(cluster, "Pod", name, "FailedPostStartHook", "PostStartHook failed", second=1)
    add_event(cluster, "Pod", name, "Killing", "FailedPostStartHook", warning=False, second=2, place="spec.containers{node}")
    reason = found(cluster, job)
    assert reason is not None
    assert reason.text.endswith("exited 137 (its postStart hook failed)")


class Restricted(DelegatingCluster):
    """A cluster where some kinds are forbidden, or only an older version is served."""

    def __init__(self, cluster: Any, forbidden: tuple[str, ...] = (), absent: tuple[str, ...] = ()):
        super().__init__(cluster)
        self.forbidden, self.absent = forbidden, absent
        self.asked: list[str] = []

    def list(self, kind: Any, namespace: str | None = None, **options: Any) -> Listing:
        self.asked.append(kind.plural)
        if kind.plural in self.forbidden:
            raise Forbidden(f"{kind.plural} is forbidden")
        if kind.version in self.absent:
            raise NotFound("the server could not find the requested resource")
        return self._cluster.list(kind, namespace, **options)


def at(case: str, second: float) -> tuple[VirtualClock, RecordedCluster]:
    recording = Recording(recordings_of("failures") / "cases" / case)
    clock = VirtualClock(recording.epoch())
    cluster = RecordedCluster(recording, clock)
    with clock.installed():
        cluster.create(recording.trainjob)
    clock.jump(second)
    return clock, cluster


@pytest.mark.parametrize(
    ("case", "second", "words"),
    [
        ("kueue-no-queue", 10.0, "queue nobody: Misconfigured: LocalQueue nobody doesn't exist"),
        ("kueue-too-large", 10.0, "queue team: ExceedsMaxQuota: couldn't assign flavors"),
        ("kueue-waits", 10.0, "queue team: WaitingForQuota"),
        ("kueue-preempted", 10.0, r"queue team: Preempted by TrainJob urgent: .*; WaitingForQuota"),
    ],
)
def test_the_reason_of_a_queue(case: str, second: float, words: str) -> None:
    clock, cluster = at(case, second)
    with clock.installed():
        trainjob = cluster.get(TRAINJOB, "job", "train")
        reason = found(cluster, trainjob)
        assert reason is not None
        assert re.match(words, reason.text)
        restricted = Restricted(cluster, forbidden=("workloads",))
        finder = ReasonFinder(restricted, trainjob)
        told = [finder.reason(trainjob, []) for _ in range(3)]
        assert restricted.asked.count("workloads") == 1, "what is forbidden is asked for once"
        assert told[0] is not None or case == "kueue-no-queue", "its events say it, except that the queue is missing"


def test_an_admitted_job_is_not_told_to_wait_and_a_missing_api_is_no_error() -> None:
    clock, cluster = at("kueue-preempted", 3.8)
    with clock.installed():
        trainjob = cluster.get(TRAINJOB, "job", "train")
        assert found(cluster, trainjob) is None
        without = found(Restricted(cluster, absent=("v1beta2", "v1beta1")), trainjob)
        assert without is not None, "its events still tell"
        assert without.text.startswith("queue: Admitted")
    clock, cluster = at("kueue-no-queue", 4.0)
    with clock.installed():
        trainjob = cluster.get(TRAINJOB, "job", "train")
        reason = found(Restricted(cluster, absent=("v1beta2",)), trainjob)
        assert reason is not None, "an older Kueue serves v1beta1"
