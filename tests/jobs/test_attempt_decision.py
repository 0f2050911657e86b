"""What a submission does about an attempt: a table of cases, and submissions under faults that never double a job."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from factories import cluster_with_runtimes, train_request, trainjob
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from trainwright.api import names
from trainwright.api.conditions import is_finished, is_true
from trainwright.api.errors import AlreadyExists, ServiceUnavailable
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, annotations_of, generation_of, is_deleting, name_of, uid_of
from trainwright.api.phase import Verdict, superseded
from trainwright.cluster.protocol import DelegatingCluster
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Submission, TrainJobNameTaken, delete_job, submit_or_adopt, suspend_job
from trainwright.jobs.state.identity import Submitter
from trainwright.jobs.state.waiters import is_active
from trainwright.jobs.submit.adoption import Adopt, Create, Decision, Next, Supersede, Wanted, decide
from trainwright.jobs.submit.submit_or_adopt import Submitted
from trainwright.submission.jobs_client import JobsClient
from trainwright.submission.jobset_mode import JobSetCluster

STEP = Identity("airflow/dag", "dag/run", "train", submitter=Submitter("monday", "2", adopts_reruns=False))
UNSURE = Identity("kfp", "run", "train", submitter=Submitter(is_certain=False))
CLEARED = replace(STEP, submitter=replace(STEP.submitter, clears="3"))
RERUN = replace(STEP, submitter=replace(STEP.submitter, run_instance="tuesday"))
NAMED = replace(STEP, submitter=replace(STEP.submitter, run_instance="tuesday", adopts_reruns=True))
PERSON = replace(STEP, submitter=Submitter())
SAME_TRY = replace(STEP, submitter=replace(STEP.submitter, task_instance="ti", waiter="next"))
GIVEN_UP = Verdict("QueueTimeout", "queued for too long", resumable=True)


def existing(identity: Identity = STEP, *, digest: str = "d1", state: str = "", owner: str = "", **annotations: str) -> Obj:
    """A job that an earlier submission of `identity` has created."""
    noted = {names.OWNER_ANNOTATION: owner or str(identity), names.SPEC_DIGEST_ANNOTATION: digest}
    noted |= identity.submitter.annotations() | annotations
    job = trainjob("job", nodes=1 if digest == "d1" else 2, metadata={"annotations": noted, "uid": "u", "generation": 1})
    if state in ("Complete", "Failed"):
        return {**job, "status": {"conditions": [{"type": state, "status": "True"}]}}
    if state == "deleting":
        job["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if state in ("given up", "superseded"):
        job["spec"]["suspend"] = True
        verdict = GIVEN_UP if state == "given up" else superseded("replaced")
        job["metadata"]["annotations"] |= verdict.annotation(generation_of(job))
        job["metadata"]["annotations"][names.SUSPENDED_BY_ANNOTATION] = names.suspended_by_us(generation_of(job))
    return job


def decided(job: Obj | None, identity: Identity = STEP, unanswered: Obj | None = None, **request: Any) -> Decision:
    return decide(job, unanswered, Wanted(identity, train_request(**request), lambda _job: existing()))


LOST = {names.TASK_INSTANCE_ANNOTATION: "ti", names.WAITER_ANNOTATION: "killed"}
SEEN = {names.RESULT_SEEN_ANNOTATION: "true"}
REPLACE = {"on_changed_request": "replace"}


@pytest.mark.parametrize(
    ("job", "identity", "request_", "expected"),
    [
        (None, STEP, {}, Create()),
        # A retry of the same execution.
        (existing(), STEP, {}, Adopt),
        (existing(state="Complete"), STEP, {}, Adopt),
        (existing(state="given up"), STEP, {}, Adopt),
        (existing(state="Failed"), STEP, {}, (Next, True)),
        (existing(state="deleting"), STEP, {}, (Next, True)),
        (existing(state="superseded"), STEP, {}, (Next, True)),
        # The process that followed it was lost.
        (existing(state="Failed", **LOST), SAME_TRY, {}, Adopt),
        (existing(state="Failed", **LOST, **{names.PREEMPTED_ANNOTATION: "true"}), SAME_TRY, {}, (Next, True)),
        (existing(state="deleting", **LOST), SAME_TRY, {}, (Next, True)),
        (existing(state="Failed", **LOST | {names.WAITER_ANNOTATION: "next"}), SAME_TRY, {}, (Next, True)),  # not lost
        # Another execution of the step.
        (existing(), CLEARED, {}, (Supersede, False)),
        (existing(state="Complete"), CLEARED, {}, (Next, False)),
        (existing(state="Failed"), CLEARED, {}, (Next, False)),
        (existing(state="deleting"), CLEARED, {}, (Next, False)),
        (existing(state="Complete"), CLEARED, {"adopt_finished": True}, (Next, False)),
        (existing(), RERUN, {}, (Supersede, False)),
        (existing(state="Complete"), RERUN, {}, (Next, False)),
        (existing(state="Complete"), RERUN, {"adopt_finished": True}, Adopt),
        (existing(), NAMED, {}, Adopt),
        (existing(state="Complete"), NAMED, {}, (Next, False)),
        # It is not known who asks, or who asked.
        (existing(PERSON), PERSON, {}, Adopt),
        (existing(PERSON, state="Complete"), PERSON, {}, Adopt),
        (existing(PERSON, state="Complete", **SEEN), PERSON, {}, (Next, False)),
        (existing(PERSON, state="Complete", **SEEN), PERSON, {"adopt_finished": True}, Adopt),
        (existing(UNSURE), UNSURE, {}, Adopt),
        (existing(UNSURE, state="Complete"), UNSURE, {}, (Next, False)),
        (existing(UNSURE, state="Failed"), UNSURE, {}, (Next, True)),
        # The request has changed.
        (existing(digest="d2"), STEP, {}, Adopt),
        (existing(digest="d2"), STEP, REPLACE, (Supersede, True)),
        (existing(digest="d2", state="Complete"), STEP, {}, (Next, True)),
        (existing(digest="d2", state="Complete"), STEP, REPLACE, (Next, True)),
        (existing(digest="d2", state="given up"), STEP, {}, (Next, True)),
        (existing(PERSON, digest="d2", state="given up"), PERSON, {}, (Next, True)),
        (existing(PERSON, digest="d2", state="Complete"), PERSON, {}, (Next, True)),
        (existing(PERSON, digest="d2"), PERSON, {}, TrainJobNameTaken),
        (existing(digest="d2"), NAMED, REPLACE, TrainJobNameTaken),
        # Somebody else's.
        (existing(owner="ann"), STEP, {}, TrainJobNameTaken),
        (existing(owner="ann", state="Failed"), STEP, {}, TrainJobNameTaken),
        (existing(owner="ann", state="deleting"), CLEARED, {}, TrainJobNameTaken),
    ],
)
def test_decision_on_an_attempt(job: Obj | None, identity: Identity, request_: dict[str, Any], expected: Any) -> None:
    if expected is TrainJobNameTaken:
        with pytest.raises(TrainJobNameTaken):
            decided(job, identity, **request_)
        return
    decision = decided(job, identity, **request_)
    if isinstance(expected, tuple):
        assert (type(decision), getattr(decision, "continues", None)) == expected
    else:
        assert decision == expected if job is None else isinstance(decision, expected)


@pytest.mark.parametrize("state", ["", "Complete", "Failed", "deleting"])
def test_job_whose_answer_was_lost_is_that_of_this_try_in_any_state(state: str) -> None:
    sent = existing(**{names.WAITER_RENEWED_ANNOTATION: "2026-01-01T00:00:00Z"})
    stored = existing(state=state, **{names.WAITER_RENEWED_ANNOTATION: "2026-01-01T00:00:00Z", "added.by/webhook": "x"})
    assert decided(stored, unanswered=sent) == Adopt(stored, is_new=True)


@pytest.mark.parametrize("identity", [CLEARED, STEP])
def test_job_of_another_client_after_a_lost_answer_is_decided_on_as_any_other(identity: Identity) -> None:
    sent = existing(identity, **{names.WAITER_RENEWED_ANNOTATION: "2026-01-01T00:00:00Z"})
    theirs = existing(STEP, state="Failed", **{names.WAITER_RENEWED_ANNOTATION: "2026-01-01T00:00:09Z"})
    assert isinstance(decided(theirs, identity, unanswered=sent), Next)


def test_changed_fields_are_named() -> None:
    for job, decision in ((existing(digest="d2"), Adopt), (existing(digest="d2", state="Complete"), Next)):
        found = decided(job)
        assert isinstance(found, decision)
        assert found.changed == "trainer.numNodes: 2 -> 1"
    assert decided(existing(digest="d2"), **REPLACE).reason.endswith("trainer.numNodes: 2 -> 1")  # type: ignore[union-attr]


class Faulty(DelegatingCluster):
    """A cluster on which another client may act before a create, and the request or the answer of that create may be lost."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        super().__init__(cluster)
        self.fault = ""
        self.meanwhile: Callable[[], Any] | None = None
        self.afterwards: Callable[[Obj], Any] | None = None
        self.created: list[str] = []

    def create(self, obj: Obj, **options: Any) -> Obj:
        if obj["kind"] not in ("TrainJob", "JobSet"):
            return self._cluster.create(obj, **options)
        meanwhile, self.meanwhile, fault, self.fault = self.meanwhile, None, self.fault, ""
        if meanwhile is not None:
            meanwhile()
        if fault == "request lost":
            raise ServiceUnavailable("no connection", retry_after=0.001)
        made = self._cluster.create(obj, **options)
        self.created.append(uid_of(made))
        if self.afterwards is not None:
            self.afterwards(made)
        if fault == "answer lost":
            raise ServiceUnavailable("the connection broke", retry_after=0.001)
        return made


@pytest.mark.parametrize("lease", [0, 60])
@pytest.mark.parametrize("in_mode", [JobsClient, JobSetCluster])
def test_job_is_found_as_new_after_a_lost_answer_in_both_modes(in_mode: type[JobsClient], lease: int) -> None:
    with cluster_with_runtimes() as cluster:
        faulty = Faulty(cluster)
        faulty.fault = "answer lost"
        submission = Submission(in_mode(faulty), train_request(), STEP, "default")
        made = submit_or_adopt(submission, waiter_lease_seconds=lease)
        assert (made.adopted, faulty.created, made.trainjob["spec"].get("suspend", False)) == (
            False,
            [uid_of(made.trainjob)],
            False,
        )


NOT_SURE = replace(STEP, submitter=Submitter(is_certain=False))
IDENTITIES = st.sampled_from([STEP, CLEARED, RERUN, NAMED, NOT_SURE])
REQUESTS = st.fixed_dictionaries(
    {
        "num_nodes": st.sampled_from([1, 2]),
        "on_changed_request": st.sampled_from(["adopt", "replace"]),
        "adopt_finished": st.booleans(),
        "on_cancel": st.sampled_from(["suspend", "delete", "keep"]),
    }
)
FAULTS = st.sampled_from(["", "", "request lost", "answer lost"])


class Submissions(RuleBasedStateMachine):
    """Executions of one step submit while jobs end, are deleted, suspended or given up, and others take their names."""

    @initialize()
    def begin(self) -> None:
        self._context = cluster_with_runtimes()
        self.cluster = self._context.__enter__()
        self.theirs: dict[str, str] = {}
        self.finished: dict[str, str] = {}

    def teardown(self) -> None:
        if hasattr(self, "_context"):
            self._context.__exit__(None, None, None)

    def jobs(self) -> Iterator[Obj]:
        yield from (job for job in self.cluster.list(TRAINJOB).items if annotations_of(job)[names.OWNER_ANNOTATION] == str(STEP))

    @rule(
        identity=IDENTITIES,
        request=REQUESTS,
        fault=FAULTS,
        other=st.none() | st.sampled_from([STEP, CLEARED, "ann"]),
        end=st.sampled_from(["", "", "Complete", "Failed", "deleted"]),
    )
    def submit(self, identity: Identity, request: dict[str, Any], fault: str, other: Identity | str | None, end: str) -> None:
        faulty = Faulty(self.cluster)
        faulty.fault = fault
        if other is not None:
            faulty.meanwhile = lambda: self.act_meanwhile(other)
        if end and fault == "answer lost":
            faulty.afterwards = lambda job: self.end(job, end)
        try:
            made = submit_or_adopt(Submission(faulty, train_request(**request), identity, "default"))
        except TrainJobNameTaken:
            assert not faulty.created
            return
        self.check(made, identity, request, faulty.created)

    def check(self, made: Submitted, identity: Identity, request: dict[str, Any], created: list[str]) -> None:
        assert created == ([] if made.adopted else [uid_of(made.trainjob)]), "a submission creates one job, and returns it"
        job, noted = made.trainjob, annotations_of(made.trainjob)
        if not made.adopted:
            assert noted.get(names.RUN_INSTANCE_ANNOTATION, "") == identity.submitter.run_instance
            return
        own = (identity.submitter.run_instance, identity.submitter.clears)
        asked_by = (noted.get(names.RUN_INSTANCE_ANNOTATION), noted.get(names.CLEARS_ANNOTATION))
        if is_finished(job):
            assert identity.submitter.is_certain, "it may be the result of another step"
            may_adopt = request["adopt_finished"] and asked_by[1] == own[1]
            assert asked_by in (own, (None, None)) or may_adopt, "a result of another execution"
            assert is_true(job, "Complete"), "a failure is not taken for the end of another try"
            assert job["spec"]["trainer"]["numNodes"] == request["num_nodes"], "a result of another request"
        assert not is_deleting(job)

    def act_meanwhile(self, other: Identity | str) -> None:
        """Another client acts between the look and the create: the step itself, or somebody whose job has the same name."""
        if isinstance(other, Identity):
            with contextlib.suppress(TrainJobNameTaken):
                submit_or_adopt(Submission(self.cluster, train_request(), other, "default"))
            return
        numbers = [int(annotations_of(job)[names.ATTEMPT_ANNOTATION]) for job in self.jobs()]
        name = STEP.name(max(numbers, default=0) + 1)
        with contextlib.suppress(AlreadyExists):
            made = self.cluster.create(trainjob(name, metadata={"annotations": {names.OWNER_ANNOTATION: other}}))
            self.theirs[name] = made["metadata"]["resourceVersion"]

    @rule(data=st.data(), state=st.sampled_from(["Complete", "Failed", "deleted", "collected", "suspended", "given up"]))
    def change(self, data: st.DataObject, state: str) -> None:
        if jobs := [job for job in self.jobs() if not is_deleting(job)]:
            self.end(data.draw(st.sampled_from(jobs)), state)

    def end(self, job: Obj, state: str) -> None:
        if state in ("Complete", "Failed"):
            if not is_finished(job) and not job["spec"].get("suspend"):
                status = {"conditions": [{"type": state, "status": "True", "reason": "r", "message": "m"}]}
                stored = {"status": {"conditions": [{**status["conditions"][0], "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}
                self.cluster.patch(TRAINJOB, name_of(job), stored, "default", subresource="status")
                self.finished[uid_of(job)] = name_of(job)
            return
        if state in ("suspended", "given up"):
            suspend_job(self.cluster, job, GIVEN_UP if state == "given up" else None)
            return
        self.finished.pop(uid_of(job), None)
        delete_job(self.cluster, job)
        if state == "collected":
            self.cluster.patch(TRAINJOB, name_of(job), {"metadata": {"finalizers": None}}, "default")

    @rule()
    def free_the_names(self) -> None:
        for name in self.theirs:
            self.cluster.delete(TRAINJOB, name, "default")
        self.theirs.clear()

    @invariant()
    def at_most_one_job_runs(self) -> None:
        if hasattr(self, "cluster"):
            assert sum(map(is_active, self.jobs())) <= 1

    @invariant()
    def jobs_of_others_are_left_as_they_were(self) -> None:
        for name, version in getattr(self, "theirs", {}).items():
            assert self.cluster.get(TRAINJOB, name, "default")["metadata"]["resourceVersion"] == version

    @invariant()
    def finished_jobs_stay(self) -> None:
        for uid, name in getattr(self, "finished", {}).items():
            assert uid_of(self.cluster.get(TRAINJOB, name, "default")) == uid


TestSubmissions = Submissions.TestCase
TestSubmissions.pytestmark = [pytest.mark.medium]
TestSubmissions.settings = settings(max_examples=60, stateful_step_count=12, deadline=None)
