"""Which actions are offered: by access reviews in the mode of the cluster, and by the state of the job."""

from __future__ import annotations

from typing import Any

import pytest
from ui_calls import MakeCall

from trainwright.api import names
from trainwright.api.errors import Forbidden, NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import generation_of, name_of
from trainwright.api.phase import Verdict, superseded
from trainwright.cluster.protocol import DelegatingCluster
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import suspend_job
from trainwright.submission.jobset_mode import JobSetCluster
from trainwright.ui.actions import allowed_actions, show_access, state_reasons

Job = dict[str, Any]


class Reviewing(DelegatingCluster):
    """A cluster that answers access reviews: `allowed` are verbs."""

    def __init__(self, cluster: EmbeddedCluster, allowed: tuple[str, ...], error: Exception | None = None):
        super().__init__(cluster)
        self.asked: list[Job] = []
        self._allowed, self._error = allowed, error

    def request(self, method: str, path: str, body: Job | None = None) -> Job:
        assert (method, path.rpartition("/")[2]) == ("post", "selfsubjectaccessreviews")
        if self._error is not None:
            raise self._error
        assert body is not None
        self.asked.append(body["spec"]["resourceAttributes"])
        return {"status": {"allowed": self.asked[-1]["verb"] in self._allowed}}


def test_actions_follow_the_rights_of_the_user(cluster: EmbeddedCluster, job: Job, make_call: MakeCall) -> None:
    reviewing = Reviewing(cluster, ("patch",))
    found = show_access(make_call(query={"namespace": "default", "name": name_of(job)}, of_cluster=reviewing))
    assert found["actions"]["suspend"] == {"allowed": True, "reason": "", "note": ""}
    for action in ("cancel", "delete"):
        assert found["actions"][action]["reason"] == "you may not delete trainjobs.trainer.kubeflow.org in the namespace default"
    assert found["actions"]["resume"]["reason"] == "it was not suspended"
    assert {(each["group"], each["resource"], each["name"]) for each in reviewing.asked} == {
        ("trainer.kubeflow.org", "trainjobs", name_of(job))
    }


def test_jobsets_are_reviewed_in_their_mode(cluster: EmbeddedCluster) -> None:
    reviewing = Reviewing(cluster, ("patch", "delete"))
    assert all(each["allowed"] for each in allowed_actions(JobSetCluster(reviewing), "ns", None).values())
    assert {(each["group"], each["resource"], each["namespace"]) for each in reviewing.asked} == {
        ("jobset.x-k8s.io", "jobsets", "ns")
    }


def test_a_failed_review_leaves_the_decision_to_the_server(cluster: EmbeddedCluster, job: Job, make_call: MakeCall) -> None:
    reviewing = Reviewing(cluster, (), Forbidden("no reviews"))
    found = show_access(make_call(query={"name": name_of(job)}, of_cluster=reviewing))["actions"]
    assert found["suspend"] == {"allowed": True, "reason": "", "note": "permissions cannot be checked: no reviews"}


def test_a_job_that_is_gone_has_no_actions(make_call: MakeCall, cluster: EmbeddedCluster) -> None:
    with pytest.raises(NotFound):
        show_access(make_call(query={"name": "gone"}, of_cluster=Reviewing(cluster, ())))


def test_a_reader_of_no_job_gets_the_error(cluster: EmbeddedCluster, make_call: MakeCall) -> None:
    class Denied(Reviewing):
        def get(self, *_arguments: Any, **_options: Any) -> Any:
            raise Forbidden("not you")

    with pytest.raises(Forbidden, match="not you"):
        show_access(make_call(query={"name": "x"}, of_cluster=Denied(cluster, ())))


@pytest.mark.parametrize(
    ("change", "ruled_out"),
    [
        ({}, {"resume": "it was not suspended"}),
        ({"spec": {"suspend": True}}, {"suspend": "it is suspended already"}),
        (
            {"spec": {"suspend": True}, "metadata": {"labels": {names.QUEUE_LABEL: "q"}}},
            {
                "suspend": "its queue has suspended it, and may start it again: delete it to prevent that",
                "resume": "it waits in its queue, which starts it",
            },
        ),
    ],
)
def test_the_state_rules_actions_out(cluster: EmbeddedCluster, job: Job, change: Job, ruled_out: dict[str, str]) -> None:
    changed = cluster.patch(TRAINJOB, name_of(job), change, "default") if change else job
    assert state_reasons(changed) == ruled_out


def test_ended_superseded_and_deleted_jobs_say_why(job: Job, set_status: Any) -> None:
    ended = set_status(job, "Failed")
    assert state_reasons(ended) == dict.fromkeys(("suspend", "resume", "cancel"), "it had already ended")
    verdict = superseded("its task was cleared").annotation(generation_of(job))
    replaced = {**job, "spec": {**job["spec"], "suspend": True}, "metadata": {**job["metadata"], "annotations": verdict}}
    assert "another job of its step" in state_reasons(replaced)["resume"]
    deleting = {**job, "metadata": {**job["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert set(state_reasons(deleting).values()) == {"it is being deleted"}


def test_job_that_was_given_up_may_be_resumed_and_says_so(cluster: EmbeddedCluster, job: Job, make_call: MakeCall) -> None:
    assert suspend_job(cluster, job, Verdict("FailedTooOften", "pod a exited 1"))
    reviewing = Reviewing(cluster, ("patch", "delete"))
    found = show_access(make_call(query={"namespace": "default", "name": name_of(job)}, of_cluster=reviewing))
    assert found["actions"]["resume"]["allowed"]
    assert found["actions"]["resume"]["note"].startswith("it was given up (FailedTooOften); its pods start again")
    assert found["actions"]["suspend"]["reason"] == "it is suspended already"
    assert not found["ended"]
