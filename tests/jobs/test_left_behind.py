"""Which jobs nobody waits for any more, and what is done with them: the run of the waiting pod, else the lease decides."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from factories import program_request
from support.argo_workflows import RUN, complete_workflow, create_step_pod, create_workflow, note_of, served_workflows
from support.cluster_without_controllers import current
from support.refusing_cluster import refusing

from trainwright.api import names
from trainwright.api.errors import BadRequest, Forbidden, NotFound
from trainwright.api.kinds import POD, TRAINJOB, Kind
from trainwright.api.objects import Obj, annotations_of, is_deleting, name_of
from trainwright.cluster.protocol import DelegatingCluster
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Submission, submit_or_adopt
from trainwright.jobs.state.cancel import CancelOutcome, CancelPolicy
from trainwright.jobs.state.identity import Submitter
from trainwright.jobs.state.left_behind import Decision, RunState, Sight, decide, end_if_left_behind, look
from trainwright.jobs.state.waiters import WORKFLOW, WaitingPod, Workflow, runs_of, waiting_pod_of
from trainwright.jobs.wait.resume_job import resume_job
from trainwright.jobs.wait.run_step import submit_step
from trainwright.steps.ends.clean import LeftJobs, left_jobs, suspend_abandoned
from trainwright.submission.jobset_mode import JobSetCluster

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
POD_NOTE = WaitingPod("team", "pod-1", "uid-1", RUN, "flow.root.train.executor", "flow", "uid-flow").as_text()
OWNED = {names.OWNER_ANNOTATION: "kfp/run/train"}
NOTED = {**OWNED, names.WAITING_POD_ANNOTATION: POD_NOTE}
UNKNOWN, ACTIVE, ENDED = RunState.unknown, RunState.active, RunState.ended
LEASE = 600
STEP = Identity("kfp", "run", "train", submitter=Submitter("run-1"))


def job(annotations: dict[str, str], *, lease_ago: float | None = None, **fields: Any) -> Obj:
    """A job that runs; `lease_ago`: seconds since its lease was renewed."""
    if lease_ago is not None:
        renewed = (NOW - timedelta(seconds=lease_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")
        lease = {names.WAITER_LEASE_ANNOTATION: str(LEASE), names.WAITER_RENEWED_ANNOTATION: renewed}
        annotations = {**annotations, **lease}
    metadata = {
        "name": "j",
        "namespace": "team",
        "uid": "u",
        "generation": 1,
        "annotations": annotations,
        **fields.pop("meta", {}),
    }
    return {"metadata": metadata, "spec": fields.pop("spec", {}), **fields}


SUSPEND, DELETE = CancelPolicy.suspend, CancelPolicy.delete
FINISHED = {"conditions": [{"type": "Complete", "status": "True"}]}
QUEUED: dict[str, Any] = {"meta": {"labels": {names.QUEUE_LABEL: "q"}}, "spec": {"suspend": True}}
OTHER_OWNER = {"ownerReferences": [{"kind": "Workflow", "name": "earlier", "uid": "uid-earlier"}]}


def owner(number: int) -> Obj:
    return {"kind": "Workflow", "name": f"flow-{number}", "uid": f"uid-{number}"}


@pytest.mark.parametrize(
    ("trainjob", "sight", "expected"),
    [
        (job(NOTED), Sight((ENDED,)), SUSPEND),
        (job(NOTED, lease_ago=1), Sight((ENDED,), pod_waits=True), SUSPEND),
        (job({**NOTED, names.ON_CANCEL_ANNOTATION: "delete"}), Sight((ENDED,)), DELETE),
        (job({**NOTED, names.ON_CANCEL_ANNOTATION: "keep"}), Sight((ENDED,)), None),
        (job({**NOTED, names.ON_CANCEL_ANNOTATION: "of a later version"}), Sight((ENDED,)), SUSPEND),
        (job(NOTED), Sight((ACTIVE,)), None),
        (job(NOTED), Sight((UNKNOWN,)), None),
        (job(NOTED, lease_ago=LEASE - 10), Sight((ACTIVE,)), 10),
        (job(NOTED, lease_ago=LEASE - 10), Sight((UNKNOWN,)), 10),
        (job(NOTED, lease_ago=LEASE + 1), Sight((ACTIVE,)), SUSPEND),
        (job(NOTED, lease_ago=LEASE + 1), Sight((ACTIVE,), pod_waits=True), LEASE / 4),
        (job(NOTED, meta=OTHER_OWNER), Sight((ACTIVE, ENDED)), None),
        (job(NOTED, meta=OTHER_OWNER), Sight((ENDED, ENDED)), SUSPEND),
        (job(NOTED, status=FINISHED), Sight((ENDED,)), None),
        (job(NOTED, meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}), Sight((ENDED,)), None),
        (job(NOTED, spec={"suspend": True}), Sight((ENDED,)), None),
        (job(NOTED, **QUEUED), Sight((ENDED,)), SUSPEND),
        (job(NOTED, lease_ago=LEASE + 1, **QUEUED), Sight((ACTIVE,)), None),
        (job({**NOTED, names.SUSPENDED_BY_ANNOTATION: "trainwright@2"}, lease_ago=LEASE + 1), Sight((ENDED,)), None),
        (job({names.WAITING_POD_ANNOTATION: POD_NOTE}, lease_ago=LEASE + 1), Sight((ENDED,)), None),
        (job(OWNED), Sight(), None),
        (job(OWNED, meta=OTHER_OWNER), Sight(), None),
        (job(OWNED, lease_ago=1), Sight(), LEASE - 1),
        (job(NOTED, lease_ago=1, meta={"ownerReferences": [owner(number) for number in range(21)]}), Sight((ENDED,)), LEASE - 1),
        (job(OWNED, lease_ago=-1e10), Sight(), LEASE),
        (job({**OWNED, names.ON_CANCEL_ANNOTATION: "delete"}, lease_ago=LEASE), Sight(), DELETE),
    ],
)
def test_decisions(trainjob: Obj, sight: Sight, expected: CancelPolicy | float | None) -> None:
    decision = decide(trainjob, lambda _: sight, NOW)
    assert (decision.policy if decision.policy is not None else decision.look_again) == expected


def note(**fields: str) -> str:
    return json.dumps({**json.loads(POD_NOTE), **fields})


@pytest.mark.parametrize(
    "text",
    [
        *("", "no JSON", "[]", '{"name": "p"}', '{"of": "a later version"}', "1", "null"),
        *("[" * 2000, "[" * 100_000, note(step="s" * 2048)),
        *(note(run="a b c"), note(run="x" * 300), note(run="x,y"), note(namespace=".."), note(namespace=""), note(name="a/b")),
        note(workflow="../../secrets"),
    ],
)
def test_a_note_that_cannot_be_read_is_none(text: str) -> None:
    assert waiting_pod_of(job({names.WAITING_POD_ANNOTATION: text})) is None
    assert runs_of(job({names.WAITING_POD_ANNOTATION: text}, meta=OTHER_OWNER)) == ()


@pytest.fixture(autouse=True)
def workflows() -> Iterator[None]:
    with served_workflows():
        yield


@pytest.fixture
def workflow(cluster: EmbeddedCluster) -> Obj:
    return create_workflow(cluster)


@pytest.fixture
def step_pod(cluster: EmbeddedCluster, workflow: Obj) -> Obj:
    return create_step_pod(cluster, workflow)


@pytest.fixture
def waiting(workflow: Obj, step_pod: Obj) -> Identity:
    """The step whose pod waits."""
    return replace(STEP, submitter=replace(STEP.submitter, waiting_pod=note_of(step_pod, workflow)))


def ended(cluster: Any, trainjob: Obj, *, later: float = 0) -> Any:
    """What is done with a job, as seen after so many seconds."""
    return end_if_left_behind(cluster, trainjob, partial(look, cluster), lambda: datetime.now(UTC) + timedelta(seconds=later))


@pytest.mark.parametrize("client", [lambda cluster: cluster, JobSetCluster], ids=["trainjob", "jobset"])
def test_a_job_of_a_run_that_has_ended_is_suspended_and_its_step_resumes_it(
    cluster: EmbeddedCluster, client: Any, workflow: Obj, waiting: Identity
) -> None:
    view = client(cluster)
    made = submit_or_adopt(Submission(view, program_request(), waiting, "default"), waiter_lease_seconds=LEASE).trainjob
    assert ended(view, made).decision.policy is None
    complete_workflow(cluster, workflow)
    assert ended(view, made).decision.reason == "its run has ended"
    suspended = current(view, made)
    assert suspended["spec"]["suspend"] is True
    again = create_workflow(cluster, "flow-2")
    note = note_of(create_step_pod(cluster, again), again)
    retried = replace(waiting, submitter=replace(waiting.submitter, waiting_pod=note))
    resumed = submit_or_adopt(Submission(view, program_request(), retried, "default"), waiter_lease_seconds=LEASE).trainjob
    assert not resumed["spec"]["suspend"]
    assert annotations_of(resumed)[names.WAITING_POD_ANNOTATION] == note
    assert ended(view, resumed).decision.policy is None


@pytest.mark.parametrize("how", ["completed", "deleted", "replaced", "being deleted"])
def test_ends_of_a_run(cluster: EmbeddedCluster, workflow: Obj, waiting: Identity, how: str) -> None:
    made = submit_or_adopt(Submission(cluster, program_request(on_cancel="delete"), waiting, "default")).trainjob
    assert annotations_of(made)[names.ON_CANCEL_ANNOTATION] == "delete"
    if how == "completed":
        complete_workflow(cluster, workflow, "Succeeded")
    elif how == "being deleted":
        cluster.patch(WORKFLOW, "flow-1", {"metadata": {"finalizers": ["example.com/artifacts"]}}, "default")
        cluster.delete(WORKFLOW, "flow-1", "default")
    else:
        cluster.delete(WORKFLOW, "flow-1", "default")
        if how == "replaced":
            create_workflow(cluster)
    ended(cluster, made)
    assert is_deleting(current(cluster, made))


@pytest.mark.parametrize(
    "error",
    [
        Forbidden("not you"),
        NotFound("the server could not find the requested resource"),
        BadRequest("name: 'a/b' is not the name of a Workflow"),
    ],
)
def test_without_knowledge_of_workflows_the_lease_decides(cluster: EmbeddedCluster, waiting: Identity, error: Exception) -> None:
    made = submit_or_adopt(Submission(cluster, program_request(), waiting, "default"), waiter_lease_seconds=LEASE).trainjob
    view = refusing(cluster, "get", kinds=[WORKFLOW], error=error)
    assert ended(view, made).decision.look_again == pytest.approx(LEASE, abs=5)
    cluster.patch(POD, "flow-1-train-0", {"status": {"phase": "Failed"}}, "default", subresource="status")
    assert ended(view, made, later=LEASE + 1).decision.policy is SUSPEND


@pytest.mark.parametrize("tries", [(0,), (1,), (0, 1)], ids=["the pod waits", "the next try does", "one has failed"])
def test_an_expired_lease_ends_no_job_whose_step_has_a_pod(
    cluster: EmbeddedCluster, workflow: Obj, waiting: Identity, step_pod: Obj, tries: tuple[int, ...]
) -> None:
    made = submit_or_adopt(Submission(cluster, program_request(), waiting, "default"), waiter_lease_seconds=LEASE).trainjob
    if 0 not in tries:
        cluster.delete(POD, name_of(step_pod), "default", grace_period_seconds=0)
    elif len(tries) > 1:
        cluster.patch(POD, name_of(step_pod), {"status": {"phase": "Failed"}}, "default", subresource="status")
    if 1 in tries:
        create_step_pod(cluster, workflow, 1)
    create_step_pod(cluster, workflow, 0, step="another")
    assert ended(cluster, made, later=LEASE + 1).decision == Decision(look_again=LEASE / 4)
    cluster.patch(POD, f"flow-1-train-{tries[-1]}", {"status": {"phase": "Failed"}}, "default", subresource="status")
    assert ended(cluster, made, later=LEASE + 1).decision.policy is SUSPEND


def test_a_job_that_is_adopted_meanwhile_is_left_alone(cluster: EmbeddedCluster, workflow: Obj, waiting: Identity) -> None:
    made = submit_or_adopt(Submission(cluster, program_request(), waiting, "default")).trainjob
    complete_workflow(cluster, workflow)
    again = create_workflow(cluster, "flow-2")
    note = note_of(create_step_pod(cluster, again), again)

    class Adopted(DelegatingCluster):
        """Another run adopts the job between the decision and its request."""

        def patch(self, kind: Kind, name: str, patch: Any, namespace: str | None = None, **options: Any) -> Obj:
            if not annotations_of(current(cluster, made)).get("adopted"):
                noted = {names.WAITING_POD_ANNOTATION: note, "adopted": "yes"}
                cluster.patch(TRAINJOB, name, {"metadata": {"annotations": noted}}, "default")
            return super().patch(kind, name, patch, namespace, **options)

    assert ended(Adopted(cluster), made).outcome is None
    assert not current(cluster, made)["spec"].get("suspend")


def test_a_job_of_two_runs_ends_with_the_last(cluster: EmbeddedCluster, workflow: Obj, waiting: Identity) -> None:
    def tied(flow: Obj) -> Workflow:
        reference = {
            "apiVersion": WORKFLOW.api_version,
            "kind": "Workflow",
            "name": name_of(flow),
            "uid": flow["metadata"]["uid"],
        }
        return Workflow(name_of(flow), "default", reference)

    second = create_workflow(cluster, "flow-2")
    first = Submission(cluster, program_request(), waiting, "default", workflow=tied(workflow))
    made = submit_or_adopt(first, waiter_lease_seconds=LEASE).trainjob
    other = replace(waiting, submitter=replace(waiting.submitter, waiting_pod=note_of(create_step_pod(cluster, second), second)))
    next_one = Submission(cluster, program_request(), other, "default", workflow=tied(second))
    submit_or_adopt(next_one, waiter_lease_seconds=LEASE)
    complete_workflow(cluster, second)
    assert ended(cluster, made).outcome is None
    assert ended(cluster, made, later=LEASE + 1).decision.look_again == LEASE / 4, "the pod that was noted last may run"
    complete_workflow(cluster, workflow)
    assert ended(cluster, made).decision.policy is SUSPEND


def left_behind(cluster: EmbeddedCluster, workflow: Obj, waiting: Identity) -> Obj:
    """A job that was suspended since its run has ended."""
    made = submit_or_adopt(Submission(cluster, program_request(), waiting, "default"), waiter_lease_seconds=LEASE).trainjob
    complete_workflow(cluster, workflow)
    ended(cluster, made)
    return made


def test_a_person_who_resumes_or_follows_a_job_takes_it_from_its_run(
    cluster: EmbeddedCluster, workflow: Obj, waiting: Identity
) -> None:
    made = left_behind(cluster, workflow, waiting)
    resume_job(cluster, made)
    assert ended(cluster, made, later=LEASE + 1).outcome is None
    followed = submit_or_adopt(Submission(cluster, program_request(), STEP, "default")).trainjob
    assert names.WAITING_POD_ANNOTATION not in annotations_of(followed)
    assert not current(cluster, made)["spec"]["suspend"]


def test_a_job_resumed_by_hand_is_left_alone_until_its_step_waits_again(
    cluster: EmbeddedCluster, workflow: Obj, waiting: Identity
) -> None:
    made = left_behind(cluster, workflow, waiting)
    cluster.patch(TRAINJOB, name_of(made), {"spec": {"suspend": False}}, "default")
    assert ended(cluster, made, later=LEASE + 1).outcome is None
    submit_or_adopt(Submission(cluster, program_request(), waiting, "default"), waiter_lease_seconds=LEASE)
    assert ended(cluster, made).decision.policy is SUSPEND


@pytest.mark.parametrize(("lease", "noted"), [(LEASE, True), (0, False)])
def test_a_job_that_no_step_is_to_wait_for_outlives_its_run(
    cluster: EmbeddedCluster, workflow: Obj, waiting: Identity, lease: int, noted: bool
) -> None:
    handle = submit_step(Submission(cluster, program_request(waiter_lease_seconds=lease), waiting, "default"))
    complete_workflow(cluster, workflow)
    made = cluster.get(TRAINJOB, handle.name, "default")
    assert (waiting_pod_of(made) is not None) is noted
    assert (ended(cluster, made).outcome is not None) is noted


def test_clean_takes_jobs_of_ended_runs_without_waiting_for_their_lease(
    cluster: EmbeddedCluster, workflow: Obj, waiting: Identity
) -> None:
    made = submit_or_adopt(Submission(cluster, program_request(), waiting, "default"), waiter_lease_seconds=LEASE).trainjob
    assert not left_jobs(cluster, "default", LeftJobs(abandoned=True))
    complete_workflow(cluster, workflow)
    assert [each.name for each in suspend_abandoned(cluster, "default")] == [name_of(made)]


def test_a_job_that_may_not_be_deleted_is_suspended(cluster: EmbeddedCluster, workflow: Obj, waiting: Identity) -> None:
    made = submit_or_adopt(Submission(cluster, program_request(on_cancel="delete"), waiting, "default")).trainjob
    complete_workflow(cluster, workflow)
    assert ended(refusing(cluster, "delete"), made).outcome is CancelOutcome.suspended
    assert current(cluster, made)["spec"]["suspend"] is True
